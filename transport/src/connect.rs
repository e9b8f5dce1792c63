//! [`Connector`]: gets carriers from one server half, by whatever way passes.
//!
//! WebSocket first. Where that does not pass (the upgrade is stripped or refused on the way, or no frame comes through),
//! bounded requests do ([`poll`]). What worked is remembered, and WebSocket is tried again now and then.
//! Answers that no other way would change (a wrong token, a certificate, a closed port) are reported at once.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout};
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;

use crate::address::ServerAddress;
use crate::carrier::{Carrier, CarrierKind, Connect, ConnectError};
use crate::http_client::{
    HttpClient, HttpConnection, PROBLEM_BYTES_MAX, RequestError, is_reserved_header, upgraded,
    whole,
};
use crate::poll;
use crate::tls::TlsOptions;
use crate::token::SecretToken;
use crate::websocket::{
    ClientKey, Masking, PROOF_BYTES, PROOF_HEADER, WebSocketStream, upgrade_request,
};
use crate::{LINK_ROUTE, TOKEN_HEADER, VERSION_HEADER};

/// What the upgrade and the first frame may take before the other way is tried.
const WEBSOCKET_BUDGET: Duration = Duration::from_secs(5);

/// How long a path that let no WebSocket through is not asked again.
const WEBSOCKET_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// Bytes of headers that a person may add: with the token, a request head stays below 4 KiB, which every proxy takes.
const EXTRA_HEADER_BYTES_MAX: usize = 2 * 1024;

/// Largest answer to [`Connector::request`]: operations answer with files of 25 MiB in base64.
const ANSWER_BYTES_MAX: usize = 48 * 1024 * 1024;

/// Which header carries the token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AuthHeader {
    /// `Authorization: Bearer TOKEN`.
    #[default]
    Authorization,
    /// `Yonder-Token: TOKEN`, where a reverse proxy wants `Authorization` for itself.
    YonderToken,
}

/// How to reach one server half.
#[derive(Clone, Debug)]
pub struct ConnectorConfig {
    /// Where it is.
    pub address: ServerAddress,
    /// The secret it wants.
    pub token: SecretToken,
    /// Whom to trust; without meaning for `http://`.
    pub tls: TlsOptions,
    /// What a person adds to every request, for proxies in between.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where the token goes.
    pub auth_header: AuthHeader,
    /// The only way to use, [`CarrierKind::WebSocket`] or [`CarrierKind::Poll`]; otherwise what passes.
    pub force: Option<CarrierKind>,
}

/// Gets carriers from one server half.
#[derive(Debug)]
pub struct Connector {
    config: ConnectorConfig,
    headers: HeaderMap,
    given: Arc<HttpClient>,
    /// The client to use: `given`, unless its address turned out to be a redirect to TLS.
    settled: OnceCell<Arc<HttpClient>>,
    memory: Mutex<Memory>,
}

/// What earlier attempts taught.
#[derive(Debug, Default)]
struct Memory {
    /// Whether a WebSocket has passed before. Then its failure is an outage rather than a property of the path, and is
    /// not remembered.
    websocket_passed: bool,
    /// Why, and until when, only requests are used.
    poll: Option<(String, Instant)>,
}

/// How an attempt at a WebSocket failed.
enum Attempt {
    /// In a way that requests would meet too.
    Final(ConnectError),
    /// In a way that requests may not; with the reason in words.
    Blocked(String, ConnectError),
}

impl From<ConnectError> for Attempt {
    fn from(error: ConnectError) -> Self {
        Self::Final(error)
    }
}

