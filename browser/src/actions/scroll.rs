//! `scroll`: turns the mouse wheel and waits until what scrolls has come to rest.

use serde::de::IgnoredAny;
use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::types::{self, Scroll, ScrollPixels};

use super::settle::Before;
use super::{failed, not_taken, unless_dialog};
use crate::input::EVENT_LIMIT;
use crate::input::mouse::Mouse;
use crate::page::element::{Element, LOOK_LIMIT};
use crate::page::geometry::{Point, Viewport};
use crate::page::world::World;
use crate::tab::Tab;

/// Turns the wheel over the element, or over the middle of the viewport. What lies there and can scroll that way does; at
/// its end nothing happens, as for a person.
///
/// # Errors
/// For an element as `hover` has them; `Timeout` if the page does not handle the event.
pub(crate) async fn scroll(tab: &Tab, input: &Scroll) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    unless_dialog(tab, turn(tab, input)).await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

async fn turn(tab: &Tab, input: &Scroll) -> Result<(), OperationError> {
    let main = tab.frame(None)?;
    let top = World::of(tab.refs(), &main)
        .await
        .map_err(|error| failed(tab, error))?;
    let (world, inner, outer) = if let Some(aim) = &input.element {
        let element = Element::aimed(tab, aim).await?;
        let spot = element.ready_for_pointer(tab).await?;
        (element.world, spot.inner, spot.outer)
    } else {
        let viewport: Viewport = top
            .call(LOOK_LIMIT, "viewport", ())
            .await
            .map_err(|error| failed(tab, error))?;
        let middle = Point {
            x: viewport.width / 2.0,
            y: viewport.height / 2.0,
        };
        (top, middle, middle)
    };
    let mouse = Mouse::new(tab.session(), 0, EVENT_LIMIT);
    if let Err(error) = mouse.move_to(outer).await {
        return Err(not_taken(tab, error).await);
    }
    let x = input.delta_x.map_or(0, ScrollPixels::get);
    if let Err(error) = mouse.wheel(outer, x, input.delta_y.get()).await {
        return Err(not_taken(tab, error).await);
    }
    // A page that leaves on scrolling does not say when it has come to rest.
    let _: Result<IgnoredAny, _> = world.call(LOOK_LIMIT, "scrolled", inner).await;
    Ok(())
}
