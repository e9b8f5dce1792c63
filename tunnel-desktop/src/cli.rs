//! The command line: what a person may write, and nothing of what it means.
//!
//! Values that the configuration file may also set stay optional here; [`crate::settings`] joins the two.
//! Environment variables are read by clap, so that `--help` names them, except for the token's: secrets have
//! no flag, and [`crate::token`] reads them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;

/// The desktop half of Yonder: browse and reach the localhost of another machine from this one.
#[derive(Debug, Parser)]
#[command(name = "tunnel-desktop", version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 could not reach the server half, 4 refused by it.

Flags win over the environment, the environment over the configuration file. The token comes from --token-file, \
YONDER_TOKEN, YONDER_TOKEN_FILE, the configuration file, or the file `token` in the state directory, in this order.";

/// What a person may write for every command.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Configuration file [default: $XDG_CONFIG_HOME/yonder/desktop.toml, where it exists]
    #[arg(long, global = true, value_name = "FILE", env = "YONDER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where the token and kept profiles lie [default: $XDG_STATE_HOME/yonder]
    #[arg(long, global = true, value_name = "DIR", env = "YONDER_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// What to log on standard error: off, error, warn, info, debug, trace, or a filter by module [default: warn]
    #[arg(long, global = true, value_name = "LEVEL", env = "YONDER_LOG")]
    pub(crate) log: Option<String>,
    /// Form of the log [default: text]
    #[arg(long, global = true, value_enum, env = "YONDER_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// The header that carries the token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AuthHeader {
    /// `Authorization: Bearer`.
    #[default]
    Authorization,
    /// `Yonder-Token`, where a reverse proxy wants `Authorization` for itself.
    YonderToken,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start Chromium with the server's network, and let the server's agents drive its tabs
    Open(OpenArgs),
    /// Serve only an HTTP and CONNECT proxy with the server's network; prints its address and credential
    Proxy(ProxyArgs),
    /// Forward local ports to targets seen from the server
    Forward(ForwardArgs),
    /// Check this machine and, where SERVER is given, the way to the server half
    Doctor(DoctorArgs),
    /// Measure the link to the server half: round trip, openings, throughput each way; moves much data for a moment
    Bench(BenchArgs),
    /// Serve MCP on standard input and output: a Chromium with the server's network for an agent on this machine
    Mcp(McpArgs),
}

/// How the server half is found and trusted.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// File that holds the token; nobody but its owner may be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Further certificate authorities to trust, PEM
    #[arg(long, value_name = "FILE", env = "YONDER_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// Trust exactly this public key and no authority; `tunnel-server token` shows it
    #[arg(
        long,
        value_name = "sha256:HEX",
        env = "YONDER_PIN",
        value_delimiter = ','
    )]
    pub(crate) pin: Vec<String>,
    /// Header to send to what stands in front of the server half; may be given again
    #[arg(long, value_name = "NAME: VALUE", action = ArgAction::Append)]
    pub(crate) header: Vec<String>,
    /// Header that carries the token [default: authorization]
    #[arg(long, value_enum, env = "YONDER_AUTH_HEADER")]
    pub(crate) auth_header: Option<AuthHeader>,
    /// Program for ssh:// with its arguments, for example "ssh -F work.conf" [default: ssh]
    #[arg(long, value_name = "COMMAND", env = "YONDER_SSH")]
    pub(crate) ssh: Option<String>,
    /// What starts tunnel-server at the far end of ssh://, for the login shell there [default: tunnel-server, looked for
    /// in the usual folders]
    #[arg(long, value_name = "COMMAND", env = "YONDER_SSH_REMOTE")]
    pub(crate) ssh_remote: Option<String>,
}

/// What SERVER may be.
const SERVER_HELP: &str = "http(s)://host[:port][/prefix], ssh://[user@]host[:port], a name from the configuration file, or `local` for the \
                           server half on this machine [default: local]";

/// What the words of `forward` are.
const FORWARD_HELP: &str = "The server half as for the other commands, then forwards [ADDR:]PORT[:HOST:PORT]: local \
                            address and port (0 takes a free one), then the target seen from the server [default: \
                            the same port of its localhost]";

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    #[arg(value_name = "SERVER", help = SERVER_HELP, env = "YONDER_SERVER")]
    pub(crate) server: Option<String>,
    /// Page to open first, an address as the server sees it
    #[arg(value_name = "PAGE")]
    pub(crate) page: Option<String>,
    /// Browser session to serve [default: default]
    #[arg(long, value_name = "NAME", env = "YONDER_SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

