//! What the product promises of the figures, and whether a run kept it.

use serde::Serialize;

use crate::report::{Figure, Report};
use crate::sections::{calm, http, memory, recovery, relay, wan};

/// A limit on one figure.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
    /// At least so many times the same figure of another way, in the same run.
    Times(f64, &'static str),
}

use Limit::{AtLeast, AtMost, Times};

/// The default of OpenSSH, to which throughput is compared.
const SSH: &str = "ssh -D";

/// A link at rest pings after 15 s without a byte and waits 5 s for the answer; and some time to see it.
const SILENCE_MOST: f64 = 20.5;

/// Section, measure, way, limit. Seconds, KiB and GB/s, as the figures are kept.
const PROMISES: &[(&str, &str, &str, Limit)] = &[
    (
        relay::NAME,
        "1 stream down, CPU s/GB both",
        "plain",
        AtMost(0.5),
    ),
    (
        relay::NAME,
        "1 stream up, CPU s/GB both",
        "plain",
        AtMost(0.5),
    ),
    (
        relay::NAME,
        "1 stream down, CPU s/GB both",
        "tls",
        AtMost(1.0),
    ),
    (
        relay::NAME,
        "1 stream up, CPU s/GB both",
        "tls",
        AtMost(1.0),
    ),
    (relay::NAME, "1 stream down, GB/s", "plain", Times(4.0, SSH)),
    (relay::NAME, "1 stream up, GB/s", "plain", Times(4.0, SSH)),
    (relay::NAME, "1 stream down, GB/s", "tls", Times(2.0, SSH)),
    (relay::NAME, "1 stream up, GB/s", "tls", Times(2.0, SSH)),
    (relay::NAME, "8 streams down, GB/s", "tls", Times(2.5, SSH)),
    (relay::NAME, "8 streams up, GB/s", "tls", Times(2.5, SSH)),
    (relay::NAME, "ping beside bulk p50", "plain", AtMost(300e-6)),
    (relay::NAME, "ping beside bulk p99", "plain", AtMost(3e-3)),
    (
        relay::NAME,
        "open and first byte p50",
        "plain",
        AtMost(300e-6),
    ),
    (
        relay::NAME,
        "opens a second, 64 at once",
        "plain",
        AtLeast(8000.0),
    ),
    (memory::NAME, "idle tunnel, both", "plain", AtMost(7.0)),
    (
        memory::NAME,
        "kept after all are closed, both",
        "plain",
        AtMost(5.0 * 1024.0),
    ),
    (http::NAME, "of direct", "plain", AtLeast(0.15)),
    (
        calm::NAME,
        "open after 8 cancelled, of an idle one",
        "plain",
        AtMost(1.3),
    ),
    (
        recovery::NAME,
        "server half restarted: a tunnel opens after",
        "plain",
        AtMost(0.3),
    ),
    (
        recovery::NAME,
        "silent line: given up after",
        "plain",
        AtMost(SILENCE_MOST),
    ),
    (
        recovery::NAME,
        "silent line back: a tunnel opens after",
        "plain",
        AtMost(0.5),
    ),
    (wan::NAME, "open and first byte p50", "plain", AtMost(1.1)),
    (wan::NAME, "bulk down, of the line", "plain", AtLeast(0.97)),
    (wan::NAME, "bulk up, of the line", "plain", AtLeast(0.97)),
    (
        wan::NAME,
        "ping beside bulk down p50",
        "plain",
        AtMost(65e-3),
    ),
    (
        wan::NAME,
        "silent line back: a tunnel opens after",
        "plain",
        AtMost(0.5),
    ),
    (wan::LOSSY, "bulk down, MB/s", "plain", AtLeast(10.0)),
    (
        wan::LOSSY,
        "ping beside bulk down p50",
        "plain",
        AtMost(65e-3),
    ),
    (
        wan::LOSSY,
        "open beside bulk down p50",
        "plain",
        AtMost(130e-3),
    ),
    (
        wan::LOSSY,
        "open after 8 cancelled, of an idle one",
        "plain",
        AtMost(1.3),
    ),
];

/// A promise beside what was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// The figure that it is about.
    pub(crate) figure: Figure,
    /// The limit in the figure's unit.
    pub(crate) limit: f64,
    /// Whether the figure is to be at least rather than at most the limit.
    pub(crate) at_least: bool,
    /// Whether it is within.
    pub(crate) kept: bool,
}

/// Judges all promises whose figures were measured.
pub(crate) fn judge(report: &Report) -> Vec<Verdict> {
    let verdict = |&(section, measure, way, limit): &(&str, &str, &str, Limit)| {
        let figure = report.figure(section, measure, way)?;
        let (limit, at_least) = match limit {
            AtMost(limit) => (limit, false),
            AtLeast(limit) => (limit, true),
            Times(factor, other) => (factor * report.figure(section, measure, other)?.value, true),
        };
        let kept = if at_least {
            figure.value >= limit
        } else {
            figure.value <= limit
        };
        Some(Verdict {
            figure: figure.clone(),
            limit,
            at_least,
            kept,
        })
    };
    PROMISES.iter().filter_map(verdict).collect()
}

/// The verdicts as a table.
pub(crate) fn table(verdicts: &[Verdict]) -> String {
    let mut lines = vec![format!(
        "{:<58} {:>11}    {:>11}",
        "promised", "found", "limit"
    )];
    lines.extend(verdicts.iter().map(|verdict| {
        let figure = &verdict.figure;
        let name = format!("  {}, {}: {}", figure.section, figure.way, figure.measure);
        let limit = Figure {
            value: verdict.limit,
            ..figure.clone()
        };
        let sign = if verdict.at_least { '≥' } else { '≤' };
        let kept = if verdict.kept { "kept" } else { "MISSED" };
        format!("{name:<58} {figure:>11}  {sign} {limit:>11}  {kept}")
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Notes, Unit};

    #[test]
    fn limits_may_depend_on_other_ways() {
        let mut report = Report::default();
        let unit = Unit::GigabytesPerSecond;
        let measure = "1 stream down, GB/s";
        Notes::new(&mut report, relay::NAME, SSH).note(measure, 0.5, unit);
        Notes::new(&mut report, relay::NAME, "plain").note(measure, 2.1, unit);
        Notes::new(&mut report, relay::NAME, "tls").note(measure, 0.9, unit);
        let verdicts = judge(&report);
        let kept: Vec<_> = verdicts.iter().map(|verdict| verdict.kept).collect();
        assert_eq!(kept, [true, false]);
        assert!(table(&verdicts).contains("MISSED"));
    }
}
