//! A reverse proxy that does everything wrong that proxies and networks were seen to do, as a seed tells it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Answer = io::Result<Response<Body>>;

/// Requests and connections that may go wrong; all later ones pass, so that every run comes to its end.
const FAULTS: usize = 100;

/// Longer than the heartbeats of these tests: where the figures are those of production, this is 70 s.
pub(crate) const HOLD: Duration = Duration::from_secs(3);

/// What becomes of one request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Pass,
    /// It waits for so long before it is delivered.
    Delay(Duration),
    /// It is delivered twice, and the first answer given.
    Twice,
    /// It is delivered once more when later ones have overtaken it.
    Overtaken,
    /// It is delivered and answered with a status of the proxy's own.
    LoseAnswer(u16),
    /// It is answered with a status of the proxy's own.
    Refuse(u16),
    /// It is delivered, and its connection broken.
    Break,
    /// Only the first half of its body is delivered.
    CutRequest,
    /// Only the first half of its answer's body is passed on.
    CutAnswer,
}

/// What becomes of an upgraded connection.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Bytes, both ways counted, after which it is cut.
    cut_after: usize,
    /// Bytes after which nothing passes for a while.
    hold_after: usize,
    /// The while.
    hold: Duration,
    /// Pause after each piece.
    pause: Duration,
    /// Longest piece.
    piece: usize,
}

pub(crate) struct FaultyProxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    origin: SocketAddr,
    random: Mutex<StdRng>,
    faults: AtomicUsize,
    down: AtomicBool,
    later: TaskTracker,
    connections: Mutex<JoinSet<()>>,
}

impl FaultyProxy {
    /// Stands before `origin`.
    pub(crate) async fn before(origin: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            origin,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            faults: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            later: TaskTracker::new(),
            connections: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let mut connections = shared.connections.lock().unwrap();
                while connections.try_join_next().is_some() {}
                if !shared.down.load(Ordering::SeqCst) {
                    connections.spawn(Arc::clone(&shared).serve(tcp));
                }
            }
        });
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// Cuts every connection and takes no more.
    pub(crate) fn go_down(&self) {
        self.state.down.store(true, Ordering::SeqCst);
        self.state.connections.lock().unwrap().abort_all();
    }
}

impl State {
    fn random<T>(&self, ask: impl FnOnce(&mut StdRng) -> T) -> T {
        ask(&mut self.random.lock().unwrap())
    }

    async fn serve(self: Arc<Self>, tcp: TcpStream) {
        // Upgraded connections belong to this one, so that they are cut with it.
        let lines = Arc::new(Mutex::new(JoinSet::new()));
        let service = service_fn(|request| {
            let (state, lines) = (Arc::clone(&self), Arc::clone(&lines));
            async move { state.relay(request, &lines).await }
        });
        // It breaks connections on purpose.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(tcp), service)
            .with_upgrades()
            .await;
        let mut lines = std::mem::take(&mut *lines.lock().unwrap());
        while lines.join_next().await.is_some() {}
    }

    /// Whether this one may go wrong.
    fn is_faulty(&self) -> bool {
        self.faults.fetch_add(1, Ordering::Relaxed) < FAULTS
    }

    async fn relay(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        lines: &Mutex<JoinSet<()>>,
    ) -> Answer {
        if request.method() == Method::GET {
            let near = hyper::upgrade::on(&mut request);
            let request = request.map(|body| body.map_err(io::Error::other).boxed_unsync());
            let (mut answer, driver) = send(self.origin, request).await?;
            let far = hyper::upgrade::on(&mut answer);
            let line = self.line();
            lines.lock().unwrap().spawn(async move {
                let _driver = driver;
                if let (Ok(near), Ok(far)) = tokio::join!(near, far) {
                    line.carry(TokioIo::new(near), TokioIo::new(far)).await;
                }
            });
            let (head, _) = answer.into_parts();
            return Ok(Response::from_parts(head, whole(Bytes::new())));
        }
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?;
        let body = body.to_bytes();
        head.headers.remove("connection");
        match self.fate() {
            Fate::Pass => self.deliver(&head, &body).await,
            Fate::Delay(time) => {
                sleep(time).await;
                self.deliver(&head, &body).await
            }
            Fate::Twice => {
                let first = self.deliver(&head, &body).await;
                let _ = self.deliver(&head, &body).await;
                first
            }
            Fate::Overtaken => {
                let (state, late, copy) = (Arc::clone(self), head.clone(), body.clone());
                let pause = Duration::from_millis(self.random(|r| r.random_range(1..400)));
                self.later.spawn(async move {
                    sleep(pause).await;
                    let _ = state.deliver(&late, &copy).await;
                });
                self.deliver(&head, &body).await
            }
            Fate::LoseAnswer(status) => {
                self.deliver(&head, &body).await?;
                Ok(page(status))
            }
            Fate::Refuse(status) => Ok(page(status)),
            Fate::Break => {
                self.deliver(&head, &body).await?;
                Err(broken())
            }
            Fate::CutRequest => {
                let half = broken_off(body.slice(..body.len() / 2));
                send(self.origin, Request::from_parts(head, half)).await?;
                Err(broken())
            }
            Fate::CutAnswer => {
                let (head, body) = self.deliver(&head, &body).await?.into_parts();
                let body = body.collect().await?.to_bytes();
                let half = broken_off(body.slice(..body.len() / 2));
                Ok(Response::from_parts(head, half))
            }
        }
    }

