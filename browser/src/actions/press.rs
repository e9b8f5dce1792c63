//! `press`: a key or chord, to whatever has the focus.

use std::time::Duration;

use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Press};

use super::not_taken;
use super::settle::Before;
use crate::input::EVENT_LIMIT;
use crate::input::keyboard::Chord;
use crate::tab::Tab;

/// Presses the chord and waits for the navigation that this starts, if any.
///
/// # Errors
/// [`ErrorCode::Invalid`] for an unknown key, with those that are known.
pub(crate) async fn press(tab: &Tab, input: &Press) -> Result<types::Tab, OperationError> {
    press_within(tab, input, EVENT_LIMIT).await
}

/// As [`press`]; the page may take `limit` to handle an event.
pub(super) async fn press_within(
    tab: &Tab,
    input: &Press,
    limit: Duration,
) -> Result<types::Tab, OperationError> {
    let chord = Chord::parse(input.key.as_str())
        .map_err(|reason| OperationError::new(ErrorCode::Invalid, reason))?;
    let before = Before::now(tab);
    tokio::select! {
        biased;
        pressed = chord.press(tab.session(), limit) => {
            if let Err(error) = pressed {
                return Err(not_taken(tab, error).await);
            }
        }
        // The key opened it, so that the key was pressed.
        _ = tab.dialog_opened() => return Ok(tab.summary()),
    }
    before.ticked(tab).await;
    Ok(tab.summary())
}
