//! Links over real sockets through a proxy that does everything wrong: a hundred seeds. Bytes are equal, or every stream
//! fails with the link, which is lost only where its carriers were gone for longer than its grace.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test reports, and helpers outside of #[test] functions are part of it"
)]

mod proxy;
mod server;
mod talk;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use yonder_protocol::link::{CloseCode, Role, SessionName};
use yonder_transport::acceptor::NewLink;
use yonder_transport::carrier::CarrierKind;
use yonder_transport::client::{ClientHello, Connected, connect};
use yonder_transport::connect::{AuthHeader, Connector, ConnectorConfig};
use yonder_transport::link::{CloseReason, Incoming, LinkConfig};
use yonder_transport::tls::TlsOptions;
use yonder_transport::token::SecretToken;

use proxy::FaultyProxy;
use server::Server;
use talk::{Outcome, Talk, answer, ask};

const SEEDS: u64 = 100;

/// Runs this one alone.
const SEED: &str = "YONDER_SEED";

/// Runs at once. They mostly wait.
const AT_ONCE: usize = 25;

/// No run takes longer on a busy machine, whatever happens in it.
const PATIENCE: Duration = Duration::from_mins(2);

/// One seed in so many loses its network for good.
const DOOMED: u64 = 10;

/// Streams that each half opens.
const STREAMS: usize = 4;

fn scaled(mut config: LinkConfig, grace: Duration) -> LinkConfig {
    config.heartbeat = Duration::from_millis(500);
    config.heartbeat_timeout = Duration::from_secs(1);
    config.handshake_timeout = Duration::from_secs(2);
    config.backoff_max = Duration::from_millis(300);
    config.grace = grace;
    config
}

async fn reached(connector: Arc<Connector>, config: &LinkConfig) -> Connected {
    loop {
        let hello = ClientHello {
            role: Role::Tunnels,
            session: SessionName::default(),
        };
        match connect(Arc::clone(&connector) as _, hello, config.clone()).await {
            Ok(connected) => return connected,
            Err(error) => {
                assert!(!error.is_refused(), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Has the talks that the other half opens, until the link is over.
async fn answer_all(mut incoming: Incoming, outcomes: mpsc::Sender<Outcome>) {
    let mut talks = JoinSet::new();
    while let Some(next) = incoming.next().await {
        let outcomes = outcomes.clone();
        talks.spawn(async move {
            let outcome = answer(next.stream).await;
            outcomes.send(outcome).await.unwrap();
        });
    }
    talks.join_all().await;
}

/// Runs one seed. Returns whether its link was lost.
async fn run(seed: u64) -> bool {
    let mut random = StdRng::seed_from_u64(seed);
    let doomed = seed % DOOMED == DOOMED - 1;
    let grace = if doomed {
        Duration::from_millis(1_500)
    } else {
        PATIENCE
    };
    let desktop = scaled(LinkConfig::desktop("desktop"), grace);
    let server_config = scaled(LinkConfig::server("server"), grace);
    let mut server = Server::start(server_config.clone()).await;
    let proxy = FaultyProxy::before(server.address, seed).await;
    let force = [Some(CarrierKind::WebSocket), Some(CarrierKind::Poll), None];
    let connector = Connector::new(ConnectorConfig {
        address: format!("http://{}/", proxy.address).parse().unwrap(),
        token: SecretToken::new("a-token-for-tests").unwrap(),
        tls: TlsOptions::default(),
        headers: Vec::new(),
        auth_header: AuthHeader::default(),
        force: force[random.random_range(0..force.len())],
    });
    let connected = reached(Arc::new(connector.unwrap()), &desktop).await;
    let id = connected.link.id();
    let new = loop {
        // A client whose first carrier was cut within the greeting leaves a link behind, which ends by its grace.
        let new: NewLink = server.links.recv().await.unwrap();
        if new.link.id() == id {
            break new;
        }
        new.link.close(CloseCode::Detached, "nobody is there");
    };
    server.links.close();

    let mut asks = JoinSet::new();
    for number in 0..2 * STREAMS {
        let link = [&connected.link, &new.link][number % 2].clone();
        let most = [200, 50_000, 800_000][random.random_range(0..3)];
        let talk = Talk {
            key: seed * 1_000 + number as u64,
            up: random.random_range(0..=most),
            down: random.random_range(0..=most),
        };
        asks.spawn(ask(link, talk));
    }
    let (sender, mut answered) = mpsc::channel(2 * STREAMS);
    let mut answers = JoinSet::new();
    answers.spawn(answer_all(connected.incoming, sender.clone()));
    answers.spawn(answer_all(new.incoming, sender));
    if doomed {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
        proxy.go_down();
    }
    let mut outcomes = asks.join_all().await;
    if doomed {
        for reason in [connected.link.closed().await, new.link.closed().await] {
            assert!(matches!(reason, CloseReason::Lost(_)), "{reason}");
        }
    }
    while let Some(outcome) = answered.recv().await {
        outcomes.push(outcome);
        if outcomes.len() == 4 * STREAMS {
            // The farewell of one alone may be lost as well.
            connected.link.close(CloseCode::Detached, "done");
            new.link.close(CloseCode::Detached, "done");
        }
    }
    answers.join_all().await;
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(
        doomed || failed == 0,
        "streams failed with a link that had a network"
    );
    drop((connected.link, new.link));
    for config in [desktop, server_config] {
        config.tasks.close();
        config.tasks.wait().await;
        assert_eq!(config.budget.used(), 0, "a budget leaks");
    }
    assert_eq!(server.acceptor.links(), 0);
    failed > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_faulty_proxies_lose_and_repeat_nothing() {
    let seeds = match std::env::var(SEED) {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut runs = JoinSet::new();
    for seed in seeds {
        let room = Arc::clone(&room);
        runs.spawn(async move {
            let _permit = room.acquire().await;
            let run = tokio::time::timeout(PATIENCE, run(seed));
            let run = std::panic::AssertUnwindSafe(run).catch_unwind().await;
            (seed, run)
        });
    }
    let mut lost = 0;
    while let Some(run) = runs.join_next().await {
        match run.unwrap() {
            (_, Ok(Ok(failed))) => lost += u64::from(failed),
            (seed, Ok(Err(_))) => panic!("{SEED}={seed} hangs"),
            (seed, Err(_)) => panic!("{SEED}={seed} fails; its own message is above"),
        }
    }
    assert!(lost <= SEEDS / DOOMED, "{lost} links were lost");
}
