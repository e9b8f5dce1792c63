//! The two tasks at the pipe and the table that leads replies and events to those who wait.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::events::{Event, EventSink, Subscriber};
use super::framing::Messages;
use super::{CdpError, Session};

/// Commands that wait for the pipe. Chromium reads it at once; a full queue makes callers wait.
const QUEUE_COMMANDS: usize = 256;

/// Chromium's answer for a session that it does not know (any more).
const SESSION_NOT_FOUND: i64 = -32_001;

/// Name of the root session in the table.
pub(super) const ROOT: &str = "";

/// A reply on its way to the caller.
pub(super) type Reply = Result<Box<RawValue>, CdpError>;

/// The open pipe. Dropping it closes the pipe, upon which Chromium exits.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    _reader: AbortOnDropHandle<()>,
    _writer: AbortOnDropHandle<()>,
}

impl Connection {
    /// Speaks over `input` (what Chromium writes) and `output` (what it reads).
    pub(crate) fn open<R, W>(input: R, output: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (commands, queue) = mpsc::channel(QUEUE_COMMANDS);
        let shared = Arc::new(Shared::new(commands));
        let tasks = tokio_util::task::TaskTracker::new();
        let reader = tasks.spawn(read(input, Arc::clone(&shared)));
        let writer = tasks.spawn(write(output, queue, Arc::clone(&shared)));
        Self {
            shared,
            _reader: AbortOnDropHandle::new(reader),
            _writer: AbortOnDropHandle::new(writer),
        }
    }

    /// The session of the browser itself.
    pub(crate) fn root(&self) -> Session {
        Session::of(&self.shared, ROOT)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.close();
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut queue: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    while let Some(command) = queue.recv().await {
        if let Err(error) = output.write_all(&command).await {
            debug!(%error, "the browser stopped reading the debugging pipe");
            shared.close();
            return;
        }
    }
}

async fn read<R: AsyncRead + Unpin>(mut input: R, shared: Arc<Shared>) {
    let mut messages = Messages::default();
    loop {
        loop {
            match messages.next() {
                Ok(Some(message)) => shared.dispatch(&message),
                Ok(None) => break,
                Err(error) => {
                    warn!(%error, "the debugging pipe is given up");
                    shared.close();
                    return;
                }
            }
        }
        match input.read_buf(messages.spare()).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                debug!(%error, "the debugging pipe broke");
                break;
            }
        }
    }
    shared.close();
}

/// A message of the browser: a reply if it has an id, else an event. Unknown fields are left alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Refusal>,
    #[serde(borrow)]
    session_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
    message: String,
}

/// The part of `Target.attachedToTarget` and `Target.detachedFromTarget` that routing needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionNotice<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
}

/// What callers and the tasks at the pipe share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) commands: mpsc::Sender<Vec<u8>>,
    next_id: AtomicU64,
    routes: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    closed: bool,
    waiters: HashMap<u64, Waiter>,
    sessions: HashMap<Arc<str>, Route>,
}

#[derive(Debug)]
struct Waiter {
    method: &'static str,
    session: Arc<str>,
    reply: oneshot::Sender<Reply>,
}

#[derive(Default)]
struct Route {
    parent: Option<Arc<str>>,
    ended: CancellationToken,
    subscribers: Vec<Subscriber>,
    sink: Option<Arc<dyn EventSink>>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("parent", &self.parent)
            .field("subscribers", &self.subscribers)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn new(commands: mpsc::Sender<Vec<u8>>) -> Self {
        let mut routes = Routes::default();
        routes.sessions.insert(Arc::from(ROOT), Route::default());
        Self {
            commands,
            next_id: AtomicU64::new(1),
            routes: Mutex::new(routes),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.routes().closed
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        // Every change of the table is a single insert or remove, so that it is whole even after a panic.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared name of session `id` and the token that tells its end; an unknown session has ended.
    pub(super) fn session(&self, id: &str) -> (Arc<str>, CancellationToken) {
        let routes = self.routes();
        routes.sessions.get_key_value(id).map_or_else(
            || {
                let ended = CancellationToken::new();
                ended.cancel();
                (Arc::from(id), ended)
            },
            |(id, route)| (Arc::clone(id), route.ended.clone()),
        )
    }

    /// Lets `subscriber` have the events of session `id`.
    pub(super) fn subscribe(&self, id: &str, subscriber: &Subscriber) {
        if let Some(route) = self.routes().sessions.get_mut(id) {
            route.subscribers.push(subscriber.clone());
        }
    }

    /// Lets `sink` have the events of session `id`.
    pub(super) fn set_sink(&self, id: &str, sink: Arc<dyn EventSink>) {
        if let Some(route) = self.routes().sessions.get_mut(id) {
            route.sink = Some(sink);
        }
    }

    /// Enters a call into the table. The guard takes it out again.
    pub(super) fn expect(
        self: &Arc<Self>,
        session: &Arc<str>,
        method: &'static str,
    ) -> Result<(Pending, oneshot::Receiver<Reply>), CdpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (reply, receiver) = oneshot::channel();
        let mut routes = self.routes();
        if routes.closed {
            return Err(CdpError::Gone);
        }
        if !routes.sessions.contains_key(session) {
            return Err(CdpError::Detached);
        }
        let waiter = Waiter {
            method,
            session: Arc::clone(session),
            reply,
        };
        routes.waiters.insert(id, waiter);
        let pending = Pending {
            shared: Arc::clone(self),
            id,
        };
        Ok((pending, receiver))
    }

    fn dispatch(&self, message: &[u8]) {
        let incoming: Incoming<'_> = match serde_json::from_slice(message) {
            Ok(incoming) => incoming,
            Err(error) => {
                warn!(%error, "the browser sent a message that is not understood");
                return;
            }
        };
        if let Some(id) = incoming.id {
            self.answer(id, &incoming);
        } else if let Some(method) = incoming.method {
            let session = incoming.session_id.as_deref().unwrap_or(ROOT);
            self.report(session, method.into_owned(), incoming.params);
        }
    }

