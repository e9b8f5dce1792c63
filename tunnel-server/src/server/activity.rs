//! Watches one HTTP connection and says when its peer has kept us waiting too long.
//!
//! Hyper's own limit for request heads also runs while a kept-alive connection idles, but reverse proxies keep idle
//! connections for up to 15 minutes and lose requests when we close first. So the limits are kept here: [`Watched`]
//! sees the bytes, [`RequestGuard`] the requests, and [`Activity::expired`] ends when a limit has passed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// From the first byte of a request to the end of its head; for the first request, from the accepted connection on,
/// TLS handshake included.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// Silence between requests of callers that have shown the token: above the 900 s for which common reverse proxies
/// keep their connections, so that the proxy closes first.
const IDLE_LIMIT: Duration = Duration::from_secs(920);

/// The same for callers that have not: they may not occupy connections for long.
const STRANGER_IDLE_LIMIT: Duration = Duration::from_secs(30);

/// How long a peer may leave our bytes unread.
const WRITE_LIMIT: Duration = Duration::from_mins(1);

/// What a connection does now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A request's head is arriving.
    Head,
    /// A request is answered.
    Busy,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    known: bool,
    blocked_since: Option<Instant>,
}

/// What happened on one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    /// Signalled when a limit begins to run.
    limit_began: Notify,
}

/// What a peer failed to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expired {
    /// It sent nothing for long between requests; nobody waits for anything.
    Idle,
    /// It began something and did not go on.
    Stalled,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                phase: Phase::Head,
                since: Instant::now(),
                known: false,
                blocked_since: None,
            }),
            limit_began: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request is answered from now until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> RequestGuard {
        self.state().phase = Phase::Busy;
        RequestGuard(self.clone())
    }

    /// Notes that the caller has shown the token.
    pub(crate) fn authenticated(&self) {
        self.state().known = true;
    }

    fn received(&self) {
        let mut state = self.state();
        if state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = Instant::now();
            self.limit_began.notify_one();
        }
    }

    fn wrote(&self, blocked: bool) {
        let mut state = self.state();
        if !blocked {
            state.blocked_since = None;
        } else if state.blocked_since.is_none() {
            state.blocked_since = Some(Instant::now());
            self.limit_began.notify_one();
        }
    }

    /// When the limit that runs now ends, and what that means.
    fn deadline(&self) -> Option<(Instant, Expired)> {
        let state = self.state();
        let blocked = state
            .blocked_since
            .map(|since| (since + WRITE_LIMIT, Expired::Stalled));
        let phase = match state.phase {
            Phase::Busy => None,
            Phase::Head => Some((state.since + HEAD_LIMIT, Expired::Stalled)),
            Phase::Idle => {
                let limit = if state.known {
                    IDLE_LIMIT
                } else {
                    STRANGER_IDLE_LIMIT
                };
                Some((state.since + limit, Expired::Idle))
            }
        };
        [blocked, phase]
            .into_iter()
            .flatten()
            .min_by_key(|(deadline, _)| *deadline)
    }

    /// Waits until a limit has passed. Cancel safe.
    pub(crate) async fn expired(&self) -> Expired {
        loop {
            let Some((deadline, what)) = self.deadline() else {
                self.limit_began.notified().await;
                continue;
            };
            if deadline <= Instant::now() {
                return what;
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = self.limit_began.notified() => {}
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<Activity>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.phase = Phase::Idle;
        state.since = Instant::now();
        self.0.limit_began.notify_one();
    }
}

/// A connection whose bytes are noted.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    io: T,
    activity: Arc<Activity>,
}

impl<T> Watched<T> {
    pub(crate) fn new(io: T, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }

    /// The connection, unwatched from now on.
    pub(crate) fn into_inner(self) -> T {
        self.io
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.received();
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, buf);
        self.activity.wrote(poll.is_pending());
        poll
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.activity.wrote(poll.is_pending());
        poll
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_flush(cx);
        self.activity.wrote(poll.is_pending());
        poll
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_shutdown(cx);
        self.activity.wrote(poll.is_pending());
        poll
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_start_and_a_slow_head_expire_after_ten_seconds() {
        let start = Instant::now();
        let activity = Activity::new();
        assert_eq!(activity.expired().await, Expired::Stalled);
        assert_eq!(start.elapsed().as_secs(), 10);

        let activity = Activity::new();
        drop(activity.request());
        let (mut peer, io) = tokio::io::duplex(64);
        let mut io = Watched::new(io, activity.clone());
        tokio::time::sleep(Duration::from_secs(20)).await;
        peer.write_all(b"G").await.unwrap();
        io.read_u8().await.unwrap();
        let start = Instant::now();
        assert_eq!(activity.expired().await, Expired::Stalled);
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_known_callers_outlive_those_of_strangers() {
        for (known, seconds) in [(false, 30), (true, 920)] {
            let activity = Activity::new();
            if known {
                activity.authenticated();
            }
            drop(activity.request());
            let start = Instant::now();
            assert_eq!(activity.expired().await, Expired::Idle);
            assert_eq!(start.elapsed().as_secs(), seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_its_time_but_its_reader_may_not() {
        let activity = Activity::new();
        let _request = activity.request();
        let (peer, io) = tokio::io::duplex(4);
        let mut io = Watched::new(io, activity.clone());
        assert!(
            tokio::time::timeout(Duration::from_hours(1), activity.expired())
                .await
                .is_err()
        );
        let start = Instant::now();
        let (expired, _) = tokio::join!(
            activity.expired(),
            tokio::time::timeout(Duration::from_secs(100), io.write_all(b"12345678"))
        );
        assert_eq!(expired, Expired::Stalled);
        assert!(start.elapsed() >= WRITE_LIMIT);
        drop(peer);
    }
}
