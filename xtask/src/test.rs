//! `cargo xtask test`: everything that must hold before a change lands.

use clap::Args;

use crate::process::{cargo, run};
use crate::setup::{Scope, ensure};

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

/// Formatting, lints, documentation, then every test of the workspace on freshly built programs.
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
    // The end-to-end tests run the two programs, so these must be no older than the tests.
    run(cargo().args([
        "build",
        "--locked",
        "--package",
        "tunnel-server",
        "--package",
        "tunnel-desktop",
    ]))?;
    run(cargo()
        .args(["nextest", "run", "--workspace", "--locked"])
        .args(&arguments.nextest)
        .env("YONDER_TEST_PROGRAMS_BUILT", "1"))
}
