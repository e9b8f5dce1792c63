//! Starts the desktop half: the runtime, the command, the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tunnel_desktop::{Cli, run};

/// The system's allocator maps large buffers anew for each read, and the page faults cost as much as the copies. This one
/// keeps them, and gives back what a burst has left behind from a thread of its own.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
