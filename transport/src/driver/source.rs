//! Where a link's next carrier comes from: the client dials, the server waits to be dialled.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use yonder_protocol::link::hello::{Answer, Hello, Refusal, Welcome};
use yonder_protocol::link::{Lane, RefusalCode};

use crate::carrier::{Carrier, CarrierKind, Connect, ConnectError};
use crate::handshake::{HandshakeError, greet, refuse};
use crate::hub::Hub;
use crate::link::{CloseReason, LinkConfig, LinkPhase};
use crate::wire::Wire;

/// Pause before the second attempt; the first is made at once. It doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);

/// How long one attempt may take where the connector's own limits do not end it.
const ATTEMPT_LIMIT: Duration = Duration::from_mins(1);

/// Carriers that are cut younger than this die of something else than their age.
const CUT_AGE_LEAST: Duration = Duration::from_secs(5);

/// Two ages that differ by no more than this share are the same limit.
const CUT_AGE_SPREAD: f64 = 0.1;

/// A carrier is replaced at this share of the age at which others were cut.
const CUT_AGE_SHARE: f64 = 0.8;

/// Where the next carrier comes from.
pub(crate) enum Source {
    Client(Box<ClientSource>),
    Server(ServerSource),
}

/// Dials.
pub(crate) struct ClientSource {
    connector: Arc<dyn Connect>,
    /// The greeting, with the link's id.
    hello: Hello,
    grace: Duration,
    handshake_timeout: Duration,
    backoff_max: Duration,
    /// Looks for a better carrier than the one that is up.
    better: Option<BoxFuture<'static, Carrier>>,
    lifetime: Lifetime,
}

/// What a path seems to allow its carriers. Some proxies cut every connection at the same age.
#[derive(Debug, Default)]
struct Lifetime {
    /// Age at which the last one was cut.
    cut: Option<Duration>,
    /// Age at which one is to be replaced.
    limit: Option<Duration>,
}

impl Lifetime {
    fn note_cut(&mut self, age: Duration) {
        if age < CUT_AGE_LEAST {
            return;
        }
        let same = self
            .cut
            .is_some_and(|last| age.abs_diff(last) <= last.mul_f64(CUT_AGE_SPREAD));
        self.limit = same.then(|| age.mul_f64(CUT_AGE_SHARE));
        self.cut = Some(age);
    }
}

/// Waits.
pub(crate) struct ServerSource {
    pub(crate) carriers: mpsc::Receiver<Resumption>,
    pub(crate) grace: Duration,
}

/// A client that came back, greeted and not yet answered.
pub(crate) struct Resumption {
    pub(crate) wire: Wire,
    /// Bytes of this half's stream that the client has.
    pub(crate) peer_received: u64,
    /// The answer, but for the offset.
    pub(crate) welcome: Welcome,
}

/// A carrier that came.
pub(crate) enum Next {
    /// Greeted both ways.
    Resumed(Wire, u64),
    /// To be answered.
    Resumption(Resumption),
}

impl Resumption {
    /// Answers, now that the old carrier is dropped and the offset final.
    pub(crate) fn welcome(mut self, lane: &Lane) -> (Wire, u64) {
        self.welcome.received = lane.received();
        self.wire.queue([Answer::Welcome(self.welcome).encode()]);
        (self.wire, self.peer_received)
    }
}

