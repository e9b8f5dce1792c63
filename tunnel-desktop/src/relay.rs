//! Carries bytes between a local connection and a tunnel.
//!
//! Both directions run in one future. Bytes from the tunnel are written as they arrived, without a copy; bytes for it
//! are read into a buffer that exists only while there is something to read, so an idle connection costs nothing. An
//! end in one direction is passed on and the other goes on; a failure in either ends both.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use yonder_transport::stream::Stream;

/// Read at once from the local connection: system calls dominate the cost of relaying, and what is larger comes from
/// the allocator by a system call of its own.
const READ_BYTES: usize = 64 * 1024;

/// Relays until both directions ended.
///
/// Dropping the future drops the tunnel, which resets it; what becomes of `local` is its owner's.
///
/// # Errors
/// The first failure of either side. The tunnel has been reset then; reset `local` too.
pub(crate) async fn run(local: &mut TcpStream, mut tunnel: Stream) -> io::Result<()> {
    let mut upward = Upward::Reading;
    let mut downward = Downward::Reading;
    poll_fn(|cx| {
        // Both are polled each time: each registers for its own wake-up.
        let up = upward.poll(cx, local, &mut tunnel)?;
        let down = downward.poll(cx, local, &mut tunnel)?;
        if up.is_ready() && down.is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}

/// From the local connection into the tunnel.
enum Upward {
    Reading,
    Writing(Bytes),
    Ended,
}

impl Upward {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        local: &TcpStream,
        tunnel: &mut Stream,
    ) -> Poll<io::Result<()>> {
        loop {
            match self {
                Self::Reading => {
                    ready!(local.poll_read_ready(cx))?;
                    let mut buffer = BytesMut::with_capacity(READ_BYTES);
                    match local.try_read_buf(&mut buffer) {
                        Ok(0) => {
                            ready!(Pin::new(&mut *tunnel).poll_shutdown(cx))?;
                            *self = Self::Ended;
                        }
                        Ok(_) => *self = Self::Writing(fitted(buffer)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                Self::Writing(bytes) => {
                    ready!(tunnel.poll_write_bytes(cx, bytes))?;
                    if bytes.is_empty() {
                        *self = Self::Reading;
                    }
                }
                Self::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// From the tunnel into the local connection.
enum Downward {
    Reading,
    Writing(Bytes),
    Ended,
}

impl Downward {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        tunnel: &mut Stream,
    ) -> Poll<io::Result<()>> {
        loop {
            match self {
                Self::Reading => {
                    if let Some(bytes) = ready!(tunnel.poll_read_bytes(cx))? {
                        *self = Self::Writing(bytes);
                    } else {
                        ready!(Pin::new(&mut *local).poll_shutdown(cx))?;
                        *self = Self::Ended;
                    }
                }
                Self::Writing(bytes) => {
                    let written = ready!(Pin::new(&mut *local).poll_write(cx, bytes))?;
                    bytes.advance(written);
                    if bytes.is_empty() {
                        *self = Self::Reading;
                    }
                }
                Self::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// The bytes read, in a buffer of about their size: a few typed characters must not hold a large one while they wait.
fn fitted(buffer: BytesMut) -> Bytes {
    /// Below this share of the buffer a copy costs less than the memory.
    const SPARSE: usize = READ_BYTES / 8;
    if buffer.len() < SPARSE {
        Bytes::copy_from_slice(&buffer)
    } else {
        buffer.freeze()
    }
}

#[cfg(test)]
mod tests;
