//! A browser session: a browser context with its tabs, cookies and proxy credential of its own.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use uuid::Uuid;
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::TabId;
use yonder_protocol::operation::types::State;

use crate::cdp::{Ack, CdpError, Session};
use crate::files::{Downloads, Files};
use crate::memory::HeapCache;
use crate::navigation::FailureLookup;
use crate::prime::{PrimeError, ProxyCredential, prime};
use crate::tab::{Tab, track};

/// From the command that opens a tab until it can be used: 0.2 s is usual, a loaded machine takes seconds.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// For closing what a session has open.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Why a browser session could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The browser failed or is gone.
    #[error("the browser could not open a session: {0}; start it again")]
    Browser(String),
    /// The proxy did not take the credential.
    #[error("the browser's proxy refused the session's credential")]
    Refused,
    /// The proxy did not answer.
    #[error("the browser's proxy does not answer: {0}")]
    Proxy(String),
}

impl From<CdpError> for SessionError {
    fn from(error: CdpError) -> Self {
        Self::Browser(error.to_string())
    }
}

impl From<PrimeError> for SessionError {
    fn from(error: PrimeError) -> Self {
        match error {
            PrimeError::Refused => Self::Refused,
            PrimeError::Unanswered(reason) => Self::Proxy(reason),
            PrimeError::Browser(error) => error.into(),
        }
    }
}

/// What the browser tells of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageInfo {
    pub(crate) target_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) browser_context_id: Option<String>,
    pub(crate) opener_id: Option<String>,
}

/// What of the browser a session is made from.
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) root: Session,
    /// The session's own context, or `None` for the browser's default one.
    pub(crate) context: Option<String>,
    pub(crate) credential: ProxyCredential,
    pub(crate) window: (u32, u32),
    /// Gets a message when the person at the desk closed the last tab.
    pub(crate) deserted: Option<mpsc::Sender<()>>,
}

/// An open browser session. Clones are the same session; it ends with the browser or by [`Self::close`].
#[derive(Clone)]
pub struct BrowserSession {
    inner: Arc<Inner>,
}

impl fmt::Debug for BrowserSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserSession")
            .field("name", &self.inner.setting.name)
            .finish_non_exhaustive()
    }
}

struct Inner {
    setting: Setting,
    /// The browser's id of its default context, for a session that has no other.
    default_context: OnceLock<String>,
    tabs: watch::Sender<Vec<Arc<Tab>>>,
    /// What was chosen last; may name a tab that is gone.
    focused: Mutex<Option<TabId>>,
    state: watch::Sender<State>,
    /// Targets that an operation closes, so that their end is not taken for the person's doing.
    closing: Mutex<HashSet<String>>,
    lookup: Mutex<Option<Arc<FailureLookup>>>,
    /// The credential was lost while there was no tab to give it again by.
    unprimed: AtomicBool,
    closed: CancellationToken,
    tasks: TaskTracker,
    files: Files,
    heaps: HeapCache,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    target_id: String,
}

