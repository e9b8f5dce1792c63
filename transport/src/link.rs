//! A link as its users hold it: opening streams, taking those that the peer opens, watching and closing.
//!
//! A link is driven by one task ([`crate::driver`]), spawned on the tracker of its [`LinkConfig`]; it outlives
//! its carriers and ends when it is closed by either half, when no carrier comes within the grace, or when
//! the last [`Link`] handle is dropped. Its streams fail with
//! [`TunnelErrorCode::LinkDown`] then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use yonder_protocol::limits;
use yonder_protocol::link::{Budget, CloseCode, LinkId, Open};
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};

use crate::carrier::CarrierKind;
use crate::hub::Hub;
use crate::lanes::Lanes;
use crate::stream::Stream;
use crate::stream::shared::Shared;

/// What both halves set for their links.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Program and version, told to the other half.
    pub agent: String,
    /// Bytes queued over all links of this half; shared by them.
    pub budget: Arc<Budget>,
    /// Owns the tasks that drive links. Close links before waiting on it.
    pub tasks: TaskTracker,
    /// Longest `DATA` payload to take, in bytes. Larger ones cost fewer system calls and delay small ones more.
    pub data_max: u32,
    /// Window of a new stream while the budget allows, in bytes: memory per stalled stream. The greeting announces at most
    /// [`EARLY_WINDOW`](yonder_protocol::link::EARLY_WINDOW) of it for the streams that the peer opens.
    pub window: u32,
    /// Streams that each half may have open on one link.
    pub streams_max: usize,
    /// How long a link without a carrier keeps its streams; the server's value counts for both.
    pub grace: Duration,
    /// Silence after which a half pings; the server's value counts for both.
    pub heartbeat: Duration,
    /// A carrier is dead when nothing arrived for this long after a ping.
    pub heartbeat_timeout: Duration,
    /// Limit of the greeting on a new carrier.
    pub handshake_timeout: Duration,
    /// Lanes of one link, each with a carrier of its own. The client opens them as far as they help; the server takes no
    /// more.
    pub lanes: usize,
    /// Longest pause between attempts to get a carrier.
    pub backoff_max: Duration,
}

impl LinkConfig {
    /// The desktop half's settings.
    pub fn desktop(agent: impl Into<String>) -> Self {
        Self::with_budget(agent.into(), limits::DESKTOP_QUEUE_BYTES)
    }

    /// The server half's settings.
    pub fn server(agent: impl Into<String>) -> Self {
        Self::with_budget(agent.into(), limits::SERVER_QUEUE_BYTES)
    }

    fn with_budget(agent: String, budget: usize) -> Self {
        Self {
            agent,
            budget: Arc::new(Budget::new(budget)),
            tasks: TaskTracker::new(),
            data_max: u32::try_from(limits::DATA_FRAME_BYTES).unwrap_or(u32::MAX),
            window: limits::INITIAL_WINDOW,
            streams_max: limits::TUNNELS_PER_LINK,
            grace: limits::RESUME_GRACE,
            heartbeat: limits::HEARTBEAT,
            heartbeat_timeout: limits::HEARTBEAT_TIMEOUT,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            lanes: limits::LANES_PER_LINK,
            backoff_max: BACKOFF_MAX,
        }
    }
}

/// Longest pause between attempts: they go on for no longer than the grace, and whoever waits sees the link come back at once
/// when the network does.
const BACKOFF_MAX: Duration = Duration::from_millis(400);

/// Why a link is over.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This half closed it.
    Local {
        /// Why.
        code: CloseCode,
        /// The same for a person.
        text: String,
    },
    /// The other half closed it.
    Peer {
        /// Why.
        code: CloseCode,
        /// The same for a person.
        text: String,
    },
    /// No carrier came within the grace, or the server half does not know the link any more. A new link may
    /// succeed; its streams are other ones.
    Lost(String),
    /// The server half will not have us: the token was changed, or the versions differ.
    Refused(String),
    /// The other half broke the rules of the wire.
    Protocol(String),
}

impl CloseReason {
    /// Whether a newer attachment took the session: do not come back.
    pub fn is_replaced(&self) -> bool {
        matches!(
            self,
            Self::Peer {
                code: CloseCode::Replaced,
                ..
            }
        )
    }

    /// Whether connecting anew makes sense without anybody changing anything.
    pub fn may_reconnect(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Peer { code, .. } => {
                matches!(code, CloseCode::Draining | CloseCode::ShuttingDown)
            }
            Self::Local { .. } | Self::Refused(_) | Self::Protocol(_) => false,
        }
    }

    /// What the streams of the link fail with.
    pub fn to_error(&self) -> TunnelError {
        TunnelError::new(TunnelErrorCode::LinkDown, self.to_string())
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { text, .. } => write!(f, "the link was closed: {text}"),
            Self::Peer { text, .. } => write!(f, "the other half closed the link: {text}"),
            Self::Lost(text) => write!(f, "the link was lost: {text}"),
            Self::Refused(text) => write!(f, "the server half refused the link: {text}"),
            Self::Protocol(text) => write!(f, "the other half broke the link protocol: {text}"),
        }
    }
}

/// Where a link stands.
#[derive(Clone, Debug)]
pub enum LinkPhase {
    /// A carrier moves its bytes.
    Up {
        /// Since when.
        since: Instant,
        /// How the carrier moves bytes.
        kind: CarrierKind,
        /// The same for a person.
        description: String,
    },
    /// No carrier; the streams wait.
    Reconnecting {
        /// Since when.
        since: Instant,
        /// Attempts that failed so far; 0 on the half that waits for the other.
        attempts: u32,
        /// What went wrong last.
        error: String,
    },
    /// Over.
    Closed(CloseReason),
}

