//! Dialling targets from the server: resolve once, judge by the egress policy, connect to what was judged.
//!
//! `localhost` is both loopback families side by side, because development servers bind either and clients
//! cannot know which. Other names race their addresses with a head start for the family that the system
//! prefers (RFC 8305). A failure carries every cause that was seen.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};
use yonder_protocol::{Builtin, Target, TunnelError, TunnelErrorCode, limits};

use super::egress::{Egress, EgressMode, is_public};
use super::upstream::{Upstream, UpstreamProxy};

/// Head start of an address before the next one is tried beside it (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Addresses of one name that are tried: more only delay the verdict.
const ADDRESSES_MAX: usize = 16;

/// Names resolved at once. The system's resolver blocks a thread for as long as its servers are silent,
/// and a thread that started cannot be called back.
const RESOLUTIONS_MAX: usize = 128;

/// Dials targets. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    egress: Arc<Egress>,
    upstream: Arc<Upstream>,
    resolving: Arc<Semaphore>,
}

impl Dialer {
    pub(crate) fn new(egress: Egress, upstream: Upstream) -> Self {
        Self {
            egress: Arc::new(egress),
            upstream: Arc::new(upstream),
            resolving: Arc::new(Semaphore::new(RESOLUTIONS_MAX)),
        }
    }

    pub(crate) fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Connects to `target` within [`limits::DIAL_TIMEOUT`]. Cancel safe: a dropped future closes what it opened.
    ///
    /// # Errors
    /// The cause that the network or the policy gave, in words for a person.
    pub(crate) async fn dial(&self, target: &Target) -> Result<TcpStream, TunnelError> {
        let deadline = Instant::now() + limits::DIAL_TIMEOUT;
        if Builtin::of(target).is_some() {
            // Nobody is asked for such a name (RFC 6761, section 6.4).
            return Err(TunnelError::new(
                TunnelErrorCode::NameNotFound,
                format!(
                    "{} is served to links without a browser alone",
                    target.host()
                ),
            ));
        }
        self.egress.check_target(target)?;
        let upstream = self.upstream.proxy_for(target);
        let addresses = match self.resolve(target, deadline).await {
            Ok(addresses) => addresses,
            // Hosts behind a proxy often cannot resolve public names themselves. Without an address only
            // a policy that allows every public one can judge the target.
            Err(error) => match upstream {
                Some(proxy)
                    if error.code == TunnelErrorCode::NameNotFound
                        && self.egress.mode() == EgressMode::Unrestricted =>
                {
                    return self.through(proxy, target.host(), target, deadline).await;
                }
                _ => return Err(error),
            },
        };
        for address in &addresses {
            self.egress.check_address(target, address.ip())?;
        }
        if let Some(proxy) = upstream
            && addresses.iter().all(|address| is_public(address.ip()))
            && let Some(first) = addresses.first()
        {
            // The proxy's own rules are usually written for names. Where our policy judged addresses, it must
            // be one of those that is dialled.
            let host = match self.egress.mode() {
                EgressMode::Unrestricted => target.host().to_owned(),
                EgressMode::Allowlist | EgressMode::Strict => first.ip().to_string(),
            };
            return self.through(proxy, &host, target, deadline).await;
        }
        let delay = if target.is_localhost() {
            Duration::ZERO
        } else {
            ATTEMPT_DELAY
        };
        let stream = race(&addresses, delay, deadline)
            .await
            .map_err(|failures| failures.verdict(target, addresses.len()))?;
        tune(&stream);
        Ok(stream)
    }

