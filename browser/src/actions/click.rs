//! `click`: presses and releases a mouse button on an element, as a person would.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};
use tokio::time::Instant;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Click, Modifier, MouseButton};

use super::settle::Before;
use super::{kept_by, not_taken, unless_dialog};
use crate::input::mouse::{Button, Mouse};
use crate::input::{EVENT_LIMIT, modifier_bits};
use crate::page::element::{Element, READY_LIMIT, Spot, Verdict, fields};
use crate::tab::Tab;

#[derive(Deserialize)]
struct Guarded {
    /// What would have taken the click in place of the element; it was kept from it.
    blocked: Option<String>,
    /// No event came to the document.
    missed: bool,
}

/// Clicks the element and waits for the navigation that this starts, if any.
///
/// The element must be visible, enabled, still and hit by the pointer; it gets some seconds for that.
/// An option of a list is chosen in it, since lists open outside of the page.
///
/// # Errors
/// [`ErrorCode::NotActionable`] with the reason, [`ErrorCode::NotFound`], [`ErrorCode::Stale`].
pub(crate) async fn click(tab: &Tab, input: &Click) -> Result<types::Tab, OperationError> {
    click_within(tab, input, EVENT_LIMIT).await
}

/// As [`click`]; the page may take `limit` to handle an event.
pub(super) async fn click_within(
    tab: &Tab,
    input: &Click,
    limit: Duration,
) -> Result<types::Tab, OperationError> {
    let element = unless_dialog(tab, Element::aimed(tab, &input.element)).await?;
    let before = Before::now(tab);
    let began = AtomicBool::new(false);
    let clicked = async {
        if element.ask(tab, "isOption", Map::new()).await? {
            return choose(tab, &element, input, &began).await;
        }
        press_and_release(tab, &element, Press::of(input), limit, &began).await
    };
    tokio::select! {
        biased;
        result = clicked => result?,
        dialog = tab.dialog_opened() => {
            // The click that opens a dialog has done its work. One that opens before it has not.
            if began.load(Ordering::Relaxed) {
                return Ok(tab.summary());
            }
            return Err(kept_by(&dialog));
        }
    }
    before.ticked(tab).await;
    Ok(tab.summary())
}

/// What is pressed, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Press {
    button: Button,
    modifiers: u32,
    clicks: u32,
}

impl Press {
    /// Once, with the left button.
    pub(super) const PLAIN: Self = Self {
        button: Button::Left,
        modifiers: 0,
        clicks: 1,
    };

    fn of(input: &Click) -> Self {
        Self {
            button: match input.button.unwrap_or_default() {
                MouseButton::Left => Button::Left,
                MouseButton::Right => Button::Right,
                MouseButton::Middle => Button::Middle,
            },
            modifiers: modifier_bits(&input.modifiers),
            clicks: input
                .count
                .map_or(1, |count| if count.get() == 2 { 2 } else { 1 }),
        }
    }
}

/// Waits until the element can be clicked, and clicks it. `began` tells, also of a future that is dropped, whether the
/// page may have seen a button go down.
pub(super) async fn press_and_release(
    tab: &Tab,
    element: &Element,
    press: Press,
    limit: Duration,
    began: &AtomicBool,
) -> Result<(), OperationError> {
    let mouse = Mouse::new(tab.session(), press.modifiers, limit);
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let spot = element.ready_for_pointer(tab).await?;
        if let Err(error) = mouse.move_to(spot.outer).await {
            return Err(not_taken(tab, error).await);
        }
        // Hovering may have changed the page.
        let verdict = guard(tab, element, spot).await?;
        if !matches!(verdict, Verdict::Ready { .. }) {
            if verdict.may_change() && Instant::now() < deadline {
                continue;
            }
            return Err(verdict.into_error(element.name));
        }
        began.store(true, Ordering::Relaxed);
        for click in 1..=press.clicks {
            if let Err(error) = mouse.click(spot.outer, press.button, click).await {
                return Err(not_taken(tab, error).await);
            }
        }
        let Ok(guarded) = element.ask::<Guarded>(tab, "afterClick", Map::new()).await else {
            // The click replaced the document that would tell.
            return Ok(());
        };
        if guarded.missed {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!(
                    "the click on {} did not arrive at the page, which something outside of it may have taken; take a snapshot before you try again",
                    element.name
                ),
            ));
        }
        let Some(by) = guarded.blocked else {
            return Ok(());
        };
        // Nothing reached the page, so that it is safe to try again.
        if Instant::now() >= deadline {
            return Err(Verdict::Covered { by }.into_error(element.name));
        }
    }
}

async fn guard(tab: &Tab, element: &Element, spot: Spot) -> Result<Verdict, OperationError> {
    let point = fields([("x", json!(spot.inner.x)), ("y", json!(spot.inner.y))]);
    element.ask(tab, "beginGuard", point).await
}

async fn choose(
    tab: &Tab,
    element: &Element,
    input: &Click,
    began: &AtomicBool,
) -> Result<(), OperationError> {
    if input.button.unwrap_or_default() != MouseButton::Left {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            format!(
                "{} is an option of a list, which takes the left button",
                element.name
            ),
        ));
    }
    let keep = input
        .modifiers
        .iter()
        .any(|modifier| matches!(modifier, Modifier::Control | Modifier::Meta));
    began.store(true, Ordering::Relaxed);
    let verdict: Verdict = element
        .ask(tab, "choose", fields([("keepOthers", keep.into())]))
        .await?;
    match verdict {
        Verdict::Ready { .. } => Ok(()),
        other => Err(other.into_error(element.name)),
    }
}
