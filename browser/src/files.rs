//! Files that operations record in tabs: kept on the desk's disk, in a private folder that goes with the session, until a
//! caller has them brought to the server (`files.get`) or asks about them.

mod downloads;
mod transfer;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_blocking;
use uuid::Uuid;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::{FileId, TabId};
use yonder_protocol::operation::types::{FileEntry, FileKind, FileState};

pub(crate) use self::downloads::Downloads;
pub(crate) use self::transfer::get;
use crate::execute::GivenFile;
use crate::tab::Tab;

/// Files of a session; the oldest go first. Agents compare a few.
const FILES_MAX: usize = 100;

/// Bytes of all files of a session; the oldest go first. Some forty snapshots of large pages.
const BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// Bytes of one file: a heap of some 600 MB.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Longest name in bytes: what common file systems take.
const NAME_BYTES_MAX: usize = 200;

/// The files of a session.
#[derive(Debug, Default)]
pub(crate) struct Files {
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Made for the first file, with mode 0700; removed with the session.
    folder: Option<Arc<TempDir>>,
    files: Vec<Stored>,
}

/// A complete file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) tab: TabId,
    pub(crate) entry: FileEntry,
    pub(crate) path: PathBuf,
    /// Keeps the folder while somebody reads.
    _folder: Arc<TempDir>,
}

/// A file that is being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub(crate) struct Draft {
    stored: Stored,
    file: File,
    finished: bool,
}

impl Shelf {
    /// Removes the oldest files until the rest is within bounds.
    fn trim(&mut self) {
        let mut bytes: u64 = self.files.iter().map(|file| file.entry.bytes).sum();
        while self.files.len() > FILES_MAX || (bytes > BYTES_MAX && self.files.len() > 1) {
            let oldest = self.files.remove(0);
            bytes -= oldest.entry.bytes;
            remove(&oldest.path);
        }
    }
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // Every change leaves the list whole.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self) -> io::Result<Arc<TempDir>> {
        let mut shelf = self.lock();
        if let Some(folder) = &shelf.folder {
            return Ok(Arc::clone(folder));
        }
        // `tempfile` makes it for this user alone.
        let folder = Arc::new(tempfile::Builder::new().prefix("yonder-files-").tempdir()?);
        shelf.folder = Some(Arc::clone(&folder));
        Ok(folder)
    }

    /// Makes place for a file of `tab` called `name`, in a folder of its own.
    async fn shelve(
        &self,
        tab: &Tab,
        kind: FileKind,
        name: &str,
        mime: &str,
    ) -> Result<Stored, OperationError> {
        let folder = self.folder().map_err(|error| not_written(&error))?;
        let uuid = Uuid::new_v4().to_string();
        let own = folder.path().join(&uuid);
        let made = tokio::fs::DirBuilder::new().mode(0o700).create(&own).await;
        made.map_err(|error| not_written(&error))?;
        // Its name is a page's or a caller's to choose; the folder is not.
        let path = own.join(safe_name(name));
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let id = FileId::from_uuid(&uuid).map_err(|error| {
            OperationError::new(ErrorCode::OperationFailed, format!("no file id: {error}"))
        })?;
        Ok(Stored {
            tab: tab.id().clone(),
            entry: FileEntry {
                id,
                kind,
                name: name.to_owned(),
                mime: mime.to_owned(),
                bytes: 0,
                state: FileState::Completed,
                sha256: None,
                url: tab.summary().url,
                timestamp_ms: since
                    .ok()
                    .and_then(|since| u64::try_from(since.as_millis()).ok())
                    .unwrap_or(0),
            },
            path,
            _folder: folder,
        })
    }

    /// Begins a file of `tab` called `name`.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take it.
    pub(crate) async fn begin(
        &self,
        tab: &Tab,
        kind: FileKind,
        name: &str,
        mime: &str,
    ) -> Result<Draft, OperationError> {
        let stored = self.shelve(tab, kind, name, mime).await?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&stored.path)
            .await
            .map_err(|error| not_written(&error))?;
        Ok(Draft {
            stored,
            file,
            finished: false,
        })
    }

    /// A file without a name, which goes when it is closed.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take it.
    pub(crate) async fn scratch(&self) -> Result<std::fs::File, OperationError> {
        let folder = self.folder().map_err(|error| not_written(&error))?;
        let made = spawn_blocking(move || tempfile::tempfile_in(folder.path())).await;
        let made = made.unwrap_or_else(|error| Err(io::Error::other(error)));
        made.map_err(|error| not_written(&error))
    }

    /// Completes `draft`; older files make room for it.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take its end.
    pub(crate) async fn finish(&self, mut draft: Draft) -> Result<FileEntry, OperationError> {
        let flushed = draft.file.flush().await;
        flushed.map_err(|error| not_written(&error))?;
        draft.finished = true;
        let stored = draft.stored.clone();
        let entry = stored.entry.clone();
        let mut shelf = self.lock();
        shelf.files.push(stored);
        shelf.trim();
        Ok(entry)
    }

    /// Keeps copies of `given` for `tab`, and answers their paths.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take them.
    pub(crate) async fn place(
        &self,
        tab: &Tab,
        given: Vec<GivenFile>,
    ) -> Result<Vec<PathBuf>, OperationError> {
        let mut paths = Vec::with_capacity(given.len());
        for file in given {
            let mime = "application/octet-stream";
            let mut draft = self.begin(tab, FileKind::Upload, &file.name, mime).await?;
            draft.write(&file.data).await?;
            paths.push(draft.stored.path.clone());
            self.finish(draft).await?;
        }
        Ok(paths)
    }

    /// The files of `tab`, oldest first.
    pub(crate) fn of(&self, tab: &Tab) -> Vec<FileEntry> {
        let shelf = self.lock();
        let files = shelf.files.iter().filter(|file| file.tab == *tab.id());
        files.map(|file| file.entry.clone()).collect()
    }

    /// A complete file of `tab`.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], with where to find ids; [`ErrorCode::FileFailed`] for a download that is not complete.
    pub(crate) fn find(&self, tab: &Tab, id: &FileId) -> Result<Stored, OperationError> {
        let shelf = self.lock();
        let found = shelf
            .files
            .iter()
            .find(|file| file.entry.id == *id && file.tab == *tab.id());
        let incomplete = |why: &str| {
            let what = format!("{id} is a download that {why}");
            Err(OperationError::new(ErrorCode::FileFailed, what))
        };
        match found {
            None => Err(OperationError::new(
                ErrorCode::NotFound,
                format!("the tab has no file {id}; see files.list"),
            )),
            Some(file) => match file.entry.state {
                FileState::Completed => Ok(file.clone()),
                FileState::Pending => incomplete("goes on; see files.list until it is completed"),
                FileState::Failed => incomplete("failed; have the page begin it again"),
            },
        }
    }

    /// A file of `tab` that is of `kind`.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], and [`ErrorCode::Invalid`] for one of another kind.
    pub(crate) fn find_kind(
        &self,
        tab: &Tab,
        id: &FileId,
        kind: FileKind,
    ) -> Result<Stored, OperationError> {
        let stored = self.find(tab, id)?;
        if stored.entry.kind != kind {
            return Err(OperationError::new(
                ErrorCode::Invalid,
                format!(
                    "{id} is {}, and this takes {}; see files.list",
                    stored.entry.kind.words(),
                    kind.words()
                ),
            ));
        }
        Ok(stored)
    }

    /// Removes the files of a tab that is gone.
    pub(crate) fn forget(&self, tab: &TabId) {
        self.lock().files.retain(|file| {
            let stays = file.tab != *tab;
            if !stays {
                remove(&file.path);
            }
            stays
        });
    }
}

