//! What a link runs over: one ordered byte stream between the halves, and the means to get another.
//!
//! A carrier knows nothing of what it carries: greeting, multiplexing, heartbeat and resumption are the link's
//! and travel inside the bytes. It may die at any moment; the link then asks its [`Connect`] for the next one.

use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite};

/// Everything that can serve as a carrier's byte stream.
///
/// A carrier never half-closes: the end of reading means that the whole carrier is gone, because reverse proxies
/// turn half a close into a whole one.
pub trait CarrierIo: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> CarrierIo for T {}

/// How a carrier moves its bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CarrierKind {
    /// Binary messages of one WebSocket.
    WebSocket,
    /// One long HTTP answer for what comes, bounded requests for what goes.
    Stream,
    /// Bounded HTTP requests, for paths that let nothing else through.
    Poll,
    /// Standard input and output of a process.
    Stdio,
    /// A pipe within this process.
    Memory,
}

impl CarrierKind {
    /// Whether a link may have several of this kind at once. Requests would only compete for the few connections that a
    /// proxy gives a client, and a process may ask a person for a password.
    pub fn is_multipliable(self) -> bool {
        matches!(self, Self::WebSocket | Self::Memory)
    }

    /// The name that status and settings use.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Stream => "stream",
            Self::Poll => "poll",
            Self::Stdio => "stdio",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One ordered byte stream between the halves.
pub struct Carrier {
    /// The bytes.
    pub io: Box<dyn CarrierIo>,
    /// How they move.
    pub kind: CarrierKind,
    /// The same in words for a person, for example `websocket over TLS 1.3`.
    pub description: String,
}

impl Carrier {
    /// Wraps `io`.
    pub fn new(io: impl CarrierIo, kind: CarrierKind, description: impl Into<String>) -> Self {
        Self {
            io: Box::new(io),
            kind,
            description: description.into(),
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("kind", &self.kind)
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// A way to get a carrier, over and over.
pub trait Connect: Send + Sync + 'static {
    /// Gets a fresh carrier, within time limits of its own.
    ///
    /// Cancel safe: dropping the future gives up the attempt and whatever it had opened.
    fn connect(&self) -> BoxFuture<'_, Result<Carrier, ConnectError>>;

    /// Waits until a better carrier than one of the kind `current` can be had and is proven, and returns it. The link
    /// then goes on over it and lets the current one go.
    ///
    /// Meant to be polled while a carrier of the kind `current` is up. Where nothing better exists it pends for ever, as
    /// the default does.
    ///
    /// Cancel safe: dropping the future gives up the attempt and whatever it had opened.
    fn improve(&self, current: CarrierKind) -> BoxFuture<'_, Carrier> {
        let _ = current;
        Box::pin(std::future::pending())
    }
}

/// Why no carrier could be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No TCP connection to the server came about, or it broke before it served.
    #[error("could not reach {server}: {problem}")]
    Unreachable {
        /// The server's address as the person gave it.
        server: String,
        /// What went wrong, and what to look at.
        problem: String,
        /// The system's error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// A step of connecting did not end in time.
    #[error(
        "could not reach {server}: {step} took longer than {} s; check the address, the network and firewalls between",
        limit.as_secs()
    )]
    TimedOut {
        /// The server's address as the person gave it.
        server: String,
        /// The step, for example `the TLS handshake`.
        step: &'static str,
        /// What the step was allowed.
        limit: Duration,
    },
    /// The server's certificate is not one that this half may trust.
    #[error(
        "the certificate of {server} is not trusted: {problem}; if it is the right server, \
         pass its authority with --ca FILE, or this very key with --pin {pin}"
    )]
    Untrusted {
        /// The server's address as the person gave it.
        server: String,
        /// Why the certificate was not accepted.
        problem: String,
        /// The key that the server presented, in the form that `--pin` takes.
        pin: String,
    },
    /// The TLS handshake failed for another reason than trust.
    #[error("the TLS handshake with {server} failed: {problem}")]
    Tls {
        /// The server's address as the person gave it.
        server: String,
        /// What went wrong, and what to look at.
        problem: String,
    },
    /// The server half answered, and said no.
    #[error("{server} refused the connection with status {}: {problem}", status.as_u16())]
    Refused {
        /// The server's address as the person gave it.
        server: String,
        /// 401 or 403.
        status: StatusCode,
        /// What to do about it.
        problem: String,
    },
    /// `ssh` was refused, or refused the host itself.
    #[error("{server} refused the connection: {problem}")]
    SshRefused {
        /// The server's address as the person gave it.
        server: String,
        /// What to do about it.
        problem: String,
    },
    /// The server half answered that it cannot serve just now.
    #[error("{server} cannot serve now (status {}): {problem}", status.as_u16())]
    Busy {
        /// The server's address as the person gave it.
        server: String,
        /// Usually 429 or 503.
        status: StatusCode,
        /// What the answer said.
        problem: String,
        /// How long the server asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Something answered that is not our server half: a login page, a wrong path, an interstitial.
    #[error(
        "{server} answered with status {} but not as tunnel-server{}; check the address and its path, \
         and whether something in front of the server asks for a login",
        status.as_u16(),
        in_brackets(seen.as_deref())
    )]
    NotOurServer {
        /// The server's address as the person gave it.
        server: String,
        /// The status of the answer.
        status: StatusCode,
        /// What came instead, for example `page title "Log in"`.
        seen: Option<String>,
    },
    /// The server half speaks, but not as this version expects.
    #[error("{server} broke the protocol: {problem}")]
    Protocol {
        /// The server's address as the person gave it.
        server: String,
        /// What was wrong.
        problem: String,
    },
    /// What the person set cannot work.
    #[error("{0}")]
    Configuration(String),
}

