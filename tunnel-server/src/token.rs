//! The secret that both halves share: where it comes from, how it is made, and how a caller's is judged.
//!
//! Only the token's hash is kept by [`TokenGate`]; the text itself lives in [`SecretToken`], which never shows it by
//! accident, and in buffers that are wiped.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use yonder_transport::token::{InvalidToken, SecretToken, TOKEN_BYTES_MAX};
use zeroize::{Zeroize as _, Zeroizing};

use crate::state_dir::{StateDir, StateDirError};

/// Entropy of a token that we make, in bytes.
const TOKEN_ENTROPY_BYTES: usize = 32;

/// Shortest token that draws no warning: below it, guessing over the network is a question of days.
const TOKEN_BYTES_WEAK: usize = 16;

/// Permission bits of group and others.
const FOREIGN_ACCESS: u32 = 0o077;

/// How often the token's file is looked at while requests with the known token arrive.
const RECHECK: Duration = Duration::from_secs(1);

/// Name of the environment variable that carries the token.
pub const TOKEN_VARIABLE: &str = "YONDER_TOKEN";

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// The environment; fixed for the life of the process.
    Environment(SecretToken),
    /// A file that a person named.
    File(PathBuf),
    /// The state directory's own, created on demand.
    StateDir(StateDir),
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The environment's token is none.
    #[error("{TOKEN_VARIABLE} cannot be used: {0}")]
    Environment(InvalidToken),
    /// There is no such file.
    #[error("there is no token file {}; start tunnel-server once, or name another with --token-file", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the token file {}; let its owner run this, or name another with --token-file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Others than the owner may read or change the file.
    #[error(
        "the token file {} is open to other users (mode {mode:04o}); run: chmod 600 {}",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds no token.
    #[error("the token file {} cannot be used: {problem}; make a new one with: tunnel-server token --rotate", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: InvalidToken,
    },
    /// A token that comes from the environment cannot be replaced by us.
    #[error(
        "the token comes from {TOKEN_VARIABLE}, so there is no file; change it where it is set"
    )]
    NoFile,
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] StateDirError),
    /// The system gave no random numbers.
    #[error("the system gave no random numbers for a new token")]
    Random(#[source] io::Error),
}

impl TokenSource {
    /// Where the token lies, unless it comes from the environment.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Environment(_) => None,
            Self::File(path) => Some(path.clone()),
            Self::StateDir(state) => Some(state.token()),
        }
    }

    /// The token, as a client needs it: nothing is created.
    ///
    /// # Errors
    /// If there is none, or one that must not be used.
    pub fn read(&self) -> Result<SecretToken, TokenError> {
        match self {
            Self::Environment(token) => Ok(token.clone()),
            Self::File(path) => read_file(path).map(|(token, _)| token),
            Self::StateDir(state) => read_file(&state.token()).map(|(token, _)| token),
        }
    }

    /// Makes the state directory's token where it is missing. Two servers that start together end with the same one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn ensure(&self) -> Result<(), TokenError> {
        let Self::StateDir(state) = self else {
            return Ok(());
        };
        state.create()?;
        // A name that exists is left to `read`, whatever it is: a dangling link must not be written through.
        if fs::symlink_metadata(state.token()).is_err() {
            let token = generate()?;
            state.write_new(&state.token(), line(&token).as_bytes())?;
        }
        Ok(())
    }

    /// Replaces the token by a fresh one. A server half that runs takes it up by itself.
    ///
    /// # Errors
    /// If the token does not come from a file, or the file cannot be written.
    pub fn rotate(&self) -> Result<PathBuf, TokenError> {
        let path = self.path().ok_or(TokenError::NoFile)?;
        let token = generate()?;
        let directory = if let Self::StateDir(state) = self {
            state.clone()
        } else {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            StateDir::locate(Some(parent.map_or_else(|| ".".into(), Path::to_owned)))?
        };
        directory.write(&path, line(&token).as_bytes())?;
        Ok(path)
    }
}

/// The content of a token's file.
fn line(token: &SecretToken) -> Zeroizing<String> {
    Zeroizing::new(format!("{}\n", token.expose()))
}

/// A fresh token of 256 bits from the operating system.
fn generate() -> Result<SecretToken, TokenError> {
    let mut entropy = [0_u8; TOKEN_ENTROPY_BYTES];
    SysRng
        .try_fill_bytes(&mut entropy)
        .map_err(|error| TokenError::Random(io::Error::other(error)))?;
    let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(entropy));
    entropy.zeroize();
    Ok(SecretToken::new(&text).expect("base64 is visible ASCII of a fitting length"))
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            length: metadata.len(),
        }
    }
}

