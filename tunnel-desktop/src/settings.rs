//! What the command line, the environment and the configuration file say together.
//!
//! Only here is decided which of them wins: flags (and the environment, which clap reads into them), then the named
//! server's entry of the file, then the file's general part, then the default.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use yonder_protocol::link::SessionName;
use yonder_transport::address::ServerAddress;
use yonder_transport::connect::{self, Connector, ConnectorConfig};
use yonder_transport::ssh::{SshAddress, SshConfig, SshConnector, words};
use yonder_transport::tls::{Pin, TlsOptions};
use yonder_transport::token::SecretToken;

use crate::cli::{AuthHeader, GlobalArgs, LogFormat, ServerArgs};
use crate::config::{Config, Server, is_server_name};
use crate::failure::{Exit, Failure};
use crate::state_dir::{StateDir, environment_folder};
use crate::token;
use crate::way::{Way, person_is_there};

/// The word that means the server half on this machine.
pub(crate) const LOCAL: &str = "local";

/// Name of the configuration file in its usual folder.
const CONFIG_FILE: &str = "desktop.toml";

/// The program behind `ssh://` unless another is named.
const SSH: &str = "ssh";

/// The browser session where none is named.
const DEFAULT_SESSION: &str = "default";

/// What holds for every command.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    state_dir: Option<StateDir>,
    log: Option<String>,
    log_format: LogFormat,
}

impl Settings {
    /// Reads the configuration file and joins it with `global`.
    ///
    /// # Errors
    /// If a named file cannot be read or is not valid.
    pub(crate) fn read(global: GlobalArgs) -> Result<Self, Failure> {
        let path = global.config.or_else(|| {
            environment_folder("XDG_CONFIG_HOME", ".config")
                .map(|folder| folder.join(CONFIG_FILE))
                .filter(|path| path.is_file())
        });
        let config = match path {
            Some(path) => Config::read(&path).map_err(|error| Failure::new(Exit::Usage, error))?,
            None => Config::default(),
        };
        Ok(Self {
            state_dir: StateDir::new(global.state_dir.or_else(|| config.state_dir.clone())),
            log: global.log.or_else(|| config.log.clone()),
            log_format: global.log_format.or(config.log_format).unwrap_or_default(),
            config,
        })
    }

    /// What to log.
    pub(crate) fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// In which form.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// The state directory.
    ///
    /// # Errors
    /// If nothing says where it is.
    pub(crate) fn state_dir(&self) -> Result<&StateDir, Failure> {
        self.state_dir.as_ref().ok_or_else(|| {
            Failure::usage(
                "neither HOME nor XDG_STATE_HOME says where the state directory is; set --state-dir",
            )
        })
    }

    /// The session called `flag`, or as the file says, or the default one.
    ///
    /// # Errors
    /// If it is not a name.
    pub(crate) fn session(&self, flag: Option<String>) -> Result<SessionName, Failure> {
        let name = flag
            .or_else(|| self.config.session.clone())
            .unwrap_or_else(|| DEFAULT_SESSION.to_owned());
        name.parse().map_err(|error| {
            Failure::usage(format!("{name:?} cannot name a browser session: {error}"))
        })
    }

    /// Whether `word` can only be meant as a server.
    pub(crate) fn names_server(&self, word: &str) -> bool {
        word == LOCAL || word.contains("://") || self.config.servers.contains_key(word)
    }

    /// How to reach the server half `word` stands for.
    ///
    /// # Errors
    /// If it stands for none, or a setting is not valid. The token is read here where one is needed, so its file is
    /// judged too.
    pub(crate) fn way(&self, word: Option<&str>, args: &ServerArgs) -> Result<Way, Failure> {
        let word = word.or(self.config.server.as_deref()).unwrap_or(LOCAL);
        let named = self.config.servers.get(word);
        let url = match named {
            Some(server) => server.url.clone(),
            None if word == LOCAL => self.state_dir()?.local_server_url(),
            None if word.contains("://") => word.to_owned(),
            None => return Err(self.unknown_server(word)),
        };
        // Addresses that are none are not repeated: they may hold a password.
        if url.trim().to_ascii_lowercase().starts_with("ssh://") {
            let address = url
                .parse::<SshAddress>()
                .map_err(|error| Failure::new(Exit::Usage, error))?;
            return self.ssh(address, named, args);
        }
        let address = url
            .parse::<ServerAddress>()
            .map_err(|error| Failure::new(Exit::Usage, error))?;
        let auth_header = args
            .auth_header
            .or_else(|| named.and_then(|server| server.auth_header))
            .unwrap_or_default();
        let config = ConnectorConfig {
            address,
            token: self.token(named, args)?,
            tls: tls_options(named, args)?,
            headers: headers(named, args)?,
            auth_header: match auth_header {
                AuthHeader::Authorization => connect::AuthHeader::Authorization,
                AuthHeader::YonderToken => connect::AuthHeader::YonderToken,
            },
            force: None,
        };
        Connector::new(config)
            .map(|connector| Way::Http(Arc::new(connector)))
            .map_err(|error| Failure::new(Exit::Usage, error))
    }

