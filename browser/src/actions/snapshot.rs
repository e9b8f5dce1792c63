//! `snapshot`: the outline of a page.

use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::scalar::Text;
use yonder_protocol::operation::types::{Outline, Snapshot};

use super::unless_dialog;
use crate::page::element::Element;
use crate::page::outline::{DEPTH_DEFAULT, Scope, outline};
use crate::tab::Tab;

/// Outlines the page, a frame or an element.
///
/// # Errors
/// See [`outline`].
pub(crate) async fn snapshot(tab: &Tab, input: &Snapshot) -> Result<Outline, OperationError> {
    let depth = input.depth.map(|depth| usize::try_from(depth.get()));
    let element = match &input.element {
        Some(aim) => Some(unless_dialog(tab, Element::aimed(tab, aim)).await?.name),
        None => None,
    };
    let scope = Scope {
        frame: input.frame_id.as_ref().map(AsRef::as_ref),
        element,
        depth: depth.and_then(Result::ok).unwrap_or(DEPTH_DEFAULT),
        boxes: input.boxes.unwrap_or(false),
        needle: None,
    };
    let (content, truncated) = unless_dialog(tab, outline(tab, scope)).await?;
    Ok(Outline {
        tab: tab.summary(),
        content: Text::truncated(&content),
        truncated,
    })
}
