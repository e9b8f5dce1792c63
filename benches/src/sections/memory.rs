//! Memory: what an idle tunnel holds, and what is kept when many are gone.

use std::time::Duration;

use super::Setting;
use crate::halves::{Carrier, Halves, Target};
use crate::load::Pinger;
use crate::process::{pause, resident_bytes};
use crate::report::{Notes, Report, Unit};
use crate::ssh::{Cipher, Ssh};
use crate::way::Way;

pub(crate) const NAME: &str = "memory";

/// Idle tunnels held at once.
const TUNNELS: usize = 2000;

/// With `ssh -D`, whose opens take ever longer with the channels that are open.
const SSH_TUNNELS: usize = 500;

/// After the tunnels are opened, and after they are closed: what is to be freed has been by then.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::start(&setting.place)?;
    if let Some(reason) = Ssh::missing() {
        report.skip("memory of ssh -D", reason);
    } else {
        let ssh = Ssh::start(&setting.place, Cipher::Default, &target)?;
        measure(ssh.way, setting.scale.count(SSH_TUNNELS), report)?;
    }
    for carrier in [Carrier::Plain, Carrier::Tls] {
        let halves = Halves::start(&setting.place, carrier, &target)?;
        measure(halves.way, setting.scale.count(TUNNELS), report)?;
    }
    Ok(())
}

fn measure(way: Way, tunnels: usize, report: &mut Report) -> anyhow::Result<()> {
    let mut notes = Notes::new(report, NAME, way.name);
    // What the first tunnels bring up for all later ones is no tunnel's own.
    for _ in 0..8 {
        Pinger::open(way)?.ping()?;
    }
    pause(SETTLE);
    let before = resident(way)?;
    let mut open = Vec::with_capacity(tunnels);
    for _ in 0..tunnels {
        let mut pinger = Pinger::open(way)?;
        pinger.ping()?;
        open.push(pinger);
    }
    pause(SETTLE);
    let held = resident(way)?;
    drop(open);
    pause(SETTLE);
    let kept = resident(way)?;
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let tunnels = tunnels as f64;
    let sides = ["client", "server"];
    for index in 0..sides.len() {
        let measure = format!("idle tunnel, {}", sides[index]);
        notes.note(
            &measure,
            (held[index] - before[index]) / tunnels,
            Unit::Kibibytes,
        );
    }
    let sum = |of: [f64; 2]| of[0] + of[1];
    notes.note(
        "idle tunnel, both",
        (sum(held) - sum(before)) / tunnels,
        Unit::Kibibytes,
    );
    notes.note(
        "kept after all are closed, both",
        sum(kept) - sum(before),
        Unit::Kibibytes,
    );
    notes.note("at rest before, both", sum(before), Unit::Kibibytes);
    Ok(())
}

/// Resident KiB of client and server.
fn resident(way: Way) -> anyhow::Result<[f64; 2]> {
    let mut both = [0.0; 2];
    for (to, id) in both.iter_mut().zip(way.between.into_iter().flatten()) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let bytes = resident_bytes(id)? as f64;
        *to = bytes / 1024.0;
    }
    Ok(both)
}
