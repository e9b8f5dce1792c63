//! One desktop half attached by the RPC: its pending commands and its tunnels.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use uuid::Uuid;
use yonder_protocol::call::{Command, Outcome};
use yonder_protocol::{ErrorCode, OperationError, limits};

use super::RpcError;
use super::request::BASE64;
use super::tunnel::Tunnel;
use crate::hub::events::{Event, Events};

/// What a command ends with.
pub(super) type Completed = (Outcome, Vec<Bytes>);

struct Pending {
    /// As `command` answers it.
    described: Value,
    answer: oneshot::Sender<Completed>,
}

#[derive(Default)]
struct State {
    closed: bool,
    pending: HashMap<String, Pending>,
    tunnels: HashMap<String, Arc<Tunnel>>,
    /// Tunnels that are there or being dialled.
    places: usize,
}

/// A desktop half attached by the RPC.
pub(crate) struct RpcAttachment {
    connection: String,
    events: Events,
    state: Mutex<State>,
}

impl fmt::Debug for RpcAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcAttachment")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

impl RpcAttachment {
    pub(super) fn new(connection: &str, events: Events) -> Self {
        Self {
            connection: connection.to_owned(),
            events,
            state: Mutex::default(),
        }
    }

    /// The id that the desktop half chose for the attachment.
    pub(crate) fn connection(&self) -> &str {
        &self.connection
    }

    /// Open tunnels.
    pub(crate) fn tunnels(&self) -> usize {
        self.lock().tunnels.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete when a guard is dropped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces `command` and waits for its result. Dropping the future announces that nobody waits any more.
    pub(crate) async fn call(
        &self,
        command: &Command,
        files: &[Bytes],
    ) -> Result<Completed, OperationError> {
        let request = Uuid::new_v4().to_string();
        let (answer, answered) = oneshot::channel();
        let described = describe(command, files);
        self.lock()
            .pending
            .insert(request.clone(), Pending { described, answer });
        let _waiting = Waiting {
            attachment: self,
            request: &request,
        };
        self.events.send(Event::Command {
            connection: self.connection.clone(),
            request: request.clone(),
        });
        answered.await.map_err(|_| {
            OperationError::new(
                ErrorCode::Disconnected,
                "the desktop left; whether the browser acted is unknown: look at the page before repeating",
            )
        })
    }

    /// A pending command, which may be read any number of times.
    pub(super) fn command(&self, request: &str) -> Result<Value, RpcError> {
        self.lock()
            .pending
            .get(request)
            .map(|pending| pending.described.clone())
            .ok_or_else(|| {
                RpcError::unavailable(format!(
                    "no command {request} is pending; it ended or was cancelled"
                ))
            })
    }

    /// Ends a command; one that nobody waits for is ignored.
    pub(super) fn complete(&self, request: &str, completed: Completed) {
        if let Some(pending) = self.lock().pending.remove(request) {
            // The caller may have left in this very moment.
            let _ = pending.answer.send(completed);
        }
    }

    /// Room for one more tunnel.
    pub(super) fn reserve(self: &Arc<Self>, server: Arc<Semaphore>) -> Result<Place, RpcError> {
        let permit = server.try_acquire_owned().map_err(|_| {
            RpcError::unavailable(format!(
                "the server half holds {} tunnels, as many as it may",
                limits::TUNNELS_PER_SERVER
            ))
        })?;
        let mut state = self.lock();
        if state.places >= limits::TUNNELS_PER_LINK {
            return Err(RpcError::unavailable(format!(
                "this desktop holds {} tunnels, as many as it may; close some",
                limits::TUNNELS_PER_LINK
            )));
        }
        state.places += 1;
        Ok(Place {
            attachment: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Takes a tunnel in and names it.
    pub(super) fn insert(&self, tunnel: Tunnel) -> Result<String, RpcError> {
        let id = Uuid::new_v4().to_string();
        let tunnel = Arc::new(tunnel);
        {
            let mut state = self.lock();
            if !state.closed {
                state.tunnels.insert(id.clone(), tunnel);
                return Ok(id);
            }
        }
        Err(RpcError::unavailable(
            "the attachment ended while the target was dialled",
        ))
    }

    pub(super) fn tunnel(&self, id: &str) -> Result<Arc<Tunnel>, RpcError> {
        self.lock()
            .tunnels
            .get(id)
            .cloned()
            .ok_or_else(|| RpcError::unavailable(format!("there is no tunnel {id}; it was closed")))
    }

    /// Closes a tunnel; one that is not there is no error.
    pub(super) fn close_tunnel(&self, id: &str) {
        let tunnel = self.lock().tunnels.remove(id);
        if let Some(tunnel) = tunnel {
            tunnel.close();
        }
    }

    /// Closes the tunnel when the answer is dropped armed.
    pub(super) fn closing<'a>(&'a self, id: &'a str) -> Closing<'a> {
        Closing {
            attachment: self,
            id: Some(id),
        }
    }

    /// Ends every command and every tunnel.
    pub(super) fn close(&self) {
        let (tunnels, pending) = {
            let mut state = self.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.tunnels),
                std::mem::take(&mut state.pending),
            )
        };
        drop(pending);
        for tunnel in tunnels.into_values() {
            tunnel.close();
        }
    }
}

/// A tunnel's share of the limits. It is given back outside any lock of the attachment.
pub(super) struct Place {
    attachment: Arc<RpcAttachment>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.attachment.lock().places -= 1;
    }
}

/// See [`RpcAttachment::closing`].
pub(super) struct Closing<'a> {
    attachment: &'a RpcAttachment,
    id: Option<&'a str>,
}

impl Closing<'_> {
    pub(super) fn disarm(&mut self) {
        self.id = None;
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.attachment.close_tunnel(id);
        }
    }
}

/// A caller that waits for a command.
struct Waiting<'a> {
    attachment: &'a RpcAttachment,
    request: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self
            .attachment
            .lock()
            .pending
            .remove(self.request)
            .is_some()
        {
            self.attachment.events.send(Event::Cancel {
                connection: self.attachment.connection.clone(),
                request: self.request.to_owned(),
            });
        }
    }
}

/// A command in the words of the RPC.
fn describe(command: &Command, files: &[Bytes]) -> Value {
    let Command::Operation {
        name,
        input,
        generation,
        files: heads,
    } = command
    else {
        return Value::Null;
    };
    let mut action = input.as_object().cloned().unwrap_or_default();
    action.insert("type".to_owned(), Value::from(name.as_str()));
    let files: Vec<_> = heads
        .iter()
        .zip(files)
        .map(|(head, bytes)| json!({"name": head.name, "mime": head.mime, "data": BASE64.encode(bytes)}))
        .collect();
    let mut described = json!({"action": action, "files": files});
    if let Some(generation) = generation {
        described["generation"] = Value::from(*generation);
    }
    described
}
