//! `trace.analyze`: our own summary, and the insights of the engine inside Chromium's developer tools.

use std::fs::File;
use std::io::{self, BufReader};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use tokio::task::spawn_blocking;
use yonder_analysis::trace::{Lcp, Metrics, Summary, Trace, TraceError};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{
    FileKind, ListLimit, TraceAnalyze, TraceBlocking, TraceEvent, TraceForcedLayout, TraceInsight,
    TraceInteraction, TraceLcp, TraceLongTask, TraceMetrics, TraceScript, TraceShift, TraceSummary,
};

use super::clipped;
use crate::devtools::Devtools;
use crate::files::Stored;
use crate::session::BrowserSession;
use crate::tab::Tab;

/// Longest recording that is handed to the developer tools, which hold all of it at once, at some twenty times this.
const INSIGHT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes that they are handed at once.
const INSIGHT_PIECE: usize = 512 * 1024;

/// How long they may take: 10,000 events take 0.3 s.
const INSIGHT_LIMIT: Duration = Duration::from_mins(1);

const INSIGHTS: &str = include_str!("insights.js");

/// Insights that are told, of some twenty that there are.
const INSIGHTS_MAX: usize = 40;

/// Characters of an insight's texts.
const INSIGHT_CHARS: usize = 300;

/// Entries of a list unless the caller asks for others.
const LIMIT_DEFAULT: usize = 10;

/// Sums a trace up.
///
/// # Errors
/// As [`Files::find_kind`] has them; [`ErrorCode::FileFailed`] if the file is no trace.
pub(crate) async fn analyze(
    session: &BrowserSession,
    tab: &Tab,
    input: &TraceAnalyze,
) -> Result<TraceSummary, OperationError> {
    let stored = session
        .files()
        .find_kind(tab, &input.file_id, FileKind::Trace)?;
    let limit = input.limit.map(ListLimit::get);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let path = stored.path.clone();
    let read = spawn_blocking(move || {
        let file = File::open(path)?;
        let trace = Trace::read(BufReader::new(MultiGzDecoder::new(file)))?;
        Ok::<_, TraceError>(trace.summary(limit.unwrap_or(LIMIT_DEFAULT)))
    });
    let (read, insights) = tokio::join!(read, insights(session, &stored));
    let summary = read
        .unwrap_or_else(|error| Err(io::Error::other(error).into()))
        .map_err(|error| {
            OperationError::new(
                ErrorCode::FileFailed,
                format!("{} could not be analysed: {error}", input.file_id),
            )
        })?;
    Ok(told(tab, summary, insights))
}

/// What the developer tools' own engine finds.
async fn insights(
    session: &BrowserSession,
    stored: &Stored,
) -> Result<Vec<TraceInsight>, OperationError> {
    if stored.entry.bytes > INSIGHT_BYTES_MAX {
        return Err(OperationError::new(
            ErrorCode::Unsupported,
            format!(
                "the trace has more than {} MiB compressed, too much for the engine of the browser's developer tools",
                INSIGHT_BYTES_MAX / 1024 / 1024
            ),
        ));
    }
    let trace = tokio::fs::read(&stored.path).await.map_err(|error| {
        OperationError::new(ErrorCode::FileFailed, format!("it cannot be read: {error}"))
    })?;
    let devtools = Devtools::open(session.root(), session.tasks()).await?;
    let _: () = devtools
        .evaluate(INSIGHT_LIMIT, "globalThis.parts = []; null")
        .await?;
    for piece in trace.chunks(INSIGHT_PIECE) {
        let piece = STANDARD.encode(piece);
        let hand = format!("parts.push(Uint8Array.fromBase64('{piece}')); null");
        let _: () = devtools.evaluate(INSIGHT_LIMIT, &hand).await?;
    }
    let mut insights: Vec<TraceInsight> = devtools.evaluate(INSIGHT_LIMIT, INSIGHTS).await?;
    insights.truncate(INSIGHTS_MAX);
    for insight in &mut insights {
        insight.description = clipped(&without_links(&insight.description), INSIGHT_CHARS);
        for text in [&mut insight.id, &mut insight.title, &mut insight.state] {
            *text = clipped(text, INSIGHT_CHARS);
        }
    }
    Ok(insights)
}

