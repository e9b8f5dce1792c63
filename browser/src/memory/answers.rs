//! Questions about recorded heaps, from the analyser's words into the operations'.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use yonder_analysis::heap::{self, Heap, NodeInfo};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::FileId;
use yonder_protocol::operation::types::{
    FileKind, HeapChanges, HeapClass, HeapClassChange, HeapCompare, HeapDetached, HeapLink,
    HeapNode, HeapNodes, HeapObject, HeapObjectRequest, HeapQuery, HeapSummary, HeapSummaryRequest,
    ListLimit,
};

use super::HeapCache;
use crate::files::Files;
use crate::tab::Tab;

/// Entries of a list unless the caller asks for others.
const LIMIT_DEFAULT: usize = 20;

/// Characters of a name that are told: strings of a page are names here.
const NAME_CHARS: usize = 200;

/// Where snapshots are, parsed and not.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) files: &'a Files,
    pub(crate) heaps: &'a HeapCache,
    pub(crate) tab: &'a Tab,
}

impl Source<'_> {
    async fn heap(&self, id: &FileId) -> Result<Arc<Heap>, OperationError> {
        let stored = self.files.find_kind(self.tab, id, FileKind::HeapSnapshot)?;
        self.heaps.get(stored).await
    }
}

/// Runs what takes some ten milliseconds where it stops nobody else.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OperationError> {
    spawn_blocking(work).await.map_err(|error| {
        OperationError::new(
            ErrorCode::OperationFailed,
            format!("the analysis ended abnormally: {error}"),
        )
    })
}

fn limit(asked: Option<ListLimit>) -> usize {
    asked
        .and_then(|limit| usize::try_from(limit.get()).ok())
        .unwrap_or(LIMIT_DEFAULT)
}

fn short(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(NAME_CHARS).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

fn node(info: &NodeInfo) -> HeapNode {
    HeapNode {
        id: info.id,
        name: short(&info.name),
        class: short(&info.class),
        self_bytes: info.self_bytes,
        retained_bytes: info.retained_bytes,
        detached: info.detached,
    }
}

/// `heap.summary`.
///
/// # Errors
/// As [`Files::find_kind`] and [`HeapCache::get`] have them.
pub(crate) async fn summary(
    source: Source<'_>,
    input: &HeapSummaryRequest,
) -> Result<HeapSummary, OperationError> {
    let heap = source.heap(&input.file_id).await?;
    let limit = limit(input.limit);
    let summary = aside(move || heap.summary(limit)).await?;
    Ok(HeapSummary {
        tab: source.tab.summary(),
        nodes: summary.nodes as u64,
        edges: summary.edges as u64,
        self_bytes: summary.self_bytes,
        classes: (summary.classes.into_iter())
            .map(|class| HeapClass {
                name: short(&class.name),
                count: class.count,
                self_bytes: class.self_bytes,
                retained_bytes: class.retained_bytes,
            })
            .collect(),
        classes_total: summary.classes_total as u64,
        detached: (summary.detached.into_iter())
            .map(|detached| HeapDetached {
                name: short(&detached.name),
                count: detached.count,
            })
            .collect(),
        detached_total: summary.detached_total,
        largest: summary.largest.iter().map(node).collect(),
    })
}

/// `heap.query`.
///
/// # Errors
/// As for [`summary`].
pub(crate) async fn query(
    source: Source<'_>,
    input: &HeapQuery,
) -> Result<HeapNodes, OperationError> {
    let heap = source.heap(&input.file_id).await?;
    let limit = limit(input.limit);
    let name = input.name.clone();
    let (nodes, total) = aside(move || heap.query(name.as_str(), limit)).await?;
    Ok(HeapNodes {
        tab: source.tab.summary(),
        truncated: total > nodes.len(),
        total: total as u64,
        nodes: nodes.iter().map(node).collect(),
    })
}

/// `heap.object`.
///
/// # Errors
/// As for [`summary`]; [`ErrorCode::NotFound`] for an id that the snapshot does not have.
pub(crate) async fn object(
    source: Source<'_>,
    input: &HeapObjectRequest,
) -> Result<HeapObject, OperationError> {
    let heap = source.heap(&input.file_id).await?;
    let (id, limit) = (input.id, limit(input.limit));
    let found = aside(move || heap.object(id, limit)).await?;
    let object = found.ok_or_else(|| {
        OperationError::new(
            ErrorCode::NotFound,
            format!(
                "the snapshot has no object {id}; take ids from its own heap.summary or heap.query"
            ),
        )
    })?;
    let link = |link: &heap::Link| HeapLink {
        name: short(&link.name),
        weak: link.weak,
        node: node(&link.node),
    };
    Ok(HeapObject {
        tab: source.tab.summary(),
        node: node(&object.node),
        dominator: node(&object.dominator),
        path: (object.path.iter())
            .map(|step| HeapLink {
                name: short(&step.name),
                weak: false,
                node: node(&step.node),
            })
            .collect(),
        references: object.references.iter().map(link).collect(),
        references_total: object.references_total as u64,
        retainers: object.retainers.iter().map(link).collect(),
        retainers_total: object.retainers_total as u64,
    })
}

/// `heap.compare`.
///
/// # Errors
/// As for [`summary`].
pub(crate) async fn compare(
    source: Source<'_>,
    input: &HeapCompare,
) -> Result<HeapChanges, OperationError> {
    let before = source.heap(&input.before).await?;
    let after = source.heap(&input.after).await?;
    let changes = aside(move || heap::compare(&before, &after)).await?;
    let total = changes.len() as u64;
    let classes = changes.into_iter().take(limit(input.limit));
    Ok(HeapChanges {
        tab: source.tab.summary(),
        classes: classes
            .map(|change| HeapClassChange {
                name: short(&change.name),
                count_delta: change.count_delta,
                bytes_delta: change.bytes_delta,
            })
            .collect(),
        total,
    })
}
