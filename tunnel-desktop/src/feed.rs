//! Tells the server half which tabs there are, whenever that changes.
//!
//! Notices go out one after the other, each with the newest inventory, so a burst of changes costs two notices and
//! an older one can never overtake a newer one. An operation's outcome waits for the inventory that it brought
//! about ([`Flush::flush`]), because the caller may name a tab of it in the next breath.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use yonder_protocol::call::{Notice, Outcome};
use yonder_protocol::limits;
use yonder_protocol::operation::types::State;
use yonder_transport::link::Link;
use yonder_transport::message::{self, MessageError};

/// A notice may have to sit out the loss of a carrier; after the grace the link is gone anyway.
const NOTICE_LIMIT: Duration = limits::RESUME_GRACE.saturating_add(limits::HANDSHAKE_TIMEOUT);

/// Pause after the server half refused a notice, so that a disagreement does not become a flood.
const RETRY: Duration = Duration::from_secs(1);

/// Asks the feed to catch up.
#[derive(Clone, Debug)]
pub(crate) struct Flush(mpsc::Sender<oneshot::Sender<()>>);

impl Flush {
    /// Waits until the server half knows the inventory as it is at this moment, or cannot be told.
    ///
    /// Cancel safe.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        // Where the feed is gone the link is, and nobody waits for the outcome either.
        if self.0.send(done).await.is_ok() {
            let _ = wait.await;
        }
    }
}

/// The feed of one link: who may ask it to catch up, and the work itself.
#[derive(Debug)]
pub(crate) struct Feed {
    link: Link,
    state: watch::Receiver<State>,
    requests: mpsc::Receiver<oneshot::Sender<()>>,
}

/// Why a notice did not arrive.
#[derive(Debug, thiserror::Error)]
enum NoticeError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("the stream of the notice failed: {0}")]
    Stream(#[from] std::io::Error),
    #[error("no stream for the notice: {0}")]
    Open(#[from] yonder_protocol::TunnelError),
    #[error("the server half refused it: {0}")]
    Refused(String),
    #[error("no answer within {} s", NOTICE_LIMIT.as_secs())]
    TimedOut,
}

impl Feed {
    /// A feed of `state` over `link`. The first notice goes out as soon as it runs: a new link knows nothing.
    pub(crate) fn new(link: Link, state: watch::Receiver<State>) -> (Flush, Self) {
        let (flush, requests) = mpsc::channel(limits::CALLS_PER_LINK);
        let feed = Self {
            link,
            state,
            requests,
        };
        (Flush(flush), feed)
    }

    /// Feeds until the session or everybody who could ask is gone.
    pub(crate) async fn run(mut self) {
        let mut behind = true;
        let mut waiting = Vec::new();
        loop {
            if !behind {
                tokio::select! {
                    changed = self.state.changed() => match changed {
                        Ok(()) => behind = true,
                        Err(_) => return,
                    },
                    request = self.requests.recv() => match request {
                        Some(request) => waiting.push(request),
                        None => return,
                    },
                }
            }
            while let Ok(request) = self.requests.try_recv() {
                waiting.push(request);
            }
            let mut failed = false;
            if behind || self.state.has_changed().unwrap_or(false) {
                let state = self.state.borrow_and_update().clone();
                let told = tokio::time::timeout(NOTICE_LIMIT, tell(&self.link, state)).await;
                match told.unwrap_or(Err(NoticeError::TimedOut)) {
                    Ok(()) => behind = false,
                    Err(error) => {
                        tracing::warn!(%error, "could not tell the server half about the tabs");
                        behind = true;
                        failed = true;
                    }
                }
            }
            for request in waiting.drain(..) {
                // A caller that was cancelled meanwhile does not listen.
                let _ = request.send(());
            }
            if failed {
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Sends one notice and waits for its answer.
async fn tell(link: &Link, state: State) -> Result<(), NoticeError> {
    let mut stream = link.open_call()?;
    message::write_message(&mut stream, &Notice::State { state }, &[]).await?;
    stream.shutdown().await?;
    match message::read_message::<_, Outcome>(&mut stream).await?.0 {
        Outcome::Success { .. } => Ok(()),
        Outcome::Failure { error } => Err(NoticeError::Refused(error.message)),
    }
}
