//! The page as agents see it: elements and the refs that name them.

/// Refs that were given out for a tab's current document.
#[derive(Debug, Default)]
pub(crate) struct RefTable {}

impl RefTable {
    /// Forgets all refs: the tab shows another document.
    pub(crate) fn clear(&self) {}
}
