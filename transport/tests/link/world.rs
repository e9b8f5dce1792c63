//! Both halves of links within the process, joined by pipes that can be cut, throttled and refused.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use yonder_protocol::link::{Budget, Role, SessionName};
use yonder_transport::acceptor::{AcceptError, Accepted, Acceptor, NewLink};
use yonder_transport::carrier::{Carrier, CarrierKind, Connect, ConnectError};
use yonder_transport::client::{ClientHello, Connected, LinkError, connect};
use yonder_transport::link::{Incoming, IncomingStream, Link, LinkConfig, LinkPhase};

/// What a pipe holds in each direction: little, as a socket with a short send queue.
const PIPE_BYTES: usize = 64 * 1024;

/// How long any wait in a test may take before it counts as a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a carrier on the server's side.
type Verdict = Result<Accepted, AcceptError>;

/// The network between the halves, and the server's acceptor behind it.
pub(crate) struct Network {
    acceptor: Mutex<Arc<Acceptor>>,
    accepted: mpsc::UnboundedSender<Verdict>,
    tasks: TaskTracker,
    /// Whether nothing passes.
    down: AtomicBool,
    /// Kills the carriers that are up.
    kill: Mutex<CancellationToken>,
    /// Carriers that saw this stop moving bytes without dying.
    stall: Mutex<Arc<AtomicBool>>,
    /// Bytes after which the next carriers die, one entry each; then they live.
    cuts: Mutex<VecDeque<usize>>,
    /// Bytes per second of new carriers; 0 is unlimited.
    pub(crate) rate: AtomicUsize,
    dialled: AtomicUsize,
}

impl Network {
    pub(crate) fn cut_after(&self, bytes: impl IntoIterator<Item = usize>) {
        self.cuts.lock().unwrap().extend(bytes);
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        if down {
            self.kill();
        }
    }

    /// Cuts all carriers.
    pub(crate) fn kill(&self) {
        std::mem::take(&mut *self.kill.lock().unwrap()).cancel();
    }

    /// The carriers that are up go silent, for ever; new ones are fine.
    pub(crate) fn stall(&self) {
        std::mem::take(&mut *self.stall.lock().unwrap()).store(true, Ordering::SeqCst);
    }

    pub(crate) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::SeqCst)
    }

    pub(crate) fn replace_acceptor(&self, acceptor: Arc<Acceptor>) {
        *self.acceptor.lock().unwrap() = acceptor;
    }

    pub(crate) fn acceptor(&self) -> Arc<Acceptor> {
        Arc::clone(&self.acceptor.lock().unwrap())
    }

    /// A pipe whose other end the acceptor greets.
    pub(crate) fn dial(&self) -> DuplexStream {
        self.dialled.fetch_add(1, Ordering::SeqCst);
        let (near, far) = duplex(PIPE_BYTES);
        let rate = self.rate.load(Ordering::SeqCst);
        let near = if rate == 0 {
            near
        } else {
            self.throttled(near, rate)
        };
        let (acceptor, accepted) = (self.acceptor(), self.accepted.clone());
        self.tasks.spawn(async move {
            let result = acceptor
                .accept(Carrier::new(far, CarrierKind::Memory, "a pipe"))
                .await;
            // A test that is over does not look any more.
            let _ = accepted.send(result);
        });
        near
    }

    /// Puts a line of `rate` bytes per second each way in front of `far`, with short queues.
    fn throttled(&self, far: DuplexStream, rate: usize) -> DuplexStream {
        const QUEUE_BYTES: usize = 16 * 1024;
        let (near, inner) = duplex(QUEUE_BYTES);
        let (far_read, far_write) = tokio::io::split(far);
        let (inner_read, inner_write) = tokio::io::split(inner);
        self.tasks.spawn(line(inner_read, far_write, rate));
        self.tasks.spawn(line(far_read, inner_write, rate));
        near
    }
}

async fn line(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, rate: usize) {
    let mut packet = [0; 1500];
    let mut free_at = tokio::time::Instant::now();
    loop {
        let Ok(length @ 1..) = from.read(&mut packet).await else {
            return;
        };
        let took = Duration::from_nanos((length * 1_000_000_000 / rate) as u64);
        free_at = free_at.max(tokio::time::Instant::now()) + took;
        tokio::time::sleep_until(free_at).await;
        if to.write_all(&packet[..length]).await.is_err() {
            return;
        }
    }
}

struct Dialler(Arc<Network>);

impl Connect for Dialler {
    fn connect(&self) -> BoxFuture<'_, Result<Carrier, ConnectError>> {
        Box::pin(async {
            if self.0.down.load(Ordering::SeqCst) {
                return Err(ConnectError::Unreachable {
                    server: "the test".to_owned(),
                    problem: "the network is down".to_owned(),
                    source: None,
                });
            }
            let left = self.0.cuts.lock().unwrap().pop_front();
            let near = Mortal {
                inner: self.0.dial(),
                left: left.unwrap_or(usize::MAX),
                stalled: Arc::clone(&self.0.stall.lock().unwrap()),
                killed: Box::pin(self.0.kill.lock().unwrap().clone().cancelled_owned()),
            };
            Ok(Carrier::new(near, CarrierKind::Memory, "a pipe"))
        })
    }
}

