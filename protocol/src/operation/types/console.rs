//! Types of the `console` operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, Needle, Short, Tab, TabId};

/// How severe a message is; the order is that of severity.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Level {
    Debug,
    #[default]
    Info,
    Warning,
    Error,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Console {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// This and more severe ones, default info.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Literal, any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<Needle>,
    /// Default: the latest that fit a short answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 500>>,
    /// Only those before this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Short>,
    /// Only those after this id, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Short>,
    /// Those of earlier documents, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<bool>,
}

/// Where in a script; lines and columns count from 1.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub url: String,
    pub line: u64,
    pub column: u64,
}

/// A console message, an uncaught exception, or a report of the browser.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsoleEntry {
    pub id: String,
    /// Of the last one, since 1970.
    pub timestamp_ms: u64,
    pub level: Level,
    pub text: String,
    pub text_truncated: bool,
    /// How many equal ones; absent for 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Absent for the main frame.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<String>,
    /// Kind and URL, if a worker wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Messages, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleList {
    pub tab: Tab,
    pub messages: Vec<ConsoleEntry>,
    /// How many match, equal ones counted once.
    pub total: u64,
    /// More match than are listed.
    pub truncated: bool,
    /// How many are no longer kept.
    pub dropped: u64,
}
