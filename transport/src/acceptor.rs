//! The server's way to links: greets carriers, makes links, and finds the link of a carrier that resumes one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use yonder_protocol::limits::TUNNELS_PER_LINK;
use yonder_protocol::link::hello::{Answer, Hello, Refusal, Welcome};
use yonder_protocol::link::{
    CloseCode, EARLY_WINDOW, Lane, LaneConfig, LinkId, RefusalCode, ResumeSecret, Role,
    SessionName, Side,
};

use crate::carrier::Carrier;
use crate::driver::{Driver, Resumption, ServerSource, Source};
pub use crate::handshake::HandshakeError;
use crate::handshake::{read_hello, refuse};
use crate::hub::Hub;
use crate::lanes::Lanes;
use crate::link::{Incoming, IncomingStream, Link, LinkConfig, LinkPhase};
use crate::wire::Wire;

/// Links that one server half holds, those waiting for a carrier included: far more than people share a host,
/// few enough that greetings in bulk cost no more than some megabytes.
pub const LINKS_MAX: usize = 1024;

/// Carriers that may wait for the driver of one link; it takes them at once.
const RESUMPTIONS_WAITING: usize = 4;

/// What became of a carrier.
#[derive(Debug)]
pub enum Accepted {
    /// A link of its own.
    New(NewLink),
    /// It carries a link that was there before.
    Resumed(LinkId),
    /// It carries a further lane of a link.
    Widened(LinkId),
}

/// A new link and what its client said of itself.
#[derive(Debug)]
pub struct NewLink {
    /// Its handle; dropping the last one closes the link.
    pub link: Link,
    /// The streams that the client opens.
    pub incoming: Incoming,
    /// What the client attaches for.
    pub role: Role,
    /// The browser session.
    pub session: SessionName,
    /// Program and version of the client.
    pub agent: String,
}

/// Why a carrier was turned away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The greeting failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The client was refused, and told so.
    #[error("refused a link: {0}")]
    Refused(Refusal),
}

/// Makes links of carriers and keeps them by id until they are over.
pub struct Acceptor {
    config: LinkConfig,
    registry: Arc<Registry>,
}

#[derive(Default)]
struct Registry {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: HashMap<LinkId, Entry>,
    draining: bool,
}

struct Entry {
    secret: ResumeSecret,
    lanes: Arc<Lanes>,
    /// Where the carriers of each lane go, by its number.
    carriers: HashMap<u32, mpsc::Sender<Resumption>>,
    /// Where streams go that the client opens. Held weakly, so that their reader learns the end of the link.
    streams: mpsc::WeakSender<IncomingStream>,
}

