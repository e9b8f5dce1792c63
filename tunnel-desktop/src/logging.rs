//! The log on standard error.

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;
use crate::console::Console;
use crate::failure::Failure;

/// What is logged when nothing is said: the status line tells the rest.
const DEFAULT_FILTER: &str = "warn";

/// The levels, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts the log for the whole process; call once.
///
/// # Errors
/// If `filter` is neither a level nor a filter by module.
pub(crate) fn start(
    filter: Option<&str>,
    format: LogFormat,
    console: Console,
) -> Result<(), Failure> {
    let text = filter.unwrap_or(DEFAULT_FILTER);
    let filter = parse(text).ok_or_else(|| {
        Failure::usage(format!(
            "{text:?} is not a log level; use {}, or a filter such as tunnel_desktop=debug",
            LEVELS.join(", ")
        ))
    })?;
    let ansi = console.is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(console);
    let started = match format {
        LogFormat::Text => log.with_ansi(ansi).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    // Only a second start in one process fails, and then the first one's log serves both.
    let _ = started;
    Ok(())
}

/// The filter that `text` means. A bare word must be a level: the filter's own parser would take any other word
/// for the name of a module, and a slip of the finger would silence the log.
fn parse(text: &str) -> Option<EnvFilter> {
    let is_filter =
        text.contains('=') || LEVELS.iter().any(|level| text.eq_ignore_ascii_case(level));
    is_filter.then(|| EnvFilter::try_new(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_refused() {
        for good in [
            "info",
            "OFF",
            "tunnel_desktop=debug",
            "warn,yonder_proxy=trace",
        ] {
            assert!(parse(good).is_some(), "{good}");
        }
        for bad in ["", "lout", "tunnel_desktop=lout"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
