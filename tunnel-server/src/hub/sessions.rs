//! Browser sessions and the desktop half that serves each: the attachment.
//!
//! At most one attachment per session; a newer one replaces it. An attachment came over a link or by the
//! attachment RPC; both look the same from here on. What an operation is, is not known here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use yonder_protocol::call::{Command, Outcome};
use yonder_protocol::limits;
use yonder_protocol::link::CloseCode;
use yonder_protocol::operation::types::State;
use yonder_protocol::{ErrorCode, OperationError};
use yonder_transport::link::Link;
use yonder_transport::message::{read_message, write_message};

use super::rpc::RpcAttachment;
use crate::metrics::Metrics;

/// A desktop publishes its tabs right after it attached; a call that comes in between waits this long.
const STATE_WAIT: Duration = Duration::from_secs(5);

/// Why an attachment is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Detached {
    /// A newer one took the session.
    Replaced,
    /// The desktop half left or was cut off for good.
    Gone,
    /// The server half stops.
    Stopping,
}

impl Detached {
    fn error(self, session: &str) -> OperationError {
        let why = match self {
            Self::Replaced => "another desktop took the session",
            Self::Gone => "the desktop left",
            Self::Stopping => "the server is stopping",
        };
        OperationError::new(
            ErrorCode::Disconnected,
            format!(
                "{why} while session {session} was working; whether the browser acted is unknown: \
                 look at the page before repeating"
            ),
        )
    }
}

/// How an attachment's desktop half is reached.
#[derive(Debug)]
pub(crate) enum Backend {
    Link(Link),
    Rpc(Arc<RpcAttachment>),
}

/// A desktop half serving a session.
#[derive(Debug)]
pub(crate) struct Attachment {
    session: String,
    since: Instant,
    backend: Backend,
    state: watch::Sender<Option<State>>,
    calls: Semaphore,
    detached: watch::Sender<Option<Detached>>,
}

impl Attachment {
    pub(crate) fn new(session: &str, backend: Backend) -> Arc<Self> {
        Arc::new(Self {
            session: session.to_owned(),
            since: Instant::now(),
            backend,
            state: watch::Sender::new(None),
            calls: Semaphore::new(limits::CALLS_PER_LINK),
            detached: watch::Sender::new(None),
        })
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Replaces the published inventory of tabs.
    pub(crate) fn publish(&self, state: State) {
        self.state.send_replace(Some(state));
    }

    /// The published inventory, if there is one yet.
    pub(crate) fn published(&self) -> Option<State> {
        self.state.borrow().clone()
    }

    /// The published inventory; waits for the first one.
    pub(crate) async fn first_state(&self) -> Result<State, OperationError> {
        let mut state = self.state.subscribe();
        let first = timeout(STATE_WAIT, state.wait_for(Option::is_some));
        tokio::select! {
            found = first => match found {
                Ok(Ok(state)) => Ok(state.clone().unwrap_or_default()),
                Ok(Err(_)) | Err(_) => Err(OperationError::new(
                    ErrorCode::Disconnected,
                    format!("the desktop of session {} has not told its tabs yet; try again", self.session),
                )),
            },
            reason = self.detached() => Err(reason.error(&self.session)),
        }
    }

    /// Ends the attachment; the first reason counts.
    pub(crate) fn detach(&self, reason: Detached) {
        let first = self.detached.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(reason);
            first
        });
        if first && let Backend::Link(link) = &self.backend {
            match reason {
                Detached::Replaced => link.close(
                    CloseCode::Replaced,
                    format!("replaced by another desktop in session {}", self.session),
                ),
                Detached::Stopping => {
                    link.close(CloseCode::ShuttingDown, "the server half is stopping");
                }
                Detached::Gone => link.close(CloseCode::Detached, "the session was left"),
            }
        }
    }

    /// Waits until the attachment is over. Cancel safe.
    pub(crate) async fn detached(&self) -> Detached {
        let mut detached = self.detached.subscribe();
        match detached.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(Detached::Gone),
            Err(_) => Detached::Gone,
        }
    }

    /// Sends a command and waits for its outcome. Dropping the future cancels the command; a deadline is the
    /// caller's.
    ///
    /// # Errors
    /// If too many calls are under way, or the desktop half is gone or breaks the protocol.
    pub(crate) async fn call(
        &self,
        command: &Command,
        files: &[Bytes],
    ) -> Result<(Outcome, Vec<Bytes>), OperationError> {
        let Ok(_permit) = self.calls.try_acquire() else {
            return Err(OperationError::new(
                ErrorCode::Overloaded,
                format!(
                    "{} operations are under way in session {}; wait for some to end",
                    limits::CALLS_PER_LINK,
                    self.session
                ),
            ));
        };
        let answered = async {
            match &self.backend {
                Backend::Link(link) => over_link(link, command, files).await,
                Backend::Rpc(rpc) => rpc.call(command, files).await,
            }
        };
        tokio::select! {
            // A link that is closed for a reason fails its streams too; the reason tells more.
            biased;
            reason = self.detached() => Err(reason.error(&self.session)),
            answer = answered => answer,
        }
    }
}

