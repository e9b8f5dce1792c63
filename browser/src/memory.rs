//! `heap.*`: recording a page's JavaScript heap, and questions about recordings.

mod answers;
mod cache;

use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{Captured, FileKind};

pub(crate) use self::answers::{Source, compare, object, query, summary};
pub(crate) use self::cache::HeapCache;
use crate::actions::failed;
use crate::cdp::{Ack, Event, NoParams};
use crate::files::{Draft, Files};
use crate::tab::Tab;

/// Collecting garbage of a large page takes a second or two.
const COLLECT_LIMIT: Duration = Duration::from_secs(20);

/// Recording: some 5 s for 35 MB of heap, the operation's own deadline for the rest.
const CAPTURE_LIMIT: Duration = Duration::from_secs(110);

const CHUNK: &str = "HeapProfiler.addHeapSnapshotChunk";

#[derive(Deserialize)]
struct Chunk {
    chunk: String,
}

/// Collects garbage, then records the heap of the tab's page, to disk as it comes. The page stands still meanwhile.
///
/// # Errors
/// [`ErrorCode::Timeout`] if the page takes too long, [`ErrorCode::FileFailed`] if the disk does not take it.
///
/// # Cancel safety
/// Dropping the future removes what was written; the browser finishes its walk and tells nobody.
pub(crate) async fn snapshot(files: &Files, tab: &Tab) -> Result<Captured, OperationError> {
    let page = tab.session();
    let mut events = page.events();
    let enabled = page.call::<Ack>("HeapProfiler.enable", NoParams {}).await;
    enabled.map_err(|error| failed(tab, error))?;
    page.call_within::<Ack>(COLLECT_LIMIT, "HeapProfiler.collectGarbage", NoParams {})
        .await
        .map_err(|error| failed(tab, error))?;
    let mut draft = files
        .begin(
            tab,
            FileKind::HeapSnapshot,
            "heap.heapsnapshot",
            "application/json",
        )
        .await?;
    let take = page.call_within::<Ack>(
        CAPTURE_LIMIT,
        "HeapProfiler.takeHeapSnapshot",
        json!({ "reportProgress": false }),
    );
    tokio::pin!(take);
    loop {
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(event) => store(tab, &mut draft, &event).await?,
                None => return Err(failed(tab, crate::cdp::CdpError::Detached)),
            },
            taken = &mut take => {
                taken.map_err(|error| failed(tab, error))?;
                break;
            }
        }
    }
    // The last piece comes before the reply, and may have come together with it.
    while let Some(Some(event)) = events.next().now_or_never() {
        store(tab, &mut draft, &event).await?;
    }
    let missed = events.take_missed();
    // Best effort: what stays on costs the page little, and ends with it.
    let _ = timeout(
        COLLECT_LIMIT,
        page.call::<Ack>("HeapProfiler.disable", NoParams {}),
    )
    .await;
    if missed {
        return Err(OperationError::new(
            ErrorCode::OperationFailed,
            "the desk's disk is too slow for this recording, a part of which was lost; record again when it has less to do",
        ));
    }
    Ok(Captured {
        tab: tab.summary(),
        file: files.finish(draft).await?,
    })
}

async fn store(tab: &Tab, draft: &mut Draft, event: &Event) -> Result<(), OperationError> {
    if event.method != CHUNK {
        return Ok(());
    }
    let piece: Chunk = event.parse().map_err(|error| failed(tab, error))?;
    draft.write(piece.chunk.as_bytes()).await
}
