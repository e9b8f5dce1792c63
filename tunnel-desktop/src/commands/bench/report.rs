//! What came out: a table for people, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use yonder_transport::link::{LinkPhase, LinkStatus};

use super::figures::{Times, bytes, rate, time};
use super::measure::{Direction, Transferred};

/// Width of the table's first column.
const LABEL_WIDTH: usize = 28;

/// Width of each further one.
const FIGURE_WIDTH: usize = 14;

/// Everything that was measured. Times are in milliseconds, rates in bytes per second.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The server half's address.
    server: String,
    /// Program and version of the server half.
    server_agent: String,
    /// What moves the link's bytes, in words.
    carrier: String,
    /// The same as a name.
    carrier_kind: String,
    /// Echoes of 64 bytes on the idle link.
    round_trip: TimesReport,
    /// From the wish for a tunnel to the first byte from its target.
    open: TimesReport,
    /// One entry a transfer.
    transfers: Vec<TransferReport>,
    /// Bytes that the link received over all of this, frames included.
    bytes_received: u64,
    /// Bytes that it sent.
    bytes_sent: u64,
    /// Carriers that were lost meanwhile.
    reconnects: u64,
    /// Seconds that all of this took.
    seconds: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimesReport {
    /// How many were measured.
    count: usize,
    /// `null` where none was.
    p50_ms: Option<f64>,
    /// `null` where none was.
    p99_ms: Option<f64>,
    #[serde(skip)]
    times: Times,
}

impl From<Times> for TimesReport {
    fn from(times: Times) -> Self {
        let milliseconds = |percent| {
            times
                .percentile(percent)
                .map(|time| time.as_secs_f64() * 1e3)
        };
        Self {
            count: times.count(),
            p50_ms: milliseconds(50),
            p99_ms: milliseconds(99),
            times,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TransferReport {
    /// `download` or `upload`.
    direction: &'static str,
    streams: usize,
    /// Bytes that arrived.
    bytes: u64,
    /// From the beginning to the last of them.
    seconds: f64,
    bytes_per_second: f64,
    /// Echoes of 64 bytes meanwhile.
    round_trip: TimesReport,
}

impl From<Transferred> for TransferReport {
    fn from(transferred: Transferred) -> Self {
        Self {
            direction: transferred.direction.name(),
            streams: transferred.streams,
            bytes: transferred.bytes,
            seconds: transferred.took.as_secs_f64(),
            bytes_per_second: transferred.rate(),
            round_trip: transferred.beside.into(),
        }
    }
}

impl Report {
    pub(super) fn new(
        server: String,
        server_agent: String,
        status: &LinkStatus,
        round_trip: Times,
        open: Times,
        transfers: Vec<Transferred>,
        took: Duration,
    ) -> Self {
        let (carrier, carrier_kind) = match &status.phase {
            LinkPhase::Up {
                kind, description, ..
            } => (description.clone(), kind.name().to_owned()),
            LinkPhase::Reconnecting { error, .. } => {
                (format!("lost just now: {error}"), "none".to_owned())
            }
            LinkPhase::Closed(reason) => (reason.to_string(), "none".to_owned()),
        };
        Self {
            server,
            server_agent,
            carrier,
            carrier_kind,
            round_trip: round_trip.into(),
            open: open.into(),
            transfers: transfers.into_iter().map(Into::into).collect(),
            bytes_received: status.bytes_in,
            bytes_sent: status.bytes_out,
            reconnects: status.reconnects,
            seconds: took.as_secs_f64(),
        }
    }

    /// One object on one line.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings")
    }

    /// A line a figure, in columns.
    pub(super) fn to_table(&self) -> String {
        let mut table = String::new();
        let mut line = |label: &str, figures: &[String]| {
            let mut line = format!("{label:LABEL_WIDTH$}");
            for figure in figures {
                // Writing to a string cannot fail.
                let _ = write!(line, "{figure:>FIGURE_WIDTH$}");
            }
            table.push_str(line.trim_end());
            table.push('\n');
        };
        line(&format!("{} ({})", self.server, self.server_agent), &[]);
        line(&format!("carrier: {}", self.carrier), &[]);
        line("", &["p50".to_owned(), "p99".to_owned()]);
        let both = |report: &TimesReport| {
            [
                time(report.times.percentile(50)),
                time(report.times.percentile(99)),
            ]
        };
        line("round trip", &both(&self.round_trip));
        line("open and first byte", &both(&self.open));
        for direction in [Direction::Down, Direction::Up] {
            let beside = self
                .transfers
                .iter()
                .filter(|transfer| transfer.direction == direction.name())
                .map(|transfer| transfer.round_trip.times.clone())
                .fold(Times::default(), Times::and);
            let label = format!("round trip beside {}", direction.name());
            line(&label, &both(&beside.into()));
        }
        line("", &["rate".to_owned(), "moved".to_owned()]);
        for transfer in &self.transfers {
            let plural = if transfer.streams == 1 { "" } else { "s" };
            let label = format!(
                "{}, {} stream{plural}",
                transfer.direction, transfer.streams
            );
            line(
                &label,
                &[rate(transfer.bytes_per_second), bytes(transfer.bytes)],
            );
        }
        let mut end = format!(
            "moved {} down and {} up in {:.1} s",
            bytes(self.bytes_received),
            bytes(self.bytes_sent),
            self.seconds
        );
        if self.reconnects > 0 {
            let _ = write!(end, "; the carrier was lost {} times", self.reconnects);
        }
        line(&end, &[]);
        table
    }
}
