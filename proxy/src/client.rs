//! The client's side of a connection: the socket, what it sent and was not yet used, and its ways to end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};

use crate::buffer::Buffer;
use crate::limits::{ANSWER_TIMEOUT, HALF_CLOSED_GRACE};

/// A client connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    /// Read from the socket and not used yet: early data, or further requests.
    pub(crate) input: Buffer,
    /// The client has ended its side.
    pub(crate) ended: bool,
    /// Runs while the client has ended its side and takes nothing; made when first needed.
    grace: Option<Pin<Box<Sleep>>>,
}

/// The client is not there any more; nobody is left to tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Gone;

impl Client {
    /// A connection that was just accepted.
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            input: Buffer::default(),
            ended: false,
            grace: None,
        }
    }

    /// Reads more input. `Ok(0)` is the end of the client's side, or a full buffer.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let count = ready!(self.input.poll_fill(cx, &mut self.socket))?;
        self.ended |= count == 0 && !self.input.is_full();
        Poll::Ready(Ok(count))
    }

    /// Ready when the client went away while it is being served: it reset the connection, or ended its
    /// side and took nothing for [`HALF_CLOSED_GRACE`]. Input that comes meanwhile is kept up to one block;
    /// behind a full one the end is not seen.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        while !self.ended && !self.input.is_full() {
            if ready!(self.poll_fill(cx)).is_err() {
                return Poll::Ready(Gone);
            }
        }
        if !self.ended {
            return Poll::Pending;
        }
        let grace = self
            .grace
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(HALF_CLOSED_GRACE)));
        ready!(grace.as_mut().poll(cx));
        Poll::Ready(Gone)
    }

    /// Notes that the client took bytes, which starts its grace anew.
    pub(crate) fn progressed(&mut self) {
        if let Some(grace) = &mut self.grace {
            grace.as_mut().reset(Instant::now() + HALF_CLOSED_GRACE);
        }
    }

    /// Writes a whole answer of our own.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        match timeout(ANSWER_TIMEOUT, self.socket.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Ends the connection after an answer although the client may still be sending: its side is read and
    /// discarded for at most `limit`, so that no reset overtakes the answer.
    pub(crate) async fn close(mut self, limit: Duration) {
        let discard = async {
            self.socket.shutdown().await?;
            while !self.ended {
                let unused = self.input.filled().len();
                self.input.consume(unused);
                std::future::poll_fn(|cx| self.poll_fill(cx)).await?;
            }
            io::Result::Ok(())
        };
        // Whether the client ended, failed or ran out of time, the connection is dropped now.
        let _ = timeout(limit, discard).await;
    }

    /// Cuts the connection so that the client sees a reset and does not take what it has for the whole.
    pub(crate) fn reset(self) {
        // A socket that is gone already needs no reset.
        let _ = self.socket.set_zero_linger();
    }
}
