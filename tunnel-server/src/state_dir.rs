//! The state directory: where the token, the key of a self-signed certificate and the word about a running
//! server lie. Files are created with mode 0600 in a directory of mode 0700, whole or not at all.
//!
//! What the files mean is told by [`crate::token`] and [`crate::server::presence`]; this module only names and writes them.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Mode of the directory: nobody but its owner may look into it.
const DIRECTORY_MODE: u32 = 0o700;

/// Mode of every file in it.
const FILE_MODE: u32 = 0o600;

/// Permission bit of everybody's writing.
const WORLD_WRITABLE: u32 = 0o002;

/// Permission bit by which files may be replaced by their owner alone, as in `/tmp`.
const STICKY: u32 = 0o1000;

/// A state directory, which may not exist yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StateDir {
    path: PathBuf,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDirError {
    /// Neither `XDG_STATE_HOME` nor `HOME` is set, and none was named.
    #[error("there is no home directory to keep state in; name a directory with --state-dir")]
    NoHome,
    /// The directory could not be created or looked at.
    #[error("cannot use the state directory {}; choose another with --state-dir", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Everybody may replace the files in it.
    #[error(
        "the state directory {} is writable by everybody; run: chmod 700 {}",
        path.display(), path.display()
    )]
    WorldWritable {
        /// The directory.
        path: PathBuf,
    },
    /// A file in it could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl StateDir {
    /// The directory `path`, or without one `$XDG_STATE_HOME/yonder`, or else `~/.local/state/yonder`.
    ///
    /// # Errors
    /// [`StateDirError::NoHome`].
    pub fn locate(path: Option<PathBuf>) -> Result<Self, StateDirError> {
        if let Some(path) = path {
            return Ok(Self { path });
        }
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        // The XDG base directory specification has relative paths ignored.
        let base = variable("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
            .ok_or(StateDirError::NoHome)?;
        Ok(Self {
            path: base.join("yonder"),
        })
    }

    /// Creates the directory where it is missing.
    ///
    /// # Errors
    /// If it cannot be created, is no directory, or everybody may write to it.
    pub fn create(&self) -> Result<(), StateDirError> {
        let unusable = |source| StateDirError::Unusable {
            path: self.path.clone(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&self.path)
            .map_err(unusable)?;
        let mode = fs::metadata(&self.path)
            .map_err(unusable)?
            .permissions()
            .mode();
        if mode & WORLD_WRITABLE != 0 && mode & STICKY == 0 {
            return Err(StateDirError::WorldWritable {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The secret that both halves share.
    pub fn token(&self) -> PathBuf {
        self.path.join("token")
    }

    /// Held locked by the server half that uses this directory.
    pub fn lock(&self) -> PathBuf {
        self.path.join("server.lock")
    }

    /// Tells where that server half listens.
    pub fn presence(&self) -> PathBuf {
        self.path.join("server.json")
    }

    /// Held locked while a server half is started in the background.
    pub fn background_lock(&self) -> PathBuf {
        self.path.join("background.lock")
    }

    /// What that server half logs.
    pub fn background_log(&self) -> PathBuf {
        self.path.join("background.log")
    }

    /// Certificate of `--tls-self-signed`.
    pub fn certificate(&self) -> PathBuf {
        self.path.join("tls-cert.pem")
    }

    /// Its private key.
    pub fn private_key(&self) -> PathBuf {
        self.path.join("tls-key.pem")
    }

    /// Where files that the browser makes are saved unless another place is named.
    pub fn captures(&self) -> PathBuf {
        self.path.join("captures")
    }

    /// Writes `content` to `file` of this directory in one step: readers see the old content or the new.
    ///
    /// # Errors
    /// If the directory cannot be used or the file not written.
    pub fn write(&self, file: &Path, content: &[u8]) -> Result<(), StateDirError> {
        self.staged(file, content)?
            .persist(file)
            .map_err(|error| write_error(file, error.error))?;
        Ok(())
    }

    /// Like [`Self::write`], but leaves a file that exists as it is; answers whether this call created it.
    ///
    /// # Errors
    /// If the directory cannot be used or the file not written.
    pub fn write_new(&self, file: &Path, content: &[u8]) -> Result<bool, StateDirError> {
        match self.staged(file, content)?.persist_noclobber(file) {
            Ok(_) => Ok(true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(write_error(file, error.error)),
        }
    }

    /// Opens `file` for locking, creating it empty.
    ///
    /// # Errors
    /// If the directory cannot be used or the file not opened.
    pub fn open_lock(&self, file: &Path) -> Result<File, StateDirError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        self.create()?;
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(file)
            .map_err(|error| write_error(file, error))
    }

    /// Opens `file` to append to it, emptied first where it has grown beyond `bytes_max`.
    ///
    /// # Errors
    /// If the directory cannot be used or the file not opened.
    pub fn open_log(&self, file: &Path, bytes_max: u64) -> Result<File, StateDirError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        self.create()?;
        let open = || {
            let log = File::options()
                .create(true)
                .append(true)
                .mode(FILE_MODE)
                .open(file)?;
            if log.metadata()?.len() > bytes_max {
                log.set_len(0)?;
            }
            io::Result::Ok(log)
        };
        open().map_err(|error| write_error(file, error))
    }

    /// A finished temporary file beside `file`.
    fn staged(
        &self,
        file: &Path,
        content: &[u8],
    ) -> Result<tempfile::NamedTempFile, StateDirError> {
        self.create()?;
        let staged = || -> io::Result<tempfile::NamedTempFile> {
            let mut staged = tempfile::Builder::new()
                .prefix(".new-")
                .permissions(Permissions::from_mode(FILE_MODE))
                .tempfile_in(&self.path)?;
            staged.write_all(content)?;
            staged.as_file().sync_all()?;
            Ok(staged)
        };
        staged().map_err(|error| write_error(file, error))
    }
}

fn write_error(file: &Path, source: io::Error) -> StateDirError {
    StateDirError::Write {
        path: file.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directory_are_private() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(base.path().join("a/b"))).unwrap();
        state.write(&state.token(), b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(state.path()), 0o700);
        assert_eq!(mode(&state.token()), 0o600);
    }

    #[test]
    fn an_existing_file_is_not_replaced_by_write_new() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(base.path().to_owned())).unwrap();
        assert!(state.write_new(&state.token(), b"first").unwrap());
        assert!(!state.write_new(&state.token(), b"second").unwrap());
        assert_eq!(fs::read(state.token()).unwrap(), b"first");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_open_to_everybody_is_refused() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), Permissions::from_mode(0o777)).unwrap();
        let state = StateDir::locate(Some(base.path().to_owned())).unwrap();
        let error = state.create().unwrap_err();
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
}
