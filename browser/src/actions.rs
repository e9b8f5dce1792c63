//! The operations that look at a page or act on it, one module each.
//!
//! Each takes a tab and its checked input, and may be dropped at any time: the page is left as it is
//! then, and nothing keeps running in it for longer than its own short limits. None answers later than
//! a JavaScript dialog allows: a page with an open dialog does not answer at all.

mod check;
mod click;
mod drag;
mod evaluate;
mod fill;
mod find;
mod form;
mod hover;
mod press;
mod scroll;
mod select;
mod settle;
mod snapshot;
mod upload;
mod wait;

use std::time::Duration;

use futures_util::future::join_all;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::timeout;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::Dialog;

pub(crate) use self::check::check;
pub(crate) use self::click::click;
pub(crate) use self::drag::drag;
pub(crate) use self::evaluate::evaluate;
pub(crate) use self::fill::fill;
pub(crate) use self::find::find;
pub(crate) use self::form::fill_form;
pub(crate) use self::hover::hover;
pub(crate) use self::press::press;
pub(crate) use self::scroll::scroll;
pub(crate) use self::select::select;
pub(crate) use self::snapshot::snapshot;
pub(crate) use self::upload::{drop_files, upload};
pub(crate) use self::wait::wait;
use crate::cdp::{Ack, CdpError, NoParams, Session};
use crate::page::world::WorldError;
use crate::tab::Tab;

/// Characters of a dialog's message that an error repeats.
const MESSAGE_CHARS: usize = 300;

/// How long the browser may take to end a script.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How long the reply of the command that ends a script is waited for.
const END_PAUSE: Duration = Duration::from_millis(200);

/// The failure of an operation whose look into the page of `tab` ended in `error`.
pub(crate) fn failed(tab: &Tab, error: impl Into<WorldError>) -> OperationError {
    let crashed = || {
        OperationError::new(
            ErrorCode::Crashed,
            format!(
                "the page at {} crashed or was closed; reload it, or look at tabs.list",
                tab.summary().url
            ),
        )
    };
    match error.into() {
        WorldError::Replaced => OperationError::new(
            ErrorCode::OperationFailed,
            "the page moved to another document meanwhile; wait for it to load and take a new snapshot",
        ),
        WorldError::Script(reason) => OperationError::new(
            ErrorCode::OperationFailed,
            format!("the page could not be looked at ({reason}); reload it"),
        ),
        WorldError::Cdp(CdpError::Gone | CdpError::Detached) => crashed(),
        WorldError::Cdp(CdpError::TimedOut { .. }) => OperationError::new(
            ErrorCode::Timeout,
            "the page is too busy to answer; wait, or reload it",
        ),
        WorldError::Cdp(error) => {
            OperationError::new(ErrorCode::OperationFailed, error.to_string())
        }
    }
}

/// The failure of an operation that `dialog` keeps from its result.
pub(crate) fn kept_by(dialog: &Dialog) -> OperationError {
    let message: String = dialog.message.chars().take(MESSAGE_CHARS).collect();
    OperationError::new(
        ErrorCode::DialogOpen,
        format!(
            "the page opened a dialog ({}: {message:?}) and waits; answer it with dialog, action accept or dismiss, then go on",
            dialog.kind
        ),
    )
}

/// Ends what runs in the page or frame of `session`; answers whether it can run script again.
async fn end_script(session: &Session) -> bool {
    let end = session.call_within::<Ack>(END_LIMIT, "Runtime.terminateExecution", NoParams {});
    // The browser may keep the reply back until the page runs something else.
    let probe = session.call_within::<IgnoredAny>(
        END_LIMIT,
        "Runtime.evaluate",
        json!({ "expression": "0" }),
    );
    let (_, probed) = tokio::join!(timeout(END_PAUSE, end), probe);
    probed.is_ok()
}

/// The failure of an action during which `tab` answered an input event with `error`. A script that
/// handles an event without end is ended, so that the tab can be used again.
async fn not_taken(tab: &Tab, error: CdpError) -> OperationError {
    if !matches!(error, CdpError::TimedOut { .. }) {
        return failed(tab, error);
    }
    let mut sessions: Vec<Session> = Vec::new();
    for frame in tab.frames() {
        if frame.is_root_of_session && !sessions.contains(&frame.session) {
            sessions.push(frame.session);
        }
    }
    // What cannot be ended shows in the next call.
    join_all(sessions.iter().map(end_script)).await;
    OperationError::new(
        ErrorCode::Timeout,
        "the page's script did not stop handling the event and was ended; the page may be in disorder: take a snapshot, or reload it",
    )
}

/// `work`, unless a dialog opens first.
async fn unless_dialog<T>(
    tab: &Tab,
    work: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    tokio::select! {
        // A result that is there counts, even if it came with a dialog.
        biased;
        result = work => result,
        dialog = tab.dialog_opened() => Err(kept_by(&dialog)),
    }
}

#[cfg(test)]
mod tests;
