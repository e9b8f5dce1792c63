//! The two forms of request target that a proxy takes (RFC 9112, section 3.2): absolute-form and
//! authority-form.

use std::net::Ipv6Addr;

use yonder_protocol::Target;

use super::request::BadRequest;

/// An absolute `http://` URL, taken apart.
#[derive(Debug)]
pub(crate) struct Absolute<'b> {
    /// What is to be dialled.
    pub(crate) target: Target,
    /// `host[:port]` as the client wrote it: the value of `Host`.
    pub(crate) authority: &'b str,
    /// Path and query; empty, or beginning with `/` or `?`.
    pub(crate) rest: &'b str,
    /// The scheme was `ws`.
    pub(crate) websocket: bool,
}

/// Takes the absolute-form `url` apart. The default port is 80.
pub(crate) fn absolute(url: &str) -> Result<Absolute<'_>, BadRequest> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(if url.starts_with('/') || url == "*" {
            BadRequest::OriginForm
        } else {
            BadRequest::Url
        });
    };
    let websocket = scheme.eq_ignore_ascii_case("ws");
    if !websocket && !scheme.eq_ignore_ascii_case("http") {
        return Err(BadRequest::Scheme);
    }
    if rest.contains('#') {
        return Err(BadRequest::Fragment);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let target = host_and_port(authority, 80)?;
    Ok(Absolute {
        target,
        authority: authority.strip_suffix(':').unwrap_or(authority),
        rest,
        websocket,
    })
}

/// Reads `host[:port]`, an IPv6 address in brackets (RFC 3986, section 3.2).
pub(crate) fn host_and_port(authority: &str, default_port: u16) -> Result<Target, BadRequest> {
    if authority.contains('@') {
        return Err(BadRequest::UserInfo);
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(BadRequest::Host)?;
        // A zone follows `%`, which is itself written `%25` (RFC 6874).
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        address.parse::<Ipv6Addr>().map_err(|_| BadRequest::Host)?;
        (host.replacen("%25", "%", 1), port)
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(at);
        if host.contains('%') {
            return Err(BadRequest::Host);
        }
        (host.to_owned(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        Some("") => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| BadRequest::Port)?
        }
        _ => return Err(BadRequest::Port),
    };
    if port == 0 {
        return Err(BadRequest::Port);
    }
    Target::new(&host, port).map_err(|_| BadRequest::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<String, BadRequest> {
        absolute(url).map(|absolute| absolute.target.to_string())
    }

    #[test]
    fn urls_are_taken_apart() {
        for (url, expected) in [
            ("http://localhost", "localhost:80"),
            ("HTTP://localhost:8000/a?b", "localhost:8000"),
            ("http://127.0.0.1:/", "127.0.0.1:80"),
            ("http://[::1]:8000/", "[::1]:8000"),
            ("http://[::1]?q", "[::1]:80"),
            ("http://[fe80::1%25eth0]:1/", "[fe80::1%eth0]:1"),
            ("ws://a.localhost/", "a.localhost:80"),
        ] {
            assert_eq!(target(url).as_deref(), Ok(expected), "{url}");
        }
        let parts = absolute("http://h:80?q=/").unwrap();
        assert_eq!((parts.authority, parts.rest), ("h:80", "?q=/"));
        assert_eq!(absolute("http://h:/").unwrap().authority, "h");
    }

    #[test]
    fn doubtful_urls_are_refused() {
        for (url, expected) in [
            ("/path", BadRequest::OriginForm),
            ("*", BadRequest::OriginForm),
            ("localhost:80", BadRequest::Url),
            ("https://localhost/", BadRequest::Scheme),
            ("ftp://localhost/", BadRequest::Scheme),
            ("http://user@localhost/", BadRequest::UserInfo),
            ("http://user:pass@localhost/", BadRequest::UserInfo),
            ("http://localhost/#a", BadRequest::Fragment),
            ("http:///path", BadRequest::Host),
            ("http://a b/", BadRequest::Host),
            ("http://a\\b/", BadRequest::Host),
            ("http://local%68ost/", BadRequest::Host),
            ("http://[::1/", BadRequest::Host),
            ("http://[localhost]/", BadRequest::Host),
            ("http://[::1]80/", BadRequest::Port),
            ("http://::1/", BadRequest::Port),
            ("http://localhost:80:80/", BadRequest::Port),
            ("http://localhost:+80/", BadRequest::Port),
            ("http://localhost:0/", BadRequest::Port),
            ("http://localhost:65536/", BadRequest::Port),
        ] {
            assert_eq!(target(url), Err(expected), "{url}");
        }
    }
}
