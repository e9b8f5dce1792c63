//! A server half reduced to its carriers: token, upgrade, requests; plain or with TLS.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use yonder_transport::carrier::{Carrier, CarrierKind};
use yonder_transport::poll::{PollConfig, PollServer};
use yonder_transport::tls::Pin;
use yonder_transport::token::SecretToken;
use yonder_transport::websocket::{WebSocketStream, echo_asked, upgrade_response};
use yonder_transport::{LINK_ROUTE, TOKEN_HEADER, VERSION, VERSION_HEADER, tune_carrier_socket};

pub(crate) const TOKEN: &str = "a-token-for-tests";

/// What a request was: method, path, and whether it carried the token.
pub(crate) type Seen = (Method, String, bool);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) carriers: mpsc::Receiver<Carrier>,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    token: SecretToken,
    seen: Mutex<Vec<Seen>>,
    polls: PollServer,
    opened: mpsc::Sender<Carrier>,
    upgrades: TaskTracker,
}

/// A certificate for tests, and the pin of its key.
pub(crate) struct Identity {
    pub(crate) certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new([name.to_owned()])
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        Self { certificate, key }
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin::of(self.certificate.der()).expect("parses")
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let key =
            rustls_pki_types::PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key)
            .expect("a usable certificate");
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Server {
    pub(crate) async fn plain() -> Self {
        Self::start(None).await
    }

    pub(crate) async fn tls(identity: &Identity) -> Self {
        Self::start(Some(identity.acceptor())).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let (polls, mut polled) = PollServer::new(PollConfig::default());
        let (opened, carriers) = mpsc::channel(16);
        let state = Arc::new(State {
            token: SecretToken::new(TOKEN).expect("valid"),
            seen: Mutex::default(),
            polls,
            opened: opened.clone(),
            upgrades: TaskTracker::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Some(carrier) = polled.recv().await {
                opened.send(carrier).await.expect("the test is there");
            }
        });
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.expect("accepts");
                tune_carrier_socket(&tcp);
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => state.serve(tcp).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(tcp).await {
                                state.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            carriers,
            state,
            _tasks: tasks,
        }
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().expect("unpoisoned").clone()
    }

    /// How many requests with `method` there were so far.
    pub(crate) fn count(&self, method: &Method) -> usize {
        self.seen()
            .iter()
            .filter(|(seen, ..)| seen == method)
            .count()
    }

    pub(crate) async fn carrier(&mut self) -> Carrier {
        self.carriers.recv().await.expect("a carrier")
    }
}

impl State {
    async fn serve(self: Arc<Self>, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(|request| {
            let state = Arc::clone(&self);
            async move { Ok::<_, std::convert::Infallible>(state.answer(request).await) }
        });
        // Connections break in these tests on purpose.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades()
            .await;
    }

    async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let presented = request
            .headers()
            .get("authorization")
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
            .or_else(|| {
                request
                    .headers()
                    .get(TOKEN_HEADER)
                    .map(http::HeaderValue::as_bytes)
            });
        let authentic = presented.is_some_and(|token| self.token.matches(token));
        let path = request.uri().path().to_owned();
        self.seen.lock().expect("unpoisoned").push((
            request.method().clone(),
            path.clone(),
            presented.is_some(),
        ));
        let route = path.rsplit('/').next().unwrap_or_default();
        let mut response = match route {
            "healthz" => Response::new(Full::default()),
            _ if !authentic => {
                let _ = request.into_body().collect().await;
                status(StatusCode::UNAUTHORIZED)
            }
            LINK_ROUTE if PollServer::is_for_poll(&request) => self.polls.handle(request).await,
            LINK_ROUTE => match upgrade_response(&request) {
                Ok(response) => {
                    let upgrade = hyper::upgrade::on(&mut request);
                    let opened = self.opened.clone();
                    let echo = echo_asked(request.headers());
                    self.upgrades.spawn(async move {
                        let io = TokioIo::new(upgrade.await.expect("upgraded"));
                        let mut stream = WebSocketStream::server(io, Bytes::new());
                        stream.echo(echo).await.expect("greets");
                        let carrier = Carrier::new(stream, CarrierKind::WebSocket, "WebSocket");
                        opened.send(carrier).await.expect("the test is there");
                    });
                    response.map(|()| Full::default())
                }
                Err(error) => error.response().map(|()| Full::from(error.to_string())),
            },
            "echo" => {
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .expect("whole")
                    .to_bytes();
                Response::new(Full::new(body))
            }
            _ => status(StatusCode::NOT_FOUND),
        };
        response
            .headers_mut()
            .insert(VERSION_HEADER, http::HeaderValue::from_static(VERSION));
        response
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
