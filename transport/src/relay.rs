//! Moving bytes between a stream of a link and a local TCP socket, both ways at once in one task.
//!
//! Half-closes pass through in both directions, resets as resets. Buffers exist only while bytes move: an idle relay
//! holds none. Dialling, accepting and limits are not done here.
//!
//! What arrives on the link is written to the socket by the link's own driver while nothing waits before it
//! ([`LocalSocket`]): the bytes are still in the processor's cache then, and no task has to be woken. What the socket does
//! not take at once is this task's to write.

mod socket;

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use yonder_protocol::{TunnelError, TunnelErrorCode};

pub(crate) use self::socket::LocalSocket;
use crate::stream::Stream;

/// A tunnel of which one direction ended may be silent this long: a peer that forgot the other direction must
/// not hold a socket for ever, one that computes an answer may take its time.
const HALF_CLOSED_IDLE: Duration = Duration::from_mins(5);

/// After the socket's peer closed both its directions with bytes for it under way, its last words get this long to
/// reach the other half before the reset follows.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Pieces that one poll moves in each direction before other tasks get their turn: a few mebibytes.
const PIECES_PER_POLL: usize = 16;

/// Counts what a relay moves.
pub trait Meter: Send + Sync + 'static {
    /// `bytes` were written to the socket.
    fn wrote(&self, bytes: usize);
    /// `bytes` of the socket were handed to the link.
    fn took(&self, bytes: usize);
}

/// Counts nothing.
impl Meter for () {
    fn wrote(&self, _: usize) {}
    fn took(&self, _: usize) {}
}

/// Which side broke a relay off, and why. The other one has been reset.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RelayError {
    /// The stream failed: the other half reset it, or the link is over.
    #[error("{0}")]
    Stream(TunnelError),
    /// The socket failed.
    #[error("{0}")]
    Socket(TunnelError),
}

/// Relays until both directions ended or one side failed; a failure of either is passed on as a reset. `whose` names the
/// socket's peer in messages, such as `the target`.
///
/// Dropping the future resets both sides.
///
/// # Errors
/// The first failure of either side.
pub async fn relay(
    stream: Stream,
    socket: TcpStream,
    whose: &'static str,
    meter: Arc<dyn Meter>,
) -> Result<(), RelayError> {
    let socket = Resetting {
        socket: Arc::new(LocalSocket::new(socket, meter)),
        in_order: false,
    };
    stream.write_directly_to(Arc::clone(&socket.socket));
    let mut relay = Relay {
        stream,
        socket,
        whose,
        to_socket: ToSocket {
            waiting: Bytes::new(),
            state: ToSocketState::Open,
        },
        from_socket: FromSocket {
            waiting: Bytes::new(),
            ended: false,
            done: false,
        },
        silence: None,
    };
    let end = poll_fn(|cx| relay.poll(cx)).await;
    let Relay {
        stream, mut socket, ..
    } = relay;
    match &end {
        Ok(()) => socket.in_order = true,
        // The stream knows already; the socket learns it as it is dropped.
        Err(RelayError::Stream(_)) => {}
        Err(RelayError::Socket(error)) => stream.reset(error.clone()),
    }
    end
}

/// Resets the socket unless it was closed in order: whoever reads from it must not take a cut for an end.
struct Resetting {
    socket: Arc<LocalSocket>,
    in_order: bool,
}

impl Drop for Resetting {
    fn drop(&mut self) {
        if !self.in_order {
            self.socket.reset_when_closed();
        }
    }
}

struct Relay {
    stream: Stream,
    socket: Resetting,
    whose: &'static str,
    to_socket: ToSocket,
    from_socket: FromSocket,
    /// Runs while one direction alone is open.
    silence: Option<Silence>,
}

/// From the link to the socket.
struct ToSocket {
    waiting: Bytes,
    state: ToSocketState,
}

enum ToSocketState {
    Open,
    /// The socket takes no more; what comes is discarded until the other direction is over too.
    Broken(io::Error),
    Done,
}

/// From the socket to the link.
struct FromSocket {
    waiting: Bytes,
    /// The socket's peer said its end.
    ended: bool,
    /// And the other half was told.
    done: bool,
}

