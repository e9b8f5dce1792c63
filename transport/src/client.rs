//! The client's way to a link: the first carrier and the greeting; later carriers are the driver's.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use yonder_protocol::limits::TUNNELS_PER_LINK;
use yonder_protocol::link::hello::{Hello, Welcome};
use yonder_protocol::link::{
    EARLY_WINDOW, Lane, LaneConfig, LinkId, RefusalCode, ResumeSecret, Role, SessionName, Side,
};

use crate::carrier::{Connect, ConnectError};
use crate::driver::{ClientSource, Driver, Source};
use crate::handshake::{HandshakeError, greet};
use crate::hub::Hub;
use crate::lanes::Lanes;
use crate::lanes::spread::Spread;
use crate::link::{Incoming, Link, LinkConfig, LinkPhase};

/// What the client attaches for.
#[derive(Clone, Debug)]
pub struct ClientHello {
    /// A browser session, or tunnels alone.
    pub role: Role,
    /// The session.
    pub session: SessionName,
}

/// A link that came up.
#[derive(Debug)]
pub struct Connected {
    /// Its handle.
    pub link: Link,
    /// The streams that the server half opens.
    pub incoming: Incoming,
    /// Program and version of the server half.
    pub server_agent: String,
}

/// Why no link came up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No carrier could be had.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The halves did not come to terms on it.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl LinkError {
    /// Whether the server half refused us: trying again without a change cannot help.
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_refused(),
            Self::Handshake(HandshakeError::Refused(refusal)) => !matches!(
                refusal.code,
                RefusalCode::Overloaded | RefusalCode::Draining
            ),
            Self::Handshake(_) => false,
        }
    }

    /// Whether a setting of this half is at fault.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Connect(error) if error.is_configuration())
    }

    /// How long the server asked to be left alone, where it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Connect(error) => error.retry_after(),
            Self::Handshake(_) => None,
        }
    }
}

/// Connects once and returns the link, or why there is none. From then on the link keeps itself up: when its
/// carrier dies it gets another from `connector`, within the grace that the server half named.
///
/// Cancel safe: dropping the future gives up the attempt.
pub async fn connect(
    connector: Arc<dyn Connect>,
    hello: ClientHello,
    config: LinkConfig,
) -> Result<Connected, LinkError> {
    let carrier = connector.connect().await?;
    let mut hello = Hello {
        link: LinkId::NEW,
        lane: 0,
        secret: ResumeSecret::new(rand::rng().random()),
        received: 0,
        role: hello.role,
        session: hello.session,
        agent: config.agent.clone(),
        data_max: config.data_max,
        window: config.window.min(EARLY_WINDOW),
    };
    let (wire, welcome) = greet(carrier, &hello, config.handshake_timeout).await?;
    hello.link = welcome.link;

    let lane_config = lane_config(&config, &welcome);
    let lane = Lane::new(lane_config.clone(), Duration::ZERO);
    let phase = LinkPhase::Up {
        since: Instant::now(),
        kind: wire.kind,
        description: wire.description.clone(),
    };
    let hub = Arc::new(Hub::new(
        welcome.link,
        welcome.window,
        Arc::clone(&config.budget),
        phase,
        Arc::new(Notify::new()),
    ));
    let (streams, incoming) = mpsc::channel(TUNNELS_PER_LINK);
    let source = Source::Client(Box::new(ClientSource::new(
        Arc::clone(&connector),
        hello.clone(),
        welcome.grace,
        &config,
    )));
    let lanes = Lanes::new(Arc::clone(&hub));
    if config.lanes > 1 {
        let spread = Spread {
            lanes: Arc::clone(&lanes),
            connector,
            hello,
            lane: lane_config,
            link: config.clone(),
            grace: welcome.grace,
            incoming: streams.downgrade(),
        };
        config.tasks.spawn(spread.run());
    }
    let driver = Driver::new(lane, hub, streams);
    let main = Arc::clone(&lanes);
    config.tasks.spawn(async move {
        driver.run(wire, welcome.received, source).await;
        main.main_is_over();
    });
    Ok(Connected {
        link: Link::new(lanes),
        incoming: Incoming::new(incoming),
        server_agent: welcome.agent,
    })
}

fn lane_config(config: &LinkConfig, welcome: &Welcome) -> LaneConfig {
    LaneConfig {
        side: Side::Client,
        data_max: config.data_max,
        window: config.window,
        peer_data_max: welcome.data_max,
        peer_window: welcome.window,
        streams_max: config.streams_max,
        heartbeat: welcome.heartbeat,
        heartbeat_timeout: config.heartbeat_timeout,
        budget: Arc::clone(&config.budget),
    }
}
