//! Traces of a page's load and work, and audits of what it shows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileEntry, ListLimit, Tab};
use crate::operation::scalar::{Bounded, FileId, TabId};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceStart {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// Stops by itself after this; default 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Bounded<1_000, 30_000>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceCaptured {
    pub tab: Tab,
    pub file: FileEntry,
    /// That was recorded.
    pub duration_ms: u64,
    /// Something is missing.
    pub incomplete: bool,
    /// What, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceAnalyze {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
    /// Entries of each list, default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ListLimit>,
}

/// The largest contentful paint; TTFB and the three parts add up to it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceLcp {
    pub ms: f64,
    /// `text` or `image`.
    pub kind: String,
    pub element: String,
    /// Square pixels.
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_delay_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render_delay_ms: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceShift {
    pub at_ms: f64,
    pub score: f64,
    /// What moved.
    pub elements: Vec<String>,
}

/// The three parts add up to `ms`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceInteraction {
    pub at_ms: f64,
    pub event: String,
    pub ms: f64,
    pub input_delay_ms: f64,
    pub processing_ms: f64,
    pub presentation_ms: f64,
}

/// As Chromium measured them; what the trace does not hold is absent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceMetrics {
    /// Of the last load in the trace; without one, times count from the trace's begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttfb_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fcp_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lcp: Option<TraceLcp>,
    pub cls: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<TraceShift>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inp_ms: Option<f64>,
    /// The slowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interactions: Vec<TraceInteraction>,
    /// Tasks of over 50 ms on the main thread.
    pub long_tasks: u64,
    /// Beyond 50 ms of each after the first paint.
    pub blocking_ms: f64,
    pub forced_layout_ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceLongTask {
    pub at_ms: f64,
    pub ms: f64,
    /// The longest script in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceBlocking {
    pub url: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceForcedLayout {
    pub function: String,
    pub url: String,
    /// From 1.
    pub line: u32,
    pub column: u32,
    pub count: u64,
    pub ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceScript {
    pub url: String,
    /// On the main thread.
    pub ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceEvent {
    pub name: String,
    pub count: u64,
    pub total_ms: f64,
    pub max_ms: f64,
}

/// What the Performance panel of Chromium's developer tools finds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceInsight {
    pub id: String,
    pub title: String,
    pub description: String,
    /// `fail` or `informative`.
    pub state: String,
    /// Of the metric that gains most, estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub savings_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wasted_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceSummary {
    pub tab: Tab,
    pub duration_ms: f64,
    pub navigations: u64,
    pub metrics: TraceMetrics,
    /// The longest first.
    pub long_tasks: Vec<TraceLongTask>,
    pub render_blocking: Vec<TraceBlocking>,
    pub forced_layouts: Vec<TraceForcedLayout>,
    pub scripts: Vec<TraceScript>,
    /// By total time.
    pub events: Vec<TraceEvent>,
    pub insights: Vec<TraceInsight>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insights_missing: Option<String>,
}
