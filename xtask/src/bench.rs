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
    // One after the other: built together, the halves would get the features that the benches ask of shared dependencies.
    for packages in [
        ["tunnel-server", "tunnel-desktop"].as_slice(),
        &["yonder-benches"],
    ] {
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "--locked"]);
        for package in packages {
            build.args(["--package", package]);
        }
        run(&mut build)?;
    }
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
