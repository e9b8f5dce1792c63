//! After an action: lets the page finish what the action started, without a fixed pause.

use std::time::Duration;

use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::page::world::World;
use crate::tab::{Tab, View};

/// How long an action waits for a navigation that it started. The answer then says `loading`.
const LOAD_LIMIT: Duration = Duration::from_secs(10);

/// How long a page may take to run the tasks that an action queued. A busy page is not waited for.
const TICK_LIMIT: Duration = Duration::from_secs(2);

/// What the tab had done before an action.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    starts: u64,
    commits: u64,
}

impl Before {
    pub(super) fn now(tab: &Tab) -> Self {
        let view = tab.view();
        let view = view.borrow();
        Self {
            starts: view.starts,
            commits: view.commits,
        }
    }

    fn changed(self, view: &View) -> bool {
        view.starts != self.starts || view.commits != self.commits
    }

    /// Waits until the main frame has loaded, if it began to load something since.
    pub(super) async fn settled(self, tab: &Tab) {
        tab.caught_up().await;
        let mut view = tab.view();
        if !self.changed(&view.borrow_and_update()) {
            return;
        }
        let loaded = view.wait_for(|view| !view.loading || view.dialog.is_some() || view.crashed);
        // After the limit, and when the tab is closed, the answer tells the state as it is.
        let _ = timeout(LOAD_LIMIT, loaded).await;
    }

    /// Gives the main frame a turn for the tasks that an action queued, such as sending a form, then as
    /// [`Self::settled`].
    pub(super) async fn ticked(self, tab: &Tab) {
        let tick = async {
            let world = World::of(tab.refs(), &tab.frame(None).ok()?).await.ok()?;
            world.call::<IgnoredAny>(TICK_LIMIT, "tick", ()).await.ok()
        };
        tokio::select! {
            // The page is being left or busy, or a dialog holds it: there is no turn to wait for.
            _ = timeout(TICK_LIMIT, tick) => {}
            _ = tab.dialog_opened() => return,
        }
        self.settled(tab).await;
        tokio::select! {
            // What was done may have changed the title.
            () = tab.refresh() => {}
            _ = tab.dialog_opened() => {}
        }
    }
}
