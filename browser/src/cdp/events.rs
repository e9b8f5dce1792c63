//! Events of the browser and the queues in which they wait for whoever asked for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{CdpError, Session};

/// Events that wait in one [`EventStream`]. A page can cause some hundred a second (frames coming and
/// going); readers never wait for the browser between two events, so that this bounds memory, not function.
const QUEUE_EVENTS: usize = 4_096;

/// Something that a target reported unasked.
#[derive(Debug)]
pub(crate) struct Event {
    /// Such as `Page.frameNavigated`.
    pub(crate) method: String,
    /// Id of the session that reported it; empty for the browser itself.
    pub(crate) session: Arc<str>,
    pub(super) params: Option<Box<RawValue>>,
}

impl Event {
    /// Reads the event's parameters.
    ///
    /// # Errors
    /// [`CdpError::Malformed`] if they do not fit `T`.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, CdpError> {
        let text = self.params.as_deref().map_or("{}", RawValue::get);
        serde_json::from_str(text).map_err(|error| CdpError::Malformed {
            method: self.method.clone(),
            reason: error.to_string(),
        })
    }
}

/// Takes a session's events where they are read from the pipe, so that none is ever lost or waits in a
/// queue: a page decides how many there are. Everybody waits for it, so it keeps what it must and returns.
pub(crate) trait EventSink: Send + Sync {
    /// Takes one event.
    fn take(&self, event: &Event);
}

/// Where the connection puts a session's events for one stream.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    queue: mpsc::Sender<Arc<Event>>,
    offered: Arc<AtomicU64>,
    missed: Arc<AtomicBool>,
}

impl Subscriber {
    /// Hands `event` over without waiting; `false` once the stream is dropped. When the queue is full
    /// the event is lost to this stream, which [`EventStream::take_missed`] tells.
    pub(super) fn offer(&self, event: &Arc<Event>) -> bool {
        match self.queue.try_send(Arc::clone(event)) {
            Ok(()) => {
                self.offered.fetch_add(1, Ordering::Release);
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.missed.store(true, Ordering::Relaxed);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

/// The events of one session, and of others that were [added](Self::add), in the order in which the
/// browser sent them, from the moment of asking on.
#[derive(Debug)]
pub(crate) struct EventStream {
    events: mpsc::Receiver<Arc<Event>>,
    subscriber: Subscriber,
    ended: CancellationToken,
}

impl EventStream {
    pub(super) fn new(ended: CancellationToken) -> Self {
        let (queue, events) = mpsc::channel(QUEUE_EVENTS);
        let subscriber = Subscriber {
            queue,
            offered: Arc::default(),
            missed: Arc::new(AtomicBool::new(false)),
        };
        Self {
            events,
            subscriber,
            ended,
        }
    }

    pub(super) fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// Lets the events of `session` arrive here too.
    pub(crate) fn add(&self, session: &Session) {
        session.subscribe(&self.subscriber);
    }

    /// The next event; `None` when the session that the stream was made for has ended and its events
    /// are read. Cancel safe: no event is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Arc<Event>> {
        tokio::select! {
            // Queued events go first, so that the end of a session does not hide its last words.
            biased;
            event = self.events.recv() => event,
            () = self.ended.cancelled() => self.events.try_recv().ok(),
        }
    }

    /// Counts the events that were put into this stream's queue, read or not.
    pub(crate) fn offered(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.subscriber.offered)
    }

    /// Whether events were lost since the last call because nobody read them.
    pub(crate) fn take_missed(&self) -> bool {
        self.subscriber.missed.swap(false, Ordering::Relaxed)
    }
}
