//! Moving bytes between a tunnel's stream and the target's socket, both ways at once in one task.
//!
//! Half-closes pass through in both directions, resets as resets. Buffers exist only while bytes move: an
//! idle relay holds none. Dialling and limits are not done here.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use yonder_protocol::{TunnelError, TunnelErrorCode, limits};
use yonder_transport::stream::Stream;

use super::dial::code_of;
use crate::metrics::Metrics;

/// First and smallest buffer for reading from a target: most answers and events are short.
const READ_BYTES_MIN: usize = 16 * 1024;

/// Largest buffer for reading from a target: one `DATA` frame, so that system calls do not dominate.
const READ_BYTES_MAX: usize = limits::DATA_FRAME_BYTES;

/// A tunnel of which one direction ended may be silent this long: a peer that forgot the other direction must
/// not hold a socket for ever, one that computes an answer may take its time.
const HALF_CLOSED_IDLE: Duration = Duration::from_mins(5);

/// After the target closed both its directions with bytes for it under way, its last words get this long to
/// reach the client before the reset follows.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A target's socket, which is reset unless it was closed in order: whoever reads from it must not take a cut
/// for an end.
#[derive(Debug)]
pub(crate) struct TargetSocket {
    stream: TcpStream,
    in_order: bool,
}

impl TargetSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            in_order: false,
        }
    }
}

impl Drop for TargetSocket {
    fn drop(&mut self) {
        if !self.in_order
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::trace!(%error, "could not set SO_LINGER on a target's socket");
        }
    }
}

/// Relays until both directions ended or one half failed. Dropping the future resets both sides.
pub(crate) async fn relay(stream: Stream, socket: TargetSocket, metrics: &Metrics) {
    let mut relay = Relay {
        stream,
        socket,
        upload: Upload {
            waiting: Bytes::new(),
            state: UploadState::Open,
        },
        download: Download {
            waiting: Bytes::new(),
            size: READ_BYTES_MIN,
            target_ended: false,
            done: false,
        },
        moved: false,
        silence: None,
        metrics,
    };
    let end = poll_fn(|cx| relay.poll(cx)).await;
    let Relay {
        stream, mut socket, ..
    } = relay;
    match end {
        Ok(()) => socket.in_order = true,
        // The stream knows already; the socket learns it as it is dropped.
        Err(Cut::Stream) => {}
        Err(Cut::Socket(error)) => stream.reset(error),
    }
}

/// Which half broke off.
enum Cut {
    Stream,
    Socket(TunnelError),
}

struct Relay<'a> {
    stream: Stream,
    socket: TargetSocket,
    upload: Upload,
    download: Download,
    /// Whether bytes moved since the silence was last measured.
    moved: bool,
    /// Runs while one direction alone is open.
    silence: Option<Pin<Box<Sleep>>>,
    metrics: &'a Metrics,
}

/// From the client to the target.
struct Upload {
    waiting: Bytes,
    state: UploadState,
}

enum UploadState {
    Open,
    /// The target takes no more; what comes is discarded until the download is over too.
    Broken(io::Error),
    Done,
}

