//! The link as a command needs it: got once with a clear answer, then kept, and got again for as long as it takes.
//!
//! The transport itself replaces carriers that die, and tunnels survive that. What this module adds is what happens
//! when the link is gone for good (the server half restarted, the grace ended): everything open is lost, a new link is
//! made, and the status line says so.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use yonder_protocol::link::{CloseCode, Role, SessionName};
use yonder_transport::carrier::Connect;
use yonder_transport::client::{self, ClientHello, Connected, LinkError};
use yonder_transport::link::{CloseReason, Incoming, Link, LinkConfig, LinkPhase};

use crate::backoff::Backoff;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::tunnels::Tunnels;
use crate::way::Way;

/// How long closing may take: the server half is told, and does not have to answer.
const CLOSE_LIMIT: Duration = Duration::from_millis(1_500);

/// How often the status line on a terminal is brought up to date.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// A link that lasted this long was a good one: the next is tried for at once. After shorter ones the waits go on
/// growing, so that a server half which drops every link is not run over.
const SETTLED: Duration = Duration::from_secs(2);

/// What this half calls itself in the server half's status.
const AGENT: &str = concat!("tunnel-desktop/", env!("CARGO_PKG_VERSION"));

/// Where the current link is published; `None` while there is none.
pub(crate) type Links = watch::Sender<Option<Link>>;

/// A place for the links to come, and the tunnels over them.
pub(crate) fn links() -> (Links, Tunnels) {
    let (links, watched) = watch::channel(None);
    (links, Tunnels::new(watched))
}

/// How a link is asked for.
#[derive(Clone)]
pub(crate) struct Attach {
    /// The server half's address, for messages.
    pub(crate) server: String,
    /// The way to it.
    pub(crate) connector: Arc<dyn Connect>,
    /// Whether a person may be asked on the way, at the terminal.
    pub(crate) prompts: bool,
    /// What for.
    pub(crate) role: Role,
    /// The browser session.
    pub(crate) session: SessionName,
    /// Where the status is shown.
    pub(crate) console: Console,
}

/// A link that is kept.
pub(crate) struct Attachment {
    current: watch::Receiver<Option<Link>>,
    /// The one task that keeps the link.
    keeper: JoinSet<Result<(), Failure>>,
}

/// Each new link with the streams that the server half opens on it. Dropped, those are refused.
pub(crate) type Fresh = mpsc::Receiver<(Link, Incoming)>;

/// Asks the server half, once, whether it would have us.
///
/// # Errors
/// What stands in the way, with its exit code.
pub(crate) async fn probe(way: &Way) -> Result<(), Failure> {
    way.probe().await.map_err(|error| failure(&error.into()))
}

/// Gets a link, once.
///
/// Cancel safe.
///
/// # Errors
/// As the transport tells them.
pub(crate) async fn connect(
    connector: Arc<dyn Connect>,
    role: Role,
    session: SessionName,
) -> Result<Connected, LinkError> {
    let hello = ClientHello { role, session };
    client::connect(connector, hello, LinkConfig::desktop(AGENT)).await
}

/// Tells the server half that this half is done, and waits until the link is closed.
pub(crate) async fn detach(link: &Link) {
    link.close(CloseCode::Detached, "the desktop half is done");
    // The streams are reset either way; what is missed at worst is the goodbye.
    let _ = timeout(CLOSE_LIMIT, link.closed()).await;
}

/// The failure of the first attempt, or of one that makes further attempts useless.
pub(crate) fn failure(error: &LinkError) -> Failure {
    let exit = if error.is_refused() {
        Exit::Refused
    } else if error.is_configuration() {
        Exit::Usage
    } else {
        Exit::Unreachable
    };
    // The transport's messages tell their causes themselves.
    Failure::new(exit, anyhow::anyhow!("{error}"))
}

impl Attach {
    /// A link for `role` in `session`, over `way`.
    pub(crate) fn new(way: &Way, role: Role, session: SessionName, console: &Console) -> Self {
        Self {
            server: way.address(),
            connector: way.connector(),
            prompts: way.prompts(),
            role,
            session,
            console: console.clone(),
        }
    }

    /// Gets the first link and keeps it from then on, publishing it in `links`.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// If the first attempt fails, whatever the reason: a person is there and can act on it.
    pub(crate) async fn start(self, links: Links) -> Result<(Attachment, Fresh), Failure> {
        self.console
            .begin(&format!("connecting to {}", self.server), self.prompts);
        let connected = self.connect().await.map_err(|error| failure(&error))?;
        let current = links.subscribe();
        let (hand_over, fresh) = mpsc::channel(1);
        let mut keeper = JoinSet::new();
        keeper.spawn(self.keep(connected, links, hand_over));
        Ok((Attachment { current, keeper }, fresh))
    }

    async fn connect(&self) -> Result<Connected, LinkError> {
        connect(Arc::clone(&self.connector), self.role, self.session.clone()).await
    }