    async fn through(
        &self,
        proxy: &UpstreamProxy,
        host: &str,
        target: &Target,
        deadline: Instant,
    ) -> Result<TcpStream, TunnelError> {
        let connected = async {
            let addresses = self.lookup(proxy.host(), proxy.port()).await?;
            let mut stream = race(&addresses, ATTEMPT_DELAY, deadline)
                .await
                .map_err(Failures::io)?;
            tune(&stream);
            proxy.connect(&mut stream, host, target.port()).await?;
            Ok::<_, io::Error>(stream)
        };
        match timeout_at(deadline, connected).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(TunnelError::new(
                code_of(&error),
                format!("{target} through the server's proxy {proxy}: {error}"),
            )),
            Err(_) => Err(TunnelError::new(
                TunnelErrorCode::TimedOut,
                format!(
                    "{target} through the server's proxy {proxy}: no answer within {} s",
                    limits::DIAL_TIMEOUT.as_secs()
                ),
            )),
        }
    }

    /// The addresses to dial, in the order to try them.
    async fn resolve(
        &self,
        target: &Target,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, TunnelError> {
        let port = target.port();
        if target.is_localhost() {
            return Ok(vec![
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port),
            ]);
        }
        if let Ok(address) = target.host().parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let found = timeout_at(deadline, self.lookup(target.host(), port))
            .await
            .map_err(|_| {
                TunnelError::new(
                    TunnelErrorCode::TimedOut,
                    format!(
                        "the server could not resolve {} within {} s; check its name servers",
                        target.host(),
                        limits::DIAL_TIMEOUT.as_secs()
                    ),
                )
            })?;
        let addresses = found.map_err(|error| {
            TunnelError::new(
                TunnelErrorCode::NameNotFound,
                format!(
                    "the name {} does not resolve on the server: {error}",
                    target.host()
                ),
            )
        })?;
        if addresses.is_empty() {
            return Err(TunnelError::new(
                TunnelErrorCode::NameNotFound,
                format!("the name {} has no address on the server", target.host()),
            ));
        }
        Ok(interleaved(addresses))
    }

    /// Asks the system's resolver, so that the server's own hosts file and search domains hold.
    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.resolving)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let host = host.to_owned();
        tokio::task::spawn_blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs()?.collect();
            drop(permit);
            Ok(found)
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// Small writes of interactive protocols must not wait for acknowledgements.
fn tune(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY on a target's socket");
    }
}

/// Families take turns, the resolver's first one first, without duplicates and at most [`ADDRESSES_MAX`].
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (preferred, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv4() == first_is_v4);
    let mut ordered = Vec::with_capacity(preferred.len() + other.len());
    let (mut preferred, mut other) = (preferred.into_iter(), other.into_iter());
    loop {
        let next = [preferred.next(), other.next()];
        if next == [None, None] {
            break;
        }
        for address in next.into_iter().flatten() {
            if !ordered.contains(&address) {
                ordered.push(address);
            }
        }
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// Connects to `addresses`, each `delay` after the one before or as soon as that failed; the first wins.
async fn race(
    addresses: &[SocketAddr],
    delay: Duration,
    deadline: Instant,
) -> Result<TcpStream, Failures> {
    let mut failures = Failures::default();
    let mut waiting = addresses.iter().copied();
    let mut running = FuturesUnordered::new();
    let mut next_start = Instant::now();
    loop {
        while Instant::now() >= next_start || running.is_empty() {
            let Some(address) = waiting.next() else { break };
            running.push(async move { (address, TcpStream::connect(address).await) });
            next_start = Instant::now() + delay;
        }
        if running.is_empty() {
            return Err(failures);
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some((address, result)) = running.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failures.seen.push((address, error));
                    next_start = Instant::now();
                }
            },
            () = sleep_until(next_start), if more => {}
            () = sleep_until(deadline) => return Err(failures),
        }
    }
}

/// What each address answered until all failed or time ran out.
#[derive(Debug, Default)]
struct Failures {
    seen: Vec<(SocketAddr, io::Error)>,
}