fn in_brackets(seen: Option<&str>) -> String {
    seen.map_or_else(String::new, |seen| format!(" ({seen})"))
}

impl ConnectError {
    /// Whether the server half refused us: trying again without a change cannot help.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::SshRefused { .. })
    }

    /// Whether the other half could not be reached or made to serve; a later attempt may succeed.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::TimedOut { .. }
                | Self::Untrusted { .. }
                | Self::Tls { .. }
                | Self::Busy { .. }
                | Self::NotOurServer { .. }
                | Self::Protocol { .. }
        )
    }

    /// Whether a setting of this half is at fault.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Configuration(_))
    }

    /// Whether a further attempt makes sense without anybody changing anything.
    ///
    /// Trust counts as temporary on purpose: a desktop that reconnects through a hotel's login page meets a foreign
    /// certificate, then a foreign page, then its server again.
    pub fn is_temporary(&self) -> bool {
        self.is_unreachable()
    }

    /// How long the server asked to be left alone, where it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_falls_into_one_class() {
        let server = || "https://example.test/".to_owned();
        let refused = ConnectError::Refused {
            server: server(),
            status: StatusCode::UNAUTHORIZED,
            problem: "the token is wrong".into(),
        };
        let foreign = ConnectError::NotOurServer {
            server: server(),
            status: StatusCode::OK,
            seen: Some("page title \"Log in\"".into()),
        };
        let setting = ConnectError::Configuration("no".into());
        for (error, classes) in [
            (&refused, [true, false, false]),
            (&foreign, [false, true, false]),
            (&setting, [false, false, true]),
        ] {
            assert_eq!(
                [
                    error.is_refused(),
                    error.is_unreachable(),
                    error.is_configuration()
                ],
                classes
            );
        }
        assert!(
            foreign
                .to_string()
                .contains("status 200 but not as tunnel-server (page title \"Log in\")")
        );
    }

    #[test]
    fn only_a_busy_server_asks_for_time() {
        let busy = ConnectError::Busy {
            server: "http://localhost:7070/".into(),
            status: StatusCode::TOO_MANY_REQUESTS,
            problem: "too many".into(),
            retry_after: Some(Duration::from_secs(7)),
        };
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(7)));
        assert!(busy.is_temporary());
        assert_eq!(
            ConnectError::Configuration(String::new()).retry_after(),
            None
        );
    }
}
