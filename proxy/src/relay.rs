//! The raw pipe of `CONNECT` and of an upgraded connection, with half-close in both directions.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::buffer::Buffer;
use crate::client::Client;
use crate::limits::BLOCKS_PER_TURN;
use crate::pool::Upstream;

/// How a pipe ended.
#[derive(Debug)]
pub(crate) enum RelayEnd {
    /// Nothing is left in a buffer and both sides go on: another may relay from here.
    Settled,
    /// Both sides had said all they wanted.
    Finished,
    /// The client went away; dropping the stream tells the target.
    ClientGone,
    /// The stream to the target failed; the client is to see a reset.
    Failed(io::Error),
}

/// When a relay may stop in favour of another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Settle {
    /// As soon as nothing is buffered.
    AtOnce,
    /// Once the target said something, too.
    Answered,
}

/// Copies between `client` and `upstream` until both directions have ended or one side fails. What either
/// side's buffer holds goes first. `answered` is called when the first byte, or a regular end,
/// comes from the target. With `may_settle`, it stops once that has happened, or needs not, and nothing is buffered.
///
/// A pipe may be silent for as long as its two ends like, so nothing here has a deadline: it ends with the
/// client, the target or the proxy.
pub(crate) async fn relay<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client,
    upstream: &mut Upstream<S>,
    may_settle: Option<Settle>,
    mut answered: impl FnMut(),
) -> RelayEnd {
    let mut up = Direction {
        source_ended: client.ended,
        ..Direction::default()
    };
    let mut down = Direction::default();
    let mut up_first = true;
    let mut told = false;
    poll_fn(move |cx| {
        // Both directions get a bounded turn, and the first place changes: a side that never stops
        // sending must not keep the other from being heard.
        up_first = !up_first;
        for is_up in [!up_first, up_first] {
            let outcome = if is_up {
                up.poll(
                    cx,
                    &mut client.input,
                    &mut client.socket,
                    &mut upstream.stream,
                )
            } else {
                down.poll(
                    cx,
                    &mut upstream.input,
                    &mut upstream.stream,
                    &mut client.socket,
                )
            };
            if !told && (down.received || down.source_ended) {
                told = true;
                answered();
            }
            match outcome {
                Poll::Pending | Poll::Ready(Ok(())) => {}
                // What the target still has to say is passed on although it listens no more; its own end
                // or failure then ends the pipe.
                Poll::Ready(Err(Fault::Sink)) if is_up => {
                    up.sink_lost = true;
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(Err(Fault::Source(error))) if !is_up => {
                    return Poll::Ready(RelayEnd::Failed(error));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(RelayEnd::ClientGone),
            }
        }
        let proven = told || may_settle == Some(Settle::AtOnce);
        if may_settle.is_some()
            && proven
            && client.input.is_empty()
            && upstream.input.is_empty()
            && up.is_quiet()
            && down.is_quiet()
        {
            return Poll::Ready(RelayEnd::Settled);
        }
        if up.finished && down.finished {
            Poll::Ready(RelayEnd::Finished)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Which end of a direction failed.
enum Fault {
    Source(io::Error),
    Sink,
}

/// One direction of the pipe.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not one state"
)]
struct Direction {
    /// Something was read from the source.
    received: bool,
    /// The source has ended.
    source_ended: bool,
    /// Written but not flushed.
    dirty: bool,
    /// The sink takes no more. The source is still read, and its bytes discarded, so that it can get round to
    /// reading what is sent to it.
    sink_lost: bool,
    /// The source has ended and the sink was told, if it is still there.
    finished: bool,
}

impl Direction {
    /// Whether it goes on and owes nobody anything.
    fn is_quiet(&self) -> bool {
        !self.source_ended && !self.dirty && !self.sink_lost && !self.finished
    }

    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        source: &mut R,
        sink: &mut W,
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..BLOCKS_PER_TURN {
            if self.sink_lost {
                let unused = buffer.filled().len();
                buffer.consume(unused);
                self.dirty = false;
                self.finished |= self.source_ended;
                if self.finished {
                    return Poll::Ready(Ok(()));
                }
            }
            while !buffer.is_empty() {
                let count = ready!(Pin::new(&mut *sink).poll_write(cx, buffer.filled()))
                    .map_err(|_| Fault::Sink)?;
                if count == 0 {
                    return Poll::Ready(Err(Fault::Sink));
                }
                buffer.consume(count);
                self.dirty = true;
            }
            if self.source_ended {
                ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(|_| Fault::Sink)?;
                self.finished = true;
                return Poll::Ready(Ok(()));
            }
            match buffer.poll_fill(cx, source) {
                Poll::Ready(Ok(0)) => self.source_ended = true,
                Poll::Ready(Ok(_)) => self.received = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Fault::Source(error))),
                Poll::Pending => {
                    if self.dirty {
                        ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| Fault::Sink)?;
                        self.dirty = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
