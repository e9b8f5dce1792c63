//! [`SshConnector`]: carriers through the person's own `ssh`, which runs `tunnel-server stdio` at the far end.
//!
//! Everything about the connection is left to that program: configuration, agent, jump hosts, known hosts, prompts. No
//! port is open for it on either side, and no token is needed: whoever may log in may use the server half of that login.
//! Each carrier is one `ssh`; a link resumes by starting another.

mod address;
mod diagnosis;
mod errors;
pub mod preamble;
mod stream;
mod words;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStdout, Command};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

pub use self::address::{InvalidSshAddress, SshAddress};
use self::diagnosis::Ending;
use self::preamble::{Preamble, Scanner};
use self::stream::{Process, SshStream};
pub use self::words::{InvalidCommand, words};
use crate::carrier::{Carrier, CarrierKind, Connect, ConnectError};

/// What a first attempt may take where a person may be asked for a password, a passphrase or a code.
const PROMPT_LIMIT: Duration = Duration::from_mins(2);

/// What an attempt may take where nobody is asked: `ssh` to hosts behind two others was seen to take 8 s.
const QUIET_LIMIT: Duration = Duration::from_secs(15);

/// Later attempts may take as many times what the first one took, since a person may be asked again, but no more than
/// [`RESUME_LIMIT`].
const RESUME_PATIENCE: u32 = 3;

/// See [`RESUME_PATIENCE`].
const RESUME_LIMIT: Duration = Duration::from_mins(1);

/// How long a carrier that was got ahead of its use is kept: the far end waits for the first byte a little longer.
const AHEAD_LIMIT: Duration = Duration::from_secs(45);

/// Bytes of one read while the preamble is awaited.
const READ_BYTES: usize = 4096;

/// Runs at the far end unless the person says otherwise. `cargo install` puts programs where shells that are not
/// interactive often do not look. Single quotes mean the same to every login shell.
const REMOTE_DEFAULT: &str = r#"exec sh -c 'PATH="$PATH:$HOME/.cargo/bin:$HOME/.local/bin:/usr/local/bin"; export PATH; exec tunnel-server stdio'"#;

/// How to reach one server half through `ssh`.
#[derive(Clone, Debug)]
pub struct SshConfig {
    /// Where it is.
    pub address: SshAddress,
    /// The program and its first arguments, for example `["ssh"]`.
    pub program: Vec<String>,
    /// What starts `tunnel-server` at the far end, for the login shell there; `stdio` is put behind it. By default
    /// `tunnel-server` is looked for in the usual folders.
    pub remote: Option<String>,
    /// Whether `ssh` may ask a person. It does so at the terminal itself.
    pub prompts: bool,
}

/// Gets carriers through `ssh`.
#[derive(Debug)]
pub struct SshConnector {
    config: SshConfig,
    server: String,
    /// Ends the processes of carriers that are not used any more.
    tasks: TaskTracker,
    memory: Mutex<Memory>,
    /// Set once an attempt hung: the master of a shared connection (ControlMaster) does when its network is gone.
    unshared: AtomicBool,
}

/// What earlier attempts left.
#[derive(Debug, Default)]
struct Memory {
    /// What the first carrier took.
    first_took: Option<Duration>,
    /// A carrier that was got ahead of its use, and when.
    ahead: Option<(SshStream, Instant)>,
    /// Version of the far end's `tunnel-server`.
    far_version: Option<String>,
}

impl SshConnector {
    /// Checks `config`.
    ///
    /// # Errors
    /// [`ConnectError::Configuration`] if there is no such program.
    pub fn new(config: SshConfig) -> Result<Self, ConnectError> {
        let program = config.program.first().map_or("", String::as_str);
        if find_program(program).is_none() {
            return Err(ConnectError::Configuration(format!(
                "there is no program {program:?} to connect with; install OpenSSH's client (Debian: apt install \
                 openssh-client), or name another with --ssh"
            )));
        }
        Ok(Self {
            server: config.address.to_string(),
            config,
            tasks: TaskTracker::new(),
            memory: Mutex::default(),
            unshared: AtomicBool::new(false),
        })
    }

    /// Where the server half is.
    pub fn address(&self) -> &SshAddress {
        &self.config.address
    }

    /// Whether `ssh` may ask a person.
    pub fn prompts(&self) -> bool {
        self.config.prompts
    }

    /// Version of the far end's `tunnel-server`, once a carrier was had.
    pub fn far_version(&self) -> Option<String> {
        self.memory().far_version.clone()
    }

    /// Gets a carrier that the next [`Connect::connect`] uses, so that the person is asked, and a failure told, before
    /// anything else is begun.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// As `connect` has them.
    pub async fn prepare(&self) -> Result<(), ConnectError> {
        let stream = self.open().await?;
        self.memory().ahead = Some((stream, Instant::now()));
        Ok(())
    }

