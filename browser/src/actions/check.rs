//! `check`: brings a checkbox, radio button or switch into a wanted state, and makes sure that it is.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::Map;
use tokio::time::{Instant, sleep};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::locator::Aim;
use yonder_protocol::operation::types::{self, Check};

use super::click::{Press, press_and_release};
use super::kept_by;
use super::settle::Before;
use crate::input::EVENT_LIMIT;
use crate::page::element::{Element, READY_LIMIT, READY_PAUSE, Verdict};
use crate::tab::Tab;

#[derive(Deserialize)]
#[serde(untagged)]
enum Found {
    Checkable(Checkable),
    Other(Verdict),
}

#[derive(Deserialize)]
#[serde(tag = "state", rename = "checkable")]
struct Checkable {
    /// `true`, `false` or `mixed`.
    checked: String,
    /// It is cleared only by checking another.
    radio: bool,
    /// Number of the element that a person would click.
    click: u64,
}

/// Clicks the element if its state is not `checked` yet.
///
/// # Errors
/// [`ErrorCode::Invalid`] for what cannot be checked, and for clearing a radio button; [`ErrorCode::NotActionable`] as
/// `click` has it; [`ErrorCode::OperationFailed`] if the click does not bring the state about.
pub(crate) async fn check(tab: &Tab, input: &Check) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    check_aimed(tab, &input.element, input.checked).await?;
    if tab.dialog().is_none() {
        before.ticked(tab).await;
    }
    Ok(tab.summary())
}

/// Checks one element; also done when the click opens a dialog.
pub(super) async fn check_aimed(tab: &Tab, aim: &Aim, checked: bool) -> Result<(), OperationError> {
    let began = AtomicBool::new(false);
    tokio::select! {
        biased;
        result = change(tab, aim, checked, &began) => result,
        dialog = tab.dialog_opened() => {
            // Whether the state holds shows when the dialog is answered.
            if began.load(Ordering::Relaxed) { Ok(()) } else { Err(kept_by(&dialog)) }
        }
    }
}

async fn change(
    tab: &Tab,
    aim: &Aim,
    checked: bool,
    began: &AtomicBool,
) -> Result<(), OperationError> {
    let element = Element::aimed(tab, aim).await?;
    let state = look(tab, &element).await?;
    let wanted = if checked { "true" } else { "false" };
    if state.checked == wanted {
        return Ok(());
    }
    if state.radio && !checked {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            format!(
                "{} is a radio button, which is cleared by checking another of its group",
                element.name
            ),
        ));
    }
    let target = Element {
        number: state.click,
        ..element.clone()
    };
    // From mixed, the first click may lead to the state that is not wanted.
    let clicks = if state.checked == "mixed" { 2 } else { 1 };
    for _ in 0..clicks {
        press_and_release(tab, &target, Press::PLAIN, EVENT_LIMIT, began).await?;
        if settled(tab, &element, wanted).await? {
            return Ok(());
        }
    }
    Err(OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "{} was clicked and does not change to checked={wanted}; the page may need something else first: take a snapshot",
            element.name
        ),
    ))
}

/// Waits until the state is the wanted one; frameworks may take a while to show it.
async fn settled(tab: &Tab, element: &Element, wanted: &str) -> Result<bool, OperationError> {
    let deadline = Instant::now() + READY_LIMIT;
    let mut last = String::new();
    loop {
        match look(tab, element).await {
            Ok(state) if state.checked == wanted => return Ok(true),
            Ok(state) => {
                // A second click is due, not patience.
                if !last.is_empty() && state.checked != last {
                    return Ok(false);
                }
                last = state.checked;
            }
            // The click led to another page.
            Err(error) if error.code == ErrorCode::NotFound => return Ok(true),
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(READY_PAUSE).await;
    }
}

async fn look(tab: &Tab, element: &Element) -> Result<Checkable, OperationError> {
    match element.ask(tab, "checkable", Map::new()).await? {
        Found::Checkable(state) => Ok(state),
        Found::Other(verdict) => Err(verdict.into_error(element.name)),
    }
}
