//! One tab: what is known of it, kept current from the browser's events.
//!
//! [`View`] is that knowledge. It changes in one place, [`track`], and everybody else reads it or waits
//! for it to change. What operations do with a tab is in the modules of the operations.

mod track;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, MutexGuard, Notify, Semaphore, SemaphorePermit, watch};
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::TabId;
use yonder_protocol::operation::types;

use crate::cdp;
use crate::cpu::Recording;
use crate::frames::{FrameInfo, FrameTree};
use crate::page::RefTable;
use crate::trace;
use crate::watch::Watch;

pub(crate) use self::track::track;

/// Operations that wait for their turn on one tab. An agent that sends more is not waiting for answers.
const QUEUE_OPERATIONS: usize = 64;

/// What is known of a tab.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the browser reports; no two exclude each other"
)]
pub(crate) struct View {
    /// The tab is set up: its events are followed and its page runs.
    pub(crate) ready: bool,
    /// Address of the main frame's document, or the one that could not be reached.
    pub(crate) url: String,
    pub(crate) title: String,
    /// Between the start of a main-frame navigation and the end of loading.
    pub(crate) loading: bool,
    pub(crate) can_go_back: bool,
    pub(crate) can_go_forward: bool,
    /// Counts the documents of the main frame, from 0 for the blank one of a new tab.
    pub(crate) generation: u64,
    /// The browser's id of the main frame's document.
    pub(crate) loader: String,
    /// Whether that document's `load` event has fired.
    pub(crate) loaded: bool,
    /// The document whose `load` event fired last. It can be told before the document itself is.
    last_loaded: String,
    /// Counts main-frame navigations that took effect, those within a document included.
    pub(crate) commits: u64,
    /// Counts the times that the main frame began to load.
    pub(crate) starts: u64,
    /// The document is the browser's own page about a failed navigation.
    pub(crate) unreachable: bool,
    /// The JavaScript dialog that waits for an answer.
    pub(crate) dialog: Option<types::Dialog>,
    /// Counts the dialogs that were answered, or went away with their document.
    pub(crate) dialogs_closed: u64,
    /// The renderer crashed and nothing was loaded since.
    pub(crate) crashed: bool,
    /// Counts the crashes of the renderer.
    pub(crate) crashes: u64,
    pub(crate) frames: FrameTree,
}

/// A tab of a browser session. It lives as long as its page; later calls fail as [`cdp::CdpError::Detached`].
pub(crate) struct Tab {
    id: TabId,
    target: String,
    /// The tab whose page opened this one.
    opener: Option<TabId>,
    page: cdp::Session,
    view: watch::Sender<View>,
    refs: RefTable,
    watch: Arc<Watch>,
    turn: Mutex<()>,
    waiting: Semaphore,
    /// What `cpu.start` began and nobody took.
    recording: Mutex<Option<Recording>>,
    /// What `trace.start` began and nobody took.
    trace: Mutex<Option<trace::Recording>>,
    /// Wakes the task that asks for title and history.
    stale: Notify,
    /// Events that arrived for the tab, once somebody applies them, and those that were applied.
    arrived: OnceLock<Arc<AtomicU64>>,
    applied: watch::Sender<u64>,
}

impl fmt::Debug for Tab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tab")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The right to run an operation on a tab; others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _turn: MutexGuard<'a, ()>,
    _place: SemaphorePermit<'a>,
}

impl Tab {
    /// The tab of the page `target`, whose session is `page`; a page of `opener` opened it.
    pub(crate) fn new(
        id: TabId,
        target: String,
        page: cdp::Session,
        opener: Option<TabId>,
    ) -> Arc<Self> {
        let view = View {
            ready: false,
            url: "about:blank".to_owned(),
            title: String::new(),
            loading: false,
            can_go_back: false,
            can_go_forward: false,
            generation: 0,
            loader: String::new(),
            loaded: false,
            last_loaded: String::new(),
            commits: 0,
            starts: 0,
            unreachable: false,
            dialog: None,
            dialogs_closed: 0,
            crashed: false,
            crashes: 0,
            frames: FrameTree::new(target.clone(), page.clone()),
        };
        Arc::new(Self {
            watch: Watch::new(target.clone()),
            id,
            target,
            opener,
            page,
            view: watch::Sender::new(view),
            refs: RefTable::default(),
            turn: Mutex::new(()),
            waiting: Semaphore::new(QUEUE_OPERATIONS),
            recording: Mutex::new(None),
            trace: Mutex::new(None),
            stale: Notify::new(),
            arrived: OnceLock::new(),
            applied: watch::Sender::new(0),
        })
    }

