//! Links from desktop halves: greeting their carriers, serving the streams that they open, and forgetting all
//! of it at once when a link is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use yonder_protocol::call::{Notice, Outcome};
use yonder_protocol::link::{LinkId, OpenKind, Role};
use yonder_protocol::{
    Builtin, ErrorCode, OperationError, Target, TunnelError, TunnelErrorCode, limits,
};
use yonder_transport::acceptor::{AcceptError, Accepted, NewLink};
use yonder_transport::carrier::Carrier;
use yonder_transport::link::{IncomingStream, Link};
use yonder_transport::message::{MessageError, read_message, write_message};
use yonder_transport::relay::{Meter, relay};
use yonder_transport::stream::Stream;

use super::sessions::{Attachment, Backend, Detached};
use super::{Hub, builtin};

/// Notices that one desktop may have under way: it sends them one after the other, so more are a fault.
const NOTICES_PER_LINK: usize = 8;

/// A notice is small; one that takes longer comes from a desktop that stopped within it.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

/// What is known of a link beyond its own figures.
#[derive(Debug)]
pub(crate) struct LinkRecord {
    pub(crate) link: Link,
    pub(crate) session: String,
    pub(crate) role: Role,
    pub(crate) agent: String,
    pub(crate) since: Instant,
    pub(crate) tunnels: AtomicUsize,
}

/// The links that exist, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Links {
    records: Mutex<HashMap<LinkId, Arc<LinkRecord>>>,
}

impl Links {
    /// Every link, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<LinkRecord>> {
        let mut all: Vec<_> = self.lock().values().cloned().collect();
        all.sort_by_key(|record| record.since);
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LinkId, Arc<LinkRecord>>> {
        // Every change is complete when a guard is dropped.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a link listed and counted while it is served.
struct Listed {
    hub: Arc<Hub>,
    record: Arc<LinkRecord>,
    attachment: Option<Arc<Attachment>>,
}

impl Listed {
    fn new(hub: Arc<Hub>, record: Arc<LinkRecord>) -> Self {
        hub.links
            .lock()
            .insert(record.link.id(), Arc::clone(&record));
        hub.metrics.links.inc();
        let attachment = (record.role == Role::Browser)
            .then(|| Attachment::new(&record.session, Backend::Link(record.link.clone())));
        if let Some(attachment) = &attachment {
            hub.sessions.attach(attachment);
        }
        Self {
            hub,
            record,
            attachment,
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(attachment) = &self.attachment {
            self.hub.sessions.detach(attachment, Detached::Gone);
        }
        self.hub.links.lock().remove(&self.record.link.id());
        self.hub.metrics.links.dec();
    }
}

impl Hub {
    /// Greets the client of `carrier`, whose credentials were checked, and serves the link that comes of it, or
    /// hands the carrier to the link that it resumes. Returns once that is settled; the link goes on by itself.
    ///
    /// Cancel safe: dropping the future drops the carrier.
    pub async fn serve_carrier(self: &Arc<Self>, carrier: Carrier) {
        let kind = carrier.kind;
        match self.acceptor.accept(carrier).await {
            Ok(Accepted::New(link)) => {
                self.metrics.carrier_accepted(kind);
                let hub = Arc::clone(self);
                self.tasks.spawn(hub.serve_link(link));
            }
            Ok(Accepted::Resumed(id)) => {
                self.metrics.carrier_accepted(kind);
                self.metrics.reconnects.inc();
                tracing::info!(link = %id, carrier = %kind, "a link goes on over a new carrier");
            }
            Ok(Accepted::Widened(id)) => {
                self.metrics.carrier_accepted(kind);
                tracing::debug!(link = %id, carrier = %kind, "a link has a further carrier");
            }
            Err(error @ AcceptError::Refused(_)) => tracing::info!(%error, "turned a carrier away"),
            Err(error) => tracing::debug!(%error, "a carrier ended before it was greeted"),
        }
    }

    async fn serve_link(self: Arc<Self>, new: NewLink) {
        let NewLink {
            link,
            mut incoming,
            role,
            session,
            agent,
        } = new;
        let id = link.id();
        tracing::info!(link = %id, %session, ?role, "a link came up");
        let record = Arc::new(LinkRecord {
            link,
            session: session.as_str().to_owned(),
            role,
            agent,
            since: Instant::now(),
            tunnels: AtomicUsize::new(0),
        });
        let listed = Listed::new(Arc::clone(&self), Arc::clone(&record));
        let notices = Arc::new(Semaphore::new(NOTICES_PER_LINK));
        let mut streams = JoinSet::new();
        let over = async {
            match &listed.attachment {
                Some(attachment) => attachment.detached().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                next = incoming.next() => match next {
                    Some(stream) => self.serve_stream(&mut streams, &record, &listed, &notices, stream),
                    None => break,
                },
                Some(ended) = streams.join_next(), if !streams.is_empty() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(%error, "a tunnel's task failed");
                    }
                }
                _ = &mut over => break,
            }
        }
        // Every socket of the link is closed before anything else is waited for.
        streams.shutdown().await;
        let reason = record.link.closed().await;
        tracing::info!(link = %id, %reason, "a link is over");
    }

    fn serve_stream(
        self: &Arc<Self>,
        streams: &mut JoinSet<()>,
        record: &Arc<LinkRecord>,
        listed: &Listed,
        notices: &Arc<Semaphore>,
        incoming: IncomingStream,
    ) {
        let IncomingStream { open, stream } = incoming;
        match (open.kind, &listed.attachment) {
            (OpenKind::Tunnel(target), _) => {
                let refused = match self.admit(record) {
                    Ok(place) => {
                        let hub = Arc::clone(self);
                        // Pages must not spend a person's line on nothing.
                        let builtin = Builtin::of(&target).filter(|_| record.role == Role::Tunnels);
                        streams.spawn(async move {
                            match builtin {
                                Some(builtin) => {
                                    stream.accept(target.to_string());
                                    let _open = hub.count_tunnel();
                                    builtin::serve(builtin, stream).await;
                                }
                                None => hub.serve_tunnel(&target, stream).await,
                            }
                            drop(place);
                        });
                        return;
                    }
                    Err(refused) => refused,
                };
                self.metrics.tunnel_failed(refused.code);
                stream.reset(refused);
            }
            (OpenKind::Call, Some(attachment)) => {
                let Ok(permit) = Arc::clone(notices).try_acquire_owned() else {
                    stream.reset(TunnelError::new(
                        TunnelErrorCode::Overloaded,
                        "too many notices are under way; send them one after the other",
                    ));
                    return;
                };
                let attachment = Arc::clone(attachment);
                streams.spawn(async move {
                    serve_notice(&attachment, stream).await;
                    drop(permit);
                });
            }
            _ => stream.reset(TunnelError::new(
                TunnelErrorCode::Internal,
                "the server half takes no such stream on this link; update both halves to the same version",
            )),
        }
    }

    /// Counts a tunnel of `record` in, if there is room.
    fn admit(self: &Arc<Self>, record: &Arc<LinkRecord>) -> Result<Place, TunnelError> {
        let permit = Arc::clone(&self.tunnels).try_acquire_owned().map_err(|_| {
            TunnelError::new(
                TunnelErrorCode::Overloaded,
                format!(
                    "the server half holds {} tunnels, as many as it may; close some",
                    limits::TUNNELS_PER_SERVER
                ),
            )
        })?;
        // Made first, so that a refused one is counted out again as it is dropped.
        let place = Place {
            record: Arc::clone(record),
            _permit: permit,
        };
        if record.tunnels.fetch_add(1, Ordering::Relaxed) >= limits::TUNNELS_PER_LINK {
            return Err(TunnelError::new(
                TunnelErrorCode::Overloaded,
                format!(
                    "this desktop holds {} tunnels, as many as it may; close some",
                    limits::TUNNELS_PER_LINK
                ),
            ));
        }
        Ok(place)
    }

    /// Dials `target` and relays until the tunnel is over. What the client sent meanwhile waits in the stream.
    async fn serve_tunnel(&self, target: &Target, mut stream: Stream) {
        let dialled = tokio::select! {
            dialled = self.dialer.dial(target) => dialled,
            _ = stream.failed() => return,
        };
        match dialled {
            Ok(socket) => {
                let reached = socket
                    .peer_addr()
                    .map_or_else(|_| target.to_string(), |address| address.to_string());
                stream.accept(reached);
                let _open = self.count_tunnel();
                let meter: Arc<dyn Meter> = Arc::clone(&self.metrics) as _;
                if let Err(error) = relay(stream, socket, "the target", meter).await {
                    tracing::debug!(%target, %error, "a tunnel was broken off");
                }
            }
            Err(error) => {
                tracing::debug!(%target, %error, "a tunnel could not be opened");
                self.metrics.tunnel_failed(error.code);
                stream.reset(error);
            }
        }
    }

    /// Counts a tunnel whose target was reached, as long as the answer lives.
    pub(crate) fn count_tunnel(&self) -> OpenTunnel<'_> {
        self.metrics.tunnels_opened.inc();
        self.metrics.tunnels_open.inc();
        OpenTunnel { hub: self }
    }
}

