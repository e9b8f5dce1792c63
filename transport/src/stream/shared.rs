//! What a stream's handle and the link's driver share: two queues, two wakers, and requests.
//!
//! The handle changes the state under its lock and puts the stream into the hub's lock-free queue, at most
//! once; the driver takes it from there. Nothing is awaited and no other lock is taken while one is held.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use yonder_protocol::TunnelError;
use yonder_protocol::link::{Open, StreamId};

use crate::hub::Hub;
use crate::relay::LocalSocket;

/// Bytes that one stream's writer may be ahead of the carrier: a batch on its way and the next one.
const WRITE_AHEAD_BYTES: usize = 512 * 1024;

/// The same while the half's memory budget is over.
const WRITE_AHEAD_TIGHT_BYTES: usize = 16 * 1024;

/// State of one stream between its handle and the driver.
pub(crate) struct Shared {
    hub: Arc<Hub>,
    state: Mutex<State>,
    /// Whether the stream is in the hub's queue.
    queued: AtomicBool,
    /// Consumed bytes after which the driver is told.
    report_step: AtomicUsize,
}

#[derive(Default)]
struct State {
    requests: Requests,
    /// Bytes that the peer granted beyond those accepted.
    allowance: usize,
    /// Bytes accepted and not yet handed out for a carrier.
    unsent: usize,
    shut_down: bool,
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    /// What arrives may go straight to this while a reader waits.
    direct: Option<Arc<LocalSocket>>,
    peer_ended: bool,
    verdict: Option<String>,
    failure: Option<TunnelError>,
    detached: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    opener: Option<Waker>,
}

/// What the handle wants of the driver; taken as a whole.
#[derive(Default)]
pub(crate) struct Requests {
    /// The stream's id, once it has one.
    pub(crate) id: Option<StreamId>,
    /// To be opened with this.
    pub(crate) open: Option<Open>,
    /// To be accepted with these words.
    pub(crate) accept: Option<String>,
    /// To be sent.
    pub(crate) data: VecDeque<Bytes>,
    /// Whether the end is to follow.
    pub(crate) end: bool,
    /// Bytes consumed since the last time.
    pub(crate) consumed: usize,
    /// To be reset for this reason.
    pub(crate) reset: Option<TunnelError>,
}

impl Shared {
    /// A stream to be opened, whose writer may send `allowance` bytes before the peer says anything. The caller
    /// queues it.
    pub(crate) fn opening(hub: Arc<Hub>, open: Open, allowance: usize) -> Arc<Self> {
        let mut state = State {
            allowance,
            ..State::default()
        };
        state.requests.open = Some(open);
        Self::with(hub, state)
    }

    /// A stream that the peer opened.
    pub(crate) fn incoming(hub: Arc<Hub>, id: StreamId, allowance: usize) -> Arc<Self> {
        let mut state = State {
            allowance,
            verdict: Some(String::new()),
            ..State::default()
        };
        state.requests.id = Some(id);
        Self::with(hub, state)
    }

