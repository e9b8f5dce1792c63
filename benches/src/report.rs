//! Figures: how they are kept, shown and judged.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a figure counts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// 10⁹ bytes a second.
    GigabytesPerSecond,
    /// 10⁶ bytes a second.
    MegabytesPerSecond,
    /// CPU seconds, user and kernel, per 10⁹ bytes of payload.
    CpuSecondsPerGigabyte,
    /// Seconds.
    Seconds,
    /// Events a second.
    PerSecond,
    /// 1024 bytes.
    Kibibytes,
    /// A quotient.
    Ratio,
    /// Round trips of the line.
    RoundTrips,
    /// Machine instructions.
    Instructions,
}

/// One figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Figure {
    /// Section that measured it.
    pub(crate) section: String,
    /// What was measured.
    pub(crate) measure: String,
    /// The way on which.
    pub(crate) way: String,
    /// The figure itself.
    pub(crate) value: f64,
    /// What it counts.
    pub(crate) unit: Unit,
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let text = match self.unit {
            Unit::GigabytesPerSecond | Unit::CpuSecondsPerGigabyte | Unit::Ratio => {
                format!("{value:.3}")
            }
            Unit::MegabytesPerSecond | Unit::RoundTrips => format!("{value:.2}"),
            Unit::PerSecond | Unit::Instructions => format!("{value:.0}"),
            Unit::Kibibytes => format!("{value:.1} KiB"),
            Unit::Seconds if value < 1e-3 => format!("{:.0} µs", value * 1e6),
            Unit::Seconds if value < 1.0 => format!("{:.2} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
        };
        formatter.pad(&text)
    }
}

/// What a run has found so far.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// In the order in which they were measured.
    pub(crate) figures: Vec<Figure>,
    /// Sections that could not run here, and why.
    pub(crate) skipped: Vec<Skipped>,
    /// What else is to be known to read the figures.
    pub(crate) remarks: Vec<String>,
}

/// A section, or a part of one, that could not run.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Skipped {
    /// Which.
    pub(crate) what: String,
    /// Why.
    pub(crate) reason: String,
}

impl Report {
    /// Takes over what another process found.
    pub(crate) fn join(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.skipped.extend(other.skipped);
        self.remarks.extend(other.remarks);
    }

    /// Notes something that is to be known to read the figures.
    pub(crate) fn remark(&mut self, text: String) {
        eprintln!("{text}");
        self.remarks.push(text);
    }

    /// Notes a part that cannot run here.
    pub(crate) fn skip(&mut self, what: &str, reason: &str) {
        eprintln!("skipped: {what}: {reason}");
        self.skipped.push(Skipped {
            what: what.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// The figure of `measure` on `way`.
    pub(crate) fn figure(&self, section: &str, measure: &str, way: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| {
            figure.section == section && figure.measure == measure && figure.way == way
        })
    }

    /// A table of one section: measures down, ways across.
    pub(crate) fn table(&self, section: &str) -> String {
        let figures: Vec<&Figure> = self
            .figures
            .iter()
            .filter(|figure| figure.section == section)
            .collect();
        let ways = distinct(figures.iter().map(|figure| figure.way.as_str()));
        let measures = distinct(figures.iter().map(|figure| figure.measure.as_str()));
        let row = |name: String, cells: &mut dyn Iterator<Item = String>| {
            cells.fold(name, |line, cell| format!("{line} {cell:>11}"))
        };
        let mut lines = vec![row(
            format!("{section:<44}"),
            &mut ways.iter().map(ToString::to_string),
        )];
        for measure in measures {
            let mut cells = ways.iter().map(|&way| {
                self.figure(section, measure, way)
                    .map_or_else(|| "–".to_owned(), ToString::to_string)
            });
            lines.push(row(format!("  {measure:<42}"), &mut cells));
        }
        lines.join("\n")
    }
}

fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Notes the figures of one section on one way.
#[derive(Debug)]
pub(crate) struct Notes<'a> {
    report: &'a mut Report,
    section: &'static str,
    way: &'static str,
}

impl<'a> Notes<'a> {
    /// Notes into `report`.
    pub(crate) fn new(report: &'a mut Report, section: &'static str, way: &'static str) -> Self {
        Self {
            report,
            section,
            way,
        }
    }

    /// Keeps a figure and shows it.
    pub(crate) fn note(&mut self, measure: &str, value: f64, unit: Unit) {
        let figure = Figure {
            section: self.section.to_owned(),
            measure: measure.to_owned(),
            way: self.way.to_owned(),
            value,
            unit,
        };
        eprintln!("{:>10} {:>8}: {measure} {figure}", self.section, self.way);
        self.report.figures.push(figure);
    }

    /// Keeps the middle and the slow end of `times`.
    pub(crate) fn times(&mut self, measure: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        for (name, share) in [("p50", 50), ("p99", 99)] {
            if let Some(time) = percentile(&times, share) {
                self.note(
                    &format!("{measure} {name}"),
                    time.as_secs_f64(),
                    Unit::Seconds,
                );
            }
        }
    }
}

/// The value below which `share` percent of the sorted `times` lie.
fn percentile(times: &[Duration], share: usize) -> Option<Duration> {
    let last = times.len().checked_sub(1)?;
    times.get(last * share / 100).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_and_many() {
        assert_eq!(percentile(&[], 50), None);
        let times: Vec<_> = (0..=100).map(Duration::from_secs).collect();
        assert_eq!(percentile(&times, 50), Some(Duration::from_secs(50)));
        assert_eq!(percentile(&times, 99), Some(Duration::from_secs(99)));
        assert_eq!(percentile(&times[..1], 99), Some(Duration::ZERO));
    }

    #[test]
    fn tables_show_what_is_missing() {
        let mut report = Report::default();
        Notes::new(&mut report, "relay", "direct").note("ping", 2e-5, Unit::Seconds);
        Notes::new(&mut report, "relay", "plain").note("cpu", 0.5, Unit::CpuSecondsPerGigabyte);
        let table = report.table("relay");
        assert!(table.contains("20 µs"), "{table}");
        assert!(table.contains('–'), "{table}");
    }
}
