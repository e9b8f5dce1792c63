//! The listener and the handle by which the desktop half governs it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use yonder_protocol::{Target, TunnelError};

use crate::answer::TOO_MANY_CONNECTIONS;
use crate::config::ProxyConfig;
use crate::connection::{Core, Shared, serve};
use crate::credential::{Credential, Sessions};
use crate::dial::Dial;
use crate::limits::{ACCEPT_PAUSE, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, POOL_SWEEP};
use crate::pool::Pool;
use crate::reach::Reach;

/// A proxy that is listening. Dropping it cuts every connection; [`close`](Self::close) also waits for that.
#[derive(Debug)]
pub struct Proxy {
    core: Arc<Core>,
    address: SocketAddr,
    stop: DropGuard,
    tasks: TaskTracker,
}

impl Proxy {
    /// Listens as `config` says and serves what comes through `dial`. No session may use the proxy yet.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or ([`io::ErrorKind::InvalidInput`]) the realm cannot be
    /// written into a header.
    pub async fn start<D: Dial>(config: ProxyConfig, dial: D) -> io::Result<Self> {
        let printable = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if !config.realm.bytes().all(printable) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the realm may hold visible ASCII and spaces only, without quote and backslash",
            ));
        }
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let core = Arc::new(Core {
            config,
            sessions: Sessions::default(),
            reach: Reach::default(),
            unauthenticated: watch::Sender::new(0),
            sweep: Notify::new(),
        });
        let shared = Arc::new(Shared {
            core: Arc::clone(&core),
            dial,
            pool: Pool::new(),
        });
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(sweep(Arc::clone(&shared))),
        );
        tasks.spawn(stop.clone().run_until_cancelled_owned(accept(
            listener,
            shared,
            tasks.clone(),
            stop.clone(),
        )));
        Ok(Self {
            core,
            address,
            stop: stop.drop_guard(),
            tasks,
        })
    }

    /// The address that it listens on, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Lets the browser session `name` use the proxy. If it could already, its former credential and its
    /// connections end.
    pub fn add_session(&self, name: &str) -> Credential {
        let credential = self.core.sessions.add(name);
        self.core.sweep.notify_one();
        credential
    }

    /// Forgets the credential of `name` and cuts its connections.
    pub fn remove_session(&self, name: &str) {
        if self.core.sessions.remove(name) {
            self.core.sweep.notify_one();
        }
    }

    /// How many requests got 403 for want of a credential. On Chromium's port a rise means that
    /// the browser has lost its credential and must be primed again.
    pub fn unauthenticated(&self) -> watch::Receiver<u64> {
        self.core.unauthenticated.subscribe()
    }

    /// Why `target` could not be reached, if that is the last that was heard of it within half a minute.
    pub fn last_failure(&self, target: &Target) -> Option<TunnelError> {
        self.core.reach.last_failure(target)
    }

    /// [`Self::last_failure`] for somebody who does not hold the proxy; it may outlive it.
    pub fn failures(&self) -> impl Fn(&Target) -> Option<TunnelError> + Send + Sync + 'static {
        let core = Arc::clone(&self.core);
        move |target| core.reach.last_failure(target)
    }

    /// Stops listening, cuts every connection and waits until all are gone. Further calls only wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting, nothing else.
    pub async fn close(&self) {
        self.stop.token().cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Accepts connections for ever. It awaits nothing about a single one of them.
async fn accept<D: Dial>(
    listener: TcpListener,
    shared: Arc<Shared<D>>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(shared.core.config.connections));
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            // That connection failed before it was taken; the next one is not concerned.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                warn!(%error, "cannot accept connections for now; is the limit of open files too low?");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            turn_away(&socket);
            continue;
        };
        if let Err(error) = prepare(&socket) {
            debug!(%error, "a client went away at once");
            continue;
        }
        let serve = serve(Arc::clone(&shared), socket, stop.clone());
        tasks.spawn(async move {
            serve.await;
            drop(permit);
        });
    }
}

/// Sets what every client socket needs: no waiting for more to send, and notice of a client that vanished.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Answers a client beyond the limit as far as that is possible without waiting for it.
fn turn_away(socket: &TcpStream) {
    if let Err(error) = socket.try_write(TOO_MANY_CONNECTIONS) {
        debug!(%error, "could not tell a client that there are too many");
    }
}

/// Looks through the pool at intervals, and at once when a session was removed.
async fn sweep<D: Dial>(shared: Arc<Shared<D>>) {
    let mut ticks = interval(POOL_SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.core.sweep.notified() => {}
        }
        shared.pool.sweep();
    }
}
