//! `find`: the lines of the outline that hold a text, however deep.

use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::scalar::Text;
use yonder_protocol::operation::types::{Find, Outline};

use super::unless_dialog;
use crate::page::outline::{DEPTH_DEFAULT, Scope, outline};
use crate::tab::Tab;

/// Lists the elements and texts that hold `input.text`, in any case, over all frames.
///
/// # Errors
/// See [`outline`].
pub(crate) async fn find(tab: &Tab, input: &Find) -> Result<Outline, OperationError> {
    let scope = Scope {
        frame: input.frame_id.as_ref().map(AsRef::as_ref),
        element: None,
        depth: DEPTH_DEFAULT,
        boxes: false,
        needle: Some(input.text.as_str()),
    };
    let (content, truncated) = unless_dialog(tab, outline(tab, scope)).await?;
    Ok(Outline {
        tab: tab.summary(),
        content: Text::truncated(&content),
        truncated,
    })
}
