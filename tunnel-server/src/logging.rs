//! Sets up the log: lines on standard error, as text for people or as JSON for programs.
//!
//! What is logged never holds a token, a header, an argument of an operation or a page's content.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Checks a level or filter such as `info` or `warn,tunnel_server=debug`.
///
/// # Errors
/// With what is wrong and what is allowed.
pub fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| {
        format!(
            "{text:?} is no log level ({error}); use off, error, warn, info, debug, trace, \
             or a filter such as warn,tunnel_server=debug"
        )
    })
}

/// Starts logging for the rest of the process; a second call changes nothing.
pub fn start(filter: EnvFilter, format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // Fails only where a subscriber is set already, as in tests that start several servers.
    let _already_set = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