    fn fate(&self) -> Fate {
        if !self.is_faulty() {
            return Fate::Pass;
        }
        self.random(|random| match random.random_range(0..24) {
            0 | 1 => Fate::Delay(Duration::from_millis(random.random_range(1..700))),
            2 => Fate::Delay(HOLD),
            3 => Fate::Twice,
            4 => Fate::Overtaken,
            5 => Fate::LoseAnswer(502),
            6 => Fate::LoseAnswer(504),
            7 => Fate::Refuse(503),
            8 => Fate::Break,
            9 => Fate::CutRequest,
            10 => Fate::CutAnswer,
            _ => Fate::Pass,
        })
    }

    fn line(&self) -> Line {
        let mut line = Line {
            cut_after: usize::MAX,
            hold_after: usize::MAX,
            hold: Duration::ZERO,
            pause: Duration::ZERO,
            piece: 64 * 1024,
        };
        // A connection is worth ten requests.
        if self.faults.fetch_add(10, Ordering::Relaxed) >= FAULTS {
            return line;
        }
        self.random(|random| {
            match random.random_range(0..8) {
                0 => {}
                1 => line.cut_after = random.random_range(0..600),
                2 => (line.hold_after, line.hold) = (random.random_range(0..200_000), HOLD),
                3 => line.pause = Duration::from_millis(random.random_range(1..5)),
                _ => line.cut_after = random.random_range(0..300_000),
            }
            if random.random_range(0..3) == 0 {
                line.hold = Duration::from_millis(random.random_range(1..500));
                line.hold_after = line.hold_after.min(random.random_range(0..200_000));
            }
            line.piece = if line.pause.is_zero() {
                random.random_range(100..16_000)
            } else {
                4_096
            };
        });
        line
    }

    async fn deliver(&self, head: &Parts, body: &Bytes) -> Answer {
        let request = Request::from_parts(head.clone(), whole(body.clone()));
        let (answer, _driver) = send(self.origin, request).await?;
        let (mut head, body) = answer.into_parts();
        head.headers.remove("connection");
        let body = body.collect().await.map_err(io::Error::other)?;
        Ok(Response::from_parts(head, whole(body.to_bytes())))
    }
}

impl Line {
    /// Moves bytes until either end is gone or the connection is to be cut.
    async fn carry(self, near: impl AsyncRead + AsyncWrite, far: impl AsyncRead + AsyncWrite) {
        let passed = AtomicUsize::new(0);
        let (near_reader, near_writer) = tokio::io::split(near);
        let (far_reader, far_writer) = tokio::io::split(far);
        tokio::select! {
            () = self.pump(near_reader, far_writer, &passed) => {}
            () = self.pump(far_reader, near_writer, &passed) => {}
        }
    }

    async fn pump(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        passed: &AtomicUsize,
    ) {
        let mut buffer = vec![0; self.piece];
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else {
                return;
            };
            let before = passed.fetch_add(length, Ordering::Relaxed);
            if (before..before + length).contains(&self.hold_after) {
                sleep(self.hold).await;
            }
            let kept = length.min(self.cut_after.saturating_sub(before));
            if to.write_all(&buffer[..kept]).await.is_err() || kept < length {
                return;
            }
            sleep(self.pause).await;
        }
    }
}

/// Sends one request on a connection of its own, which lives as long as what drives it.
async fn send(
    origin: SocketAddr,
    request: Request<Body>,
) -> io::Result<(Response<Incoming>, JoinSet<()>)> {
    let tcp = TcpStream::connect(origin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp))
        .await
        .map_err(io::Error::other)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    let answer = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    Ok((answer, driver))
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body whose connection breaks behind `bytes`.
fn broken_off(bytes: Bytes) -> Body {
    let frames = [Ok(Frame::data(bytes)), Err(broken())];
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// A page of the proxy's own.
fn page(status: u16) -> Response<Body> {
    let mut page = Response::new(whole(Bytes::from_static(b"<title>Sorry</title>")));
    *page.status_mut() = StatusCode::from_u16(status).unwrap();
    page
}
