//! Inputs and outputs of the operations. Doc comments become the descriptions in the JSON Schemas
//! that agents read, so they are short.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::locator::Aim;
use super::scalar::{Bounded, FileId, Needle, Short, TabId, Text};

mod act;
mod console;
mod files;
mod network;
mod profiling;
mod trace;

pub use self::act::{
    Check, Click, Drag, Fill, FillForm, FormField, Hover, Modifier, MouseButton, OptionValues,
    Press, Scroll, ScrollPixels, Select,
};
pub use self::console::{Console, ConsoleEntry, ConsoleList, Level, Source};
pub use self::files::{Captured, FileEntry, FileKind, FileState, FilesList, OfFile, Upload};
pub use self::network::{
    Body, BodyUnavailable, Header, Initiator, NetworkDetail, NetworkFrame, NetworkFrames,
    NetworkGet, NetworkList, NetworkListRequest, NetworkRequest, RequestState, ResourceType,
    Timing,
};

pub use self::profiling::{
    CpuAnalyze, CpuFunction, CpuStack, CpuStart, CpuSummary, HeapChanges, HeapClass,
    HeapClassChange, HeapCompare, HeapDetached, HeapLink, HeapNode, HeapNodes, HeapObject,
    HeapObjectRequest, HeapQuery, HeapSummary, HeapSummaryRequest, ListLimit, Recording,
};
pub use self::trace::{
    TraceAnalyze, TraceBlocking, TraceCaptured, TraceEvent, TraceForcedLayout, TraceInsight,
    TraceInteraction, TraceLcp, TraceLongTask, TraceMetrics, TraceScript, TraceShift, TraceStart,
    TraceSummary,
};

/// A tab as every page operation answers it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tab {
    pub id: TabId,
    pub url: String,
    pub title: String,
    pub loading: bool,
    pub can_go_back: bool,
    pub can_go_forward: bool,
    /// Counts the documents of the tab.
    pub generation: u64,
    /// The tab whose page opened this one.
    #[serde(rename = "openerID", default, skip_serializing_if = "Option::is_none")]
    pub opener_id: Option<TabId>,
}

/// All tabs of the session.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    pub tabs: Vec<Tab>,
    #[serde(rename = "focusedTabID")]
    pub focused_tab_id: Option<TabId>,
}

/// A file that an operation made, saved on the server.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileInfo {
    pub id: FileId,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    /// On the server.
    pub path: String,
}

/// No arguments.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// Just a tab.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfTab {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TabsOpen {
    /// http, https or about:blank; localhost is the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Short>,
    /// Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<bool>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Navigate {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// http, https or about:blank; localhost is the server's.
    pub url: Needle,
}

/// A frame of a tab.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    pub id: String,
    #[serde(rename = "parentID", default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    pub url: String,
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    pub tab: Tab,
    pub frames: Vec<Frame>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// From frames; default all frames.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<Short>,
    /// Only this element and what it holds.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Aim>,
    /// Levels below the root, default 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<Bounded<1, 20>>,
    /// Add each element's box in CSS pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<bool>,
}

/// An outline of a page: one line per element, `@eN` where it can be acted on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outline {
    pub tab: Tab,
    pub content: Text,
    /// More is there than shown.
    pub truncated: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Find {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// From frames; default all frames.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<Short>,
    /// Literal, any case.
    pub text: Needle,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluate {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// From frames; default the main frame.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<Short>,
    /// A JavaScript expression or statements; a promise is awaited.
    pub script: Text,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluated {
    pub tab: Tab,
    /// JSON value; undefined is null.
    pub value: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum WaitCondition {
    Load,
    Text,
    TextGone,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// From frames; default the main frame.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<Short>,
    pub condition: WaitCondition,
    /// Needed for text and textGone; case-sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Short>,
    /// Default 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Bounded<1, 30_000>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum DialogAction {
    Get,
    Accept,
    Dismiss,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DialogRequest {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    pub action: DialogAction,
    /// What a prompt answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<Short>,
}

/// An open JavaScript dialog.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dialog {
    /// alert, confirm, prompt or beforeunload.
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    pub default_value: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DialogState {
    pub tab: Tab,
    pub dialog: Option<Dialog>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ImageFormat {
    #[default]
    Png,
    Jpeg,
    Webp,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Screenshot {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// Only this element; not with fullPage.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Aim>,
    /// The whole page, not just the viewport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_page: Option<bool>,
    /// Default png.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
    /// Default 80; ignored for png.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Bounded<1, 100>>,
    /// In pixels, default 2000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_width: Option<Bounded<100, 4_000>>,
}

/// The tab, and the files that the operation made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    pub tab: Tab,
    pub files: Vec<FileInfo>,
}