/// A pipe that dies once so many bytes passed, both ways counted, or when it is killed.
struct Mortal {
    inner: DuplexStream,
    left: usize,
    stalled: Arc<AtomicBool>,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Mortal {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.left == 0 || self.killed.as_mut().poll(cx).is_ready() {
            Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut"))
        } else {
            Ok(())
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        if self.stalled.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        let mut part = buf.take(self.left);
        let read = Pin::new(&mut self.inner).poll_read(cx, &mut part);
        let length = part.filled().len();
        if read.is_ready() {
            // The bytes are initialised: they were written through `part`, which shares the buffer.
            let bytes = part.filled().to_vec();
            buf.put_slice(&bytes);
            self.left -= length;
        }
        read
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        if self.stalled.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        let length = buf.len().min(self.left);
        let written = Pin::new(&mut self.inner).poll_write(cx, &buf[..length]);
        if let Poll::Ready(Ok(written)) = written {
            self.left -= written;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The halves' settings, their network, and what the server accepts.
pub(crate) struct World {
    pub(crate) network: Arc<Network>,
    accepted: mpsc::UnboundedReceiver<Verdict>,
    pub(crate) desktop: LinkConfig,
    pub(crate) server: LinkConfig,
}

/// Both ends of one link.
pub(crate) struct Pair {
    pub(crate) client: Link,
    pub(crate) client_incoming: Incoming,
    pub(crate) server: Link,
    pub(crate) server_incoming: Incoming,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A world whose halves have settings changed by `change`.
    pub(crate) fn with(change: impl Fn(&mut LinkConfig)) -> Self {
        let (mut desktop, mut server) =
            (LinkConfig::desktop("desktop"), LinkConfig::server("server"));
        // Most tests count carriers; those of several lanes ask for them.
        desktop.lanes = 1;
        change(&mut desktop);
        change(&mut server);
        let (sender, accepted) = accepted_channel();
        let network = Arc::new(Network {
            acceptor: Mutex::new(Arc::new(Acceptor::new(server.clone()))),
            accepted: sender,
            tasks: TaskTracker::new(),
            down: AtomicBool::new(false),
            kill: Mutex::default(),
            stall: Mutex::default(),
            cuts: Mutex::default(),
            rate: AtomicUsize::new(0),
            dialled: AtomicUsize::new(0),
        });
        Self {
            network,
            accepted,
            desktop,
            server,
        }
    }

    /// The client's side of a new link.
    pub(crate) async fn connect(&self) -> Result<Connected, LinkError> {
        let hello = ClientHello {
            role: Role::Browser,
            session: SessionName::default(),
        };
        connect(
            Arc::new(Dialler(Arc::clone(&self.network))),
            hello,
            self.desktop.clone(),
        )
        .await
    }

    /// What became of the next carrier on the server's side.
    pub(crate) async fn accepted(&mut self) -> Verdict {
        within(self.accepted.recv()).await.unwrap()
    }

    /// Waits until the link has so many carriers.
    pub(crate) async fn carriers(link: &Link, count: u64) {
        within(async {
            while link.status().carriers != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// The server's side of the next new link.
    pub(crate) async fn new_link(&mut self) -> NewLink {
        loop {
            if let Accepted::New(new) = self.accepted().await.unwrap() {
                return new;
            }
        }
    }

    pub(crate) async fn pair(&mut self) -> Pair {
        let connected = within(self.connect()).await.unwrap();
        let new = self.new_link().await;
        assert_eq!((new.role, new.agent.as_str()), (Role::Browser, "desktop"));
        assert_eq!(connected.server_agent, "server");
        Pair {
            client: connected.link,
            client_incoming: connected.incoming,
            server: new.link,
            server_incoming: new.incoming,
        }
    }

    /// Waits until all links are over and shows that nothing is left: no task, no link, no charged byte.
    pub(crate) async fn finish(self) {
        for config in [&self.desktop, &self.server] {
            config.tasks.close();
            within(config.tasks.wait()).await;
            assert_eq!(config.budget.used(), 0, "a budget leaks");
        }
        assert_eq!(self.network.acceptor().links(), 0);
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's carriers are few")]
fn accepted_channel() -> (
    mpsc::UnboundedSender<Verdict>,
    mpsc::UnboundedReceiver<Verdict>,
) {
    mpsc::unbounded_channel()
}

/// Waits, but not for ever.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("this hangs")
}

pub(crate) async fn next(incoming: &mut Incoming) -> IncomingStream {
    within(incoming.next()).await.expect("the link is over")
}

/// Waits until the link's phase satisfies `wanted`.
pub(crate) async fn phase(link: &Link, wanted: impl FnMut(&LinkPhase) -> bool) {
    within(link.watch().wait_for(wanted)).await.unwrap();
}

/// Waits until a budget falls to zero.
pub(crate) async fn drained(budget: &Budget) {
    within(async {
        while budget.used() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
