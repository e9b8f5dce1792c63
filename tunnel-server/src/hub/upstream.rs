//! The proxy through which the server host itself reaches the internet, by the customary variables
//! `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
//!
//! Tunnels carry any protocol, so the proxy is always asked by `CONNECT` (RFC 9110, section 9.3.6). It is
//! asked for public targets only; which those are is the dialer's to decide.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::{Host, Url};
use yonder_protocol::Target;

/// Head of a proxy's answer: as much as common servers allow.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// The port of `http://proxy` without one: what curl takes.
const DEFAULT_PORT: u16 = 1080;

/// Why a variable does not name a proxy that can be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the environment variable {variable} {problem}; set it to http://HOST:PORT or unset it")]
pub struct InvalidUpstream {
    variable: &'static str,
    problem: &'static str,
}

/// The proxies of the server's environment. By default there is none.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    http: Option<UpstreamProxy>,
    https: Option<UpstreamProxy>,
    exempt: Vec<String>,
}

/// One proxy.
#[derive(Clone)]
pub(crate) struct UpstreamProxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl Upstream {
    /// Reads the variables of this process.
    ///
    /// # Errors
    /// If one is set to something that is no `http://` proxy.
    pub fn from_environment() -> Result<Self, InvalidUpstream> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the variables through `variable`; lower case wins over upper case, as in curl.
    ///
    /// # Errors
    /// If one is set to something that is no `http://` proxy.
    pub fn from_variables(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, InvalidUpstream> {
        let first = |names: &[&'static str]| {
            names
                .iter()
                .find_map(|name| variable(name).map(|value| (*name, value)))
                .filter(|(_, value)| !value.trim().is_empty())
        };
        let proxy = |names: &[&'static str]| {
            first(names)
                .or_else(|| first(&["all_proxy", "ALL_PROXY"]))
                .map(|(name, value)| UpstreamProxy::parse(name, value.trim()))
                .transpose()
        };
        Ok(Self {
            http: proxy(&["http_proxy", "HTTP_PROXY"])?,
            https: proxy(&["https_proxy", "HTTPS_PROXY"])?,
            exempt: first(&["no_proxy", "NO_PROXY"])
                .map(|(_, value)| {
                    value
                        .split([',', ' '])
                        .map(|entry| entry.trim().to_ascii_lowercase())
                        .filter(|entry| !entry.is_empty())
                        .collect()
                })
                .unwrap_or_default(),
        })
    }

    /// The proxy for `target`, if there is one and `NO_PROXY` does not exempt the target.
    pub(crate) fn proxy_for(&self, target: &Target) -> Option<&UpstreamProxy> {
        // What a tunnel carries is unknown; the port is the best hint which of the two was meant.
        let proxy = if target.port() == 80 {
            self.http.as_ref().or(self.https.as_ref())
        } else {
            self.https.as_ref()
        };
        proxy.filter(|_| !target.is_loopback() && !self.exempts(target))
    }

    fn exempts(&self, target: &Target) -> bool {
        let host = target.host().trim_end_matches('.').to_ascii_lowercase();
        self.exempt.iter().any(|entry| {
            let (name, port) = match entry.rsplit_once(':') {
                Some((name, port)) if !name.contains(':') => (name, port.parse::<u16>().ok()),
                _ => (entry.as_str(), None),
            };
            if port.is_some_and(|port| port != target.port()) {
                return false;
            }
            let name = name.strip_prefix('*').unwrap_or(name);
            let name = name.strip_prefix('.').unwrap_or(name);
            // `*` alone exempts everything; a name exempts itself and all below it.
            name.is_empty()
                || host
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

impl UpstreamProxy {
    fn parse(variable: &'static str, value: &str) -> Result<Self, InvalidUpstream> {
        let invalid = |problem| InvalidUpstream { variable, problem };
        let value = if value.contains("://") {
            value.to_owned()
        } else {
            format!("http://{value}")
        };
        let url = Url::parse(&value).map_err(|_| invalid("is not a URL"))?;
        if url.scheme() != "http" {
            return Err(invalid("names a proxy that is not reached by plain HTTP"));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(invalid("names no host")),
        };
        // The URL parser drops `:80`, which is the default of its scheme but not of proxies.
        let port = url.port().unwrap_or_else(|| {
            let authority = value.trim_end_matches('/');
            if authority.ends_with(":80") {
                80
            } else {
                DEFAULT_PORT
            }
        });
        let authorization = (!url.username().is_empty()).then(|| {
            let mut credential: Vec<u8> = percent_decode_str(url.username()).collect();
            credential.push(b':');
            credential.extend(percent_decode_str(url.password().unwrap_or_default()));
            format!("Basic {}", STANDARD.encode(credential))
        });
        Ok(Self {
            host,
            port,
            authorization,
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Asks for a tunnel to `host:port` on a fresh connection to the proxy and takes exactly the answer's
    /// head off it. The deadline is the caller's.
    pub(crate) async fn connect(
        &self,
        stream: &mut TcpStream,
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        let authority = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str("Proxy-Authorization: ");
            request.push_str(authorization);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;

        let head = read_head(stream).await?;
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.get(2..5))
            .and_then(|digits| digits.parse::<u16>().ok());
        let (kind, hint) = match status {
            Some(200..=299) => return Ok(()),
            Some(407) => (
                io::ErrorKind::PermissionDenied,
                "; put its user and password into the variable",
            ),
            Some(401 | 403) => (io::ErrorKind::PermissionDenied, ""),
            Some(504) => (io::ErrorKind::TimedOut, ""),
            Some(_) => (io::ErrorKind::ConnectionRefused, ""),
            None => (io::ErrorKind::InvalidData, "; is it an HTTP proxy?"),
        };
        let line: String = line.chars().filter(|c| !c.is_control()).take(80).collect();
        Err(io::Error::new(kind, format!("it answered {line:?}{hint}")))
    }
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamProxy({self})")
    }
}

/// Reads up to and including the empty line and not one byte more: what follows belongs to the tunnel.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::new();
    let mut ahead = [0; 1024];
    loop {
        let peeked = stream.peek(&mut ahead).await?;
        if peeked == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it closed the connection instead of answering",
            ));
        }
        let known = head.len();
        head.extend_from_slice(&ahead[..peeked]);
        let searched = known.saturating_sub(END.len() - 1);
        let end = head[searched..]
            .windows(END.len())
            .position(|window| window == END)
            .map(|at| searched + at + END.len());
        if let Some(end) = end {
            head.truncate(end);
        }
        stream.read_exact(&mut head[known..]).await?;
        if end.is_some() {
            return Ok(head);
        }
        if head.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the head of its answer is too long",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(
        pairs: &'static [(&'static str, &'static str)],
    ) -> Result<Upstream, InvalidUpstream> {
        Upstream::from_variables(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn chosen(upstream: &Upstream, host: &str, port: u16) -> Option<String> {
        upstream
            .proxy_for(&Target::new(host, port).unwrap())
            .map(ToString::to_string)
    }

    #[test]
    fn the_port_chooses_the_variable() {
        let both = upstream(&[
            ("HTTP_PROXY", "http://a:3128/"),
            ("https_proxy", "b:80"),
            ("HTTPS_PROXY", "c:1"),
        ])
        .unwrap();
        assert_eq!(chosen(&both, "example.com", 80).as_deref(), Some("a:3128"));
        assert_eq!(chosen(&both, "example.com", 443).as_deref(), Some("b:80"));
        assert_eq!(chosen(&both, "localhost", 443), None);
        assert_eq!(chosen(&both, "127.0.0.2", 443), None);
        let all = upstream(&[("ALL_PROXY", "http://[::1]")]).unwrap();
        assert_eq!(chosen(&all, "example.com", 22).as_deref(), Some("::1:1080"));
        assert_eq!(chosen(&Upstream::default(), "example.com", 80), None);
        assert_eq!(
            chosen(&upstream(&[("http_proxy", " ")]).unwrap(), "a", 80),
            None
        );
    }

    #[test]
    fn exemptions_hold_for_a_host_and_all_below() {
        let some = upstream(&[
            ("HTTPS_PROXY", "http://p:1"),
            (
                "NO_PROXY",
                "example.com, .corp.test,*.star.test,10.0.0.1,ported.test:8443",
            ),
        ])
        .unwrap();
        for (host, port, direct) in [
            ("example.com", 443, true),
            ("a.EXAMPLE.com.", 443, true),
            ("badexample.com", 443, false),
            ("corp.test", 443, true),
            ("x.star.test", 443, true),
            ("10.0.0.1", 443, true),
            ("ported.test", 8443, true),
            ("ported.test", 443, false),
        ] {
            assert_eq!(chosen(&some, host, port).is_none(), direct, "{host}:{port}");
        }
        let none = upstream(&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "*")]).unwrap();
        assert_eq!(chosen(&none, "example.com", 443), None);
    }

    #[test]
    fn what_cannot_be_used_names_its_variable() {
        for value in ["socks5://a:1", "https://a:1", "http://:1", "http://a:99999"] {
            let value = value.to_owned();
            let error =
                Upstream::from_variables(|name| (name == "https_proxy").then(|| value.clone()))
                    .unwrap_err();
            assert!(error.to_string().contains("https_proxy"), "{value}");
            assert!(!error.to_string().contains(&value));
        }
    }
}
