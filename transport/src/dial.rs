//! Connections of the client: TCP with the carriers' socket options, and TLS over it.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;

use crate::address::ServerAddress;
use crate::carrier::ConnectError;
use crate::tls::{READ_BUFFER_BYTES, WRITE_BUFFER_BYTES, distrust};

/// Head start of one address over the next (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// An address that says nothing is asked anew after this long: the kernel itself repeats a lost SYN only after one second, then
/// two, then four, and a network that comes back would be noticed that much later.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(400);

/// Connections being tried at once, unanswered ones included.
const ATTEMPTS_MAX: usize = 24;

/// Addresses of one name that are tried at most; more would not fit into the time limit.
const ADDRESSES_MAX: usize = 8;

/// Idle time before TCP itself asks whether the peer is there, and between two such questions. The link's heartbeat is
/// quicker; this keeps entries of address translators alive and ends connections nobody reads.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long sent bytes may stay unacknowledged before the kernel gives the connection up.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes that the kernel takes beyond what the path carries, so that a small frame overtakes bulk in our queue.
#[cfg(target_os = "linux")]
const NOTSENT_LOWAT: u32 = 128 * 1024;

/// Sets what every carrier's TCP connection needs, on both halves.
///
/// All of it improves, none of it is needed: what a system refuses is left at its default. Buffer sizes are left alone
/// on purpose, since setting them turns the kernel's own tuning off.
pub fn tune_carrier_socket(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    note(stream.set_nodelay(true), "TCP_NODELAY");
    note(socket.set_tcp_keepalive(&keepalive), "SO_KEEPALIVE");
    #[cfg(target_os = "linux")]
    {
        note(
            socket.set_tcp_user_timeout(Some(USER_TIMEOUT)),
            "TCP_USER_TIMEOUT",
        );
        note(
            socket.set_tcp_notsent_lowat(NOTSENT_LOWAT),
            "TCP_NOTSENT_LOWAT",
        );
        if *BBR_ALLOWED {
            note(socket.set_tcp_congestion(b"bbr"), "TCP_CONGESTION");
        }
    }
}

/// Whether the kernel lets everybody choose BBR, which keeps its rate where packets get lost at random.
#[cfg(target_os = "linux")]
static BBR_ALLOWED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
        .is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == "bbr"))
});

fn note(result: io::Result<()>, option: &str) {
    if let Err(error) = result {
        tracing::debug!(option, %error, "the system refused a socket option");
    }
}

/// A client's connection, with or without TLS.
#[derive(Debug)]
pub(crate) enum ClientIo {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
}

