//! [`LocalSocket`]: a relay's TCP socket, which the link's driver may write to as well.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;
use yonder_protocol::limits::DATA_FRAME_BYTES;

use super::Meter;

/// Bytes of one read: one `DATA` frame, since system calls dominate the cost of relaying.
const READ_BYTES: usize = DATA_FRAME_BYTES;

/// A buffer with less room than this is not read into any more.
const READ_BYTES_LEAST: usize = READ_BYTES / 2;

/// Fewer bytes than this are copied out of the buffer. They are kept until the other half has acknowledged them, and must
/// not keep a large buffer with them.
const SPARSE_BYTES: usize = READ_BYTES / 16;

thread_local! {
    /// What the next read on this thread goes into. No tunnel owns a buffer that it has read nothing into.
    static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A TCP socket that one relay task reads and writes, and that the link's driver writes to while nothing waits before it.
pub(crate) struct LocalSocket {
    tcp: TcpStream,
    /// How reading failed behind bytes that were delivered first. The system tells it once, and says end from then on.
    failed: OnceLock<io::ErrorKind>,
    moved: AtomicU64,
    meter: Arc<dyn Meter>,
}

impl LocalSocket {
    pub(crate) fn new(tcp: TcpStream, meter: Arc<dyn Meter>) -> Self {
        Self {
            tcp,
            failed: OnceLock::new(),
            moved: AtomicU64::new(0),
            meter,
        }
    }

    /// Writes what the socket takes without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when that is nothing; or the socket's own, which the relay meets again with its next write.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.tcp.try_write(bytes)?;
        self.moved.fetch_add(written as u64, Ordering::Relaxed);
        self.meter.wrote(written);
        Ok(written)
    }

    /// The same, waiting for room. Only for the relay's task.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Takes what the socket holds, up to [`READ_BYTES`], once it holds anything; `None` at its end. Only for the relay's
    /// task.
    pub(super) fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(kind) = self.failed.get() {
            return Poll::Ready(Err((*kind).into()));
        }
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            let read = BUFFER.with_borrow_mut(|buffer| self.fill(buffer));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Reads until `buffer` is full or the socket empty. It never waits for more: that would cost an interactive tunnel
    /// time, and what is there already makes bulk cheap.
    fn fill(&self, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
        if buffer.capacity() < READ_BYTES_LEAST {
            *buffer = BytesMut::with_capacity(READ_BYTES);
        }
        let room = buffer.capacity();
        while buffer.len() < room {
            match self.tcp.try_read_buf(buffer) {
                Ok(0) => break,
                Ok(_) => {}
                // What came before is delivered first; the next read tells the error.
                Err(error) if !buffer.is_empty() => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.failed.get_or_init(|| error.kind());
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if buffer.is_empty() {
            return Ok(None);
        }
        if buffer.len() < SPARSE_BYTES {
            let bytes = Bytes::copy_from_slice(buffer);
            buffer.clear();
            return Ok(Some(bytes));
        }
        Ok(Some(buffer.split().freeze()))
    }

    /// Counts bytes of the socket that the link took.
    pub(super) fn count_read(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        self.meter.took(bytes);
    }

    /// Bytes moved so far, both ways.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Says the end of this direction.
    pub(super) fn end(&self) {
        // Fails only when the peer is gone, which reading sees.
        let _ = SockRef::from(&self.tcp).shutdown(Shutdown::Write);
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the socket reset, rather than closed in order, once nobody holds it any more.
    pub(super) fn reset_when_closed(&self) {
        if let Err(error) = self.tcp.set_zero_linger() {
            tracing::trace!(%error, "could not set SO_LINGER on a relayed socket");
        }
    }
}
