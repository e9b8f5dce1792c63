//! The measurements themselves.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout, timeout_at};
use yonder_protocol::{Builtin, TunnelError, TunnelErrorCode, limits};
use yonder_transport::link::Link;
use yonder_transport::stream::Stream;

use super::figures::{Times, bytes, rate};
use crate::console::Console;

/// What an echo carries: the size of a keystroke with its surroundings.
const ECHO_BYTES: usize = 64;

/// Echoes and openings that are measured at most: enough for a 99th percentile.
const SAMPLES: usize = 200;

/// What echoes, and then openings, may take altogether.
const SAMPLES_LIMIT: Duration = Duration::from_secs(2);

/// Pause between the echoes beside a transfer: often enough for a percentile, too rare to take part in it.
const ECHO_PAUSE: Duration = Duration::from_millis(10);

/// How long one answer may take before the link counts as broken.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How often the progress is shown.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// Cells of the progress bar.
const BAR_CELLS: usize = 24;

/// What is sent, over and over: bytes that no carrier can compress.
static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut block = vec![0; limits::DATA_FRAME_BYTES];
    rand::rng().fill(block.as_mut_slice());
    block.into()
});

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// The server half knows no such targets.
    #[error(
        "the server half has nothing to measure with; install the same release on both halves ({0})"
    )]
    Unknown(TunnelError),
    /// A stream failed.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// A stream broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An answer did not come.
    #[error("no answer came within {} s", ANSWER_LIMIT.as_secs())]
    Silent,
    /// The sink did not count.
    #[error(
        "the server half did not count the bytes it got; install the same release on both halves"
    )]
    Count,
}

/// Where one transfer ends, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) duration: Duration,
    pub(crate) bytes: u64,
}

/// Shows on a terminal how far the measurement is.
pub(super) struct Progress<'a> {
    console: &'a Console,
}

impl<'a> Progress<'a> {
    pub(super) fn new(console: &'a Console) -> Self {
        Self { console }
    }

    fn show(&self, what: &str, share: f64, detail: &str) {
        if self.console.is_terminal() {
            self.console
                .status(&format!("{} {what}", bar(share)), detail);
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a few cells"
)]
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR_CELLS as f64) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR_CELLS - full))
}

/// Opens `builtin` and waits for the verdict.
async fn open(link: &Link, builtin: Builtin) -> Result<Stream, BenchError> {
    let mut stream = link.open_tunnel(&builtin.target())?;
    verdict(&mut stream).await?;
    Ok(stream)
}

/// Waits until `stream` is known to be open.
async fn verdict(stream: &mut Stream) -> Result<(), BenchError> {
    match timeout(ANSWER_LIMIT, stream.opened()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if error.code == TunnelErrorCode::NameNotFound => {
            Err(BenchError::Unknown(error))
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(BenchError::Silent),
    }
}

/// One echo there and back.
async fn echo(stream: &mut Stream) -> Result<Duration, BenchError> {
    let mut answer = [0; ECHO_BYTES];
    let began = Instant::now();
    let exchanged = async {
        stream.write_all(&[b'.'; ECHO_BYTES]).await?;
        stream.read_exact(&mut answer).await
    };
    timeout(ANSWER_LIMIT, exchanged)
        .await
        .map_err(|_| BenchError::Silent)??;
    Ok(began.elapsed())
}

/// One echo on a stream of its own.
pub(super) async fn echo_once(link: &Link) -> Result<Duration, BenchError> {
    echo(&mut open(link, Builtin::Echo).await?).await
}

/// Takes [`SAMPLES`] of something, or as many as come within [`SAMPLES_LIMIT`].
async fn sample(
    what: &str,
    progress: &Progress<'_>,
    mut one: impl AsyncFnMut() -> Result<Duration, BenchError>,
) -> Result<Times, BenchError> {
    let mut times = Times::default();
    let began = Instant::now();
    let mut shown = began;
    while times.count() < SAMPLES && began.elapsed() < SAMPLES_LIMIT {
        times.add(one().await?);
        if shown.elapsed() >= SHOW_INTERVAL {
            shown = Instant::now();
            let share = began.elapsed().as_secs_f64() / SAMPLES_LIMIT.as_secs_f64();
            progress.show(what, share, "");
        }
    }
    Ok(times)
}

/// Echoes on an idle link.
pub(super) async fn round_trips(link: &Link, progress: &Progress<'_>) -> Result<Times, BenchError> {
    let mut stream = open(link, Builtin::Echo).await?;
    // The first one finds caches cold.
    echo(&mut stream).await?;
    sample("round trip", progress, async || echo(&mut stream).await).await
}

/// From the wish for a tunnel to the first byte that its target sends.
pub(super) async fn opens(link: &Link, progress: &Progress<'_>) -> Result<Times, BenchError> {
    let target = Builtin::Source { bytes: Some(1) }.target();
    sample("open and first byte", progress, async || {
        let began = Instant::now();
        let mut stream = link.open_tunnel(&target)?;
        let first = timeout(ANSWER_LIMIT, stream.read_u8());
        first.await.map_err(|_| BenchError::Silent)??;
        let took = began.elapsed();
        // In order, so that both halves are done with it.
        stream.shutdown().await?;
        Ok(took)
    })
    .await
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    /// From the server half.
    Down,
    /// To it.
    Up,
}

impl Direction {
    /// As it is shown.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Down => "download",
            Self::Up => "upload",
        }
    }
}

