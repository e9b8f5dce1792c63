//! Heap snapshots and CPU profiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Tab;
use crate::operation::scalar::{Bounded, FileId, Needle, TabId};

/// Entries of each list.
pub type ListLimit = Bounded<1, 200>;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapSummaryRequest {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
    /// Entries of each list, default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeapClass {
    pub name: String,
    pub count: u64,
    pub self_bytes: u64,
    pub retained_bytes: u64,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapDetached {
    pub name: String,
    pub count: u64,
}

/// An object of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeapNode {
    /// For heap.object; the same in later snapshots of the page.
    pub id: u32,
    pub name: String,
    pub class: String,
    pub self_bytes: u64,
    pub retained_bytes: u64,
    /// A DOM node in no document.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeapSummary {
    pub tab: Tab,
    pub nodes: u64,
    pub edges: u64,
    pub self_bytes: u64,
    /// By retained size.
    pub classes: Vec<HeapClass>,
    pub classes_total: u64,
    /// DOM nodes in no document that are still held.
    pub detached: Vec<HeapDetached>,
    pub detached_total: u64,
    /// Objects by retained size.
    pub largest: Vec<HeapNode>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapQuery {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
    /// Part of a name or class, any case.
    pub name: Needle,
    /// Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapNodes {
    pub tab: Tab,
    /// By retained size.
    pub nodes: Vec<HeapNode>,
    pub total: u64,
    pub truncated: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapObjectRequest {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
    /// From heap.summary or heap.query.
    pub id: u32,
    /// Entries of each list, default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

/// A reference, and the object at its other end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapLink {
    pub name: String,
    /// It keeps nothing alive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weak: bool,
    pub node: HeapNode,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeapObject {
    pub tab: Tab,
    pub node: HeapNode,
    /// Without it the object would be free.
    pub dominator: HeapNode,
    /// From the object to the root: who holds it, and by which name.
    pub path: Vec<HeapLink>,
    pub references: Vec<HeapLink>,
    pub references_total: u64,
    pub retainers: Vec<HeapLink>,
    pub retainers_total: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapCompare {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// File id.
    pub before: FileId,
    /// File id.
    pub after: FileId,
    /// Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeapClassChange {
    pub name: String,
    pub count_delta: i64,
    pub bytes_delta: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeapChanges {
    pub tab: Tab,
    /// By change of bytes.
    pub classes: Vec<HeapClassChange>,
    pub total: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuStart {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// Stops by itself after this; default 30000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Bounded<100, 60_000>>,
}

/// What was begun, and after which time it ends by itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recording {
    pub tab: Tab,
    pub duration_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuAnalyze {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
    /// Entries of each list, default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuFunction {
    pub name: String,
    /// Empty for the engine's own.
    pub url: String,
    /// From 1; 0 without a source.
    pub line: u32,
    pub column: u32,
    pub self_ms: f64,
    pub total_ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuStack {
    pub self_ms: f64,
    /// Innermost first.
    pub frames: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuSummary {
    pub tab: Tab,
    pub duration_ms: f64,
    pub idle_ms: f64,
    pub gc_ms: f64,
    pub samples: u64,
    /// By self time.
    pub functions: Vec<CpuFunction>,
    pub functions_total: u64,
    pub stacks: Vec<CpuStack>,
}