/// Measures how long nothing moved.
struct Silence {
    timer: Pin<Box<Sleep>>,
    /// What had moved when the timer was set.
    moved: u64,
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        if let Poll::Ready(error) = pin!(self.stream.failed()).poll(cx) {
            return Poll::Ready(Err(RelayError::Stream(error)));
        }
        if let Poll::Ready(Err(error)) = self.poll_to_socket(cx) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(Err(error)) = self.poll_from_socket(cx) {
            return Poll::Ready(Err(error));
        }
        match (&self.to_socket.state, self.from_socket.done) {
            (ToSocketState::Done, true) => Poll::Ready(Ok(())),
            (ToSocketState::Open, false) => Poll::Pending,
            (ToSocketState::Broken(_), true) => self.poll_silence(cx, LAST_WORDS),
            _ => self.poll_silence(cx, HALF_CLOSED_IDLE),
        }
    }

    fn poll_to_socket(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        let socket = &self.socket.socket;
        let to = &mut self.to_socket;
        for _ in 0..PIECES_PER_POLL {
            match to.state {
                ToSocketState::Done => return Poll::Ready(Ok(())),
                ToSocketState::Broken(_) => to.waiting = Bytes::new(),
                ToSocketState::Open if !to.waiting.is_empty() => {
                    match ready!(socket.poll_write(cx, &to.waiting)) {
                        Ok(written) => to.waiting.advance(written),
                        // Its peer may have answered before it stopped listening.
                        Err(error) => to.state = ToSocketState::Broken(error),
                    }
                    continue;
                }
                ToSocketState::Open => {}
            }
            match ready!(self.stream.poll_read_bytes(cx)) {
                Ok(Some(bytes)) => to.waiting = bytes,
                Ok(None) => {
                    if matches!(to.state, ToSocketState::Open) {
                        socket.end();
                    }
                    to.state = ToSocketState::Done;
                }
                Err(error) => return Poll::Ready(Err(stream_failure(&error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_from_socket(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        let socket = &self.socket.socket;
        let from = &mut self.from_socket;
        for _ in 0..PIECES_PER_POLL {
            if from.done {
                return Poll::Ready(Ok(()));
            }
            if !from.waiting.is_empty() {
                match ready!(self.stream.poll_write_bytes(cx, &mut from.waiting)) {
                    Ok(taken) => socket.count_read(taken),
                    Err(error) => return Poll::Ready(Err(stream_failure(&error))),
                }
                continue;
            }
            if from.ended {
                if let Err(error) = ready!(Pin::new(&mut self.stream).poll_shutdown(cx)) {
                    return Poll::Ready(Err(stream_failure(&error)));
                }
                from.done = true;
                continue;
            }
            match ready!(socket.poll_read(cx)) {
                Ok(Some(bytes)) => from.waiting = bytes,
                Ok(None) => from.ended = true,
                Err(error) => return Poll::Ready(Err(self.broken_off(&error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ends the relay when nothing moved for `limit`.
    fn poll_silence(
        &mut self,
        cx: &mut Context<'_>,
        limit: Duration,
    ) -> Poll<Result<(), RelayError>> {
        let socket = &self.socket.socket;
        let silence = self.silence.get_or_insert_with(|| Silence {
            timer: Box::pin(sleep_until(Instant::now() + limit)),
            moved: socket.moved(),
        });
        loop {
            ready!(silence.timer.as_mut().poll(cx));
            let moved = socket.moved();
            if silence.moved == moved {
                break;
            }
            silence.moved = moved;
            silence.timer.as_mut().reset(Instant::now() + limit);
        }
        let error = match &self.to_socket.state {
            ToSocketState::Broken(error) => self.broken_off(error),
            _ => RelayError::Socket(TunnelError::new(
                TunnelErrorCode::TimedOut,
                format!(
                    "the tunnel was half closed and silent for {} s",
                    limit.as_secs()
                ),
            )),
        };
        Poll::Ready(Err(error))
    }

    fn broken_off(&self, error: &io::Error) -> RelayError {
        use io::ErrorKind as K;
        let code = match error.kind() {
            K::TimedOut => TunnelErrorCode::TimedOut,
            K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => {
                TunnelErrorCode::Unreachable
            }
            _ => TunnelErrorCode::Reset,
        };
        RelayError::Socket(TunnelError::new(
            code,
            format!("{} broke off the connection: {error}", self.whose),
        ))
    }
}

/// What a stream's failure, as an I/O error, says about its tunnel.
fn stream_failure(error: &io::Error) -> RelayError {
    let told = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<TunnelError>());
    RelayError::Stream(
        told.cloned()
            .unwrap_or_else(|| TunnelError::new(TunnelErrorCode::Internal, error.to_string())),
    )
}
