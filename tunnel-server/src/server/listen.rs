//! Where the server half listens: reads `--listen`, binds it, and says by which URL it is reached.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the system holds ready for us: a browser's burst of carriers and agents, with room to spare.
const BACKLOG: u32 = 1_024;

/// How often a free port is tried that both families have to give.
const PORT_ATTEMPTS: usize = 16;

/// What `--listen` says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListenAddress {
    /// Both loopback addresses.
    Localhost {
        /// 0 for a free one.
        port: u16,
    },
    /// One address.
    Address(SocketAddr),
}

/// Why `--listen` is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("listen: expected ADDRESS:PORT such as 127.0.0.1:7070, [::1]:7070 or localhost:0")]
pub struct InvalidListenAddress;

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, InvalidListenAddress> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if host.eq_ignore_ascii_case("localhost") => port
                .parse()
                .map(|port| Self::Localhost { port })
                .map_err(|_| InvalidListenAddress),
            _ => Err(InvalidListenAddress),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Localhost { port } => write!(f, "localhost:{port}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Why an address could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program has it.
    #[error(
        "{address} is in use by another program; stop that one, or choose another port with --listen (port 0 takes a free one)"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system refused for another reason.
    #[error("cannot listen on {address}; choose another address with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Localhost { .. } => true,
            Self::Address(address) => address.ip().to_canonical().is_loopback(),
        }
    }

    /// Binds it. `localhost` yields two listeners on one port, or one where the system has no IPv6.
    ///
    /// # Errors
    /// If an address cannot be had.
    pub fn bind(&self) -> Result<Vec<TcpListener>, ListenError> {
        match *self {
            Self::Address(address) => Ok(vec![bind(address)?]),
            Self::Localhost { port } => bind_localhost(port),
        }
    }

    /// Host and port for a URL by which others reach a listener that got `port`.
    pub fn authority(&self, port: u16) -> String {
        match self {
            Self::Localhost { .. } => format!("localhost:{port}"),
            Self::Address(address) => SocketAddr::new(address.ip(), port).to_string(),
        }
    }

    /// Like [`Self::authority`], as this machine itself reaches it: not every system routes to a wildcard address.
    pub fn local_authority(&self, port: u16) -> String {
        let ip = match self {
            Self::Localhost { .. } => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::Address(address) => match address.ip() {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
                ip => ip,
            },
        };
        SocketAddr::new(ip, port).to_string()
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Otherwise a restart has to wait until the connections of the last run are forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        _ => ListenError::Bind { address, source },
    })
}

fn bind_localhost(port: u16) -> Result<Vec<TcpListener>, ListenError> {
    let mut attempts = if port == 0 { PORT_ATTEMPTS } else { 1 };
    loop {
        let v4 = bind((Ipv4Addr::LOCALHOST, port).into())?;
        let got = v4.local_addr().map_or(port, |address| address.port());
        attempts -= 1;
        match bind((Ipv6Addr::LOCALHOST, got).into()) {
            Ok(v6) => return Ok(vec![v4, v6]),
            Err(ListenError::InUse { .. }) if attempts > 0 => {}
            Err(error @ ListenError::InUse { .. }) => return Err(error),
            Err(error) => {
                tracing::debug!("no IPv6 loopback, listening on IPv4 alone: {error}");
                return Ok(vec![v4]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(
            "LOCALHOST:0".parse(),
            Ok(ListenAddress::Localhost { port: 0 })
        );
        for (text, loopback) in [
            ("127.0.0.1:7070", true),
            ("[::1]:0", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:7070", false),
            ("[::]:7070", false),
            ("192.0.2.1:80", false),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.is_loopback(), loopback, "{text}");
        }
        for bad in [
            "",
            "7070",
            ":7070",
            "localhost",
            "localhost:x",
            "example.com:80",
            "127.0.0.1:65536",
        ] {
            assert_eq!(
                bad.parse::<ListenAddress>(),
                Err(InvalidListenAddress),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_wildcard_is_reached_over_loopback() {
        let any: ListenAddress = "0.0.0.0:0".parse().unwrap();
        assert_eq!(any.authority(5), "0.0.0.0:5");
        assert_eq!(any.local_authority(5), "127.0.0.1:5");
        let any: ListenAddress = "[::]:0".parse().unwrap();
        assert_eq!(any.local_authority(5), "[::1]:5");
    }

    #[tokio::test]
    async fn localhost_is_both_families_on_one_port() {
        let listeners = ListenAddress::Localhost { port: 0 }.bind().unwrap();
        let ports: Vec<_> = listeners
            .iter()
            .map(|l| l.local_addr().unwrap().port())
            .collect();
        assert!(ports.iter().all(|port| *port == ports[0]));
        let taken = ListenAddress::Address((Ipv4Addr::LOCALHOST, ports[0]).into()).bind();
        assert!(matches!(taken, Err(ListenError::InUse { .. })));
    }
}
