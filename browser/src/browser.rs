//! A running browser and its sessions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{debug, warn};

use crate::cdp::{Ack, CdpError, Connection, EventStream, NoParams, Session};
use crate::launch::{BrowserConfig, LaunchError, Launched, launch};
use crate::prime::ProxyCredential;
use crate::process::{Ended, Process};
use crate::profile::Profile;
use crate::session::{BrowserSession, PageInfo, SessionError, Setting};

/// How long the browser may take to answer the command to close.
const CLOSE_ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// How long it may take to close in order after that, before its processes are killed.
const CLOSE_LIMIT: Duration = Duration::from_secs(4);

/// Why a browser is no longer there.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Exit {
    /// The person at the desk closed the last window. The process may still run: [`Browser::close`] ends it.
    WindowsClosed,
    /// The process ended: it was quit, it crashed, or it was killed.
    Ended(Ended),
}

/// A running browser. Dropping it ends it at once; [`Self::close`] does so in order.
pub struct Browser {
    version: String,
    keeps_data: bool,
    headless: bool,
    window: (u32, u32),
    root: Session,
    sessions: Sessions,
    deserted: mpsc::Sender<()>,
    windows_closed: watch::Receiver<bool>,
    _registry: AbortOnDropHandle<()>,
    // Closed before the process is waited for: the browser ends with its pipe.
    _connection: Connection,
    process: Process,
}

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browser")
            .field("version", &self.version)
            .field("pid", &self.process.pid())
            .finish_non_exhaustive()
    }
}

/// The open sessions, shared with the task that hands new pages to them.
#[derive(Clone, Default)]
struct Sessions {
    list: Arc<Mutex<Vec<BrowserSession>>>,
}

impl Sessions {
    fn list(&self) -> MutexGuard<'_, Vec<BrowserSession>> {
        // A single push or retain leaves the list whole even after a panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session whose pages are in `context`. Others are nobody's, such as a private window that the
    /// person at the desk opens: the proxy does not know them and lets them nowhere.
    fn of(&self, context: Option<&str>) -> Option<BrowserSession> {
        self.list()
            .iter()
            .find(|session| session.owns(context))
            .cloned()
    }

