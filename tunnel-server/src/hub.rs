//! The inside of the server half: what connects desktop halves, their targets and the callers of operations.
//!
//! * [`links`]: links of desktop halves; [`dial`], [`egress`] and [`upstream`]: their tunnels; [`builtin`]: targets of our
//!   own.
//! * [`sessions`]: which desktop half serves which browser session; [`operate`] and [`files`]: operations on it.
//! * [`rpc`] and [`events`]: the same for desktop halves that can make plain HTTP requests only.
//! * [`status`]: all of it at a glance.
//!
//! Listening, TLS, authentication and HTTP routing are not done here: whoever calls has been let in.

mod builtin;
mod dial;
pub mod egress;
mod events;
mod links;
mod operate;
pub mod rpc;
mod sessions;
pub mod status;
pub mod upstream;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yonder_captures::{Captures, Uploads};
use yonder_protocol::limits;
use yonder_protocol::link::CloseCode;
use yonder_transport::acceptor::Acceptor;
use yonder_transport::link::LinkConfig;

use self::dial::Dialer;
use self::egress::Egress;
use self::events::Events;
use self::links::Links;
use self::sessions::{Detached, Sessions};
use self::upstream::Upstream;
use crate::metrics::Metrics;

pub use self::operate::Answer;

/// What telling every link and closing every socket may take at the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What a hub is made with.
#[derive(Debug)]
pub struct HubConfig {
    /// Where it may dial.
    pub egress: Egress,
    /// The proxy between it and the internet.
    pub upstream: Upstream,
    /// Where files that the browser makes are saved; by default below the folder for temporary files.
    pub capture_dir: Option<PathBuf>,
    /// Folders below which files for pages may be read; by default the working directory.
    pub upload_roots: Vec<PathBuf>,
    /// How links behave.
    pub link: LinkConfig,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
}

impl HubConfig {
    /// Dials anything directly, with the usual limits.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            egress: Egress::default(),
            upstream: Upstream::default(),
            capture_dir: None,
            upload_roots: Vec::new(),
            link: LinkConfig::server(concat!("tunnel-server/", env!("CARGO_PKG_VERSION"))),
            metrics,
        }
    }
}

/// The inside of a server half.
pub struct Hub {
    acceptor: Acceptor,
    dialer: Dialer,
    captures: Captures,
    uploads: Uploads,
    links: Links,
    sessions: Sessions,
    events: Events,
    /// Room for further tunnels.
    tunnels: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    started: Instant,
    /// Owns the task of each link.
    tasks: TaskTracker,
    /// Counts the operations under way.
    running: TaskTracker,
    stopping: CancellationToken,
}

impl Hub {
    /// A hub without links.
    pub fn new(config: HubConfig) -> Arc<Self> {
        Arc::new(Self {
            acceptor: Acceptor::new(config.link),
            dialer: Dialer::new(config.egress, config.upstream),
            captures: Captures::new(config.capture_dir),
            uploads: Uploads::new(config.upload_roots),
            links: Links::default(),
            sessions: Sessions::new(Arc::clone(&config.metrics)),
            events: Events::new(),
            tunnels: Arc::new(Semaphore::new(limits::TUNNELS_PER_SERVER)),
            metrics: config.metrics,
            started: Instant::now(),
            tasks: TaskTracker::new(),
            running: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Whether a desktop is attached to `session`, now and from now on.
    pub fn attached(&self, session: &str) -> watch::Receiver<bool> {
        self.sessions.watch(session)
    }

    /// Whether a desktop half has a link, though it may wait for a carrier, or serves a session by plain requests.
    pub(crate) fn is_in_use(&self) -> bool {
        self.acceptor.links() > 0 || !self.sessions.all().is_empty()
    }

    /// Stops: takes nothing new, lets operations that are under way end within `grace`, then tells every desktop
    /// half and closes everything.
    pub async fn shutdown(&self, grace: Duration) {
        self.acceptor.drain();
        self.stopping.cancel();
        self.running.close();
        if timeout(grace, self.running.wait()).await.is_err() {
            tracing::warn!(
                "operations are cut off after {} s of grace",
                grace.as_secs()
            );
        }
        for attachment in self.sessions.all() {
            attachment.detach(Detached::Stopping);
        }
        self.acceptor
            .shutdown(
                CloseCode::ShuttingDown,
                "the server half is stopping",
                CLOSE_LIMIT,
            )
            .await;
        self.tasks.close();
        if timeout(CLOSE_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("links were still being closed at the end");
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("links", &self.links.all().len())
            .finish_non_exhaustive()
    }
}