    async fn carrier(&self) -> Result<Carrier, ConnectError> {
        let ahead = self.memory().ahead.take();
        let usable = ahead.and_then(|(mut stream, since)| {
            (since.elapsed() < AHEAD_LIMIT && !stream.has_ended()).then_some(stream)
        });
        let stream = match usable {
            Some(stream) => stream,
            None => self.open().await?,
        };
        let description = format!("ssh to {}", self.config.address.host());
        Ok(Carrier::new(stream, CarrierKind::Stdio, description))
    }

    /// Starts an `ssh` and waits until the bytes of the link begin.
    async fn open(&self) -> Result<SshStream, ConnectError> {
        let began = Instant::now();
        let limit = self.limit();
        let Ok(opened) = timeout(limit, self.start()).await else {
            self.unshared.store(true, Ordering::Relaxed);
            return Err(ConnectError::TimedOut {
                server: self.server.clone(),
                step: "the login with ssh",
                limit,
            });
        };
        let (stream, version) = opened?;
        let mut memory = self.memory();
        memory.first_took.get_or_insert_with(|| began.elapsed());
        memory.far_version = Some(version);
        Ok(stream)
    }

    fn limit(&self) -> Duration {
        match (self.memory().first_took, self.config.prompts) {
            (None, true) => PROMPT_LIMIT,
            (None, false) => QUIET_LIMIT,
            (Some(took), _) => (took * RESUME_PATIENCE).clamp(QUIET_LIMIT, RESUME_LIMIT),
        }
    }

    async fn start(&self) -> Result<(SshStream, String), ConnectError> {
        let unstarted = |source: io::Error| ConnectError::Unreachable {
            server: self.server.clone(),
            problem: format!("ssh could not be started: {source}"),
            source: Some(source),
        };
        let mut child = self.command().spawn().map_err(unstarted)?;
        let (Some(stdin), Some(mut stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unstarted(io::ErrorKind::BrokenPipe.into()));
        };
        let mut process = Process::new(child);
        let mut scanner = Scanner::default();
        match read_preamble(&mut stdout, &mut scanner).await {
            Ok(Some((Preamble::Ready { version }, early))) => {
                let stream = SshStream::new(process, stdin, stdout, early, self.tasks.clone());
                Ok((stream, version))
            }
            Ok(Some((Preamble::Failed { problem }, _))) => Err(ConnectError::Unreachable {
                server: self.server.clone(),
                problem: format!("the tunnel-server there cannot serve: {problem}"),
                source: None,
            }),
            Ok(None) => {
                drop(stdin);
                let status = process.ending().await;
                let ending = Ending {
                    server: &self.server,
                    status,
                    errors: &process.errors().lines(),
                    noise: scanner.last_noise(),
                };
                Err(ending.into_error())
            }
            Err(error) => Err(ConnectError::Protocol {
                server: self.server.clone(),
                problem: format!("what runs at the far end is not tunnel-server: {error}"),
            }),
        }
    }

    fn command(&self) -> Command {
        let SshConfig {
            address,
            program,
            remote,
            prompts,
        } = &self.config;
        let mut command = shielded();
        command.args(program);
        // No terminal, and nothing of the person's configuration that is for sessions of another kind.
        command.args(["-T", "-x", "-a"]);
        for option in ["ClearAllForwardings=yes", "RemoteCommand=none"] {
            command.args(["-o", option]);
        }
        if !prompts {
            command.args(["-o", "BatchMode=yes"]);
        }
        if self.unshared.load(Ordering::Relaxed) {
            command.args(["-o", "ControlPath=none"]);
        }
        if let Some(user) = address.user() {
            command.args(["-l", user]);
        }
        if let Some(port) = address.port() {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["--", address.host()]);
        match remote {
            Some(remote) => command.arg(format!("{remote} stdio")),
            None => command.arg(REMOTE_DEFAULT),
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connect for SshConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Carrier, ConnectError>> {
        Box::pin(self.carrier())
    }
}

/// A command that runs its arguments deaf to the terminal's interrupt key: that ends this half, which then still has to
/// tell the far end through the very `ssh`. While `ssh` asks for a password it listens to the key nevertheless.
fn shielded() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"trap "" INT; exec "$@""#, "sh"]);
    command
}

/// Reads up to the bytes of the link; `None` where the output ends before.
async fn read_preamble(
    stdout: &mut ChildStdout,
    scanner: &mut Scanner,
) -> Result<Option<(Preamble, Bytes)>, preamble::InvalidPreamble> {
    let mut piece = [0; READ_BYTES];
    // A read that fails is an end too; how `ssh` ended tells why.
    while let Ok(count @ 1..) = stdout.read(&mut piece).await {
        let found = scanner.push(piece.get(..count).unwrap_or_default())?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Where the program `name` is: as given where it is a path, else in the folders of `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path: &PathBuf| Path::is_file(path))
}