impl Connector {
    /// Checks `config` and reads the certificates it names.
    ///
    /// # Errors
    /// [`ConnectError::Configuration`] for headers that cannot be added, a carrier that cannot be forced, and
    /// certificates that cannot be read.
    pub fn new(config: ConnectorConfig) -> Result<Self, ConnectError> {
        if let Some(kind) = config.force
            && !matches!(kind, CarrierKind::WebSocket | CarrierKind::Poll)
        {
            return Err(ConnectError::Configuration(format!(
                "the carrier {kind} cannot be chosen for {}; choose websocket or poll",
                config.address
            )));
        }
        let headers = request_headers(&config)?;
        let tls = config
            .address
            .is_secure()
            .then(|| config.tls.client_config())
            .transpose()?;
        let given = Arc::new(HttpClient::new(
            config.address.clone(),
            tls,
            headers.clone(),
        ));
        Ok(Self {
            config,
            headers,
            given,
            settled: OnceCell::new(),
            memory: Mutex::default(),
        })
    }

    /// Where the server half is.
    pub fn address(&self) -> &ServerAddress {
        self.settled.get().unwrap_or(&self.given).address()
    }

    /// Sends one request on a connection of its own and returns the server half's answer, whatever its status.
    ///
    /// `route` is relative to the server's address. `limit` bounds the time from the open connection to the whole
    /// answer.
    ///
    /// # Errors
    /// The server could not be reached, the answer is not from a server half, or it refuses the token.
    ///
    /// Cancel safe; whether the request had an effect then stays unknown.
    pub async fn request(
        &self,
        method: Method,
        route: &str,
        json: Option<Bytes>,
        limit: Duration,
    ) -> Result<Response<Bytes>, ConnectError> {
        let client = self.client().await?;
        let has_body = json.is_some();
        let mut request = client.request(method, route, json.unwrap_or_default());
        if has_body {
            request
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else {
            request.headers_mut().remove(CONTENT_TYPE);
        }
        let mut connection = client.open().await?;
        let answer = connection
            .exchange(request, ANSWER_BYTES_MAX, limit)
            .await
            .map_err(|error| no_answer(client, error))?;
        client.judge(&answer)?;
        Ok(answer)
    }

    /// The client for the server's address. A plaintext address beyond this machine is asked once without the token,
    /// so that a site which only redirects to TLS never sees it in the clear.
    async fn client(&self) -> Result<&Arc<HttpClient>, ConnectError> {
        self.settled
            .get_or_try_init(|| async {
                let address = self.given.address();
                if address.is_secure() || address.is_loopback() {
                    return Ok(Arc::clone(&self.given));
                }
                let Some(secured) = self.redirect_to_tls().await? else {
                    return Ok(Arc::clone(&self.given));
                };
                tracing::info!(%address, to = %secured, "the server redirects to TLS; following it for good");
                let tls = self.config.tls.client_config()?;
                Ok(Arc::new(HttpClient::new(secured, Some(tls), self.headers.clone())))
            })
            .await
    }

    async fn redirect_to_tls(&self) -> Result<Option<ServerAddress>, ConnectError> {
        const ROUTE: &str = "healthz";
        let client = &self.given;
        let mut connection = client.open().await?;
        let request = client.anonymous_request(Method::GET, ROUTE, Bytes::new());
        let answer = connection
            .exchange(request, PROBLEM_BYTES_MAX, HANDSHAKE_TIMEOUT)
            .await
            .map_err(|error| no_answer(client, error))?;
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|location| location.to_str().ok());
        Ok(location
            .filter(|_| answer.status().is_redirection())
            .and_then(|location| client.address().secured_by(ROUTE, location)))
    }

