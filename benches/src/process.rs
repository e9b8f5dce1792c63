//! Other programs: started in the background, watched through `/proc`, and stopped when dropped.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program that was asked to stop may take before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A program that has not said that it is ready by then has failed.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);

/// Pause between two looks at something that has no way to tell us.
const POLL: Duration = Duration::from_millis(10);

/// A program in the background. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Background {
    name: String,
    child: Child,
}

impl Background {
    /// Starts `command`; its standard output is what [`Background::first_line`] reads.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        Self::start_with(command, Stdio::null())
    }

    /// The same for a program that [`Background::tell`] talks to.
    pub(crate) fn start_to_talk(command: &mut Command) -> anyhow::Result<Self> {
        Self::start_with(command, Stdio::piped())
    }

    fn start_with(command: &mut Command, input: Stdio) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{name}`"))?;
        Ok(Self { name, child })
    }

    /// The first line of standard output. Later lines are read and dropped, so the program never blocks.
    pub(crate) fn first_line(&mut self) -> anyhow::Result<String> {
        let output = self
            .child
            .stdout
            .take()
            .context("the first line was read already")?;
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            if let Some(line) = lines.next() {
                // The reader may have given up waiting; then nobody needs the line.
                let _ = sender.send(line);
            }
            lines.for_each(drop);
        });
        receiver
            .recv_timeout(START_LIMIT)
            .with_context(|| format!("`{}` printed nothing; see its messages above", self.name))
    }

    /// Writes a line to its standard input.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("it does not listen")?;
        writeln!(input, "{line}").with_context(|| format!("`{}` does not listen", self.name))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program has ended.
    pub(crate) fn ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.context("the system gave a process id that is none")?;
        kill_process(id, signal).with_context(|| format!("could not signal `{}`", self.name))
    }

    /// Asks the program to stop, waits, and kills it when it does not.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.ended()? {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if self.ended()? {
                return Ok(());
            }
            pause(POLL);
        }
        self.kill()?;
        bail!("`{}` did not stop when asked and was killed", self.name)
    }

    /// Ends it without asking.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error:#}");
        }
    }
}

/// Lets time pass: the length of a measurement, or until the next look at something that cannot tell us.
#[allow(
    clippy::disallowed_methods,
    reason = "called by threads that measure, never by a runtime's worker"
)]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Looks at something again and again until it is there, and says how long that took.
pub(crate) fn wait_until(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    loop {
        if look()? {
            return Ok(start.elapsed());
        }
        if start.elapsed() > limit {
            bail!("{what} did not happen within {} s", limit.as_secs());
        }
        pause(POLL);
    }
}

/// CPU time in seconds, user and kernel, of `root` and the processes that descend from it and still live.
pub(crate) fn cpu_seconds(root: u32) -> anyhow::Result<f64> {
    let mut total = 0;
    for id in family(root)? {
        total += read_stat(id).map_or(0, |stat| stat.ticks);
    }
    Ok(seconds(total))
}

/// The same of this process alone.
pub(crate) fn own_cpu_seconds() -> f64 {
    read_stat(std::process::id()).map_or(0.0, |stat| seconds(stat.ticks))
}

fn seconds(ticks: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
    let seconds = ticks as f64 / f64::from(ticks_per_second());
    seconds
}

/// What `/proc` counts CPU time in.
fn ticks_per_second() -> u32 {
    /// That of Linux on all common processors.
    const USUAL: u32 = 100;
    static TICKS: OnceLock<u32> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let output = Command::new("getconf").arg("CLK_TCK").output().ok();
        output
            .and_then(|output| String::from_utf8(output.stdout).ok())
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(USUAL)
    })
}

/// Resident memory in bytes of `root` and the processes that descend from it.
pub(crate) fn resident_bytes(root: u32) -> anyhow::Result<u64> {
    let mut total = 0;
    for id in family(root)? {
        total += resident_of(id)?;
    }
    Ok(total)
}

fn resident_of(id: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse().ok())
        .with_context(|| format!("{path} shows no resident memory"))?;
    Ok(kib * 1024)
}

/// `root` and its descendants.
fn family(root: u32) -> anyhow::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("could not list /proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Gone since it was listed: then it has no share.
        if let Some(stat) = read_stat(id) {
            children.entry(stat.parent).or_default().push(id);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(id) = found.get(next).copied() {
        found.extend(children.remove(&id).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

struct Stat {
    parent: u32,
    /// User and kernel time, in clock ticks.
    ticks: u64,
}

/// What proc(5) calls ppid, utime and stime. The name before them may hold anything, parentheses included.
fn read_stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    // Behind the name: state, parent, then the eleventh and twelfth from there.
    let parent = fields.nth(1)?.parse().ok()?;
    let user: u64 = fields.nth(9)?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(Stat {
        parent,
        ticks: user + kernel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 250 150 9 9 20 0 1 0 100 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.ticks), (3, 400));
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    }
}
