//! `drag`: takes one element by the pointer and lets it go over another.
//!
//! Two kinds of page are served. Most listen to the pointer alone. Where the page uses the drag and drop of HTML, the
//! browser would hand over to the window system; its start is intercepted instead (`Input.setInterceptDrags`), and
//! what follows is told to the page as drag events.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Drag};

use super::settle::Before;
use super::{failed, not_taken, unless_dialog};
use crate::cdp::{Ack, CdpError, EventStream};
use crate::input::EVENT_LIMIT;
use crate::input::mouse::Mouse;
use crate::page::element::Element;
use crate::page::geometry::Point;
use crate::tab::Tab;

/// Moves between the two elements: pages measure distance and direction, so that one leap is no drag to them.
const MOVES: u32 = 10;

/// How long the browser may take to report an intercepted drag after the page allowed it.
const INTERCEPT_LIMIT: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Intercepted {
    data: Value,
}

/// Drags one element onto another; both must be visible, still and hit by the pointer.
///
/// # Errors
/// [`ErrorCode::NotActionable`] with the reason, [`ErrorCode::NotFound`], [`ErrorCode::Stale`];
/// [`ErrorCode::OperationFailed`] if the page begins to drag and the browser does not.
pub(crate) async fn drag(tab: &Tab, input: &Drag) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    let dragged = unless_dialog(tab, async {
        let from = Element::aimed(tab, &input.from).await?;
        let to = Element::aimed(tab, &input.to).await?;
        let events = tab.session().events();
        intercept(tab, true).await?;
        carry(tab, &from, &to, events).await
    })
    .await;
    // Left on, a person could not drag in this tab.
    let off = intercept(tab, false).await;
    dragged?;
    off?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

/// Whether drags of the page are reported instead of handed to the window system.
async fn intercept(tab: &Tab, enabled: bool) -> Result<(), OperationError> {
    let on = json!({ "enabled": enabled });
    let outcome: Result<Ack, CdpError> = tab.session().call("Input.setInterceptDrags", on).await;
    outcome.map(drop).map_err(|error| failed(tab, error))
}

async fn carry(
    tab: &Tab,
    from: &Element,
    to: &Element,
    mut events: EventStream,
) -> Result<(), OperationError> {
    // Looked at first, so that nothing is picked up that cannot be put down; and where it lies is asked again after the
    // source was scrolled into view.
    to.ready_for_pointer(tab).await?;
    let start = from.ready_for_pointer(tab).await?.outer;
    let mouse = Mouse::new(tab.session(), 0, EVENT_LIMIT);
    from.ask::<IgnoredAny>(tab, "watchDrag", Map::new()).await?;
    taken(tab, mouse.move_to(start).await).await?;
    taken(tab, mouse.press(start).await).await?;
    let carried = pull(tab, &mouse, from, to, start, &mut events).await;
    if carried.is_err() {
        // No button stays down; where is of no account.
        let _ = mouse.release(start).await;
    }
    carried
}

async fn pull(
    tab: &Tab,
    mouse: &Mouse<'_>,
    from: &Element,
    to: &Element,
    start: Point,
    events: &mut EventStream,
) -> Result<(), OperationError> {
    // Beyond the few pixels that a shaking hand moves.
    const NUDGE: f64 = 8.0;
    let nudged = Point {
        x: start.x + NUDGE,
        y: start.y + NUDGE,
    };
    taken(tab, mouse.pull_to(nudged).await).await?;
    taken(tab, mouse.pull_to(start).await).await?;
    let begun: bool = from.ask(tab, "dragBegun", Map::new()).await?;
    let data = if begun {
        Some(intercepted(tab, events).await?)
    } else {
        None
    };
    // What the page shows while it is dragged may have moved the rest.
    let end = to.ready_for_drop(tab).await?;
    for step in 1..=MOVES {
        let share = f64::from(step) / f64::from(MOVES);
        let at = Point {
            x: start.x + (end.x - start.x) * share,
            y: start.y + (end.y - start.y) * share,
        };
        let moved = match &data {
            None => mouse.pull_to(at).await,
            Some(data) => {
                let kind = if step == 1 { "dragEnter" } else { "dragOver" };
                drag_event(tab, kind, at, data).await
            }
        };
        taken(tab, moved).await?;
    }
    if let Some(data) = &data {
        // The page answers whether it takes it to the event before the drop.
        taken(tab, drag_event(tab, "dragOver", end, data).await).await?;
        taken(tab, drag_event(tab, "drop", end, data).await).await?;
    }
    taken(tab, mouse.release(end).await).await
}

async fn intercepted(tab: &Tab, events: &mut EventStream) -> Result<Value, OperationError> {
    let found = timeout(INTERCEPT_LIMIT, async {
        while let Some(event) = events.next().await {
            if event.method == "Input.dragIntercepted" {
                return event.parse::<Intercepted>().ok();
            }
        }
        None
    });
    match found.await {
        Ok(Some(Intercepted { data })) => Ok(data),
        _ => Err(OperationError::new(
            ErrorCode::OperationFailed,
            format!(
                "the page at {} began to drag, but the browser did not; take a snapshot before you try again",
                tab.summary().url
            ),
        )),
    }
}

async fn drag_event(tab: &Tab, kind: &str, at: Point, data: &Value) -> Result<(), CdpError> {
    let event = json!({ "type": kind, "x": at.x, "y": at.y, "data": data });
    let Ack {} = tab
        .session()
        .call_within(EVENT_LIMIT, "Input.dispatchDragEvent", event)
        .await?;
    Ok(())
}

async fn taken(tab: &Tab, sent: Result<(), CdpError>) -> Result<(), OperationError> {
    match sent {
        Ok(()) => Ok(()),
        Err(error) => Err(not_taken(tab, error).await),
    }
}
