//! Tunnels over whichever link there is just now: what the proxy and the forwards dial with.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use yonder_protocol::{Target, TunnelError, TunnelErrorCode, limits};
use yonder_proxy::{Dial, DialMode};
use yonder_transport::link::Link;
use yonder_transport::relay::{RelayError, relay};
use yonder_transport::stream::Stream;

/// How long a dial may go unanswered: the server half's own limit answers first unless the carrier was lost
/// meanwhile, which costs at most another wait for the link.
const VERDICT_LIMIT: Duration = limits::DIAL_TIMEOUT.saturating_add(limits::LINK_WAIT);

/// Opens tunnels. Cheap to clone; outlives every single link.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels(watch::Receiver<Option<Link>>);

impl Tunnels {
    /// Tunnels over the link in `links`, which is `None` while there is none.
    pub(crate) fn new(links: watch::Receiver<Option<Link>>) -> Self {
        Self(links)
    }

    /// Opens a tunnel to `target`, waiting up to [`limits::LINK_WAIT`] for a link that is being restored.
    ///
    /// Cancel safe: a dropped future takes its tunnel back.
    ///
    /// # Errors
    /// [`TunnelErrorCode::LinkDown`] when the link is not back in time; with [`DialMode::Verdict`] also why the target
    /// cannot be reached.
    pub(crate) async fn open(
        &self,
        target: &Target,
        mode: DialMode,
    ) -> Result<Stream, TunnelError> {
        let mut stream = self.up().await?.open_tunnel(target)?;
        if mode == DialMode::Verdict {
            timeout(VERDICT_LIMIT, stream.opened())
                .await
                .map_err(|_| {
                    TunnelError::new(
                        TunnelErrorCode::TimedOut,
                        format!(
                            "the server half did not say within {} s whether it reached {target}",
                            VERDICT_LIMIT.as_secs()
                        ),
                    )
                })??;
        }
        Ok(stream)
    }

    /// A link that has a carrier.
    async fn up(&self) -> Result<Link, TunnelError> {
        let down = || {
            TunnelError::new(
                TunnelErrorCode::LinkDown,
                "the connection to tunnel-server is down and is being restored; try again in a moment",
            )
        };
        let deadline = Instant::now() + limits::LINK_WAIT;
        let mut links = self.0.clone();
        let link = tokio::time::timeout_at(deadline, links.wait_for(Option::is_some))
            .await
            .ok()
            .and_then(Result::ok)
            .and_then(|link| link.clone())
            .ok_or_else(down)?;
        link.wait_up(deadline.saturating_duration_since(Instant::now()))
            .await?;
        Ok(link)
    }
}

impl Dial for Tunnels {
    type Stream = Stream;

    async fn dial(
        &self,
        _session: &str,
        target: &Target,
        mode: DialMode,
    ) -> Result<Stream, TunnelError> {
        self.open(target, mode).await
    }

    fn joins(&self) -> bool {
        true
    }

    async fn join(&self, stream: Stream, client: TcpStream) -> Result<(), TunnelError> {
        relay(stream, client, "the client", Arc::new(()))
            .await
            .map_err(|error| match error {
                RelayError::Stream(error) | RelayError::Socket(error) => error,
            })
    }
}

#[cfg(test)]
mod tests;
