//! Instructions of the codecs, counted by `valgrind --tool=callgrind`: a busy machine does not move them.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;

use super::Setting;
use crate::codec::Case;
use crate::report::{Notes, Report, Unit};

pub(crate) const NAME: &str = "codec";

/// Two numbers of rounds: what both runs do besides is the same, and falls away in the difference.
const FEW: u32 = 20;
const MANY: u32 = 60;

pub(crate) fn run(_: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let valgrind = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if valgrind.is_err() {
        report.skip(NAME, "`valgrind` is not installed (Debian: valgrind)");
        return Ok(());
    }
    let mut notes = Notes::new(report, NAME, "instructions");
    for &case in Case::value_variants() {
        let difference = count(case, MANY)? - count(case, FEW)?;
        let each = difference / f64::from(MANY - FEW);
        notes.note(&name(case), each, Unit::Instructions);
    }
    Ok(())
}

fn name(case: Case) -> String {
    case.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Instructions of the whole program with that many rounds.
fn count(case: Case, rounds: u32) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().context("could not find this program")?)
        .args(["codec", "--case", &name(case), "--rounds"])
        .arg(rounds.to_string())
        .stdin(Stdio::null())
        .output()
        .context("could not run valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed ({}): {said}", output.status);
    }
    parse_count(&said).with_context(|| format!("valgrind counted nothing: {said}"))
}

/// The number behind `Collected :`.
fn parse_count(said: &str) -> Option<f64> {
    let (_, rest) = said.split_once("Collected :")?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found() {
        let said = "==1== \n==1== Events    : Ir\n==1== Collected : 12345\n==1== \n";
        assert_eq!(parse_count(said), Some(12345.0));
        assert_eq!(parse_count("==1== killed"), None);
    }
}
