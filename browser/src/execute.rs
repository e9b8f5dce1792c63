//! Carries out operations: finds the tab, keeps the order, checks what must hold, and calls the module
//! that does it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;
use yonder_protocol::call::FileHead;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{self, Frame, Frames};
use yonder_protocol::operation::{Operation, Request};

use crate::actions::{self, failed, kept_by};
use crate::cdp::{Ack, CdpError, NoParams};
use crate::dialog::dialog;
use crate::navigation::{self, Step, address};
use crate::network;
use crate::screenshot::screenshot;
use crate::session::BrowserSession;
use crate::tab::Tab;
use crate::{cpu, files, memory, trace};

/// Characters of a frame's name and address that `frames` tells.
const FRAME_TEXT_CHARS: usize = 2_048;

/// How long the end of a closed tab may take to be reported.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long after a failed call the crash that caused it may take to be reported.
const CRASH_REPORT_LIMIT: Duration = Duration::from_millis(500);

/// A file that an operation made.
#[derive(Clone, Debug)]
pub struct CapturedFile {
    /// `file_` and a UUID.
    pub id: String,
    /// Base name, for people.
    pub name: String,
    /// Media type.
    pub mime: String,
    /// Content.
    pub data: Bytes,
}

impl CapturedFile {
    /// What the wire says of the file, and its content.
    pub fn into_parts(self) -> (FileHead, Bytes) {
        let head = FileHead {
            id: Some(self.id),
            name: self.name,
            mime: self.mime,
            bytes: self.data.len() as u64,
        };
        (head, self.data)
    }

    pub(crate) fn new(name: &str, mime: &str, data: Bytes) -> Self {
        Self {
            id: format!("file_{}", Uuid::new_v4()),
            name: name.to_owned(),
            mime: mime.to_owned(),
            data,
        }
    }

    /// The file as a result lists it.
    pub(crate) fn described(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "mime": self.mime,
            "bytes": self.data.len(),
        })
    }
}

/// A file that an operation hands to a page.
#[derive(Clone, Debug)]
pub struct GivenFile {
    /// Base name, which the page sees.
    pub(crate) name: String,
    pub(crate) data: Bytes,
}

impl GivenFile {
    /// A file called `name`; what looks like a path in it will be of no effect.
    pub fn new(name: String, data: Bytes) -> Self {
        Self { name, data }
    }
}

/// The result of an operation.
#[derive(Clone, Debug)]
pub struct Done {
    /// As the operation's output type says; where that lists files, without their `path`.
    pub value: Value,
    /// The listed files, in the same order.
    pub files: Vec<CapturedFile>,
}

impl From<Value> for Done {
    fn from(value: Value) -> Self {
        Self {
            value,
            files: Vec::new(),
        }
    }
}

impl BrowserSession {
    /// Carries out an operation. `generation` is the count of documents that the caller last saw of the
    /// tab; operations that depend on it fail as stale when the tab has moved on.
    ///
    /// # Errors
    /// With what failed, whose fault it is and the next step; see [`ErrorCode`].
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting. What the browser was already told is done; the tab stays usable.
    pub async fn execute(
        &self,
        request: Request,
        generation: Option<u64>,
    ) -> Result<Done, OperationError> {
        self.execute_with(request, generation, Vec::new()).await
    }

    /// As [`Self::execute`], with the files that the operation hands to the page, in the order of its paths.
    ///
    /// # Errors
    /// As [`Self::execute`] has them.
    pub async fn execute_with(
        &self,
        request: Request,
        generation: Option<u64>,
        given: Vec<GivenFile>,
    ) -> Result<Done, OperationError> {
        let limit = request.deadline();
        let name = request.name();
        // Boxed: the sum of all operations is large, and most calls are small.
        let work = Box::pin(self.dispatch(request, generation, given));
        let result = tokio::time::timeout(limit, work).await;
        // What the operation changed is in the published state before its result is known.
        self.publish();
        result.unwrap_or_else(|_| {
            Err(OperationError::new(
                ErrorCode::Timeout,
                format!(
                    "{name} was not done within {} s; whether the page acted is unknown: look at it before trying again",
                    limit.as_secs()
                ),
            ))
        })
    }

