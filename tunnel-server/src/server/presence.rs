//! The word about the running server half in its state directory.
//!
//! A lock on `server.lock` keeps a second server half away; the system releases it however the process ends. The file
//! `server.json` tells `status`, `call` and `mcp` of the same user where to find the server. A killed server leaves it
//! behind, so readers believe it only while the lock is held: whoever got the port since must not be sent the token.

use std::fs::{self, File, TryLockError};
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state_dir::{StateDir, StateDirError};

/// Longest such file that is read.
const PRESENCE_BYTES_MAX: u64 = 16 * 1024;

/// How often, and after what pause each, the lock is tried again: a client that looks whether it is held holds it
/// itself for a moment.
const CLAIM_ATTEMPTS: u32 = 10;
const CLAIM_PAUSE: Duration = Duration::from_millis(20);

/// What a running server half says about itself.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Presence {
    /// Its process.
    pub pid: u32,
    /// How this machine reaches it, path prefix included.
    pub url: String,
    /// Pin of the key that it presents, with TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Its version.
    pub version: String,
    /// Whether it was started for `ssh://` and ends by itself when it is not used any more.
    #[serde(default)]
    pub background: bool,
}

/// The lock on a state directory.
#[derive(Debug)]
pub struct Claim {
    state: StateDir,
    announced: bool,
    /// Locked as long as it is open.
    _lock: File,
}

/// Why a state directory cannot be claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another server half has it.
    #[error(
        "another tunnel-server{} uses the state directory {}; stop it, or give this one a directory of its own with --state-dir",
        .other.as_ref().map_or_else(String::new, Presence::in_brackets),
        .state.path().display()
    )]
    Taken {
        /// The directory.
        state: StateDir,
        /// What the other says about itself, if it is up.
        other: Option<Presence>,
    },
    /// The lock could not be had for another reason.
    #[error("cannot lock the state directory {}", state.path().display())]
    Lock {
        /// The directory.
        state: StateDir,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
}

impl Claim {
    /// Claims `state` for this process.
    ///
    /// # Errors
    /// If another server half has it, or it cannot be used.
    pub async fn take(state: &StateDir) -> Result<Self, ClaimError> {
        let lock = state.open_lock(&state.lock())?;
        for _ in 0..CLAIM_ATTEMPTS {
            match lock.try_lock() {
                Ok(()) => {
                    // What a killed server half left must not pass for this one's word.
                    let _absent = fs::remove_file(state.presence());
                    return Ok(Self {
                        state: state.clone(),
                        announced: false,
                        _lock: lock,
                    });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(CLAIM_PAUSE).await,
                Err(TryLockError::Error(source)) => {
                    return Err(ClaimError::Lock {
                        state: state.clone(),
                        source,
                    });
                }
            }
        }
        Err(ClaimError::Taken {
            state: state.clone(),
            other: Presence::read(state),
        })
    }

    /// Tells where the server half is; the word is taken back when the claim is dropped.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn announce(&mut self, presence: &Presence) -> Result<(), StateDirError> {
        let text = serde_json::to_vec(presence).expect("strings and numbers");
        self.state.write(&self.state.presence(), &text)?;
        self.announced = true;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.announced
            && let Err(error) = fs::remove_file(self.state.presence())
        {
            tracing::debug!("cannot remove {}: {error}", self.state.presence().display());
        }
    }
}

impl Presence {
    /// What the server half that runs on `state` says, if there is one.
    pub fn of_running(state: &StateDir) -> Option<Self> {
        let lock = File::open(state.lock()).ok()?;
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Self::read(state),
            // Nobody holds it; closing the file lets go of it again.
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    fn in_brackets(&self) -> String {
        let Self { pid, url, .. } = self;
        if self.background {
            format!(
                " (process {pid}, {url}; started for ssh://, it ends by itself some minutes after its last use)"
            )
        } else {
            format!(" (process {pid}, {url})")
        }
    }

    /// What the file says, whoever left it. A broken one counts as none.
    fn read(state: &StateDir) -> Option<Self> {
        use std::io::Read as _;
        let file = File::open(state.presence()).ok()?;
        let mut text = String::new();
        file.take(PRESENCE_BYTES_MAX)
            .read_to_string(&mut text)
            .ok()?;
        serde_json::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_server_a_directory() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(base.path().to_owned())).unwrap();
        let mut claim = Claim::take(&state).await.unwrap();
        let presence = Presence {
            pid: 7,
            url: "http://127.0.0.1:1".into(),
            pin: None,
            version: "0".into(),
            background: false,
        };
        claim.announce(&presence).unwrap();
        assert_eq!(Presence::of_running(&state), Some(presence.clone()));
        let error = Claim::take(&state).await.unwrap_err().to_string();
        assert!(
            error.contains("process 7, http://127.0.0.1:1") && error.contains("--state-dir"),
            "{error}"
        );
        drop(claim);
        assert!(!state.presence().exists());
        // As a killed server leaves it.
        state
            .write(&state.presence(), &serde_json::to_vec(&presence).unwrap())
            .unwrap();
        assert_eq!(Presence::of_running(&state), None);
        Claim::take(&state).await.unwrap();
    }
}
