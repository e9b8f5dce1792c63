//! A wide-area line, emulated: both halves in network namespaces of their own, with real TCP on both sides.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use super::Setting;
use super::calm::{idle_opens, medium, opens_after_cancels};
use super::recovery::{note_back, wait_silently};
use crate::halves::{Carrier, Halves, Target};
use crate::line::{CARRY, MTU, PAYLOAD_OF_MTU, SILENT};
use crate::load::{Bulk, Direction, Pinger, opens};
use crate::place::Place;
use crate::process::{Background, pause};
use crate::report::{Notes, Report, Unit};
use crate::scale::Scale;
use crate::ssh::{Cipher, Ssh};
use crate::way::Way;

pub(crate) const NAME: &str = "wan";

/// The same line with loss.
pub(crate) const LOSSY: &str = "wan-loss";

/// Round trip of the line.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// Rate of the line each way, in 10⁶ bits a second.
const MEGABITS: u32 = 100;

/// The queue in front of it: one round trip of its rate, as routers are often set.
const QUEUE: Duration = ROUND_TRIP;

/// Packets that the lossy line loses each way, per thousand.
const LOSS_PER_MILLE: u32 = 10;

/// Before bulk is watched: windows have grown to the line.
const WARM: Duration = Duration::from_secs(3);

/// Between pings and between opens beside bulk, so that they are no load themselves.
const GAP: Duration = Duration::from_millis(20);

/// Opens for the figure of an idle line.
const OPENS: usize = 12;

/// Rounds of cancelled downloads, and how long these run: their windows have grown.
const CANCEL_ROUNDS: usize = 8;
const CANCEL_RUNNING: Duration = Duration::from_secs(1);

/// Congestion control of sockets that choose none, the first that can be had: that of most machines.
const CONGESTION: [&str; 2] = ["cubic", "reno"];

/// The one that copes with loss; direct TCP is measured with it as well.
const BBR: &str = "bbr";

/// Name of the far namespace and of the devices. They live in namespaces of this run, so no other can have taken them.
const FAR: &str = "yonder-far";
const NEAR_DEVICE: &str = "yonder-n";
const FAR_DEVICE: &str = "yonder-f";

/// A network that exists in these namespaces only.
const NEAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 203, 7, 1);
const FAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 203, 7, 2);

/// What the process in the near namespace is told.
#[derive(Args, Debug)]
pub(crate) struct InnerArguments {
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    quick: bool,
    #[arg(long)]
    programs: std::path::PathBuf,
}

/// Enters namespaces of its own and measures there.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    if let Some(reason) = missing() {
        report.skip(NAME, &reason);
        return Ok(());
    }
    let mut command = enter();
    command
        .arg(std::env::current_exe().context("could not find this program")?)
        .args(["wan", "--seconds"])
        .arg(setting.scale.length.as_secs_f64().to_string())
        .arg("--programs")
        .arg(setting.place.programs());
    if setting.scale.quick {
        command.arg("--quick");
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("could not run `unshare`")?;
    // What was found before a failure counts.
    if let Ok(found) = serde_json::from_slice::<Report>(&output.stdout) {
        report.join(found);
    }
    if !output.status.success() {
        bail!("the run in its own namespaces failed ({})", output.status);
    }
    println!("{}\n", report.table(LOSSY));
    Ok(())
}

/// `unshare` into a network and a mount namespace; those of a user who is not root need a user namespace as well.
fn enter() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

/// Why this machine cannot emulate a line, or nothing.
fn missing() -> Option<String> {
    if !Path::new("/dev/net/tun").exists() {
        return Some("the kernel offers no /dev/net/tun".to_owned());
    }
    let probe = enter()
        .args(["ip", "link", "set", "lo", "up"])
        .stdin(Stdio::null())
        .output();
    match probe {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "network namespaces are not allowed here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(_) => {
            Some("`unshare` or `ip` is not installed (Debian: util-linux, iproute2)".to_owned())
        }
    }
}

/// Measures from within the near namespace and prints the report as JSON.
pub(crate) fn run_inside(arguments: &InnerArguments) -> anyhow::Result<()> {
    let place = Place::loopback(&arguments.programs).apart(FAR, IpAddr::V4(FAR_ADDRESS));
    let setting = Setting {
        place,
        scale: Scale {
            length: Duration::from_secs_f64(arguments.seconds),
            quick: arguments.quick,
        },
    };
    let mut report = Report::default();
    prepare(&mut report)?;
    let result = [(NAME, 0), (LOSSY, LOSS_PER_MILLE)]
        .into_iter()
        .try_for_each(|(section, loss)| measure(&setting, section, loss, &mut report));
    println!("{}", serde_json::to_string(&report)?);
    result
}

/// Makes the far namespace. `/run` is covered first, in this mount namespace alone, so that no trace is left.
fn prepare(report: &mut Report) -> anyhow::Result<()> {
    do_all(&[
        "mount -t tmpfs tmpfs /run",
        "ip link set lo up",
        &format!("ip netns add {FAR}"),
        &format!("ip -n {FAR} link set lo up"),
    ])?;
    // What the kernel remembers of earlier connections would make later ones faster or slower.
    let no_metrics = "sysctl -q -w net.ipv4.tcp_no_metrics_save=1";
    do_all(&[no_metrics, &format!("ip netns exec {FAR} {no_metrics}")])?;
    for choice in CONGESTION {
        let setting = format!("sysctl -q -w net.ipv4.tcp_congestion_control={choice}");
        // Kernels differ in what they let namespaces choose.
        if do_all(&[&setting, &format!("ip netns exec {FAR} {setting}")]).is_ok() {
            break;
        }
    }
    let chosen = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .context("could not read the congestion control")?;
    report.remark(format!(
        "wan: sockets that choose no congestion control of their own use {}",
        chosen.trim()
    ));
    Ok(())
}

