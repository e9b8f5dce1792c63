//! Watches what a page and everything that belongs to it logs and loads: its frames and workers.
//!
//! The watch has a session of its own with the page, beside the tab's, so that a flood of requests or
//! messages never stands in the way of what the tab needs to know. Frames with a process of their own and
//! workers are held until they are watched, too, so that their first words are not lost. The events are
//! taken where they are read, none waits in a queue.
//!
//! Where the watch cannot be set up the page works as well, and there is nothing to be told of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tracing::debug;
use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::types::{
    Console, ConsoleList, NetworkList, NetworkListRequest, Tab,
};

use crate::cdp::{Ack, CdpError, Event, EventSink, NoParams, Session};
use crate::console::{ConsoleLog, Origin};
use crate::listing::cut;
use crate::network::NetworkLog;

/// Bytes of bodies that the browser keeps of a page, and of each of them. Of a page it heeds only the sum: the
/// oldest go first.
const PAGE_BODIES: (usize, usize) = (4 * 1024 * 1024, 1024 * 1024);

/// The same for each of the first frames and workers; with the page's they are 5 MiB a tab.
const CHILD_BODIES: (usize, usize) = (128 * 1024, 128 * 1024);

/// Frames and workers of which bodies are kept.
const CHILDREN_WITH_BODIES: usize = 8;

/// Bytes of what a request posts that come with the event; more is asked for when it is wanted.
const POST_BYTES: usize = 20_000;

/// Objects that the page wrote to the console and the browser holds for us, before they are let go.
const OBJECTS_MAX: usize = 100;

/// Script contexts of frames that are remembered, per tab. A page must not decide how much memory we use.
const CONTEXTS_MAX: usize = 4_000;

/// Characters of a worker's address.
const WORKER_CHARS: usize = 300;

