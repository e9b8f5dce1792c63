//! The running server half: listeners, the tasks of their connections, and the way it stops.
//!
//! Starting is [`Server::start`], which binds and claims everything that can fail; [`Server::run`] then serves until it
//! is told to stop. Stopping takes three steps: accept nothing more, let running work finish within the grace period,
//! drop what is left.

pub mod listen;
pub mod presence;
pub mod tls;

pub(crate) mod activity;
pub(crate) mod stream;

mod connection;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yonder_transport::VERSION;

use self::listen::{InvalidListenAddress, ListenAddress, ListenError};
use self::presence::{Claim, ClaimError, Presence};
use self::tls::{ServerTls, ServerTlsError};
use crate::config::{Common, Serve};
use crate::exit::{Exit, Failure};
use crate::http::Api;
use crate::hub::upstream::{InvalidUpstream, Upstream};
use yonder_transport::link::LinkConfig;

use crate::hub::{Hub, HubConfig};
use crate::metrics::Metrics;
use crate::state_dir::StateDirError;
use crate::token::{TokenError, TokenGate};

/// HTTP connections at once: a desktop without WebSockets holds one for each of its 4,096 tunnels.
const CONNECTIONS_MAX: usize = 16 * 1024;

/// Pause after a failed accept: when descriptors have run out, trying again at once only burns time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// How often an unused server half looks whether it is used again.
const USE_CHECK: Duration = Duration::from_secs(1);

/// What closing connections may take once the work on them has ended.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A server half that is ready to serve.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    tls: Option<ServerTls>,
    url: String,
    api: Arc<Api>,
    hub: Arc<Hub>,
    grace: Duration,
    /// Tasks of carriers, which outlive the requests that brought them.
    carriers: TaskTracker,
    /// Ends them.
    cut: CancellationToken,
    _claim: Claim,
}

/// Why the server half cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// `--listen` is no address.
    #[error(transparent)]
    Listen(#[from] InvalidListenAddress),
    /// Tokens and pages would travel in the clear.
    #[error(
        "{0} is reachable from other machines and would be served without TLS; add --tls-self-signed or --tls-cert and \
         --tls-key, or --plaintext if a network or a reverse proxy protects it already"
    )]
    Exposed(ListenAddress),
    /// The address could not be had.
    #[error(transparent)]
    Bind(#[from] ListenError),
    /// Another server half runs on the state directory.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// There is no token that may be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A variable such as `HTTPS_PROXY` names no proxy.
    #[error(transparent)]
    Upstream(#[from] InvalidUpstream),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match error {
            StartError::Bind(_) => Exit::Failed,
            _ => Exit::Usage,
        };
        Self::new(exit, error)
    }
}