fn do_all(commands: &[&str]) -> anyhow::Result<()> {
    for command in commands {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let status = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("could not run `{program}`"))?;
        if !status.success() {
            bail!("`{command}` failed ({status})");
        }
    }
    Ok(())
}

/// Lays a line between the namespaces. It is gone when dropped.
fn lay(loss_per_mille: u32) -> anyhow::Result<Background> {
    let program = std::env::current_exe().context("could not find this program")?;
    let mut line = Background::start_to_talk(
        Command::new(program)
            .args(["line", "--near", NEAR_DEVICE, "--far", FAR_DEVICE])
            .args(["--delay-ms", &(ROUND_TRIP / 2).as_millis().to_string()])
            .args(["--queue-ms", &QUEUE.as_millis().to_string()])
            .args(["--mbit", &MEGABITS.to_string()])
            .args(["--loss-per-mille", &loss_per_mille.to_string()]),
    )?;
    line.first_line()?;
    do_all(&[
        &format!("ip link set {FAR_DEVICE} netns {FAR}"),
        &format!("ip addr add {NEAR_ADDRESS}/30 dev {NEAR_DEVICE}"),
        &format!("ip link set {NEAR_DEVICE} up"),
        &format!("ip -n {FAR} addr add {FAR_ADDRESS}/30 dev {FAR_DEVICE}"),
        &format!("ip -n {FAR} link set {FAR_DEVICE} up"),
    ])?;
    Ok(line)
}

fn measure(
    setting: &Setting,
    section: &'static str,
    loss_per_mille: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut line = lay(loss_per_mille)?;
    let target = Target::start(&setting.place)?;
    let direct = target.direct();
    measure_way(
        setting,
        direct,
        &mut Notes::new(report, section, direct.name),
    )?;
    match Target::start_sending_by(&setting.place, BBR) {
        Ok(target) => {
            let way = Way {
                name: "direct bbr",
                ..target.direct()
            };
            measure_way(setting, way, &mut Notes::new(report, section, way.name))?;
        }
        Err(error) => report.skip("direct TCP with BBR", &format!("{error:#}")),
    }
    if let Some(reason) = Ssh::missing() {
        report.skip("ssh -D on the line", reason);
    } else {
        let ssh = Ssh::start(&setting.place, Cipher::Default, &target)?;
        let mut notes = Notes::new(report, section, ssh.way.name);
        measure_way(setting, ssh.way, &mut notes)?;
        drop(ssh);
        if loss_per_mille == 0 {
            // With nothing left of what was measured before.
            let ssh = Ssh::start(&setting.place, Cipher::Default, &target)?;
            silence(&mut line, ssh.way, &mut notes)?;
        }
    }
    let halves = Halves::start(&setting.place, Carrier::Plain, &target)?;
    let mut notes = Notes::new(report, section, halves.way.name);
    measure_way(setting, halves.way, &mut notes)?;
    drop(halves);
    if loss_per_mille == 0 {
        let halves = Halves::start(&setting.place, Carrier::Plain, &target)?;
        silence(&mut line, halves.way, &mut notes)?;
    }
    Ok(())
}

fn measure_way(setting: &Setting, way: Way, notes: &mut Notes<'_>) -> anyhow::Result<()> {
    let length = setting.scale.length;
    Pinger::open(way).with_context(|| format!("could not reach the target by {}", way.name))?;
    let idle = medium(opens(way, length, GAP, setting.scale.count(OPENS))?);
    let round_trips = idle.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    notes.note("open and first byte p50", round_trips, Unit::RoundTrips);

    let rounds = setting.scale.count(CANCEL_ROUNDS);
    let idle = medium(idle_opens(way, rounds)?);
    let after = medium(opens_after_cancels(way, rounds, CANCEL_RUNNING)?);
    notes.note(
        "open after 8 cancelled p50",
        after.as_secs_f64(),
        Unit::Seconds,
    );
    let ratio = after.as_secs_f64() / idle.as_secs_f64();
    notes.note("open after 8 cancelled, of an idle one", ratio, Unit::Ratio);

    let mut pinger = Pinger::open(way)?;
    for (name, direction) in [("down", Direction::Down), ("up", Direction::Up)] {
        let bulk = Bulk::start(way, direction, 1)?;
        pause(WARM);
        let (start, before) = (Instant::now(), bulk.moved());
        let pings = pinger.pings(length, GAP)?;
        let opens = opens(way, length, GAP, usize::MAX)?;
        let (time, moved) = (start.elapsed(), bulk.moved() - before);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let rate = moved as f64 / 1e6 / time.as_secs_f64();
        notes.note(
            &format!("bulk {name}, MB/s"),
            rate,
            Unit::MegabytesPerSecond,
        );
        let share = rate / line_payload();
        notes.note(&format!("bulk {name}, of the line"), share, Unit::Ratio);
        notes.times(&format!("ping beside bulk {name}"), pings);
        notes.times(&format!("open beside bulk {name}"), opens);
        bulk.stop()?;
    }
    Ok(())
}

/// What the line can carry of TCP's payload, in 10⁶ bytes a second.
fn line_payload() -> f64 {
    f64::from(MEGABITS) / 8.0 * f64::from(PAYLOAD_OF_MTU) / f64::from(MTU)
}

/// The line falls silent and comes back.
fn silence(line: &mut Background, way: Way, notes: &mut Notes<'_>) -> anyhow::Result<()> {
    Pinger::open(way)?;
    line.tell(SILENT)?;
    wait_silently(way);
    line.tell(CARRY)?;
    note_back(way, notes)
}
