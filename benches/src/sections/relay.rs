//! The relay on loopback: what a byte, a ping and an open cost.

use std::time::Duration;

use anyhow::Context as _;

use super::Setting;
use crate::halves::{Carrier, Halves, Target};
use crate::load::{Bulk, Direction, Pinger, open_many, opens};
use crate::process::pause;
use crate::report::{Notes, Report, Unit};
use crate::ssh::{Cipher, Ssh};
use crate::way::{Cpu, Way};

pub(crate) const NAME: &str = "relay";

/// Lets abandoned bytes drain and closed connections end before the next figure.
const SETTLE: Duration = Duration::from_millis(200);

/// Most opens one after the other; more say nothing new.
const OPENS_MOST: usize = 1000;

/// Opens at once, as a browser with a heavy page would have them.
const OPENS_AT_ONCE: usize = 64;

/// Opens in all for their rate. Each leaves a local port unusable for a while, of which there are 28,000.
const OPENS_TOTAL: usize = 6000;

pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::start(&setting.place)?;
    measure(setting, target.direct(), report)?;
    if let Some(reason) = Ssh::missing() {
        report.skip("comparison with ssh -D", reason);
    } else {
        for cipher in [Cipher::Default, Cipher::Aes] {
            let ssh = Ssh::start(&setting.place, cipher, &target)?;
            measure(setting, ssh.way, report)?;
        }
    }
    for carrier in [Carrier::Plain, Carrier::Tls] {
        let halves = Halves::start(&setting.place, carrier, &target)?;
        measure(setting, halves.way, report)?;
    }
    Ok(())
}

fn measure(setting: &Setting, way: Way, report: &mut Report) -> anyhow::Result<()> {
    let mut notes = Notes::new(report, NAME, way.name);
    // The first connection pays for things that no later one does.
    Pinger::open(way).with_context(|| format!("could not reach the target by {}", way.name))?;
    for (name, direction, streams) in [
        ("1 stream down", Direction::Down, 1),
        ("1 stream up", Direction::Up, 1),
        ("8 streams down", Direction::Down, 8),
        ("8 streams up", Direction::Up, 8),
    ] {
        let bulk = Bulk::start(way, direction, streams)?;
        let result = bulk.watch(way, setting.scale.warm(), setting.scale.length)?;
        bulk.stop()?;
        notes.note(
            &format!("{name}, GB/s"),
            result.rate,
            Unit::GigabytesPerSecond,
        );
        let Cpu {
            client,
            server,
            ends,
        } = result.cpu;
        let unit = Unit::CpuSecondsPerGigabyte;
        if way.between.is_some() {
            notes.note(&format!("{name}, CPU s/GB both"), client + server, unit);
            notes.note(&format!("{name}, CPU s/GB client"), client, unit);
            notes.note(&format!("{name}, CPU s/GB server"), server, unit);
        }
        notes.note(&format!("{name}, CPU s/GB the ends"), ends, unit);
        pause(SETTLE);
    }
    let mut pinger = Pinger::open(way)?;
    let idle = pinger.pings(setting.scale.length / 2, Duration::ZERO)?;
    notes.times("ping idle", idle);
    let bulk = Bulk::start(way, Direction::Down, 1)?;
    pause(setting.scale.warm());
    let beside = pinger.pings(setting.scale.length, Duration::ZERO)?;
    bulk.stop()?;
    notes.times("ping beside bulk", beside);
    pause(SETTLE);
    let most = setting.scale.count(OPENS_MOST);
    let times = opens(way, setting.scale.length, Duration::ZERO, most)?;
    notes.times("open and first byte", times);
    let total = setting.scale.count(OPENS_TOTAL);
    let time = open_many(way, OPENS_AT_ONCE, total)?;
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let rate = total as f64 / time.as_secs_f64();
    notes.note("opens a second, 64 at once", rate, Unit::PerSecond);
    Ok(())
}