impl Server {
    /// Claims the state directory, reads token and certificate, and binds the address.
    ///
    /// # Errors
    /// Whatever stands in the way, with what to do about it.
    pub async fn start(common: &Common, serve: &Serve) -> Result<Self, StartError> {
        let address: ListenAddress = serve.listen.parse()?;
        if !address.is_loopback() && serve.tls == crate::config::TlsMode::Off && !serve.plaintext {
            return Err(StartError::Exposed(address));
        }
        let upstream = Upstream::from_environment()?;
        let mut claim = Claim::take(&common.state_dir).await?;
        let gate = TokenGate::open(&common.token)?;
        let tls = ServerTls::open(&serve.tls, &common.state_dir)?;
        let listeners = address.bind()?;
        let port = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok())
            .map_or(0, |address| address.port());
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = |authority: String| format!("{scheme}://{authority}{}", serve.path_prefix);
        claim.announce(&Presence {
            pid: std::process::id(),
            url: url(address.local_authority(port)),
            pin: tls.as_ref().map(|tls| tls.pin.to_string()),
            version: VERSION.to_owned(),
            background: serve.background,
        })?;
        let metrics = Arc::new(Metrics::new());
        let defaults = HubConfig::new(metrics.clone());
        let hub = Hub::new(HubConfig {
            egress: serve.egress.clone(),
            upstream,
            capture_dir: Some(serve.capture_dir.clone()),
            upload_roots: serve.upload_roots.clone(),
            link: LinkConfig {
                grace: serve.resume_grace,
                ..defaults.link
            },
            metrics: defaults.metrics,
        });
        let carriers = TaskTracker::new();
        let cut = CancellationToken::new();
        let api = Api::new(
            gate,
            serve.allow_origin.clone(),
            hub.clone(),
            metrics,
            carriers.clone(),
            cut.clone(),
        );
        Ok(Self {
            listeners,
            tls,
            url: url(address.authority(port)),
            api: Arc::new(api),
            hub,
            grace: serve.grace,
            carriers,
            cut,
            _claim: claim,
        })
    }

    /// Where others reach it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Pin of the key that it presents, with TLS.
    pub fn pin(&self) -> Option<tls::Pin> {
        self.tls.as_ref().map(|tls| tls.pin)
    }

    /// What says whether the server half is used.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            hub: self.hub.clone(),
            api: self.api.clone(),
        }
    }

    /// Serves until `stop` is cancelled, then lets running work finish within the grace period.
    ///
    /// Dropping the future stops at once.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        // Connections outlive `stop` until running work has ended: a link of plain requests needs them for its own.
        let close = CancellationToken::new();
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepting = self.listeners.iter().map(|listener| {
            accept(
                listener,
                self.tls.as_ref(),
                &self.api,
                &connections,
                &permits,
                &close,
                &self.cut,
            )
        });
        // Ends with `stop`: the loops never end by themselves.
        stop.run_until_cancelled(futures_util::future::join_all(accepting))
            .await;
        drop(self.listeners);
        tracing::info!("stopping; running work has {} s", self.grace.as_secs());
        self.api.drain();
        connections.close();
        self.carriers.close();
        self.hub.shutdown(self.grace).await;
        self.api.close();
        close.cancel();
        let drained = async {
            connections.wait().await;
            self.carriers.wait().await;
        };
        if timeout(CLOSE_LIMIT, drained).await.is_err() {
            tracing::info!(
                "cutting {} connections that did not end in time",
                connections.len() + self.carriers.len()
            );
        }
        self.cut.cancel();
        connections.wait().await;
        self.carriers.wait().await;
    }
}

/// Says whether a server half is used.
pub(crate) struct Usage {
    hub: Arc<Hub>,
    api: Arc<Api>,
}

impl Usage {
    /// Waits until for `limit` no desktop had a link and nobody who has the token asked for anything. Cancel safe.
    pub(crate) async fn ended(&self, limit: Duration) {
        let mut last = Instant::now();
        loop {
            if self.hub.is_in_use() {
                last = Instant::now();
            }
            if last.max(self.api.last_request()).elapsed() >= limit {
                return;
            }
            sleep(USE_CHECK).await;
        }
    }
}

/// Accepts for ever, and awaits nothing about any one connection.
async fn accept(
    listener: &TcpListener,
    tls: Option<&ServerTls>,
    api: &Arc<Api>,
    connections: &TaskTracker,
    permits: &Arc<Semaphore>,
    close: &CancellationToken,
    cut: &CancellationToken,
) {
    loop {
        // While all permits are taken, new clients wait in the system's queue.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let tcp = match listener.accept().await {
            Ok((tcp, _peer)) => tcp,
            Err(error) if is_of_one_client(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; is the limit of open files too low?");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, api, close) = (tls.cloned(), api.clone(), close.clone());
        connections.spawn(cut.clone().run_until_cancelled_owned(async move {
            connection::serve(tcp, tls.as_ref(), api, close).await;
            drop(permit);
        }));
    }
}

/// Whether a failed accept says something about that client alone.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
