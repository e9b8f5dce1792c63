//! Where the server half may dial: the egress policy.
//!
//! Denied ranges come first in every mode; cloud metadata services are among them unless the operator says
//! otherwise, because a page must never fetch the server's cloud credentials by accident. What remains is
//! judged by the mode. A name is judged twice, as written and by every address it resolves to, and only those
//! addresses are dialled. This is a policy for tunnels, not a sandbox for other programs of the host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};

/// What is allowed when no range denies it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressMode {
    /// Everything the server host can reach: its loopback, its networks, the internet.
    #[default]
    Unrestricted,
    /// Public addresses, and of the rest only listed hosts and ranges. `localhost` must be listed by name.
    Allowlist,
    /// Public addresses alone.
    Strict,
}

impl FromStr for EgressMode {
    type Err = InvalidEgress;

    fn from_str(text: &str) -> Result<Self, InvalidEgress> {
        match text {
            "unrestricted" => Ok(Self::Unrestricted),
            "allowlist" => Ok(Self::Allowlist),
            "strict" => Ok(Self::Strict),
            _ => Err(InvalidEgress::Mode(text.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for EgressMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unrestricted => "unrestricted",
            Self::Allowlist => "allowlist",
            Self::Strict => "strict",
        })
    }
}

/// The policy as an operator writes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EgressConfig {
    /// What is allowed when no range denies it.
    pub mode: EgressMode,
    /// Addresses and ranges (`10.0.0.0/8`, `::1`) that are never dialled.
    pub deny: Vec<String>,
    /// Hosts whose addresses are allowed in the mode `allowlist`: `dev.example` is that host alone,
    /// `.example` is `example` and every host below it.
    pub allow_hosts: Vec<String>,
    /// Addresses and ranges that are allowed in the mode `allowlist`.
    pub allow: Vec<String>,
    /// Lifts the built-in denial of cloud metadata services.
    pub allow_metadata: bool,
}

/// Why an egress policy is not one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEgress {
    /// An unknown mode.
    #[error("{0:?} is no egress mode; use unrestricted, allowlist or strict")]
    Mode(String),
    /// Not an address or an address with a prefix length.
    #[error("{0:?} is no address range; write it as 10.0.0.0/8, fd00::/8 or a single address")]
    Range(String),
    /// Not a host name.
    #[error(
        "{0:?} is no host name; write dev.example for one host or .example for all below a domain"
    )]
    Host(String),
    /// A list that its mode does not read, so that the operator expects what would not happen.
    #[error(
        "hosts and ranges are allowed one by one only in the egress mode allowlist, but the mode is {0}"
    )]
    Unused(EgressMode),
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Range {
    /// First address as the upper bits of 128, IPv4 mapped into IPv6.
    base: u128,
    mask: u128,
}

impl Range {
    const fn new(address: IpAddr, prefix: u32) -> Self {
        let (bits, prefix) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), prefix + 96),
            IpAddr::V6(v6) => (v6.to_bits(), prefix),
        };
        let mask = if prefix == 0 {
            0
        } else {
            u128::MAX << (128 - prefix)
        };
        Self {
            base: bits & mask,
            mask,
        }
    }

    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u32) -> Self {
        Self::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
    }

    const fn v6(segments: [u16; 8], prefix: u32) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = segments;
        Self::new(
            IpAddr::V6(Ipv6Addr::new(s0, s1, s2, s3, s4, s5, s6, s7)),
            prefix,
        )
    }

    fn holds(&self, address: IpAddr) -> bool {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        bits & self.mask == self.base
    }
}

impl FromStr for Range {
    type Err = InvalidEgress;

    fn from_str(text: &str) -> Result<Self, InvalidEgress> {
        let invalid = || InvalidEgress::Range(text.chars().take(80).collect());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse::<u32>()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or_else(invalid)?,
            Some(_) => return Err(invalid()),
        };
        Ok(Self::new(address, prefix))
    }
}

/// Addresses at which clouds hand out credentials to whoever asks from the machine.
const METADATA: &[Range] = &[
    // AWS, Azure, Google (metadata.google.internal), Oracle, DigitalOcean, OpenStack.
    Range::v4(169, 254, 169, 254, 32),
    // AWS: credentials of ECS tasks and EKS pods.
    Range::v4(169, 254, 170, 2, 32),
    Range::v4(169, 254, 170, 23, 32),
    Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128),
    // Google over IPv6.
    Range::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    // Alibaba.
    Range::v4(100, 100, 100, 200, 32),
    // Oracle's classic cloud.
    Range::v4(192, 0, 0, 192, 32),
];

