//! Joins command line, environment and configuration file into what the commands run on.
//!
//! Keys of the file and variables of the environment are the long names of the flags; `KEYS` lists them all, and a
//! test holds it against the command line. Nothing behind this module looks at a flag, a variable or the file again.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::{Table, Value};
use yonder_protocol::limits;
use yonder_transport::token::SecretToken;

use crate::cli::{CommonOptions, ServeOptions, ServerOptions};
use crate::exit::Failure;
use crate::hub::egress::{Egress, EgressConfig};
use crate::logging::LogFormat;
use crate::state_dir::StateDir;
use crate::token::{TOKEN_VARIABLE, TokenError, TokenSource};

/// Prefix of every variable.
const VARIABLE_PREFIX: &str = "YONDER_";

/// Where the server half listens unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7070";

/// What running work gets when the server is stopped, unless told otherwise: as long as most operations take.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// The longest such time: supervisors kill what takes longer.
const GRACE_MAX: Duration = Duration::from_hours(1);

/// The session of callers that name none.
pub const DEFAULT_SESSION: &str = "default";

/// How the text of a variable becomes a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// As it is.
    Text,
    /// `1`, `true`, `yes`, `on`, or their opposites.
    Switch,
    /// A whole number.
    Number,
    /// Separated by commas.
    List,
}

/// Which struct a key belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Common,
    Serve,
}

/// Every key of the configuration file.
const KEYS: &[(&str, Part, Kind)] = &[
    ("state-dir", Part::Common, Kind::Text),
    ("token-file", Part::Common, Kind::Text),
    ("log", Part::Common, Kind::Text),
    ("log-format", Part::Common, Kind::Text),
    ("listen", Part::Serve, Kind::Text),
    ("tls-cert", Part::Serve, Kind::Text),
    ("tls-key", Part::Serve, Kind::Text),
    ("tls-self-signed", Part::Serve, Kind::Switch),
    ("plaintext", Part::Serve, Kind::Switch),
    ("path-prefix", Part::Serve, Kind::Text),
    ("allow-origin", Part::Serve, Kind::List),
    ("grace", Part::Serve, Kind::Number),
    ("resume-grace", Part::Serve, Kind::Number),
    ("egress", Part::Serve, Kind::Text),
    ("allow-host", Part::Serve, Kind::List),
    ("allow-network", Part::Serve, Kind::List),
    ("deny-network", Part::Serve, Kind::List),
    ("allow-metadata", Part::Serve, Kind::Switch),
    ("capture-dir", Part::Serve, Kind::Text),
    ("upload-root", Part::Serve, Kind::List),
];

/// What every command runs on.
#[derive(Debug)]
pub struct Common {
    /// Where token, keys and captures lie.
    pub state_dir: StateDir,
    /// Where the token comes from.
    pub token: TokenSource,
    /// What to log, if anything was said about it.
    pub log: Option<String>,
    /// Form of the log.
    pub log_format: LogFormat,
}

/// How the server half shows itself: plain or with TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TlsMode {
    /// No TLS.
    Off,
    /// A certificate of the administrator's.
    Files {
        /// Chain, PEM.
        certificate: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
    },
    /// A key of our own, kept in the state directory.
    SelfSigned,
}

/// What `serve` runs on, apart from [`Common`].
#[derive(Clone, Debug)]
pub struct Serve {
    /// `host:port`.
    pub listen: String,
    /// Plain or TLS.
    pub tls: TlsMode,
    /// Whether other machines may be served without TLS.
    pub plaintext: bool,
    /// Empty, or `/a/b` without a slash at its end.
    pub path_prefix: String,
    /// Origins whose web pages may send requests, as browsers write them.
    pub allow_origin: BTreeSet<String>,
    /// What running work gets when the server is stopped.
    pub grace: Duration,
    /// How long the tunnels of a desktop wait for it after its last carrier was lost.
    pub resume_grace: Duration,
    /// Which targets may be dialled.
    pub egress: Egress,
    /// Where files that the browser makes are saved.
    pub capture_dir: PathBuf,
    /// Folders below which files for pages may be read; none means the working directory.
    pub upload_roots: Vec<PathBuf>,
    /// Whether it was started for `ssh://` and ends by itself when it is not used any more.
    pub background: bool,
}

