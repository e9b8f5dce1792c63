//! `select`: selects options of a list, and makes sure that they are.

use serde::Deserialize;
use tokio::time::{Instant, sleep};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::locator::Aim;
use yonder_protocol::operation::scalar::Short;
use yonder_protocol::operation::types::{self, OptionValues, Select};

use super::settle::Before;
use super::unless_dialog;
use crate::page::element::{Element, READY_LIMIT, READY_PAUSE, Verdict, fields};
use crate::tab::Tab;

/// What is selected in the end.
#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Selected {
    Same,
    Other { held: String },
    Gone,
}

/// Selects exactly the options with the given values, or labels where no value fits. Lists open outside of the page, so
/// that this is done by script, with the events that a person's choice has.
///
/// # Errors
/// [`ErrorCode::Invalid`] for what is no list and for options that it does not have, [`ErrorCode::NotActionable`] for
/// disabled ones, [`ErrorCode::OperationFailed`] if the page selects something else.
pub(crate) async fn select(tab: &Tab, input: &Select) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    unless_dialog(tab, select_aimed(tab, &input.element, &input.values)).await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

/// Selects in one list.
pub(super) async fn select_aimed(
    tab: &Tab,
    aim: &Aim,
    values: &OptionValues,
) -> Result<(), OperationError> {
    let element = Element::aimed(tab, aim).await?;
    let values: Vec<&str> = values.as_slice().iter().map(Short::as_str).collect();
    let argument = || fields([("values", values.clone().into())]);
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let verdict: Verdict = element.ask(tab, "select", argument()).await?;
        if matches!(verdict, Verdict::Ready { .. }) {
            break;
        }
        if !verdict.may_change() || Instant::now() >= deadline {
            return Err(verdict.into_error(element.name));
        }
        sleep(READY_PAUSE).await;
    }
    let held = match element.ask(tab, "selected", argument()).await {
        Ok(Selected::Same) => return Ok(()),
        Ok(Selected::Other { held }) => held,
        Ok(Selected::Gone) => return Err(Verdict::Gone.into_error(element.name)),
        // Lists that lead to another page replace the document that would tell.
        Err(error) if error.code == ErrorCode::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    Err(OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "the page changed the choice: {} has {held:?} selected now; take a snapshot",
            element.name
        ),
    ))
}