/// How Chromium is started.
#[derive(Debug, Args)]
pub(crate) struct BrowserArgs {
    /// Show no window
    #[arg(long, env = "YONDER_HEADLESS")]
    pub(crate) headless: bool,
    /// Keep cookies and history under this name [default: nothing is kept]
    #[arg(long, value_name = "NAME", env = "YONDER_PROFILE")]
    pub(crate) profile: Option<String>,
    /// Chromium's program [default: found on the system]
    #[arg(long, value_name = "PATH", env = "YONDER_BROWSER")]
    pub(crate) browser: Option<PathBuf>,
    /// Run Chromium without its sandbox; only where it cannot have one (as root, in some containers)
    #[arg(long, env = "YONDER_NO_SANDBOX")]
    pub(crate) no_sandbox: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[arg(value_name = "SERVER", help = SERVER_HELP, env = "YONDER_SERVER")]
    pub(crate) server: Option<String>,
    /// Serve this browser session to the server's agents as well, in the place of a desktop that has it open [default:
    /// only the agent here drives the browser]
    #[arg(long, value_name = "NAME", env = "YONDER_SESSION")]
    pub(crate) session: Option<String>,
    /// Where files that the browser makes are saved [default: `captures` in the state directory]
    #[arg(long, value_name = "DIR", env = "YONDER_CAPTURE_DIR")]
    pub(crate) capture_dir: Option<PathBuf>,
    /// Folder below which the agent may have files read for pages; may be given again [default: the working directory]
    #[arg(long, value_name = "DIR", action = ArgAction::Append)]
    pub(crate) upload_root: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    #[arg(value_name = "SERVER", help = SERVER_HELP, env = "YONDER_SERVER")]
    pub(crate) server: Option<String>,
    /// Local address to listen on; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:0",
        env = "YONDER_LISTEN"
    )]
    pub(crate) listen: SocketAddr,
    /// Browser session that the connections are counted to [default: default]
    #[arg(long, value_name = "NAME", env = "YONDER_SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    #[arg(value_name = "[SERVER] FORWARD", required = true, num_args = 1.., help = FORWARD_HELP)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[arg(value_name = "SERVER", help = SERVER_HELP)]
    pub(crate) server: Option<String>,
    /// Chromium's program [default: found on the system]
    #[arg(long, value_name = "PATH", env = "YONDER_BROWSER")]
    pub(crate) browser: Option<PathBuf>,
    /// Judge Chromium without its sandbox
    #[arg(long, env = "YONDER_NO_SANDBOX")]
    pub(crate) no_sandbox: bool,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[arg(value_name = "SERVER", help = SERVER_HELP, env = "YONDER_SERVER")]
    pub(crate) server: Option<String>,
    /// Seconds that each of the four transfers may take
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) duration: u64,
    /// Bytes that each of them may move, whichever comes first; k, M and G stand for thousands of each other
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = amount)]
    pub(crate) bytes: u64,
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

/// Fewest bytes of a transfer: with less nothing can be said about a line.
const AMOUNT_MIN: u64 = 1_000;

/// Reads a number of bytes such as `20M`.
fn amount(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => text
                .strip_suffix('G')
                .map_or((text, 1), |digits| (digits, 1_000_000_000)),
        },
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes >= AMOUNT_MIN)
        .ok_or_else(|| {
            format!("expected a number such as 500k, 20M or 1G, of at least {AMOUNT_MIN} bytes")
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn servers_may_be_left_out() {
        let cli = Cli::try_parse_from(["tunnel-desktop", "open", "--headless"]).unwrap();
        let Command::Open(open) = cli.command else {
            panic!("not open")
        };
        assert!(open.browser.headless && open.page.is_none());
    }

    #[test]
    fn amounts_have_units() {
        for (text, bytes) in [
            ("1000", 1_000),
            ("5k", 5_000),
            ("20M", 20_000_000),
            ("1G", 1_000_000_000),
        ] {
            assert_eq!(amount(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "999", "-1M", "1.5M", "99999999999G", "1T"] {
            assert!(amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_flag_takes_a_token() {
        assert!(Cli::try_parse_from(["tunnel-desktop", "proxy", "--token", "x"]).is_err());
    }
}
