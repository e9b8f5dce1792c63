//! The loads: bulk in streams, pings, and opens. Blocking threads where they are few, which cost least; a runtime of one
//! thread where they are many.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::process::pause;
use crate::target::{PIECE_BYTES, Wish};
use crate::way::{Cpu, Way};

/// Size of a ping and of its answer.
const PING_BYTES: usize = 64;

/// Which way bulk flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    /// From the target.
    Down,
    /// To the target.
    Up,
}

/// What bulk did while it was watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkResult {
    /// Payload a second, in 10⁹ bytes.
    pub(crate) rate: f64,
    /// CPU seconds per 10⁹ bytes.
    pub(crate) cpu: Cpu,
}

/// Streams that move as many bytes as they can until stopped.
#[derive(Debug)]
pub(crate) struct Bulk {
    moved: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Bulk {
    /// Starts `streams` of them.
    pub(crate) fn start(way: Way, direction: Direction, streams: usize) -> anyhow::Result<Self> {
        let moved = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let wish = match direction {
            Direction::Down => Wish::Send(0),
            Direction::Up => Wish::Receive,
        };
        let mut threads = Vec::with_capacity(streams);
        for _ in 0..streams {
            let socket = way
                .connect(wish)
                .with_context(|| format!("could not open a stream by {}", way.name))?;
            let (moved, stop) = (Arc::clone(&moved), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || match direction {
                Direction::Down => take(socket, &moved, &stop),
                Direction::Up => give(socket, &moved, &stop),
            }));
        }
        Ok(Self {
            moved,
            stop,
            threads,
        })
    }

    /// Bytes moved so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Lets them run for `warm`, then watches them for `length`.
    pub(crate) fn watch(
        &self,
        way: Way,
        warm: Duration,
        length: Duration,
    ) -> anyhow::Result<BulkResult> {
        pause(warm);
        let (start, cpu, moved) = (Instant::now(), way.cpu()?, self.moved());
        pause(length);
        let (time, cpu_end, moved_end) = (start.elapsed(), way.cpu()?, self.moved());
        let gigabytes = gigabytes(moved_end - moved);
        if gigabytes <= 0.0 {
            return Err(anyhow!("bulk by {} stands still", way.name));
        }
        Ok(BulkResult {
            rate: gigabytes / time.as_secs_f64(),
            cpu: Cpu {
                client: (cpu_end.client - cpu.client) / gigabytes,
                server: (cpu_end.server - cpu.server) / gigabytes,
                ends: (cpu_end.ends - cpu.ends) / gigabytes,
            },
        })
    }

    /// Ends them and waits for that. Downloads are abandoned, uploads finished.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| anyhow!("a load panicked"))?
                .context("a bulk stream failed")?;
        }
        Ok(())
    }
}

/// Bytes as a number of 10⁹.
fn gigabytes(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let bytes = bytes as f64;
    bytes / 1e9
}

fn take(mut socket: TcpStream, moved: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let count = socket.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        moved.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn give(mut socket: TcpStream, moved: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let count = socket.write(&piece)?;
        sent += count as u64;
        moved.fetch_add(count as u64, Ordering::Relaxed);
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut answer = [0; 8];
    socket.read_exact(&mut answer)?;
    if u64::from_be_bytes(answer) == sent {
        Ok(())
    } else {
        Err(io::Error::other(
            "the target received another number of bytes than was sent",
        ))
    }
}

/// A connection that echoes.
#[derive(Debug)]
pub(crate) struct Pinger {
    socket: TcpStream,
}

impl Pinger {
    /// Opens one and waits for its first byte.
    pub(crate) fn open(way: Way) -> io::Result<Self> {
        let mut socket = way.connect(Wish::Echo)?;
        let mut first = [0];
        socket.read_exact(&mut first)?;
        Ok(Self { socket })
    }

    /// The time of one ping.
    pub(crate) fn ping(&mut self) -> io::Result<Duration> {
        let mut piece = [7; PING_BYTES];
        let start = Instant::now();
        self.socket.write_all(&piece)?;
        self.socket.read_exact(&mut piece)?;
        Ok(start.elapsed())
    }

    /// The times of pings, one after the other, `gap` apart, for `length`.
    pub(crate) fn pings(&mut self, length: Duration, gap: Duration) -> io::Result<Vec<Duration>> {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < length {
            times.push(self.ping()?);
            if !gap.is_zero() {
                pause(gap);
            }
        }
        Ok(times)
    }
}

/// The time from connecting to the first byte from the target.
pub(crate) fn open_once(way: Way) -> io::Result<Duration> {
    let start = Instant::now();
    Pinger::open(way)?;
    Ok(start.elapsed())
}

/// The times of opens, one after the other, `gap` apart, for `length` but no more than `most`.
pub(crate) fn opens(
    way: Way,
    length: Duration,
    gap: Duration,
    most: usize,
) -> io::Result<Vec<Duration>> {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < length && times.len() < most {
        times.push(open_once(way)?);
        if !gap.is_zero() {
            pause(gap);
        }
    }
    Ok(times)
}

/// Opens and closes `total` connections, `at_once` at a time; answers the time it took.
pub(crate) fn open_many(way: Way, at_once: usize, total: usize) -> anyhow::Result<Duration> {
    let left = Arc::new(AtomicU64::new(total as u64));
    let start = Instant::now();
    let threads: Vec<_> = (0..at_once)
        .map(|_| {
            let left = Arc::clone(&left);
            std::thread::spawn(move || {
                let one_less = |left: u64| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                    .is_ok()
                {
                    Pinger::open(way)?;
                }
                Ok::<_, io::Error>(())
            })
        })
        .collect();
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow!("a load panicked"))?
            .with_context(|| format!("an open by {} failed", way.name))?;
    }
    Ok(start.elapsed())
}
