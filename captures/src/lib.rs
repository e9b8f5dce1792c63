//! Saving what the browser made on the machine of the agent that asked for it: one fresh private folder per result, so
//! that nothing is ever overwritten and a name chosen by a page decides nothing but the last component of a path.
//!
//! Files are kept until the operator or the agent removes them. The other way, [`Uploads`] reads what a page is to get.

mod uploads;

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use yonder_protocol::call::FileHead;
use yonder_protocol::operation::scalar::FileId;
use yonder_protocol::operation::types::FileInfo;
use yonder_protocol::{ErrorCode, OperationError, limits};

pub use self::uploads::Uploads;

/// Longest file name, in characters: leaves room below the 255 bytes of common file systems.
const NAME_CHARS_MAX: usize = 160;

/// Name of a file whose own says nothing or means something to the system.
const NAMELESS: &str = "capture";

/// Mode of the folders: captures show what the person is logged in to.
const FOLDER_MODE: u32 = 0o700;

/// Mode of the files.
const FILE_MODE: u32 = 0o600;

/// A file of a result, saved.
#[derive(Clone, Debug)]
pub struct SavedFile {
    /// What it is and where it lies.
    pub info: FileInfo,
    /// Its content.
    pub data: Bytes,
}

/// Where captures go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Captures {
    folder: PathBuf,
}

impl Captures {
    /// Saves below `folder`, which is made when the first file comes. Without one, below the system's folder
    /// for temporary files, in one of this user's own.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder: folder.unwrap_or_else(|| {
                let user = std::fs::metadata("/proc/self").map_or(0, |entry| entry.uid());
                std::env::temp_dir().join(format!("yonder-captures-{user}"))
            }),
        }
    }

    /// Saves the files of one result. What was written of a failed result is removed again.
    ///
    /// # Errors
    /// [`ErrorCode::OperationFailed`] if a file has no usable id, [`ErrorCode::FileFailed`] if the disk does not take it.
    pub async fn save(
        &self,
        heads: Vec<FileHead>,
        contents: Vec<Bytes>,
    ) -> Result<Vec<SavedFile>, OperationError> {
        if heads.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.folder.clone();
        tokio::task::spawn_blocking(move || save(&folder, heads, contents))
            .await
            .map_err(|error| {
                OperationError::new(
                    ErrorCode::FileFailed,
                    format!("the result's files could not be saved: {error}"),
                )
            })?
    }
}

fn save(
    folder: &Path,
    heads: Vec<FileHead>,
    contents: Vec<Bytes>,
) -> Result<Vec<SavedFile>, OperationError> {
    let ids = heads
        .iter()
        .map(|head| {
            let id = head.id.clone().unwrap_or_default();
            FileId::try_from(id).map_err(|error| {
                OperationError::new(
                    ErrorCode::OperationFailed,
                    format!("the desktop half sent a file without a proper id: {error}; update both halves to the same version"),
                )
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let fresh = fresh_folder(folder)
        .map_err(|error| not_saved(&error, "a folder for captures could not be made"))?;
    let mut saved = Vec::with_capacity(heads.len());
    for (index, ((head, id), data)) in heads.into_iter().zip(ids).zip(contents).enumerate() {
        match write_file(&fresh, index, &head.name, &data) {
            Ok(path) => saved.push(SavedFile {
                info: FileInfo {
                    id,
                    name: head.name.chars().take(limits::SHORT_CHARS).collect(),
                    mime: head.mime.chars().take(limits::SHORT_CHARS).collect(),
                    bytes: head.bytes,
                    path: path.to_string_lossy().into_owned(),
                },
                data,
            }),
            Err(error) => {
                // Half a result would be mistaken for a whole one.
                if let Err(error) = std::fs::remove_dir_all(&fresh) {
                    tracing::warn!(%error, "could not remove an incomplete capture");
                }
                return Err(not_saved(
                    &error,
                    "the operation's files could not be saved",
                ));
            }
        }
    }
    Ok(saved)
}

/// Makes `folder` if need be, checks that nobody else can plant files there, and makes a fresh one in it.
fn fresh_folder(folder: &Path) -> io::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)?;
    // A name in the shared temporary folder may have been taken by another user, or be a link to elsewhere.
    let entry = std::fs::symlink_metadata(folder)?;
    let user = std::fs::metadata("/proc/self").map(|entry| entry.uid());
    let ours = user.map_or(true, |user| user == entry.uid());
    if !entry.is_dir() || !ours || entry.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} must be a folder of this user that others cannot write",
                folder.display()
            ),
        ));
    }
    let fresh = folder.join(uuid::Uuid::new_v4().to_string());
    DirBuilder::new().mode(FOLDER_MODE).create(&fresh)?;
    std::fs::canonicalize(fresh)
}

