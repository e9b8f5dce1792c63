//! What stands between the halves: a reverse proxy that knows no upgrade, keeps whole requests and whole answers back,
//! and does with them as it is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// What the middlebox does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Pass,
    /// Delivers it twice, one copy after the other, and gives the first answer.
    Twice,
    /// Delivers it and answers with a status of its own.
    LoseAnswer(u16),
    /// Answers with a status and a page of its own.
    Answer(u16, &'static str),
    /// Delivers it and breaks the connection.
    Break,
    /// Switches protocols, and lets nothing come through.
    Swallow,
}

type Policy = dyn Fn(usize, &Parts, usize) -> Act + Send + Sync;

pub(crate) struct Middlebox {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

struct State {
    origin: SocketAddr,
    count: AtomicUsize,
    policy: Box<Policy>,
    swallowed: TaskTracker,
}

impl Middlebox {
    /// Stands before `origin`. The policy sees the number of the request, its head and the length of its body.
    pub(crate) async fn before(
        origin: SocketAddr,
        policy: impl Fn(usize, &Parts, usize) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            origin,
            count: AtomicUsize::new(0),
            policy: Box::new(policy),
            swallowed: TaskTracker::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.expect("accepts");
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    let service = service_fn(|request| {
                        let state = Arc::clone(&state);
                        async move { state.relay(request).await }
                    });
                    // It breaks connections on purpose.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(tcp), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }
}

impl State {
    async fn relay(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let upgrade = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map_err(std::io::Error::other)?
            .to_bytes();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let act = (self.policy)(number, &head, body.len());
        if matches!(act, Act::Swallow) {
            self.swallowed.spawn(async move {
                let _kept = upgrade.await;
                std::future::pending::<()>().await;
            });
            let key = head.headers.get("sec-websocket-key").expect("an upgrade");
            let accept = yonder_transport::websocket::accept_key(key.as_bytes());
            return Ok(Response::builder()
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-accept", accept)
                .header("sec-websocket-protocol", "yonder.v1")
                .body(Full::default())
                .expect("valid"));
        }
        // As plain proxies do: nothing of the client's connection reaches the origin.
        head.headers.remove("upgrade");
        head.headers.remove("connection");
        head.version = http::Version::HTTP_10;
        let deliver = || {
            deliver(
                self.origin,
                Request::from_parts(head.clone(), Full::new(body.clone())),
            )
        };
        match act {
            Act::Pass => deliver().await,
            Act::Twice => {
                let first = deliver().await;
                let _ = deliver().await;
                first
            }
            Act::LoseAnswer(status) => {
                deliver().await?;
                Ok(page(status, "lost"))
            }
            Act::Answer(status, text) => Ok(page(status, text)),
            Act::Break | Act::Swallow => {
                deliver().await?;
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
        }
    }
}

async fn deliver(
    origin: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let tcp = TcpStream::connect(origin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp))
        .await
        .map_err(std::io::Error::other)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await;
    });
    let answer = sender
        .send_request(request)
        .await
        .map_err(std::io::Error::other)?;
    let (mut head, body) = answer.into_parts();
    head.headers.remove("connection");
    head.headers.remove("upgrade");
    head.version = http::Version::HTTP_11;
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}

fn page(status: u16, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}
