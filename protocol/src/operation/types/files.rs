//! Files of a tab.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Tab;
use crate::operation::locator::Aim;
use crate::operation::scalar::{FileId, Listed, Needle, TabId};

/// What a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum FileKind {
    /// A copy that a page was given.
    Upload,
    /// What a page had the browser save.
    Download,
    HeapSnapshot,
    CpuProfile,
    Trace,
}

impl FileKind {
    /// As people say.
    pub fn words(self) -> &'static str {
        match self {
            Self::Upload => "an upload",
            Self::Download => "a download",
            Self::HeapSnapshot => "a heap snapshot",
            Self::CpuProfile => "a CPU profile",
            Self::Trace => "a trace",
        }
    }
}

/// How far a file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum FileState {
    /// A download that goes on.
    Pending,
    Completed,
    /// A download that was cancelled, broke off, or was too large to keep.
    Failed,
}

/// A file that the desktop half keeps for a tab.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileEntry {
    pub id: FileId,
    pub kind: FileKind,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    pub state: FileState,
    /// Of a complete download, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Of the page that it is from, or of the download itself.
    pub url: String,
    /// Since 1970.
    pub timestamp_ms: u64,
}

/// The files of a tab, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesList {
    pub tab: Tab,
    pub files: Vec<FileEntry>,
}

/// A file that the desktop half keeps; files.get brings it to the server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    pub tab: Tab,
    pub file: FileEntry,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfFile {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "fileID")]
    pub file_id: FileId,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// The file field, its label, or the button that asks for files; for files.drop where to let go.
    #[serde(rename = "ref")]
    pub element: Aim,
    /// On the server, below its upload folders.
    pub paths: Listed<Needle, 1, 8>,
}
