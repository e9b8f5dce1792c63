//! The command line: what a person may write, and nothing of what it means.
//!
//! Everything that the environment or the configuration file may also set stays optional here; [`crate::config`] joins
//! the three. Secrets have no flag.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use serde::Deserialize;

use crate::hub::egress::EgressMode;
use crate::logging::LogFormat;

const AFTER_HELP: &str = "\
Without a command, `serve` runs.

The token comes from --token-file, YONDER_TOKEN, YONDER_TOKEN_FILE, the configuration file, or the file `token` in the \
state directory, in this order. The last is created at the first start.

Flags win over the environment, the environment over the configuration file. Every long flag NAME of `serve` and of the \
list above is the key NAME of the configuration file and the variable YONDER_NAME, in capitals and with _ for -.

Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 could not reach the server half, 4 refused.";

/// The server half of Yonder: lends this machine's network to a browser on another desk.
#[derive(Debug, Parser)]
#[command(name = "tunnel-server", version, max_term_width = 110, after_help = AFTER_HELP, subcommand_negates_reqs = true)]
pub struct Cli {
    /// Configuration file, TOML [env: YONDER_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CommonOptions {
    /// Where token, keys and captures lie [default: $XDG_STATE_HOME/yonder, else ~/.local/state/yonder]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// File that holds the token; nobody but its owner may be able to read it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// What to log on standard error: off, error, warn, info, debug, trace, or a filter by module
    /// [default: info for serve, warn otherwise]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Form of the log [default: text]
    #[arg(long, global = true, value_enum)]
    pub(crate) log_format: Option<LogFormat>,
}

/// Options of `serve`.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ServeOptions {
    /// Address and port to listen on; `localhost` means both families, port 0 a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Certificate chain for TLS, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Make and keep a key of our own for TLS; desktops trust it with --pin
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(crate) tls_self_signed: Option<bool>,
    /// Serve an address other than loopback without TLS, for example inside a private network
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(crate) plaintext: Option<bool>,
    /// Path below which a reverse proxy shows this server, for the printed URL
    #[arg(long, value_name = "/PATH")]
    pub(crate) path_prefix: Option<String>,
    /// Web origin, such as `https://inspector.example`, whose pages may send requests; may be given again
    #[arg(long, value_name = "ORIGIN", action = ArgAction::Append)]
    pub(crate) allow_origin: Vec<String>,
    /// Seconds that running work gets when the server is stopped [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u64>,
    /// Seconds that the connections of a desktop wait for it after its network was cut [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) resume_grace: Option<u64>,
    /// Which targets tunnels may reach: `unrestricted`, `allowlist` (public addresses and what is allowed by the next
    /// two), or `strict` (public addresses alone) [default: unrestricted]
    #[arg(long, value_name = "MODE")]
    pub(crate) egress: Option<EgressMode>,
    /// Host, or with a leading dot a domain, that tunnels may reach in the mode allowlist; may be given again
    #[arg(long, value_name = "HOST", action = ArgAction::Append)]
    pub(crate) allow_host: Vec<String>,
    /// Address or network (CIDR) that tunnels may reach in the mode allowlist; may be given again
    #[arg(long, value_name = "NETWORK", action = ArgAction::Append)]
    pub(crate) allow_network: Vec<String>,
    /// Address or network (CIDR) that tunnels may not reach, whatever is allowed; may be given again
    #[arg(long, value_name = "NETWORK", action = ArgAction::Append)]
    pub(crate) deny_network: Vec<String>,
    /// Let tunnels reach the cloud's metadata service, which hands out this machine's credentials
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(crate) allow_metadata: Option<bool>,
    /// Where files that the browser makes are saved [default: `captures` in the state directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) capture_dir: Option<PathBuf>,
    /// Folder below which agents may have files read for pages; may be given again [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) upload_root: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve desktops and agents until stopped; prints `listening on URL` once ready
    Serve(ServeOptions),
    /// Print where the token lies and, on a terminal, how a desktop attaches
    Token(TokenOptions),
    /// Show desktops, tabs, tunnels and carriers of a running server half
    Status(StatusOptions),
    /// Run a browser operation; prints its result as JSON
    Call(CallOptions),
    /// Serve MCP over standard input and output, for agents on this machine
    Mcp(McpOptions),
    /// Check this machine and the running server half, and say what to do
    Doctor(DoctorOptions),
    /// Carry one link over standard input and output: the far end of ssh://
    Stdio,
    /// Serve desktops that come through `stdio`, until nobody uses it any more
    #[command(hide = true)]
    Background(BackgroundOptions),
}

