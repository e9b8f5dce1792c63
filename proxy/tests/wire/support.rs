//! A proxy to test, a [`Dial`] that connects plain sockets, and peers that speak in raw bytes.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};
use yonder_proxy::{Challenge, Credential, Dial, DialMode, Proxy, ProxyConfig};

/// Longer than anything here takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails the test when `future` takes too long.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it hangs")
}

/// What a [`TestDial`] has seen and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct Record {
    dials: Mutex<Vec<(String, Target, DialMode)>>,
    /// Streams dialled and not dropped yet.
    pub(crate) open: AtomicUsize,
    /// Dials that have begun and neither ended nor been dropped.
    pub(crate) pending: AtomicUsize,
    changed: Notify,
}

impl Record {
    pub(crate) fn dials(&self) -> Vec<(String, Target, DialMode)> {
        self.dials.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.dials.lock().unwrap().len()
    }

    /// Waits until `condition` holds; looked at whenever a dial or stream begins or ends.
    pub(crate) async fn until(&self, condition: impl Fn(&Self) -> bool) {
        soon(async {
            loop {
                let changed = self.changed.notified();
                if condition(self) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

/// Counts one of something for as long as it lives.
struct Counted(Arc<Record>, fn(&Record) -> &AtomicUsize);

impl Counted {
    fn new(record: &Arc<Record>, which: fn(&Record) -> &AtomicUsize) -> Self {
        which(record).fetch_add(1, Ordering::SeqCst);
        record.changed.notify_waiters();
        Self(Arc::clone(record), which)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// Connects plain sockets. The host `hang.test` never answers, `denied.test` is forbidden, and `deaf.test` is
/// 127.0.0.1 through a stream that takes nothing.
pub(crate) struct TestDial(Arc<Record>);

impl Dial for TestDial {
    type Stream = TestStream;

    async fn dial(
        &self,
        session: &str,
        target: &Target,
        mode: DialMode,
    ) -> Result<TestStream, TunnelError> {
        let entry = (session.to_owned(), target.clone(), mode);
        self.0.dials.lock().unwrap().push(entry);
        let _pending = Counted::new(&self.0, |record| &record.pending);
        let mut stream = TestStream {
            state: State::Connecting(Box::pin(connect(target.clone()))),
            deaf: target.host() == DEAF,
            shut: false,
            _open: Counted::new(&self.0, |record| &record.open),
        };
        if mode == DialMode::Verdict {
            std::future::poll_fn(|cx| stream.poll_open(cx).map_ok(drop))
                .await
                .map_err(|error| {
                    error
                        .get_ref()
                        .and_then(|inner| inner.downcast_ref::<TunnelError>())
                        .unwrap()
                        .clone()
                })?;
        }
        Ok(stream)
    }
}

const DEAF: &str = "deaf.test";

async fn connect(target: Target) -> io::Result<TcpStream> {
    match target.host() {
        "hang.test" => std::future::pending().await,
        "denied.test" => {
            Err(TunnelError::new(TunnelErrorCode::Denied, "forbidden by policy").into())
        }
        host => {
            let host = if host == DEAF { "127.0.0.1" } else { host };
            let stream = TcpStream::connect((host, target.port()))
                .await
                .map_err(|_| TunnelError::new(TunnelErrorCode::Refused, "connection refused"))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}

enum State {
    Connecting(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Open(TcpStream),
    Failed,
}

/// A stream that may still be connecting. Like a tunnel it resets its connection when it is dropped
/// without shutdown.
pub(crate) struct TestStream {
    state: State,
    /// Writing fails; reading does not.
    deaf: bool,
    shut: bool,
    _open: Counted,
}

impl TestStream {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut TcpStream>> {
        if let State::Connecting(connecting) = &mut self.state {
            match ready!(connecting.as_mut().poll(cx)) {
                Ok(stream) => self.state = State::Open(stream),
                Err(error) => {
                    self.state = State::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(TunnelError::new(
                TunnelErrorCode::Refused,
                "connection refused",
            )
            .into())),
        }
    }
}

impl AsyncRead for TestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_read(cx, buf)
    }
}

impl AsyncWrite for TestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(ready!(self.poll_open(cx))?).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(ready!(self.poll_open(cx))?).poll_shutdown(cx))?;
        self.shut = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for TestStream {
    fn drop(&mut self) {
        if let State::Open(stream) = &self.state
            && !self.shut
        {
            let _ = stream.set_zero_linger();
        }
    }
}

/// A proxy with one session, `default`.
pub(crate) struct Setup {
    pub(crate) proxy: Proxy,
    pub(crate) record: Arc<Record>,
    pub(crate) credential: Credential,
}

/// The value of `Proxy-Authorization` for `credential`.
pub(crate) fn basic(credential: &Credential) -> String {
    let pair = format!(
        "{}:{}",
        credential.username(),
        credential.password().expose()
    );
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(pair)
    )
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(ProxyConfig::new(Challenge::Always)).await
    }

    pub(crate) async fn with(config: ProxyConfig) -> Self {
        let record = Arc::<Record>::default();
        let proxy = Proxy::start(config, TestDial(Arc::clone(&record)))
            .await
            .unwrap();
        let credential = proxy.add_session("default");
        Self {
            proxy,
            record,
            credential,
        }
    }

    /// A second proxy over the same dial.
    pub(crate) async fn restart(&self, config: ProxyConfig) -> io::Result<Proxy> {
        Proxy::start(config, TestDial(Arc::clone(&self.record))).await
    }

    pub(crate) async fn client(&self) -> Peer {
        Peer::new(TcpStream::connect(self.proxy.local_addr()).await.unwrap())
    }

    /// The line that authenticates.
    pub(crate) fn auth(&self) -> String {
        format!("Proxy-Authorization: {}\r\n", basic(&self.credential))
    }

    /// A request with its credential; `lines` are further fields, each with its line end.
    pub(crate) fn request(&self, line: &str, lines: &str) -> String {
        format!("{line} HTTP/1.1\r\n{}{lines}\r\n", self.auth())
    }

    /// A client whose tunnel to `origin` is open, and the target's end of it.
    pub(crate) async fn tunnel(&self, origin: &Origin) -> (Peer, Peer) {
        let mut client = self.client().await;
        client
            .send(self.request(&format!("CONNECT {}", origin.authority), ""))
            .await;
        let server = origin.accept().await;
        assert!(client.head().await.starts_with("HTTP/1.1 200 "));
        (client, server)
    }
}

/// A target.
pub(crate) struct Origin {
    listener: TcpListener,
    pub(crate) authority: String,
}

impl Origin {
    pub(crate) async fn new() -> Self {
        Self::on("127.0.0.1").await
    }

    pub(crate) async fn on(host: &str) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        Self {
            listener,
            authority,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority)
    }

    pub(crate) async fn accept(&self) -> Peer {
        Peer::new(soon(self.listener.accept()).await.unwrap().0)
    }

    /// Whether a connection waits to be accepted; nothing may have connected before.
    pub(crate) async fn is_untouched(&self) -> bool {
        timeout(Duration::from_millis(50), self.listener.accept())
            .await
            .is_err()
    }
}

/// An address on which nothing listens.
pub(crate) async fn closed_port() -> String {
    Origin::new().await.authority
}

/// One end of a connection.
pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            unread: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.socket.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends if the other end is still there.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        soon(self.socket.write_all(bytes.as_ref())).await.is_ok()
    }

    /// Reads to the regular end of the connection, if it has one.
    pub(crate) async fn try_rest(&mut self) -> Option<String> {
        while self.fill().await.ok()? > 0 {}
        let count = self.unread.len();
        Some(self.take(count))
    }

    /// Ends the writing half.
    pub(crate) async fn finish(&mut self) {
        self.socket.shutdown().await.unwrap();
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.unread.reserve(64 * 1024);
        soon(self.socket.read_buf(&mut self.unread)).await
    }

    /// Reads up to and including `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self
                .unread
                .windows(end.len())
                .position(|window| window == end.as_bytes());
            if let Some(at) = found {
                return self.take(at + end.len());
            }
            let count = self.fill().await.unwrap();
            assert!(
                count > 0,
                "ended after {:?}",
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    fn take(&mut self, count: usize) -> String {
        let taken = self.unread.drain(..count).collect();
        String::from_utf8(taken).unwrap()
    }

    /// Reads a message head.
    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Reads exactly `expected`.
    pub(crate) async fn expect(&mut self, expected: &str) {
        while self.unread.len() < expected.len() {
            let count = self.fill().await.unwrap();
            assert!(
                count > 0,
                "ended after {:?}",
                String::from_utf8_lossy(&self.unread)
            );
        }
        assert_eq!(self.take(expected.len()), expected);
    }

    /// Reads to the regular end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        self.try_rest().await.expect("the connection was reset")
    }

    /// The connection ends with a reset; what came before it does not count.
    pub(crate) async fn expect_reset(&mut self) {
        loop {
            match self.fill().await {
                Ok(0) => panic!(
                    "ended regularly after {:?}",
                    String::from_utf8_lossy(&self.unread)
                ),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    return;
                }
            }
        }
    }

    /// Reads an answer with a `Content-Length`; its head and its body.
    pub(crate) async fn answer(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            assert!(self.fill().await.unwrap() > 0, "the body ended early");
        }
        let body = self.take(length);
        (head, body)
    }
}