impl BrowserSession {
    /// A session without tabs; [`Self::start`] makes it usable.
    pub(crate) fn new(setting: Setting) -> Self {
        let inner = Inner {
            setting,
            default_context: OnceLock::new(),
            tabs: watch::Sender::new(Vec::new()),
            focused: Mutex::default(),
            state: watch::Sender::new(State::default()),
            closing: Mutex::default(),
            lookup: Mutex::default(),
            unprimed: AtomicBool::new(false),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            files: Files::default(),
            heaps: HeapCache::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Opens the first tab and introduces the session to its proxy.
    pub(crate) async fn start(&self) -> Result<(), SessionError> {
        let setting = &self.inner.setting;
        let mut downloads = Downloads::new(self.files())
            .map_err(|error| SessionError::Browser(format!("no folder for downloads: {error}")))?;
        let mut behavior = json!({
            "behavior": "allowAndName",
            "downloadPath": downloads.folder(),
            "eventsEnabled": true,
        });
        if let Some(context) = &setting.context {
            behavior["browserContextId"] = json!(context);
        }
        let mut events = setting.root.events();
        setting
            .root
            .call::<Ack>("Browser.setDownloadBehavior", behavior)
            .await?;
        let session = self.clone();
        self.inner.tasks.spawn(async move {
            let follow = async {
                while let Some(event) = events.next().await {
                    downloads.heard(&session, &event).await;
                }
            };
            tokio::select! {
                () = follow => {}
                () = session.inner.closed.cancelled() => {}
            }
        });
        self.create_tab(false)
            .await
            .map_err(|error| SessionError::Browser(error.message))?;
        prime(
            &setting.root,
            setting.context.as_deref(),
            &setting.credential,
        )
        .await?;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.setting.name
    }

    pub(crate) fn context(&self) -> Option<&str> {
        self.inner.setting.context.as_deref()
    }

    /// Whether pages of `context` are the session's. The default context's id is learned from the first
    /// page, which is the session's own.
    pub(crate) fn owns(&self, context: Option<&str>) -> bool {
        match (&self.inner.setting.context, context) {
            (Some(own), context) => Some(&**own) == context,
            (None, None) => true,
            (None, Some(context)) => {
                let own = self
                    .inner
                    .default_context
                    .get_or_init(|| context.to_owned());
                own == context
            }
        }
    }

    pub(crate) fn root(&self) -> &Session {
        &self.inner.setting.root
    }

    /// The session's tabs, now and after every change.
    pub fn state(&self) -> watch::Receiver<State> {
        self.inner.state.subscribe()
    }

    /// Asks `lookup` for the true cause when a page cannot be loaded: Chromium knows only that its proxy
    /// could not connect. It is called on the runtime's threads and must not block.
    pub fn set_failure_lookup(&self, lookup: Arc<FailureLookup>) {
        *lock(&self.inner.lookup) = Some(lookup);
    }

    pub(crate) fn failure_lookup(&self) -> Option<Arc<FailureLookup>> {
        lock(&self.inner.lookup).clone()
    }

    /// Gives Chromium the proxy credential again after it lost it, which shows as requests without one.
    /// Cookies of a session that is not kept are lost along with it.
    pub async fn prime_again(&self) {
        let setting = &self.inner.setting;
        if self.inner.tabs.borrow().is_empty() {
            self.inner.unprimed.store(true, Ordering::Relaxed);
            return;
        }
        let primed = prime(
            &setting.root,
            setting.context.as_deref(),
            &setting.credential,
        );
        match primed.await {
            Ok(()) => info!(session = %setting.name, "the browser has its proxy credential again"),
            Err(error) => {
                let reason = SessionError::from(error);
                warn!(session = %setting.name, error = %reason, "the browser has lost its proxy credential");
                self.inner.unprimed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Closes the session's tabs and forgets its cookies, unless they are kept on disk.
    pub async fn close(&self) {
        self.inner.closed.cancel();
        let root = &self.inner.setting.root;
        let close = async {
            if let Some(context) = &self.inner.setting.context {
                let context = json!({ "browserContextId": context });
                root.call::<Ack>("Target.disposeBrowserContext", context)
                    .await?;
            } else {
                for tab in self.tabs() {
                    self.close_target(tab.target()).await?;
                }
            }
            Ok::<_, CdpError>(())
        };
        match tokio::time::timeout(CLOSE_LIMIT, close).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "the session's browser was gone before it"),
            Err(_) => warn!("the browser did not close its session in time"),
        }
        self.inner.tasks.close();
        // The tasks end with the tabs, and the tabs at the latest with the browser.
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.inner.tasks.wait()).await;
    }

    /// What was recorded in its tabs.
    pub(crate) fn files(&self) -> &Files {
        &self.inner.files
    }

    /// Recorded heaps that were looked at.
    pub(crate) fn heaps(&self) -> &HeapCache {
        &self.inner.heaps
    }

    /// The tasks that belong to it.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    pub(crate) fn tabs(&self) -> Vec<Arc<Tab>> {
        self.inner.tabs.borrow().clone()
    }

    /// The tab `id`.
    ///
    /// # Errors
    /// [`ErrorCode::TabUnavailable`].
    pub(crate) fn tab(&self, id: &TabId) -> Result<Arc<Tab>, OperationError> {
        let tabs = self.inner.tabs.borrow();
        tabs.iter()
            .find(|tab| tab.id() == id)
            .cloned()
            .ok_or_else(|| {
                OperationError::new(
                    ErrorCode::TabUnavailable,
                    format!("there is no tab {id} any more; call tabs.list for the open ones"),
                )
            })
    }

    /// Takes the page `info`, whose session `page` waits to be set up, as a tab of this session.
    pub(crate) fn adopt(&self, page: Session, info: &PageInfo) {
        let events = page.events();
        let full = self.inner.tabs.borrow().len() >= limits::TABS_PER_SESSION;
        let id = TabId::from_uuid(&Uuid::new_v4().to_string()).ok();
        let Some(id) = id.filter(|_| !full && !self.inner.closed.is_cancelled()) else {
            warn!(session = %self.inner.setting.name, "a page opened too many tabs; one is closed");
            let (session, target) = (self.clone(), info.target_id.clone());
            self.inner.tasks.spawn(async move {
                // Already closed is as good.
                let _ = session.close_target(&target).await;
            });
            return;
        };
        let opener = info.opener_id.as_deref().and_then(|opener| {
            let tabs = self.inner.tabs.borrow();
            let opener = tabs.iter().find(|tab| tab.target() == opener);
            opener.map(|tab| tab.id().clone())
        });
        let tab = Tab::new(id.clone(), info.target_id.clone(), page, opener);
        self.inner
            .tabs
            .send_modify(|tabs| tabs.push(Arc::clone(&tab)));
        {
            let mut focused = lock(&self.inner.focused);
            // What a page opens is what its user sees next.
            if focused.is_none() || info.opener_id.is_some() {
                *focused = Some(id);
            }
        }
        self.publish();
        let session = self.clone();
        self.inner.tasks.spawn(async move {
            let mut view = tab.view();
            let publish = async {
                while view.changed().await.is_ok() {
                    session.publish();
                }
            };
            tokio::select! {
                () = track(Arc::clone(&tab), events, session.inner.tasks.clone()) => {}
                // The tab holds the sender: this branch never ends first.
                () = publish => {}
            }
            session.remove(&tab);
        });
    }

    fn remove(&self, tab: &Tab) {
        self.inner
            .tabs
            .send_modify(|tabs| tabs.retain(|other| other.id() != tab.id()));
        self.inner.files.forget(tab.id());
        {
            let mut focused = lock(&self.inner.focused);
            if focused.as_ref() == Some(tab.id()) {
                *focused = self.inner.tabs.borrow().first().map(|tab| tab.id().clone());
            }
        }
        self.publish();
        let by_operation = lock(&self.inner.closing).remove(tab.target());
        if !by_operation
            && !self.inner.closed.is_cancelled()
            && self.inner.tabs.borrow().is_empty()
            && let Some(deserted) = &self.inner.setting.deserted
        {
            // One message is enough.
            let _ = deserted.try_send(());
        }
    }

    /// Brings the published state up to date.
    pub(crate) fn publish(&self) {
        self.inner.state.send_if_modified(|state| {
            let tabs: Vec<_> = self
                .inner
                .tabs
                .borrow()
                .iter()
                .map(|tab| tab.summary())
                .collect();
            let focused = lock(&self.inner.focused).clone();
            let current = State {
                focused_tab_id: focused.filter(|id| tabs.iter().any(|tab| tab.id == *id)),
                tabs,
            };
            let changed = *state != current;
            *state = current;
            changed
        });
    }

    /// Something about the page `target` changed, such as its title.
    pub(crate) fn ask_again(&self, target: &str) {
        let tab = self.tabs().into_iter().find(|tab| tab.target() == target);
        if let Some(tab) = tab {
            tab.refresh_soon();
        }
    }

    /// The state as of now.
    pub(crate) fn state_now(&self) -> State {
        self.publish();
        self.inner.state.borrow().clone()
    }

    /// Makes `tab` the focused one.
    pub(crate) fn focus(&self, tab: &Tab) {
        *lock(&self.inner.focused) = Some(tab.id().clone());
        self.publish();
    }

    /// Opens a blank tab in a window of its own and waits until it can be used.
    ///
    /// # Errors
    /// [`ErrorCode::Overloaded`], or what the browser says.
    pub(crate) async fn create_tab(&self, background: bool) -> Result<Arc<Tab>, OperationError> {
        let setting = &self.inner.setting;
        if self.inner.tabs.borrow().len() >= limits::TABS_PER_SESSION {
            return Err(OperationError::new(
                ErrorCode::Overloaded,
                format!(
                    "the session has {} tabs, no more are allowed; close some with tabs.close",
                    limits::TABS_PER_SESSION
                ),
            ));
        }
        let (width, height) = setting.window;
        let mut target = json!({
            "url": "about:blank",
            "newWindow": true,
            "background": background,
            "width": width,
            "height": height,
        });
        if let Some(context) = &setting.context {
            target["browserContextId"] = json!(context);
        }
        let failed = |error: CdpError| {
            OperationError::new(
                ErrorCode::OperationFailed,
                format!("no tab could be opened: {error}"),
            )
        };
        let created = setting.root.call::<Created>("Target.createTarget", target);
        let target = created.await.map_err(failed)?.target_id;
        let mut tabs = self.inner.tabs.subscribe();
        let is_new = |tab: &&Arc<Tab>| tab.target() == target;
        let ready = async {
            let tabs = tabs.wait_for(|tabs| tabs.iter().any(|tab| is_new(&tab)));
            // The sender lives in this session.
            let tab = tabs
                .await
                .ok()
                .and_then(|tabs| tabs.iter().find(is_new).cloned());
            let tab = tab.ok_or(CdpError::Detached)?;
            let mut view = tab.view();
            tokio::select! {
                _ = view.wait_for(|view| view.ready) => {}
                () = tab.session().ended() => return Err(CdpError::Detached),
            }
            Ok(tab)
        };
        let tab = tokio::time::timeout(READY_LIMIT, ready)
            .await
            .unwrap_or(Err(CdpError::TimedOut {
                method: "Target.createTarget",
            }))
            .map_err(failed)?;
        if self.inner.unprimed.swap(false, Ordering::Relaxed) {
            self.prime_again().await;
        }
        Ok(tab)
    }

    /// Closes the page `target` without asking it.
    pub(crate) async fn close_target(&self, target: &str) -> Result<(), CdpError> {
        lock(&self.inner.closing).insert(target.to_owned());
        let target_id = json!({ "targetId": target });
        let closed = self.root().call::<Ack>("Target.closeTarget", target_id);
        match closed.await {
            Ok(_) => Ok(()),
            Err(error) => {
                lock(&self.inner.closing).remove(target);
                Err(error)
            }
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is replaced or extended in one step, so that it is whole even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
