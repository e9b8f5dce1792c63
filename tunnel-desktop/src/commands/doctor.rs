//! `tunnel-desktop doctor`: is this machine fit, and is the way to the server half clear?
//!
//! Every check ends in one line. A failed or doubtful one says what to do.

mod checks;

use std::io::{self, Write};

use anyhow::Context as _;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::settings::Settings;

/// How a check came out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Level {
    Ok,
    /// Works, but not as it should.
    Warn,
    /// Does not work.
    Fail,
}

/// What one check found.
#[derive(Debug)]
struct Finding {
    level: Level,
    what: &'static str,
    detail: String,
    /// What to do; empty where nothing is.
    remedy: String,
}

impl Finding {
    fn ok(what: &'static str, detail: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            what,
            detail: detail.into(),
            remedy: String::new(),
        }
    }

    fn warn(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Warn,
            what,
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }

    fn fail(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(what, detail, remedy)
        }
    }
}

/// Prints findings as they come and remembers whether one failed.
struct Report {
    failed: bool,
}

impl Report {
    fn add(&mut self, finding: &Finding) -> io::Result<()> {
        self.failed |= finding.level == Level::Fail;
        let mark = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{mark}  {}: {}", finding.what, finding.detail)?;
        if !finding.remedy.is_empty() {
            writeln!(out, "      {}", finding.remedy)?;
        }
        out.flush()
    }
}

/// Runs every check.
///
/// # Errors
/// If a check failed, or nothing can be printed.
pub(crate) async fn run(args: DoctorArgs, settings: &Settings) -> Result<(), Failure> {
    let mut report = Report { failed: false };
    let unwritable = "could not write to standard output";
    report.add(&checks::files_limit()).context(unwritable)?;
    let executable = args
        .browser
        .as_deref()
        .or(settings.config.browser.as_deref());
    let sandbox = !(args.no_sandbox || settings.config.no_sandbox);
    report
        .add(&checks::chromium(executable, sandbox).await)
        .context(unwritable)?;
    if let Some(server) = &args.server {
        match settings.way(Some(server), &args.access) {
            Err(failure) => report
                .add(&Finding::fail("settings", failure.to_string(), ""))
                .context(unwritable)?,
            Ok(way) => {
                for finding in checks::server(&way).await {
                    report.add(&finding).context(unwritable)?;
                }
            }
        }
    }
    if report.failed {
        return Err(Failure::failed("at least one check failed"));
    }
    Ok(())
}