impl Failures {
    /// The most telling cause as one system error.
    fn io(self) -> io::Error {
        self.seen
            .into_iter()
            .map(|(_, error)| error)
            .next()
            .unwrap_or_else(|| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no connection within {} s", limits::DIAL_TIMEOUT.as_secs()),
                )
            })
    }

    /// The failure of the whole dial, of which `tried` addresses were part.
    fn verdict(&self, target: &Target, tried: usize) -> TunnelError {
        let with = |code: TunnelErrorCode| {
            self.seen
                .iter()
                .filter(|(_, error)| code_of(error) == code)
                .collect::<Vec<_>>()
        };
        // A refusal is the surest sign: the host is there, the service is not.
        let refused = with(TunnelErrorCode::Refused);
        if !refused.is_empty() {
            let verb = if refused.len() == 1 {
                "refused the connection"
            } else {
                "refused the connections"
            };
            return TunnelError::new(
                TunnelErrorCode::Refused,
                format!(
                    "{} {verb}; is the server on port {} running?",
                    listed(refused.iter().map(|(address, _)| address)),
                    target.port()
                ),
            );
        }
        let timed_out = with(TunnelErrorCode::TimedOut);
        if self.seen.len() < tried || !timed_out.is_empty() {
            return TunnelError::new(
                TunnelErrorCode::TimedOut,
                format!(
                    "{target} did not answer within {} s; is the host up, and does a firewall drop the connection?",
                    limits::DIAL_TIMEOUT.as_secs()
                ),
            );
        }
        let unreachable = with(TunnelErrorCode::Unreachable);
        if let Some((_, error)) = unreachable.first() {
            return TunnelError::new(
                TunnelErrorCode::Unreachable,
                format!(
                    "the server has no route to {}: {error}",
                    listed(unreachable.iter().map(|(address, _)| address))
                ),
            );
        }
        let (code, cause) = self.seen.first().map_or_else(
            || {
                (
                    TunnelErrorCode::Internal,
                    String::from("no address to dial"),
                )
            },
            |(_, error)| (code_of(error), error.to_string()),
        );
        TunnelError::new(code, format!("the server could not dial {target}: {cause}"))
    }
}

