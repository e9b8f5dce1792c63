//! `files.upload` and `files.drop`: files of the caller for a page.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, json};
use tokio::time::timeout;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Upload};

use super::click::{Press, press_and_release};
use super::settle::Before;
use super::{failed, not_taken, unless_dialog};
use crate::cdp::{Ack, CdpError, EventStream};
use crate::execute::GivenFile;
use crate::files::Files;
use crate::input::EVENT_LIMIT;
use crate::page::element::{Element, Verdict, fields};
use crate::tab::Tab;

/// How long a button may take to ask for files after it was clicked.
const CHOOSER_LIMIT: Duration = Duration::from_secs(3);

/// What the script says of the element.
#[derive(Deserialize)]
#[serde(untagged)]
enum Found {
    Known(Known),
    Other(Verdict),
}

#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Known {
    /// A file field, by its number.
    Field { number: u64 },
    /// Something else, which may ask for files when it is clicked.
    Button,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chooser {
    /// `selectSingle` or `selectMultiple`.
    mode: String,
    backend_node_id: Option<i64>,
}

/// Gives the files to the field, as if a person had chosen them; a button is clicked, and what it asks for is answered.
///
/// # Errors
/// [`ErrorCode::Invalid`] if the field takes no such files, [`ErrorCode::NotActionable`] as `click` has it,
/// [`ErrorCode::OperationFailed`] if the button asks for none, [`ErrorCode::FileFailed`] if the desk's disk does not take
/// the copies.
pub(crate) async fn upload(
    files: &Files,
    tab: &Tab,
    input: &Upload,
    given: Vec<GivenFile>,
) -> Result<types::Tab, OperationError> {
    let count = expect(input, &given)?;
    let before = Before::now(tab);
    unless_dialog(tab, async {
        let element = Element::aimed(tab, &input.element).await?;
        let argument = fields([("count", count.into())]);
        match element.ask(tab, "fileField", argument).await? {
            Found::Known(Known::Field { number }) => {
                let field = element.world.element(number).await;
                let field = field.map_err(|error| element.failure(tab, error))?;
                let Some(object) = field else {
                    return Err(Verdict::Gone.into_error(element.name));
                };
                let paths = files.place(tab, given).await?;
                let set = json!({ "files": paths, "objectId": object });
                give(tab, &element, set).await
            }
            Found::Known(Known::Button) => {
                let mut events = element.frame.session.events();
                intercept(tab, &element, true).await?;
                let answered = choose(tab, &element, &mut events, files, given).await;
                // Left on, a person could not choose files in this tab.
                let off = intercept(tab, &element, false).await;
                answered.and(off)
            }
            Found::Other(verdict) => Err(verdict.into_error(element.name)),
        }
    })
    .await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}

fn expect(input: &Upload, given: &[GivenFile]) -> Result<usize, OperationError> {
    let count = input.paths.as_slice().len();
    if given.len() == count {
        return Ok(count);
    }
    Err(OperationError::new(
        ErrorCode::Invalid,
        format!(
            "{count} paths came with {} files; update both halves to the same version",
            given.len()
        ),
    ))
}

async fn intercept(tab: &Tab, element: &Element, enabled: bool) -> Result<(), OperationError> {
    let on = json!({ "enabled": enabled });
    let session = &element.frame.session;
    let set: Result<Ack, CdpError> = session.call("Page.setInterceptFileChooserDialog", on).await;
    set.map(drop).map_err(|error| failed(tab, error))
}

/// Clicks, and answers the chooser that this opens.
async fn choose(
    tab: &Tab,
    element: &Element,
    events: &mut EventStream,
    files: &Files,
    given: Vec<GivenFile>,
) -> Result<(), OperationError> {
    let began = AtomicBool::new(false);
    press_and_release(tab, element, Press::PLAIN, EVENT_LIMIT, &began).await?;
    let opened = timeout(CHOOSER_LIMIT, async {
        while let Some(event) = events.next().await {
            if event.method == "Page.fileChooserOpened" {
                return event.parse::<Chooser>().ok();
            }
        }
        None
    });
    let Ok(Some(Chooser {
        mode,
        backend_node_id: Some(node),
    })) = opened.await
    else {
        return Err(OperationError::new(
            ErrorCode::OperationFailed,
            format!(
                "{} was clicked and did not ask for files; take a snapshot to see what it did, and look for the file field",
                element.name
            ),
        ));
    };
    if mode == "selectSingle" && given.len() > 1 {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            format!("{} asks for one file", element.name),
        ));
    }
    let paths = files.place(tab, given).await?;
    give(
        tab,
        element,
        json!({ "files": paths, "backendNodeId": node }),
    )
    .await
}

async fn give(
    tab: &Tab,
    element: &Element,
    files: serde_json::Value,
) -> Result<(), OperationError> {
    let session = &element.frame.session;
    let set = session.call_within::<Ack>(EVENT_LIMIT, "DOM.setFileInputFiles", files);
    match set.await {
        Ok(_) => Ok(()),
        Err(error) => Err(not_taken(tab, error).await),
    }
}

/// Drops the files on the element, with the events of a person's drag from a file manager.
///
/// # Errors
/// As [`upload`] has them; [`ErrorCode::NotActionable`] also where the page takes no files.
pub(crate) async fn drop_files(
    files: &Files,
    tab: &Tab,
    input: &Upload,
    given: Vec<GivenFile>,
) -> Result<types::Tab, OperationError> {
    expect(input, &given)?;
    let before = Before::now(tab);
    unless_dialog(tab, async {
        let element = Element::aimed(tab, &input.element).await?;
        let spot = element.ready_for_pointer(tab).await?;
        let paths: Vec<PathBuf> = files.place(tab, given).await?;
        // Copying is all that a page is allowed to do.
        let data = json!({ "items": [], "files": paths, "dragOperationsMask": 1 });
        let send = async |kind: &str| {
            let event = json!({ "type": kind, "x": spot.outer.x, "y": spot.outer.y, "data": data });
            let session = tab.session();
            let sent = session.call_within::<Ack>(EVENT_LIMIT, "Input.dispatchDragEvent", event);
            match sent.await {
                Ok(Ack {}) => Ok(()),
                Err(error) => Err(not_taken(tab, error).await),
            }
        };
        element
            .ask::<IgnoredAny>(tab, "watchDrop", Map::new())
            .await?;
        for kind in ["dragEnter", "dragOver"] {
            send(kind).await?;
        }
        if element.ask(tab, "dropTaken", Map::new()).await? {
            send("drop").await
        } else {
            // Let go here, the browser would leave the page to show the file.
            send("dragCancel").await?;
            Err(OperationError::new(
                ErrorCode::NotActionable,
                format!(
                    "{} takes no files that are dropped on it; find what does, or use files.upload with the file field",
                    element.name
                ),
            ))
        }
    })
    .await?;
    before.ticked(tab).await;
    Ok(tab.summary())
}
