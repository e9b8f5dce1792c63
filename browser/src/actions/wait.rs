//! `wait`: until the page has loaded, or shows a text, or shows it no longer.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Wait, WaitCondition};

use super::{failed, unless_dialog};
use crate::page::world::{World, WorldError};
use crate::tab::Tab;

/// Limit of a wait that names none.
const LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// Pause between two looks at the page.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits for the condition; it may be met from the start.
///
/// # Errors
/// [`ErrorCode::Timeout`], saying what did not happen; [`ErrorCode::Invalid`] if the text is missing.
pub(crate) async fn wait(tab: &Tab, input: &Wait) -> Result<types::Tab, OperationError> {
    let text = input.text.as_ref().map_or("", |text| text.as_str());
    let limit = input.timeout_ms.map_or(LIMIT_DEFAULT, |limit| {
        Duration::from_millis(limit.get().unsigned_abs())
    });
    let wanted = match input.condition {
        WaitCondition::Load => "load".to_owned(),
        WaitCondition::Text | WaitCondition::TextGone if text.is_empty() => {
            return Err(OperationError::new(
                ErrorCode::Invalid,
                "wait: text is needed for the conditions text and textGone",
            ));
        }
        WaitCondition::Text => format!("show the text {text:?} (case counts)"),
        WaitCondition::TextGone => format!("stop showing the text {text:?}"),
    };
    let frame = input.frame_id.as_ref().map(AsRef::as_ref);
    // A frame that is not there from the start is a mistake; one that goes away later may come back.
    tab.frame(frame)?;
    let deadline = Instant::now() + limit;
    let met = async {
        loop {
            if is_met(tab, frame, input.condition, text, deadline).await? {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    };
    let outcome = timeout_at(deadline, unless_dialog(tab, met)).await;
    outcome.unwrap_or_else(|_| {
        Err(OperationError::new(
            ErrorCode::Timeout,
            format!(
                "the page did not {wanted} within {} ms; take a snapshot to see what it shows, or wait longer with timeoutMs",
                limit.as_millis()
            ),
        ))
    })?;
    if input.condition == WaitCondition::Load {
        tab.refresh().await;
    }
    Ok(tab.summary())
}

async fn is_met(
    tab: &Tab,
    frame: Option<&str>,
    condition: WaitCondition,
    text: &str,
    deadline: Instant,
) -> Result<bool, OperationError> {
    if condition == WaitCondition::Load && tab.summary().loading {
        return Ok(false);
    }
    let Ok(frame) = tab.frame(frame) else {
        return Ok(false);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let look = async {
        let world = World::of(tab.refs(), &frame).await?;
        let answer: Result<bool, _> = match condition {
            WaitCondition::Load => world.call(left, "loaded", ()).await,
            WaitCondition::Text | WaitCondition::TextGone => {
                world
                    .call(left, "showsText", serde_json::json!({ "text": text }))
                    .await
            }
        };
        if matches!(answer, Err(WorldError::Replaced)) {
            tab.refs().leave_world(&world);
        }
        answer
    };
    match look.await {
        Ok(answer) => Ok(answer != (condition == WaitCondition::TextGone)),
        // The document is being replaced: look at the next one.
        Err(WorldError::Replaced) => Ok(false),
        Err(error) => Err(failed(tab, error)),
    }
}
