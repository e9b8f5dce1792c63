//! What a forward is asked to be: `[ADDR:]PORT[:HOST:PORT]`, IPv6 addresses in brackets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use yonder_protocol::Target;
use yonder_protocol::target::InvalidTarget;

/// A local address to listen on, and the target that its connections are for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ForwardSpec {
    /// Local address; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    /// Target as the server half sees it.
    pub(crate) target: Target,
}

/// Why a text is no forward.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InvalidForward {
    /// Not one of the four forms.
    #[error(
        "expected PORT, ADDR:PORT, PORT:HOST:PORT or ADDR:PORT:HOST:PORT, with IPv6 addresses in brackets"
    )]
    Form,
    /// Two numbers, which reads as two ports.
    #[error("a target needs its host: write {0}:localhost:{1}")]
    HostMissing(String, String),
    /// The local side is not an address of this machine.
    #[error("the local address {0:?} must be an IP address, `localhost` or `*`")]
    Address(String),
    /// A port is not a number up to 65,535.
    #[error("{0:?} is not a port (0 to 65535)")]
    Port(String),
    /// Any free local port, but nothing says where to.
    #[error("a free local port (0) needs its target: write 0:localhost:PORT")]
    TargetMissing,
    /// The target is malformed.
    #[error("the target is not valid: {0}")]
    Target(#[from] InvalidTarget),
}

impl FromStr for ForwardSpec {
    type Err = InvalidForward;

    fn from_str(text: &str) -> Result<Self, InvalidForward> {
        let parts = split(text).ok_or(InvalidForward::Form)?;
        let default = Ipv4Addr::LOCALHOST.into();
        let (address, port, target) = match parts.as_slice() {
            [port] => (default, parse_port(port)?, None),
            [first, second] if is_number(first) && is_number(second) => {
                return Err(InvalidForward::HostMissing(
                    (*first).to_owned(),
                    (*second).to_owned(),
                ));
            }
            [address, port] => (parse_address(address)?, parse_port(port)?, None),
            [port, host, to] => (default, parse_port(port)?, Some((host, to))),
            [address, port, host, to] => {
                (parse_address(address)?, parse_port(port)?, Some((host, to)))
            }
            _ => return Err(InvalidForward::Form),
        };
        let target = match target {
            Some((host, to)) => Target::new(host, parse_port(to)?)?,
            None if port == 0 => return Err(InvalidForward::TargetMissing),
            None => Target::new("localhost", port)?,
        };
        Ok(Self {
            listen: SocketAddr::new(address, port),
            target,
        })
    }
}

impl fmt::Display for ForwardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.listen, self.target)
    }
}

/// The parts between colons that stand outside brackets; `None` where brackets do not match up.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let end = if rest.starts_with('[') {
            rest.find(']')? + 1
        } else {
            rest.find(':').unwrap_or(rest.len())
        };
        let (part, after) = rest.split_at(end);
        parts.push(part);
        if after.is_empty() {
            return Some(parts);
        }
        rest = after.strip_prefix(':')?;
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn parse_port(text: &str) -> Result<u16, InvalidForward> {
    // `u16::from_str` alone would take a leading plus sign.
    text.parse()
        .ok()
        .filter(|_| is_number(text))
        .ok_or_else(|| InvalidForward::Port(text.to_owned()))
}

/// The local address. Names other than `localhost` are refused: resolving them could open a port that nobody meant.
fn parse_address(text: &str) -> Result<IpAddr, InvalidForward> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        _ => match text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            Some(inner) => inner.parse().ok().map(IpAddr::V6),
            None => text.parse().ok().map(IpAddr::V4),
        }
        .ok_or_else(|| InvalidForward::Address(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (String, String) {
        let spec: ForwardSpec = text.parse().unwrap();
        (spec.listen.to_string(), spec.target.to_string())
    }

    #[test]
    fn all_forms_are_understood() {
        for (text, listen, target) in [
            ("8000", "127.0.0.1:8000", "localhost:8000"),
            ("0.0.0.0:8000", "0.0.0.0:8000", "localhost:8000"),
            ("*:8000", "0.0.0.0:8000", "localhost:8000"),
            ("[::1]:8000", "[::1]:8000", "localhost:8000"),
            (
                "5432:db.internal:5433",
                "127.0.0.1:5432",
                "db.internal:5433",
            ),
            ("0:[::1]:80", "127.0.0.1:0", "[::1]:80"),
            ("localhost:1:10.0.0.1:2", "127.0.0.1:1", "10.0.0.1:2"),
            ("[::]:1:[fe80::1%eth0]:2", "[::]:1", "[fe80::1%eth0]:2"),
        ] {
            assert_eq!(
                parsed(text),
                (listen.to_owned(), target.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn mistakes_are_told_apart() {
        for (text, hint) in [
            ("", "not a port"),
            ("0", "0:localhost:PORT"),
            ("8080:9090", "8080:localhost:9090"),
            ("70000", "not a port"),
            ("+80", "not a port"),
            ("example.com:80", "must be an IP address"),
            ("80:a:b:c:d", "expected PORT"),
            ("[::1:80", "expected PORT"),
            ("[::1]80", "expected PORT"),
            ("::1:80:a:1", "expected PORT"),
            ("80:a b:1", "the host holds"),
            ("80:a:0", "1 to 65535"),
        ] {
            let error = text.parse::<ForwardSpec>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            let _: Result<ForwardSpec, _> = text.parse();
        }

        #[test]
        fn the_long_form_round_trips(
            listen in any::<SocketAddr>(),
            host in "[a-z][a-z0-9.-]{0,30}",
            port in 1..=u16::MAX,
        ) {
            // Flow labels and scopes have no place in the text form.
            let listen = SocketAddr::new(listen.ip(), listen.port());
            let spec = ForwardSpec { listen, target: Target::new(&host, port).unwrap() };
            prop_assert_eq!(spec.to_string().parse::<ForwardSpec>().unwrap(), spec);
        }

        #[test]
        fn near_misses_never_panic(text in "[\\[\\]:0-9a-f*.%]{0,24}") {
            let _: Result<ForwardSpec, _> = text.parse();
        }
    }
}