/// Reads and judges the token file `path`.
fn read_file(path: &Path) -> Result<(SecretToken, Stamp), TokenError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => TokenError::Missing {
            path: path.to_owned(),
        },
        _ => TokenError::Unreadable {
            path: path.to_owned(),
            source,
        },
    };
    let file = fs::File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode() & 0o7777;
    // A pipe of the shell (`--token-file <(…)`) has no permissions worth judging.
    if metadata.is_file() && mode & FOREIGN_ACCESS != 0 {
        return Err(TokenError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = Zeroizing::new(String::new());
    // One byte past the limit and a line end tell a longer file from one that fits.
    file.take(TOKEN_BYTES_MAX as u64 + 3)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    let token = SecretToken::new(&text).map_err(|problem| TokenError::Content {
        path: path.to_owned(),
        problem,
    })?;
    Ok((token, Stamp::of(&metadata)))
}

/// Judges callers' tokens.
///
/// A token that comes from a file follows the file: a change is noticed within a second, and at once when a
/// caller's token does not match. Until the file is usable again the last usable token stays valid.
pub struct TokenGate {
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

struct Known {
    digest: [u8; 32],
    stamp: Option<Stamp>,
    checked: Instant,
}

impl fmt::Debug for TokenGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenGate")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl TokenGate {
    /// Reads the token, making the state directory's own where it is missing.
    ///
    /// # Errors
    /// If there is none, or one that must not be used.
    pub fn open(source: &TokenSource) -> Result<Self, TokenError> {
        source.ensure()?;
        let file = source.path();
        let (token, stamp) = match (&file, source) {
            (Some(path), _) => read_file(path).map(|(token, stamp)| (token, Some(stamp)))?,
            (None, source) => (source.read()?, None),
        };
        if token.expose().len() < TOKEN_BYTES_WEAK {
            tracing::warn!(
                "the token is shorter than {TOKEN_BYTES_WEAK} characters and can be guessed; \
                 make a better one with: tunnel-server token --rotate"
            );
        }
        Ok(Self {
            file,
            known: Mutex::new(Known {
                digest: digest(token.expose().as_bytes()),
                stamp,
                checked: Instant::now(),
            }),
        })
    }

    /// Whether `candidate` is the token, in time that does not depend on where the two differ.
    pub fn accepts(&self, candidate: &[u8]) -> bool {
        let candidate = digest(candidate);
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.checked.elapsed() >= RECHECK {
            self.refresh(&mut known);
        }
        let matches = |known: &Known| bool::from(known.digest.ct_eq(&candidate));
        if matches(&known) {
            return true;
        }
        self.refresh(&mut known);
        matches(&known)
    }

    /// Takes up the file's token when the file changed. A look at the file's metadata is a few microseconds.
    fn refresh(&self, known: &mut Known) {
        let Some(path) = &self.file else { return };
        known.checked = Instant::now();
        let stamp = fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
        if stamp.is_some() && stamp == known.stamp {
            return;
        }
        match read_file(path) {
            Ok((token, stamp)) => {
                known.digest = digest(token.expose().as_bytes());
                known.stamp = Some(stamp);
                tracing::info!("took up the new token");
            }
            Err(error) if known.stamp.is_some() => {
                tracing::warn!("keeping the known token: {error}");
                known.stamp = None;
            }
            Err(_) => {}
        }
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDir) {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(base.path().join("yonder"))).unwrap();
        (base, state)
    }

    #[test]
    fn the_first_start_makes_a_token_and_the_second_keeps_it() {
        let (_base, state) = state();
        let source = TokenSource::StateDir(state);
        assert!(matches!(source.read(), Err(TokenError::Missing { .. })));
        let gate = TokenGate::open(&source).unwrap();
        let token = source.read().unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(token.expose()).unwrap().len(), 32);
        assert!(gate.accepts(token.expose().as_bytes()));
        assert!(!gate.accepts(b""));
        assert!(
            TokenGate::open(&source)
                .unwrap()
                .accepts(token.expose().as_bytes())
        );
    }

    #[test]
    fn a_rotated_token_is_taken_up_at_once() {
        let (_base, state) = state();
        let source = TokenSource::StateDir(state);
        let gate = TokenGate::open(&source).unwrap();
        let old = source.read().unwrap();
        source.rotate().unwrap();
        let new = source.read().unwrap();
        assert!(gate.accepts(new.expose().as_bytes()));
        assert!(!gate.accepts(old.expose().as_bytes()));
    }

    #[test]
    fn a_file_that_became_unusable_leaves_the_known_token() {
        let (_base, state) = state();
        let source = TokenSource::StateDir(state.clone());
        let gate = TokenGate::open(&source).unwrap();
        let token = source.read().unwrap();
        fs::remove_file(state.token()).unwrap();
        assert!(!gate.accepts(b"wrong"));
        assert!(gate.accepts(token.expose().as_bytes()));
    }

    #[test]
    fn exposed_empty_and_odd_files_are_refused() {
        let (_base, state) = state();
        state.create().unwrap();
        let source = TokenSource::StateDir(state.clone());
        for (content, mode, words) in [
            ("secret-secret-secret", 0o644, "chmod 600"),
            ("secret-secret-secret", 0o640, "chmod 600"),
            ("\n", 0o600, "the token is empty"),
            ("two words", 0o600, "visible ASCII"),
            (&"x".repeat(5_000), 0o600, "longer than"),
        ] {
            fs::write(state.token(), content).unwrap();
            fs::set_permissions(state.token(), fs::Permissions::from_mode(mode)).unwrap();
            let error = TokenGate::open(&source).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(!error.to_string().contains("secret-"), "{error}");
        }
    }

    #[test]
    fn debug_hides_the_token() {
        let token = SecretToken::new("hush-hush").unwrap();
        let shown = format!("{:?}", TokenSource::Environment(token));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