/// Takes a lane off the registry when its driver ends, and with the main one the link.
struct Registration {
    registry: Arc<Registry>,
    id: LinkId,
    lane: u32,
    lanes: Arc<Lanes>,
    hub: Arc<Hub>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        if self.lane == 0 {
            state.links.remove(&self.id);
            drop(state);
            self.lanes.main_is_over();
        } else {
            if let Some(entry) = state.links.get_mut(&self.id) {
                entry.carriers.remove(&self.lane);
            }
            drop(state);
            self.lanes.remove(&self.hub);
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(
    clippy::result_large_err,
    reason = "a refused carrier goes back whole, once per greeting, to be told why"
)]
impl Acceptor {
    /// An acceptor whose links are made with `config`.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            config,
            registry: Arc::default(),
        }
    }

    /// Greets the client of `carrier`. The caller checked already that it may come.
    ///
    /// Cancel safe: dropping the future drops the carrier.
    pub async fn accept(&self, carrier: Carrier) -> Result<Accepted, AcceptError> {
        let (mut wire, hello) = read_hello(carrier, self.config.handshake_timeout).await?;
        let refusal = match self.admit(wire, hello) {
            Ok(accepted) => return Ok(accepted),
            Err((refused_wire, refusal)) => {
                wire = refused_wire;
                refusal
            }
        };
        refuse(&mut wire, refusal.clone()).await;
        Err(AcceptError::Refused(refusal))
    }

    /// Links that are up or wait for a carrier.
    pub fn links(&self) -> usize {
        self.registry.lock().links.len()
    }

    /// Takes no new links from here on; those that exist go on and may resume.
    pub fn drain(&self) {
        self.registry.lock().draining = true;
    }

    /// Drains, closes every link with `code` and `text`, and waits at most `limit` for their ends.
    pub async fn shutdown(&self, code: CloseCode, text: &str, limit: Duration) {
        {
            let mut state = self.registry.lock();
            state.draining = true;
            for entry in state.links.values() {
                entry.lanes.request_close(code, text);
            }
        }
        self.config.tasks.close();
        if timeout(limit, self.config.tasks.wait()).await.is_err() {
            tracing::warn!("links did not end within {} ms", limit.as_millis());
        }
    }

    fn admit(&self, wire: Wire, hello: Hello) -> Result<Accepted, (Wire, Refusal)> {
        if !hello.link.is_new() {
            return self.resume(wire, &hello);
        }
        if hello.lane != 0 {
            let text = "a new link begins with lane 0";
            return Err((wire, Refusal::new(RefusalCode::Malformed, text)));
        }
        self.create(wire, hello).map(Accepted::New)
    }

    fn welcome(&self, link: LinkId) -> Welcome {
        Welcome {
            link,
            received: 0,
            data_max: self.config.data_max,
            window: self.config.window.min(EARLY_WINDOW),
            grace: self.config.grace,
            heartbeat: self.config.heartbeat,
            agent: self.config.agent.clone(),
        }
    }

    fn create(&self, mut wire: Wire, hello: Hello) -> Result<NewLink, (Wire, Refusal)> {
        let id = LinkId(rand::rng().random());
        let phase = LinkPhase::Up {
            since: Instant::now(),
            kind: wire.kind,
            description: wire.description.clone(),
        };
        let hub = Arc::new(Hub::new(
            id,
            hello.window,
            Arc::clone(&self.config.budget),
            phase,
            Arc::new(Notify::new()),
        ));
        let lanes = Lanes::new(Arc::clone(&hub));
        let (streams, incoming) = mpsc::channel(TUNNELS_PER_LINK);
        let (carriers, resumptions) = mpsc::channel(RESUMPTIONS_WAITING);
        {
            let mut state = self.registry.lock();
            let refusal = if state.draining {
                Some((
                    RefusalCode::Draining,
                    "the server half is stopping; try again when it is back",
                ))
            } else if state.links.len() >= LINKS_MAX {
                Some((
                    RefusalCode::Overloaded,
                    "the server half holds as many links as it may; try again later",
                ))
            } else {
                None
            };
            if let Some((code, text)) = refusal {
                drop(state);
                return Err((wire, Refusal::new(code, text)));
            }
            state.links.insert(
                id,
                Entry {
                    secret: hello.secret.clone(),
                    lanes: Arc::clone(&lanes),
                    carriers: HashMap::from([(0, carriers)]),
                    streams: streams.downgrade(),
                },
            );
        }
        wire.queue([Answer::Welcome(self.welcome(id)).encode()]);
        self.drive(wire, &hello, hub, Arc::clone(&lanes), resumptions, streams);
        Ok(NewLink {
            link: Link::new(lanes),
            incoming: Incoming::new(incoming),
            role: hello.role,
            session: hello.session,
            agent: hello.agent,
        })
    }

    /// Starts the driver of a lane whose client was welcomed at byte 0.
    fn drive(
        &self,
        wire: Wire,
        hello: &Hello,
        hub: Arc<Hub>,
        lanes: Arc<Lanes>,
        carriers: mpsc::Receiver<Resumption>,
        streams: mpsc::Sender<IncomingStream>,
    ) {
        let registration = Registration {
            registry: Arc::clone(&self.registry),
            id: hub.id,
            lane: hello.lane,
            lanes,
            hub: Arc::clone(&hub),
        };
        let lane = Lane::new(
            LaneConfig {
                side: Side::Server,
                data_max: self.config.data_max,
                window: self.config.window,
                peer_data_max: hello.data_max,
                peer_window: hello.window,
                streams_max: self.config.streams_max,
                heartbeat: self.config.heartbeat,
                heartbeat_timeout: self.config.heartbeat_timeout,
                budget: Arc::clone(&self.config.budget),
            },
            Duration::ZERO,
        );
        let driver = Driver::new(lane, hub, streams);
        let source = Source::Server(ServerSource {
            carriers,
            grace: self.config.grace,
        });
        self.config.tasks.spawn(async move {
            let _registration = registration;
            driver.run(wire, 0, source).await;
        });
    }

    /// Makes a further lane of a link whose client has proven itself. `streams` is where its streams go.
    fn widen(
        &self,
        mut wire: Wire,
        hello: &Hello,
        lanes: Arc<Lanes>,
        carriers: mpsc::Receiver<Resumption>,
        streams: mpsc::Sender<IncomingStream>,
    ) -> Accepted {
        let hub = Arc::new(Hub::new(
            hello.link,
            hello.window,
            Arc::clone(&self.config.budget),
            LinkPhase::Up {
                since: Instant::now(),
                kind: wire.kind,
                description: wire.description.clone(),
            },
            lanes.main().crowded(),
        ));
        lanes.add(Arc::clone(&hub));
        wire.queue([Answer::Welcome(self.welcome(hello.link)).encode()]);
        self.drive(wire, hello, hub, lanes, carriers, streams);
        Accepted::Widened(hello.link)
    }

    fn resume(&self, wire: Wire, hello: &Hello) -> Result<Accepted, (Wire, Refusal)> {
        let unknown = || {
            Refusal::new(
                RefusalCode::UnknownLink,
                "the server half does not know this link any more: its grace ended or the server was restarted",
            )
        };
        let wrong_secret = || {
            let text = "the resume secret does not belong to this link";
            Refusal::new(RefusalCode::BadSecret, text)
        };
        let mut state = self.registry.lock();
        let Some(entry) = state.links.get_mut(&hello.link) else {
            return Err((wire, unknown()));
        };
        if !bool::from(entry.secret.expose().ct_eq(hello.secret.expose())) {
            return Err((wire, wrong_secret()));
        }
        let Some(carriers) = entry.carriers.get(&hello.lane).cloned() else {
            // Lanes are numbered upwards; one that received something was here before and is over.
            let streams = entry.streams.upgrade();
            let (Some(streams), 0) = (streams, hello.received) else {
                return Err((wire, unknown()));
            };
            if entry.carriers.len() >= self.config.lanes {
                let text = format!("a link has at most {} lanes", self.config.lanes);
                return Err((wire, Refusal::new(RefusalCode::Overloaded, text)));
            }
            let (carriers, resumptions) = mpsc::channel(RESUMPTIONS_WAITING);
            entry.carriers.insert(hello.lane, carriers);
            let lanes = Arc::clone(&entry.lanes);
            drop(state);
            return Ok(self.widen(wire, hello, lanes, resumptions, streams));
        };
        drop(state);
        let resumption = Resumption {
            wire,
            peer_received: hello.received,
            welcome: self.welcome(hello.link),
        };
        match carriers.try_send(resumption) {
            Ok(()) => Ok(Accepted::Resumed(hello.link)),
            Err(mpsc::error::TrySendError::Closed(resumption)) => Err((resumption.wire, unknown())),
            Err(mpsc::error::TrySendError::Full(resumption)) => {
                let text = "several carriers already wait for this link";
                Err((resumption.wire, Refusal::new(RefusalCode::Overloaded, text)))
            }
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("links", &self.links())
            .finish_non_exhaustive()
    }
}
