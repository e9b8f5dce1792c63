//! What can be set when a proxy starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::limits;

/// Who is told how to authenticate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Challenge {
    /// 407 to anything without a valid credential, as curl and git expect.
    Always,
    /// For Chromium's port: 407 for [`PRIMING_HOST`](crate::PRIMING_HOST) alone. Everything else without
    /// a valid credential gets a 403 without `Proxy-Authenticate` on a connection that is closed,
    /// because a challenge that nobody answers makes Chromium's subresources hang.
    PrimingHostOnly,
}

/// Settings of a [`Proxy`](crate::Proxy).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// Address to listen on; port 0 takes a free one. Meant for loopback: credentials and requests
    /// travel in clear on it.
    pub listen: SocketAddr,
    /// Who is told how to authenticate.
    pub challenge: Challenge,
    /// Name that the challenge shows. Visible ASCII and spaces without `"` and `\`.
    pub realm: String,
    /// Client connections at once; one more is turned away with 503.
    pub connections: usize,
    /// From the first byte of a request head to its last; then 408.
    pub head_timeout: Duration,
    /// Silence between requests after which a client connection is closed.
    pub idle_timeout: Duration,
}

impl ProxyConfig {
    /// A free port of 127.0.0.1 with the default limits.
    pub fn new(challenge: Challenge) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            challenge,
            realm: "Yonder".to_owned(),
            connections: limits::CONNECTIONS,
            head_timeout: limits::HEAD_TIMEOUT,
            idle_timeout: limits::IDLE_TIMEOUT,
        }
    }

    /// Listens on `address` instead.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }
}