/// The text of Markdown without the addresses of its links.
fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        let parts = link
            .split_once("](")
            .filter(|(words, _)| !words.contains(['[', ']']))
            .and_then(|(words, after)| Some((words, after.split_once(')')?.1)));
        let Some((words, after)) = parts else {
            text.push('[');
            rest = link;
            continue;
        };
        text.push_str(words);
        rest = after;
    }
    text.push_str(rest);
    text
}

fn told(
    tab: &Tab,
    summary: Summary,
    insights: Result<Vec<TraceInsight>, OperationError>,
) -> TraceSummary {
    let long_tasks_total = summary.long_tasks_total as u64;
    let (insights, insights_missing) = match insights {
        Ok(insights) => (insights, None),
        Err(error) => (Vec::new(), Some(error.message)),
    };
    TraceSummary {
        tab: tab.summary(),
        duration_ms: summary.duration_ms,
        navigations: summary.navigations as u64,
        metrics: metrics(summary.metrics, long_tasks_total, summary.forced_layouts_ms),
        long_tasks: (summary.long_tasks.into_iter())
            .map(|task| TraceLongTask {
                at_ms: task.at_ms,
                ms: task.ms,
                script: task.script,
            })
            .collect(),
        render_blocking: (summary.render_blocking.into_iter())
            .map(|request| TraceBlocking {
                url: request.url,
                kind: request.kind,
                ms: request.ms,
                bytes: request.bytes,
            })
            .collect(),
        forced_layouts: (summary.forced_layouts.into_iter())
            .map(|layout| TraceForcedLayout {
                function: layout.function,
                url: layout.url,
                line: layout.line,
                column: layout.column,
                count: layout.count,
                ms: layout.ms,
            })
            .collect(),
        scripts: (summary.scripts.into_iter())
            .map(|script| TraceScript {
                url: script.url,
                ms: script.ms,
                bytes: script.bytes,
            })
            .collect(),
        events: (summary.events.into_iter())
            .map(|event| TraceEvent {
                name: event.name,
                count: event.count,
                total_ms: event.total_ms,
                max_ms: event.max_ms,
            })
            .collect(),
        insights,
        insights_missing,
    }
}

fn metrics(metrics: Metrics, long_tasks: u64, forced_layout_ms: f64) -> TraceMetrics {
    TraceMetrics {
        url: metrics.url,
        ttfb_ms: metrics.ttfb_ms,
        fcp_ms: metrics.fcp_ms,
        lcp: metrics.lcp.map(lcp),
        cls: metrics.cls,
        shifts: (metrics.shifts.into_iter())
            .map(|shift| TraceShift {
                at_ms: shift.at_ms,
                score: shift.score,
                elements: shift.nodes,
            })
            .collect(),
        inp_ms: metrics.inp.map(|interaction| interaction.ms),
        interactions: (metrics.interactions.into_iter())
            .map(|interaction| TraceInteraction {
                at_ms: interaction.at_ms,
                event: interaction.kind,
                ms: interaction.ms,
                input_delay_ms: interaction.input_delay_ms,
                processing_ms: interaction.processing_ms,
                presentation_ms: interaction.presentation_ms,
            })
            .collect(),
        long_tasks,
        blocking_ms: metrics.blocking_ms,
        forced_layout_ms,
    }
}

fn lcp(lcp: Lcp) -> TraceLcp {
    TraceLcp {
        ms: lcp.at_ms,
        kind: lcp.kind.to_owned(),
        element: lcp.node,
        size: lcp.size,
        url: lcp.url,
        load_delay_ms: lcp.load_delay_ms,
        load_ms: lcp.load_ms,
        render_delay_ms: lcp.render_delay_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lose_their_addresses() {
        assert_eq!(
            without_links("See [the guide](https://a.test/b), or [x] (y). [Two](c)[d](e)"),
            "See the guide, or [x] (y). Twod"
        );
    }
}
