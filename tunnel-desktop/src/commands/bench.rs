//! `tunnel-desktop bench`: measures a person's link with the link itself, against the targets that the server half serves by
//! itself ([`yonder_protocol::builtin`]).
//!
//! One measurement after the other, so that none disturbs the next: echoes, openings, then transfers with one and eight
//! streams each way, beside the wider of which echoes go on. Times and bytes are bounded, and what was moved is said.

mod figures;
mod measure;
mod report;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;
use yonder_protocol::link::Role;
use yonder_transport::client::Connected;
use yonder_transport::link::Link;

use self::measure::{Direction, Limits, Progress, Transfer};
use self::report::Report;
use crate::attach;
use crate::cli::BenchArgs;
use crate::console::Console;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::stop::StopSignal;
use crate::way::Way;

/// Streams of the wider transfers: as many as a browser opens to one host and some more.
const STREAMS_MANY: usize = 8;

/// How long the echo after a transfer is waited for, so that what is still under way does not disturb the next one.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);

/// Measures, and prints what came out.
///
/// # Errors
/// If the server half cannot be reached, refuses, or is of a version without the targets.
pub(crate) async fn run(
    args: BenchArgs,
    settings: &Settings,
    console: &Console,
) -> Result<(), Failure> {
    let way = settings.way(args.server.as_deref(), &args.access)?;
    let session = settings.session(None)?;
    let stop = StopSignal::new().context("could not watch for signals")?;
    let limits = Limits {
        duration: Duration::from_secs(args.duration),
        bytes: args.bytes,
    };
    console.begin(&format!("connecting to {}", way.address()), way.prompts());
    let connected = tokio::select! {
        connected = attach::connect(way.connector(), Role::Tunnels, session) => {
            connected.map_err(|error| attach::failure(&error))?
        }
        () = stop.asked() => return Ok(()),
    };
    let link = connected.link.clone();
    let measured = tokio::select! {
        measured = measure(&way, &connected, limits, console) => Some(measured),
        () = stop.asked() => None,
    };
    attach::detach(&link).await;
    console.finish();
    let Some(report) = measured else {
        return Ok(());
    };
    let report =
        report.map_err(|error| Failure::failed(format!("the measurement failed: {error}")))?;
    let text = if args.json {
        format!("{}\n", report.to_json())
    } else {
        report.to_table()
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("could not write to standard output")?;
    Ok(())
}

/// Everything, one after the other.
async fn measure(
    way: &Way,
    connected: &Connected,
    limits: Limits,
    console: &Console,
) -> Result<Report, measure::BenchError> {
    let link = &connected.link;
    let began = tokio::time::Instant::now();
    let progress = Progress::new(console);
    let round_trip = measure::round_trips(link, &progress).await?;
    let open = measure::opens(link, &progress).await?;
    let mut transfers = Vec::new();
    for direction in [Direction::Down, Direction::Up] {
        for streams in [1, STREAMS_MANY] {
            let transfer = Transfer {
                direction,
                streams,
                limits,
            };
            transfers.push(transfer.run(link, &progress).await?);
            settle(link).await;
        }
    }
    let status = link.status();
    Ok(Report::new(
        way.address(),
        connected.server_agent.clone(),
        &status,
        round_trip,
        open,
        transfers,
        began.elapsed(),
    ))
}

/// Waits until the link is quiet again, or long enough.
async fn settle(link: &Link) {
    // Where no echo comes at all, the next measurement says so.
    let _ = timeout(SETTLE_LIMIT, measure::echo_once(link)).await;
}
