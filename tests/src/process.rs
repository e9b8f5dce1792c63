//! Programs that a test starts, watches and ends.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::PATIENCE;

/// Kept of a program's standard error, for the message of a failing test.
const STDERR_BYTES: usize = 64 * 1024;

/// The path of one of the workspace's programs, no older than its sources.
pub fn program(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // `cargo xtask test` builds them before it starts any test.
        if std::env::var_os("YONDER_TEST_PROGRAMS_BUILT").is_none() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let status = std::process::Command::new(cargo)
                .args([
                    "build",
                    "--quiet",
                    "--package",
                    "tunnel-server",
                    "--package",
                    "tunnel-desktop",
                ])
                .status()
                .expect("cargo can be started");
            assert!(status.success(), "the programs under test do not build");
        }
    });
    // A test runs from `target/PROFILE/deps`, beside the programs' folder.
    let mut folder = std::env::current_exe().expect("a test knows its own path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    folder.join(name)
}

/// A program in the background. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: Arc<Mutex<String>>,
    _reader: JoinSet<()>,
}

impl Process {
    /// Starts `command` with its outputs captured and its input closed, unless the command says otherwise.
    pub fn start(command: &mut Command) -> Self {
        let name = format!("{:?}", command.as_std());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("could not start {name}: {error}"));
        let lines = BufReader::new(child.stdout.take().expect("captured")).lines();
        let mut output = child.stderr.take().expect("captured");
        let stderr = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&stderr);
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer).await {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
                if kept.len() > STDERR_BYTES {
                    let mut cut = kept.len() - STDERR_BYTES;
                    while !kept.is_char_boundary(cut) {
                        cut += 1;
                    }
                    kept.drain(..cut);
                }
            }
        });
        Self {
            name,
            child,
            lines,
            stderr,
            _reader: reader,
        }
    }

    /// The process id; panics once the program was waited for.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("still running")
    }

    /// The program's standard input, if the command piped it.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("piped and not yet taken")
    }

    /// What it has written to standard error so far, its newest 64 KiB.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// The next line of standard output; panics with standard error when there is none.
    pub async fn line(&mut self) -> String {
        match tokio::time::timeout(PATIENCE, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            other => panic!(
                "{} printed no line ({other:?}); stderr:\n{}",
                self.name,
                self.stderr()
            ),
        }
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end; panics with standard error after `limit`.
    pub async fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.expect("a child can be waited for"),
            Err(late) => panic!(
                "{} did not end within {limit:?} ({late}); stderr:\n{}",
                self.name,
                self.stderr()
            ),
        }
    }

    /// Sends a signal by name, such as `TERM`, `HUP` or `STOP`.
    pub async fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.pid().to_string())
            .status()
            .await
            .expect("kill can be started");
        assert!(status.success(), "could not signal {}", self.name);
    }

    /// Asks it to end and answers how it did.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM").await;
        self.wait_within(PATIENCE).await
    }
}

/// Runs `command` to its end and answers its output; panics after the usual patience.
pub async fn output(command: &mut Command) -> std::process::Output {
    let name = format!("{:?}", command.as_std());
    let running = command.kill_on_drop(true).output();
    match tokio::time::timeout(PATIENCE * 5, running).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("could not run {name}: {error}")),
        Err(late) => panic!("{name} did not end ({late})"),
    }
}
