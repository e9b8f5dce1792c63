//! Why an operation failed, in a form that an agent can act on.

use serde::{Deserialize, Serialize};

/// The kind of failure of an operation. Its text form is what HTTP and MCP callers see.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The arguments do not fit the operation; nothing was done.
    Invalid,
    /// There is no operation of that name.
    UnknownOperation,
    /// The operation exists but this version does not carry it out.
    Unsupported,
    /// No desktop serves the browser session, or it left while the call waited.
    Disconnected,
    /// The tab is not among the session's tabs.
    TabUnavailable,
    /// The tab moved to another document since it was last observed.
    Stale,
    /// The ref, frame, text or element is not there.
    NotFound,
    /// The element is there but cannot be acted on: covered, disabled, hidden.
    NotActionable,
    /// A JavaScript dialog of the tab waits for an answer.
    DialogOpen,
    /// A Chromium network error on a navigation.
    NavigationFailed,
    /// No result within the deadline; whether the browser acted is unknown.
    Timeout,
    /// The caller cancelled; whether the browser acted is unknown.
    Cancelled,
    /// A page, its renderer or the browser crashed.
    Crashed,
    /// Too many operations, tabs or bytes at once.
    Overloaded,
    /// A file could not be read or written.
    FileFailed,
    /// Everything else that Chromium or the page reported.
    OperationFailed,
}

impl ErrorCode {
    /// The name on the wire, such as `tab_unavailable`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownOperation => "unknown_operation",
            Self::Unsupported => "unsupported",
            Self::Disconnected => "disconnected",
            Self::TabUnavailable => "tab_unavailable",
            Self::Stale => "stale",
            Self::NotFound => "not_found",
            Self::NotActionable => "not_actionable",
            Self::DialogOpen => "dialog_open",
            Self::NavigationFailed => "navigation_failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Crashed => "crashed",
            Self::Overloaded => "overloaded",
            Self::FileFailed => "file_failed",
            Self::OperationFailed => "operation_failed",
        }
    }
}

/// A failed operation: what failed, whose fault it is and the next step, in one message.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct OperationError {
    /// What kind of failure.
    pub code: ErrorCode,
    /// For the caller; at most [`crate::limits::SHORT_CHARS`] characters once it travelled.
    pub message: String,
}

impl OperationError {
    /// A failure of `code` told as `message`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