    /// The way through `ssh`. Token, certificates and headers mean nothing there.
    fn ssh(
        &self,
        address: SshAddress,
        named: Option<&Server>,
        args: &ServerArgs,
    ) -> Result<Way, Failure> {
        let program = args
            .ssh
            .as_ref()
            .or_else(|| named.and_then(|server| server.ssh.as_ref()))
            .or(self.config.ssh.as_ref())
            .map_or(SSH, String::as_str);
        let program = words(program).map_err(|error| Failure::usage(format!("ssh: {error}")))?;
        let remote = args
            .ssh_remote
            .as_ref()
            .or_else(|| named.and_then(|server| server.ssh_remote.as_ref()))
            .or(self.config.ssh_remote.as_ref())
            .cloned();
        if remote.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Failure::usage("ssh-remote: the command is empty"));
        }
        SshConnector::new(SshConfig {
            address,
            program,
            remote,
            prompts: person_is_there(),
        })
        .map(|connector| Way::Ssh(Arc::new(connector)))
        .map_err(|error| Failure::new(Exit::Usage, error))
    }

    fn unknown_server(&self, word: &str) -> Failure {
        let known: Vec<_> = self.config.servers.keys().map(String::as_str).collect();
        let hint = if known.is_empty() {
            "the configuration file names none".to_owned()
        } else {
            format!("the configuration file names {}", known.join(", "))
        };
        let url = if is_server_name(word) {
            String::new()
        } else {
            format!("write http://{word} or https://{word}, or ")
        };
        Failure::usage(format!(
            "there is no server {word:?}; {url}use a server's address or name ({hint})"
        ))
    }

    fn token(&self, named: Option<&Server>, args: &ServerArgs) -> Result<SecretToken, Failure> {
        let refused = |error| Failure::new(Exit::Usage, error);
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let token = if let Some(path) = &args.token_file {
            token::read_file(path)
        } else if let Some(text) = variable("YONDER_TOKEN") {
            token::from_environment(&text.to_string_lossy())
        } else if let Some(path) = variable("YONDER_TOKEN_FILE") {
            token::read_file(&PathBuf::from(path))
        } else if let Some(path) = named
            .and_then(|server| server.token_file.as_ref())
            .or(self.config.token_file.as_ref())
        {
            token::read_file(path)
        } else {
            token::read_file(&self.state_dir()?.token_file())
        };
        token.map_err(refused)
    }
}

fn tls_options(named: Option<&Server>, args: &ServerArgs) -> Result<TlsOptions, Failure> {
    let pins = if args.pin.is_empty() {
        named.map_or(&[][..], |server| server.pin.as_slice())
    } else {
        &args.pin
    };
    let pins = pins
        .iter()
        .map(|text| {
            text.parse::<Pin>()
                .map_err(|error| Failure::usage(format!("{text:?} is not a pin: {error}")))
        })
        .collect::<Result<_, _>>()?;
    Ok(TlsOptions {
        ca_file: args
            .ca
            .clone()
            .or_else(|| named.and_then(|server| server.ca.clone())),
        pins,
    })
}

/// What a person adds to every request; the connector judges which headers those may be. The file's headers, then those of the command line; a name given in both is the command line's.
fn headers(
    named: Option<&Server>,
    args: &ServerArgs,
) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let given = args
        .header
        .iter()
        .map(|text| {
            let (name, value) = text
                .split_once(':')
                .ok_or_else(|| Failure::usage("--header must have the form 'Name: value'"))?;
            header(name, value)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut headers = Vec::new();
    for (name, value) in named.iter().flat_map(|server| &server.headers) {
        let (name, value) = header(name, value)?;
        if given.iter().all(|(other, _)| *other != name) {
            headers.push((name, value));
        }
    }
    headers.extend(given);
    Ok(headers)
}

/// One header; its value is not repeated in errors, since it may be a secret.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let name = name.trim();
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| Failure::usage(format!("{name:?} is not the name of a header")))?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| {
        Failure::usage(format!(
            "the value of the header {parsed} holds characters that a header cannot carry"
        ))
    })?;
    value.set_sensitive(true);
    Ok((parsed, value))
}
