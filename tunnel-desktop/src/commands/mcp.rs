//! `tunnel-desktop mcp`: MCP over standard input and output for an agent on the desk, with a Chromium of its own that
//! has the server's network.
//!
//! Standard output belongs to the protocol; everything for people goes to standard error.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::Value;
use tokio::sync::watch;
use yonder_browser::{BrowserSession, CapturedFile, GivenFile};
use yonder_captures::{Captures, Uploads};
use yonder_mcp::{Answer, Image, Operate, serve_stdio};
use yonder_protocol::link::Role;
use yonder_protocol::operation::{Operation, Request};
use yonder_protocol::{ErrorCode, OperationError};

use crate::calls;
use crate::cli::McpArgs;
use crate::console::Console;
use crate::desk::{BrowserPlan, Desk, Plan};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::stop::StopSignal;

/// What a media type of pictures begins with.
const IMAGE: &str = "image/";

/// Serves the agent until it leaves, Chromium is gone, or the command is stopped.
///
/// # Errors
/// If the server half cannot be reached or refuses, or Chromium does not start or ends by itself, or the agent does not
/// speak MCP.
pub(crate) async fn run(
    args: McpArgs,
    settings: &Settings,
    console: &Console,
) -> Result<(), Failure> {
    // With a name the session is the server's to see and drive; without one it would push out the desktop that a person
    // has open, so it keeps to itself.
    let role = match args.session {
        Some(_) => Role::Browser,
        None => Role::Tunnels,
    };
    let captures = match args.capture_dir {
        Some(folder) => folder,
        None => settings.state_dir()?.captures(),
    };
    let plan = Plan {
        way: settings.way(args.server.as_deref(), &args.access)?,
        role,
        session: settings.session(args.session)?,
        page: None,
        browser: BrowserPlan::new(args.browser, settings)?,
    };
    let stop = StopSignal::new().context("could not watch for signals")?;
    let Some(mut desk) = Box::pin(Desk::set_up(plan, console, &stop)).await? else {
        return Ok(());
    };
    let operate = Arc::new(DeskOperations {
        session: desk.session().clone(),
        captures: Captures::new(Some(captures)),
        uploads: Uploads::new(args.upload_root),
        attached: watch::Sender::new(true),
    });
    let end = tokio::select! {
        served = serve_stdio(operate, String::new()) => {
            served.map_err(|error| Failure::failed(error.to_string()))
        }
        end = desk.ended() => end,
        () = stop.asked() => Ok(()),
    };
    desk.close().await;
    end
}

/// The operations on this process's own browser session.
struct DeskOperations {
    session: BrowserSession,
    captures: Captures,
    uploads: Uploads,
    /// Always true: the command ends with its browser.
    attached: watch::Sender<bool>,
}

impl DeskOperations {
    /// The document that the tab shows, where the operation is bound to the one that the agent saw.
    fn generation(
        &self,
        operation: &Operation,
        request: &Request,
    ) -> Result<Option<u64>, OperationError> {
        let Some(wanted) = request.tab() else {
            return Ok(None);
        };
        let state = self.session.state();
        let state = state.borrow();
        let tab = state
            .tabs
            .iter()
            .find(|tab| tab.id == *wanted)
            .ok_or_else(|| {
                OperationError::new(
                    ErrorCode::TabUnavailable,
                    format!(
                        "{}: there is no tab {wanted}; it may have been closed: see tabs.list",
                        operation.name
                    ),
                )
            })?;
        Ok(operation.checks_generation.then_some(tab.generation))
    }
}

impl Operate for DeskOperations {
    async fn operate(
        &self,
        _: &str,
        operation: &'static Operation,
        input: Value,
    ) -> Result<Answer, OperationError> {
        let request = operation.parse(input)?;
        let generation = self.generation(operation, &request)?;
        let paths = request.paths().iter().map(ToString::to_string).collect();
        let (heads, contents) = self.uploads.read(paths).await?;
        let given = heads.into_iter().zip(contents);
        let given = given.map(|(head, data)| GivenFile::new(head.name, data));
        let done = calls::carry_out(request, generation, given.collect(), &self.session).await?;
        let mut value = done.value;
        let (heads, contents) = done.files.into_iter().map(CapturedFile::into_parts).unzip();
        let saved = self.captures.save(heads, contents).await?;
        if let Some(object) = value.as_object_mut()
            && !saved.is_empty()
        {
            let infos = saved.iter().map(|file| serde_json::to_value(&file.info));
            let infos = infos.collect::<Result<Vec<_>, _>>().map_err(|error| {
                OperationError::new(ErrorCode::OperationFailed, error.to_string())
            })?;
            object.insert("files".to_owned(), Value::Array(infos));
        }
        operation.check_output(&value)?;
        let images = saved
            .into_iter()
            .filter(|file| file.info.mime.starts_with(IMAGE))
            .map(|file| Image {
                mime: file.info.mime,
                data: file.data,
            })
            .collect();
        Ok(Answer { value, images })
    }

    fn attached(&self, _: &str) -> watch::Receiver<bool> {
        self.attached.subscribe()
    }
}