/// What environment and configuration file say.
#[derive(Debug, Default)]
pub struct Layers {
    environment: (CommonOptions, ServeOptions),
    file: (CommonOptions, ServeOptions),
}

impl Layers {
    /// Reads the environment, and the file `config` or else the one that `YONDER_CONFIG` names.
    ///
    /// # Errors
    /// Of class usage, naming the variable or the file and key at fault.
    pub fn read(config: Option<&Path>) -> Result<Self, Failure> {
        let mut variables = Table::new();
        for (key, _, kind) in KEYS {
            let name = variable_name(key);
            if let Some(text) = variable(&name)? {
                variables.insert((*key).to_owned(), kind.parse(&name, text)?);
            }
        }
        let environment = split(variables, "the environment")?;
        let named = variable(&variable_name("config"))?.map(PathBuf::from);
        let file = match config.map(Path::to_owned).or(named) {
            Some(path) => read_file(&path)?,
            None => Default::default(),
        };
        Ok(Self { environment, file })
    }

    /// The options of every command.
    ///
    /// # Errors
    /// Of class usage.
    pub fn common(&self, flags: CommonOptions) -> Result<Common, Failure> {
        let (environment, file) = (&self.environment.0, &self.file.0);
        let state_dir = StateDir::locate(
            flags
                .state_dir
                .or_else(|| environment.state_dir.clone())
                .or_else(|| file.state_dir.clone()),
        )
        .map_err(Failure::usage)?;
        let secret = variable(TOKEN_VARIABLE)?
            .map(|text| SecretToken::new(&text).map_err(TokenError::Environment))
            .transpose()
            .map_err(Failure::usage);
        let token_file = environment
            .token_file
            .clone()
            .or_else(|| file.token_file.clone());
        // The variable's text is judged only where it is used: a flag that overrides it also overrides its faults.
        let token = if let Some(path) = flags.token_file {
            TokenSource::File(path)
        } else if let Some(token) = secret? {
            TokenSource::Environment(token)
        } else if let Some(path) = token_file {
            TokenSource::File(path)
        } else {
            TokenSource::StateDir(state_dir.clone())
        };
        Ok(Common {
            state_dir,
            token,
            log: flags
                .log
                .or_else(|| environment.log.clone())
                .or_else(|| file.log.clone()),
            log_format: flags
                .log_format
                .or(environment.log_format)
                .or(file.log_format)
                .unwrap_or_default(),
        })
    }

    /// The options of `serve`.
    ///
    /// # Errors
    /// Of class usage, for options that are wrong in themselves or do not go together.
    pub fn serve(&self, flags: ServeOptions, state_dir: &StateDir) -> Result<Serve, Failure> {
        let options = flags.or(self.environment.1.clone()).or(self.file.1.clone());
        let self_signed = options.tls_self_signed.unwrap_or(false);
        let tls = match (options.tls_cert, options.tls_key, self_signed) {
            (None, None, false) => TlsMode::Off,
            (None, None, true) => TlsMode::SelfSigned,
            (Some(certificate), Some(key), false) => TlsMode::Files { certificate, key },
            (Some(_), None, _) => {
                return Err(Failure::usage("--tls-cert needs --tls-key beside it"));
            }
            (None, Some(_), _) => {
                return Err(Failure::usage("--tls-key needs --tls-cert beside it"));
            }
            (Some(_), Some(_), true) => {
                return Err(Failure::usage(
                    "--tls-self-signed and --tls-cert exclude each other; choose one certificate",
                ));
            }
        };
        let plaintext = options.plaintext.unwrap_or(false);
        if plaintext && tls != TlsMode::Off {
            return Err(Failure::usage(
                "--plaintext and TLS exclude each other; choose one",
            ));
        }
        let grace = options.grace.map_or(DEFAULT_GRACE, Duration::from_secs);
        let resume_grace = options
            .resume_grace
            .map_or(limits::RESUME_GRACE, Duration::from_secs);
        if resume_grace > GRACE_MAX {
            return Err(Failure::usage(format!(
                "resume-grace: at most {} seconds are allowed",
                GRACE_MAX.as_secs()
            )));
        }
        if grace > GRACE_MAX {
            return Err(Failure::usage(format!(
                "grace: at most {} seconds are allowed",
                GRACE_MAX.as_secs()
            )));
        }
        Ok(Serve {
            listen: options.listen.unwrap_or_else(|| DEFAULT_LISTEN.to_owned()),
            tls,
            plaintext,
            path_prefix: path_prefix(options.path_prefix.as_deref().unwrap_or(""))?,
            allow_origin: options
                .allow_origin
                .iter()
                .map(|text| origin(text))
                .collect::<Result<_, _>>()?,
            grace,
            resume_grace,
            egress: Egress::new(&EgressConfig {
                mode: options.egress.unwrap_or_default(),
                deny: options.deny_network,
                allow_hosts: options.allow_host,
                allow: options.allow_network,
                allow_metadata: options.allow_metadata.unwrap_or(false),
            })
            .map_err(Failure::usage)?,
            capture_dir: options.capture_dir.unwrap_or_else(|| state_dir.captures()),
            upload_roots: options.upload_root,
            background: false,
        })
    }
}