impl Source {
    pub(super) fn is_client(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// A carrier of the kind `current` is up: from now on a better one is looked for, or one to replace it in time.
    pub(super) fn carrier_up(&mut self, current: CarrierKind) {
        if let Self::Client(client) = self {
            let connector = Arc::clone(&client.connector);
            let limit = client.lifetime.limit;
            client.better = Some(Box::pin(async move {
                tokio::select! {
                    carrier = connector.improve(current) => carrier,
                    carrier = successor(&*connector, limit) => carrier,
                }
            }));
        }
    }

    /// The carrier that was up was cut at this age.
    pub(super) fn carrier_cut(&mut self, age: Duration) {
        if let Self::Client(client) = self {
            client.lifetime.note_cut(age);
        }
    }

    /// A carrier to change to; never ready on the server.
    pub(super) fn poll_better(&mut self, cx: &mut Context<'_>) -> Poll<Carrier> {
        let Self::Client(client) = self else {
            return Poll::Pending;
        };
        let Some(better) = &mut client.better else {
            return Poll::Pending;
        };
        let carrier = ready!(better.as_mut().poll(cx));
        client.better = None;
        Poll::Ready(carrier)
    }

    /// A carrier that the client replaces the current one with; never ready on the client.
    pub(super) fn poll_replacement(&mut self, cx: &mut Context<'_>) -> Poll<Resumption> {
        match self {
            Self::Client(_) => Poll::Pending,
            Self::Server(server) => match server.carriers.poll_recv(cx) {
                Poll::Ready(Some(resumption)) => Poll::Ready(resumption),
                // The acceptor is gone: this carrier is the last one.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
        }
    }

    /// Gets the next carrier after one was lost with `error`, within the grace; the client may have the `first` to try. `received` bytes of the peer's stream
    /// arrived; it may go on from `resumable` ones of this half's.
    pub(super) async fn next(
        &mut self,
        hub: &Hub,
        received: u64,
        resumable: RangeInclusive<u64>,
        error: String,
        first: Option<Carrier>,
    ) -> Result<Next, CloseReason> {
        match self {
            Self::Client(client) => client.next(hub, received, error, first).await,
            Self::Server(server) => {
                let next = timeout(server.grace, server.next(&resumable)).await;
                next.unwrap_or_else(|_| {
                    Err(CloseReason::Lost(format!(
                        "the other half did not come back within {} s",
                        server.grace.as_secs()
                    )))
                })
            }
        }
    }
}

impl ServerSource {
    async fn next(&mut self, resumable: &RangeInclusive<u64>) -> Result<Next, CloseReason> {
        while let Some(mut resumption) = self.carriers.recv().await {
            if resumable.contains(&resumption.peer_received) {
                return Ok(Next::Resumption(resumption));
            }
            // An earlier attempt that came late, or a client that mixed up its links: the link cannot go on from there.
            let text = "the link cannot go on from the byte that the greeting names";
            refuse(
                &mut resumption.wire,
                Refusal::new(RefusalCode::UnknownLink, text),
            )
            .await;
        }
        Err(CloseReason::Lost(
            "its carrier broke while the server half stops".to_owned(),
        ))
    }
}

/// A carrier that replaces one before it reaches the age `limit`.
async fn successor(connector: &dyn Connect, limit: Option<Duration>) -> Carrier {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    sleep(limit).await;
    match connector.connect().await {
        Ok(carrier) => carrier,
        // Then this one is used up to its end, and replaced after it.
        Err(error) => {
            tracing::debug!(%error, "no successor for a carrier that will be cut");
            std::future::pending().await
        }
    }
}

impl ClientSource {
    /// Dials with `connector` for the link and lane of `hello`, as `link` says.
    pub(crate) fn new(
        connector: Arc<dyn Connect>,
        hello: Hello,
        grace: Duration,
        link: &LinkConfig,
    ) -> Self {
        Self {
            connector,
            hello,
            grace,
            handshake_timeout: link.handshake_timeout,
            backoff_max: link.backoff_max,
            better: None,
            lifetime: Lifetime::default(),
        }
    }

    async fn next(
        &mut self,
        hub: &Hub,
        received: u64,
        mut error: String,
        mut first: Option<Carrier>,
    ) -> Result<Next, CloseReason> {
        self.better = None;
        let since = Instant::now();
        let deadline = since + self.grace;
        self.hello.received = received;
        let mut pause = BACKOFF_FIRST;
        let mut attempts = 0;
        loop {
            hub.set_phase(LinkPhase::Reconnecting {
                since,
                attempts,
                error: error.clone(),
            });
            let Ok(attempt) =
                timeout_at(deadline, timeout(ATTEMPT_LIMIT, self.attempt(first.take()))).await
            else {
                return Err(self.out_of_time(&error));
            };
            let retry_after = match attempt {
                Ok(Ok((wire, welcome))) => return Ok(Next::Resumed(wire, welcome.received)),
                Ok(Err(failure)) => {
                    let retry_after = failure.judge()?;
                    error = failure.to_string();
                    retry_after
                }
                Err(_) => {
                    error = format!("an attempt took longer than {} s", ATTEMPT_LIMIT.as_secs());
                    None
                }
            };
            attempts += 1;
            tracing::debug!(link = %hub.id, attempts, error, "no carrier");
            // Half of it at random, so that the desktops of a restarted server do not come in step.
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            let wait = retry_after.map_or(jittered, |asked| asked.max(jittered));
            let resume_at = Instant::now() + wait;
            if resume_at >= deadline {
                sleep_until(deadline).await;
                return Err(self.out_of_time(&error));
            }
            sleep_until(resume_at).await;
            pause = (pause * 2).min(self.backoff_max);
        }
    }

    /// One attempt to go on from `received` bytes, for whoever has no time for a second.
    pub(super) async fn once(&mut self, received: u64) -> Option<(Wire, u64)> {
        self.hello.received = received;
        let (wire, welcome) = self.attempt(None).await.ok()?;
        Some((wire, welcome.received))
    }

    async fn attempt(&mut self, carrier: Option<Carrier>) -> Result<(Wire, Welcome), AttemptError> {
        let carrier = match carrier {
            Some(carrier) => carrier,
            None => self.connector.connect().await?,
        };
        Ok(greet(carrier, &self.hello, self.handshake_timeout).await?)
    }

    fn out_of_time(&self, error: &str) -> CloseReason {
        CloseReason::Lost(format!(
            "no new carrier within {} s: {error}",
            self.grace.as_secs()
        ))
    }
}

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl AttemptError {
    /// Whether a further attempt makes sense, and what pause the server asked for.
    fn judge(&self) -> Result<Option<Duration>, CloseReason> {
        match self {
            Self::Connect(error) if error.is_refused() || error.is_configuration() => {
                Err(CloseReason::Refused(error.to_string()))
            }
            Self::Connect(error) => Ok(error.retry_after()),
            Self::Handshake(HandshakeError::Refused(refusal)) => judge_refusal(refusal),
            Self::Handshake(_) => Ok(None),
        }
    }
}

fn judge_refusal(refusal: &Refusal) -> Result<Option<Duration>, CloseReason> {
    match refusal.code {
        RefusalCode::UnknownLink | RefusalCode::Draining => {
            Err(CloseReason::Lost(refusal.text.clone()))
        }
        RefusalCode::Overloaded => Ok(None),
        _ => Err(CloseReason::Refused(refusal.text.clone())),
    }
}