async fn over_link(
    link: &Link,
    command: &Command,
    files: &[Bytes],
) -> Result<(Outcome, Vec<Bytes>), OperationError> {
    let gone = |error: &dyn std::fmt::Display| {
        OperationError::new(
            ErrorCode::Disconnected,
            format!(
                "{error}; whether the browser acted is unknown: look at the page before repeating"
            ),
        )
    };
    let mut stream = link.open_call().map_err(|error| gone(&error))?;
    write_message(&mut stream, command, files)
        .await
        .map_err(|error| gone(&error))?;
    stream.shutdown().await.map_err(|error| gone(&error))?;
    read_message(&mut stream)
        .await
        .map_err(|error| gone(&error))
}

/// All sessions that are served or watched.
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: Mutex<HashMap<String, Session>>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Session {
    attachment: Option<Arc<Attachment>>,
    attached: watch::Sender<bool>,
}

impl Sessions {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            sessions: Mutex::default(),
            metrics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        // Every change is complete when a guard is dropped.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `attachment` the one of its session and ends the one before.
    pub(crate) fn attach(&self, attachment: &Arc<Attachment>) {
        let before = {
            let mut sessions = self.lock();
            let session = sessions.entry(attachment.session().to_owned()).or_default();
            let before = session.attachment.replace(Arc::clone(attachment));
            session.attached.send_replace(true);
            before
        };
        match before {
            Some(before) => before.detach(Detached::Replaced),
            None => {
                self.metrics.attachments.inc();
            }
        }
        tracing::info!(session = attachment.session(), "a desktop attached");
    }

    /// Ends `attachment`, and frees its session unless a newer one has it.
    pub(crate) fn detach(&self, attachment: &Arc<Attachment>, reason: Detached) {
        attachment.detach(reason);
        let mut sessions = self.lock();
        let Some(session) = sessions.get_mut(attachment.session()) else {
            return;
        };
        let current = session
            .attachment
            .take_if(|current| Arc::ptr_eq(current, attachment));
        if current.is_some() {
            session.attached.send_replace(false);
            self.metrics.attachments.dec();
            prune(&mut sessions);
            tracing::info!(session = attachment.session(), "a desktop detached");
        }
    }

    /// The attachment of `session`.
    pub(crate) fn current(&self, session: &str) -> Option<Arc<Attachment>> {
        self.lock()
            .get(session)
            .and_then(|session| session.attachment.clone())
    }

    /// Whether a desktop is attached to `session`, now and from now on.
    pub(crate) fn watch(&self, session: &str) -> watch::Receiver<bool> {
        let mut sessions = self.lock();
        if let Some(session) = sessions.get(session) {
            return session.attached.subscribe();
        }
        prune(&mut sessions);
        sessions
            .entry(session.to_owned())
            .or_default()
            .attached
            .subscribe()
    }

    /// Every attachment, by session.
    pub(crate) fn all(&self) -> Vec<Arc<Attachment>> {
        let mut all: Vec<_> = self
            .lock()
            .values()
            .filter_map(|session| session.attachment.clone())
            .collect();
        all.sort_by(|a, b| a.session().cmp(b.session()));
        all
    }
}

/// Forgets sessions that nobody serves or watches, so that names that callers make up do not pile up.
fn prune(sessions: &mut HashMap<String, Session>) {
    sessions
        .retain(|_, session| session.attachment.is_some() || session.attached.receiver_count() > 0);
}