/// What a tab's page logged and loaded.
pub(crate) struct Watch {
    /// The main frame.
    main: String,
    /// The watch's own session with the page.
    page: Mutex<Option<Session>>,
    records: Mutex<Records>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("main", &self.main)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Records {
    console: ConsoleLog,
    network: NetworkLog,
    targets: HashMap<Arc<str>, Target>,
    /// The frame of each script context, by session and number; those of the main frame are left out.
    contexts: HashMap<(Arc<str>, i64), String>,
}

/// The page, a frame with a process of its own, or a worker.
#[derive(Clone, Default)]
struct Target {
    origin: Origin,
    /// Objects held since they were last let go.
    objects: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedReply {
    session_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedToTarget {
    session_id: String,
    target_info: TargetInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetInfo {
    target_id: String,
    #[serde(rename = "type")]
    kind: String,
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DetachedFromTarget {
    session_id: String,
}

#[derive(Deserialize)]
struct FrameNavigated {
    frame: Frame,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    id: String,
    #[serde(default)]
    loader_id: String,
}

#[derive(Deserialize)]
struct ContextCreated {
    context: Context,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    id: i64,
    aux_data: Option<AuxData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuxData {
    frame_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfContext {
    execution_context_id: Option<i64>,
}

/// What carries the script context of an exception.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thrown {
    exception_details: OfContext,
}

impl Watch {
    /// A watch of the page whose main frame is `main`. It begins with [`Self::start`].
    pub(crate) fn new(main: String) -> Arc<Self> {
        Arc::new(Self {
            main,
            page: Mutex::default(),
            records: Mutex::default(),
        })
    }

    /// Opens a session of its own with the page, whose events are still to be switched on ([`enable_page`]). `page` is the
    /// tab's session; `tasks` owns what is to be done for frames and workers that come later.
    ///
    /// # Errors
    /// If the page is gone or the browser does not allow a second session.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        page: &Session,
        tasks: TaskTracker,
    ) -> Result<Session, CdpError> {
        let root = page.root();
        let attach = json!({ "targetId": self.main, "flatten": true });
        let attached: AttachedReply = root.call("Target.attachToTarget", attach).await?;
        let own = root.flat(&attached.session_id);
        *lock(&self.page) = Some(own.clone());
        self.records()
            .targets
            .insert(Arc::clone(own.id()), Target::default());
        let watcher = Watcher {
            watch: Arc::clone(self),
            root,
            tasks,
        };
        own.set_sink(Arc::new(watcher));
        Ok(own)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }

    /// The watch's own session with the page.
    pub(crate) fn page(&self) -> Option<Session> {
        lock(&self.page).clone()
    }

    /// Looks at the requests; `look` must be quick.
    pub(crate) fn network<T>(&self, look: impl FnOnce(&NetworkLog) -> T) -> T {
        look(&self.records().network)
    }

    /// Answers `console`.
    ///
    /// # Errors
    /// [`yonder_protocol::ErrorCode::Invalid`] for a cursor that is none.
    pub(crate) fn console_list(
        &self,
        tab: Tab,
        request: &Console,
    ) -> Result<ConsoleList, OperationError> {
        let listed = self.records().console.list(request)?;
        Ok(ConsoleList {
            tab,
            messages: listed.entries,
            total: listed.total,
            truncated: listed.truncated,
            dropped: listed.dropped,
        })
    }

    /// Answers `network.list`.
    ///
    /// # Errors
    /// [`yonder_protocol::ErrorCode::Invalid`] for a cursor that is none.
    pub(crate) fn network_list(
        &self,
        tab: Tab,
        request: &NetworkListRequest,
    ) -> Result<NetworkList, OperationError> {
        let listed = self.network(|log| log.list(request))?;
        Ok(NetworkList {
            tab,
            requests: listed.entries,
            total: listed.total,
            truncated: listed.truncated,
            dropped: listed.dropped,
        })
    }
}

/// Takes the events for a [`Watch`].
#[derive(Clone)]
struct Watcher {
    watch: Arc<Watch>,
    root: Session,
    tasks: TaskTracker,
}

impl EventSink for Watcher {
    fn take(&self, event: &Event) {
        if let Err(error) = self.apply(event) {
            debug!(%error, "an event of the browser is left out");
        }
    }
}

impl Watcher {
    fn apply(&self, event: &Event) -> Result<(), CdpError> {
        let method = event.method.as_str();
        match method {
            "Target.attachedToTarget" => self.attached(&event.parse()?),
            "Target.detachedFromTarget" => {
                let detached: DetachedFromTarget = event.parse()?;
                let mut records = self.watch.records();
                records.targets.remove(&*detached.session_id);
                records
                    .contexts
                    .retain(|(session, _), _| **session != *detached.session_id);
            }
            "Page.frameNavigated" => {
                let FrameNavigated { frame } = event.parse()?;
                if frame.id == self.watch.main {
                    let mut records = self.watch.records();
                    records.console.next_document();
                    records.network.next_document(&frame.loader_id);
                }
            }
            "Runtime.executionContextCreated" => {
                let ContextCreated { context } = event.parse()?;
                let frame = context.aux_data.and_then(|data| data.frame_id);
                let mut records = self.watch.records();
                if let Some(frame) = frame.filter(|frame| *frame != self.watch.main) {
                    if records.contexts.len() >= CONTEXTS_MAX {
                        records.contexts.clear();
                    }
                    let key = (Arc::clone(&event.session), context.id);
                    records.contexts.insert(key, frame);
                }
            }
            "Runtime.executionContextDestroyed" => {
                let context: OfContext = event.parse()?;
                if let Some(id) = context.execution_context_id {
                    let key = (Arc::clone(&event.session), id);
                    self.watch.records().contexts.remove(&key);
                }
            }
            "Runtime.executionContextsCleared" => {
                let mut records = self.watch.records();
                records
                    .contexts
                    .retain(|(session, _), _| *session != event.session);
            }
            _ if method.starts_with("Network.") => {
                let session = self.root.flat(&event.session);
                let records = &mut *self.watch.records();
                let target = records.targets.get(&event.session);
                let origin = target.map(|target| target.origin.clone());
                let main = &self.watch.main;
                records
                    .network
                    .apply(event, &session, &origin.unwrap_or_default(), main)?;
            }
            _ if method.starts_with("Runtime.") || method == "Log.entryAdded" => {
                return self.logged(event);
            }
            _ => {}
        }
        Ok(())
    }

    fn logged(&self, event: &Event) -> Result<(), CdpError> {
        let context = match event.method.as_str() {
            "Runtime.consoleAPICalled" => event.parse::<OfContext>()?.execution_context_id,
            "Runtime.exceptionThrown" => {
                let thrown: Thrown = event.parse()?;
                thrown.exception_details.execution_context_id
            }
            _ => None,
        };
        let mut records = self.watch.records();
        let records = &mut *records;
        let Some(target) = records.targets.get_mut(&event.session) else {
            return Ok(());
        };
        let mut origin = target.origin.clone();
        if origin.worker.is_none()
            && let Some(context) = context
        {
            let key = (Arc::clone(&event.session), context);
            origin.frame = records.contexts.get(&key).cloned().or(origin.frame);
        }
        target.objects += records.console.apply(event, origin)?;
        if target.objects > OBJECTS_MAX {
            target.objects = 0;
            let session = self.root.flat(&event.session);
            self.tasks.spawn(async move {
                let group = json!({ "objectGroup": "console" });
                let released = session.call::<Ack>("Runtime.releaseObjectGroup", group);
                if let Err(error) = released.await {
                    debug!(%error, "a page ended before its objects were let go");
                }
            });
        }
        Ok(())
    }

    /// Watches a frame or worker, which waits for that.
    fn attached(&self, attached: &AttachedToTarget) {
        let session = self.root.flat(&attached.session_id);
        let info = &attached.target_info;
        let origin = if info.kind == "iframe" {
            Origin {
                frame: Some(info.target_id.clone()),
                worker: None,
            }
        } else {
            let url = cut(&crate::redact::address(&info.url), WORKER_CHARS).0;
            Origin {
                frame: None,
                worker: Some(format!("{} {url}", info.kind)),
            }
        };
        let bodies = {
            let mut records = self.watch.records();
            let target = Target { origin, objects: 0 };
            records.targets.insert(Arc::clone(session.id()), target);
            // One of them is the page itself.
            (records.targets.len() <= 1 + CHILDREN_WITH_BODIES).then_some(CHILD_BODIES)
        };
        session.set_sink(Arc::new(self.clone()));
        let kind = info.kind.clone();
        self.tasks.spawn(async move {
            let enabled = enable(&session, &kind, bodies);
            // Sent behind the others and taken in order. Whatever failed, nobody must wait for ever.
            let run = session.call::<Ack>("Runtime.runIfWaitingForDebugger", NoParams {});
            let (enabled, run) = tokio::join!(enabled, run);
            if let Err(error) = run.and(enabled) {
                debug!(%error, kind, "a frame or worker ended before it was watched");
            }
        });
    }
}

/// Begins to watch a page, by the session that [`Watch::attach`] opened. Everything is sent at the first poll.
///
/// # Errors
/// If the page is gone.
pub(crate) async fn enable_page(session: &Session) -> Result<(), CdpError> {
    enable(session, "page", Some(PAGE_BODIES)).await
}

/// Switches the events on that [`Watcher::apply`] reads.
async fn enable(
    session: &Session,
    kind: &str,
    bodies: Option<(usize, usize)>,
) -> Result<(), CdpError> {
    let (total, each) = bodies.unwrap_or_default();
    let mut network = json!({
        "maxTotalBufferSize": total,
        "maxResourceBufferSize": each,
        "maxPostDataSize": POST_BYTES,
    });
    if kind == "page" {
        // Bodies outlast the document that loaded them, such as that of a form's answer.
        network["enableDurableMessages"] = json!(true);
    }
    let below = json!({
        "autoAttach": true,
        "waitForDebuggerOnStart": true,
        "flatten": true,
        "filter": [
            { "type": "iframe" },
            { "type": "worker" },
            { "type": "service_worker" },
            { "exclude": true },
        ],
    });
    let documents = async {
        if matches!(kind, "page" | "iframe") {
            session.call::<Ack>("Page.enable", NoParams {}).await?;
        }
        Ok::<_, CdpError>(())
    };
    let (documents, network, runtime, log, below) = tokio::join!(
        documents,
        session.call::<Ack>("Network.enable", network),
        session.call::<Ack>("Runtime.enable", NoParams {}),
        session.call::<Ack>("Log.enable", NoParams {}),
        session.call::<Ack>("Target.setAutoAttach", below),
    );
    documents?;
    network?;
    runtime?;
    log?;
    below?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is a record of what was seen: at worst it lacks the event that upset it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