impl ClientIo {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0.get_ref(),
        }
    }

    /// Whether nobody between the halves can see or choose bytes on the wire.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Self::Tls(_))
            || self
                .tcp()
                .peer_addr()
                .is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// What protects the connection, for a person: `TLS 1.3`, or `TCP`.
    pub(crate) fn protection(&self) -> &'static str {
        let version = match self {
            Self::Plain(_) => return "TCP",
            Self::Tls(tls) => tls.get_ref().1.protocol_version(),
        };
        match version {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS",
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

/// Connects to `address`, with TLS when it is `https`; TCP and TLS have [`HANDSHAKE_TIMEOUT`] each.
///
/// Cancel safe: dropping the future closes what was opened.
pub(crate) async fn dial(
    address: &ServerAddress,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<ClientIo, ConnectError> {
    let timed_out = |step| ConnectError::TimedOut {
        server: address.to_string(),
        step,
        limit: HANDSHAKE_TIMEOUT,
    };
    let tcp = timeout(HANDSHAKE_TIMEOUT, connect_tcp(address))
        .await
        .map_err(|_| timed_out("connecting"))??;
    tune_carrier_socket(&tcp);
    let Some(config) = tls else {
        return Ok(ClientIo::Plain(tcp));
    };
    let name = ServerName::try_from(address.host().to_owned()).map_err(|error| {
        ConnectError::Configuration(format!(
            "{address} cannot be reached over TLS: {error} as the name of a server"
        ))
    })?;
    let tcp = BufReader::with_capacity(READ_BUFFER_BYTES, tcp);
    let handshake = TlsConnector::from(Arc::clone(config)).connect_with(name, tcp, |session| {
        session.set_buffer_limit(Some(WRITE_BUFFER_BYTES));
    });
    let tls = timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(|_| timed_out("the TLS handshake"))?
        .map_err(|error| tls_error(address, error))?;
    Ok(ClientIo::Tls(Box::new(tls)))
}

/// Tries the addresses of the host, alternating between IPv6 and IPv4, each a little later than the one before, and again those
/// that say nothing.
async fn connect_tcp(address: &ServerAddress) -> Result<TcpStream, ConnectError> {
    let unreachable = |problem: String, source| ConnectError::Unreachable {
        server: address.to_string(),
        problem,
        source,
    };
    let found = resolve(address).await.map_err(|error| {
        let problem = format!(
            "the name {} was not found; check its spelling and this machine's network",
            address.host()
        );
        unreachable(problem, Some(error))
    })?;
    let addresses: Vec<_> = alternate(found).into_iter().take(ADDRESSES_MAX).collect();
    let mut waiting = addresses.iter().copied();
    let mut silent = addresses.iter().copied().cycle();
    let mut running = FuturesUnordered::new();
    let mut failure = None;
    running.extend(waiting.next().map(TcpStream::connect));
    while !running.is_empty() {
        tokio::select! {
            Some(result) = running.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            },
            () = sleep(NEXT_ADDRESS_AFTER), if waiting.len() > 0 => {}
            () = sleep(ASK_AGAIN_AFTER), if waiting.len() == 0 && running.len() < ATTEMPTS_MAX => {
                running.extend(silent.next().map(TcpStream::connect));
            }
        }
        running.extend(waiting.next().map(TcpStream::connect));
    }
    let problem = failure.as_ref().map_or_else(
        || format!("the name {} has no address", address.host()),
        tcp_problem,
    );
    Err(unreachable(problem, failure))
}

/// The addresses of the host. `localhost` is both loopback addresses whatever the system's files say, as RFC 6761,
/// section 6.3, has it.
async fn resolve(address: &ServerAddress) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = (address.host(), address.port());
    if host == "localhost" || host.ends_with(".localhost") {
        return Ok(vec![
            (Ipv4Addr::LOCALHOST, port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ]);
    }
    Ok(lookup_host((host, port)).await?.collect())
}

/// The addresses in their order, but with the two families taking turns (RFC 8305, section 4).
fn alternate(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let mut alternated = Vec::with_capacity(preferred.len() + other.len());
    let mut other = other.into_iter();
    for address in preferred {
        alternated.push(address);
        alternated.extend(other.next());
    }
    alternated.extend(other);
    alternated
}

/// What to look at after a failed TCP connection.
fn tcp_problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused; is tunnel-server running there?".to_owned()
        }
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            "no route to it; check this machine's network".to_owned()
        }
        io::ErrorKind::TimedOut => {
            "it does not answer; check the address and firewalls between".to_owned()
        }
        _ => error.to_string(),
    }
}

fn tls_error(address: &ServerAddress, error: io::Error) -> ConnectError {
    let server = address.to_string();
    if let Some(distrust) = distrust(&error) {
        return ConnectError::Untrusted {
            server,
            problem: distrust.problem.clone(),
            pin: distrust.pin.to_string(),
        };
    }
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let problem = match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the answer is not TLS; does the address perhaps need http:// instead of https://?"
                .to_owned()
        }
        Some(inner) => inner.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the other side closed the connection; is it a TLS port?".to_owned()
        }
        None => {
            return ConnectError::Unreachable {
                server,
                problem: "the connection broke during the TLS handshake".to_owned(),
                source: Some(error),
            };
        }
    };
    ConnectError::Tls { server, problem }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn families_take_turns_behind_the_preferred_one() {
        let [a, b, c, d] = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(socket);
        assert_eq!(alternate(vec![a, b, c, d]), [a, d, b, c]);
        assert_eq!(alternate(vec![d, a, b]), [d, a, b]);
        assert!(alternate(Vec::new()).is_empty());
    }

    #[tokio::test]
    async fn a_server_on_either_family_is_reached_by_name() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback).await else {
                continue;
            };
            let port = listener.local_addr().expect("bound").port();
            let address: ServerAddress = format!("http://localhost:{port}").parse().expect("valid");
            let io = dial(&address, None).await.expect("reached");
            assert!(io.is_private());
            assert_eq!(io.protection(), "TCP");
            assert!(io.tcp().nodelay().expect("an option"));
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let address: ServerAddress = format!("http://127.0.0.1:{port}").parse().expect("valid");
        let error = dial(&address, None).await.expect_err("nobody listens");
        assert!(error.is_unreachable());
        assert_eq!(
            error.to_string(),
            format!(
                "could not reach http://127.0.0.1:{port}/: connection refused; is tunnel-server running there?"
            )
        );
    }
}
