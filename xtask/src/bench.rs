//! `cargo xtask bench`: builds both halves as they are released, and measures them.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::process::{cargo, run, target_folder};

/// What to measure; `--help` after the command tells.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Handed to the measuring program.
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    rest: Vec<OsString>,
}

/// Builds and measures.
pub(crate) fn run_bench(arguments: &Arguments) -> anyhow::Result<()> {
    run(cargo().args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "tunnel-server",
        "--package",
        "tunnel-desktop",
        "--package",
        "yonder-benches",
    ]))?;
    let program = target_folder().join("release/yonder-bench");
    let status = Command::new(&program)
        .args(&arguments.rest)
        .status()
        .with_context(|| format!("could not start {}", program.display()))?;
    if !status.success() {
        bail!("the benches failed; see their messages above");
    }
    Ok(())
}
