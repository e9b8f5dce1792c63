//! `tunnel-server`, the server half of Yonder.

use std::process::ExitCode;

use clap::Parser as _;
use tunnel_server::cli::Cli;
use tunnel_server::commands;

#[tokio::main]
async fn main() -> ExitCode {
    // Ends with exit code 2 by itself where the command line is wrong.
    commands::run(Cli::parse()).await
}