    async fn connect_any(&self) -> Result<Carrier, ConnectError> {
        let client = self.client().await?;
        let why_not = match self.config.force {
            Some(CarrierKind::Poll) => Some("as set".to_owned()),
            _ => self.websocket_is_blocked(),
        };
        if let Some(reason) = why_not {
            return poll::open(client, &reason).await;
        }
        match websocket(client, Proof::Greeting).await {
            Ok(carrier) => {
                self.websocket_passes();
                Ok(carrier)
            }
            Err(Attempt::Final(error)) => Err(error),
            Err(Attempt::Blocked(_, error)) if self.config.force.is_some() => Err(error),
            Err(Attempt::Blocked(reason, error)) => {
                tracing::debug!(%error, "no WebSocket came about; trying plain requests");
                let carrier = poll::open(client, &reason).await?;
                tracing::info!(%reason, "plain requests carry the link");
                let mut memory = self.memory();
                if !memory.websocket_passed {
                    memory.poll = Some((reason, Instant::now() + WEBSOCKET_AGAIN_AFTER));
                }
                Ok(carrier)
            }
        }
    }

    fn websocket_passes(&self) {
        let mut memory = self.memory();
        memory.websocket_passed = true;
        memory.poll = None;
    }

    /// Tries for a WebSocket now, unless that has just failed, and then again and again.
    async fn climb(&self) -> Carrier {
        loop {
            let again = self.memory().poll.as_ref().map(|(_, until)| *until);
            if let Some(again) = again {
                sleep_until(again).await;
            }
            let attempt = async {
                let client = self.client().await?;
                websocket(client, Proof::Echo).await
            };
            let (reason, error) = match attempt.await {
                Ok(carrier) => {
                    self.websocket_passes();
                    tracing::info!("a WebSocket passes now");
                    return carrier;
                }
                Err(Attempt::Final(error)) => ("the last attempt failed".to_owned(), error),
                Err(Attempt::Blocked(reason, error)) => (reason, error),
            };
            tracing::debug!(%error, "no better carrier came about");
            self.memory().poll = Some((reason, Instant::now() + WEBSOCKET_AGAIN_AFTER));
        }
    }

    fn websocket_is_blocked(&self) -> Option<String> {
        let memory = self.memory();
        let (reason, until) = memory.poll.as_ref()?;
        (Instant::now() < *until).then(|| reason.clone())
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connect for Connector {
    fn connect(&self) -> BoxFuture<'_, Result<Carrier, ConnectError>> {
        Box::pin(self.connect_any())
    }

    fn improve(&self, current: CarrierKind) -> BoxFuture<'_, Carrier> {
        let may_climb = matches!(current, CarrierKind::Poll | CarrierKind::Stream);
        if may_climb && self.config.force.is_none() {
            Box::pin(self.climb())
        } else {
            Box::pin(pending())
        }
    }
}

/// The token and the person's own headers.
fn request_headers(config: &ConnectorConfig) -> Result<HeaderMap, ConnectError> {
    let mut headers = HeaderMap::new();
    let (name, prefix) = match config.auth_header {
        AuthHeader::Authorization => (AUTHORIZATION, "Bearer "),
        AuthHeader::YonderToken => (TOKEN_HEADER, ""),
    };
    let token = config
        .token
        .header(prefix)
        .map_err(|error| ConnectError::Configuration(error.to_string()))?;
    let mut length = 0;
    for (extra, value) in &config.headers {
        if is_reserved_header(extra) {
            return Err(ConnectError::Configuration(format!(
                "the header {extra} cannot be added: it is set by this program"
            )));
        }
        if *extra == name {
            return Err(ConnectError::Configuration(format!(
                "the header {extra} carries the token; set the token's header to Yonder-Token to use {extra} otherwise"
            )));
        }
        length += extra.as_str().len() + value.len() + ": \r\n".len();
        headers.append(extra.clone(), value.clone());
    }
    if length > EXTRA_HEADER_BYTES_MAX {
        return Err(ConnectError::Configuration(format!(
            "the added headers have {length} bytes; at most {EXTRA_HEADER_BYTES_MAX} pass every proxy"
        )));
    }
    headers.insert(name, token);
    Ok(headers)
}

fn no_answer(client: &HttpClient, error: RequestError) -> ConnectError {
    match error {
        RequestError::TimedOut(limit) => ConnectError::TimedOut {
            server: client.address().to_string(),
            step: "the answer to a request",
            limit,
        },
        error => client.broken(&error),
    }
}

