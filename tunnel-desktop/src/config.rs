//! The configuration file: TOML, every key checked, relative paths taken from the file's own folder.
//!
//! ```toml
//! browser = "/usr/bin/chromium"
//!
//! [servers.work]
//! url = "https://dev.example.com/yonder"
//! token-file = "work.token"
//! pin = "sha256:…"
//! headers = { "CF-Access-Client-Id" = "…" }
//!
//! [servers.build]
//! url = "ssh://me@build.example"
//! ssh-remote = "/opt/yonder/tunnel-server"
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli::{AuthHeader, LogFormat};

/// Longest configuration file that is read; a guard against a wrong path such as a device.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) log: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) session: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) browser: Option<PathBuf>,
    /// Program for `ssh://` with its arguments.
    pub(crate) ssh: Option<String>,
    /// What starts the server half at the far end of `ssh://`.
    pub(crate) ssh_remote: Option<String>,
    #[serde(default)]
    pub(crate) headless: bool,
    #[serde(default)]
    pub(crate) no_sandbox: bool,
    /// What SERVER is when none is given.
    pub(crate) server: Option<String>,
    #[serde(default)]
    pub(crate) servers: BTreeMap<String, Server>,
}

/// One named server half.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    #[serde(default)]
    pub(crate) pin: OneOrMany,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) auth_header: Option<AuthHeader>,
    /// As the general one, for this server alone.
    pub(crate) ssh: Option<String>,
    /// As the general one, for this server alone.
    pub(crate) ssh_remote: Option<String>,
}

impl std::fmt::Debug for Server {
    /// Without the headers' values, which may be secrets of whatever stands in front of the server half.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

/// A string, or a list of strings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    /// The strings.
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("could not read the configuration file {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is longer than any configuration.
    #[error("the configuration file {path} is larger than {FILE_BYTES_MAX} bytes; is it the right file?", path = path.display())]
    TooLong { path: PathBuf },
    /// It is not TOML, or a key or value does not fit.
    #[error("the configuration file {path} is not valid{place}: {problem}", path = path.display())]
    Invalid {
        path: PathBuf,
        /// ` at servers.work.url`, or nothing where the text is not TOML at all.
        place: String,
        problem: String,
    },
}

impl Config {
    /// Reads `path`.
    ///
    /// # Errors
    /// As [`ConfigError`] lists them; all are the person's to mend.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_bounded(path).map_err(|source| {
            if source.kind() == io::ErrorKind::FileTooLarge {
                ConfigError::TooLong { path: path.into() }
            } else {
                ConfigError::Read {
                    path: path.into(),
                    source,
                }
            }
        })?;
        let mut config = Self::parse(&text).map_err(|(place, problem)| ConfigError::Invalid {
            path: path.into(),
            place,
            problem,
        })?;
        config.anchor(path.parent().unwrap_or_else(|| Path::new("")));
        Ok(config)
    }

    /// Reads `text`; a failure is the place of the key and the problem.
    fn parse(text: &str) -> Result<Self, (String, String)> {
        let one_line = |text: &str| text.trim_end().replace('\n', " ");
        let reader = toml::Deserializer::parse(text)
            .map_err(|error| (String::new(), one_line(&error.to_string())))?;
        let config: Self = serde_path_to_error::deserialize(reader).map_err(|error| {
            let place = match error.path().to_string().as_str() {
                "." => String::new(),
                path => format!(" at {path}"),
            };
            (place, one_line(error.inner().message()))
        })?;
        for name in config.servers.keys() {
            if !is_server_name(name) {
                return Err((
                    format!(" at servers.{name}"),
                    "the name of a server must begin with a letter, hold only letters, digits, '-', '_' and '.', \
                     and not be `local`, which is this machine's own"
                        .to_owned(),
                ));
            }
        }
        Ok(config)
    }

    /// Makes relative paths mean files beside the configuration file, wherever the command is run.
    fn anchor(&mut self, folder: &Path) {
        let anchored = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = folder.join(&*path);
            }
        };
        anchored(&mut self.state_dir);
        anchored(&mut self.token_file);
        for server in self.servers.values_mut() {
            anchored(&mut server.token_file);
            anchored(&mut server.ca);
        }
    }
}

/// Whether `name` may name a server: unlike any URL and any forward, so that a word has one meaning.
pub(crate) fn is_server_name(name: &str) -> bool {
    name != crate::settings::LOCAL
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The text of `path`, refused with [`io::ErrorKind::FileTooLarge`] beyond [`FILE_BYTES_MAX`].
fn read_bounded(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_read() {
        let config = Config::parse(
            r#"
            log = "debug"
            log-format = "json"
            headless = true
            server = "work"
            [servers.work]
            url = "https://dev.example.com/yonder"
            token-file = "work.token"
            pin = "sha256:00"
            headers = { "X-Access" = "secret" }
            auth-header = "yonder-token"
            "#,
        )
        .unwrap();
        let work = &config.servers["work"];
        assert_eq!(work.pin.as_slice(), ["sha256:00"]);
        assert_eq!(work.auth_header, Some(AuthHeader::YonderToken));
        assert!(config.headless);
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let (place, problem) = Config::parse("[servers.work]\nurl = 3").unwrap_err();
        assert_eq!(place, " at servers.work.url");
        assert!(problem.contains("string"), "{problem}");
        let (_, problem) = Config::parse("colour = 1").unwrap_err();
        assert!(
            problem.contains("colour") && problem.contains("log-format"),
            "{problem}"
        );
        let (place, problem) = Config::parse("[servers.work]").unwrap_err();
        assert_eq!(place, " at servers.work");
        assert!(problem.contains("url"), "{problem}");
        assert!(Config::parse("a = = b").is_err());
    }

    #[test]
    fn server_names_cannot_be_mistaken() {
        for bad in ["local", "8080", "a/b", "", "a:1"] {
            assert!(!is_server_name(bad), "{bad}");
        }
        assert!(is_server_name("work-2.eu"));
        let (place, _) = Config::parse("[servers.8080]\nurl = 'http://x'").unwrap_err();
        assert_eq!(place, " at servers.8080");
    }

    #[test]
    fn relative_paths_lie_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desktop.toml");
        std::fs::write(&path, "token-file = 'token'\nstate-dir = '/abs'").unwrap();
        let config = Config::read(&path).unwrap();
        assert_eq!(config.token_file, Some(folder.path().join("token")));
        assert_eq!(config.state_dir, Some(PathBuf::from("/abs")));
    }
}
