//! Opens further lanes on the client's side when they help, and closes them when they do not.
//!
//! The second lane comes with the link: a stream shows that it is bulk only after it was opened, so what is small must have
//! had another lane to go to. More come when all that there are carry bulk.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use yonder_protocol::link::hello::Hello;
use yonder_protocol::link::{Lane, LaneConfig};

use super::Lanes;
use crate::carrier::Connect;
use crate::driver::{ClientSource, Driver, Source};
use crate::handshake::greet;
use crate::hub::Hub;
use crate::link::{IncomingStream, LinkConfig, LinkPhase};

/// How long all lanes must be busy before another is opened: a page of small files is over by then.
const CROWDED_FOR: Duration = Duration::from_millis(250);

/// How often unused lanes are looked for.
const RETIRE_INTERVAL: Duration = Duration::from_secs(15);

/// Further lanes that stay although they are unused.
const KEPT: usize = 1;

/// Pause after the first attempt that failed; it doubles up to [`PAUSE_MAX`]. The link works without.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// How long a path whose carriers are not to be multiplied is not asked again.
const SINGLE_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// What a further lane is made with.
pub(crate) struct Spread {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) connector: Arc<dyn Connect>,
    /// The greeting of the main lane.
    pub(crate) hello: Hello,
    pub(crate) lane: LaneConfig,
    pub(crate) link: LinkConfig,
    pub(crate) grace: Duration,
    /// Where streams go that the server half opens. Held weakly, so that their reader learns the end of the link.
    pub(crate) incoming: mpsc::WeakSender<IncomingStream>,
}

/// Why no further lane came about.
enum Failure {
    /// The path gives carriers that are not to be multiplied.
    Single,
    /// Anything else.
    Other(String),
}

impl Spread {
    /// Runs until the link is over.
    pub(crate) async fn run(mut self) {
        let mut phase = self.lanes.main().watch();
        let over = phase.wait_for(|phase| matches!(phase, LinkPhase::Closed(_)));
        tokio::pin!(over);
        tokio::select! {
            _ = &mut over => {}
            () = self.spread() => {}
        }
    }

    async fn spread(&mut self) {
        let mut pause = PAUSE_FIRST;
        let mut not_before = Instant::now();
        loop {
            self.wanted().await;
            sleep_until(not_before).await;
            match self.open().await {
                Ok(()) => pause = PAUSE_FIRST,
                Err(Failure::Single) => not_before = Instant::now() + SINGLE_AGAIN_AFTER,
                Err(Failure::Other(error)) => {
                    tracing::debug!(link = %self.hello.link, error, "no further lane");
                    not_before = Instant::now() + pause.mul_f64(rand::rng().random_range(0.5..1.0));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Waits until a further lane would help.
    async fn wanted(&self) {
        loop {
            let further = self.lanes.further();
            if further < KEPT {
                return;
            }
            tokio::select! {
                () = self.lanes.crowded.notified(), if further + 1 < self.link.lanes => {
                    sleep(CROWDED_FOR).await;
                    if self.lanes.are_all_busy() {
                        return;
                    }
                }
                () = sleep(RETIRE_INTERVAL), if further > KEPT => self.lanes.retire(KEPT),
                else => self.lanes.crowded.notified().await,
            }
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        let mut phase = self.lanes.main().watch();
        let kind = match phase
            .wait_for(|phase| matches!(phase, LinkPhase::Up { .. }))
            .await
            .as_deref()
        {
            Ok(LinkPhase::Up { kind, .. }) => *kind,
            _ => return Err(Failure::Other("the link is over".to_owned())),
        };
        if !kind.is_multipliable() {
            return Err(Failure::Single);
        }
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let carrier = self.connector.connect().await.map_err(|e| other(&e))?;
        if !carrier.kind.is_multipliable() {
            return Err(Failure::Single);
        }
        let incoming = self
            .incoming
            .upgrade()
            .ok_or_else(|| other(&"nobody takes streams"))?;
        // Never used twice, also when the server half made a lane of it and its answer was lost.
        self.hello.lane += 1;
        self.hello.received = 0;
        let (wire, welcome) = greet(carrier, &self.hello, self.link.handshake_timeout)
            .await
            .map_err(|e| other(&e))?;
        let main = self.lanes.main();
        let hub = Arc::new(Hub::new(
            main.id,
            main.peer_window,
            Arc::clone(&self.link.budget),
            LinkPhase::Up {
                since: Instant::now(),
                kind: wire.kind,
                description: wire.description.clone(),
            },
            main.crowded(),
        ));
        tracing::debug!(link = %hub.id, lane = self.hello.lane, "a further lane is up");
        self.lanes.add(Arc::clone(&hub));
        let source = Source::Client(Box::new(ClientSource::new(
            Arc::clone(&self.connector),
            self.hello.clone(),
            self.grace,
            &self.link,
        )));
        let lane = Lane::new(self.lane.clone(), Duration::ZERO);
        let driver = Driver::new(lane, Arc::clone(&hub), incoming);
        let lanes = Arc::clone(&self.lanes);
        self.link.tasks.spawn(async move {
            driver.run(wire, welcome.received, source).await;
            lanes.remove(&hub);
        });
        Ok(())
    }
}
