//! Follows a page's events and keeps the tab's [`View`](super::View) in step with them.
//!
//! Events are applied without waiting for the browser; what needs a question back (titles, new frames)
//! is asked in tasks of its own, so that the queue of events never fills because of a slow page.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use yonder_protocol::operation::types;

use super::{Tab, View};
use crate::cdp::{Ack, CdpError, Event, EventStream, NoParams, Session};
use crate::watch::enable_page;

/// Follows `tab` until its page is closed. `events` are those of the tab's session from before its first
/// command on; `follow` owns the tasks that ask back, which end by themselves soon after the page.
pub(crate) async fn track(tab: Arc<Tab>, mut events: EventStream, follow: TaskTracker) {
    tab.arrived.get_or_init(|| events.offered());
    let start = Arc::clone(&tab);
    let tasks = follow.clone();
    follow.spawn(async move {
        if let Err(error) = start.set_up(tasks).await {
            debug!(%error, tab = %start.id, "the tab ended while it was set up");
        }
    });
    follow.spawn(refresh_on_demand(Arc::clone(&tab)));
    while let Some(event) = events.next().await {
        match tab.apply(&event) {
            Ok(Follow::Nothing) => {}
            Ok(Follow::Refresh) => tab.refresh_soon(),
            Ok(Follow::Resync) => {
                let tab = Arc::clone(&tab);
                follow.spawn(async move { tab.resync_logged().await });
            }
            Ok(Follow::Join(frame)) => {
                events.add(&frame);
                let tab = Arc::clone(&tab);
                follow.spawn(async move { tab.join(frame).await });
            }
            Err(error) => warn!(%error, "an event of the browser is left out"),
        }
        tab.applied.send_modify(|applied| *applied += 1);
        if events.take_missed() {
            warn!(tab = %tab.id, "events were lost; asking the page for its state");
            let tab = Arc::clone(&tab);
            follow.spawn(async move { tab.resync_logged().await });
        }
    }
}

/// Asks for title and history whenever [`Tab::refresh_soon`] wants it: once for all that came meanwhile,
/// since a page can change its address a thousand times a second.
async fn refresh_on_demand(tab: Arc<Tab>) {
    loop {
        tokio::select! {
            () = tab.stale.notified() => tab.refresh().await,
            () = tab.page.ended() => return,
        }
    }
}