#[derive(Args, Debug)]
pub(crate) struct TokenOptions {
    /// Replace the token by a fresh one; a running server half takes it up
    #[arg(long)]
    pub(crate) rotate: bool,
}

/// How a running server half is found and trusted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerOptions {
    /// URL of the running server half [default: the one that uses the same state directory] [env: YONDER_SERVER]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Further certificate authorities to trust, PEM [env: YONDER_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Trust exactly this public key and no authority [env: YONDER_PIN]
    #[arg(long, value_name = "sha256:HEX")]
    pub(crate) pin: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct StatusOptions {
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct CallOptions {
    /// Operation, for example tabs.list
    #[arg(value_name = "OPERATION")]
    pub(crate) operation: String,
    /// Arguments as a JSON object, or - to read them from standard input [default: {}]
    #[arg(value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Browser session [default: default] [env: YONDER_SESSION]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct McpOptions {
    /// Browser session [default: default] [env: YONDER_SESSION]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct BackgroundOptions {
    /// Seconds without use after which it ends: long enough for a person who tries again
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) unused: u64,
}

impl ServeOptions {
    /// These options where they are set, and `other`'s where they are not. Lists are replaced, not joined.
    pub(crate) fn or(self, other: Self) -> Self {
        fn list<T>(mine: Vec<T>, theirs: Vec<T>) -> Vec<T> {
            if mine.is_empty() { theirs } else { mine }
        }
        Self {
            listen: self.listen.or(other.listen),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_self_signed: self.tls_self_signed.or(other.tls_self_signed),
            plaintext: self.plaintext.or(other.plaintext),
            path_prefix: self.path_prefix.or(other.path_prefix),
            allow_origin: list(self.allow_origin, other.allow_origin),
            grace: self.grace.or(other.grace),
            resume_grace: self.resume_grace.or(other.resume_grace),
            egress: self.egress.or(other.egress),
            allow_host: list(self.allow_host, other.allow_host),
            allow_network: list(self.allow_network, other.allow_network),
            deny_network: list(self.deny_network, other.deny_network),
            allow_metadata: self.allow_metadata.or(other.allow_metadata),
            capture_dir: self.capture_dir.or(other.capture_dir),
            upload_root: list(self.upload_root, other.upload_root),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_options_stand_before_or_after_the_command() {
        let cli = Cli::try_parse_from(["tunnel-server", "--listen", "a", "--plaintext"]).unwrap();
        assert_eq!(cli.serve.listen.as_deref(), Some("a"));
        assert_eq!(cli.serve.plaintext, Some(true));
        assert!(cli.command.is_none());
        let cli = Cli::try_parse_from([
            "tunnel-server",
            "--state-dir",
            "d",
            "serve",
            "--listen",
            "a",
        ])
        .unwrap();
        let Some(Command::Serve(serve)) = cli.command else {
            panic!("not serve")
        };
        assert_eq!(serve.listen.as_deref(), Some("a"));
        assert_eq!(cli.common.state_dir, Some("d".into()));
    }

    #[test]
    fn no_flag_takes_a_token() {
        assert!(Cli::try_parse_from(["tunnel-server", "--token", "x"]).is_err());
    }
}
