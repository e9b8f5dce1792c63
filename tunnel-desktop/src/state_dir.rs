//! The state directory: the token, kept profiles, and the note in which a server half on the same machine
//! says where it listens.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Name of the token's file.
const TOKEN: &str = "token";

/// Name of the note that a running server half keeps.
const SERVER_NOTE: &str = "server.json";

/// Where a server half listens that was told nothing else.
pub(crate) const DEFAULT_SERVER_URL: &str = "http://127.0.0.1:7070/";

/// The state directory of one user.
#[derive(Clone, Debug)]
pub(crate) struct StateDir(PathBuf);

/// The part of the server half's note that matters here; it may say more.
#[derive(Deserialize)]
struct ServerNote {
    url: String,
}

/// Why a kept profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProfileError {
    /// Its name would make a strange path.
    #[error(
        "{0:?} cannot name a profile; use 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'"
    )]
    Name(String),
    /// Another desktop half has it open.
    #[error(
        "the profile {0} is in use by another tunnel-desktop; close that one or choose another --profile"
    )]
    InUse(String),
    /// The disk says no.
    #[error("could not prepare the profile folder {path}: {source}", path = path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// A kept profile, held for this process alone until dropped.
#[derive(Debug)]
pub(crate) struct KeptProfile {
    /// The folder for Chromium.
    pub(crate) path: PathBuf,
    /// Locked; the system lets go of it however the process ends.
    _lock: File,
}

impl StateDir {
    /// `given`, or the usual place of this user.
    ///
    /// Answers `None` where the environment names no home at all.
    pub(crate) fn new(given: Option<PathBuf>) -> Option<Self> {
        given
            .or_else(|| environment_folder("XDG_STATE_HOME", ".local/state"))
            .map(Self)
    }

    /// Where the token lies when nothing else is said.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.0.join(TOKEN)
    }

    /// The address of the server half on this machine: what its note says, else the usual one.
    pub(crate) fn local_server_url(&self) -> String {
        std::fs::read(self.0.join(SERVER_NOTE))
            .ok()
            .and_then(|text| serde_json::from_slice::<ServerNote>(&text).ok())
            .map_or_else(|| DEFAULT_SERVER_URL.to_owned(), |note| note.url)
    }

    /// Where files that the browser makes are saved.
    pub(crate) fn captures(&self) -> PathBuf {
        self.0.join("captures")
    }

    /// Creates the folder of the profile `name` where it is missing and locks it.
    ///
    /// # Errors
    /// As [`ProfileError`] lists them.
    pub(crate) fn profile(&self, name: &str) -> Result<KeptProfile, ProfileError> {
        if !is_profile_name(name) {
            return Err(ProfileError::Name(name.chars().take(80).collect()));
        }
        let profiles = self.0.join("profiles");
        let path = profiles.join(name);
        let failed = |source| ProfileError::Folder {
            path: path.clone(),
            source,
        };
        create_private(&path).map_err(failed)?;
        // Beside the folder: Chromium owns what is inside.
        let lock = File::create(profiles.join(format!("{name}.lock"))).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(KeptProfile { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(ProfileError::InUse(name.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

fn is_profile_name(name: &str) -> bool {
    /// As long as a session's name may be.
    const BYTES_MAX: usize = 64;
    (1..=BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Creates `path` and its parents, closed to other users.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// `$variable/yonder`, else `~/fallback/yonder`. Relative values are ignored, as the XDG specification asks.
pub(crate) fn environment_folder(variable: &str, fallback: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(fallback)))
        .map(|folder| folder.join("yonder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_server_is_found_by_its_note() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(Some(folder.path().into())).unwrap();
        assert_eq!(state.local_server_url(), DEFAULT_SERVER_URL);
        std::fs::write(
            folder.path().join(SERVER_NOTE),
            r#"{"pid":1,"url":"http://127.0.0.1:9/p/"}"#,
        )
        .unwrap();
        assert_eq!(state.local_server_url(), "http://127.0.0.1:9/p/");
        std::fs::write(folder.path().join(SERVER_NOTE), "half a no").unwrap();
        assert_eq!(state.local_server_url(), DEFAULT_SERVER_URL);
    }

    #[test]
    fn a_profile_is_held_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(Some(folder.path().into())).unwrap();
        let held = state.profile("work").unwrap();
        assert!(held.path.is_dir());
        assert!(matches!(state.profile("work"), Err(ProfileError::InUse(_))));
        state.profile("other").unwrap();
        drop(held);
        state.profile("work").unwrap();
        for bad in ["", "..", "a/b", ".x"] {
            assert!(
                matches!(state.profile(bad), Err(ProfileError::Name(_))),
                "{bad}"
            );
        }
    }
}
