//! `trace.*`: recording what the browser does for a page, and summing it up.

mod analyze;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek as _, Write as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use yonder_analysis::trace::{Scope, TraceError};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{
    FileKind, Recording as Started, TraceCaptured, TraceStart,
};

pub(crate) use self::analyze::analyze;
use crate::actions::failed;
use crate::cdp::{Ack, CdpError, EventStream, NoParams, Session};
use crate::files::Files;
use crate::tab::Tab;

/// Recording time unless the caller asks for another.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// What Chromium records into: some minutes of a quiet page, 15 s of a very busy one.
const BUFFER_KIB: u32 = 64 * 1024;

/// How long the browser may take to gather the recording from its processes.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that are read of it at once.
const READ_BYTES: u32 = 1024 * 1024;

/// Longest recording, compressed: a full buffer has some 15 MiB.
const RAW_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Characters of an element's name.
const NODE_NAME_CHARS: usize = 80;

/// What the Performance panel records, without pictures.
const CATEGORIES: &[&str] = &[
    "devtools.timeline",
    "disabled-by-default-devtools.timeline",
    "disabled-by-default-devtools.timeline.frame",
    "disabled-by-default-devtools.timeline.stack",
    "v8.execute",
    "disabled-by-default-v8.compile",
    "disabled-by-default-v8.cpu_profiler",
    "disabled-by-default-v8.inspector",
    "blink.user_timing",
    "blink.console",
    "loading",
    "latencyInfo",
    "navigation",
    "rail",
    "cppgc",
    "disabled-by-default-lighthouse",
];

/// A recording of one tab, under way or ended by itself.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Dropped, too, it ends the recording.
    stop: oneshot::Sender<()>,
    raw: JoinHandle<Result<Raw, CdpError>>,
}

/// What the browser recorded, of all its pages.
#[derive(Debug)]
struct Raw {
    /// Gzip; without a name, for this process alone.
    file: File,
    duration: Duration,
    /// The buffer was full.
    lost: bool,
    /// It is longer than [`RAW_BYTES_MAX`].
    cut: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Complete {
    #[serde(default)]
    data_loss_occurred: bool,
    stream: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece {
    #[serde(default)]
    base64_encoded: bool,
    data: String,
    eof: bool,
}

/// Begins to record; ends by itself after the asked time.
///
/// # Errors
/// [`ErrorCode::Invalid`] if the tab or, as Chromium does one at a time, another one records already.
pub(crate) async fn start(
    tasks: &TaskTracker,
    files: &Files,
    tab: &Tab,
    input: &TraceStart,
) -> Result<Started, OperationError> {
    let mut slot = tab.trace().lock().await;
    if slot.is_some() {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "the tab has a trace already; end it with trace.stop",
        ));
    }
    let file = files.scratch().await?;
    let page = tab.session().clone();
    let events = page.events();
    let record = json!({
        "transferMode": "ReturnAsStream",
        "streamFormat": "json",
        "streamCompression": "gzip",
        "traceConfig": {
            "recordMode": "recordUntilFull",
            "traceBufferSizeInKb": BUFFER_KIB,
            "excludedCategories": ["*"],
            "includedCategories": CATEGORIES,
        },
    });
    let begun = page.call::<Ack>("Tracing.start", record).await;
    begun.map_err(|error| match error {
        CdpError::Refused { message, .. } if message.contains("already been started") => {
            OperationError::new(
                ErrorCode::Invalid,
                "another tab is being traced, and Chromium records one trace at a time; end that one with trace.stop, or wait until it ends by itself",
            )
        }
        error => failed(tab, error),
    })?;
    let duration = input.duration_ms.map_or(DURATION_DEFAULT, |limit| {
        Duration::from_millis(limit.get().unsigned_abs())
    });
    let (stop, stopped) = oneshot::channel();
    let began = Instant::now();
    let raw = tasks.spawn(async move {
        // Stopped, out of time, or the tab is gone: all end it.
        tokio::select! {
            _ = timeout(duration, stopped) => {}
            () = page.ended() => {}
        }
        end(&page, events, file, began).await
    });
    *slot = Some(Recording { stop, raw });
    Ok(Started {
        tab: tab.summary(),
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Has the browser end the recording and hand it over.
async fn end(
    page: &Session,
    mut events: EventStream,
    mut file: File,
    began: Instant,
) -> Result<Raw, CdpError> {
    page.call::<Ack>("Tracing.end", NoParams {}).await?;
    let duration = began.elapsed();
    let complete = timeout(FLUSH_LIMIT, async {
        while let Some(event) = events.next().await {
            if event.method == "Tracing.tracingComplete" {
                return event.parse::<Complete>();
            }
        }
        Err(CdpError::Detached)
    });
    let complete = complete.await.map_err(|_| CdpError::TimedOut {
        method: "Tracing.end",
    })??;
    let stream = complete.stream.unwrap_or_default();
    let read = json!({ "handle": stream, "size": READ_BYTES });
    let mut bytes = 0;
    let mut cut = false;
    loop {
        let piece: Piece = page.call("IO.read", &read).await?;
        let data = if piece.base64_encoded {
            STANDARD
                .decode(piece.data)
                .map_err(|error| malformed(&error))?
        } else {
            piece.data.into_bytes()
        };
        bytes += data.len() as u64;
        if bytes > RAW_BYTES_MAX {
            cut = true;
            break;
        }
        // A piece is written within a millisecond or so.
        file.write_all(&data).map_err(|error| malformed(&error))?;
        if piece.eof {
            break;
        }
    }
    // Best effort: what stays is forgotten with the page.
    let _ = page
        .call::<Ack>("IO.close", json!({ "handle": stream }))
        .await;
    Ok(Raw {
        file,
        duration,
        lost: complete.data_loss_occurred,
        cut,
    })
}

fn malformed(error: &dyn std::error::Error) -> CdpError {
    CdpError::Malformed {
        method: "IO.read".to_owned(),
        reason: error.to_string(),
    }
}

/// Ends the recording and keeps what it has of the tab.
///
/// # Errors
/// [`ErrorCode::Invalid`] if there is none, [`ErrorCode::FileFailed`] if it cannot be kept.
pub(crate) async fn stop(files: &Files, tab: &Tab) -> Result<TraceCaptured, OperationError> {
    let recording = tab.trace().lock().await.take();
    let Some(Recording { stop, raw }) = recording else {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "the tab has no trace; begin one with trace.start",
        ));
    };
    // One that ended by itself does not listen.
    let _ = stop.send(());
    let raw = match raw.await {
        Ok(Ok(raw)) => raw,
        Ok(Err(error)) => return Err(failed(tab, error)),
        Err(error) => {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!("the trace ended abnormally: {error}"),
            ));
        }
    };
    if raw.cut {
        return Err(OperationError::new(
            ErrorCode::FileFailed,
            format!(
                "the trace has more than {} MiB compressed and is not kept; record for a shorter time",
                RAW_BYTES_MAX / 1024 / 1024
            ),
        ));
    }
    let main = tab.target().to_owned();
    let mut file = raw.file;
    let found = spawn_blocking(move || {
        file.rewind()?;
        let scope = Scope::find(BufReader::new(MultiGzDecoder::new(&file)), &main)?;
        Ok::<_, TraceError>((file, scope))
    });
    let (mut file, scope) = joined(found.await)?;
    let names = names_of(tab, &scope).await;
    let split = scope.is_split();
    let empty = scope.is_empty();
    let mut draft = files
        .begin(tab, FileKind::Trace, "trace.json.gz", "application/gzip")
        .await?;
    let write = move |output: File| {
        file.rewind()?;
        let input = BufReader::new(MultiGzDecoder::new(&file));
        let mut output = GzEncoder::new(BufWriter::new(output), Compression::fast());
        scope.narrow(input, &mut output, &names)?;
        output.finish()?.flush()?;
        Ok::<_, TraceError>(())
    };
    draft.fill(write).await?.map_err(not_kept)?;
    let mut reasons = Vec::new();
    if raw.lost {
        reasons.push(
            "the browser's buffer was full before the end: record for a shorter time".to_owned(),
        );
    }
    if split {
        reasons.push("the page moved to another process: what it did before and after is recorded, but not what the browser did in between".to_owned());
    }
    if empty {
        reasons.push(
            "the browser told nothing of this tab: record again while it loads or works".to_owned(),
        );
    }
    Ok(TraceCaptured {
        tab: tab.summary(),
        file: files.finish(draft).await?,
        duration_ms: u64::try_from(raw.duration.as_millis()).unwrap_or(u64::MAX),
        incomplete: !reasons.is_empty(),
        reasons,
    })
}

