//! Connections to targets, and those of them that wait for another request.
//!
//! A client connection keeps the connection to its target for its next request; the pool takes over
//! when the client connection ends or turns to another target. Connections are never
//! shared between sessions.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncRead;
use tokio::time::Instant;
use yonder_protocol::Target;

use crate::buffer::Buffer;
use crate::credential::Session;
use crate::limits::{POOL_IDLE, POOL_PER_TARGET, POOL_TOTAL};

/// A connection to a target.
#[derive(Debug)]
pub(crate) struct Upstream<S> {
    pub(crate) stream: S,
    /// Read from the target and not passed on yet.
    pub(crate) input: Buffer,
    /// Who may use it.
    pub(crate) session: Arc<Session>,
    /// Where it leads.
    pub(crate) target: Target,
    /// It has carried a complete exchange.
    pub(crate) reused: bool,
    /// It carries a client's identity at the target and must stay with that client.
    pub(crate) bound: bool,
    /// When its last exchange ended.
    pub(crate) used: Instant,
}

impl<S: AsyncRead + Unpin> Upstream<S> {
    /// A connection just dialled.
    pub(crate) fn new(stream: S, session: Arc<Session>, target: Target) -> Self {
        Self {
            stream,
            input: Buffer::default(),
            session,
            target,
            reused: false,
            bound: false,
            used: Instant::now(),
        }
    }

    /// Ready when an idle connection is of no more use: the target closed it or sent something unasked.
    pub(crate) fn poll_stale(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.input.poll_fill(cx, &mut self.stream).map(drop)
    }

    /// Whether it serves requests of `session` to `target`.
    pub(crate) fn serves(&self, session: &Arc<Session>, target: &Target) -> bool {
        Arc::ptr_eq(&self.session, session) && self.target == *target
    }
}

/// Idle connections, the one used last at the back.
#[derive(Debug)]
pub(crate) struct Pool<S>(Mutex<VecDeque<Upstream<S>>>);

impl<S: AsyncRead + Unpin> Pool<S> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Keeps `upstream` for another request. When too many are idle, the one idle longest is closed.
    pub(crate) fn put(&self, upstream: Upstream<S>) {
        if upstream.bound || !upstream.reused || upstream.session.removed.is_cancelled() {
            return;
        }
        let mut evicted = Vec::new();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut same = 0;
        let mut oldest_same = None;
        for (at, other) in idle.iter().enumerate() {
            if other.serves(&upstream.session, &upstream.target) {
                same += 1;
                oldest_same = oldest_same.or(Some(at));
            }
        }
        if same >= POOL_PER_TARGET {
            evicted.extend(oldest_same.and_then(|at| idle.remove(at)));
        } else if idle.len() >= POOL_TOTAL {
            evicted.extend(idle.pop_front());
        }
        idle.push_back(upstream);
        // Streams are dropped outside the lock: what that takes is not known here.
        drop(idle);
        drop(evicted);
    }

    /// A connection of `session` to `target` that was in use after `since` and is still open.
    pub(crate) async fn take(
        &self,
        session: &Arc<Session>,
        target: &Target,
        since: Option<Instant>,
    ) -> Option<Upstream<S>> {
        loop {
            let mut upstream = self.pop(session, target, since)?;
            let stale = poll_fn(|cx| Poll::Ready(upstream.poll_stale(cx).is_ready())).await;
            if !stale {
                return Some(upstream);
            }
        }
    }

    fn pop(
        &self,
        session: &Arc<Session>,
        target: &Target,
        since: Option<Instant>,
    ) -> Option<Upstream<S>> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle
            .iter()
            .rposition(|upstream| upstream.serves(session, target))?;
        if since.is_some_and(|since| idle[at].used < since) {
            return None;
        }
        idle.remove(at)
    }

    /// Closes connections that were idle too long, that their target closed, or whose session is gone.
    pub(crate) fn sweep(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut closed = Vec::new();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut upstream in std::mem::take(&mut *idle) {
            let keep = upstream.used.elapsed() < POOL_IDLE
                && !upstream.session.removed.is_cancelled()
                && upstream.poll_stale(&mut cx).is_pending();
            if keep {
                idle.push_back(upstream);
            } else {
                closed.push(upstream);
            }
        }
        drop(idle);
        drop(closed);
    }
}
