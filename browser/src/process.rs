//! The browser's processes: how they end, and that nothing of them stays behind.

use std::collections::VecDeque;
use std::fmt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::profile::ProfileDirectory;

/// Lines of the error output that are kept: enough for a fatal message with its context.
const TAIL_LINES: usize = 20;

/// Longest line; a longer one counts as several.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Characters of one line that are kept.
const TAIL_LINE_CHARS: usize = 400;

/// The last lines that a browser wrote to its error output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    fn push(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(TAIL_LINE_CHARS).collect());
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|line| line.contains(text))
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ended(Option<ExitStatus>);

impl Ended {
    /// Whether it ended of its own accord and without complaint.
    pub fn is_success(self) -> bool {
        self.0.is_some_and(|status| status.success())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => status.fmt(f),
            None => f.write_str("unknown status"),
        }
    }
}

/// A running browser. When it has ended, its process group is killed and its temporary profile removed;
/// [`Self::exited`] completes after that. Dropping this ends the browser.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    kill: CancellationToken,
    ended: watch::Receiver<Option<Ended>>,
    tail: Tail,
}

impl Process {
    /// Takes care of `child`, the leader of its process group, and of its profile.
    pub(crate) fn watch(mut child: Child, profile: ProfileDirectory) -> Self {
        let pid = child.id().unwrap_or_default();
        let kill = CancellationToken::new();
        let tail = Tail::default();
        let (report, ended) = watch::channel(None);
        // Both tasks end with the browser, which the second one sees to.
        let tasks = TaskTracker::new();
        if let Some(errors) = child.stderr.take() {
            tasks.spawn(read_tail(errors, tail.clone()));
        }
        tasks.spawn({
            let kill = kill.clone();
            async move {
                let status = tokio::select! {
                    status = child.wait() => status,
                    () = kill.cancelled() => {
                        kill_group(pid);
                        child.wait().await
                    }
                };
                // The leader is gone; helpers that outlive it hold sockets and files.
                kill_group(pid);
                profile.remove().await;
                report.send_replace(Some(Ended(status.ok())));
            }
        });
        Self {
            pid,
            kill,
            ended,
            tail,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Completes when nothing of the browser is left. Cancel safe.
    pub(crate) async fn exited(&self) -> Ended {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await;
        // The sender is dropped without a word only when the runtime shuts down.
        ended.ok().and_then(|ended| *ended).unwrap_or(Ended(None))
    }

    /// Waits for the end, and kills after `grace`.
    pub(crate) async fn end(&self, grace: Duration) -> Ended {
        if let Ok(ended) = tokio::time::timeout(grace, self.exited()).await {
            return ended;
        }
        self.kill.cancel();
        self.exited().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

fn kill_group(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, Signal::KILL)
    {
        debug!(%error, "the browser left no process behind");
    }
}

async fn read_tail(errors: ChildStderr, tail: Tail) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut piece = (&mut errors).take(LINE_BYTES_MAX);
        match piece.read_until(b'\n', &mut line).await {
            Ok(1..) => tail.push(String::from_utf8_lossy(&line).trim_end()),
            _ => return,
        }
    }
}
