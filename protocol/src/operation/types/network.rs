//! Types of the `network.…` operations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, FileInfo, Needle, Short, Tab, TabId};

/// What a request is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ResourceType {
    Document,
    Stylesheet,
    Image,
    Media,
    Font,
    Script,
    Xhr,
    Fetch,
    EventSource,
    WebSocket,
    Manifest,
    #[default]
    Other,
}

/// How far a request has come. An HTTP error status is completed, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum RequestState {
    Pending,
    Completed,
    Failed,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkListRequest {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// Literal, case-sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_contains: Option<Needle>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_type: Option<ResourceType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RequestState>,
    /// Default: the latest that fit a short answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bounded<1, 500>>,
    /// Only those before this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Short>,
    /// Only those after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Short>,
    /// Those of earlier documents, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<bool>,
}

/// A request. Each hop of a redirect is one of its own.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkRequest {
    pub id: String,
    /// Values that look secret are hidden.
    pub url: String,
    pub method: String,
    pub resource_type: ResourceType,
    pub state: RequestState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u64>,
    /// Of the start, since 1970.
    pub timestamp_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Transferred, headers included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Absent for the main frame.
    #[serde(rename = "frameID", default, skip_serializing_if = "Option::is_none")]
    pub frame_id: Option<String>,
    /// Kind and URL, if a worker made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Requests, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkList {
    pub tab: Tab,
    pub requests: Vec<NetworkRequest>,
    /// How many match.
    pub total: u64,
    /// More match than are listed.
    pub truncated: bool,
    /// How many are no longer kept.
    pub dropped: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkGet {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// From network.list.
    pub id: Needle,
    /// Text in the answer, anything else as a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_body: Option<bool>,
    /// Default 20000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_chars: Option<Bounded<1, 20_000>>,
    /// Only WebSocket frames and events that hold this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_contain: Option<Needle>,
    /// Only frames before this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_before: Option<u64>,
    /// Show what is hidden: cookies, authorization, passwords.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<bool>,
}

/// A header field; the name is in lower case.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub name: String,
    pub value: String,
}

/// Why a body is not shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum BodyUnavailable {
    /// Not text, and too large for a file or sent by the page.
    Binary,
    /// Too large to be kept, or no longer kept.
    NotCaptured,
    /// The browser does not have it.
    BackendUnavailable,
}

/// The body of a request or response.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
pub enum Body {
    NotRequested,
    Pending,
    Empty,
    Text {
        text: String,
        truncated: bool,
    },
    /// Saved, see files.
    File,
    Unavailable {
        reason: BodyUnavailable,
    },
}

/// What made the browser ask.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Initiator {
    /// parser, script, preload, preflight or other.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// Milliseconds of each part of a request.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timing {
    /// Until it was sent: queues and connecting.
    pub blocked_ms: u64,
    /// From sent to the response's header.
    pub wait_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_ms: Option<u64>,
}

/// A WebSocket frame or an event of an EventSource.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkFrame {
    /// Counts the frames of the request.
    pub number: u64,
    pub timestamp_ms: u64,
    /// sent or received.
    pub direction: String,
    /// text, binary, error, or an event's name.
    pub kind: String,
    /// Base64 if binary.
    pub text: String,
    pub truncated: bool,
    /// Size of the whole.
    pub bytes: u64,
}

/// Frames of a WebSocket or EventSource, oldest first.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkFrames {
    pub list: Vec<NetworkFrame>,
    /// How many there were.
    pub total: u64,
    /// More match than are listed.
    pub truncated: bool,
    /// How many are no longer kept.
    pub dropped: u64,
    /// The connection is still open.
    pub open: bool,
}

/// Everything about one request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkDetail {
    pub tab: Tab,
    pub request: NetworkRequest,
    pub request_headers: Vec<Header>,
    pub response_headers: Vec<Header>,
    pub headers_truncated: bool,
    pub request_body: Body,
    pub response_body: Body,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// Such as http/1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// cache, serviceWorker or prefetch, if not the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_from: Option<String>,
    /// Size of the decoded body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<Initiator>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirected_from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirected_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<NetworkFrames>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileInfo>,
}
