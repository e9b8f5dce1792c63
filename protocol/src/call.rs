//! The envelope in which calls travel between the halves.
//!
//! A call is a stream of kind *call*: the caller writes one message and half-closes, the other side
//! answers with one message and half-closes. A message is a JSON head, framed by its length, followed
//! by the bytes of the files that the head lists. Cancelling a call is resetting its stream.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits;
use crate::operation::error::OperationError;
use crate::operation::types::State;

/// Longest JSON head: a result of [`limits::RESULT_CHARS`] characters of up to four bytes each, and its envelope.
pub const HEAD_BYTES_MAX: usize = 4 * limits::RESULT_CHARS + 64 * 1024;

/// A file that travels with a call or its outcome. Its bytes follow the head, in the order of the list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileHead {
    /// Set for captures of the browser; an upload has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Base name, for people; never a path.
    pub name: String,
    /// Media type (RFC 9110, section 8.3.1).
    pub mime: String,
    /// Number of bytes that follow.
    pub bytes: u64,
}

/// What the server half asks of the desktop half.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Command {
    /// Run an operation.
    Operation {
        /// Dotted name.
        name: String,
        /// Arguments, checked by the server half and checked again by the desktop half.
        input: Value,
        /// The generation of the tab that the server half last published; `None` where it does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<u64>,
        /// Files of the caller.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<FileHead>,
    },
}

/// What the desktop half tells the server half.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Notice {
    /// The whole inventory of tabs; it replaces the one before.
    State {
        /// The session's tabs.
        state: State,
    },
}

/// The answer to a [`Command`] or a [`Notice`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It was done.
    Success {
        /// The operation's result; null where there is none. A result with a `files` field holds the
        /// entries without their `path`, which the server half adds.
        value: Value,
        /// Files that the browser made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<FileHead>,
    },
    /// It failed.
    Failure {
        /// Why.
        error: OperationError,
    },
}

/// A head that does not keep to the bounds above.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHead {
    /// Longer than [`HEAD_BYTES_MAX`].
    #[error("a call's head of {0} bytes is too long, at most {HEAD_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The files exceed [`limits::FILE_TRANSFER_BYTES`] or [`limits::FILES_PER_TRANSFER`].
    #[error(
        "the files of one call may be {} files of {} bytes in all",
        limits::FILES_PER_TRANSFER,
        limits::FILE_TRANSFER_BYTES
    )]
    Files,
}

/// Checks the declared length of a head before anything is allocated for it.
///
/// # Errors
/// If it is longer than [`HEAD_BYTES_MAX`].
pub fn check_head_length(bytes: u32) -> Result<usize, InvalidHead> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= HEAD_BYTES_MAX)
        .ok_or(InvalidHead::TooLong(bytes as usize))
}

/// Checks the declared files of a message before anything is allocated for them, and answers their sum in bytes.
///
/// # Errors
/// If there are too many or they are too large.
pub fn check_files(files: &[FileHead]) -> Result<usize, InvalidHead> {
    let total = files
        .iter()
        .try_fold(0_u64, |sum, file| sum.checked_add(file.bytes))
        .and_then(|sum| usize::try_from(sum).ok())
        .filter(|sum| {
            *sum <= limits::FILE_TRANSFER_BYTES && files.len() <= limits::FILES_PER_TRANSFER
        });
    total.ok_or(InvalidHead::Files)
}
