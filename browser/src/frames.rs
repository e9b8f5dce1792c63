//! The frames of a tab, and which session speaks for each.
//!
//! A frame with the same site as its parent lives in the parent's session. A cross-site or sandboxed
//! frame has a process and a session of its own, whose target id is the frame's id. Frames move between
//! the two kinds when they navigate, and the reports of both sides arrive in either order.

use crate::cdp::Session;

/// Frames that are tracked for one tab; more are left out, since no person or agent could tell them
/// apart, and a page must not decide how much memory we use.
const FRAMES_MAX: usize = 1_000;

/// A frame as operations see it.
#[derive(Clone, Debug)]
pub(crate) struct FrameInfo<S = Session> {
    /// The browser's id of the frame; it survives navigations.
    pub(crate) id: String,
    /// `None` for the main frame.
    pub(crate) parent: Option<String>,
    pub(crate) url: String,
    /// The `name` of its element, often empty.
    pub(crate) name: String,
    /// The session in which the frame's document, nodes and scripts live.
    pub(crate) session: S,
    /// Whether coordinates in `session` start at this frame: the main frame, or one with its own process.
    pub(crate) is_root_of_session: bool,
}

/// The frames of one tab.
#[derive(Clone, Debug)]
pub(crate) struct FrameTree<S = Session> {
    /// In order of appearance; parents before their children. The main frame is never removed.
    frames: Vec<FrameInfo<S>>,
}

impl<S: Clone + PartialEq> FrameTree<S> {
    /// A tree with only the main frame `id`, for which `session` speaks.
    pub(crate) fn new(id: String, session: S) -> Self {
        Self {
            frames: vec![FrameInfo {
                id,
                parent: None,
                url: String::new(),
                name: String::new(),
                session,
                is_root_of_session: true,
            }],
        }
    }

    /// The main frame.
    pub(crate) fn main(&self) -> &FrameInfo<S> {
        &self.frames[0]
    }

    /// The frame `id`.
    pub(crate) fn get(&self, id: &str) -> Option<&FrameInfo<S>> {
        self.frames.iter().find(|frame| frame.id == id)
    }

    /// All frames, each before its children, siblings in order of appearance.
    pub(crate) fn list(&self) -> Vec<FrameInfo<S>> {
        let mut listed = Vec::with_capacity(self.frames.len());
        let mut open = vec![self.main()];
        while let Some(frame) = open.pop() {
            listed.push(frame.clone());
            let children = self.frames.iter().rev();
            open.extend(children.filter(|child| child.parent.as_ref() == Some(&frame.id)));
        }
        listed
    }

    /// `session` reports that the frame `id` exists below `parent`.
    pub(crate) fn attached(&mut self, id: &str, parent: &str, session: &S) {
        self.place(id, Some(parent), session, false);
    }

    /// The frame `id` has a session of its own, seen from the session of its parent.
    pub(crate) fn moved_out(&mut self, id: &str, parent: Option<&str>, url: &str, session: &S) {
        self.forget_children(id);
        if let Some(frame) = self.place(id, parent, session, true)
            && !url.is_empty()
        {
            url.clone_into(&mut frame.url);
        }
    }

    /// `session` shows another document in the frame `id`, whose children are gone with the last one.
    pub(crate) fn navigated(
        &mut self,
        id: &str,
        parent: Option<&str>,
        session: &S,
        url: String,
        name: Option<String>,
    ) {
        self.forget_children(id);
        self.seen(id, parent, session, url, name);
    }

    /// The main frame shows a document that was kept for going back: what `session` knew of its frames is
    /// void and will be asked for, while frames with sessions of their own have reported already.
    pub(crate) fn restored(&mut self, session: &S, url: String) {
        let keep = |frame: &FrameInfo<S>| frame.is_root_of_session || frame.session != *session;
        self.frames.retain(keep);
        self.frames[0].url = url;
        let known: Vec<_> = self.frames.iter().map(|frame| frame.id.clone()).collect();
        let main = known[0].clone();
        for frame in &mut self.frames[1..] {
            if frame
                .parent
                .as_ref()
                .is_none_or(|parent| !known.contains(parent))
            {
                frame.parent = Some(main.clone());
            }
        }
    }

    /// `session` says on request that it shows `url` in the frame `id`. Unlike [`Self::navigated`] this
    /// tells nothing new about the frame's children.
    pub(crate) fn seen(
        &mut self,
        id: &str,
        parent: Option<&str>,
        session: &S,
        url: String,
        name: Option<String>,
    ) {
        let own = self
            .get(id)
            .is_some_and(|frame| frame.is_root_of_session && frame.session == *session);
        if let Some(frame) = self.place(id, parent, session, own) {
            frame.url = url;
            if let Some(name) = name {
                frame.name = name;
            }
        }
    }

