//! Running other programs: to the end, or in the background until told to stop.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// How long a program that was asked to stop may take before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Pause between two looks at something that has no way to tell us.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// The top folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// `cargo`, the one that runs us, in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// Runs `command` to its end and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command
        .status()
        .with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Whether a program of that name can be started.
pub(crate) fn exists(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    }) || ["/usr/sbin", "/sbin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).is_file())
}

fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program in the background. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Background {
    name: String,
    child: Child,
}

impl Background {
    /// Starts `command`; its standard output is what [`Background::first_line`] reads.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = show(command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{name}`"))?;
        Ok(Self { name, child })
    }

    /// The first line of standard output. Later lines are read and dropped, so the program never blocks.
    pub(crate) fn first_line(&mut self, limit: Duration) -> anyhow::Result<String> {
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
            .recv_timeout(limit)
            .with_context(|| format!("`{}` printed nothing; see its messages above", self.name))
    }

    /// Whether the program has ended.
    pub(crate) fn ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Asks the program to stop, waits, and kills it when it does not.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.ended()? {
            return Ok(());
        }
        Command::new("kill")
            .arg(self.child.id().to_string())
            .status()
            .context("could not run kill")?;
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if self.ended()? {
                return Ok(());
            }
            pause();
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("`{}` did not stop when asked and was killed", self.name)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error:#}");
        }
    }
}

/// One pause of a loop that looks at another process.
#[allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here that a sleeping thread could block"
)]
pub(crate) fn pause() {
    std::thread::sleep(POLL);
}
