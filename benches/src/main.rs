//! `yonder-bench`: measures both halves as they are used, beside direct TCP and `ssh -D`.
//!
//! Every figure is taken with four processes, as in production: this one as the load, the desktop half, the server half, and a
//! target (this program again). `docs/performance.md` in the repository explains the figures.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people at a terminal"
)]

mod codec;
mod halves;
mod line;
mod load;
mod place;
mod process;
mod promise;
mod relay;
mod report;
mod scale;
mod sections;
mod ssh;
mod target;
mod way;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command as Program, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};

use crate::place::Place;
use crate::promise::Verdict;
use crate::report::Report;
use crate::scale::Scale;
use crate::sections::{ALL, Section, Setting, wan};

/// Measures every figure that the product promises, on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "yonder-bench",
    bin_name = "cargo xtask bench",
    max_term_width = 110
)]
struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Args, Debug)]
struct RunArguments {
    /// Sections to run, separated by commas or given again [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Also keep the figures, with machine, date and versions, in this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds for every figure that is watched over time
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// A second for each figure and fewer samples: shows that all is well rather than how fast
    #[arg(long)]
    quick: bool,
    /// List the sections
    #[arg(long)]
    list: bool,
    /// Folder of `tunnel-server` and `tunnel-desktop` [default: where this program lies]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

/// The other processes of a run that are this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// What the tunnels lead to.
    #[command(hide = true)]
    Target(target::TargetArguments),
    /// The network between the halves, to be stopped by signals.
    #[command(hide = true)]
    Relay {
        #[arg(long)]
        to: SocketAddr,
    },
    /// The emulated line between two network namespaces.
    #[command(hide = true)]
    Line(line::LineArguments),
    /// One codec, many times.
    #[command(hide = true)]
    Codec(codec::CodecArguments),
    /// The part of a run that happens in namespaces of its own.
    #[command(hide = true)]
    Wan(wan::InnerArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.role {
        None => run(&arguments.run),
        Some(Role::Target(target)) => target::run(&target),
        Some(Role::Relay { to }) => relay::run(to),
        Some(Role::Line(line)) => line::run(&line),
        Some(Role::Codec(codec)) => codec::run(&codec),
        Some(Role::Wan(inner)) => wan::run_inside(&inner),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    if arguments.list {
        for section in ALL {
            println!("{:<10} {}", section.name, section.about);
        }
        return Ok(());
    }
    let sections = choose(&arguments.only)?;
    let setting = Setting {
        place: Place::loopback(&programs(arguments)?),
        scale: scale(arguments)?,
    };
    let mut report = Report::default();
    let mut failed = Vec::new();
    for section in sections {
        let result = (section.run)(&setting, &mut report);
        if let Err(error) = result {
            eprintln!("error: section {}: {error:#}", section.name);
            failed.push(section.name);
        }
        println!("{}\n", report.table(section.name));
    }
    let verdicts = promise::judge(&report);
    if !verdicts.is_empty() {
        println!("{}", promise::table(&verdicts));
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&describe(arguments, &report, &verdicts)?)?;
        fs::write(path, text + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("sections that failed: {}", failed.join(", "))
    }
}

fn choose(names: &[String]) -> anyhow::Result<Vec<Section>> {
    for name in names {
        if !ALL.iter().any(|section| section.name == name) {
            bail!("there is no section {name:?}; --list shows them");
        }
    }
    Ok(ALL
        .iter()
        .filter(|section| names.is_empty() || names.iter().any(|name| name == section.name))
        .copied()
        .collect())
}

fn scale(arguments: &RunArguments) -> anyhow::Result<Scale> {
    let seconds = if arguments.quick {
        1.0
    } else {
        arguments.seconds
    };
    if !(0.2..=600.0).contains(&seconds) {
        bail!("--seconds must be between 0.2 and 600");
    }
    Ok(Scale {
        length: Duration::from_secs_f64(seconds),
        quick: arguments.quick,
    })
}

fn programs(arguments: &RunArguments) -> anyhow::Result<PathBuf> {
    let folder = match &arguments.programs {
        Some(folder) => folder.clone(),
        None => std::env::current_exe()
            .context("could not find this program")?
            .parent()
            .context("this program lies nowhere")?
            .to_owned(),
    };
    for name in ["tunnel-server", "tunnel-desktop"] {
        if !folder.join(name).is_file() {
            bail!(
                "{name} is not in {}; `cargo xtask bench` builds it",
                folder.display()
            );
        }
    }
    Ok(folder)
}

/// The report with everything that is needed to compare it with another.
fn describe(
    arguments: &RunArguments,
    report: &Report,
    verdicts: &[Verdict],
) -> anyhow::Result<Value> {
    let unix_seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    Ok(json!({
        "unix_seconds": unix_seconds,
        "version": env!("CARGO_PKG_VERSION"),
        "commit": output("git", &["rev-parse", "--short", "HEAD"]),
        "rustc": output("rustc", &["--version"]),
        "ssh": output("ssh", &["-V"]),
        "kernel": output("uname", &["-sr"]),
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "seconds": scale(arguments)?.length.as_secs_f64(),
        "quick": arguments.quick,
        "figures": report.figures,
        "promises": verdicts,
        "skipped": report.skipped,
        "remarks": report.remarks,
    }))
}

/// First line that a program prints, on either output; nothing where it cannot run.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Program::new(program).args(arguments).output().ok()?;
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next().map(str::to_owned)
}

fn processor() -> Option<String> {
    fs::read_to_string("/proc/cpuinfo")
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
}
