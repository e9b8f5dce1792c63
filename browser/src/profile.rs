//! The profile directory: where Chromium keeps cookies, storage and settings.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tracing::warn;

/// Connections to the proxy that Chromium may hold at once, normal and WebSocket ones apart. The default
/// of 128 lets a page with many event streams block itself; Chromium takes no more than 256.
const CONNECTIONS_PER_PROXY: u32 = 256;

/// Processes that die may still write for a moment; removing is tried again this often.
const REMOVE_ATTEMPTS: u32 = 20;

/// Pause between two attempts to remove the profile.
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

/// Where a browser keeps its data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Profile {
    /// A new directory for this run, removed when the browser has ended.
    Temporary,
    /// A directory that stays; it is created if it is not there.
    Kept(PathBuf),
}

/// A profile directory that is ready for use, readable by its owner alone.
#[derive(Debug)]
pub(crate) struct ProfileDirectory {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl ProfileDirectory {
    /// Creates the directory where needed and writes the settings that have no command-line flag.
    pub(crate) fn prepare(profile: &Profile) -> io::Result<Self> {
        let directory = match profile {
            Profile::Temporary => {
                let temporary = tempfile::Builder::new()
                    .prefix("yonder-browser-")
                    .permissions(Permissions::from_mode(0o700))
                    .tempdir()?;
                Self {
                    path: temporary.path().to_owned(),
                    temporary: Some(temporary),
                }
            }
            Profile::Kept(path) => {
                DirBuilder::new().recursive(true).mode(0o700).create(path)?;
                fs::set_permissions(path, Permissions::from_mode(0o700))?;
                Self {
                    path: path.canonicalize()?,
                    temporary: None,
                }
            }
        };
        write_local_state(&directory.path.join("Local State"))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a temporary profile, whose processes have ended or are about to. Dropping it, or this
    /// future, tries once.
    pub(crate) async fn remove(mut self) {
        let Some(temporary) = self.temporary.take() else {
            return;
        };
        let mut attempts = REMOVE_ATTEMPTS;
        loop {
            attempts -= 1;
            match tokio::fs::remove_dir_all(temporary.path()).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Ok(()) => return,
                Err(error) if attempts == 0 => {
                    let path = temporary.path().display();
                    warn!(%error, %path, "the temporary profile could not be removed");
                    return;
                }
                Err(_) => tokio::time::sleep(REMOVE_PAUSE).await,
            }
        }
    }
}

/// Sets our values in the settings file and leaves the others alone. A file that is no JSON is what
/// Chromium, too, would throw away.
fn write_local_state(path: &Path) -> io::Result<()> {
    let mut state = match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(error),
    };
    let net = state
        .entry("net")
        .and_modify(|net| {
            if !net.is_object() {
                *net = json!({});
            }
        })
        .or_insert_with(|| json!({}));
    for name in [
        "max_connections_per_proxy",
        "max_connections_per_proxy_for_websocket",
    ] {
        net[name] = json!(CONNECTIONS_PER_PROXY);
    }
    fs::write(path, Value::Object(state).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_kept_profile_survive() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/profile");
        let profile = Profile::Kept(path.clone());
        ProfileDirectory::prepare(&profile).unwrap();
        let file = path.join("Local State");
        fs::write(
            &file,
            r#"{"browser":{"x":1},"net":{"max_connections_per_proxy":3,"y":2}}"#,
        )
        .unwrap();
        let directory = ProfileDirectory::prepare(&profile).unwrap();
        let state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(state["browser"]["x"], 1);
        assert_eq!(state["net"]["y"], 2);
        assert_eq!(state["net"]["max_connections_per_proxy"], 256);
        let mode = fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(&file, "rubbish").unwrap();
        ProfileDirectory::prepare(&profile).unwrap();
    }

    #[tokio::test]
    async fn a_temporary_profile_is_private_and_goes_away() {
        let directory = ProfileDirectory::prepare(&Profile::Temporary).unwrap();
        let path = directory.path().to_owned();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        directory.remove().await;
        assert!(!path.exists());
    }
}
