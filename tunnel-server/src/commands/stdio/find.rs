//! Finds the server half that runs on the state directory, and starts one in the background where none does.
//!
//! Several `stdio` may start at once. The one that holds the lock starts the server half and waits until it is up; the
//! others wait for the lock and then find it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep};

use crate::cli::ServerOptions;
use crate::client::{Client, QUICK};
use crate::config::Common;
use crate::exit::{CommandResult, Exit, Failure};
use crate::server::presence::Presence;
use crate::token::TokenSource;

/// What all of it may take: below the time that the desktop half gives a login.
const FIND_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two looks at what others do.
const PAUSE: Duration = Duration::from_millis(20);

/// A log that has grown beyond this is begun anew with the next server half.
const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// The running server half; it takes our token.
///
/// # Errors
/// If there is none and none can be started, or it refuses the token.
pub(super) async fn server_half(common: &Common, config: Option<&Path>) -> Result<Client, Failure> {
    let deadline = Instant::now() + FIND_LIMIT;
    loop {
        let named = ServerOptions::default().or_environment()?.server.is_some();
        if !named && Presence::of_running(&common.state_dir).is_none() {
            start(common, config, deadline).await?;
        }
        let client = Client::new(common, ServerOptions::default())?;
        match client.get::<IgnoredAny>("status", QUICK).await {
            Ok(_) => return Ok(client),
            // One that is just stopping still holds its directory; a moment later it is gone.
            Err(failure) if failure.exit() == Exit::Unreachable && Instant::now() < deadline => {
                tracing::debug!(%failure, "the server half does not answer");
            }
            Err(failure) => return Err(failure),
        }
        sleep(PAUSE).await;
    }
}

/// Starts a server half in the background, unless another `stdio` does just now, and waits until it is up.
async fn start(common: &Common, config: Option<&Path>, deadline: Instant) -> CommandResult {
    let lock = common
        .state_dir
        .open_lock(&common.state_dir.background_lock())
        .map_err(|error| Failure::new(Exit::Usage, error))?;
    take(&lock, deadline).await?;
    let is_up = || Presence::of_running(&common.state_dir).is_some();
    if is_up() {
        return Ok(());
    }
    let mut child = spawn(common, config)?;
    while !is_up() {
        let ended = child
            .try_wait()
            .map_err(|error| Failure::failed(format!("cannot wait for a process: {error}")))?;
        let log = common.state_dir.background_log();
        if ended.is_some() {
            return Err(Failure::failed(format!(
                "the server half that was started in the background ended at once; {} says why",
                log.display()
            )));
        }
        if Instant::now() >= deadline {
            // It may still come up, and then serves the next attempt.
            return Err(Failure::new(
                Exit::Unreachable,
                anyhow::anyhow!(
                    "the server half that was started in the background is not up after {} s; see {}",
                    FIND_LIMIT.as_secs(),
                    log.display()
                ),
            ));
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Locks `lock`, which is let go of as it is dropped.
async fn take(lock: &File, deadline: Instant) -> CommandResult {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(PAUSE).await,
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Exit::Unreachable,
                    anyhow::anyhow!(
                        "another tunnel-server stdio has been starting a server half for {} s",
                        FIND_LIMIT.as_secs()
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(Failure::failed(format!("cannot lock a file: {error}")));
            }
        }
    }
}

/// Starts the process. It outlives us: nothing ties it to our standard streams, and it leaves our session by itself.
fn spawn(common: &Common, config: Option<&Path>) -> Result<Child, Failure> {
    let state = &common.state_dir;
    let unstartable = |error| {
        Failure::failed(format!(
            "cannot start a server half in the background: {error}"
        ))
    };
    let log = state
        .open_log(&state.background_log(), LOG_BYTES_MAX)
        .map_err(|error| Failure::new(Exit::Usage, error))?;
    let mut command = Command::new(std::env::current_exe().map_err(unstartable)?);
    command
        .arg("background")
        .arg("--state-dir")
        .arg(state.path());
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    if let TokenSource::File(path) = &common.token {
        command.arg("--token-file").arg(path);
    }
    if let Some(level) = &common.log {
        command.args(["--log", level]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(unstartable)
}
