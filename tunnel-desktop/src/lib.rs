//! The desktop half: it attaches to a server half and gives a person's Chromium, curl or any other program the
//! network of that server.
//!
//! * [`Cli`] is what a person wrote, [`run`] does it, [`Failure`] is how it ends otherwise.
//! * `way` is how the server half is reached; `attach` gets the link, keeps it and gets it again; `tunnels` opens
//!   connections over it.
//! * `desk` is a Chromium with the server's network; `calls` and `feed` serve the browser operations of the server half's agents.
//! * `commands` puts these together, one module for each command.
//!
//! Proxy, browser and link are crates of their own that do not know each other; this one joins them.

mod attach;
mod backoff;
mod calls;
mod cli;
mod commands;
mod config;
mod console;
mod desk;
mod failure;
mod feed;
mod files_limit;
mod logging;
mod settings;
mod state_dir;
mod stop;
#[cfg(test)]
mod test_server;
mod token;
mod tunnels;
mod way;

pub use cli::Cli;
pub use failure::{Exit, Failure};

use cli::Command;
use console::Console;
use settings::Settings;

/// Runs the command line `cli` to its end.
///
/// Writes what programs read to standard output, everything else to standard error. Starts the process's log and
/// takes over its stop signals, so it is meant to be called once, from `main`.
///
/// # Errors
/// What went wrong, with the exit code that belongs to it.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    let settings = Settings::read(cli.global)?;
    let console = Console::stderr(settings.log_format());
    logging::start(settings.log(), settings.log_format(), console.clone())?;
    files_limit::raise();
    let end = match cli.command {
        Command::Open(args) => Box::pin(commands::open::run(args, &settings, &console)).await,
        Command::Proxy(args) => Box::pin(commands::proxy::run(args, &settings, &console)).await,
        Command::Forward(args) => Box::pin(commands::forward::run(args, &settings, &console)).await,
        Command::Doctor(args) => Box::pin(commands::doctor::run(args, &settings)).await,
        Command::Bench(args) => Box::pin(commands::bench::run(args, &settings, &console)).await,
        Command::Mcp(args) => Box::pin(commands::mcp::run(args, &settings, &console)).await,
    };
    console.finish();
    end
}