/// What is not public, from the IANA registries of special-purpose addresses (RFC 6890 and its updates).
const SPECIAL: &[Range] = &[
    Range::v4(0, 0, 0, 0, 8),
    Range::v4(10, 0, 0, 0, 8),
    Range::v4(100, 64, 0, 0, 10),
    Range::v4(127, 0, 0, 0, 8),
    Range::v4(169, 254, 0, 0, 16),
    Range::v4(172, 16, 0, 0, 12),
    Range::v4(192, 0, 0, 0, 24),
    Range::v4(192, 0, 2, 0, 24),
    Range::v4(192, 88, 99, 0, 24),
    Range::v4(192, 168, 0, 0, 16),
    Range::v4(198, 18, 0, 0, 15),
    Range::v4(198, 51, 100, 0, 24),
    Range::v4(203, 0, 113, 0, 24),
    Range::v4(224, 0, 0, 0, 4),
    Range::v4(240, 0, 0, 0, 4),
];

/// The public part of IPv6 is global unicast without the registry's special blocks.
const GLOBAL_UNICAST: Range = Range::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

const SPECIAL_UNICAST: &[Range] = &[
    // Protocol assignments (Teredo and others), documentation, 6to4, further documentation.
    Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    Range::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

/// The well-known prefix of NAT64 (RFC 6052): the last four bytes are the IPv4 address that is reached.
const NAT64: Range = Range::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// The address that is really reached: IPv4 inside mapped and translated IPv6 addresses is judged as IPv4.
fn judged(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.holds(IpAddr::V6(v6)) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        other => other,
    }
}

/// Whether the whole internet could hold `address`, as opposed to this host or its networks.
pub(crate) fn is_public(address: IpAddr) -> bool {
    let address = judged(address);
    let held = |ranges: &[Range]| ranges.iter().any(|range| range.holds(address));
    match address {
        IpAddr::V4(_) => !held(SPECIAL),
        IpAddr::V6(_) => GLOBAL_UNICAST.holds(address) && !held(SPECIAL_UNICAST),
    }
}

/// The checked policy.
#[derive(Clone, Debug)]
pub struct Egress {
    mode: EgressMode,
    deny: Vec<Range>,
    metadata_denied: bool,
    allow_hosts: Vec<String>,
    allow: Vec<Range>,
}

impl Default for Egress {
    /// Allows everything but cloud metadata services.
    fn default() -> Self {
        Self {
            mode: EgressMode::Unrestricted,
            deny: Vec::new(),
            metadata_denied: true,
            allow_hosts: Vec::new(),
            allow: Vec::new(),
        }
    }
}

