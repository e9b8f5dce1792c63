//! The HTTP surface of the server half: admits requests, finds their route and answers them.
//!
//! Connections, TLS and time limits of whole connections are [`crate::server`]'s; what requests do is the
//! [`Hub`]'s. Every answer carries the version header by which clients know us, and nobody in between
//! may store it.

pub mod answer;
pub mod openapi;

mod admission;
mod call;
mod link;
mod request;
mod route;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yonder_mcp::HttpEndpoint;
use yonder_protocol::{call as envelope, limits};

use self::admission::Admission;
use self::answer::Body;
use self::link::LinkRoute;
use self::route::Route;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::operations::HubOperations;
use crate::server::activity::Activity;
use crate::token::TokenGate;

/// How long a caller of `/attached` waits at most: below the shortest time limits of reverse proxies.
const ATTACHED_HOLD: Duration = Duration::from_secs(25);

/// Bytes of one unary tunnel request: the largest chunk in base64, and its envelope.
const RPC_CHUNK_BODY_BYTES: usize = limits::UNARY_CHUNK_BYTES_MAX / 3 * 4 + 64 * 1024;

/// Bytes of an outcome: its head, and its files in base64.
const RPC_RESULT_BODY_BYTES: usize =
    envelope::HEAD_BYTES_MAX + limits::FILE_TRANSFER_BYTES / 3 * 4 + 64 * 1024;

/// Bytes of an inventory: as many tabs as there may be, each with its longest URL and title.
const RPC_STATE_BODY_BYTES: usize =
    limits::TABS_PER_SESSION * (limits::URL_CHARS + limits::SHORT_CHARS + 1024) * 4;

/// Everything that answers requests.
#[derive(Debug)]
pub(crate) struct Api {
    admission: Admission,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    mcp: HttpEndpoint<HubOperations>,
    link: LinkRoute,
    /// Says that nothing new is begun.
    draining: CancellationToken,
    /// Ends the requests that only wait.
    closing: CancellationToken,
    /// When a caller with the token last asked for something.
    last_request: Mutex<Instant>,
}

impl Api {
    /// Carriers are served in tasks of `tasks`, which end with `stop`. Call it within a tokio runtime.
    pub(crate) fn new(
        gate: TokenGate,
        origins: BTreeSet<String>,
        hub: Arc<Hub>,
        metrics: Arc<Metrics>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            admission: Admission::new(gate, origins),
            mcp: HttpEndpoint::new(Arc::new(HubOperations::new(hub.clone()))),
            link: LinkRoute::new(hub.clone(), tasks, stop),
            hub,
            metrics,
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            last_request: Mutex::new(Instant::now()),
        }
    }

    /// When a caller with the token last asked for something; at first, when this began.
    pub(crate) fn last_request(&self) -> Instant {
        *self.known_request()
    }

    fn known_request(&self) -> MutexGuard<'_, Instant> {
        self.last_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who ask for the server's health that it stops.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    /// Ends the event streams of MCP clients and the requests that only wait.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.mcp.close();
    }

    /// Answers one request on the connection that `activity` watches.
    ///
    /// Dropping the future, as hyper does when the client leaves, cancels what it does.
    pub(crate) async fn answer<B>(&self, request: Request<B>, activity: &Activity) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>> + fmt::Display,
    {
        let route = Route::of(request.uri().path());
        let name = route.name();
        let origin = request.headers().get(ORIGIN).cloned();
        let mut response = self.admit(route, request, activity).await;
        answer::mark(&mut response);
        self.admission
            .share(origin.as_ref(), response.headers_mut());
        self.metrics.request(name, response.status());
        tracing::debug!(
            route = name,
            status = response.status().as_u16(),
            "answered"
        );
        response
    }

    async fn admit<B>(
        &self,
        route: Route,
        request: Request<B>,
        activity: &Activity,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>> + fmt::Display,
    {
        let refusal = if let Some(answer) = self
            .admission
            .preflight(request.method(), request.headers())
        {
            answer
        } else if let Err(refusal) = self.admission.check(&route, request.headers()) {
            *refusal
        } else {
            if route != Route::Health {
                activity.authenticated();
                *self.known_request() = Instant::now();
            }
            if route == Route::Unknown {
                answer::refusal(
                    StatusCode::NOT_FOUND,
                    "unknown_route",
                    "there is no such route; GET openapi.json lists them",
                )
            } else if route.takes(request.method()) {
                return self.dispatch(route, request).await;
            } else {
                answer::method_not_allowed(route.methods())
            }
        };
        request::drain(request.into_body()).await;
        refusal
    }

    async fn dispatch<B>(&self, route: Route, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>> + fmt::Display,
    {
        match route {
            Route::Link => return self.link.answer(request).await,
            Route::Mcp => return self.mcp(request).await,
            _ => {}
        }
        let (head, body) = request.into_parts();
        let body = match request::read(body, body_limit(&route)).await {
            Ok(body) => body,
            Err(refusal) => return *refusal,
        };
        match route {
            Route::Health if self.draining.is_cancelled() => answer::json_with(
                StatusCode::SERVICE_UNAVAILABLE,
                &json!({"status": "stopping"}),
            ),
            Route::Health => answer::json(&json!({"status": "ok"})),
            Route::Metrics => answer::bytes(
                StatusCode::OK,
                Metrics::CONTENT_TYPE,
                self.metrics.to_text(),
            ),
            Route::Status => answer::json(&self.hub.status()),
            Route::OpenApi => answer::json(&*openapi::DOCUMENT),
            Route::Attached => self.attached(&head).await,
            Route::Call(operation) => call::call(&self.hub, &operation, &head, &body).await,
            Route::Rpc(method) => self.hub.rpc(method, Request::from_parts(head, body)).await,
            Route::Events => self.hub.events(),
            // Handled above, or refused by `admit`.
            Route::Link | Route::Mcp | Route::Unknown => answer::method_not_allowed("no method"),
        }
    }

    async fn mcp<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: fmt::Display,
    {
        let (head, body) = request.into_parts();
        match request::session(&head) {
            Ok(session) => {
                self.mcp
                    .handle(&session, Request::from_parts(head, body))
                    .await
            }
            Err(refusal) => {
                request::drain(body).await;
                *refusal
            }
        }
    }

    /// Whether a desktop serves the session; with `was=true` or `was=false` in the query only once that is not so any
    /// more, or after [`ATTACHED_HOLD`].
    async fn attached(&self, head: &http::request::Parts) -> Response<Body> {
        let session = match request::session(head) {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let mut attached = self.hub.attached(&session);
        let was = match request::parameter(head, "was").as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) => {
                return answer::refusal(
                    StatusCode::BAD_REQUEST,
                    "invalid",
                    "the query parameter was can be true or false",
                );
            }
        };
        if let Some(was) = was {
            // Neither the end of the time nor the hub's end changes what is answered: how it stands now.
            let _changed = self
                .closing
                .run_until_cancelled(timeout(ATTACHED_HOLD, attached.wait_for(|now| *now != was)))
                .await;
        }
        let attached = *attached.borrow();
        answer::json(&json!({"attached": attached}))
    }
}

/// Longest body that a route takes.
fn body_limit(route: &Route) -> usize {
    match route {
        Route::Call(_) => limits::INPUT_BYTES,
        Route::Rpc("result") => RPC_RESULT_BODY_BYTES,
        Route::Rpc("state") => RPC_STATE_BODY_BYTES,
        Route::Rpc(_) => RPC_CHUNK_BODY_BYTES,
        // A body means nothing here, but some clients send an empty object along.
        _ => 1_024,
    }
}
