//! What the handles of a link share with its driver: the queue of streams that want something, the request to
//! close, the phase and the figures. Nothing in here is locked across tunnels on the data path.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use crossbeam_queue::SegQueue;
use tokio::sync::watch;
use yonder_protocol::TunnelError;
use yonder_protocol::link::{Budget, CloseCode, LaneStats, LinkId};

use crate::link::{CloseReason, LinkPhase};
use crate::stream::shared::Shared;

pub(crate) struct Hub {
    pub(crate) id: LinkId,
    /// Bytes that a stream may send before the peer grants more.
    pub(crate) peer_window: u32,
    /// Bytes that the peer may send before it is granted more.
    pub(crate) window: u32,
    budget: Arc<Budget>,
    /// Each stream is in here at most once, so its length is bounded by the number of handles.
    ready: SegQueue<Arc<Shared>>,
    waker: AtomicWaker,
    close: Mutex<Option<(CloseCode, String)>>,
    closed: OnceLock<CloseReason>,
    phase: watch::Sender<LinkPhase>,
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

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }
}

impl Hub {
    pub(crate) fn new(
        id: LinkId,
        window: u32,
        peer_window: u32,
        budget: Arc<Budget>,
        phase: LinkPhase,
    ) -> Self {
        Self {
            id,
            peer_window,
            window,
            budget,
            ready: SegQueue::new(),
            waker: AtomicWaker::new(),
            close: Mutex::new(None),
            closed: OnceLock::new(),
            phase: watch::Sender::new(phase),
            figures: Figures::default(),
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Consumed bytes of a stream after which the driver is told: what the lane grants at a time.
    pub(crate) fn report_step(&self) -> usize {
        self.window as usize / 4
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
