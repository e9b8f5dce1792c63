//! What others notice: a ping beside neighbours that misbehave, and an open after downloads that were cancelled.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;

use super::Setting;
use crate::halves::{Carrier, Halves, Target};
use crate::load::{Pinger, open_many, open_once};
use crate::process::pause;
use crate::report::{Notes, Report, Unit};
use crate::ssh::{Cipher, Ssh};
use crate::target::Wish;
use crate::way::Way;

pub(crate) const NAME: &str = "calm";

/// Downloads that are cancelled together.
const CANCELLED: usize = 8;

/// How often they are.
const ROUNDS: usize = 20;

/// How long they run before.
const RUNNING: Duration = Duration::from_millis(150);

/// Between two rounds: nothing of the last one is left.
const SETTLE: Duration = Duration::from_millis(200);

/// Opens of one burst.
const BURST: usize = 64;

pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::start(&setting.place)?;
    measure(setting, target.direct(), report)?;
    if let Some(reason) = Ssh::missing() {
        report.skip("neighbours on ssh -D", reason);
    } else {
        let ssh = Ssh::start(&setting.place, Cipher::Default, &target)?;
        measure(setting, ssh.way, report)?;
    }
    let halves = Halves::start(&setting.place, Carrier::Plain, &target)?;
    measure(setting, halves.way, report)
}

fn measure(setting: &Setting, way: Way, report: &mut Report) -> anyhow::Result<()> {
    let mut notes = Notes::new(report, NAME, way.name);
    let length = setting.scale.length / 2;
    Pinger::open(way)?;
    let rounds = setting.scale.count(ROUNDS);
    let idle = medium(idle_opens(way, rounds)?);
    let after = medium(opens_after_cancels(way, rounds, RUNNING)?);
    notes.note("open on an idle way p50", idle.as_secs_f64(), Unit::Seconds);
    notes.note(
        "open after 8 cancelled p50",
        after.as_secs_f64(),
        Unit::Seconds,
    );
    let ratio = after.as_secs_f64() / idle.as_secs_f64();
    notes.note("open after 8 cancelled, of an idle one", ratio, Unit::Ratio);

    let mut pinger = Pinger::open(way)?;
    notes.times("ping alone", pinger.pings(length, Duration::ZERO)?);
    {
        let mut stalled = way.connect(Wish::Send(0))?;
        stalled.read_exact(&mut [0])?;
        pause(SETTLE);
        notes.times(
            "ping, a reader stalls",
            pinger.pings(length, Duration::ZERO)?,
        );
    }
    pause(SETTLE);
    notes.times(
        "ping, streams are abandoned",
        beside(&mut pinger, length, move || {
            let mut abandoned = way.connect(Wish::Send(0))?;
            abandoned.read_exact(&mut [0; 1024])?;
            drop(abandoned);
            pause(Duration::from_millis(20));
            Ok(())
        })?,
    );
    notes.times(
        "ping, bursts of 64 opens",
        beside(&mut pinger, length, move || {
            open_many(way, BURST, BURST)?;
            pause(Duration::from_millis(100));
            Ok(())
        })?,
    );
    Ok(())
}

/// Pings while `disturb` runs again and again.
fn beside(
    pinger: &mut Pinger,
    length: Duration,
    disturb: impl Fn() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Vec<Duration>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            disturb()?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let times = pinger.pings(length, Duration::ZERO);
    stop.store(true, Ordering::Relaxed);
    thread.join().map_err(|_| anyhow!("a load panicked"))??;
    Ok(times?)
}

/// Opens on an idle way, paced like those after cancelled downloads.
pub(crate) fn idle_opens(way: Way, rounds: usize) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        pause(SETTLE);
        times.push(open_once(way)?);
    }
    Ok(times)
}

/// Opens right after downloads were cancelled that had run for a while.
pub(crate) fn opens_after_cancels(
    way: Way,
    rounds: usize,
    running: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let mut downloads = Vec::with_capacity(CANCELLED);
        for _ in 0..CANCELLED {
            downloads.push(Download::start(way)?);
        }
        pause(running);
        for download in downloads {
            download.cancel()?;
        }
        times.push(open_once(way)?);
        pause(SETTLE);
    }
    Ok(times)
}

/// The middle one.
pub(crate) fn medium(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A download in a thread of its own.
struct Download {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<std::io::Result<TcpStream>>,
}

impl Download {
    fn start(way: Way) -> anyhow::Result<Self> {
        let mut socket = way.connect(Wish::Send(0))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while !stopped.load(Ordering::Relaxed) {
                socket.read_exact(&mut piece[..1])?;
                let _count = socket.read(&mut piece)?;
            }
            Ok(socket)
        });
        Ok(Self { stop, thread })
    }

    /// Closes it with data under way, as a browser does.
    fn cancel(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        drop(
            self.thread
                .join()
                .map_err(|_| anyhow!("a load panicked"))??,
        );
        Ok(())
    }
}