impl Draft {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take them, or the file becomes too large.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), OperationError> {
        let total = self.stored.entry.bytes + bytes.len() as u64;
        if total > FILE_BYTES_MAX {
            return Err(OperationError::new(
                ErrorCode::FileFailed,
                format!(
                    "{} of more than {} MiB is not kept; record less at once",
                    self.stored.entry.kind.words(),
                    FILE_BYTES_MAX / 1024 / 1024
                ),
            ));
        }
        let written = self.file.write_all(bytes).await;
        written.map_err(|error| not_written(&error))?;
        self.stored.entry.bytes = total;
        Ok(())
    }
}

impl Draft {
    /// Has `write` write the whole file, where it may block; answers what that answers.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`] if the disk does not take it, or the file becomes too large.
    pub(crate) async fn fill<T, E>(
        &mut self,
        write: impl FnOnce(std::fs::File) -> Result<T, E> + Send + 'static,
    ) -> Result<Result<T, E>, OperationError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let file = self.file.try_clone().await;
        let file = file.map_err(|error| not_written(&error))?.into_std().await;
        let written = spawn_blocking(move || write(file)).await;
        let written = written.map_err(|error| not_written(&io::Error::other(error)))?;
        let metadata = self.file.metadata().await;
        self.stored.entry.bytes = metadata.map_err(|error| not_written(&error))?.len();
        // What was written counts like anything else.
        self.write(&[]).await?;
        Ok(written)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished {
            remove(&self.stored.path);
        }
    }
}

/// `name` as the last part of a path: without separators and control characters, and not `.` or `..`.
fn safe_name(name: &str) -> String {
    let mut safe = String::new();
    for c in name.chars() {
        let c = if c == '/' || c == '\\' || c == ':' || c.is_control() {
            '_'
        } else {
            c
        };
        if safe.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        safe.push(c);
    }
    if safe.is_empty() || safe == "." || safe == ".." {
        "file".to_owned()
    } else {
        safe
    }
}

/// Removes a file with the folder of its own.
fn remove(path: &std::path::Path) {
    let Some(own) = path.parent() else { return };
    if let Err(error) = std::fs::remove_dir_all(own) {
        tracing::debug!(%error, "a recorded file could not be removed");
    }
}

fn not_written(error: &io::Error) -> OperationError {
    OperationError::new(
        ErrorCode::FileFailed,
        format!(
            "the desk's disk did not take the recording: {error}; free space there (TMPDIR says where)"
        ),
    )
}