    /// Keeps a link until it is closed on purpose or getting another one is useless.
    async fn keep(
        self,
        mut connected: Connected,
        links: Links,
        hand_over: mpsc::Sender<(Link, Incoming)>,
    ) -> Result<(), Failure> {
        let mut backoff = Backoff::new();
        loop {
            let Connected { link, incoming, .. } = connected;
            let since = Instant::now();
            links.send_replace(Some(link.clone()));
            let handing_over = async {
                // Nobody at the other end means that nobody wants these streams.
                let _ = hand_over.send((link.clone(), incoming)).await;
                std::future::pending().await
            };
            let reason = tokio::select! {
                reason = self.show(&link) => reason,
                reason = handing_over => reason,
            };
            links.send_replace(None);
            match &reason {
                CloseReason::Local { .. } => return Ok(()),
                _ if reason.is_replaced() => {
                    self.console.status(
                        &format!("replaced by another desktop on session {}", self.session),
                        "",
                    );
                    return Ok(());
                }
                CloseReason::Refused(_) => {
                    return Err(Failure::new(Exit::Refused, anyhow::anyhow!("{reason}")));
                }
                _ => {}
            }
            self.console
                .line(&format!("{reason}; open connections were lost"));
            let settled = since.elapsed() >= SETTLED;
            if settled {
                backoff = Backoff::new();
            }
            connected = self.again(settled, &mut backoff).await?;
        }
    }

    /// Shows the state of `link` until it is closed.
    async fn show(&self, link: &Link) -> CloseReason {
        let mut phases = link.watch();
        let mut ticks = interval(STATUS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Cloned, so that the watch is not held locked over the writing.
            let phase = phases.borrow_and_update().clone();
            match phase {
                LinkPhase::Closed(reason) => return reason,
                LinkPhase::Up { description, .. } => {
                    let headline = format!("connected to {} via {description}", self.server);
                    let detail = link.status().round_trip.map_or_else(String::new, |time| {
                        format!("round trip {:.1} ms", time.as_secs_f64() * 1e3)
                    });
                    self.console.status(&headline, &detail);
                }
                LinkPhase::Reconnecting {
                    since,
                    attempts,
                    error,
                } => {
                    let headline = format!("reconnecting to {}: {error}", self.server);
                    let detail = format!(
                        "attempt {}, for {} s",
                        attempts + 1,
                        since.elapsed().as_secs()
                    );
                    self.console.status(&headline, &detail);
                }
            }
            tokio::select! {
                changed = phases.changed() => if changed.is_err() {
                    return link.closed().await;
                },
                // Only a terminal's line shows what changes without a new phase.
                _ = ticks.tick(), if self.console.is_terminal() => {}
            }
        }
    }

    /// Gets a new link after one was lost, for as long as it takes; the first attempt is made `at_once` or after a wait.
    async fn again(&self, at_once: bool, backoff: &mut Backoff) -> Result<Connected, Failure> {
        let mut headline = format!("connecting to {} again", self.server);
        let mut wait = if at_once {
            Duration::ZERO
        } else {
            backoff.wait(None)
        };
        let mut attempt = 1_u32;
        loop {
            self.pause(&headline, attempt, wait).await;
            match self.connect().await {
                Ok(connected) => return Ok(connected),
                Err(error) if error.is_refused() || error.is_configuration() => {
                    return Err(failure(&error));
                }
                Err(error) => {
                    headline = format!("reconnecting to {}: {error}", self.server);
                    wait = backoff.wait(error.retry_after());
                    attempt = attempt.saturating_add(1);
                }
            }
        }
    }

    /// Waits, counting down on a terminal.
    async fn pause(&self, headline: &str, attempt: u32, wait: Duration) {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let detail = if left.is_zero() {
                format!("attempt {attempt}")
            } else {
                format!("attempt {attempt} in {} s", left.as_secs_f64().ceil())
            };
            self.console.status(headline, &detail);
            if left.is_zero() {
                return;
            }
            sleep(left.min(STATUS_INTERVAL)).await;
        }
    }
}

impl Attachment {
    /// Waits until there is no link and there will be none: closed on purpose, replaced by another desktop, or refused.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// If the server half refuses this half.
    pub(crate) async fn ended(&mut self) -> Result<(), Failure> {
        match self.keeper.join_next().await {
            Some(Ok(end)) => end,
            Some(Err(error)) => Err(Failure::failed(format!("keeping the link failed: {error}"))),
            // Asked again after the end was told.
            None => Ok(()),
        }
    }

    /// Closes the link, so that every socket on both halves is closed with it. Takes at most [`CLOSE_LIMIT`].
    pub(crate) async fn close(mut self) {
        self.keeper.shutdown().await;
        let link = self.current.borrow().clone();
        if let Some(link) = link {
            detach(&link).await;
        }
    }
}

#[cfg(test)]
mod tests;