/// What is to be asked after an event.
enum Follow {
    Nothing,
    /// Title and history.
    Refresh,
    /// Frames, title and history.
    Resync,
    /// A frame has a session of its own.
    Join(Session),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameTreeReply {
    frame_tree: FrameNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameNode {
    frame: Frame,
    #[serde(default)]
    child_frames: Vec<Self>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    id: String,
    parent_id: Option<String>,
    #[serde(default)]
    loader_id: String,
    name: Option<String>,
    url: String,
    #[serde(default)]
    url_fragment: String,
    unreachable_url: Option<String>,
}

impl Frame {
    fn address(&self) -> String {
        self.unreachable_url
            .clone()
            .unwrap_or_else(|| format!("{}{}", self.url, self.url_fragment))
    }
}

#[derive(Deserialize)]
struct FrameNavigated {
    frame: Frame,
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfFrame {
    frame_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NavigatedWithinDocument {
    frame_id: String,
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameAttached {
    frame_id: String,
    parent_frame_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameDetached {
    frame_id: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LifecycleEvent {
    frame_id: String,
    loader_id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DialogOpening {
    #[serde(rename = "type")]
    kind: String,
    message: String,
    #[serde(default)]
    default_prompt: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
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
    parent_frame_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detached {
    session_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    current_index: usize,
    entries: Vec<HistoryEntry>,
}

#[derive(Deserialize)]
struct HistoryEntry {
    title: String,
}

impl Tab {
    /// Applies what `event` tells.
    fn apply(&self, event: &Event) -> Result<Follow, CdpError> {
        match event.method.as_str() {
            "Page.frameNavigated" => return self.navigated(event),
            "Page.navigatedWithinDocument" => {
                let change: NavigatedWithinDocument = event.parse()?;
                let main = change.frame_id == self.target;
                self.update(|view| {
                    view.frames.renamed(&change.frame_id, change.url.clone());
                    if main {
                        view.url = change.url;
                        view.commits += 1;
                    }
                });
                return Ok(if main {
                    Follow::Refresh
                } else {
                    Follow::Nothing
                });
            }
            "Page.frameStartedLoading" if self.is_of_main_frame(event)? => {
                self.update(|view| {
                    view.loading = true;
                    view.starts += 1;
                });
            }
            "Page.frameStoppedLoading" if self.is_of_main_frame(event)? => {
                self.update(|view| view.loading = false);
                return Ok(Follow::Refresh);
            }
            "Page.lifecycleEvent" => {
                let step: LifecycleEvent = event.parse()?;
                if step.name == "load" && step.frame_id == self.target {
                    self.update(|view| {
                        view.last_loaded = step.loader_id;
                        view.loaded |= view.loader == view.last_loaded;
                    });
                    return Ok(Follow::Refresh);
                }
            }
            "Page.frameAttached" => {
                let frame: FrameAttached = event.parse()?;
                let session = self.page.flat(&event.session);
                self.update(|view| {
                    view.frames
                        .attached(&frame.frame_id, &frame.parent_frame_id, &session);
                });
            }
            "Page.frameDetached" => {
                let frame: FrameDetached = event.parse()?;
                // A swap is a move to another process, which the session on the other side reports.
                if frame.reason != "swap" {
                    self.update(|view| view.frames.removed(&frame.frame_id));
                }
            }
            "Page.javascriptDialogOpening" => {
                let dialog: DialogOpening = event.parse()?;
                self.update(|view| {
                    view.dialog = Some(types::Dialog {
                        kind: dialog.kind,
                        message: dialog.message,
                        default_value: dialog.default_prompt,
                    });
                });
            }
            "Page.javascriptDialogClosed" => self.update(View::close_dialog),
            "Target.attachedToTarget" => {
                let attached: Attached = event.parse()?;
                if attached.target_info.kind == "iframe" {
                    return Ok(Follow::Join(self.moved_out(&attached)));
                }
            }
            "Target.detachedFromTarget" => {
                let session = self.page.flat(&event.parse::<Detached>()?.session_id);
                self.update(|view| view.frames.session_ended(&session));
            }
            "Inspector.targetCrashed" if event.session == *self.page.id() => {
                self.update(|view| {
                    view.crashed = true;
                    view.crashes += 1;
                    view.loading = false;
                    view.close_dialog();
                });
            }
            _ => {}
        }
        Ok(Follow::Nothing)
    }

    fn is_of_main_frame(&self, event: &Event) -> Result<bool, CdpError> {
        Ok(event.parse::<OfFrame>()?.frame_id == self.target)
    }

    fn navigated(&self, event: &Event) -> Result<Follow, CdpError> {
        let FrameNavigated { frame, kind } = event.parse()?;
        let session = self.page.flat(&event.session);
        let main = frame.id == self.target;
        if main {
            self.refs.clear();
        }
        let restored = kind == "BackForwardCacheRestore";
        self.update(|view| {
            if main && restored {
                view.frames.restored(&session, frame.address());
            } else {
                view.frames.navigated(
                    &frame.id,
                    frame.parent_id.as_deref(),
                    &session,
                    frame.address(),
                    frame.name.clone(),
                );
            }
            if main {
                view.url = frame.address();
                view.title.clear();
                view.generation += 1;
                view.unreachable = frame.unreachable_url.is_some();
                // A document restored from the back/forward cache was loaded before.
                view.loaded = restored;
                view.loader = frame.loader_id;
                view.commits += 1;
                view.crashed = false;
                view.close_dialog();
            }
        });
        Ok(match (main, restored) {
            (true, true) => Follow::Resync,
            (true, false) => Follow::Refresh,
            (false, _) => Follow::Nothing,
        })
    }

    fn moved_out(&self, attached: &Attached) -> Session {
        let session = self.page.flat(&attached.session_id);
        let info = &attached.target_info;
        self.update(|view| {
            view.frames.moved_out(
                &info.target_id,
                info.parent_frame_id.as_deref(),
                &info.url,
                &session,
            );
        });
        session
    }

    /// Readies the page and lets it run.
    async fn set_up(&self, tasks: TaskTracker) -> Result<(), CdpError> {
        let page = &self.page;
        let watched = self.watch.attach(page, tasks).await;
        let watched = async {
            match &watched {
                Ok(session) => enable_page(session).await,
                Err(error) => Err(error.clone()),
            }
        };
        // The page may answer only once it runs: one that was opened without an opener has no renderer before. So all is
        // sent at once, and the permission to run behind it, in the order in which the browser takes them. Whatever fails,
        // the page, and with it the one that opened it, must not wait for ever.
        let (enabled, focus, prerender, tree, watched, run) = tokio::join!(
            enable(page),
            // A page in a window behind others has the focus, too, as far as it can tell: several agents
            // type at once.
            page.call::<Ack>(
                "Emulation.setFocusEmulationEnabled",
                json!({ "enabled": true })
            ),
            // A prerendered page would take the tab over with a main frame that nobody announced.
            page.call::<Ack>("Page.setPrerenderingAllowed", json!({ "isAllowed": false })),
            self.resync(),
            watched,
            page.call::<Ack>("Runtime.runIfWaitingForDebugger", NoParams {}),
        );
        if let Err(error) = watched {
            debug!(%error, tab = %self.id, "what the page logs and loads is not watched");
        }
        for result in [focus, prerender] {
            if let Err(error) = result {
                debug!(%error, "a browser without this setting works as well");
            }
        }
        run?;
        self.update(|view| view.ready = true);
        enabled.and(tree)
    }

    /// Follows a frame with its own process.
    async fn join(&self, frame: Session) {
        let joined = async {
            let tree = async {
                let reply: FrameTreeReply = frame.call("Page.getFrameTree", NoParams {}).await?;
                self.update(|view| enter(view, &frame, &reply.frame_tree));
                Ok::<_, CdpError>(())
            };
            // In this order: a change between the two is told by both rather than by none.
            enable(&frame).await?;
            tree.await
        };
        if let Err(error) = joined.await {
            debug!(%error, tab = %self.id, "a frame ended while it was set up");
        }
    }

    /// Lets title and history be asked for, without waiting.
    pub(crate) fn refresh_soon(&self) {
        self.stale.notify_one();
    }

    /// Asks for title and history.
    pub(crate) async fn refresh(&self) {
        let history = self
            .page
            .call::<History>("Page.getNavigationHistory", NoParams {})
            .await;
        match history {
            Ok(history) => self.view.send_if_modified(|view| {
                let entry = history.entries.get(history.current_index);
                let title = entry.map_or("", |entry| &entry.title);
                let back = history.current_index > 0;
                let forward = history.current_index + 1 < history.entries.len();
                let same = view.title == title
                    && view.can_go_back == back
                    && view.can_go_forward == forward;
                title.clone_into(&mut view.title);
                view.can_go_back = back;
                view.can_go_forward = forward;
                !same
            }),
            Err(error) => {
                debug!(%error, tab = %self.id, "title and history are not known");
                false
            }
        };
    }

    /// Asks for frames, title and history.
    async fn resync(&self) -> Result<(), CdpError> {
        let reply: FrameTreeReply = self.page.call("Page.getFrameTree", NoParams {}).await?;
        let frame = &reply.frame_tree.frame;
        self.update(|view| {
            view.url = frame.address();
            view.loader.clone_from(&frame.loader_id);
            view.loaded |= view.loader == view.last_loaded;
            view.unreachable = frame.unreachable_url.is_some();
            enter(view, &self.page, &reply.frame_tree);
        });
        self.refresh().await;
        Ok(())
    }

    async fn resync_logged(&self) {
        if let Err(error) = self.resync().await {
            debug!(%error, tab = %self.id, "the frames are not known");
        }
    }
}

/// Switches the events on that [`Tab::apply`] needs, and the sessions of frames below `session`.
async fn enable(session: &Session) -> Result<(), CdpError> {
    // Nothing is held back until we are ready: with that switch on, Chromium would also hold back the
    // workers that the filter leaves out, for ever. What a frame did before is asked for instead.
    let frames = json!({
        "autoAttach": true,
        "waitForDebuggerOnStart": false,
        "flatten": true,
        "filter": [{ "type": "iframe" }],
    });
    let (page, lifecycle, attach) = tokio::join!(
        session.call::<Ack>("Page.enable", NoParams {}),
        session.call::<Ack>("Page.setLifecycleEventsEnabled", json!({ "enabled": true })),
        session.call::<Ack>("Target.setAutoAttach", frames),
    );
    page?;
    lifecycle?;
    attach?;
    Ok(())
}

/// Enters a frame and those below it that `session` speaks for.
fn enter(view: &mut View, session: &Session, node: &FrameNode) {
    let address = node.frame.address();
    let known = view.frames.get(&node.frame.id);
    let elsewhere =
        known.is_some_and(|known| known.session != *session && !known.session.has_ended());
    if elsewhere && node.frame.parent_id.is_some() {
        return;
    }
    view.frames.seen(
        &node.frame.id,
        node.frame.parent_id.as_deref(),
        session,
        address,
        node.frame.name.clone(),
    );
    for child in &node.child_frames {
        enter(view, session, child);
    }
}
