//! `tunnel-server`, the server half of Yonder.

use std::process::ExitCode;

use clap::Parser as _;
use tunnel_server::cli::Cli;
use tunnel_server::commands;

/// The system's allocator maps large buffers anew for each read, and the page faults cost as much as the copies. This one
/// keeps them, and gives back what a burst has left behind from a thread of its own.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // Ends with exit code 2 by itself where the command line is wrong.
    commands::run(Cli::parse()).await
}