impl Egress {
    /// Checks `config`.
    ///
    /// # Errors
    /// The first entry that is malformed, or lists that the mode does not read.
    pub fn new(config: &EgressConfig) -> Result<Self, InvalidEgress> {
        let ranges = |texts: &[String]| {
            texts
                .iter()
                .map(|text| text.parse())
                .collect::<Result<Vec<Range>, _>>()
        };
        if config.mode != EgressMode::Allowlist
            && !(config.allow.is_empty() && config.allow_hosts.is_empty())
        {
            return Err(InvalidEgress::Unused(config.mode));
        }
        let allow_hosts = config
            .allow_hosts
            .iter()
            .map(|host| {
                let bare = host.strip_prefix('.').unwrap_or(host);
                // A target with the name is what will be compared, so it must be able to have it.
                Target::new(bare, 1)
                    .ok()
                    .filter(|_| !bare.starts_with('.'))
                    .map(|_| normal(host))
                    .ok_or_else(|| InvalidEgress::Host(host.chars().take(80).collect()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            mode: config.mode,
            deny: ranges(&config.deny)?,
            metadata_denied: !config.allow_metadata,
            allow_hosts,
            allow: ranges(&config.allow)?,
        })
    }

    /// The mode, for status.
    pub fn mode(&self) -> EgressMode {
        self.mode
    }

    /// Judges `target` as it is written, before its name is resolved.
    ///
    /// # Errors
    /// [`TunnelErrorCode::Denied`] if no address that it might resolve to would be allowed.
    pub fn check_target(&self, target: &Target) -> Result<(), TunnelError> {
        if !target.is_localhost() || self.mode == EgressMode::Unrestricted {
            return Ok(());
        }
        if self.mode == EgressMode::Allowlist && self.lists(target) {
            return Ok(());
        }
        Err(self.denied(&target.host(), "names the server itself"))
    }

    /// Judges one of the addresses that `target` resolves to.
    ///
    /// # Errors
    /// [`TunnelErrorCode::Denied`], naming the address and the rule.
    pub fn check_address(&self, target: &Target, address: IpAddr) -> Result<(), TunnelError> {
        let real = judged(address);
        if self.metadata_denied && METADATA.iter().any(|range| range.holds(real)) {
            return Err(self.denied(&address, "belongs to a cloud metadata service"));
        }
        // A range that an operator wrote in the mapped or translated form holds the address as dialled.
        if self
            .deny
            .iter()
            .any(|range| range.holds(real) || range.holds(address))
        {
            return Err(self.denied(&address, "lies in a denied range"));
        }
        let allowed = match self.mode {
            EgressMode::Unrestricted => true,
            EgressMode::Strict => is_public(real),
            EgressMode::Allowlist => {
                is_public(real)
                    || self.lists(target)
                    || self
                        .allow
                        .iter()
                        .any(|range| range.holds(real) || range.holds(address))
            }
        };
        if allowed {
            Ok(())
        } else if self.mode == EgressMode::Strict {
            Err(self.denied(&address, "is not public"))
        } else {
            Err(self.denied(&address, "is neither public nor listed"))
        }
    }

    /// Whether the target's host is among the allowed ones.
    fn lists(&self, target: &Target) -> bool {
        let host = normal(target.host());
        self.allow_hosts.iter().any(|allowed| {
            if let Some(domain) = allowed.strip_prefix('.') {
                host.strip_suffix(domain)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            } else {
                host == *allowed
            }
        })
    }

    fn denied(&self, what: &dyn fmt::Display, why: &str) -> TunnelError {
        TunnelError::new(
            TunnelErrorCode::Denied,
            format!(
                "the server's egress policy ({}) forbids this target: {what} {why}; \
                 ask the server's operator to allow it",
                self.mode
            ),
        )
    }
}

/// Host names compare without case and without the dot of the root.
fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(mode: EgressMode, deny: &[&str], hosts: &[&str], allow: &[&str]) -> Egress {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Egress::new(&EgressConfig {
            mode,
            deny: owned(deny),
            allow_hosts: owned(hosts),
            allow: owned(allow),
            allow_metadata: false,
        })
        .unwrap()
    }

    fn allows(policy: &Egress, host: &str, address: &str) -> bool {
        let target = Target::new(host, 80).unwrap();
        policy.check_target(&target).is_ok()
            && policy
                .check_address(&target, address.parse().unwrap())
                .is_ok()
    }

    #[test]
    fn modes_decide_what_no_range_denies() {
        let unrestricted = policy(EgressMode::Unrestricted, &[], &[], &[]);
        let allowlist = policy(
            EgressMode::Allowlist,
            &[],
            &["localhost", ".corp.example", "db.test"],
            &["10.1.0.0/16", "fd12::/16"],
        );
        let strict = policy(EgressMode::Strict, &[], &[], &[]);
        for (host, address, expected) in [
            ("localhost", "127.0.0.1", [true, true, false]),
            ("app.localhost", "127.0.0.1", [true, false, false]),
            ("127.0.0.1", "127.0.0.1", [true, false, false]),
            ("::1", "::1", [true, false, false]),
            ("a", "::ffff:127.0.0.1", [true, false, false]),
            ("a", "64:ff9b::7f00:1", [true, false, false]),
            ("10.1.2.3", "10.1.2.3", [true, true, false]),
            ("a", "::ffff:10.1.2.3", [true, true, false]),
            ("10.2.0.1", "10.2.0.1", [true, false, false]),
            ("x.corp.example", "10.2.0.1", [true, true, false]),
            ("Corp.Example.", "10.2.0.1", [true, true, false]),
            ("xcorp.example", "10.2.0.1", [true, false, false]),
            ("DB.test", "192.168.0.9", [true, true, false]),
            ("x.db.test", "192.168.0.9", [true, false, false]),
            ("a", "fd12::1", [true, true, false]),
            ("a", "fe80::1", [true, false, false]),
            ("a", "0.0.0.0", [true, false, false]),
            ("a", "::", [true, false, false]),
            ("a", "8.8.8.8", [true, true, true]),
            ("a", "64:ff9b::808:808", [true, true, true]),
            ("a", "2606:4700::1111", [true, true, true]),
            ("a", "2001:db8::1", [true, false, false]),
        ] {
            let got = [&unrestricted, &allowlist, &strict].map(|p| allows(p, host, address));
            assert_eq!(got, expected, "{host} {address}");
        }
    }

    #[test]
    fn denied_ranges_come_first_in_every_mode() {
        for mode in [
            EgressMode::Unrestricted,
            EgressMode::Allowlist,
            EgressMode::Strict,
        ] {
            let hosts: &[&str] = if mode == EgressMode::Allowlist {
                &["a"]
            } else {
                &[]
            };
            let policy = policy(mode, &["8.8.0.0/16", "2606:4700::/32"], hosts, &[]);
            for address in [
                "8.8.8.8",
                "::ffff:8.8.8.8",
                "64:ff9b::808:808",
                "2606:4700::1",
                "169.254.169.254",
                "::ffff:169.254.169.254",
                "169.254.170.2",
                "fd00:ec2::254",
                "100.100.100.200",
            ] {
                assert!(!allows(&policy, "a", address), "{mode} {address}");
            }
            assert!(allows(&policy, "a", "8.9.8.8"));
        }
    }

    #[test]
    fn metadata_services_can_be_allowed() {
        let policy = Egress::new(&EgressConfig {
            allow_metadata: true,
            ..EgressConfig::default()
        })
        .unwrap();
        assert!(allows(&policy, "169.254.169.254", "169.254.169.254"));
    }

    #[test]
    fn malformed_entries_fail_at_construction() {
        for range in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0/8",
            "::/129",
            "a/8",
            "10.0.0.0/+8",
            "1.2.3.4/8/8",
        ] {
            let config = EgressConfig {
                deny: vec![range.into()],
                ..EgressConfig::default()
            };
            assert_eq!(
                Egress::new(&config).unwrap_err(),
                InvalidEgress::Range(range.into())
            );
        }
        for host in ["", ".", "..a", "a b", "https://a"] {
            let config = EgressConfig {
                mode: EgressMode::Allowlist,
                allow_hosts: vec![host.into()],
                ..EgressConfig::default()
            };
            assert_eq!(
                Egress::new(&config).unwrap_err(),
                InvalidEgress::Host(host.into())
            );
        }
        let config = EgressConfig {
            mode: EgressMode::Strict,
            allow: vec!["10.0.0.0/8".into()],
            ..EgressConfig::default()
        };
        assert_eq!(
            Egress::new(&config).unwrap_err(),
            InvalidEgress::Unused(EgressMode::Strict)
        );
        assert!("open".parse::<EgressMode>().is_err());
    }

    #[test]
    fn a_range_holds_its_first_and_last_address_only() {
        for (range, inside, outside) in [
            (
                "10.0.0.0/8",
                ["10.0.0.0", "10.255.255.255"],
                ["9.255.255.255", "11.0.0.0"],
            ),
            (
                "10.9.9.9/8",
                ["10.0.0.0", "10.255.255.255"],
                ["9.255.255.255", "11.0.0.0"],
            ),
            ("1.2.3.4", ["1.2.3.4", "1.2.3.4"], ["1.2.3.3", "1.2.3.5"]),
            ("fc00::/7", ["fc00::", "fdff::1"], ["fbff::", "fe00::"]),
            (
                "0.0.0.0/0",
                ["0.0.0.0", "255.255.255.255"],
                ["::1", "2001::1"],
            ),
        ] {
            let range: Range = range.parse().unwrap();
            for address in inside {
                assert!(range.holds(address.parse().unwrap()), "{address}");
            }
            for address in outside {
                assert!(!range.holds(address.parse().unwrap()), "{address}");
            }
        }
    }
}
