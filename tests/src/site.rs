//! A target for tunnels: a web server with endpoints that move much, stream, or stay open.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{SinkExt as _, Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    UPGRADE,
};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tokio_websockets::ServerBuilder;
use yonder_transport::websocket::accept_key;

/// Piece of a generated download.
const PIECE: usize = 64 * 1024;

/// A web server on a loopback port:
///
/// | path | answer |
/// | --- | --- |
/// | `/` | a small page that counts messages of its WebSocket in `document.title` |
/// | `/download?BYTES` | that many pseudo-random bytes with a `Content-Length` |
/// | `/upload` | the SHA-256 of the request body, in hex |
/// | `/events` | an event every 50 ms, each the time of its sending in ms since the epoch |
/// | `/steps` | an event numbered 1, and each following one after another request of `/step` |
/// | `/step` | lets `/steps` go on |
/// | `/websocket` | echoes messages |
/// | anything else | the path, as text |
#[derive(Debug)]
pub struct Site {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    requests: AtomicU64,
    /// A permit for each event that `/steps` may send.
    steps: Semaphore,
}

impl Site {
    /// Starts on `127.0.0.1`.
    pub async fn start() -> Self {
        Self::start_on("127.0.0.1:0").await
    }

    /// Starts on `address`.
    pub async fn start_on(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            requests: AtomicU64::new(0),
            steps: Semaphore::new(1),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// Requests answered so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The URL of `path` as a browser on the server's own machine would write it.
    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.address.port())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        stream.set_nodelay(true).unwrap();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                shared.requests.fetch_add(1, Ordering::Relaxed);
                answer(request, Arc::clone(&shared))
            });
            // A client that goes away in the middle is part of the tests.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(
    mut request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let response = match path.as_str() {
        "/" => html(PAGE),
        "/download" => {
            let bytes = request
                .uri()
                .query()
                .and_then(|query| query.parse().ok())
                .unwrap_or(0);
            download(bytes)
        }
        "/upload" => {
            let mut hash = Sha256::new();
            while let Some(frame) = request.frame().await {
                if let Ok(data) = frame?.into_data() {
                    hash.update(&data);
                }
            }
            text(hex(&hash.finalize()))
        }
        "/events" => events(),
        "/steps" => steps(shared),
        "/step" => {
            shared.steps.add_permits(1);
            text(path)
        }
        "/websocket" => websocket(&mut request),
        other => text(other.to_owned()),
    };
    Ok(response)
}

/// Upgrades (RFC 6455, section 4.2.2) and echoes messages until the client leaves.
fn websocket(request: &mut Request<Incoming>) -> Response<Body> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
    let Some(key) = key else {
        let mut response = text(String::from("a WebSocket is expected here"));
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return response;
    };
    let upgrade = hyper::upgrade::on(request);
    TaskTracker::new().spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = ServerBuilder::new().serve(TokioIo::new(upgraded));
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(UPGRADE, "websocket")
        .header(CONNECTION, "Upgrade")
        .header(SEC_WEBSOCKET_ACCEPT, accept_key(key.as_bytes()))
        .body(Full::default().boxed_unsync())
        .expect("constant and checked header values")
}

const PAGE: &str = r#"<!doctype html><title>connecting</title><h1 id="heading">A page of the server</h1>
<p><label>Name <input id="name"></label> <button onclick="heading.textContent = 'Hello ' + document.getElementById('name').value">Greet</button>
<script>
  let count = 0
  const socket = new WebSocket(`ws://${location.host}/websocket`)
  socket.onopen = () => socket.send("0")
  socket.onmessage = () => { document.title = "messages " + ++count; setTimeout(() => socket.send(String(count)), 20) }
  socket.onclose = () => document.title = "closed"
</script>"#;

fn html(page: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(page.as_bytes())).boxed_unsync());
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    response
}

fn text(text: String) -> Response<Body> {
    Response::new(Full::new(Bytes::from(text)).boxed_unsync())
}

/// The content of every download: piece number `index`, of [`PIECE`] bytes. All are one pseudo-random
/// piece but for their number, so that a lost, repeated or swapped one changes the hash.
fn piece(index: u64) -> Bytes {
    static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        // xorshift64*
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut bytes = Vec::with_capacity(PIECE);
        while bytes.len() < PIECE {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            bytes.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
        }
        bytes
    });
    let mut bytes = BASE.clone();
    bytes[..8].copy_from_slice(&index.to_be_bytes());
    Bytes::from(bytes)
}

fn pieces(bytes: u64) -> impl Iterator<Item = Bytes> {
    let size = PIECE as u64;
    (0..bytes.div_ceil(size)).map(move |index| {
        let left = bytes - index * size;
        let mut piece = piece(index);
        piece.truncate(usize::try_from(left).unwrap_or(PIECE).min(PIECE));
        piece
    })
}

/// The SHA-256 of `/download?BYTES`, in hex.
pub fn download_hash(bytes: u64) -> String {
    let mut hash = Sha256::new();
    pieces(bytes).for_each(|piece| hash.update(&piece));
    hex(&hash.finalize())
}

/// A hash in hex.
pub fn hex(hash: &[u8]) -> String {
    use std::fmt::Write as _;
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn download(bytes: u64) -> Response<Body> {
    let frames = futures_util::stream::iter(pieces(bytes).map(|piece| Ok(Frame::data(piece))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    response
}

fn events() -> Response<Body> {
    let events = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        Some((event(now), ()))
    });
    event_stream(events)
}

fn steps(shared: Arc<Shared>) -> Response<Body> {
    let events = futures_util::stream::unfold((shared, 1_u32), |(shared, number)| async move {
        shared.steps.acquire().await.ok()?.forget();
        Some((event(number), (shared, number + 1)))
    });
    event_stream(events)
}

fn event(data: impl Display) -> Frame<Bytes> {
    Frame::data(Bytes::from(format!("data: {data}\n\n")))
}

fn event_stream(events: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<Body> {
    let frames = events.map(Ok);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
