//! `cpu.*`: recording where a page's script spends its time, and summing it up.

use std::fs::File;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use yonder_analysis::cpu::{Profile, Summary};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{
    Captured, CpuAnalyze, CpuFunction, CpuStack, CpuStart, CpuSummary, FileKind, ListLimit,
    Recording as Started,
};

use crate::actions::failed;
use crate::cdp::{Ack, CdpError, NoParams, Session};
use crate::files::Files;
use crate::tab::Tab;

/// Recording time unless the caller asks for another.
const DURATION_DEFAULT: Duration = Duration::from_secs(30);

/// Microseconds between samples: a quarter of V8's default, so that functions of a frame are told apart.
const INTERVAL_US: u32 = 250;

/// The page may take this long to hand the profile over: it must come to an end of what it runs first.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Entries of a list unless the caller asks for others.
const LIMIT_DEFAULT: usize = 20;

/// A recording of one tab, under way or ended by itself.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Dropped, too, it ends the recording.
    stop: oneshot::Sender<()>,
    /// The profile as the browser tells it.
    profile: JoinHandle<Result<Box<RawValue>, CdpError>>,
}

#[derive(Deserialize)]
struct Stopped {
    profile: Box<RawValue>,
}

/// Begins to record; ends by itself after the asked time.
///
/// # Errors
/// [`ErrorCode::Invalid`] if the tab records already.
pub(crate) async fn start(
    tasks: &TaskTracker,
    tab: &Tab,
    input: &CpuStart,
) -> Result<Started, OperationError> {
    let mut slot = tab.recording().lock().await;
    if slot.is_some() {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "the tab has a recording already; end it with cpu.stop",
        ));
    }
    let page = tab.session().clone();
    let interval = json!({ "interval": INTERVAL_US });
    let begin = async {
        page.call::<Ack>("Profiler.enable", NoParams {}).await?;
        page.call::<Ack>("Profiler.setSamplingInterval", interval)
            .await?;
        page.call::<Ack>("Profiler.start", NoParams {}).await
    };
    begin.await.map_err(|error| failed(tab, error))?;
    let duration = input.duration_ms.map_or(DURATION_DEFAULT, |limit| {
        Duration::from_millis(limit.get().unsigned_abs())
    });
    let (stop, stopped) = oneshot::channel();
    let profile = tasks.spawn(async move {
        // Stopped, out of time, or the tab is gone: all end it.
        tokio::select! {
            _ = timeout(duration, stopped) => {}
            () = page.ended() => {}
        }
        end(&page).await
    });
    *slot = Some(Recording { stop, profile });
    Ok(Started {
        tab: tab.summary(),
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    })
}

async fn end(page: &Session) -> Result<Box<RawValue>, CdpError> {
    let stopped = page.call_within::<Stopped>(STOP_LIMIT, "Profiler.stop", NoParams {});
    let stopped = stopped.await;
    // Best effort: a page that is gone needs no disabling.
    let _ = page.call::<Ack>("Profiler.disable", NoParams {}).await;
    stopped.map(|stopped| stopped.profile)
}

/// Ends the recording and keeps the profile.
///
/// # Errors
/// [`ErrorCode::Invalid`] if there is none; [`ErrorCode::OperationFailed`] if the page moved to another process, which
/// loses it.
pub(crate) async fn stop(files: &Files, tab: &Tab) -> Result<Captured, OperationError> {
    let recording = tab.recording().lock().await.take();
    let Some(Recording { stop, profile }) = recording else {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "the tab does not record; begin with cpu.start",
        ));
    };
    // One that ended by itself does not listen.
    let _ = stop.send(());
    let profile = match profile.await {
        Ok(Ok(profile)) => profile,
        Ok(Err(CdpError::Refused { .. })) => {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                "the page moved to another process meanwhile, which lost the recording; record again without leaving the site",
            ));
        }
        Ok(Err(error)) => return Err(failed(tab, error)),
        Err(error) => {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!("the recording ended abnormally: {error}"),
            ));
        }
    };
    let mut draft = files
        .begin(
            tab,
            FileKind::CpuProfile,
            "profile.cpuprofile",
            "application/json",
        )
        .await?;
    draft.write(profile.get().as_bytes()).await?;
    Ok(Captured {
        tab: tab.summary(),
        file: files.finish(draft).await?,
    })
}

/// Sums a profile up.
///
/// # Errors
/// As [`Files::find_kind`] has them; [`ErrorCode::FileFailed`] if the file is no profile.
pub(crate) async fn analyze(
    files: &Files,
    tab: &Tab,
    input: &CpuAnalyze,
) -> Result<CpuSummary, OperationError> {
    let stored = files.find_kind(tab, &input.file_id, FileKind::CpuProfile)?;
    let limit = input.limit.map(ListLimit::get);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let read = spawn_blocking(move || {
        let file = File::open(&stored.path).map_err(|error| error.to_string())?;
        let profile = Profile::read(file).map_err(|error| error.to_string())?;
        Ok::<_, String>(profile.summary(limit.unwrap_or(LIMIT_DEFAULT)))
    });
    match read.await {
        Ok(Ok(summary)) => Ok(told(tab, summary)),
        Ok(Err(reason)) => Err(not_read(input, &reason)),
        Err(error) => Err(not_read(input, &error.to_string())),
    }
}

fn not_read(input: &CpuAnalyze, reason: &str) -> OperationError {
    OperationError::new(
        ErrorCode::FileFailed,
        format!("{} could not be analysed: {reason}", input.file_id),
    )
}

fn told(tab: &Tab, summary: Summary) -> CpuSummary {
    CpuSummary {
        tab: tab.summary(),
        duration_ms: milliseconds(summary.duration_us),
        idle_ms: milliseconds(summary.idle_us),
        gc_ms: milliseconds(summary.gc_us),
        samples: summary.samples as u64,
        functions: (summary.functions.into_iter())
            .map(|function| CpuFunction {
                name: function.name,
                url: function.url,
                line: function.line,
                column: function.column,
                self_ms: milliseconds(function.self_us),
                total_ms: milliseconds(function.total_us),
            })
            .collect(),
        functions_total: summary.functions_total as u64,
        stacks: (summary.stacks.into_iter())
            .map(|stack| CpuStack {
                self_ms: milliseconds(stack.self_us),
                frames: stack.frames,
            })
            .collect(),
    }
}

/// With one digit behind the point: samples are no finer.
fn milliseconds(us: u64) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "exact to a microsecond for centuries"
    )]
    let tenths = (us as f64 / 100.0).round();
    tenths / 10.0
}
