//! Targets that the server half serves by itself, to measure a link with: names below `.invalid`, which can never be those of
//! hosts (RFC 6761, section 6.4). Any port will do.
//!
//! | target | does |
//! | --- | --- |
//! | `source.yonder.invalid` | sends bytes that do not compress, until the client ends its direction |
//! | `N.source.yonder.invalid` | sends N of them, then ends |
//! | `sink.yonder.invalid` | takes bytes; says how many so far in lines of decimal digits, now and then and at the end |
//! | `echo.yonder.invalid` | sends back what it gets |

use crate::target::{HOST_BYTES_MAX, Target};

/// Host of the source, also behind the wished number of bytes and a dot.
const SOURCE: &str = "source.yonder.invalid";

/// Host of the sink.
const SINK: &str = "sink.yonder.invalid";

/// Host of the echo.
const ECHO: &str = "echo.yonder.invalid";

/// The port that this half writes, where none means anything: that of the discard protocol (RFC 863).
const PORT: u16 = 9;

/// One of the targets above.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    /// Sends bytes: so many, or for as long as the client likes.
    Source {
        /// How many.
        bytes: Option<u64>,
    },
    /// Takes bytes and counts them.
    Sink,
    /// Sends back what it gets.
    Echo,
}

impl Builtin {
    /// Which one `target` is, if any.
    pub fn of(target: &Target) -> Option<Self> {
        let host = target.host();
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if let Some(head) = host.strip_suffix(SOURCE) {
            let bytes = match head.strip_suffix('.') {
                None if head.is_empty() => None,
                Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(number.parse().ok()?)
                }
                _ => return None,
            };
            return Some(Self::Source { bytes });
        }
        match host.as_str() {
            SINK => Some(Self::Sink),
            ECHO => Some(Self::Echo),
            _ => None,
        }
    }

    /// The target to open for it.
    pub fn target(self) -> Target {
        let host = match self {
            Self::Source { bytes: None } => SOURCE.to_owned(),
            Self::Source { bytes: Some(bytes) } => format!("{bytes}.{SOURCE}"),
            Self::Sink => SINK.to_owned(),
            Self::Echo => ECHO.to_owned(),
        };
        debug_assert!(host.len() <= HOST_BYTES_MAX);
        Target::new(&host, PORT).expect("a short host of plain letters and a port above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_target() {
        for builtin in [
            Builtin::Source { bytes: None },
            Builtin::Source { bytes: Some(0) },
            Builtin::Source {
                bytes: Some(u64::MAX),
            },
            Builtin::Sink,
            Builtin::Echo,
        ] {
            assert_eq!(Builtin::of(&builtin.target()), Some(builtin));
        }
        let odd = Target::new("ECHO.Yonder.Invalid.", 80).unwrap();
        assert_eq!(Builtin::of(&odd), Some(Builtin::Echo));
    }

    #[test]
    fn other_names_are_left_alone() {
        for host in [
            "localhost",
            "yonder.invalid",
            "a.echo.yonder.invalid",
            "mysource.yonder.invalid",
            "x.source.yonder.invalid",
            ".source.yonder.invalid",
            "-1.source.yonder.invalid",
            "99999999999999999999.source.yonder.invalid",
            "source.yonder.invalid.example",
        ] {
            let target = Target::new(host, 1).unwrap();
            assert_eq!(Builtin::of(&target), None, "{host}");
        }
    }
}