/// A tunnel's share of the limits.
struct Place {
    record: Arc<LinkRecord>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.record.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open tunnel in the metrics.
pub(crate) struct OpenTunnel<'a> {
    hub: &'a Hub,
}

impl Drop for OpenTunnel<'_> {
    fn drop(&mut self) {
        self.hub.metrics.tunnels_open.dec();
    }
}

/// Takes one notice of the desktop and answers it.
async fn serve_notice(attachment: &Attachment, mut stream: Stream) {
    let served = async {
        let outcome = match read_message::<_, Notice>(&mut stream).await {
            Ok((Notice::State { state }, _)) if state.tabs.len() <= limits::TABS_PER_SESSION => {
                attachment.publish(state);
                Outcome::Success {
                    value: serde_json::Value::Null,
                    files: Vec::new(),
                }
            }
            Ok((Notice::State { .. }, _)) => failure(format!(
                "a session may have {} tabs",
                limits::TABS_PER_SESSION
            )),
            Ok(_) => failure("the server half does not know this notice".to_owned()),
            Err(MessageError::Io(error)) => return Err(MessageError::Io(error)),
            Err(error) => failure(error.to_string()),
        };
        write_message(&mut stream, &outcome, &[]).await?;
        stream.shutdown().await?;
        Ok(())
    };
    match timeout(NOTICE_LIMIT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a notice could not be taken"),
        Err(_) => tracing::debug!("a notice took too long"),
    }
}

fn failure(message: String) -> Outcome {
    tracing::warn!(%message, "refused a notice of the desktop");
    Outcome::Failure {
        error: OperationError::new(ErrorCode::Invalid, message),
    }
}
