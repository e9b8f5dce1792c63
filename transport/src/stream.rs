//! One stream of a link as its user holds it: a byte stream with half-close, whose failures say why.
//!
//! A handle talks to the link's driver through a small state of its own ([`shared`]), so no two streams
//! share a lock.

pub(crate) mod shared;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use yonder_protocol::{TunnelError, TunnelErrorCode};

use self::shared::Shared;
use crate::relay::LocalSocket;

/// A stream within a link.
///
/// * Reading and writing fail with an [`io::Error`] made from the [`TunnelError`] that ended the stream;
///   what had arrived and was not read is discarded then.
/// * Writing takes what the peer granted and a bounded queue holds; flushing is immediate, since the link
///   never holds back what it may send.
/// * Shutting down sends the end behind what was written and returns at once. The other direction goes on.
/// * Dropping a stream whose two directions did not both end resets it with
///   [`TunnelErrorCode::Cancelled`]; when they did, what was written before still goes out.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    /// What was taken off the queue and not copied out by [`AsyncRead`] yet.
    current: Bytes,
    /// Bytes taken off the queue that count as consumed once more are asked for.
    held: usize,
}

impl Stream {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            current: Bytes::new(),
            held: 0,
        }
    }

    /// Waits for the peer's verdict on a stream that this half opened and returns its words (for a tunnel, the
    /// address it reached). A failed one yields why. At once for streams that the peer opened.
    ///
    /// Cancel safe. There is no limit in here: whoever waits knows how long.
    pub async fn opened(&mut self) -> Result<String, TunnelError> {
        std::future::poll_fn(|cx| self.shared.poll_opened(cx)).await
    }

    /// Waits until the stream fails and returns why: reset by the peer, or the link is over.
    ///
    /// It does not resolve for a stream that ends in order. Whoever answers a call whose caller has ended its direction
    /// learns from this that the caller gave up; reading cannot tell, as it has seen the end. Cancel safe.
    pub async fn failed(&mut self) -> TunnelError {
        std::future::poll_fn(|cx| self.shared.poll_failed(cx)).await
    }

    /// Tells the peer that its stream is taken; `text` says what was reached. Writing implies it.
    pub fn accept(&self, text: impl Into<String>) {
        self.shared.accept(text.into());
    }

    /// Ends the stream both ways at once; the peer sees `error`. What is queued is discarded.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "the callers' errors end with the stream"
    )]
    pub fn reset(self, error: TunnelError) {
        self.shared.reset(&error);
    }

    /// The next bytes as they arrived, without copying; `None` after the peer's end.
    ///
    /// They count as consumed (and the peer is granted more) when the next ones are asked for.
    pub fn poll_read_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.current.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.current))));
        }
        let held = std::mem::take(&mut self.held);
        let bytes = ready!(self.shared.poll_read(cx, held))?;
        self.held = bytes.as_ref().map_or(0, Bytes::len);
        Poll::Ready(Ok(bytes))
    }

    /// Takes bytes off the front of `data` without copying and returns how many: at least one, unless `data`
    /// is empty.
    pub fn poll_write_bytes(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
    ) -> Poll<io::Result<usize>> {
        let length = data.len();
        self.shared
            .poll_write(cx, length, |taken| data.split_to(taken))
    }
}

impl Stream {
    /// Has the link's driver write what arrives straight to `socket` whenever a reader waits and nothing is queued before
    /// it. What the socket does not take is read as usual.
    pub(crate) fn write_directly_to(&self, socket: Arc<LocalSocket>) {
        self.shared.write_directly_to(socket);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.current.is_empty() {
            match ready!(self.poll_read_bytes(cx))? {
                Some(bytes) => self.current = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.current.len().min(buf.remaining());
        buf.put_slice(self.current.get(..length).unwrap_or_default());
        self.current.advance(length);
        if self.current.is_empty() {
            // An idle stream keeps no buffer.
            self.current = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, buf.len(), |taken| {
            Bytes::copy_from_slice(buf.get(..taken).unwrap_or_default())
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shared.shutdown())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.detach(self.held);
    }
}

/// What the peer of a dropped stream is told.
pub(crate) fn cancelled() -> TunnelError {
    TunnelError::new(TunnelErrorCode::Cancelled, "the other end went away")
}