    async fn dispatch(
        &self,
        request: Request,
        generation: Option<u64>,
        given: Vec<GivenFile>,
    ) -> Result<Done, OperationError> {
        if self.root().has_ended() {
            return Err(OperationError::new(
                ErrorCode::Crashed,
                "the browser is gone; start the desktop half again",
            ));
        }
        match &request {
            Request::TabsList(_) => return output(&self.state_now()),
            Request::TabsOpen(input) => return output(&self.open_tab(input).await?),
            _ => {}
        }
        let operation = Operation::named(request.name())?;
        let id = request.tab().ok_or_else(|| unserved(&request))?;
        let tab = self.tab(id)?;
        match &request {
            Request::TabsFocus(_) => return output(&self.focus_tab(&tab).await?),
            Request::TabsClose(_) => return output(&self.close_tab(&tab).await?),
            Request::Dialog(input) => return output(&dialog(&tab, input).await?),
            // What was seen is told at once, also of a page that hangs.
            Request::Console(input) => {
                return output(&tab.watch().console_list(tab.summary(), input)?);
            }
            Request::NetworkList(input) => {
                return output(&tab.watch().network_list(tab.summary(), input)?);
            }
            Request::NetworkGet(input) => {
                let (detail, file) = network::get(&tab, input).await?;
                let mut done = output(&detail)?;
                if let Some(file) = file {
                    done.value["files"] = json!([file.described()]);
                    done.files.push(file);
                }
                return Ok(done);
            }
            // About what was recorded, whatever the page does by now.
            Request::FilesList(_)
            | Request::FilesGet(_)
            | Request::CpuAnalyze(_)
            | Request::TraceAnalyze(_)
            | Request::HeapSummary(_)
            | Request::HeapQuery(_)
            | Request::HeapObject(_)
            | Request::HeapCompare(_) => return self.recorded(&tab, &request).await,
            // Not in the queue: it is to end what the others wait for.
            Request::Stop(_) => {
                let stop = guarded(&tab, navigation::stop(&tab));
                return output(&stop.await?);
            }
            _ => {}
        }
        let _turn = tab.turn().await?;
        if let Some(dialog) = tab.dialog()
            && !operation.allowed_in_dialog
        {
            return Err(kept_by(&dialog));
        }
        let current = tab.generation();
        if operation.checks_generation && generation.is_some_and(|seen| seen != current) {
            return Err(OperationError::new(
                ErrorCode::Stale,
                format!(
                    "the tab has moved to {} since it was last seen; take a new snapshot",
                    tab.summary().url
                ),
            ));
        }
        let moves = matches!(
            request,
            Request::Navigate(_) | Request::Back(_) | Request::Forward(_) | Request::Reload(_)
        );
        if !moves && tab.view().borrow().crashed {
            return Err(crashed(&tab));
        }
        guarded(&tab, self.run(&tab, &request, given)).await
    }

    async fn recorded(&self, tab: &Tab, request: &Request) -> Result<Done, OperationError> {
        let source = memory::Source {
            files: self.files(),
            heaps: self.heaps(),
            tab,
        };
        match request {
            Request::FilesList(_) => output(&types::FilesList {
                tab: tab.summary(),
                files: self.files().of(tab),
            }),
            Request::FilesGet(input) => {
                let file = files::get(self.files().find(tab, &input.file_id)?).await?;
                let value = json!({ "tab": tab.summary(), "files": [file.described()] });
                Ok(Done {
                    value,
                    files: vec![file],
                })
            }
            Request::CpuAnalyze(input) => output(&cpu::analyze(self.files(), tab, input).await?),
            Request::TraceAnalyze(input) => output(&trace::analyze(self, tab, input).await?),
            Request::HeapSummary(input) => output(&memory::summary(source, input).await?),
            Request::HeapQuery(input) => output(&memory::query(source, input).await?),
            Request::HeapObject(input) => output(&memory::object(source, input).await?),
            Request::HeapCompare(input) => output(&memory::compare(source, input).await?),
            other => Err(unserved(other)),
        }
    }

