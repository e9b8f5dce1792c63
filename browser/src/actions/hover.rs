//! `hover`: moves the pointer over an element and leaves it there.

use serde_json::Map;
use tokio::time::{Instant, sleep};
use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::types::{self, Hover};

use super::settle::Before;
use super::{not_taken, unless_dialog};
use crate::input::EVENT_LIMIT;
use crate::input::mouse::Mouse;
use crate::page::element::{Element, READY_LIMIT, READY_PAUSE, Verdict};
use crate::tab::Tab;

/// Moves the pointer over the element, once it is visible, still and hit there.
///
/// # Errors
/// `NotActionable` with the reason, `NotFound`, `Stale`.
pub(crate) async fn hover(tab: &Tab, input: &Hover) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    unless_dialog(tab, async {
        let element = Element::aimed(tab, &input.element).await?;
        point_at(tab, &element).await
    })
    .await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

async fn point_at(tab: &Tab, element: &Element) -> Result<(), OperationError> {
    let mouse = Mouse::new(tab.session(), 0, EVENT_LIMIT);
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let spot = element.ready_for_pointer(tab).await?;
        if let Err(error) = mouse.move_to(spot.outer).await {
            return Err(not_taken(tab, error).await);
        }
        // What the pointer passes may open over the element.
        let verdict: Verdict = element.ask(tab, "hovered", Map::new()).await?;
        if matches!(verdict, Verdict::Ready { .. }) {
            return Ok(());
        }
        if !verdict.may_change() || Instant::now() >= deadline {
            return Err(verdict.into_error(element.name));
        }
        sleep(READY_PAUSE).await;
    }
}
