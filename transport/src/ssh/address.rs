//! Where `ssh` finds a server half: `ssh://[user@]host[:port]`.
//!
//! Host and user become arguments of the person's `ssh`, which may hand them on to a shell (`ProxyCommand`, `Match exec`).
//! So they are taken only when they mean nothing to an option parser or to a shell.

use std::fmt;
use std::net::Ipv6Addr;
use std::num::NonZeroU16;
use std::str::FromStr;

/// Longest host: the limit of the DNS in its textual form (RFC 1035, section 2.3.4). Aliases of an `ssh` configuration are
/// far shorter.
const HOST_BYTES_MAX: usize = 253;

/// Longest user: beyond what any system takes for a login.
const USER_BYTES_MAX: usize = 256;

/// The address of a server half behind `ssh`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SshAddress {
    user: Option<String>,
    /// A name, an alias of the person's `ssh` configuration, or an address, IPv6 without brackets.
    host: String,
    port: Option<NonZeroU16>,
}

/// Why a text is not the address of a server half behind `ssh`. Passwords are never repeated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSshAddress {
    /// Does not begin with `ssh://`.
    #[error("an address for ssh begins with ssh://, for example ssh://me@host.example")]
    Scheme,
    /// `user:password@`.
    #[error("an ssh:// address must not hold a password; ssh asks for it, or takes a key")]
    Password,
    /// An empty, overlong or unsafe user.
    #[error(
        "the user of an ssh:// address may hold letters, digits and . _ - + @ only, and not begin with -"
    )]
    User,
    /// An empty, overlong or unsafe host.
    #[error(
        "the host of an ssh:// address may hold letters, digits and . _ - only, and not begin with -; \
         an IPv6 address stands in brackets"
    )]
    Host,
    /// Not 1 to 65,535.
    #[error("the port of an ssh:// address must be 1 to 65535")]
    Port,
    /// Something behind host and port.
    #[error(
        "an ssh:// address ends with the host or its port; the server half is found there by itself"
    )]
    Path,
}

impl SshAddress {
    /// Who to log in as, unless that is left to the `ssh` configuration.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Name, alias or address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, unless that is left to the `ssh` configuration.
    pub fn port(&self) -> Option<u16> {
        self.port.map(NonZeroU16::get)
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        Ok(())
    }
}

impl FromStr for SshAddress {
    type Err = InvalidSshAddress;

    fn from_str(text: &str) -> Result<Self, InvalidSshAddress> {
        let rest = match text.trim().split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ssh") => rest,
            _ => return Err(InvalidSshAddress::Scheme),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(InvalidSshAddress::Path);
        }
        // The last one: logins of some directories hold an @ themselves.
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        if let Some(user) = user {
            if user.contains(':') {
                return Err(InvalidSshAddress::Password);
            }
            if !is_plain(user, USER_BYTES_MAX, b"._-+@") {
                return Err(InvalidSshAddress::User);
            }
        }
        let (host, port) = if let Some(bracketed) = place.strip_prefix('[') {
            let (host, rest) = bracketed
                .split_once(']')
                .filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())
                .ok_or(InvalidSshAddress::Host)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(InvalidSshAddress::Host),
            }
        } else {
            let (host, port) = match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            };
            if !is_plain(host, HOST_BYTES_MAX, b"._-") {
                return Err(InvalidSshAddress::Host);
            }
            (host, port)
        };
        let port = port
            .map(|port| {
                Some(port)
                    .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
                    .and_then(|port| port.parse().ok())
                    .ok_or(InvalidSshAddress::Port)
            })
            .transpose()?;
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        })
    }
}

/// Whether `text` is short, no option, and made of letters, digits and `others` alone.
fn is_plain(text: &str, bytes_max: usize, others: &[u8]) -> bool {
    (1..=bytes_max).contains(&text.len())
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_host_and_port_are_told_apart() {
        for (text, user, host, port, form) in [
            ("ssh://build", None, "build", None, "ssh://build"),
            (
                "SSH://me@host.example:2222/",
                Some("me"),
                "host.example",
                Some(2222),
                "ssh://me@host.example:2222",
            ),
            (
                "ssh://me@corp.example@host_1",
                Some("me@corp.example"),
                "host_1",
                None,
                "ssh://me@corp.example@host_1",
            ),
            ("ssh://[::1]:22", None, "::1", Some(22), "ssh://[::1]:22"),
            ("ssh://[fe80::1]", None, "fe80::1", None, "ssh://[fe80::1]"),
        ] {
            let address: SshAddress = text.parse().expect("an address");
            assert_eq!(address.user(), user, "{text}");
            assert_eq!(address.host(), host, "{text}");
            assert_eq!(address.port(), port, "{text}");
            assert_eq!(address.to_string(), form);
        }
    }

    #[test]
    fn options_shell_words_and_passwords_are_refused() {
        for (text, error) in [
            ("host", InvalidSshAddress::Scheme),
            ("http://host", InvalidSshAddress::Scheme),
            ("ssh://", InvalidSshAddress::Host),
            ("ssh://-oProxyCommand=x", InvalidSshAddress::Host),
            ("ssh://me@-x", InvalidSshAddress::Host),
            ("ssh://-l@host", InvalidSshAddress::User),
            ("ssh://@host", InvalidSshAddress::User),
            ("ssh://`id`@host", InvalidSshAddress::User),
            ("ssh://me@$(id)", InvalidSshAddress::Host),
            ("ssh://me@a;b", InvalidSshAddress::Host),
            ("ssh://me:secret@host", InvalidSshAddress::Password),
            ("ssh://host:0", InvalidSshAddress::Port),
            ("ssh://host:+22", InvalidSshAddress::Port),
            ("ssh://host:", InvalidSshAddress::Port),
            ("ssh://host:70000", InvalidSshAddress::Port),
            ("ssh://::1", InvalidSshAddress::Host),
            ("ssh://[::1", InvalidSshAddress::Host),
            ("ssh://[::1]22", InvalidSshAddress::Host),
            ("ssh://[host]", InvalidSshAddress::Host),
            ("ssh://host/path", InvalidSshAddress::Path),
            ("ssh://host?x", InvalidSshAddress::Path),
        ] {
            assert_eq!(text.parse::<SshAddress>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "(ssh://)?[ -~]{0,40}") {
            if let Ok(address) = text.parse::<SshAddress>() {
                prop_assert!(!address.host().starts_with('-'));
                prop_assert_eq!(address.to_string().parse::<SshAddress>(), Ok(address));
            }
        }
    }
}