    async fn run(
        &self,
        tab: &Tab,
        request: &Request,
        given: Vec<GivenFile>,
    ) -> Result<Done, OperationError> {
        let lookup = self.failure_lookup();
        let lookup = lookup.as_deref();
        match request {
            Request::Navigate(input) => {
                let url = address::normalise(input.url.as_str())?;
                output(&navigation::navigate(tab, &url, lookup).await?)
            }
            Request::Back(_) => output(&navigation::step(tab, Step::Back, lookup).await?),
            Request::Forward(_) => output(&navigation::step(tab, Step::Forward, lookup).await?),
            Request::Reload(_) => output(&navigation::reload(tab, lookup).await?),
            Request::Frames(_) => output(&frames(tab)),
            Request::Snapshot(input) => output(&actions::snapshot(tab, input).await?),
            Request::Find(input) => output(&actions::find(tab, input).await?),
            Request::Evaluate(input) => output(&actions::evaluate(tab, input).await?),
            Request::Wait(input) => output(&actions::wait(tab, input).await?),
            Request::Click(input) => output(&actions::click(tab, input).await?),
            Request::Hover(input) => output(&actions::hover(tab, input).await?),
            Request::Drag(input) => output(&actions::drag(tab, input).await?),
            Request::FillForm(input) => output(&actions::fill_form(tab, input).await?),
            Request::Select(input) => output(&actions::select(tab, input).await?),
            Request::Check(input) => output(&actions::check(tab, input).await?),
            Request::Scroll(input) => output(&actions::scroll(tab, input).await?),
            Request::Fill(input) => output(&actions::fill(tab, input).await?),
            Request::Press(input) => output(&actions::press(tab, input).await?),
            Request::FilesUpload(input) => {
                output(&actions::upload(self.files(), tab, input, given).await?)
            }
            Request::FilesDrop(input) => {
                output(&actions::drop_files(self.files(), tab, input, given).await?)
            }
            Request::CpuStart(input) => output(&cpu::start(self.tasks(), tab, input).await?),
            Request::CpuStop(_) => output(&cpu::stop(self.files(), tab).await?),
            Request::TraceStart(input) => {
                output(&trace::start(self.tasks(), self.files(), tab, input).await?)
            }
            Request::TraceStop(_) => output(&trace::stop(self.files(), tab).await?),
            Request::HeapSnapshot(_) => output(&memory::snapshot(self.files(), tab).await?),
            Request::Screenshot(input) => {
                let others: Vec<_> = self
                    .tabs()
                    .iter()
                    .filter(|other| other.id() != tab.id())
                    .map(|other| other.target().to_owned())
                    .collect();
                let file = screenshot(self.root(), tab, &others, input).await?;
                let value = json!({ "tab": tab.summary(), "files": [file.described()] });
                Ok(Done {
                    value,
                    files: vec![file],
                })
            }
            other => Err(unserved(other)),
        }
    }

    async fn open_tab(&self, input: &types::TabsOpen) -> Result<types::Tab, OperationError> {
        let url = address::normalise(input.url.as_ref().map_or("", |url| url.as_str()))?;
        let focus = input.focus.unwrap_or(true);
        let tab = match self.untouched() {
            Some(first) if url != address::BLANK => first,
            _ => self.create_tab(!focus).await?,
        };
        if focus {
            self.focus(&tab);
        }
        if url == address::BLANK {
            return Ok(tab.summary());
        }
        let _turn = tab.turn().await?;
        let lookup = self.failure_lookup();
        let load = navigation::navigate(&tab, &url, lookup.as_deref());
        guarded(&tab, load).await.map_err(|mut error| {
            error.message = format!("{}; the tab {} stays open", error.message, tab.id());
            error
        })?;
        // The blank page from which a tab starts is not a place to go back to.
        let reset = tab
            .session()
            .call::<Ack>("Page.resetNavigationHistory", NoParams {});
        reset.await.map_err(|error| failed(&tab, error))?;
        tab.refresh().await;
        Ok(tab.summary())
    }

