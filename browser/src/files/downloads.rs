//! Downloads of pages (`Browser.setDownloadBehavior`, `allowAndName`): the browser writes them into a private folder under
//! names of its own, and complete ones become files of the tab that began them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tracing::{debug, warn};
use yonder_protocol::limits::SHORT_CHARS;
use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::scalar::FileId;
use yonder_protocol::operation::types::{FileKind, FileState};

use super::{FILE_BYTES_MAX, Files, not_written};
use crate::cdp::{Ack, Event};
use crate::session::BrowserSession;
use crate::tab::Tab;

/// Downloads of a session that go on at once; a page that begins more has them cancelled. Chromium itself asks a person
/// after the first one.
const RUNNING_MAX: usize = 32;

/// Piece of a file that is read for its hash.
const PIECE: usize = 256 * 1024;

/// `Browser.downloadWillBegin`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    guid: String,
    frame_id: String,
    url: String,
    suggested_filename: String,
}

/// `Browser.downloadProgress`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    guid: String,
    /// A number of JSON: whole, and beyond 32 bits.
    received_bytes: f64,
    /// `inProgress`, `completed` or `canceled`.
    state: String,
}

/// The downloads of a session that go on.
pub(crate) struct Downloads {
    folder: Arc<TempDir>,
    /// By the browser's id.
    running: HashMap<String, FileId>,
}

impl Downloads {
    /// No downloads yet; the browser is to write them to [`Self::folder`].
    ///
    /// # Errors
    /// If the disk has no place for the folder.
    pub(crate) fn new(files: &Files) -> io::Result<Self> {
        Ok(Self {
            folder: files.folder()?,
            running: HashMap::new(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Follows what the browser tells.
    pub(crate) async fn heard(&mut self, session: &BrowserSession, event: &Event) {
        match event.method.as_str() {
            "Browser.downloadWillBegin" => {
                if let Ok(begun) = event.parse::<Begun>() {
                    self.began(session, begun).await;
                }
            }
            "Browser.downloadProgress" => {
                if let Ok(progress) = event.parse::<Progress>() {
                    self.went_on(session, &progress).await;
                }
            }
            _ => {}
        }
    }

    async fn began(&mut self, session: &BrowserSession, begun: Begun) {
        // Every session of the browser hears of every download.
        let tabs = session.tabs();
        let of = |tab: &&Arc<Tab>| {
            tab.target() == begun.frame_id || tab.frame(Some(&begun.frame_id)).is_ok()
        };
        let Some(mut tab) = tabs.iter().find(of) else {
            return;
        };
        // A tab that was opened for the download closes itself; what it fetched is its opener's.
        let opener = |opener| tabs.iter().find(|tab| tab.id() == opener);
        while let Some(opener) = tab.opener().and_then(opener)
            && tab.generation() == 0
        {
            tab = opener;
        }
        if self.running.len() >= RUNNING_MAX {
            warn!("a page began too many downloads at once; one is cancelled");
            cancel(session, &begun.guid).await;
            return;
        }
        match session.files().announce(tab, &begun).await {
            Ok(id) => {
                self.running.insert(begun.guid, id);
            }
            Err(error) => {
                warn!(%error, "a download is cancelled");
                cancel(session, &begun.guid).await;
            }
        }
    }

    async fn went_on(&mut self, session: &BrowserSession, progress: &Progress) {
        let Some(id) = self.running.get(&progress.guid).cloned() else {
            return;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float becomes the nearest count of bytes"
        )]
        let bytes = progress.received_bytes as u64;
        let written = self.folder().join(&progress.guid);
        match progress.state.as_str() {
            "inProgress" => {
                session.files().change(&id, |entry| entry.bytes = bytes);
                if bytes > FILE_BYTES_MAX {
                    warn!("a download is cancelled: it is larger than what is kept");
                    cancel(session, &progress.guid).await;
                }
            }
            "completed" => {
                self.running.remove(&progress.guid);
                let owner = session.clone();
                session.tasks().spawn(async move {
                    owner.files().arrived(&id, written).await;
                });
            }
            _ => {
                self.running.remove(&progress.guid);
                let failed = FileState::Failed;
                session.files().change(&id, |entry| entry.state = failed);
                // The browser removes what it wrote; where it did not, nothing is kept of it.
                let _ = tokio::fs::remove_file(written).await;
            }
        }
    }
}

/// The failure shows as its progress.
async fn cancel(session: &BrowserSession, guid: &str) {
    let mut download = json!({ "guid": guid });
    if let Some(context) = session.context() {
        download["browserContextId"] = Value::from(context);
    }
    let cancelled = session
        .root()
        .call::<Ack>("Browser.cancelDownload", download);
    if let Err(error) = cancelled.await {
        debug!(%error, "a download was not cancelled");
    }
}

impl Files {
    /// Lists a download that has begun.
    async fn announce(&self, tab: &Tab, begun: &Begun) -> Result<FileId, OperationError> {
        let name: String = begun.suggested_filename.chars().take(SHORT_CHARS).collect();
        let mime = "application/octet-stream";
        let mut stored = self.shelve(tab, FileKind::Download, &name, mime).await?;
        stored.entry.state = FileState::Pending;
        // A data URL is the download itself.
        stored.entry.url = begun.url.chars().take(SHORT_CHARS).collect();
        let id = stored.entry.id.clone();
        let mut shelf = self.lock();
        shelf.files.push(stored);
        shelf.trim();
        Ok(id)
    }

    /// Changes an entry, unless it is gone.
    fn change(&self, id: &FileId, change: impl FnOnce(&mut super::FileEntry)) {
        let mut shelf = self.lock();
        if let Some(file) = shelf.files.iter_mut().find(|file| file.entry.id == *id) {
            change(&mut file.entry);
            shelf.trim();
        }
    }

    /// Takes over what the browser wrote.
    async fn arrived(&self, id: &FileId, written: PathBuf) {
        let place = {
            let shelf = self.lock();
            let file = shelf.files.iter().find(|file| file.entry.id == *id);
            file.map(|file| file.path.clone())
        };
        let Some(place) = place else {
            // Its tab was closed.
            let _ = tokio::fs::remove_file(written).await;
            return;
        };
        let taken = spawn_blocking(move || take_over(&written, &place)).await;
        let taken = taken.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.change(id, |entry| match taken {
            Ok((bytes, sha256)) => {
                entry.bytes = bytes;
                entry.sha256 = Some(sha256);
                entry.state = FileState::Completed;
            }
            Err(error) => {
                warn!(error = %not_written(&error), "a download was not kept");
                entry.state = FileState::Failed;
            }
        });
    }
}

/// Moves the file within the folder; answers its size in bytes and its SHA-256.
fn take_over(written: &Path, place: &Path) -> io::Result<(u64, String)> {
    let mut file = std::fs::File::open(written)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hash.update(&piece[..read]);
    }
    std::fs::rename(written, place)?;
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok((bytes, text))
}
