//! What each command does, from the checked options to the exit code.

mod background;
mod call;
mod doctor;
mod mcp;
mod serve;
mod status;
mod stdio;
mod token;

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::cli::{Cli, Command, CommonOptions, ServeOptions};
use crate::config::{Common, Layers};
use crate::exit::{CommandResult, Failure};
use crate::logging;

/// What `serve` logs unless told otherwise.
const SERVE_LOG: &str = "info";

/// What the other commands log: their output is for people and programs.
const QUIET_LOG: &str = "warn";

/// Runs the command line `cli` and reports a failure on standard error.
pub async fn run(cli: Cli) -> ExitCode {
    match dispatch(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell where standard error is closed.
            let _told = writeln!(io::stderr(), "tunnel-server: {failure}");
            ExitCode::from(&failure)
        }
    }
}

async fn dispatch(cli: Cli) -> CommandResult {
    let Cli {
        config,
        common,
        serve: top,
        command,
    } = cli;
    let command = command.unwrap_or_else(|| Command::Serve(ServeOptions::default()));
    if !matches!(command, Command::Serve(_)) && top != ServeOptions::default() {
        return Err(Failure::usage(
            "options of `serve` do not go with another command; see tunnel-server --help",
        ));
    }
    let layers = Layers::read(config.as_deref())?;
    let quiet = !matches!(command, Command::Serve(_) | Command::Background(_));
    let common = start_logging(&layers, common, if quiet { QUIET_LOG } else { SERVE_LOG })?;
    match command {
        Command::Serve(options) => {
            let serve = layers.serve(options.or(top), &common.state_dir)?;
            serve::run(&common, &serve).await
        }
        Command::Token(options) => token::run(&common, &options),
        Command::Status(options) => status::run(&common, options).await,
        Command::Call(options) => call::run(&common, options).await,
        Command::Mcp(options) => mcp::run(&common, options).await,
        Command::Doctor(options) => doctor::run(&common, &layers, options).await,
        Command::Stdio => stdio::run(&common, config.as_deref()).await,
        Command::Background(options) => background::run(&common, &layers, &options).await,
    }
}

fn start_logging(
    layers: &Layers,
    options: CommonOptions,
    default: &str,
) -> Result<Common, Failure> {
    let common = layers.common(options)?;
    let filter = logging::parse_filter(common.log.as_deref().unwrap_or(default))
        .map_err(|problem| Failure::usage(format!("log: {problem}")))?;
    logging::start(filter, common.log_format);
    Ok(common)
}

/// Writes one line to standard output. A reader that has left is not an error.
fn print(line: &str) -> CommandResult {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}
