//! The two sides of one stream: what it sends within the peer's credit, and what it grants the peer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::budget::{Budget, LEAST_WINDOW};
use super::schedule::{FRESH_BYTES, Turn};

/// Ceiling of a stream's window: 8 MiB carry 80 MB/s at a round trip of 100 ms.
pub const WINDOW_MAX: u32 = 8 * 1024 * 1024;

/// A stream silent for this long starts again from its first window.
const WINDOW_IDLE: Duration = Duration::from_secs(30);

/// A window that is consumed within this many of the path's round trips bounds the stream's rate and may grow. Queues
/// do not count: where they are what takes the time, a larger window makes them longer and nothing faster.
const GROWTH_ROUND_TRIPS: u32 = 2;

/// One open stream of a lane.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendSide,
    pub(super) receive: ReceiveSide,
    pub(super) turn: Turn,
    /// Whether the verdict on the stream has passed: `OPENED` was sent or received.
    pub(super) accepted: bool,
}

impl Stream {
    /// Whether both halves said `END` on the wire.
    pub(super) fn is_over(&self) -> bool {
        self.send.end == End::Sent && self.receive.ended
    }
}

/// How far the sending side is with its `END`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Open,
    /// To be sent behind what is queued.
    Wanted,
    Sent,
}

/// What a stream has to send.
#[derive(Debug)]
pub(super) struct SendSide {
    pub(super) queue: VecDeque<Bytes>,
    /// Bytes in `queue`.
    pub(super) queued: usize,
    /// Bytes granted by the peer beyond those queued.
    pub(super) credit: u32,
    pub(super) end: End,
    pub(super) rate: Rate,
}

/// Tells a stream that moves bulk from one that says little: a bulk stream's queue is short now and then
/// too.
#[derive(Debug, Default)]
pub(super) struct Rate {
    since: Duration,
    bytes: usize,
}

/// Over this long a rate is measured.
const RATE_INTERVAL: Duration = Duration::from_millis(100);

impl Rate {
    /// Counts `bytes` about to be sent. Returns whether the stream moves bulk.
    pub(super) fn note(&mut self, bytes: usize, now: Duration) -> bool {
        if now.saturating_sub(self.since) >= RATE_INTERVAL {
            *self = Self {
                since: now,
                bytes: 0,
            };
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes > FRESH_BYTES
    }
}

impl SendSide {
    pub(super) fn new(credit: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            credit,
            end: End::Open,
            rate: Rate::default(),
        }
    }

    /// Whether a frame could be made now.
    pub(super) fn is_ready(&self) -> bool {
        self.queued > 0 || self.end == End::Wanted
    }

    /// Takes `limit` bytes off the queue, piece by piece. The caller asks for no more than is queued.
    pub(super) fn take(&mut self, mut limit: usize, mut each: impl FnMut(Bytes)) {
        while limit > 0
            && let Some(front) = self.queue.front_mut()
        {
            let piece = if front.len() <= limit {
                self.queue.pop_front().unwrap_or_default()
            } else {
                front.split_to(limit)
            };
            limit -= piece.len();
            self.queued -= piece.len();
            each(piece);
        }
        if self.queue.is_empty() {
            // An idle stream keeps no list.
            self.queue = VecDeque::new();
        }
    }
}

/// What a stream takes from the peer.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    /// What credit and buffered bytes may sum up to.
    pub(super) window: u32,
    /// The window to fall back to.
    first_window: u32,
    /// Bytes that the peer may still send.
    pub(super) credit: u32,
    /// Bytes that arrived and are not consumed.
    pub(super) buffered: usize,
    pub(super) ended: bool,
    /// Whether a `CREDIT` is to be made for the next batch.
    pub(super) grant_queued: bool,
    /// When the current measurement of the rate began, and what was consumed since.
    epoch: Duration,
    epoch_bytes: usize,
    last_data: Duration,
}

impl ReceiveSide {
    /// A side that promises `window` bytes, of which the peer was granted `credit`.
    pub(super) fn new(window: u32, credit: u32, now: Duration, budget: &Budget) -> Self {
        budget.promise(window);
        Self {
            window,
            first_window: window,
            credit,
            buffered: 0,
            ended: false,
            grant_queued: false,
            epoch: now,
            epoch_bytes: 0,
            last_data: now,
        }
    }

    /// Counts an announced payload against the credit. Returns whether it was granted.
    pub(super) fn announce(&mut self, length: u32, now: Duration, budget: &Budget) -> bool {
        let Some(left) = self.credit.checked_sub(length) else {
            return false;
        };
        self.credit = left;
        if now.saturating_sub(self.last_data) >= WINDOW_IDLE {
            budget.withdraw(self.window - self.first_window);
            self.window = self.first_window;
        }
        self.last_data = now;
        true
    }

    /// Counts `bytes` as consumed and lets the window grow where it was the bound.
    pub(super) fn consume(
        &mut self,
        bytes: usize,
        now: Duration,
        round_trip: Option<Duration>,
        budget: &Budget,
    ) {
        self.buffered = self.buffered.saturating_sub(bytes);
        if budget.is_over() {
            // What is consumed is not promised again, down to the least.
            let least = LEAST_WINDOW.min(self.window);
            let cut = u32::try_from(bytes).unwrap_or(u32::MAX);
            let cut = cut.min(self.window - least);
            budget.withdraw(cut);
            self.window -= cut;
            self.first_window = self.first_window.min(self.window);
        }
        self.epoch_bytes = self.epoch_bytes.saturating_add(bytes);
        let window = usize::try_from(self.window).unwrap_or(usize::MAX);
        if self.epoch_bytes < window {
            return;
        }
        let took = now.saturating_sub(self.epoch);
        let bounded = round_trip.is_some_and(|rtt| took <= rtt.saturating_mul(GROWTH_ROUND_TRIPS));
        let growth = self.window.min(WINDOW_MAX.saturating_sub(self.window));
        if bounded && budget.may_grow(growth) {
            budget.promise(growth);
            self.window += growth;
        }
        self.epoch = now;
        self.epoch_bytes = 0;
    }

    /// The stream is gone, and its promise with it.
    pub(super) fn withdraw(&self, budget: &Budget) {
        budget.withdraw(self.window);
    }

    /// Bytes that may be granted on top of what the peer has.
    fn grantable(&self) -> u32 {
        if self.ended {
            return 0;
        }
        let buffered = u32::try_from(self.buffered).unwrap_or(u32::MAX);
        self.window
            .saturating_sub(self.credit)
            .saturating_sub(buffered)
    }

    /// Whether enough may be granted to be worth a frame: a quarter of the window, so that a sender
    /// always has credit on the way and a bulk stream costs one `CREDIT` in many frames.
    pub(super) fn is_grant_due(&self) -> bool {
        let grantable = self.grantable();
        grantable > 0 && grantable >= self.window / 4
    }

    /// Grants all that may be granted; 0 when that is nothing any more.
    pub(super) fn take_grant(&mut self) -> u32 {
        let grantable = self.grantable();
        self.credit += grantable;
        grantable
    }
}