    /// The blank tab with which a session starts, as long as it is alone and nobody has used it.
    fn untouched(&self) -> Option<Arc<Tab>> {
        let mut tabs = self.tabs();
        let first = tabs.pop().filter(|_| tabs.is_empty())?;
        let unused = {
            let view = first.view();
            let view = view.borrow();
            view.ready && view.starts == 0 && view.commits == 0 && !view.crashed
        };
        unused.then_some(first)
    }

    async fn focus_tab(&self, tab: &Tab) -> Result<types::Tab, OperationError> {
        tab.session()
            .call::<Ack>("Page.bringToFront", NoParams {})
            .await
            .map_err(|error| failed(tab, error))?;
        self.focus(tab);
        Ok(tab.summary())
    }

    async fn close_tab(&self, tab: &Tab) -> Result<types::State, OperationError> {
        match self.close_target(tab.target()).await {
            // The person, or the page itself, was quicker.
            Ok(()) | Err(CdpError::Refused { .. }) => {}
            Err(error) => return Err(failed(tab, error)),
        }
        let gone = async {
            let mut state = self.state();
            let is_gone =
                |state: &types::State| state.tabs.iter().all(|other| other.id != *tab.id());
            // The sender lives in the session.
            let _ = state.wait_for(is_gone).await;
        };
        tokio::time::timeout(CLOSE_LIMIT, gone).await.map_err(|_| {
            OperationError::new(
                ErrorCode::Timeout,
                "the browser has not closed the tab in time; call tabs.list to see whether it is gone",
            )
        })?;
        Ok(self.state_now())
    }
}

/// `work`, unless the page crashes or is closed meanwhile.
async fn guarded<T>(
    tab: &Tab,
    work: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let mut view = tab.view();
    let crashes = view.borrow().crashes;
    let mut lost = std::pin::pin!(async {
        tokio::select! {
            _ = view.wait_for(|view| view.crashes > crashes) => crashed(tab),
            () = tab.session().ended() => closed(tab),
        }
    });
    tokio::select! {
        biased;
        result = work => match result {
            // The call failed because the page was lost; how, is reported a moment later.
            Err(error) if error.code == ErrorCode::Crashed => {
                let report = tokio::time::timeout(CRASH_REPORT_LIMIT, lost).await;
                Err(report.unwrap_or(error))
            }
            result => result,
        },
        error = &mut lost => Err(error),
    }
}

fn crashed(tab: &Tab) -> OperationError {
    OperationError::new(
        ErrorCode::Crashed,
        format!(
            "the page at {} crashed; reload the tab, other tabs are not affected",
            tab.summary().url
        ),
    )
}

fn closed(tab: &Tab) -> OperationError {
    if tab.session().browser_is_gone() {
        return OperationError::new(
            ErrorCode::Crashed,
            "the browser ended while the operation ran; whether the page acted is unknown",
        );
    }
    OperationError::new(
        ErrorCode::TabUnavailable,
        format!(
            "the tab {} was closed while the operation ran; call tabs.list for the open ones",
            tab.id()
        ),
    )
}

fn frames(tab: &Tab) -> Frames {
    let cut = |text: String| text.chars().take(FRAME_TEXT_CHARS).collect();
    let frames = tab.frames().into_iter().map(|frame| Frame {
        id: frame.id,
        parent_id: frame.parent,
        url: cut(frame.url),
        name: cut(frame.name),
    });
    Frames {
        frames: frames.collect(),
        tab: tab.summary(),
    }
}

fn output(value: &impl Serialize) -> Result<Done, OperationError> {
    serde_json::to_value(value)
        .map(Done::from)
        .map_err(|error| {
            OperationError::new(
                ErrorCode::OperationFailed,
                format!("the result cannot be written as JSON ({error})"),
            )
        })
}

fn unserved(request: &Request) -> OperationError {
    OperationError::new(
        ErrorCode::Unsupported,
        format!("{} is not available in this version", request.name()),
    )
}