    /// The document of the frame `id` changed its address without being replaced.
    pub(crate) fn renamed(&mut self, id: &str, url: String) {
        if let Some(frame) = self.frames.iter_mut().find(|frame| frame.id == id) {
            frame.url = url;
        }
    }

    /// The frame `id` was removed from its parent's document.
    pub(crate) fn removed(&mut self, id: &str) {
        if id != self.main().id {
            self.forget_children(id);
            self.frames.retain(|frame| frame.id != id);
        }
    }

    /// A session ended: the frames that it still spoke for are gone. Those that moved back to their
    /// parent's session before are not.
    pub(crate) fn session_ended(&mut self, session: &S) {
        let lost: Vec<_> = self.frames[1..]
            .iter()
            .filter(|frame| frame.session == *session)
            .map(|frame| frame.id.clone())
            .collect();
        for id in lost {
            self.removed(&id);
        }
    }

    fn place(
        &mut self,
        id: &str,
        parent: Option<&str>,
        session: &S,
        own: bool,
    ) -> Option<&mut FrameInfo<S>> {
        let at = self.frames.iter().position(|frame| frame.id == id);
        if let Some(at) = at {
            let frame = &mut self.frames[at];
            frame.session = session.clone();
            frame.is_root_of_session = own;
            if let Some(parent) = parent.filter(|_| at > 0) {
                frame.parent = Some(parent.to_owned());
            }
            return Some(frame);
        }
        let parent = parent.filter(|parent| self.get(parent).is_some());
        if self.frames.len() >= FRAMES_MAX {
            return None;
        }
        // A frame whose parent is unknown hangs below the main frame rather than being lost.
        let parent = parent.unwrap_or(&self.main().id).to_owned();
        self.frames.push(FrameInfo {
            id: id.to_owned(),
            parent: Some(parent),
            url: String::new(),
            name: String::new(),
            session: session.clone(),
            is_root_of_session: own,
        });
        self.frames.last_mut()
    }

    fn forget_children(&mut self, id: &str) {
        let mut gone = vec![id.to_owned()];
        while let Some(id) = gone.pop() {
            self.frames.retain(|frame| {
                let child = frame.parent.as_deref() == Some(&*id);
                if child {
                    gone.push(frame.id.clone());
                }
                !child
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> FrameTree<u8> {
        let mut tree = FrameTree::new("main".to_owned(), 0);
        tree.attached("a", "main", &0);
        tree.attached("b", "main", &0);
        tree.attached("a1", "a", &0);
        tree
    }

    fn ids(tree: &FrameTree<u8>) -> Vec<String> {
        tree.list().into_iter().map(|frame| frame.id).collect()
    }

    #[test]
    fn listed_in_document_order() {
        assert_eq!(ids(&tree()), ["main", "a", "a1", "b"]);
    }

    #[test]
    fn a_frame_keeps_its_place_whichever_session_reports_first() {
        let mut tree = tree();
        tree.moved_out("a", Some("main"), "http://other/", &1);
        tree.attached("deep", "a", &1);
        assert_eq!(ids(&tree), ["main", "a", "deep", "b"]);
        assert!(tree.get("a").is_some_and(|frame| frame.is_root_of_session));
        // Back to the parent's process: the parent speaks first, then the old session ends.
        tree.navigated("a", Some("main"), &0, "http://main/a".to_owned(), None);
        tree.session_ended(&1);
        assert_eq!(ids(&tree), ["main", "a", "b"]);
        assert!(!tree.get("a").is_some_and(|frame| frame.is_root_of_session));
    }

    #[test]
    fn navigation_inside_an_own_process_keeps_the_session() {
        let mut tree = tree();
        tree.moved_out("a", Some("main"), "", &1);
        tree.navigated(
            "a",
            None,
            &1,
            "http://other/2".to_owned(),
            Some("n".to_owned()),
        );
        let frame = tree.get("a").unwrap();
        assert!(frame.is_root_of_session && frame.parent.as_deref() == Some("main"));
    }

    #[test]
    fn going_back_keeps_the_frames_that_came_back_first() {
        let mut tree = tree();
        tree.moved_out("a1", Some("a"), "http://other/", &1);
        tree.restored(&0, "http://main/".to_owned());
        assert_eq!(ids(&tree), ["main", "a1"]);
        tree.attached("a", "main", &0);
        tree.attached("a1", "a", &1);
        assert_eq!(
            tree.get("a1").and_then(|frame| frame.parent.as_deref()),
            Some("a")
        );
    }

    #[test]
    fn the_end_of_a_document_takes_its_frames_along() {
        let mut tree = tree();
        tree.navigated("main", None, &0, "http://x/".to_owned(), None);
        assert_eq!(ids(&tree), ["main"]);
        tree.removed("main");
        assert_eq!(ids(&tree), ["main"]);
    }
}
