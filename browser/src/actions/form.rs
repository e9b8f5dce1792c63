//! `fill_form`: several fields in order.

use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::locator::Aim;
use yonder_protocol::operation::types::{self, FillForm, FormField};

use super::check::check_aimed;
use super::fill::fill_aimed;
use super::select::select_aimed;
use super::settle::Before;
use super::{kept_by, unless_dialog};
use crate::page::element::Element;
use crate::tab::Tab;

/// Fills the fields one after the other. Refs are looked up before the first is touched; what only the page can tell stops
/// at the field that it concerns.
///
/// # Errors
/// Those of `fill`, `select` and `check`, with the field's number and how many are done; a dialog that one field opens
/// stops the rest.
pub(crate) async fn fill_form(tab: &Tab, input: &FillForm) -> Result<types::Tab, OperationError> {
    let before = Before::now(tab);
    let all = input.fields.as_slice();
    for (index, field) in all.iter().enumerate() {
        if let Aim::Ref(name) = aim(field) {
            Element::of(tab, *name).map_err(|error| at(error, index, all.len(), 0))?;
        }
    }
    for (index, field) in all.iter().enumerate() {
        fill_one(tab, field)
            .await
            .map_err(|error| at(error, index, all.len(), index))?;
        if let Some(dialog) = tab.dialog()
            && index + 1 < all.len()
        {
            return Err(at(kept_by(&dialog), index, all.len(), index + 1));
        }
    }
    if tab.dialog().is_none() {
        before.ticked(tab).await;
    }
    Ok(tab.summary())
}

async fn fill_one(tab: &Tab, field: &FormField) -> Result<(), OperationError> {
    match field {
        FormField::Text { element, value } => {
            unless_dialog(tab, fill_aimed(tab, element, value.as_str())).await
        }
        FormField::Select { element, values } => {
            unless_dialog(tab, select_aimed(tab, element, values)).await
        }
        FormField::Check { element, checked } => check_aimed(tab, element, *checked).await,
    }
}

fn aim(field: &FormField) -> &Aim {
    match field {
        FormField::Text { element, .. }
        | FormField::Select { element, .. }
        | FormField::Check { element, .. } => element,
    }
}

fn at(mut error: OperationError, index: usize, count: usize, done: usize) -> OperationError {
    error.message = format!(
        "field {} of {count} ({done} done): {}",
        index + 1,
        error.message
    );
    error
}
