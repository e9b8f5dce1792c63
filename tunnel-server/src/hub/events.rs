//! The control events of the attachment RPC as server-sent events.
//!
//! The feed is one for the whole server, so it carries identifiers only: no argument, script, byte or result.
//! Nothing is replayed; a subscriber that falls behind is cut off and starts over.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Response};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::Hub;
use super::rpc::RPC_VERSION;

/// Events that a subscriber may be behind. An event is small and a desktop reads at once, so one that far
/// behind does not read at all.
const EVENTS_BEHIND: usize = 256;

/// Silence after which a comment follows: below the shortest idle limits of reverse proxies.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Asks nginx and its like to pass events on as they come.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What desktops are told.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Event {
    /// The attachment is registered; tabs may be published.
    Attached {
        #[serde(rename = "connectionID")]
        connection: String,
        version: u32,
    },
    /// A command waits to be fetched.
    Command {
        #[serde(rename = "connectionID")]
        connection: String,
        #[serde(rename = "requestID")]
        request: String,
    },
    /// Nobody waits for the command's result any more.
    Cancel {
        #[serde(rename = "connectionID")]
        connection: String,
        #[serde(rename = "requestID")]
        request: String,
    },
}

impl Event {
    pub(super) fn attached(connection: &str) -> Self {
        Self::Attached {
            connection: connection.to_owned(),
            version: RPC_VERSION,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Attached { .. } => "attached",
            Self::Command { .. } => "command",
            Self::Cancel { .. } => "cancel",
        }
    }

    /// In the form of the event stream (HTML standard, section 9.2.6).
    fn encode(&self) -> Bytes {
        // Texts without line breaks: names are checked where they enter, and JSON escapes the rest.
        let data = serde_json::to_string(self).unwrap_or_default();
        Bytes::from(format!("event: {}\ndata: {data}\n\n", self.name()))
    }
}

/// The feed. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Events {
    sender: broadcast::Sender<Event>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            sender: broadcast::Sender::new(EVENTS_BEHIND),
        }
    }

    pub(super) fn send(&self, event: Event) {
        // Nobody listening is no fault: a desktop subscribes before it attaches, or not at all.
        let _ = self.sender.send(event);
    }
}

/// One subscriber.
struct Subscriber {
    events: broadcast::Receiver<Event>,
    heartbeat: Interval,
    stopping: CancellationToken,
    greeted: bool,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            // The head of an answer often waits for its first bytes; this tells that the feed is open.
            return Some(Bytes::from_static(b": connected\n\n"));
        }
        tokio::select! {
            event = self.events.recv() => match event {
                Ok(event) => {
                    self.heartbeat.reset();
                    Some(event.encode())
                }
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "cut off a subscriber of control events that fell behind");
                    None
                }
                Err(RecvError::Closed) => None,
            },
            _ = self.heartbeat.tick() => Some(Bytes::from_static(b": heartbeat\n\n")),
            () = self.stopping.cancelled() => None,
        }
    }
}

impl Hub {
    /// `GET /rpc/events`: the control events from here on, until the client leaves or the server stops.
    pub fn events(&self) -> Response<BoxBody<Bytes, Infallible>> {
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let subscriber = Subscriber {
            events: self.events.sender.subscribe(),
            heartbeat,
            stopping: self.stopping.clone(),
            greeted: false,
        };
        let frames = stream::unfold(subscriber, |mut subscriber| async move {
            let bytes = subscriber.next().await?;
            Some((Ok(Frame::data(bytes)), subscriber))
        });
        let mut response = Response::new(BoxBody::new(StreamBody::new(frames)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        response
    }
}