/// `a`, `a and b`, or `a, b and 3 more`.
fn listed<'a>(addresses: impl ExactSizeIterator<Item = &'a SocketAddr>) -> String {
    let count = addresses.len();
    let mut text = String::new();
    for (index, address) in addresses.take(2).enumerate() {
        let separator = match (index, count) {
            (0, _) => "",
            (_, 2) => " and ",
            _ => ", ",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{address}");
    }
    if count > 2 {
        let _ = write!(text, " and {} more", count - 2);
    }
    text
}

/// The code of a system error of a connection attempt.
pub(crate) fn code_of(error: &io::Error) -> TunnelErrorCode {
    use io::ErrorKind as K;
    match error.kind() {
        K::ConnectionRefused => TunnelErrorCode::Refused,
        K::HostUnreachable
        | K::NetworkUnreachable
        | K::NetworkDown
        | K::AddrNotAvailable
        | K::InvalidInput
        | K::Unsupported => TunnelErrorCode::Unreachable,
        K::TimedOut => TunnelErrorCode::TimedOut,
        K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::UnexpectedEof => {
            TunnelErrorCode::Reset
        }
        K::PermissionDenied => TunnelErrorCode::Denied,
        K::QuotaExceeded | K::OutOfMemory => TunnelErrorCode::Overloaded,
        K::NotFound => TunnelErrorCode::NameNotFound,
        _ => TunnelErrorCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::hub::egress::EgressConfig;

    fn dialer() -> Dialer {
        Dialer::new(
            Egress::new(&EgressConfig::default()).unwrap(),
            Upstream::default(),
        )
    }

    fn target(host: &str, port: u16) -> Target {
        Target::new(host, port).unwrap()
    }

    /// A port of `address` that nothing listens on.
    async fn closed_port(address: IpAddr) -> u16 {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn localhost_reaches_either_family() {
        for family in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let listener = TcpListener::bind((family, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            for host in ["localhost", "LocalHost.", "app.localhost"] {
                let stream = dialer().dial(&target(host, port)).await.unwrap();
                assert_eq!(stream.peer_addr().unwrap().ip(), family);
                assert!(stream.nodelay().unwrap());
            }
        }
    }

    #[tokio::test]
    async fn a_refusal_names_both_families_and_the_port() {
        let port = closed_port(Ipv4Addr::LOCALHOST.into()).await;
        let error = dialer().dial(&target("localhost", port)).await.unwrap_err();
        assert_eq!(error.code, TunnelErrorCode::Refused);
        for part in [
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
            format!("is the server on port {port} running?"),
        ] {
            assert!(error.message.contains(&part), "{}", error.message);
        }
    }

    #[tokio::test]
    async fn an_unknown_name_is_told() {
        let error = dialer()
            .dial(&target("no-such-host.invalid", 80))
            .await
            .unwrap_err();
        assert_eq!(error.code, TunnelErrorCode::NameNotFound);
        assert!(error.message.contains("no-such-host.invalid"));
    }

    #[tokio::test]
    async fn a_denied_address_is_not_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let strict = Dialer::new(
            Egress::new(&EgressConfig {
                mode: EgressMode::Strict,
                ..EgressConfig::default()
            })
            .unwrap(),
            Upstream::default(),
        );
        // The forms that resolvers understand as 127.0.0.1 are judged by what they resolve to.
        for host in [
            "localhost",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "127.1",
            "0x7f.1",
        ] {
            let error = strict.dial(&target(host, port)).await.unwrap_err();
            assert_eq!(error.code, TunnelErrorCode::Denied, "{host}");
        }
        let error = dialer()
            .dial(&target("169.254.169.254", 80))
            .await
            .unwrap_err();
        assert_eq!(error.code, TunnelErrorCode::Denied);
        assert!(error.message.contains("metadata"), "{}", error.message);
    }

    #[tokio::test]
    async fn a_name_without_local_address_goes_through_the_upstream_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://user:pass@{}", listener.local_addr().unwrap());
        let upstream =
            Upstream::from_variables(|name| (name == "HTTPS_PROXY").then(|| proxy.clone()))
                .unwrap();
        let dialer = Dialer::new(Egress::new(&EgressConfig::default()).unwrap(), upstream);
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // The target may speak at once: its first bytes follow the proxy's answer directly.
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello")
                .await
                .unwrap();
            (String::from_utf8(head).unwrap(), stream)
        };
        let public = target("no-such-host.invalid", 443);
        let (dialled, (head, _stream)) = tokio::join!(dialer.dial(&public), serve);
        let mut hello = [0; 5];
        dialled.unwrap().read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        assert!(
            head.starts_with("CONNECT no-such-host.invalid:443 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"));
    }

    #[test]
    fn families_take_turns() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ordered = interleaved(
            ["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::1]:1", "[::3]:1"]
                .map(parse)
                .to_vec(),
        );
        assert_eq!(
            ordered,
            ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(parse)
        );
    }

    #[test]
    fn the_surest_cause_is_told() {
        use io::ErrorKind as K;

        let failures = |kinds: &[io::ErrorKind]| Failures {
            seen: kinds
                .iter()
                .map(|kind| ("10.0.0.1:9".parse().unwrap(), io::Error::from(*kind)))
                .collect(),
        };
        for (kinds, tried, code) in [
            (
                &[K::NetworkUnreachable, K::ConnectionRefused][..],
                2,
                TunnelErrorCode::Refused,
            ),
            (&[K::NetworkUnreachable], 2, TunnelErrorCode::TimedOut),
            (
                &[K::NetworkUnreachable, K::TimedOut],
                2,
                TunnelErrorCode::TimedOut,
            ),
            (
                &[K::HostUnreachable, K::AddrNotAvailable],
                2,
                TunnelErrorCode::Unreachable,
            ),
            (&[], 1, TunnelErrorCode::TimedOut),
        ] {
            let error = failures(kinds).verdict(&target("a", 9), tried);
            assert_eq!(error.code, code, "{kinds:?}");
        }
    }
}