/// Writes one file into a numbered folder of its own, so that equal names of one result do not meet.
fn write_file(fresh: &Path, index: usize, name: &str, data: &[u8]) -> io::Result<PathBuf> {
    let folder = fresh.join((index + 1).to_string());
    DirBuilder::new().mode(FOLDER_MODE).create(&folder)?;
    let path = folder.join(safe_name(name));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&path)?;
    file.write_all(data)?;
    Ok(path)
}

/// `name` with only letters, digits, `.`, `_` and `-`; its end, where the extension is, when it is too long.
fn safe_name(name: &str) -> String {
    let replaced: Vec<char> = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    let start = replaced.len().saturating_sub(NAME_CHARS_MAX);
    let name: String = replaced.into_iter().skip(start).collect();
    let only_dots = name.chars().all(|c| c == '.');
    if only_dots || is_device(&name) {
        NAMELESS.to_owned()
    } else {
        name
    }
}

/// Whether Windows would take the name for a device, whatever its extension: captures get copied there.
fn is_device(name: &str) -> bool {
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    match stem.as_str() {
        "con" | "prn" | "aux" | "nul" => true,
        _ => stem
            .strip_prefix("com")
            .or_else(|| stem.strip_prefix("lpt"))
            .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|b| b.is_ascii_digit())),
    }
}

fn not_saved(error: &io::Error, what: &str) -> OperationError {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there, or start with another state directory"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; let this user write there, or start with another state directory"
        }
        _ => "",
    };
    OperationError::new(
        ErrorCode::FileFailed,
        format!("the browser did it, but {what}: {error}{hint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &str, bytes: usize) -> FileHead {
        FileHead {
            id: Some(format!("file_{}", uuid::Uuid::new_v4())),
            name: name.into(),
            mime: "image/png".into(),
            bytes: bytes as u64,
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn files_are_private_and_apart() {
        let root = tempfile::tempdir().unwrap();
        let captures = Captures::new(Some(root.path().join("captures")));
        let heads = vec![head("../../a b.png", 3), head("a_b.png", 1), head("..", 0)];
        let contents = vec![
            Bytes::from_static(b"one"),
            Bytes::from_static(b"2"),
            Bytes::new(),
        ];
        let saved = captures.save(heads, contents).await.unwrap();
        let paths: Vec<_> = saved
            .iter()
            .map(|file| Path::new(&file.info.path))
            .collect();
        assert_eq!(std::fs::read(paths[0]).unwrap(), b"one");
        assert_eq!(paths[0].file_name().unwrap(), ".._.._a_b.png");
        assert_eq!(paths[2].file_name().unwrap(), "capture");
        for path in paths {
            assert!(path.starts_with(root.path().canonicalize().unwrap()));
            assert_eq!(mode(path), 0o600);
            let mut folder = path.parent().unwrap();
            while folder.file_name() != root.path().file_name() {
                assert_eq!(mode(folder), 0o700, "{}", folder.display());
                folder = folder.parent().unwrap();
            }
        }
        assert_eq!(saved[0].info.name, "../../a b.png");
    }

    #[tokio::test]
    async fn nothing_is_saved_for_a_malformed_result() {
        let root = tempfile::tempdir().unwrap();
        let captures = Captures::new(Some(root.path().to_owned()));
        let mut bad = head("a", 0);
        bad.id = Some("file_../x".into());
        let error = captures
            .save(vec![bad], vec![Bytes::new()])
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::OperationFailed);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_disk_that_does_not_take_it_is_told() {
        // A file in the place of the folder fails for every user, root included.
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("captures");
        std::fs::write(&place, "").unwrap();
        let error = Captures::new(Some(place))
            .save(vec![head("a", 0)], vec![Bytes::new()])
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::FileFailed);
        let full = not_saved(&io::Error::from(io::ErrorKind::StorageFull), "x");
        assert!(full.message.contains("free space"));
    }

    #[test]
    fn names_cannot_leave_their_folder() {
        for (name, expected) in [
            ("shot.png", "shot.png"),
            ("a/b\\c:d", "a_b_c_d"),
            ("", "capture"),
            (".", "capture"),
            ("...", "capture"),
            ("CON", "capture"),
            ("nul.txt", "capture"),
            ("com1.log", "capture"),
            ("com10.log", "com10.log"),
            ("ümlaut", "_mlaut"),
        ] {
            assert_eq!(safe_name(name), expected, "{name}");
        }
        let long = format!("{}.tar.gz", "x".repeat(400));
        assert_eq!(safe_name(&long).len(), NAME_CHARS_MAX);
        assert!(safe_name(&long).ends_with(".tar.gz"));
    }
}
