//! MCP over streamable HTTP. Authentication and the judgement of `Origin` are the caller's, which has
//! done both before a request comes here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use yonder_protocol::limits;

use crate::Operate;
use crate::handler::Handler;

/// Comment lines that keep an event stream alive: below the shortest limit of silent streams seen in
/// reverse proxies (15 s).
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How long the state of a client that sends nothing is kept. Agents pause for minutes while they
/// think or wait for a person; a client that comes back later is told to begin anew.
const CLIENT_IDLE: Duration = Duration::from_hours(2);

/// Browser sessions that clients may have named; each costs a map entry.
const SESSIONS_MAX: usize = 1_024;

/// Room for the JSON-RPC envelope around an operation's arguments, and for escapes.
const BODY_BYTES_MAX: usize = 2 * limits::INPUT_BYTES;

type Service<O> = StreamableHttpService<Handler<O>, LocalSessionManager>;

/// The `/mcp` endpoint. Each browser session has clients of its own.
pub struct HttpEndpoint<O: Operate> {
    operate: Arc<O>,
    services: Mutex<HashMap<String, Service<O>>>,
    stop: CancellationToken,
}

impl<O: Operate> fmt::Debug for HttpEndpoint<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEndpoint").finish_non_exhaustive()
    }
}

impl<O: Operate> HttpEndpoint<O> {
    /// An endpoint without clients.
    pub fn new(operate: Arc<O>) -> Self {
        Self {
            operate,
            services: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Answers one request for `session`, whose name the caller has checked. The response's body may
    /// be an event stream that lasts until the client leaves or [`Self::close`] is called.
    pub async fn handle<B>(
        &self,
        session: &str,
        request: Request<B>,
    ) -> Response<BoxBody<Bytes, Infallible>>
    where
        B: http_body::Body + Send + 'static,
        B::Error: fmt::Display,
    {
        let service = self.service(session);
        service.handle(request).await
    }

    /// Ends every client's event stream and refuses further requests.
    pub fn close(&self) {
        self.stop.cancel();
    }

    fn service(&self, session: &str) -> Service<O> {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = services.get(session) {
            return service.clone();
        }
        if services.len() >= SESSIONS_MAX {
            services.clear();
        }
        let service = self.new_service(session);
        services.insert(session.to_owned(), service.clone());
        service
    }

    fn new_service(&self, session: &str) -> Service<O> {
        let mut client = SessionConfig::default();
        client.keep_alive = Some(CLIENT_IDLE);
        let mut clients = LocalSessionManager::default();
        clients.session_config = client;
        // Plain reverse proxies rewrite `Host`, so it proves nothing; the bearer token in front of this
        // endpoint is what keeps rebinding web pages out.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(BODY_BYTES_MAX)
            .with_cancellation_token(self.stop.child_token());
        let operate = Arc::clone(&self.operate);
        let session = session.to_owned();
        StreamableHttpService::new(
            move || Ok(Handler::new(Arc::clone(&operate), session.clone())),
            Arc::new(clients),
            config,
        )
    }
}