    /// Its id for callers.
    pub(crate) fn id(&self) -> &TabId {
        &self.id
    }

    /// The tab whose page opened this one.
    pub(crate) fn opener(&self) -> Option<&TabId> {
        self.opener.as_ref()
    }

    /// The browser's id of the page, which is also that of its main frame.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// The page's session. Frames with a process of their own have another, see [`Self::frames`].
    pub(crate) fn session(&self) -> &cdp::Session {
        &self.page
    }

    /// Count of documents, see [`View::generation`].
    pub(crate) fn generation(&self) -> u64 {
        self.view.borrow().generation
    }

    /// Refs of the current document.
    pub(crate) fn refs(&self) -> &RefTable {
        &self.refs
    }

    /// What its page logged and loaded.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// The CPU recording of the tab.
    pub(crate) fn recording(&self) -> &Mutex<Option<Recording>> {
        &self.recording
    }

    /// The trace of the tab.
    pub(crate) fn trace(&self) -> &Mutex<Option<trace::Recording>> {
        &self.trace
    }

    /// What is known now, and every later change.
    pub(crate) fn view(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// The tab as operations answer it.
    pub(crate) fn summary(&self) -> types::Tab {
        let view = self.view.borrow();
        types::Tab {
            id: self.id.clone(),
            url: cut(&view.url, limits::URL_CHARS),
            title: cut(&view.title, limits::SHORT_CHARS),
            loading: view.loading,
            can_go_back: view.can_go_back,
            can_go_forward: view.can_go_forward,
            generation: view.generation,
            opener_id: self.opener.clone(),
        }
    }

    /// All frames, each before its children; the main frame first.
    pub(crate) fn frames(&self) -> Vec<FrameInfo> {
        self.view.borrow().frames.list()
    }

    /// The frame `id`, or the main frame.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if the tab has no such frame.
    pub(crate) fn frame(&self, id: Option<&str>) -> Result<FrameInfo, OperationError> {
        let view = self.view.borrow();
        let Some(id) = id else {
            return Ok(view.frames.main().clone());
        };
        view.frames.get(id).cloned().ok_or_else(|| {
            let id: String = id.chars().take(80).collect();
            OperationError::new(
                ErrorCode::NotFound,
                format!("the tab has no frame {id:?}; call frames for the present ones"),
            )
        })
    }

    /// The dialog that waits for an answer.
    pub(crate) fn dialog(&self) -> Option<types::Dialog> {
        self.view.borrow().dialog.clone()
    }

    /// Completes with the dialog once one is open, at once if one is. Race calls to the page with it:
    /// they do not answer while a dialog is open.
    pub(crate) async fn dialog_opened(&self) -> types::Dialog {
        let mut view = self.view.subscribe();
        loop {
            if let Some(dialog) = view.borrow_and_update().dialog.clone() {
                return dialog;
            }
            if view.changed().await.is_err() {
                // The sender lives in `self`, so that this is not reached.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the view tells all that the browser had reported when this was called. Call it between
    /// the reply of a command and a look at the view: reply and events are handled by different tasks.
    pub(crate) async fn caught_up(&self) {
        let Some(arrived) = self.arrived.get() else {
            return;
        };
        let arrived = arrived.load(Ordering::Acquire);
        let mut applied = self.applied.subscribe();
        tokio::select! {
            // The sender lives in `self`.
            _ = applied.wait_for(|applied| *applied >= arrived) => {}
            // Nothing is applied to a closed tab.
            () = self.page.ended() => {}
        }
    }

    /// Waits for the operations that came before. Cancel safe: dropping it gives the place up.
    ///
    /// # Errors
    /// [`ErrorCode::Overloaded`] if [`QUEUE_OPERATIONS`] wait already.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, OperationError> {
        let place = self.waiting.try_acquire().map_err(|_| {
            OperationError::new(
                ErrorCode::Overloaded,
                format!(
                    "{QUEUE_OPERATIONS} operations wait for this tab; wait for their answers first"
                ),
            )
        })?;
        Ok(Turn {
            _turn: self.turn.lock().await,
            _place: place,
        })
    }

    /// Changes the view and tells those who watch it.
    fn update(&self, change: impl FnOnce(&mut View)) {
        self.view.send_modify(change);
    }
}

impl View {
    /// No dialog is open any more.
    fn close_dialog(&mut self) {
        if self.dialog.take().is_some() {
            self.dialogs_closed += 1;
        }
    }
}

fn cut(text: &str, chars: usize) -> String {
    if text.len() <= chars {
        text.to_owned()
    } else {
        text.chars().take(chars).collect()
    }
}
