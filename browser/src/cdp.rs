//! Client for the Chrome DevTools Protocol over the debugging pipe.
//!
//! Thin on purpose: a command is a method name with serialisable parameters, an event a name with
//! parameters to read. Only fields that we use are declared where they are used, and unknown ones are
//! ignored, so that a newer browser does not break an older build. What commands mean is the business
//! of the modules that send them.
//!
//! Pages, popups and frames are all *flat sessions*: numbered conversations on the one pipe.
//!
//! # Cancel safety
//! Every call may be dropped at any time. The command may have been carried out; its reply is discarded.

mod connection;
mod events;
mod framing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(crate) use self::connection::Connection;
use self::connection::Shared;
use self::events::Subscriber;
pub(crate) use self::events::{Event, EventSink, EventStream};

/// Limit of a command that names none: far above what any takes on a loaded machine.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// Why a command has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CdpError {
    /// The browser exited or closed the pipe.
    #[error("the browser is gone")]
    Gone,
    /// The page, frame or worker was closed or crashed.
    #[error("the page was closed or crashed")]
    Detached,
    /// No reply within the limit; whether the command was carried out is unknown.
    #[error("the browser did not answer {method} in time")]
    TimedOut {
        /// The command.
        method: &'static str,
    },
    /// The browser answered with an error.
    #[error("the browser refused {method}: {message} ({code})")]
    Refused {
        /// The command.
        method: &'static str,
        /// JSON-RPC code, see the protocol's `ServerError` family.
        code: i64,
        /// The browser's words.
        message: String,
    },
    /// A message does not have the form that we expect.
    #[error("{method} has an unexpected form: {reason}")]
    Malformed {
        /// Command or event.
        method: String,
        /// What does not fit.
        reason: String,
    },
}

/// The reply of a command that answers nothing of interest.
#[derive(Debug, Deserialize)]
pub(crate) struct Ack {}

/// The parameters of a command that takes none.
#[derive(Debug, Serialize)]
pub(crate) struct NoParams {}

/// A conversation with one target: the browser itself, a page, or a frame with its own process.
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    id: Arc<str>,
    ended: CancellationToken,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.id).finish()
    }
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Command<'a, P> {
    id: u64,
    method: &'static str,
    params: &'a P,
    #[serde(skip_serializing_if = "str::is_empty")]
    session_id: &'a str,
}

impl Session {
    fn of(shared: &Arc<Shared>, id: &str) -> Self {
        let (id, ended) = shared.session(id);
        Self {
            shared: Arc::clone(shared),
            id,
            ended,
        }
    }

    /// The flat session `id`, which a `Target.attachedToTarget` event or a `Target.attachToTarget`
    /// reply named. If it has ended meanwhile, its calls answer [`CdpError::Detached`].
    pub(crate) fn flat(&self, id: &str) -> Self {
        Self::of(&self.shared, id)
    }

    /// Its id, empty for the browser's own session.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Completes when the target is closed, detached, or the browser is gone.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether [`Self::ended`] would complete at once.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Whether the browser itself is gone.
    pub(crate) fn browser_is_gone(&self) -> bool {
        self.shared.is_closed()
    }

    /// Runs a command within [`CALL_DEADLINE`].
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn call<R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl Serialize,
    ) -> Result<R, CdpError> {
        self.call_within(CALL_DEADLINE, method, params).await
    }

    /// Runs a command and waits at most `limit` for its reply, which is read as `R`
    /// ([`Ack`] if it is of no interest).
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn call_within<R: DeserializeOwned>(
        &self,
        limit: Duration,
        method: &'static str,
        params: impl Serialize,
    ) -> Result<R, CdpError> {
        let malformed = |error: serde_json::Error| CdpError::Malformed {
            method: method.to_owned(),
            reason: error.to_string(),
        };
        let (pending, reply) = self.shared.expect(&self.id, method)?;
        let mut message = serde_json::to_vec(&Command {
            id: pending.id,
            method,
            params: &params,
            session_id: &self.id,
        })
        .map_err(malformed)?;
        message.push(0);
        let exchange = async {
            // Both ends of the queue close only when the browser is gone.
            let sent = self.shared.commands.send(message).await;
            sent.map_err(|_| CdpError::Gone)?;
            reply.await.map_err(|_| CdpError::Gone)?
        };
        let result = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| CdpError::TimedOut { method })??;
        serde_json::from_str(result.get()).map_err(malformed)
    }

    /// The session's events from now on. Ask before the command that causes the event.
    pub(crate) fn events(&self) -> EventStream {
        let stream = EventStream::new(self.ended.clone());
        self.subscribe(stream.subscriber());
        stream
    }

    /// Hands every event of the session from now on to `sink`, in place of the one before.
    pub(crate) fn set_sink(&self, sink: Arc<dyn EventSink>) {
        self.shared.set_sink(&self.id, sink);
    }

    /// The browser's own session.
    pub(crate) fn root(&self) -> Self {
        Self::of(&self.shared, connection::ROOT)
    }

    fn subscribe(&self, subscriber: &Subscriber) {
        self.shared.subscribe(&self.id, subscriber);
    }
}

#[cfg(test)]
mod tests;