/// From the target to the client.
struct Download {
    waiting: Bytes,
    /// Of the next buffer.
    size: usize,
    target_ended: bool,
    done: bool,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        if pin!(self.stream.failed()).poll(cx).is_ready() {
            return Poll::Ready(Err(Cut::Stream));
        }
        let upload = self.poll_upload(cx);
        if let Poll::Ready(Err(cut)) = upload {
            return Poll::Ready(Err(cut));
        }
        if let Poll::Ready(Err(cut)) = self.poll_download(cx) {
            return Poll::Ready(Err(cut));
        }
        match (&self.upload.state, self.download.done) {
            (UploadState::Done, true) => Poll::Ready(Ok(())),
            (UploadState::Open, false) => Poll::Pending,
            (UploadState::Broken(_), true) => self.poll_silence(cx, LAST_WORDS),
            _ => self.poll_silence(cx, HALF_CLOSED_IDLE),
        }
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        loop {
            match self.upload.state {
                UploadState::Done => return Poll::Ready(Ok(())),
                UploadState::Broken(_) => self.upload.waiting = Bytes::new(),
                UploadState::Open if !self.upload.waiting.is_empty() => {
                    let socket = Pin::new(&mut self.socket.stream);
                    match ready!(socket.poll_write(cx, &self.upload.waiting)) {
                        Ok(written) => {
                            self.upload.waiting.advance(written);
                            self.moved = true;
                            self.metrics.bytes_to_targets.inc_by(written as u64);
                        }
                        // The target may have answered before it stopped listening.
                        Err(error) => self.upload.state = UploadState::Broken(error),
                    }
                    continue;
                }
                UploadState::Open => {}
            }
            match ready!(self.stream.poll_read_bytes(cx)) {
                Ok(Some(bytes)) => self.upload.waiting = bytes,
                Ok(None) => {
                    if matches!(self.upload.state, UploadState::Open) {
                        // Fails only when the target is gone, which the download sees.
                        let _ = ready!(Pin::new(&mut self.socket.stream).poll_shutdown(cx));
                        self.moved = true;
                    }
                    self.upload.state = UploadState::Done;
                }
                Err(_) => return Poll::Ready(Err(Cut::Stream)),
            }
        }
    }

    fn poll_download(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        loop {
            if self.download.done {
                return Poll::Ready(Ok(()));
            }
            if !self.download.waiting.is_empty() {
                let waiting = &mut self.download.waiting;
                match ready!(self.stream.poll_write_bytes(cx, waiting)) {
                    Ok(written) => {
                        self.moved = true;
                        self.metrics.bytes_from_targets.inc_by(written as u64);
                    }
                    Err(_) => return Poll::Ready(Err(Cut::Stream)),
                }
                continue;
            }
            if self.download.target_ended {
                if ready!(Pin::new(&mut self.stream).poll_shutdown(cx)).is_err() {
                    return Poll::Ready(Err(Cut::Stream));
                }
                self.moved = true;
                self.download.done = true;
                continue;
            }
            let ready = ready!(self.socket.stream.poll_read_ready(cx));
            if let Err(error) = ready.and_then(|()| self.read()) {
                return Poll::Ready(Err(Self::reset_by_target(&error)));
            }
        }
    }

    /// Takes what the socket holds, up to a full buffer, without waiting.
    fn read(&mut self) -> io::Result<()> {
        let size = self.download.size;
        let mut buffer = BytesMut::with_capacity(size);
        while buffer.len() < size {
            match self.socket.stream.try_read_buf(&mut buffer) {
                Ok(0) => {
                    self.download.target_ended = true;
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What came before the error is delivered first; the next read tells the error or the end.
                Err(_) if !buffer.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let length = buffer.len();
        self.download.size = if length >= size {
            (size * 2).min(READ_BYTES_MAX)
        } else if length < size / 4 {
            (size / 2).max(READ_BYTES_MIN)
        } else {
            size
        };
        // Bytes are kept until acknowledged: a few of them must not keep a large buffer with them.
        self.download.waiting = if length < size / 2 {
            Bytes::copy_from_slice(&buffer)
        } else {
            buffer.freeze()
        };
        Ok(())
    }

    /// Ends the relay when nothing moved for `limit`.
    fn poll_silence(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<Result<(), Cut>> {
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        if std::mem::take(&mut self.moved) {
            silence.as_mut().reset(Instant::now() + limit);
        }
        ready!(silence.as_mut().poll(cx));
        let cut = match &self.upload.state {
            UploadState::Broken(error) => {
                let error = io::Error::from(error.kind());
                Self::reset_by_target(&error)
            }
            _ => Cut::Socket(TunnelError::new(
                TunnelErrorCode::TimedOut,
                format!(
                    "the tunnel was half closed and silent for {} s",
                    limit.as_secs()
                ),
            )),
        };
        Poll::Ready(Err(cut))
    }

    fn reset_by_target(error: &io::Error) -> Cut {
        let code = match code_of(error) {
            code @ (TunnelErrorCode::TimedOut | TunnelErrorCode::Unreachable) => code,
            _ => TunnelErrorCode::Reset,
        };
        Cut::Socket(TunnelError::new(
            code,
            format!("the target broke off the connection: {error}"),
        ))
    }
}