impl ServerOptions {
    /// These options, and what the environment says where they are not set.
    ///
    /// # Errors
    /// If a variable is not text.
    pub(crate) fn or_environment(self) -> Result<Self, Failure> {
        Ok(Self {
            server: match self.server {
                None => variable("YONDER_SERVER")?,
                set => set,
            },
            ca: match self.ca {
                None => variable("YONDER_CA")?.map(PathBuf::from),
                set => set,
            },
            pin: match self.pin {
                None => variable("YONDER_PIN")?,
                set => set,
            },
        })
    }
}

/// The session that a caller means.
///
/// # Errors
/// If it is no name of a session.
pub fn session(flag: Option<String>) -> Result<String, Failure> {
    let name = match flag {
        Some(name) => name,
        None => variable("YONDER_SESSION")?.unwrap_or_else(|| DEFAULT_SESSION.to_owned()),
    };
    if is_session_name(&name) {
        Ok(name)
    } else {
        Err(Failure::usage(format!(
            "a session's name has 1 to {} letters, digits, '.', '_' and '-'",
            limits::SESSION_NAME_BYTES
        )))
    }
}

/// Whether `name` can be the name of a browser session.
pub fn is_session_name(name: &str) -> bool {
    (1..=limits::SESSION_NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn variable_name(key: &str) -> String {
    format!(
        "{VARIABLE_PREFIX}{}",
        key.replace('-', "_").to_ascii_uppercase()
    )
}

/// The variable `name`; an empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name} is not valid UTF-8")))
        }
    }
}

impl Kind {
    fn parse(self, name: &str, text: String) -> Result<Value, Failure> {
        match self {
            Self::Text => Ok(Value::String(text)),
            Self::List => Ok(text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect::<Vec<_>>()
                .into()),
            Self::Switch => match text.as_str() {
                "1" | "true" | "yes" | "on" => Ok(true.into()),
                "0" | "false" | "no" | "off" => Ok(false.into()),
                _ => Err(Failure::usage(format!("{name}: expected true or false"))),
            },
            Self::Number => text
                .parse::<i64>()
                .map(Value::Integer)
                .map_err(|_| Failure::usage(format!("{name}: expected a whole number"))),
        }
    }
}

/// Deals the keys out to the two structs.
fn split(table: Table, origin: &str) -> Result<(CommonOptions, ServeOptions), Failure> {
    let (mut common, mut serve) = (Table::new(), Table::new());
    for (key, value) in table {
        let Some((_, part, _)) = KEYS.iter().find(|(known, ..)| *known == key) else {
            let known: Vec<_> = KEYS.iter().map(|(known, ..)| *known).collect();
            return Err(Failure::usage(format!(
                "{origin}: unknown key {key:?}; the keys are {}",
                known.join(", ")
            )));
        };
        match part {
            Part::Common => common.insert(key, value),
            Part::Serve => serve.insert(key, value),
        };
    }
    Ok((typed(common, origin)?, typed(serve, origin)?))
}

fn typed<T: DeserializeOwned>(table: Table, origin: &str) -> Result<T, Failure> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        Failure::usage(format!(
            "{origin}: {path}: {}",
            reason.trim().replace('\n', " ")
        ))
    })
}