    fn with(hub: Arc<Hub>, state: State) -> Arc<Self> {
        Arc::new(Self {
            hub,
            state: Mutex::new(state),
            queued: AtomicBool::new(false),
            report_step: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete when a guard is dropped, even by a panic of a waker.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The handle's side.

    /// Puts the stream before the driver.
    pub(crate) fn notify(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.hub.push_ready(Arc::clone(self));
        }
        // The driver may have ended before it saw this; then nobody else tells the handles.
        if let Some(error) = self.hub.closed_error() {
            self.fail(&error);
            self.hub.fail_ready(&error);
        }
    }

    pub(super) fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<Result<String, TunnelError>> {
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(text) = &state.verdict {
            Poll::Ready(Ok(text.clone()))
        } else {
            register(&mut state.opener, cx);
            Poll::Pending
        }
    }

    /// Shares its waker with [`Self::poll_opened`]: one handle waits for one of them at a time.
    pub(super) fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<TunnelError> {
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            Poll::Ready(error.clone())
        } else {
            register(&mut state.opener, cx);
            Poll::Pending
        }
    }

    pub(super) fn accept(self: &Arc<Self>, text: String) {
        self.lock().requests.accept = Some(text);
        self.notify();
    }

    pub(super) fn reset(self: &Arc<Self>, error: &TunnelError) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.requests.reset = Some(error.clone());
            drop(state);
            self.fail(error);
            self.notify();
        }
    }

    pub(super) fn write_directly_to(&self, socket: Arc<LocalSocket>) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.direct = Some(socket);
        }
    }

    /// Counts `held` earlier bytes as consumed and takes the next ones.
    pub(super) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        held: usize,
    ) -> Poll<io::Result<Option<Bytes>>> {
        self.hub.budget().release(held);
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            return Poll::Ready(Err(error.clone().into()));
        }
        state.requests.consumed += held;
        let bytes = state.arrived.pop_front();
        if let Some(bytes) = &bytes {
            state.arrived_bytes -= bytes.len();
        } else {
            // An idle stream keeps no list.
            state.arrived = VecDeque::new();
        }
        let drained = bytes.is_none() && state.peer_ended;
        let report = state.requests.consumed >= self.report_step.load(Ordering::Relaxed)
            || (drained && state.requests.consumed > 0);
        if bytes.is_none() && !drained {
            register(&mut state.reader, cx);
        }
        drop(state);
        if report {
            self.notify();
        }
        match bytes {
            Some(bytes) => Poll::Ready(Ok(Some(bytes))),
            None if drained => Poll::Ready(Ok(None)),
            None => Poll::Pending,
        }
    }

    /// Accepts up to `length` bytes, which `take` produces.
    pub(super) fn poll_write(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        length: usize,
        take: impl FnOnce(usize) -> Bytes,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if let Some(error) = &state.failure {
            return Poll::Ready(Err(error.clone().into()));
        }
        if state.shut_down {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        let ahead = if self.hub.budget().is_over() {
            WRITE_AHEAD_TIGHT_BYTES
        } else {
            WRITE_AHEAD_BYTES
        };
        let taken = length
            .min(state.allowance)
            .min(ahead.saturating_sub(state.unsent));
        if taken == 0 {
            register(&mut state.writer, cx);
            return Poll::Pending;
        }
        state.allowance -= taken;
        state.unsent += taken;
        self.hub.budget().charge(taken);
        state.requests.data.push_back(take(taken));
        drop(state);
        self.notify();
        Poll::Ready(Ok(taken))
    }

    pub(super) fn shutdown(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.shut_down {
            return Ok(());
        }
        if let Some(error) = &state.failure {
            return Err(error.clone().into());
        }
        state.shut_down = true;
        state.requests.end = true;
        drop(state);
        self.notify();
        Ok(())
    }

    /// The handle is dropped; it held `held` bytes.
    pub(super) fn detach(self: &Arc<Self>, held: usize) {
        let mut state = self.lock();
        state.detached = true;
        self.hub.budget().release(held + state.arrived_bytes);
        state.arrived_bytes = 0;
        state.arrived = VecDeque::new();
        state.direct = None;
        if state.failure.is_some() {
            return;
        }
        // The driver's account of what is unread takes no more than there is.
        state.requests.consumed = usize::MAX;
        if !(state.shut_down && state.peer_ended) {
            state.requests.reset = Some(super::cancelled());
        }
        drop(state);
        self.notify();
    }

    // The driver's side.

    /// Takes what the handle wants; the stream may be queued again from here on.
    pub(crate) fn take_requests(&self) -> Requests {
        self.queued.store(false, Ordering::Release);
        let mut state = self.lock();
        let id = state.requests.id;
        std::mem::replace(
            &mut state.requests,
            Requests {
                id,
                ..Requests::default()
            },
        )
    }

    pub(crate) fn set_id(&self, id: StreamId) {
        self.lock().requests.id = Some(id);
    }

    /// The stream's window: the driver is told of what is consumed a quarter of it at a time, as it is granted again.
    pub(crate) fn set_window(&self, window: u32) {
        let step = window as usize / 4;
        self.report_step.store(step, Ordering::Relaxed);
    }

    pub(crate) fn on_opened(&self, text: String) {
        let mut state = self.lock();
        state.verdict = Some(text);
        let waker = state.opener.take();
        drop(state);
        wake(waker);
    }

    /// Takes bytes that arrived. Returns how many of them are consumed already.
    pub(crate) fn on_data(&self, mut bytes: Bytes) -> usize {
        let mut state = self.lock();
        if state.detached || state.failure.is_some() {
            return 0;
        }
        let mut consumed = 0;
        // A reader waits only when it has nothing in hand, so these bytes are the next ones.
        if let Some(socket) = &state.direct
            && state.reader.is_some()
            && state.arrived.is_empty()
        {
            // A failure is the relay's to meet, with its own write of the same bytes.
            consumed = socket.try_write(&bytes).unwrap_or(0);
            if consumed == bytes.len() {
                return consumed;
            }
            bytes.advance(consumed);
        }
        self.hub.budget().charge(bytes.len());
        state.arrived_bytes += bytes.len();
        state.arrived.push_back(bytes);
        let waker = state.reader.take();
        drop(state);
        wake(waker);
        consumed
    }

    pub(crate) fn on_end(&self) {
        let mut state = self.lock();
        state.peer_ended = true;
        let waker = state.reader.take();
        drop(state);
        wake(waker);
    }

    pub(crate) fn on_writable(&self, bytes: usize) {
        let mut state = self.lock();
        state.allowance += bytes;
        let waker = state.writer.take();
        drop(state);
        wake(waker);
    }

    pub(crate) fn on_sent(&self, bytes: usize) {
        let mut state = self.lock();
        let bytes = bytes.min(state.unsent);
        state.unsent -= bytes;
        self.hub.budget().release(bytes);
        // A writer that waits is woken when it can hand over a good portion.
        let waker = if state.allowance > 0 && state.unsent <= WRITE_AHEAD_BYTES / 2 {
            state.writer.take()
        } else {
            None
        };
        drop(state);
        wake(waker);
    }

    /// Ends the stream for its handle, which sees `error`, and discards what is queued. A stream that is over both
    /// ways and merely unread stays readable.
    pub(crate) fn fail(&self, error: &TunnelError) {
        let mut state = self.lock();
        self.hub.budget().release(state.unsent);
        let delivered = state.unsent == 0 && state.shut_down && state.peer_ended;
        state.unsent = 0;
        state.requests.data = VecDeque::new();
        if state.failure.is_some() || delivered {
            return;
        }
        self.hub.budget().release(state.arrived_bytes);
        state.arrived_bytes = 0;
        state.arrived = VecDeque::new();
        state.direct = None;
        state.failure = Some(error.clone());
        let wakers = [
            state.reader.take(),
            state.writer.take(),
            state.opener.take(),
        ];
        drop(state);
        wakers.into_iter().for_each(wake);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Shared")
            .field("id", &state.requests.id)
            .field("unsent", &state.unsent)
            .field("arrived", &state.arrived_bytes)
            .field("failure", &state.failure)
            .finish_non_exhaustive()
    }
}

fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