/// One transfer to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) direction: Direction,
    pub(super) streams: usize,
    pub(super) limits: Limits,
}

/// What a transfer came to.
#[derive(Clone, Debug)]
pub(super) struct Transferred {
    pub(super) direction: Direction,
    pub(super) streams: usize,
    /// Bytes that arrived.
    pub(super) bytes: u64,
    /// From the beginning to the last of them.
    pub(super) took: Duration,
    /// Echoes meanwhile.
    pub(super) beside: Times,
}

impl Transferred {
    /// Bytes per second.
    #[allow(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// What the streams of a transfer note together.
struct Arrived {
    began: Instant,
    bytes: AtomicU64,
    /// When the last ones came, in nanoseconds from the beginning.
    last: AtomicU64,
}

impl Arrived {
    fn note(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn took(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

impl Transfer {
    /// Moves bytes until a limit is reached. What is under way then is thrown away.
    pub(super) async fn run(
        self,
        link: &Link,
        progress: &Progress<'_>,
    ) -> Result<Transferred, BenchError> {
        let mut pinger = open(link, Builtin::Echo).await?;
        let share = self.limits.bytes / self.streams as u64;
        let target = match self.direction {
            Direction::Down => Builtin::Source { bytes: Some(share) },
            Direction::Up => Builtin::Sink,
        }
        .target();
        let mut streams = (0..self.streams)
            .map(|_| link.open_tunnel(&target))
            .collect::<Result<Vec<_>, _>>()?;
        for stream in &mut streams {
            verdict(stream).await?;
        }
        let arrived = Arc::new(Arrived {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            last: AtomicU64::new(0),
        });
        let deadline = arrived.began + self.limits.duration;
        // Each in a task of its own, as connections are served.
        let mut moving = JoinSet::new();
        for stream in streams {
            let arrived = Arc::clone(&arrived);
            moving.spawn(async move {
                match self.direction {
                    Direction::Down => download(stream, &arrived, deadline).await,
                    Direction::Up => upload(stream, share, &arrived, deadline).await,
                }
            });
        }
        let moved = async {
            while let Some(moved) = moving.join_next().await {
                moved.map_err(io::Error::other)??;
            }
            Ok::<_, BenchError>(())
        };
        let mut beside = Times::default();
        tokio::select! {
            moved = moved => moved?,
            failed = ping(&mut pinger, &mut beside) => return Err(failed),
            () = self.show(&arrived, progress) => {}
        }
        Ok(Transferred {
            direction: self.direction,
            streams: self.streams,
            bytes: arrived.bytes(),
            took: arrived.took(),
            beside,
        })
    }

    /// Shows the progress; never ends.
    #[allow(clippy::cast_precision_loss, reason = "a share of a progress bar")]
    async fn show(&self, arrived: &Arrived, progress: &Progress<'_>) {
        let plural = if self.streams == 1 { "" } else { "s" };
        let what = format!("{}, {} stream{plural}", self.direction.name(), self.streams);
        let mut ticks = interval(SHOW_INTERVAL);
        loop {
            ticks.tick().await;
            let (moved, since) = (arrived.bytes(), arrived.began.elapsed());
            let share = (since.as_secs_f64() / self.limits.duration.as_secs_f64())
                .max(moved as f64 / self.limits.bytes as f64);
            let speed = moved as f64 / since.as_secs_f64().max(f64::EPSILON);
            let detail = format!("{}, {} so far", rate(speed), bytes(moved));
            progress.show(&what, share, &detail);
        }
    }
}

/// Echoes with pauses until dropped; ends only with a failure.
async fn ping(stream: &mut Stream, times: &mut Times) -> BenchError {
    loop {
        match echo(stream).await {
            Ok(time) => times.add(time),
            Err(error) => return error,
        }
        tokio::time::sleep(ECHO_PAUSE).await;
    }
}

/// Takes what the source sends.
async fn download(
    mut stream: Stream,
    arrived: &Arrived,
    deadline: Instant,
) -> Result<(), BenchError> {
    let taken = async {
        while let Some(bytes) = poll_fn(|cx| stream.poll_read_bytes(cx)).await? {
            arrived.note(bytes.len() as u64);
        }
        stream.shutdown().await
    };
    match timeout_at(deadline, taken).await {
        Ok(taken) => Ok(taken?),
        Err(_) => Ok(()),
    }
}

/// Sends `limit` bytes to the sink, and notes those that it says it has.
async fn upload(
    mut stream: Stream,
    limit: u64,
    arrived: &Arrived,
    deadline: Instant,
) -> Result<(), BenchError> {
    let mut left = limit;
    let mut piece = Bytes::new();
    let mut ended = false;
    let mut count = Count::default();
    let sent = poll_fn(|cx| {
        while let Poll::Ready(report) = stream.poll_read_bytes(cx)? {
            match report {
                Some(report) => arrived.note(count.take(&report)?),
                None => return Poll::Ready(Ok(())),
            }
        }
        while left > 0 {
            if piece.is_empty() {
                let length =
                    usize::try_from(left).map_or(BLOCK.len(), |left| left.min(BLOCK.len()));
                piece = BLOCK.slice(..length);
            }
            left -= ready!(stream.poll_write_bytes(cx, &mut piece))? as u64;
        }
        if !ended {
            ready!(Pin::new(&mut stream).poll_shutdown(cx))?;
            ended = true;
        }
        Poll::Pending
    });
    timeout_at(deadline, sent).await.unwrap_or(Ok(()))
}

/// Reads what the sink says it has: a number a line, none smaller than the one before.
#[derive(Debug, Default)]
struct Count {
    total: u64,
    /// The number that is arriving; `None` before its first digit.
    number: Option<u64>,
}

impl Count {
    /// Takes a piece of the report, and answers by how much the number grew.
    fn take(&mut self, piece: &[u8]) -> Result<u64, BenchError> {
        let before = self.total;
        for &byte in piece {
            match byte {
                b'0'..=b'9' => {
                    let number = self
                        .number
                        .unwrap_or(0)
                        .checked_mul(10)
                        .and_then(|number| number.checked_add(u64::from(byte - b'0')));
                    self.number = Some(number.ok_or(BenchError::Count)?);
                }
                b'\n' => {
                    let number = self.number.take().ok_or(BenchError::Count)?;
                    self.total = Some(number)
                        .filter(|number| *number >= self.total)
                        .ok_or(BenchError::Count)?;
                }
                _ => return Err(BenchError::Count),
            }
        }
        Ok(self.total - before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bar_has_its_length_whatever_the_share() {
        for share in [-1.0, 0.0, 0.5, 1.0, 7.0, f64::NAN] {
            assert_eq!(bar(share).len(), BAR_CELLS + 2);
        }
        assert_eq!(bar(0.5).matches('#').count(), BAR_CELLS / 2);
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["x", "\n", "2\n1\n", "-1\n", "99999999999999999999\n"] {
            assert!(Count::default().take(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn counts_add_up_however_they_arrive(
            steps in proptest::collection::vec(0_u64..1 << 40, 0..20),
            step in 1_usize..9,
        ) {
            let mut total = 0;
            let mut text = String::new();
            for step in &steps {
                total += step;
                text += &total.to_string();
                text.push('\n');
            }
            let mut count = Count::default();
            let mut sum = 0;
            for piece in text.as_bytes().chunks(step) {
                sum += count.take(piece).unwrap();
            }
            prop_assert_eq!(sum, total);
        }
    }
}
