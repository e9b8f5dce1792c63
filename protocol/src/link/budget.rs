//! The bytes that all links of one half may hold queued. Shared counters, not an allocator: whoever queues charges
//! them, whoever drains releases them, and flow control looks at them before it promises more.
//!
//! A window is a promise: once granted it may be filled at any moment, by a thousand streams at once, and cannot be taken
//! back. So windows count as well, from the moment a stream has one, and new ones become smaller as the promises grow.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The least that a new stream is promised, however many there are: an answer of an ordinary size still comes at once.
pub const LEAST_WINDOW: u32 = 16 * 1024;

/// A new stream is promised at most this part of what is left: 32 streams of the desktop half get a whole mebibyte, and
/// some hundreds more than the least.
const FIRST_SHARE: usize = 32;

/// A window grows by at most this part of what is left, so that one bulk stream does not take what new ones need.
const GROWTH_SHARE: usize = 8;

/// Counts the bytes queued over all streams of all links of a half, and those promised, against a limit.
///
/// What is queued stays below the limit and [`LEAST_WINDOW`] (or what the greeting announces, on streams that the peer
/// opens) for each further stream once all is promised.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    promised: AtomicUsize,
    limit: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
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

    /// Bytes that the peers may send, or sent and nobody consumed: the sum of all windows.
    pub fn promised(&self) -> usize {
        self.promised.load(Ordering::Relaxed)
    }

    /// Counts a window, or its growth, as promised.
    pub fn promise(&self, bytes: u32) {
        self.promised.fetch_add(bytes as usize, Ordering::Relaxed);
    }

    /// Takes a promise back: its stream is over, or its window smaller.
    pub fn withdraw(&self, bytes: u32) {
        let before = self.promised.fetch_sub(bytes as usize, Ordering::Relaxed);
        debug_assert!(before >= bytes as usize, "withdrew more than was promised");
    }

    /// What is neither queued nor promised. What arrived is both and counts once.
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.used().max(self.promised()))
    }

    /// The window of a new stream that is to have `wanted` bytes.
    pub fn first_window(&self, wanted: u32) -> u32 {
        let share = u32::try_from(self.left() / FIRST_SHARE).unwrap_or(u32::MAX);
        wanted.min(share.max(LEAST_WINDOW))
    }

    /// Whether a window may grow by `bytes`.
    pub fn may_grow(&self, bytes: u32) -> bool {
        bytes as usize <= self.left() / GROWTH_SHARE
    }

    /// Whether no more may be granted or queued.
    pub fn is_over(&self) -> bool {
        self.used() >= self.limit
    }
}
