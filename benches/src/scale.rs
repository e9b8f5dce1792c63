//! How long a run measures.

use std::time::Duration;

/// Lengths and counts of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Time for every figure that is watched over time.
    pub(crate) length: Duration,
    /// Whether to be content with fewer samples.
    pub(crate) quick: bool,
}

impl Scale {
    /// Time before bulk is watched: windows have grown and buffers are warm by then.
    pub(crate) fn warm(self) -> Duration {
        (self.length / 4).min(Duration::from_millis(500))
    }

    /// `full` samples, or a quarter of them in a quick run.
    pub(crate) fn count(self, full: usize) -> usize {
        if self.quick { full / 4 } else { full }
    }
}