fn joined<T>(
    done: Result<Result<T, TraceError>, tokio::task::JoinError>,
) -> Result<T, OperationError> {
    done.map_err(|error| not_kept(io::Error::other(error).into()))?
        .map_err(not_kept)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "used as a function of the error"
)]
fn not_kept(error: TraceError) -> OperationError {
    OperationError::new(
        ErrorCode::FileFailed,
        format!("the trace could not be kept: {error}"),
    )
}

#[derive(Deserialize)]
struct Described {
    node: DescribedNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribedNode {
    local_name: String,
    node_name: String,
    /// Names and values by turns.
    #[serde(default)]
    attributes: Vec<String>,
}

/// Names of the elements that the trace only has ids of, as selectors; those that are gone have none.
async fn names_of(tab: &Tab, scope: &Scope) -> BTreeMap<i64, String> {
    let mut names = BTreeMap::new();
    if scope.is_split() {
        // The ids of another process would name other elements.
        return names;
    }
    for node in scope.nodes() {
        let describe = json!({ "backendNodeId": node });
        let described = tab
            .session()
            .call::<Described>("DOM.describeNode", describe);
        if let Ok(Described { node: described }) = described.await {
            names.insert(node, selector(&described));
        }
    }
    names
}

fn selector(node: &DescribedNode) -> String {
    let mut name = match &*node.local_name {
        "" => node.node_name.clone(),
        name => name.to_owned(),
    };
    let attribute = |wanted: &str| {
        let mut pairs = node.attributes.chunks_exact(2);
        pairs.find(|pair| pair[0] == wanted).map(|pair| &pair[1])
    };
    if let Some(id) = attribute("id").filter(|id| !id.is_empty()) {
        name = format!("{name}#{id}");
    } else if let Some(classes) = attribute("class") {
        for class in classes.split_ascii_whitespace() {
            name = format!("{name}.{class}");
        }
    }
    clipped(&name, NODE_NAME_CHARS)
}

fn clipped(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}