/// What must have come through a WebSocket before it counts as passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Proof {
    /// The server's first message.
    Greeting,
    /// That, and an echo of a large message, which costs one more round trip.
    Echo,
}

/// Tries to get a WebSocket.
async fn websocket(client: &HttpClient, proof: Proof) -> Result<Carrier, Attempt> {
    let connection = client.open().await?;
    timeout(WEBSOCKET_BUDGET, upgrade(client, connection, proof))
        .await
        .unwrap_or_else(|_| {
            Err(Attempt::Blocked(
                "no frame came through a WebSocket".to_owned(),
                ConnectError::TimedOut {
                    server: client.address().to_string(),
                    step: "the WebSocket upgrade",
                    limit: WEBSOCKET_BUDGET,
                },
            ))
        })
}

async fn upgrade(
    client: &HttpClient,
    mut connection: HttpConnection,
    proof: Proof,
) -> Result<Carrier, Attempt> {
    let broken = |error: RequestError| {
        Attempt::Blocked(
            "the WebSocket upgrade broke the connection".to_owned(),
            client.broken(&error),
        )
    };
    let fault = |problem: String| {
        Attempt::Blocked(
            "the WebSocket upgrade was answered wrongly".to_owned(),
            ConnectError::Protocol {
                server: client.address().to_string(),
                problem,
            },
        )
    };
    let key = ClientKey::random();
    let mut request = client.request(Method::GET, LINK_ROUTE, Bytes::new());
    request.headers_mut().remove(CONTENT_TYPE);
    request.headers_mut().extend(upgrade_request(&key));
    if proof == Proof::Echo {
        request
            .headers_mut()
            .insert(PROOF_HEADER, HeaderValue::from(PROOF_BYTES));
    }
    let answer = connection.start(request).await.map_err(broken)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let answer = whole(answer, PROBLEM_BYTES_MAX).await.map_err(broken)?;
        return Err(refusal(client, &answer));
    }
    if let Some(problem) = key.fault(answer.headers()) {
        return Err(fault(problem.to_owned()));
    }
    let (io, received) = upgraded(answer).await.map_err(broken)?;
    let masking = if connection.private {
        Masking::Zero
    } else {
        Masking::Random
    };
    let mut stream = WebSocketStream::client(io, received, masking);
    stream.greeted().await.map_err(|error| {
        fault(format!(
            "the WebSocket ended before its first frame: {error}"
        ))
    })?;
    if proof == Proof::Echo {
        stream
            .prove()
            .await
            .map_err(|error| fault(format!("a large message did not pass a WebSocket: {error}")))?;
    }
    let description = format!("WebSocket over {}", connection.protection);
    Ok(Carrier::new(stream, CarrierKind::WebSocket, description))
}

/// What an answer to the upgrade other than 101 means.
fn refusal(client: &HttpClient, answer: &Response<Bytes>) -> Attempt {
    let status = answer.status();
    let ours = answer.headers().contains_key(VERSION_HEADER);
    let error = match client.judge(answer) {
        Err(error) => error,
        Ok(()) => ConnectError::Protocol {
            server: client.address().to_string(),
            problem: crate::http_client::problem_in(answer.body()).unwrap_or_else(|| {
                format!(
                    "the WebSocket upgrade was answered with status {}",
                    status.as_u16()
                )
            }),
        },
    };
    match error {
        // Proxies and firewalls that know no WebSocket answer 403 as well; their 401 asks for a login.
        ConnectError::Refused { .. } if ours || status == StatusCode::UNAUTHORIZED => {
            Attempt::Final(error)
        }
        ConnectError::Busy { .. } => Attempt::Final(error),
        error => Attempt::Blocked(
            format!(
                "the WebSocket upgrade was answered with status {}",
                status.as_u16()
            ),
            error,
        ),
    }
}