    fn answer(&self, id: u64, incoming: &Incoming<'_>) {
        // A caller that gave up has taken its entry out: the reply has no reader.
        let Some(waiter) = self.routes().waiters.remove(&id) else {
            return;
        };
        let reply = match (&incoming.error, incoming.result) {
            (Some(refusal), _) if refusal.code == SESSION_NOT_FOUND => Err(CdpError::Detached),
            (Some(refusal), _) => Err(CdpError::Refused {
                method: waiter.method,
                code: refusal.code,
                message: refusal.message.clone(),
            }),
            (None, Some(result)) => Ok(result.to_owned()),
            (None, None) => Err(CdpError::Malformed {
                method: waiter.method.to_owned(),
                reason: "the reply holds neither a result nor an error".to_owned(),
            }),
        };
        // The caller may have gone between the two lines: nobody is left to tell.
        let _ = waiter.reply.send(reply);
    }

    fn report(&self, session: &str, method: String, params: Option<&RawValue>) {
        let notice = |params: Option<&RawValue>| {
            let notice: SessionNotice<'_> = serde_json::from_str(params?.get()).ok()?;
            // The root session is nobody's child.
            (*notice.session_id != *ROOT).then(|| Arc::<str>::from(&*notice.session_id))
        };
        let mut routes = self.routes();
        let Some((session, _)) = routes.sessions.get_key_value(session) else {
            return;
        };
        let session = Arc::clone(session);
        // A new session is known before anybody hears of it.
        if method == "Target.attachedToTarget"
            && let Some(child) = notice(params)
        {
            let route = routes.sessions.entry(child).or_default();
            route.parent = Some(Arc::clone(&session));
        }
        let event = Arc::new(Event {
            method,
            session: Arc::clone(&session),
            params: params.map(ToOwned::to_owned),
        });
        let mut sink = None;
        if let Some(route) = routes.sessions.get_mut(&session) {
            route
                .subscribers
                .retain(|subscriber| subscriber.offer(&event));
            sink.clone_from(&route.sink);
        }
        match event.method.as_str() {
            "Target.detachedFromTarget" => {
                if let Some(child) = notice(params) {
                    routes.end(&child);
                }
            }
            // Calls under way in a crashed renderer get no reply; later ones may revive it.
            "Inspector.targetCrashed" => routes.fail(&session),
            _ => {}
        }
        drop(routes);
        if let Some(sink) = sink {
            sink.take(&event);
        }
    }

    /// Ends every session: the browser is gone.
    pub(super) fn close(&self) {
        let mut routes = self.routes();
        routes.closed = true;
        for (_, waiter) in routes.waiters.drain() {
            // A caller that went at the same time needs no answer.
            let _ = waiter.reply.send(Err(CdpError::Gone));
        }
        for (_, route) in routes.sessions.drain() {
            route.ended.cancel();
        }
    }
}

impl Routes {
    /// Ends `session` and the sessions attached through it.
    fn end(&mut self, session: &Arc<str>) {
        let Some(route) = self.sessions.remove(session) else {
            return;
        };
        self.fail(session);
        route.ended.cancel();
        let children: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, route)| route.parent.as_ref() == Some(session))
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for child in children {
            self.end(&child);
        }
    }

    /// Fails the calls that wait for `session`.
    fn fail(&mut self, session: &Arc<str>) {
        for (_, waiter) in self
            .waiters
            .extract_if(|_, waiter| waiter.session == *session)
        {
            // A caller that went at the same time needs no answer.
            let _ = waiter.reply.send(Err(CdpError::Detached));
        }
    }
}

/// A call in the table. Dropping it takes the call out, so that a cancelled caller leaves nothing behind.
#[derive(Debug)]
pub(super) struct Pending {
    shared: Arc<Shared>,
    pub(super) id: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared.routes().waiters.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_message_of_the_browser_upsets_the_table(
            messages in prop::collection::vec(
                prop_oneof![
                    any::<Vec<u8>>(),
                    "\\{\"(id|method|params|sessionId|result|error)\":[0-9\"{}a-z:,]{0,20}\\}".prop_map(String::into_bytes),
                    ("(Target\\.(attached|detached)(To|From)Target|Inspector\\.targetCrashed)", "[ab]?", "[abc]?").prop_map(
                        |(method, session, child)| format!(
                            r#"{{"method":"{method}","sessionId":"{session}","params":{{"sessionId":"{child}"}}}}"#
                        ).into_bytes()
                    ),
                ],
                0..30,
            ),
        ) {
            let (commands, _queue) = mpsc::channel(1);
            let shared = Arc::new(Shared::new(commands));
            for message in messages {
                shared.dispatch(&message);
            }
            let root: Arc<str> = Arc::from(ROOT);
            prop_assert!(shared.expect(&root, "A.b").is_ok());
            shared.close();
            prop_assert!(shared.expect(&root, "A.b").is_err());
        }
    }
}