/// Figures of a link.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Where its main lane stands.
    pub phase: LinkPhase,
    /// Carriers that move its bytes now.
    pub carriers: u64,
    /// Smoothed round trip of the current carrier, once measured.
    pub round_trip: Option<Duration>,
    /// Open streams.
    pub streams: u64,
    /// Streams opened over the life of the link, by either half.
    pub opened: u64,
    /// Bytes waiting for a carrier or for a consumer.
    pub queued: u64,
    /// Bytes received, frames included.
    pub bytes_in: u64,
    /// Bytes sent, frames included.
    pub bytes_out: u64,
    /// Carriers that replaced an earlier one.
    pub reconnects: u64,
}

/// A handle of a link; clones are handles of the same. Dropping the last one closes the link.
#[derive(Clone, Debug)]
pub struct Link {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    lanes: Arc<Lanes>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.lanes
            .request_close(CloseCode::Detached, "the other half is done with it");
    }
}

impl Link {
    pub(crate) fn new(lanes: Arc<Lanes>) -> Self {
        Self {
            handle: Arc::new(Handle { lanes }),
        }
    }

    fn hub(&self) -> &Arc<Hub> {
        self.handle.lanes.main()
    }

    /// Names the link on both halves.
    pub fn id(&self) -> LinkId {
        self.hub().id
    }

    /// Opens a tunnel to `target` and returns at once: bytes may be written before the verdict
    /// ([`Stream::opened`]), also while the link waits for a carrier. Fails when the link is over.
    pub fn open_tunnel(&self, target: &Target) -> Result<Stream, TunnelError> {
        self.open(Open::tunnel(target.clone()))
    }

    /// Opens the stream of a call, like [`Self::open_tunnel`].
    pub fn open_call(&self) -> Result<Stream, TunnelError> {
        self.open(Open::call())
    }

    /// Opens any stream, like [`Self::open_tunnel`].
    pub fn open(&self, open: Open) -> Result<Stream, TunnelError> {
        if let Some(error) = self.hub().closed_error() {
            return Err(error);
        }
        let hub = self.handle.lanes.choose(&open.kind);
        let window = hub.peer_window as usize;
        let shared = Shared::opening(hub, open, window);
        shared.notify();
        Ok(Stream::new(shared))
    }

    /// Waits until the link has a carrier, for at most `limit`. Cancel safe.
    pub async fn wait_up(&self, limit: Duration) -> Result<(), TunnelError> {
        if self.is_up() {
            return Ok(());
        }
        let mut phase = self.watch();
        let settled = phase.wait_for(|phase| !matches!(phase, LinkPhase::Reconnecting { .. }));
        let Ok(settled) = tokio::time::timeout(limit, settled).await else {
            return Err(TunnelError::new(
                TunnelErrorCode::LinkDown,
                format!(
                    "the link to the other half has been down for more than {} s",
                    limit.as_secs()
                ),
            ));
        };
        match settled.as_deref() {
            Ok(LinkPhase::Closed(reason)) => Err(reason.to_error()),
            Ok(_) => Ok(()),
            Err(_) => Err(TunnelError::new(
                TunnelErrorCode::LinkDown,
                "the link is gone",
            )),
        }
    }

    /// Closes the link: the other half is told `code` and `text` (within a second), and all streams are reset.
    /// Returns at once; see [`Self::closed`].
    pub fn close(&self, code: CloseCode, text: impl Into<String>) {
        self.handle.lanes.request_close(code, &text.into());
    }

    /// Waits until the link is over. Cancel safe.
    pub async fn closed(&self) -> CloseReason {
        let mut phase = self.watch();
        // The sender lives in the hub, which this handle holds.
        let _ = phase
            .wait_for(|phase| matches!(phase, LinkPhase::Closed(_)))
            .await;
        self.hub()
            .closed()
            .cloned()
            .unwrap_or_else(|| CloseReason::Lost("its driver ended".to_owned()))
    }

    /// Where the link stands, to be watched.
    pub fn watch(&self) -> watch::Receiver<LinkPhase> {
        self.hub().watch()
    }

    /// Whether a carrier moves the link's bytes now.
    pub fn is_up(&self) -> bool {
        self.handle.lanes.sum(|lane| u64::from(lane.is_up())) > 0 && self.hub().closed().is_none()
    }

    /// Figures of the link.
    pub fn status(&self) -> LinkStatus {
        let lanes = &self.handle.lanes;
        LinkStatus {
            phase: self.watch().borrow().clone(),
            carriers: lanes.sum(|lane| u64::from(lane.is_up())),
            round_trip: self.hub().figures.round_trip(),
            streams: lanes.total(|figures| &figures.streams),
            opened: lanes.total(|figures| &figures.opened),
            queued: lanes.total(|figures| &figures.queued),
            bytes_in: lanes.total(|figures| &figures.bytes_in),
            bytes_out: lanes.total(|figures| &figures.bytes_out),
            reconnects: lanes.total(|figures| &figures.reconnects),
        }
    }
}

/// A stream that the peer opened.
#[derive(Debug)]
pub struct IncomingStream {
    /// What it is for.
    pub open: Open,
    /// The stream; [`Stream::accept`] or [`Stream::reset`] it.
    pub stream: Stream,
}

/// The streams that the peer opens. Dropped, it has them all refused.
#[derive(Debug)]
pub struct Incoming {
    streams: mpsc::Receiver<IncomingStream>,
}

impl Incoming {
    pub(crate) fn new(streams: mpsc::Receiver<IncomingStream>) -> Self {
        Self { streams }
    }

    /// The next one; `None` when the link is over. Cancel safe.
    pub async fn next(&mut self) -> Option<IncomingStream> {
        self.streams.recv().await
    }
}
