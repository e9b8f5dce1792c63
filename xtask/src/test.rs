//! `cargo xtask test`: everything that must hold before a change lands.

use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::process::{Background, cargo, run};
use crate::setup::{Scope, ensure};

/// A virtual display that has not started by then will not.
const DISPLAY_LIMIT: Duration = Duration::from_secs(30);

/// Which tests to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Skip formatting and lints.
    #[arg(long)]
    only_tests: bool,
    /// Passed on to `cargo nextest run`, such as a filter.
    #[arg(last = true)]
    nextest: Vec<String>,
}

/// Formatting, lints, then every test of the workspace on freshly built programs.
pub(crate) fn run_all(arguments: &Arguments) -> anyhow::Result<()> {
    ensure(Scope::Everything)?;
    if !arguments.only_tests {
        run(cargo().args(["fmt", "--all", "--check"]))?;
        run(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "--deny",
            "warnings",
        ]))?;
    }
    let display = VirtualDisplay::start()?;
    run(cargo()
        .args(["nextest", "run", "--workspace", "--locked"])
        .args(&arguments.nextest)
        // Both programs have tests of their own, so this very command builds them before any test starts.
        .env("YONDER_TEST_PROGRAMS_BUILT", "1")
        .env("DISPLAY", &display.name))
}

/// A display that nobody sees, for the tests of a browser with windows.
struct VirtualDisplay {
    name: String,
    _server: Background,
}

impl VirtualDisplay {
    fn start() -> anyhow::Result<Self> {
        let mut server = Background::start(Command::new("Xvfb").args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            "1280x1024x24",
            "-nolisten",
            "tcp",
        ]))?;
        let number = server.first_line(DISPLAY_LIMIT)?;
        Ok(Self {
            name: format!(":{}", number.trim()),
            _server: server,
        })
    }
}
