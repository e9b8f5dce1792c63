//! The targets that the server half serves by itself ([`Builtin`]): no name is resolved for them and no socket opened.
//!
//! They hold no more memory than any tunnel: what the client has not taken yet waits within the stream's bounds, and
//! what the source sends are references to one block.

use std::future::poll_fn;
use std::io;
use std::sync::LazyLock;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep_until, timeout};
use yonder_protocol::{Builtin, limits};
use yonder_transport::stream::Stream;

/// How often the sink says what it has taken while bytes arrive: often enough for a progress bar, too rare to cost
/// anything.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// How long a client that was sent everything may keep its own direction open.
const END_LIMIT: Duration = Duration::from_mins(1);

/// What the source sends, over and over: one `DATA` frame of bytes that no carrier can compress.
static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut block = vec![0; limits::DATA_FRAME_BYTES];
    rand::rng().fill(block.as_mut_slice());
    block.into()
});

/// Serves `stream` as `builtin` until it is over. Dropping the future resets the stream.
pub(crate) async fn serve(builtin: Builtin, mut stream: Stream) {
    let served = match builtin {
        Builtin::Source { bytes } => source(&mut stream, bytes).await,
        Builtin::Sink => sink(&mut stream).await,
        Builtin::Echo => echo(&mut stream).await,
    };
    if let Err(error) = served {
        tracing::debug!(?builtin, %error, "a built-in target was left early");
    }
}

/// Sends `bytes`, or until the client ends its direction. What the client sends is discarded.
async fn source(stream: &mut Stream, bytes: Option<u64>) -> io::Result<()> {
    let mut left = bytes.unwrap_or(u64::MAX);
    let mut piece = Bytes::new();
    let mut client_ended = false;
    poll_fn(|cx| {
        while !client_ended && let Poll::Ready(read) = stream.poll_read_bytes(cx) {
            client_ended = read?.is_none();
        }
        if client_ended && bytes.is_none() {
            return Poll::Ready(io::Result::Ok(()));
        }
        while left > 0 {
            if piece.is_empty() {
                let length =
                    usize::try_from(left).map_or(BLOCK.len(), |left| left.min(BLOCK.len()));
                piece = BLOCK.slice(..length);
            }
            left -= ready!(stream.poll_write_bytes(cx, &mut piece))? as u64;
        }
        Poll::Ready(Ok(()))
    })
    .await?;
    stream.shutdown().await?;
    if !client_ended {
        // A stream that is dropped with one direction open is reset, and what is under way is lost.
        let ended = async {
            while next(stream).await?.is_some() {}
            io::Result::Ok(())
        };
        timeout(END_LIMIT, ended)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
    Ok(())
}

/// Counts what comes.
async fn sink(stream: &mut Stream) -> io::Result<()> {
    let mut total = 0_u64;
    let mut reported = 0;
    let mut report_at = Instant::now();
    loop {
        tokio::select! {
            read = next(stream) => match read? {
                Some(bytes) => total += bytes.len() as u64,
                None => break,
            },
            () = sleep_until(report_at), if total > reported => {
                stream.write_all(format!("{total}\n").as_bytes()).await?;
                reported = total;
                report_at = Instant::now() + REPORT_INTERVAL;
            }
        }
    }
    stream.write_all(format!("{total}\n").as_bytes()).await?;
    stream.shutdown().await
}

/// Sends back what comes, without copying it.
async fn echo(stream: &mut Stream) -> io::Result<()> {
    while let Some(mut bytes) = next(stream).await? {
        while !bytes.is_empty() {
            poll_fn(|cx| stream.poll_write_bytes(cx, &mut bytes)).await?;
        }
    }
    stream.shutdown().await
}

/// The next bytes; `None` at the client's end. Cancel safe.
async fn next(stream: &mut Stream) -> io::Result<Option<Bytes>> {
    poll_fn(|cx| stream.poll_read_bytes(cx)).await
}
