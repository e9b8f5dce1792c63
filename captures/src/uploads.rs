//! Reading the files that an agent hands to a page: only below allowed folders, only regular files, only so much.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use yonder_protocol::call::FileHead;
use yonder_protocol::limits::{FILE_TRANSFER_BYTES, SHORT_CHARS};
use yonder_protocol::{ErrorCode, OperationError};

/// Media types by extension; pages decide by them what they take.
const MEDIA_TYPES: [(&str, &str); 14] = [
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("zip", "application/zip"),
];

/// Where files may be read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Uploads {
    roots: Vec<PathBuf>,
}

impl Uploads {
    /// Allows what lies below `roots`; relative paths begin at the first. Without any, the working directory; where that
    /// is the whole disk, as for many services, nothing is allowed.
    pub fn new(mut roots: Vec<PathBuf>) -> Self {
        if roots.is_empty() {
            let here = std::env::current_dir().ok();
            roots.extend(here.filter(|here| here.parent().is_some()));
        }
        Self { roots }
    }

    /// Reads `paths`, all or none.
    ///
    /// # Errors
    /// [`ErrorCode::FileFailed`], naming the path and what is wrong with it.
    pub async fn read(
        &self,
        paths: Vec<String>,
    ) -> Result<(Vec<FileHead>, Vec<Bytes>), OperationError> {
        let roots = self.roots.clone();
        let read = tokio::task::spawn_blocking(move || read_all(&roots, &paths));
        read.await.unwrap_or_else(|error| {
            Err(OperationError::new(
                ErrorCode::FileFailed,
                format!("the files could not be read: {error}"),
            ))
        })
    }
}

fn read_all(
    roots: &[PathBuf],
    paths: &[String],
) -> Result<(Vec<FileHead>, Vec<Bytes>), OperationError> {
    let mut heads = Vec::with_capacity(paths.len());
    let mut contents = Vec::with_capacity(paths.len());
    let mut left = FILE_TRANSFER_BYTES;
    for path in paths {
        let data = read_one(roots, path, left).map_err(|reason| {
            OperationError::new(
                ErrorCode::FileFailed,
                format!("{path:?} was not read, and nothing was uploaded: {reason}"),
            )
        })?;
        left -= data.len();
        let name = Path::new(path).file_name().unwrap_or_default();
        let name: String = name.to_string_lossy().chars().take(SHORT_CHARS).collect();
        let extension = Path::new(&name).extension().unwrap_or_default();
        let extension = extension.to_string_lossy().to_ascii_lowercase();
        let mime = MEDIA_TYPES.iter().find(|(known, _)| *known == extension);
        heads.push(FileHead {
            id: None,
            mime: mime
                .map_or("application/octet-stream", |(_, mime)| mime)
                .to_owned(),
            bytes: data.len() as u64,
            name,
        });
        contents.push(Bytes::from(data));
    }
    Ok((heads, contents))
}

fn read_one(roots: &[PathBuf], path: &str, left: usize) -> Result<Vec<u8>, String> {
    let told = |error: io::Error| error.to_string();
    let first = roots
        .first()
        .ok_or("no folder is allowed for uploads; name one with --upload-root")?;
    // Where it really lies, links followed: that is what must be allowed.
    let place = first.join(path).canonicalize().map_err(told)?;
    let allowed = roots
        .iter()
        .filter_map(|root| root.canonicalize().ok())
        .any(|root| place.starts_with(root));
    if !allowed {
        let roots: Vec<_> = roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        return Err(format!(
            "it lies outside of {}; put a copy there, or allow its folder with --upload-root",
            roots.join(", ")
        ));
    }
    // Judged before it is opened: opening a pipe waits for its other end.
    let kind = place.metadata().map_err(told)?;
    if kind.is_dir() {
        return Err("it is a folder; name the files in it".to_owned());
    }
    if !kind.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut data = Vec::new();
    // One byte more than allowed tells a file that is too large, also one that grows meanwhile.
    File::open(&place)
        .and_then(|file| file.take(left as u64 + 1).read_to_end(&mut data))
        .map_err(told)?;
    if data.len() > left {
        return Err(format!(
            "with it the files have more than {FILE_TRANSFER_BYTES} bytes, which is as much as one operation carries"
        ));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn only_regular_files_below_the_roots_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let other = folder.path().join("other");
        for place in [&root, &other] {
            std::fs::create_dir(place).unwrap();
        }
        std::fs::write(root.join("a.txt"), "one").unwrap();
        std::fs::write(other.join("secret"), "two").unwrap();
        symlink(other.join("secret"), root.join("link")).unwrap();
        symlink(root.join("a.txt"), other.join("back.PNG")).unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        let uploads = Uploads::new(vec![root.clone()]);
        let read = |path: &str| uploads.read(vec!["a.txt".to_owned(), path.to_owned()]);
        let absolute = root.join("a.txt").display().to_string();
        let (heads, contents) = read(&absolute).await.unwrap();
        assert_eq!(
            (heads[1].name.as_str(), heads[1].mime.as_str()),
            ("a.txt", "text/plain")
        );
        assert_eq!(&contents[1][..], b"one");
        // Where it really lies counts.
        let back = other.join("back.PNG").display().to_string();
        let (heads, _) = read(&back).await.unwrap();
        assert_eq!(heads[1].mime, "image/png");
        for (path, words) in [
            ("link", "outside"),
            ("../other/secret", "outside"),
            ("/dev/zero", "outside"),
            ("folder", "a folder"),
            ("missing", "No such file"),
        ] {
            let error = read(path).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::FileFailed);
            assert!(error.message.contains(words), "{path}: {}", error.message);
        }
        let everywhere = Uploads::new(vec![PathBuf::from("/")]);
        let error = everywhere
            .read(vec!["/dev/zero".to_owned()])
            .await
            .unwrap_err();
        assert!(error.message.contains("regular"), "{}", error.message);
    }

    #[tokio::test]
    async fn no_more_is_read_than_one_operation_carries() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("half")).unwrap();
        file.set_len(FILE_TRANSFER_BYTES as u64 / 2 + 1).unwrap();
        let uploads = Uploads::new(vec![folder.path().to_owned()]);
        assert!(uploads.read(vec!["half".to_owned()]).await.is_ok());
        let error = uploads.read(vec!["half".to_owned(); 2]).await.unwrap_err();
        assert!(
            error.message.contains("nothing was uploaded"),
            "{}",
            error.message
        );
    }
}