fn read_file(path: &Path) -> Result<(CommonOptions, ServeOptions), Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "cannot read the configuration file {}: {error}",
            path.display()
        ))
    })?;
    let origin = path.display().to_string();
    let table = text
        .parse::<Table>()
        .map_err(|error| Failure::usage(format!("{origin}: {}", error.to_string().trim_end())))?;
    split(table, &origin)
}

/// `/a/b` without a slash at its end, or nothing.
fn path_prefix(text: &str) -> Result<String, Failure> {
    let path = text.trim_end_matches('/');
    let valid = path.is_empty()
        || path.strip_prefix('/').is_some_and(|segments| {
            segments.split('/').all(|segment| {
                !segment.is_empty()
                    && segment != "."
                    && segment != ".."
                    && segment.bytes().all(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
                    })
            })
        });
    if valid {
        Ok(path.to_owned())
    } else {
        // Other characters are rewritten by one proxy or another on their way.
        Err(Failure::usage(
            "path-prefix: expected a path such as /tunnel, of letters, digits, '.', '_' and '-'",
        ))
    }
}

/// A web origin as browsers write it in `Origin`.
fn origin(text: &str) -> Result<String, Failure> {
    url::Url::parse(text)
        .ok()
        .filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none()
        })
        .map(|url| url.origin().ascii_serialization())
        .ok_or_else(|| {
            Failure::usage(
                "allow-origin: expected an origin such as https://inspector.example:6274",
            )
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn file(text: &str) -> Result<Layers, Failure> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        Ok(Layers {
            file: read_file(file.path())?,
            ..Layers::default()
        })
    }

    fn state() -> StateDir {
        StateDir::locate(Some("/nowhere".into())).unwrap()
    }

    #[test]
    fn keys_are_the_flags() {
        let command = Cli::command();
        let flags: BTreeSet<_> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .filter(|flag| !["config", "help", "version"].contains(flag))
            .collect();
        let keys: BTreeSet<_> = KEYS.iter().map(|(key, ..)| *key).collect();
        assert_eq!(flags, keys);
    }

    #[test]
    fn flags_win_over_the_file() {
        let layers =
            file("listen = \"127.0.0.1:1\"\ngrace = 3\nallow-origin = [\"http://a\"]\n").unwrap();
        let flags = ServeOptions {
            listen: Some("127.0.0.1:2".into()),
            ..ServeOptions::default()
        };
        let serve = layers.serve(flags, &state()).unwrap();
        assert_eq!(serve.listen, "127.0.0.1:2");
        assert_eq!(serve.grace, Duration::from_secs(3));
        assert!(serve.allow_origin.contains("http://a"));
    }

    #[test]
    fn faults_of_the_file_name_the_key() {
        for (text, words) in [
            (
                "lisen = \"x\"",
                "unknown key \"lisen\"; the keys are state-dir",
            ),
            ("grace = \"x\"", "grace: invalid type"),
            ("egress = \"open\"", "egress: unknown variant `open`"),
            ("allow-host = [1]", "allow-host"),
            ("listen = ", "line 1"),
        ] {
            let error = file(text).unwrap_err();
            assert_eq!(error.exit(), crate::exit::Exit::Usage);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for text in [
            "tls-cert = \"a\"",
            "tls-key = \"a\"",
            "tls-cert = \"a\"\ntls-key = \"b\"\ntls-self-signed = true",
            "plaintext = true\ntls-self-signed = true",
            "path-prefix = \"a\"",
            "path-prefix = \"/a/../b\"",
            "path-prefix = \"/a%2Fb\"",
            "grace = 100000",
            "allow-origin = [\"https://a/path\"]",
            "allow-origin = [\"*\"]",
            "deny-network = [\"10.0.0.0/40\"]",
        ] {
            let layers = file(text).unwrap();
            assert!(
                layers.serve(ServeOptions::default(), &state()).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn prefix_and_origin_take_their_canonical_form() {
        assert_eq!(path_prefix("/a/b/").unwrap(), "/a/b");
        assert_eq!(path_prefix("/").unwrap(), "");
        assert_eq!(
            origin("HTTPS://A.example:443").unwrap(),
            "https://a.example"
        );
    }

    #[test]
    fn session_names_are_checked() {
        assert!(is_session_name("default"));
        assert!(!is_session_name(""));
        assert!(!is_session_name("a/b"));
        assert!(!is_session_name(&"a".repeat(65)));
    }
}