    fn with_target(&self, target: &str) -> Option<BrowserSession> {
        let list = self.list();
        list.iter()
            .find(|session| session.tabs().iter().any(|tab| tab.target() == target))
            .cloned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedContext {
    browser_context_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachedToTarget {
    session_id: String,
    target_info: PageInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetInfoChanged {
    target_info: ChangedInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangedInfo {
    target_id: String,
}

impl Browser {
    /// Starts a browser that reaches nothing but `config.proxy`, and waits until it answers.
    ///
    /// # Errors
    /// See [`LaunchError`]; nothing is left behind then.
    ///
    /// # Cancel safety
    /// Dropping the future ends the browser and removes its temporary profile.
    pub async fn launch(config: BrowserConfig) -> Result<Self, LaunchError> {
        let Launched {
            process,
            connection,
            version,
        } = launch(&config).await?;
        let root = connection.root();
        let sessions = Sessions::default();
        let events = root.events();
        let (deserted, deserted_rx) = mpsc::channel(1);
        let (closed, windows_closed) = watch::channel(false);
        let registry = TaskTracker::new().spawn(register(
            root.clone(),
            events,
            sessions.clone(),
            deserted_rx,
            closed,
        ));
        let browser = Self {
            version,
            keeps_data: matches!(config.profile, Profile::Kept(_)),
            headless: config.headless,
            window: config.window,
            root: root.clone(),
            sessions,
            deserted,
            windows_closed,
            _registry: AbortOnDropHandle::new(registry),
            _connection: connection,
            process,
        };
        match follow_pages(&root).await {
            Ok(()) => Ok(browser),
            Err(error) => {
                browser.close().await;
                Err(LaunchError::Protocol(error.to_string()))
            }
        }
    }

    /// Its product and version, such as `Chrome/156.0.8078.114`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The process id of its main process, which leads a process group.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Completes when the browser has ended, or when the person at the desk closed the last window.
    /// Cancel safe.
    pub async fn exited(&self) -> Exit {
        let mut windows_closed = self.windows_closed.clone();
        let closed = async {
            if windows_closed.wait_for(|closed| *closed).await.is_err() {
                // The browser is going down: how it ended is the other branch's to tell.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = self.process.exited() => Exit::Ended(ended),
            () = closed => Exit::WindowsClosed,
        }
    }

    /// Opens a session behind the proxy with `credential`. With a kept profile, or where a person looks
    /// on, the first session has the browser's default context, whose cookies are the profile's; every
    /// other one has a context of its own that ends with it.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn open_session(
        &self,
        name: &str,
        credential: ProxyCredential,
    ) -> Result<BrowserSession, SessionError> {
        let default_is_free = self
            .sessions
            .list()
            .iter()
            .all(|session| session.context().is_some());
        let context = if default_is_free && (self.keeps_data || !self.headless) {
            None
        } else {
            let create = json!({ "disposeOnDetach": true });
            let created: CreatedContext = self
                .root
                .call("Target.createBrowserContext", create)
                .await?;
            Some(created.browser_context_id)
        };
        let session = BrowserSession::new(Setting {
            name: name.to_owned(),
            root: self.root.clone(),
            context,
            credential,
            window: self.window,
            deserted: (!self.headless).then(|| self.deserted.clone()),
        });
        self.sessions.list().push(session.clone());
        if let Err(error) = session.start().await {
            self.close_session(&session).await;
            return Err(error);
        }
        Ok(session)
    }

    async fn close_session(&self, session: &BrowserSession) {
        session.close().await;
        self.sessions
            .list()
            .retain(|other| other.context() != session.context());
    }

    /// Closes the browser: in order if it answers, by force after a moment. Nothing of it is left when
    /// this returns, its temporary profile included.
    pub async fn close(self) {
        let close = self
            .root
            .call_within::<Ack>(CLOSE_ANSWER_LIMIT, "Browser.close", NoParams {});
        if let Err(error) = close.await {
            debug!(%error, "the browser did not take the command to close");
        }
        self.process.end(CLOSE_LIMIT).await;
    }
}

/// Asks for news of all pages, and for a session with each before it runs.
async fn follow_pages(root: &Session) -> Result<(), CdpError> {
    let filter = json!([{ "type": "page" }]);
    root.call::<Ack>(
        "Target.setDiscoverTargets",
        json!({ "discover": true, "filter": filter }),
    )
    .await?;
    let attach = json!({
        "autoAttach": true,
        "waitForDebuggerOnStart": true,
        "flatten": true,
        "filter": filter,
    });
    root.call::<Ack>("Target.setAutoAttach", attach).await?;
    Ok(())
}

/// Hands new pages to their sessions until the browser is gone.
async fn register(
    root: Session,
    mut events: EventStream,
    sessions: Sessions,
    mut deserted: mpsc::Receiver<()>,
    windows_closed: watch::Sender<bool>,
) {
    let tasks = TaskTracker::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(()) = deserted.recv() => {
                let left = sessions.list().iter().any(|session| !session.tabs().is_empty());
                windows_closed.send_if_modified(|closed| {
                    *closed |= !left;
                    *closed
                });
                continue;
            }
        };
        let Some(event) = event else { return };
        match event.method.as_str() {
            "Target.attachedToTarget" => match event.parse::<AttachedToTarget>() {
                Ok(attached) => {
                    let page = root.flat(&attached.session_id);
                    let info = attached.target_info;
                    if sessions.with_target(&info.target_id).is_some() {
                        // The tab's own second session, for what the page logs and loads.
                        continue;
                    }
                    let session = sessions.of(info.browser_context_id.as_deref());
                    match session.filter(|_| info.kind == "page") {
                        Some(session) => session.adopt(page, &info),
                        // Nobody's page: a session that is being closed, or another kind of target.
                        None => {
                            tasks.spawn(async move {
                                let run = page
                                    .call::<Ack>("Runtime.runIfWaitingForDebugger", NoParams {});
                                if let Err(error) = run.await {
                                    debug!(%error, "a page without a session ended");
                                }
                            });
                        }
                    }
                }
                Err(error) => warn!(%error, "a new page is left out"),
            },
            "Target.targetInfoChanged" => match event.parse::<TargetInfoChanged>() {
                Ok(TargetInfoChanged { target_info }) => {
                    if let Some(session) = sessions.with_target(&target_info.target_id) {
                        session.ask_again(&target_info.target_id);
                    }
                }
                Err(error) => warn!(%error, "a changed page is left out"),
            },
            _ => {}
        }
    }
}
