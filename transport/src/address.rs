//! Where a server half is: the address that a person gives, checked and in one form.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

/// Longest address: a URL of 2 KiB passes every proxy that was tried.
const ADDRESS_BYTES_MAX: usize = 2_000;

/// Why a text is not the address of a server half. User-info is never repeated: it may be a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// `ssh://`: an address of another way to connect.
    #[error(
        "an ssh:// address serves tunnel-desktop alone; here the server's http:// or https:// address is needed"
    )]
    Ssh,
    /// Neither `http://` nor `https://`.
    #[error(
        "a server's address begins with http:// or https://, for example https://host.example/ or http://localhost:7070/"
    )]
    Scheme,
    /// Not a URL.
    #[error("the server's address is not a URL: {0}")]
    Url(url::ParseError),
    /// `user:password@`.
    #[error(
        "the server's address must not hold a user or a password; pass the token with --token-file or YONDER_TOKEN"
    )]
    UserInfo,
    /// `?…` or `#…`.
    #[error("the server's address must end with its path, without ? or #")]
    QueryOrFragment,
    /// A path with characters that proxies change.
    #[error(
        "the path of the server's address may hold letters, digits and . _ - ~ only, and no empty part"
    )]
    Path,
    /// Longer than any proxy must accept.
    #[error("the server's address is longer than {ADDRESS_BYTES_MAX} characters")]
    Length,
}

/// The base address of a server half: `http(s)://host[:port]/[prefix/]`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ServerAddress {
    secure: bool,
    /// IPv6 without brackets, names in lower case.
    host: String,
    port: u16,
    /// Begins and ends with `/`.
    prefix: String,
}

impl ServerAddress {
    /// Whether TLS protects the connection.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Name or address to connect to, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host is written as a loopback address or as `localhost`.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.ends_with(".localhost")
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// The value of `Host`: IPv6 in brackets, the port unless it is the scheme's own.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == default_port(self.secure) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The path of `route` (without a leading `/`) below this address.
    pub fn path(&self, route: &str) -> String {
        format!("{}{}", self.prefix, route.trim_start_matches('/'))
    }

    /// The whole URL of `route` below this address.
    pub fn url(&self, route: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path(route))
    }

    /// The address that `location`, the target of a redirect away from `route`, makes of this one: the same host over
    /// TLS. `None` for every other redirect, since the token must not follow it.
    pub(crate) fn secured_by(&self, route: &str, location: &str) -> Option<Self> {
        let base = location.strip_suffix(route)?;
        let secured = base.parse::<Self>().ok()?;
        (!self.secure
            && secured.secure
            && secured.host == self.host
            && secured.prefix == self.prefix)
            .then_some(secured)
    }
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url(""))
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let text = text.trim();
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(InvalidAddress::Length);
        }
        let secure = match text.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => true,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => false,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("ssh") => {
                return Err(InvalidAddress::Ssh);
            }
            _ => return Err(InvalidAddress::Scheme),
        };
        let url = Url::parse(text).map_err(InvalidAddress::Url)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidAddress::UserInfo);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidAddress::QueryOrFragment);
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(InvalidAddress::Url(url::ParseError::EmptyHost)),
        };
        let inner = url.path().trim_matches('/');
        let plain = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-~".contains(&byte))
        };
        if !inner.is_empty() && !inner.split('/').all(plain) {
            return Err(InvalidAddress::Path);
        }
        Ok(Self {
            secure,
            host,
            port: url.port().unwrap_or_else(|| default_port(secure)),
            prefix: if inner.is_empty() {
                "/".to_owned()
            } else {
                format!("/{inner}/")
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> ServerAddress {
        text.parse().expect("a valid address")
    }

    #[test]
    fn addresses_take_one_form() {
        for (text, form, authority, link) in [
            (
                "http://localhost:7070",
                "http://localhost:7070/",
                "localhost:7070",
                "/link",
            ),
            (
                "HTTPS://Host.Example/",
                "https://host.example/",
                "host.example",
                "/link",
            ),
            ("https://h:443/a/b", "https://h/a/b/", "h", "/a/b/link"),
            ("http://[::1]:80/p/", "http://[::1]/p/", "[::1]", "/p/link"),
            (
                " http://127.1:8000 ",
                "http://127.0.0.1:8000/",
                "127.0.0.1:8000",
                "/link",
            ),
        ] {
            let address = parse(text);
            assert_eq!(address.to_string(), form);
            assert_eq!(address.authority(), authority);
            assert_eq!(address.path("link"), link);
            assert_eq!(parse(form), address);
        }
    }

    #[test]
    fn loopback_is_known_by_its_writing() {
        for (text, loopback) in [
            ("http://localhost", true),
            ("http://a.localhost", true),
            ("http://127.8.9.1", true),
            ("http://[::1]", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(parse(text).is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, error) in [
            ("ssh://me@host", InvalidAddress::Ssh),
            ("localhost:7070", InvalidAddress::Scheme),
            ("ftp://host", InvalidAddress::Scheme),
            ("", InvalidAddress::Scheme),
            ("http://", InvalidAddress::Url(url::ParseError::EmptyHost)),
            ("http://me:secret@host", InvalidAddress::UserInfo),
            ("http://host/?a=b", InvalidAddress::QueryOrFragment),
            ("http://host/#top", InvalidAddress::QueryOrFragment),
            ("http://host/a%2Fb", InvalidAddress::Path),
            ("http://host/a//b", InvalidAddress::Path),
            ("http://host/a b", InvalidAddress::Path),
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(error), "{text}");
        }
    }

    #[test]
    fn only_a_redirect_to_tls_on_the_same_host_is_followed() {
        let base = parse("http://host.example/p/");
        assert_eq!(
            base.secured_by("healthz", "https://host.example/p/healthz"),
            Some(parse("https://host.example/p/"))
        );
        for other in [
            "https://elsewhere.example/p/healthz",
            "http://host.example/p/healthz",
            "https://host.example/login",
            "https://host.example/healthz",
            "/p/healthz",
        ] {
            assert_eq!(base.secured_by("healthz", other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "(https?://)?[ -~]{0,40}") {
            if let Ok(address) = text.parse::<ServerAddress>() {
                prop_assert_eq!(address.to_string().parse::<ServerAddress>(), Ok(address));
            }
        }
    }
}
