//! Starts the desktop half: the runtime, the command, the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tunnel_desktop::{Cli, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing is left to report to when standard error is closed.
            let _ = writeln!(std::io::stderr(), "tunnel-desktop: {failure}");
            ExitCode::from(&failure)
        }
    }
}
