//! Where the token comes from. It is never a plain argument, which every user of the machine could read in the
//! list of processes, and a file that others can read is refused rather than used.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use yonder_transport::token::{InvalidToken, SecretToken};

/// Longest token file: a token and some white space. Anything far beyond is another file.
const FILE_BYTES_MAX: u64 = 4096;

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TokenError {
    /// The file is not there.
    #[error(
        "there is no token file {path}; copy the server's token there with mode 0600 (`tunnel-server token` \
         on the server prints where it lies), or set --token-file or YONDER_TOKEN",
        path = path.display()
    )]
    Missing { path: PathBuf },
    /// The file cannot be read.
    #[error("could not read the token file {path}: {source}; check its owner and permissions", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Others may read it.
    #[error(
        "the token file {path} is open to other users (mode {mode:04o}); run: chmod 600 {path}",
        path = path.display()
    )]
    Open { path: PathBuf, mode: u32 },
    /// It holds nothing, or no token.
    #[error(
        "{place} holds no token: {problem}; put in the one line that the server's token file holds"
    )]
    Content {
        place: String,
        problem: InvalidToken,
    },
}

/// Reads the token in `path`.
///
/// # Errors
/// As [`TokenError`] lists them.
pub(crate) fn read_file(path: &Path) -> Result<SecretToken, TokenError> {
    let failed = |source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            TokenError::Missing { path: path.into() }
        } else {
            TokenError::Read {
                path: path.into(),
                source,
            }
        }
    };
    let file = File::open(path).map_err(failed)?;
    check_mode(&file, path)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    check(&text, || format!("the token file {}", path.display()))
}

/// Checks a token that came in the environment.
///
/// # Errors
/// [`TokenError::Content`].
pub(crate) fn from_environment(text: &str) -> Result<SecretToken, TokenError> {
    check(text, || "YONDER_TOKEN".to_owned())
}

fn check(text: &str, place: impl Fn() -> String) -> Result<SecretToken, TokenError> {
    SecretToken::new(text).map_err(|problem| TokenError::Content {
        place: place(),
        problem,
    })
}

#[cfg(unix)]
fn check_mode(file: &File, path: &Path) -> Result<(), TokenError> {
    use std::os::unix::fs::MetadataExt as _;
    /// Any right of the group or of others.
    const FOREIGN: u32 = 0o077;
    let metadata = file.metadata().map_err(|source| TokenError::Read {
        path: path.into(),
        source,
    })?;
    let mode = metadata.mode() & 0o7777;
    // Pipes and devices (`--token-file <(pass yonder)`) have no lasting content to protect.
    if metadata.is_file() && mode & FOREIGN != 0 {
        return Err(TokenError::Open {
            path: path.into(),
            mode,
        });
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_mode(_: &File, _: &Path) -> Result<(), TokenError> {
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_private_file_is_read() {
        let (_folder, path) = file("abc123\n", 0o600);
        assert_eq!(read_file(&path).unwrap().expose(), "abc123");
    }

    #[test]
    fn a_file_open_to_others_is_refused_with_the_remedy() {
        for mode in [0o644, 0o640, 0o604] {
            let (_folder, path) = file("abc", mode);
            let error = read_file(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
            assert!(!error.contains("abc"));
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", "\n", "two words", "täglich"] {
            let (_folder, path) = file(text, 0o600);
            assert!(
                matches!(read_file(&path), Err(TokenError::Content { .. })),
                "{text:?}"
            );
        }
        let missing = read_file(Path::new("/nonexistent/token")).unwrap_err();
        assert!(missing.to_string().contains("tunnel-server token"));
    }
}
