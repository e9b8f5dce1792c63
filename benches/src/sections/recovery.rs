//! How soon tunnels work again: after the server half was restarted, and after the network was silent for a while.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::Setting;
use super::calm::medium;
use crate::halves::{Carrier, Halves, ServerHalf, Target};
use crate::load::{Pinger, open_once};
use crate::process::{Background, pause, wait_until};
use crate::report::{Notes, Report, Unit};
use crate::way::Way;

pub(crate) const NAME: &str = "recovery";

/// How often each is tried.
const ROUNDS: usize = 4;

/// How long the network is silent.
const SILENCE: Duration = Duration::from_secs(15);

/// A carrier that has not been given up by then never will be: far above the pause before a ping and the wait for its answer.
const GIVE_UP_LIMIT: Duration = Duration::from_mins(1);

/// A way that has not come back by then never will.
const BACK_LIMIT: Duration = Duration::from_mins(1);

/// Between two attempts to open that failed at once.
const RETRY: Duration = Duration::from_millis(5);

pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let target = Target::start(&setting.place)?;
    let mut halves = Halves::start(&setting.place, Carrier::Plain, &target)?;
    let rounds = setting.scale.count(ROUNDS).max(1);
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        Pinger::open(halves.way)?;
        halves.server.restart(&setting.place)?;
        times.push(until_open(halves.way)?);
    }
    let mut notes = Notes::new(report, NAME, halves.way.name);
    notes.note(
        "server half restarted: a tunnel opens after",
        medium(times).as_secs_f64(),
        Unit::Seconds,
    );
    drop(halves);
    silence(setting, &target, &mut notes)
}

/// The way's time until an open succeeds, attempts that fail included.
fn until_open(way: Way) -> anyhow::Result<Duration> {
    let start = Instant::now();
    while open_once(way).is_err() {
        if start.elapsed() > BACK_LIMIT {
            bail!("{} does not come back", way.name);
        }
        pause(RETRY);
    }
    Ok(start.elapsed())
}

/// The network between the halves falls silent under a link that is at rest.
fn silence(setting: &Setting, target: &Target, notes: &mut Notes<'_>) -> anyhow::Result<()> {
    let server = ServerHalf::start(&setting.place, Carrier::Plain)?;
    let mut network = Background::start(setting.place.far_self()?.args([
        "relay",
        "--to",
        &server.address().to_string(),
    ]))?;
    let through: SocketAddr = network.first_line()?.parse()?;
    let (desktop, entry) = server.forward(&setting.place, target.ports.wishes, Some(through))?;
    let way = Way {
        name: "plain",
        entry,
        socks: None,
        between: Some([desktop.id(), server.id()]),
        target: target.id(),
    };
    Pinger::open(way)?;
    network.signal(Signal::STOP)?;
    wait_silently(way);
    network.signal(Signal::CONT)?;
    note_back(way, notes)?;
    network.signal(Signal::STOP)?;
    let given_up = note_given_up(way, through, notes);
    // Or it could not be stopped.
    network.signal(Signal::CONT)?;
    given_up
}

/// Notes how long a way that was silent takes to open a tunnel.
pub(crate) fn note_back(way: Way, notes: &mut Notes<'_>) -> anyhow::Result<()> {
    let back = until_open(way)?;
    let measure = "silent line back: a tunnel opens after";
    notes.note(measure, back.as_secs_f64(), Unit::Seconds);
    Ok(())
}

/// Lets the silence last, while somebody opens a tunnel and waits.
pub(crate) fn wait_silently(way: Way) {
    std::thread::spawn(move || open_once(way));
    pause(SILENCE);
}

/// Notes how long bytes stay unanswered until the client tries another carrier to `server`.
fn note_given_up(way: Way, server: SocketAddr, notes: &mut Notes<'_>) -> anyhow::Result<()> {
    let carriers = connections_to(server)?;
    std::thread::spawn(move || open_once(way));
    let after = wait_until(GIVE_UP_LIMIT, "the end of a silent carrier", || {
        Ok(!connections_to(server)?.is_subset(&carriers))
    })?;
    let measure = "silent line: given up after";
    notes.note(measure, after.as_secs_f64(), Unit::Seconds);
    Ok(())
}

/// Local ports of the living TCP connections to a port, from `/proc/net/tcp`.
fn connections_to(address: SocketAddr) -> anyhow::Result<HashSet<u16>> {
    let text = fs::read_to_string("/proc/net/tcp").context("could not read /proc/net/tcp")?;
    Ok(parse_connections(&text, address.port()))
}

fn parse_connections(text: &str, port: u16) -> HashSet<u16> {
    /// Kernel's numbers of ESTABLISHED and SYN_SENT.
    const ALIVE: [&str; 2] = ["01", "02"];
    let port_of = |address: &str| {
        let (_, port) = address.split_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
            (ALIVE.contains(&state) && port_of(remote) == Some(port))
                .then(|| port_of(local))
                .flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_connections_are_found() {
        let text = "  sl  local_address rem_address   st tx_queue\n\
                    0: 0100007F:1F90 00000000:0000 0A 0\n\
                    1: 0100007F:C001 0100007F:1F90 01 0\n\
                    2: 0100007F:C002 0100007F:1F90 06 0\n\
                    3: 0100007F:1F90 0100007F:C001 01 0\n";
        assert_eq!(parse_connections(text, 8080), HashSet::from([0xc001]));
    }
}
