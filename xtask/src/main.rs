//! The workspace's own commands: `cargo xtask setup`, `test`, `demo` and `bench`.
//!
//! This program runs other programs and talks to a person at a terminal, so printing is its job.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people at a terminal"
)]

mod bench;
mod demo;
mod process;
mod setup;
mod site;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands of the Yonder workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the tests and the demo need and this machine lacks.
    Setup,
    /// Check formatting and lints and run every test, fuzz corpora included.
    Test(test::Arguments),
    /// Show the whole system at work on this machine.
    Demo(demo::Arguments),
    /// Measure both halves beside direct TCP and `ssh -D`; `bench --help` lists the options.
    #[command(disable_help_flag = true)]
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Setup => setup::run_all(),
        Command::Test(arguments) => test::run_all(&arguments),
        Command::Demo(arguments) => demo::run_demo(&arguments),
        Command::Bench(arguments) => bench::run_bench(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
