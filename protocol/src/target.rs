//! What a tunnel is opened to, and why it failed.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest host name: the limit of the DNS in its textual form (RFC 1035, section 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;

/// A `host:port` that the server half dials. The host is a name or an address as the client wrote it,
/// IPv6 without brackets; names are resolved on the server.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawTarget")]
pub struct Target {
    host: String,
    port: NonZeroU16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    host: String,
    port: u16,
}

/// Why a host and port do not make a [`Target`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTarget {
    /// The host is empty or longer than [`HOST_BYTES_MAX`].
    #[error("the host must have 1 to {HOST_BYTES_MAX} characters, not {0}")]
    HostLength(usize),
    /// The host holds a character outside letters, digits, `.`, `_`, `:`, `%` and `-`.
    #[error(
        "the host holds the character {0:?}; letters, digits, '.', '_', ':', '%' and '-' are allowed"
    )]
    HostCharacter(char),
    /// Port 0 cannot be dialled.
    #[error("the port must be 1 to 65535")]
    Port,
    /// Not of the form `host:port`.
    #[error("expected host:port or [ipv6]:port")]
    Form,
}

impl Target {
    /// Checks `host` (with or without brackets around an IPv6 address) and `port`.
    pub fn new(host: &str, port: u16) -> Result<Self, InvalidTarget> {
        let host = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() || host.len() > HOST_BYTES_MAX {
            return Err(InvalidTarget::HostLength(host.chars().count()));
        }
        if let Some(odd) = host
            .chars()
            .find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | ':' | '%' | '-'))
        {
            return Err(InvalidTarget::HostCharacter(odd));
        }
        let port = NonZeroU16::new(port).ok_or(InvalidTarget::Port)?;
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Name or address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, 1 to 65,535.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// Whether the host is written as an address of the loopback range or as `localhost`.
    pub fn is_loopback(&self) -> bool {
        self.is_localhost()
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// Whether the host is `localhost` or a name below it (RFC 6761, section 6.3).
    pub fn is_localhost(&self) -> bool {
        let host = self.host.strip_suffix('.').unwrap_or(&self.host);
        host.eq_ignore_ascii_case("localhost")
            || host
                .len()
                .checked_sub(".localhost".len())
                .and_then(|at| host.get(at..))
                .is_some_and(|end| end.eq_ignore_ascii_case(".localhost"))
    }
}

impl TryFrom<RawTarget> for Target {
    type Error = InvalidTarget;

    fn try_from(raw: RawTarget) -> Result<Self, InvalidTarget> {
        Self::new(&raw.host, raw.port)
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    /// Parses `host:port`; an IPv6 address needs its brackets here.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidTarget::Form)?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(InvalidTarget::Form);
        }
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidTarget::Form);
        }
        let port = port.parse::<u16>().map_err(|_| InvalidTarget::Port)?;
        Self::new(host, port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a tunnel could not be opened, or why it was cut. Its number travels in `RESET` frames.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TunnelErrorCode {
    /// The target's host answered that nothing listens there.
    Refused,
    /// No route to the target's host.
    Unreachable,
    /// The name does not resolve on the server.
    NameNotFound,
    /// The target did not answer in time.
    TimedOut,
    /// The server half's egress policy forbids the target.
    Denied,
    /// The peer reset the connection.
    Reset,
    /// A limit of tunnels or memory was reached.
    Overloaded,
    /// The peer sent more than it was granted.
    FlowControl,
    /// A fault of the half that reports it.
    Internal,
    /// The local application went away.
    Cancelled,
    /// The link to the other half is down.
    LinkDown,
}

impl TunnelErrorCode {
    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Refused => 1,
            Self::Unreachable => 2,
            Self::NameNotFound => 3,
            Self::TimedOut => 4,
            Self::Denied => 5,
            Self::Reset => 6,
            Self::Overloaded => 7,
            Self::FlowControl => 8,
            Self::Internal => 9,
            Self::Cancelled => 10,
            Self::LinkDown => 11,
        }
    }

    /// The code of a number; one that this version does not know is [`Self::Internal`].
    pub fn from_wire(number: u16) -> Self {
        match number {
            1 => Self::Refused,
            2 => Self::Unreachable,
            3 => Self::NameNotFound,
            4 => Self::TimedOut,
            5 => Self::Denied,
            6 => Self::Reset,
            7 => Self::Overloaded,
            8 => Self::FlowControl,
            10 => Self::Cancelled,
            11 => Self::LinkDown,
            _ => Self::Internal,
        }
    }
}

/// A tunnel's failure with the words of the half that saw it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct TunnelError {
    /// What kind of failure.
    pub code: TunnelErrorCode,
    /// What happened, for a person; at most 256 bytes on the wire.
    pub message: String,
}

impl TunnelError {
    /// A failure of `code` told as `message`.
    pub fn new(code: TunnelErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<TunnelError> for std::io::Error {
    fn from(error: TunnelError) -> Self {
        use std::io::ErrorKind;
        let kind = match error.code {
            TunnelErrorCode::Refused => ErrorKind::ConnectionRefused,
            TunnelErrorCode::Unreachable => ErrorKind::HostUnreachable,
            TunnelErrorCode::NameNotFound => ErrorKind::NotFound,
            TunnelErrorCode::TimedOut => ErrorKind::TimedOut,
            TunnelErrorCode::Denied => ErrorKind::PermissionDenied,
            TunnelErrorCode::Overloaded => ErrorKind::QuotaExceeded,
            TunnelErrorCode::Reset
            | TunnelErrorCode::FlowControl
            | TunnelErrorCode::Internal
            | TunnelErrorCode::Cancelled
            | TunnelErrorCode::LinkDown => ErrorKind::ConnectionReset,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_checked() {
        assert_eq!(Target::new("[::1]", 80).unwrap().host(), "::1");
        assert_eq!(
            Target::new("a b", 80),
            Err(InvalidTarget::HostCharacter(' '))
        );
        assert_eq!(Target::new("", 80), Err(InvalidTarget::HostLength(0)));
        assert_eq!(Target::new("a", 0), Err(InvalidTarget::Port));
        assert!(Target::new(&"a".repeat(254), 1).is_err());
    }

    #[test]
    fn text_form_round_trips() {
        for text in ["localhost:8000", "[::1]:1", "10.0.0.1:65535"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for bad in ["localhost", "::1:80", "a:", "a:x", "a:65536", "a:0"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_recognised() {
        for host in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(Target::new(host, 1).unwrap().is_loopback(), "{host}");
        }
        assert!(!Target::new("notlocalhost", 1).unwrap().is_loopback());
    }

    #[test]
    fn codes_round_trip() {
        for number in 1..=11 {
            assert_eq!(TunnelErrorCode::from_wire(number).to_wire(), number);
        }
    }
}
