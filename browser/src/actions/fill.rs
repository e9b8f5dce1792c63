//! `fill`: replaces what a text field holds, and makes sure that it holds the new text.

use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::locator::Aim;
use yonder_protocol::operation::types::{self, Fill};

use super::settle::Before;
use super::{not_taken, unless_dialog};
use crate::cdp::Ack;
use crate::input::EVENT_LIMIT;
use crate::input::keyboard::Chord;
use crate::page::element::{Element, READY_LIMIT, READY_PAUSE, Verdict, fields};
use crate::tab::Tab;

/// What the script says when a field is to be filled.
#[derive(Deserialize)]
#[serde(untagged)]
enum Begun {
    Field(Field),
    Other(Verdict),
}

#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Field {
    /// It has the focus and its content is selected.
    Focused { empty: bool },
    /// It is a date, and it is set.
    Set,
}

/// What the field holds in the end.
#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Held {
    Same,
    /// Something else; `None` for a password.
    Other {
        held: Option<String>,
    },
    Gone,
}

/// Selects what the field holds and types `input.text` over it. Dates and times are set as values.
///
/// # Errors
/// [`ErrorCode::Invalid`] for elements that take no text and for malformed dates,
/// [`ErrorCode::NotActionable`] for fields that cannot be typed into now, [`ErrorCode::OperationFailed`]
/// if the field holds something else afterwards.
pub(crate) async fn fill(tab: &Tab, input: &Fill) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    unless_dialog(tab, fill_aimed(tab, &input.element, input.text.as_str())).await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

/// Fills one field.
pub(super) async fn fill_aimed(tab: &Tab, aim: &Aim, text: &str) -> Result<(), OperationError> {
    let element = Element::aimed(tab, aim).await?;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    replace(tab, &element, &text).await
}

async fn replace(tab: &Tab, element: &Element, text: &str) -> Result<(), OperationError> {
    match begin(tab, element, text).await? {
        Field::Set => return Ok(()),
        Field::Focused { empty: true } if text.is_empty() => return Ok(()),
        Field::Focused { .. } if text.is_empty() => {
            let delete = Chord::parse("Delete").expect("it is a key");
            if let Err(error) = delete.press(tab.session(), EVENT_LIMIT).await {
                return Err(not_taken(tab, error).await);
            }
        }
        Field::Focused { .. } => {
            let typed = element.frame.session.call_within::<Ack>(
                EVENT_LIMIT,
                "Input.insertText",
                json!({ "text": text }),
            );
            if let Err(error) = typed.await {
                return Err(not_taken(tab, error).await);
            }
        }
    }
    match element
        .ask(tab, "checkFill", fields([("text", text.into())]))
        .await?
    {
        Held::Same => Ok(()),
        Held::Other { held: Some(held) } => Err(OperationError::new(
            ErrorCode::OperationFailed,
            format!(
                "{} does not take the text as it is: it holds {held:?} now; give what the field allows, or type it with press",
                element.name
            ),
        )),
        Held::Other { held: None } => Err(OperationError::new(
            ErrorCode::OperationFailed,
            format!(
                "{} does not hold the given password now; look for a limit on its length",
                element.name
            ),
        )),
        Held::Gone => Err(Verdict::Gone.into_error(element.name)),
    }
}

/// Waits until the field takes text.
async fn begin(tab: &Tab, element: &Element, text: &str) -> Result<Field, OperationError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        match element
            .ask(tab, "beginFill", fields([("text", text.into())]))
            .await?
        {
            Begun::Field(field) => return Ok(field),
            Begun::Other(verdict) => {
                if !verdict.may_change() || Instant::now() >= deadline {
                    return Err(verdict.into_error(element.name));
                }
            }
        }
        sleep(READY_PAUSE).await;
    }
}
