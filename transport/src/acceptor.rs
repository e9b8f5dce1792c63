//! The server's way to links: greets carriers, makes links, and finds the link of a carrier that resumes one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use yonder_protocol::limits::TUNNELS_PER_LINK;
use yonder_protocol::link::hello::{Answer, Hello, Refusal, Welcome};
use yonder_protocol::link::{
    CloseCode, Lane, LaneConfig, LinkId, RefusalCode, ResumeSecret, Role, SessionName, Side,
};

use crate::carrier::Carrier;
use crate::driver::{Driver, Resumption, ServerSource, Source};
pub use crate::handshake::HandshakeError;
use crate::handshake::{read_hello, refuse};
use crate::hub::Hub;
use crate::link::{Incoming, Link, LinkConfig, LinkPhase};
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
    carriers: mpsc::Sender<Resumption>,
    hub: Arc<Hub>,
}

/// Takes the link off the registry when its driver ends.
struct Registration {
    registry: Arc<Registry>,
    id: LinkId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().links.remove(&self.id);
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
                entry.hub.request_close(code, text.to_owned());
            }
        }
        self.config.tasks.close();
        if timeout(limit, self.config.tasks.wait()).await.is_err() {
            tracing::warn!("links did not end within {} ms", limit.as_millis());
        }
    }

    fn admit(&self, wire: Wire, hello: Hello) -> Result<Accepted, (Wire, Refusal)> {
        if hello.lane != 0 {
            let text =
                "this version has one lane per link; install the same release on both halves";
            return Err((wire, Refusal::new(RefusalCode::Malformed, text)));
        }
        if hello.link.is_new() {
            self.create(wire, hello).map(Accepted::New)
        } else {
            self.resume(wire, &hello)
        }
    }

    fn welcome(&self, link: LinkId) -> Welcome {
        Welcome {
            link,
            received: 0,
            data_max: self.config.data_max,
            window: self.config.window,
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
            self.config.window,
            hello.window,
            Arc::clone(&self.config.budget),
            phase,
        ));
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
                    secret: hello.secret,
                    carriers,
                    hub: Arc::clone(&hub),
                },
            );
        }
        let registration = Registration {
            registry: Arc::clone(&self.registry),
            id,
        };
        wire.queue([Answer::Welcome(self.welcome(id)).encode()]);
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
        let (streams, incoming) = mpsc::channel(TUNNELS_PER_LINK);
        let driver = Driver::new(lane, Arc::clone(&hub), streams);
        let source = Source::Server(ServerSource {
            carriers: resumptions,
            grace: self.config.grace,
        });
        self.config.tasks.spawn(async move {
            let _registration = registration;
            driver.run(wire, 0, source).await;
        });
        Ok(NewLink {
            link: Link::new(hub),
            incoming: Incoming::new(incoming),
            role: hello.role,
            session: hello.session,
            agent: hello.agent,
        })
    }

    fn resume(&self, wire: Wire, hello: &Hello) -> Result<Accepted, (Wire, Refusal)> {
        let unknown = || {
            Refusal::new(
                RefusalCode::UnknownLink,
                "the server half does not know this link any more: its grace ended or the server was restarted",
            )
        };
        let found = {
            let state = self.registry.lock();
            state
                .links
                .get(&hello.link)
                .map(|entry| (entry.secret.clone(), entry.carriers.clone()))
        };
        let Some((secret, carriers)) = found else {
            return Err((wire, unknown()));
        };
        if !bool::from(secret.expose().ct_eq(hello.secret.expose())) {
            let text = "the resume secret does not belong to this link";
            return Err((wire, Refusal::new(RefusalCode::BadSecret, text)));
        }
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
