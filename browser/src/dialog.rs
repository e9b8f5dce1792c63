//! JavaScript dialogs: alert, confirm, prompt, and the question before a page is left.

use std::time::Duration;

use serde_json::json;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{DialogAction, DialogRequest, DialogState};

use crate::actions::failed;
use crate::cdp::{Ack, CdpError};
use crate::tab::Tab;

/// How long the browser may take to report that an answered dialog is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Reads or answers the dialog of `tab`. After an answer the state tells the next dialog, if the page has
/// opened one already.
///
/// # Errors
/// [`ErrorCode::NotFound`] if none is open, [`ErrorCode::Invalid`] for a text that nothing asks for.
pub(crate) async fn dialog(
    tab: &Tab,
    request: &DialogRequest,
) -> Result<DialogState, OperationError> {
    let accept = match request.action {
        DialogAction::Get => None,
        DialogAction::Accept => Some(true),
        DialogAction::Dismiss => Some(false),
    };
    tab.caught_up().await;
    let text = request.prompt_text.as_ref();
    let open = tab.dialog();
    if text.is_some()
        && (accept != Some(true) || open.as_ref().is_some_and(|open| open.kind != "prompt"))
    {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "dialog: promptText goes with the action accept of a prompt only",
        ));
    }
    if let Some(accept) = accept {
        let Some(open) = open else {
            return Err(nothing_open());
        };
        let mut answer = json!({ "accept": accept });
        // A prompt that is accepted without a text answers what it proposed.
        if accept && open.kind == "prompt" {
            answer["promptText"] = json!(text.map_or(&*open.default_value, |text| text.as_str()));
        }
        let mut view = tab.view();
        let before = view.borrow().dialogs_closed;
        tab.session()
            .call::<Ack>("Page.handleJavaScriptDialog", answer)
            .await
            .map_err(|error| match error {
                // The person at the desk was quicker.
                CdpError::Refused { .. } => nothing_open(),
                error => failed(tab, error),
            })?;
        let closed = view.wait_for(|view| view.dialogs_closed > before || view.crashed);
        // The state below is the truth in any case.
        let _ = tokio::time::timeout(CLOSE_LIMIT, closed).await;
    }
    Ok(DialogState {
        tab: tab.summary(),
        dialog: tab.dialog(),
    })
}

fn nothing_open() -> OperationError {
    OperationError::new(
        ErrorCode::NotFound,
        "the tab has no open dialog; there is nothing to answer",
    )
}
