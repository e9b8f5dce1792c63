//! What the handles of a link share with the driver of one of its lanes: the queue of streams that want something, the request to
//! close, the phase and the figures. Nothing in here is locked across tunnels on the data path.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use crossbeam_queue::SegQueue;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use yonder_protocol::TunnelError;
use yonder_protocol::link::{Budget, CloseCode, LaneStats, LinkId};

use crate::link::{CloseReason, LinkPhase};
use crate::stream::shared::Shared;

/// Bytes waiting to be sent above which a lane counts as busy.
const BUSY_QUEUED: usize = 128 * 1024;

/// Bytes moved within [`LOAD_INTERVAL`] above which a lane counts as busy: 2 MiB/s.
const BUSY_BYTES: u64 = 512 * 1024;

/// Over this long a lane's rate is measured.
pub(crate) const LOAD_INTERVAL: Duration = Duration::from_millis(250);

/// How long a lane counts as busy after it was last seen to be.
const BUSY_MEMORY: Duration = Duration::from_secs(1);

/// A lane without a stream for this long is unused.
const UNUSED_AFTER: Duration = Duration::from_mins(1);

pub(crate) struct Hub {
    pub(crate) id: LinkId,
    /// Bytes that a stream may send before the peer grants more.
    pub(crate) peer_window: u32,
    budget: Arc<Budget>,
    /// Each stream is in here at most once, so its length is bounded by the number of handles.
    ready: SegQueue<Arc<Shared>>,
    waker: AtomicWaker,
    close: Mutex<Option<(CloseCode, String)>>,
    closed: OnceLock<CloseReason>,
    phase: watch::Sender<LinkPhase>,
    start: Instant,
    /// Microseconds after `start` until which the lane carries bulk.
    busy_until: AtomicU64,
    /// Microseconds after `start` at which the lane last had a stream.
    used_at: AtomicU64,
    /// Told when the lane becomes busy; shared by the lanes of the link.
    crowded: Arc<Notify>,
    pub(crate) figures: Figures,
}

/// Figures that the driver writes and `status` reads.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) streams: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Microseconds; 0 when not measured.
    round_trip: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) opened: AtomicU64,
}

impl Figures {
    pub(crate) fn update(&self, stats: &LaneStats) {
        self.streams.store(stats.streams as u64, Ordering::Relaxed);
        self.queued
            .store((stats.queued + stats.buffered) as u64, Ordering::Relaxed);
        self.bytes_in.store(stats.received, Ordering::Relaxed);
        self.bytes_out.store(stats.sent, Ordering::Relaxed);
        let micros = stats
            .round_trip
            .map_or(0, |rtt| rtt.as_micros().clamp(1, u128::from(u32::MAX)));
        self.round_trip
            .store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Adds what a lane that is over had moved.
    pub(crate) fn take_over(&self, gone: &Self) {
        for (sum, figure) in [
            (&self.bytes_in, &gone.bytes_in),
            (&self.bytes_out, &gone.bytes_out),
            (&self.reconnects, &gone.reconnects),
            (&self.opened, &gone.opened),
        ] {
            sum.fetch_add(figure.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }
}

impl Hub {
    pub(crate) fn new(
        id: LinkId,
        peer_window: u32,
        budget: Arc<Budget>,
        phase: LinkPhase,
        crowded: Arc<Notify>,
    ) -> Self {
        Self {
            id,
            peer_window,
            budget,
            ready: SegQueue::new(),
            waker: AtomicWaker::new(),
            close: Mutex::new(None),
            closed: OnceLock::new(),
            phase: watch::Sender::new(phase),
            start: Instant::now(),
            busy_until: AtomicU64::new(0),
            used_at: AtomicU64::new(0),
            crowded,
            figures: Figures::default(),
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn push_ready(&self, stream: Arc<Shared>) {
        self.ready.push(stream);
        self.waker.wake();
    }

    pub(crate) fn pop_ready(&self) -> Option<Arc<Shared>> {
        self.ready.pop()
    }

    /// Fails all that is queued when nobody will serve it any more. It also breaks the circle of hub and stream.
    pub(crate) fn fail_ready(&self, error: &TunnelError) {
        while let Some(stream) = self.ready.pop() {
            stream.fail(error);
        }
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Asks the driver to close the link; the first request counts.
    pub(crate) fn request_close(&self, code: CloseCode, text: String) {
        let mut close = self.close.lock().unwrap_or_else(PoisonError::into_inner);
        close.get_or_insert((code, text));
        drop(close);
        self.waker.wake();
    }

    pub(crate) fn close_request(&self) -> Option<(CloseCode, String)> {
        self.close
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The link is over. Called once, by the driver.
    pub(crate) fn set_closed(&self, reason: CloseReason) {
        let reason = self.closed.get_or_init(|| reason).clone();
        self.phase.send_replace(LinkPhase::Closed(reason));
    }

    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        self.closed.get()
    }

    /// What streams of a closed link fail with.
    pub(crate) fn closed_error(&self) -> Option<TunnelError> {
        self.closed.get().map(CloseReason::to_error)
    }

    pub(crate) fn set_phase(&self, phase: LinkPhase) {
        self.phase.send_replace(phase);
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.phase.borrow(), LinkPhase::Up { .. })
    }

    /// Told when a lane of the link becomes busy.
    pub(crate) fn crowded(&self) -> Arc<Notify> {
        Arc::clone(&self.crowded)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Called by the driver with the lane's figures and, once per [`LOAD_INTERVAL`], the bytes moved in it.
    pub(crate) fn note_load(&self, stats: &LaneStats, moved: u64) {
        self.figures.update(stats);
        let busy = stats.queued > BUSY_QUEUED || moved > BUSY_BYTES;
        if !busy && stats.streams == 0 {
            return;
        }
        let now = self.now();
        self.used_at.store(now, Ordering::Relaxed);
        if busy {
            let until = now.saturating_add(u64::try_from(BUSY_MEMORY.as_micros()).unwrap_or(0));
            let before = self.busy_until.swap(until, Ordering::Relaxed);
            if before <= now {
                self.crowded.notify_one();
            }
        }
    }

    /// Whether the lane carries bulk.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_until.load(Ordering::Relaxed) > self.now()
    }

    /// Whether the lane had no stream for a while.
    pub(crate) fn is_unused(&self) -> bool {
        let unused = self
            .now()
            .saturating_sub(self.used_at.load(Ordering::Relaxed));
        self.figures.streams.load(Ordering::Relaxed) == 0
            && u128::from(unused) > UNUSED_AFTER.as_micros()
    }

    /// Counts a stream before the driver does.
    pub(crate) fn count_open(&self) {
        self.used_at.store(self.now(), Ordering::Relaxed);
        self.figures.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Orders the lanes of a link for a new stream, the best one first.
    pub(crate) fn rank(&self) -> (bool, bool, u64, u64) {
        let queued = self.figures.queued.load(Ordering::Relaxed);
        let streams = self.figures.streams.load(Ordering::Relaxed);
        let busy = self.is_busy();
        (!self.is_up(), busy, if busy { queued } else { 0 }, streams)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<LinkPhase> {
        self.phase.subscribe()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("id", &self.id)
            .field("phase", &*self.phase.borrow())
            .finish_non_exhaustive()
    }
}
