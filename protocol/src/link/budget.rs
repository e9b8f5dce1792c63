//! The bytes that all links of one half may hold queued. A shared counter, not an allocator: whoever
//! queues charges it, whoever drains releases it, and flow control looks at it before it grants more.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes queued over all streams of all links of a half against a limit.
///
/// Credit already granted may still arrive while the budget is over, so `used` can pass the limit by
/// what was granted before; nothing new is granted until it falls below again.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    /// Counts `bytes` as queued.
    pub fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` as drained.
    pub fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "released more than was charged");
    }

    /// Bytes queued now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes allowed.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether no more may be granted or queued.
    pub fn is_over(&self) -> bool {
        self.used() >= self.limit
    }

    /// Whether windows must stop growing.
    pub fn is_tight(&self) -> bool {
        self.used() >= self.limit / 2
    }
}
