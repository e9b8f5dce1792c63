//! Heads of messages: where they end, and which of their fields are for this hop only.
//!
//! `httparse` splits a head into fields but is lenient about line ends, so a request head is looked
//! through here first. What is refused is whatever two parsers might read differently.

pub(crate) mod request;
pub(crate) mod response;
mod target;

use crate::limits::HEAD_BYTES;

/// Why bytes do not begin a request head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InvalidHead {
    /// More than [`HEAD_BYTES`].
    TooLong,
    /// The first byte cannot begin a method.
    NotHttp,
    /// A CR without LF or an LF without CR.
    BareLineEnd,
}

/// Looks for the end of a request head in bytes that come bit by bit.
#[derive(Debug, Default)]
pub(crate) struct HeadScan {
    /// Bytes looked through already.
    seen: usize,
    /// Where the current line begins.
    line: usize,
}

impl HeadScan {
    /// The length of the head at the start of `bytes`, its empty line included, once it has come.
    /// `bytes` must begin with those of the call before.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, InvalidHead> {
        if bytes.first().is_some_and(|first| !first.is_ascii_graphic()) {
            return Err(InvalidHead::NotHttp);
        }
        while let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[self.seen..]) {
            let at = self.seen + found;
            if bytes[at] == b'\n' {
                return Err(InvalidHead::BareLineEnd);
            }
            match bytes.get(at + 1) {
                Some(b'\n') => {}
                Some(_) => return Err(InvalidHead::BareLineEnd),
                None => {
                    self.seen = at;
                    return partial(bytes);
                }
            }
            self.seen = at + 2;
            if at == self.line {
                return if self.seen > HEAD_BYTES {
                    Err(InvalidHead::TooLong)
                } else {
                    Ok(Some(self.seen))
                };
            }
            self.line = self.seen;
        }
        self.seen = bytes.len();
        partial(bytes)
    }
}

/// The verdict on a head whose end has not come.
fn partial(bytes: &[u8]) -> Result<Option<usize>, InvalidHead> {
    if bytes.len() > HEAD_BYTES {
        return Err(InvalidHead::TooLong);
    }
    Ok(None)
}

/// Fields that concern one connection only and are not forwarded (RFC 9110, section 7.6.1, and the
/// proxy's own of section 11.7). `Trailer` is not one of them: trailers are passed on. `Yonder-Error`
/// is ours, so that a target cannot pass its answer off as the proxy's.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "yonder-error",
];

/// Fields that a sender may not declare hop-by-hop: without them the message would mean
/// something else.
const NEVER_HOP_BY_HOP: [&str; 2] = ["content-length", "host"];

/// What `Connection` and `Proxy-Connection` ask for.
#[derive(Debug, Default)]
pub(crate) struct ConnectionOptions<'b> {
    /// The connection ends after this message.
    pub(crate) close: bool,
    /// The connection may go on, said by an HTTP/1.0 peer.
    pub(crate) keep_alive: bool,
    /// `Upgrade` is meant.
    pub(crate) upgrade: bool,
    /// Names of further fields that are for this hop only.
    named: Vec<&'b [u8]>,
}

impl<'b> ConnectionOptions<'b> {
    /// Gathers the options of a head.
    pub(crate) fn of(fields: &[httparse::Header<'b>]) -> Self {
        let mut options = Self::default();
        for field in fields {
            if field.name.eq_ignore_ascii_case("connection")
                || field.name.eq_ignore_ascii_case("proxy-connection")
            {
                for option in list(field.value) {
                    options.add(option);
                }
            }
        }
        options
    }

    fn add(&mut self, option: &'b [u8]) {
        if option.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        } else {
            self.named.push(option);
        }
    }

    /// Whether the field `name` goes on to the next hop.
    pub(crate) fn forwards(&self, name: &str) -> bool {
        if NEVER_HOP_BY_HOP
            .iter()
            .any(|never| name.eq_ignore_ascii_case(never))
        {
            return true;
        }
        !HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop))
            && !self
                .named
                .iter()
                .any(|named| named.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// The members of a comma-separated list without the white space around them (RFC 9110, section 5.6.1).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// The number in a `Content-Length`: digits and nothing else.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    // The parser of integers takes a sign, which a length may not have.
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Writes one field.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_however_it_comes() {
        let bytes = b"GET / HTTP/1.1\r\na: b\r\n\r\nrest";
        let end = bytes.len() - 4;
        for cut in 1..bytes.len() {
            let mut scan = HeadScan::default();
            let first = scan.advance(&bytes[..cut]).unwrap();
            assert_eq!(first, (cut >= end).then_some(end), "{cut}");
            if first.is_none() {
                assert_eq!(scan.advance(bytes), Ok(Some(end)));
            }
        }
    }

    #[test]
    fn odd_line_ends_are_seen_early() {
        for (bytes, error) in [
            (b"GET / HTTP/1.1\n".as_slice(), InvalidHead::BareLineEnd),
            (b"GET / HTTP/1.1\r\na: b\rc", InvalidHead::BareLineEnd),
            (b"GET / HTTP/1.1\r\n\n", InvalidHead::BareLineEnd),
            (b"\x16\x03\x01", InvalidHead::NotHttp),
            (&vec![b'a'; HEAD_BYTES + 1], InvalidHead::TooLong),
        ] {
            assert_eq!(HeadScan::default().advance(bytes), Err(error));
        }
    }

    #[test]
    fn connection_options_name_fields_to_drop() {
        let fields = [httparse::Header {
            name: "Connection",
            value: b"close, X-Private,Content-Length , upgrade",
        }];
        let options = ConnectionOptions::of(&fields);
        assert!(options.close && options.upgrade && !options.keep_alive);
        assert!(!options.forwards("x-private"));
        assert!(!options.forwards("Proxy-Authorization"));
        assert!(options.forwards("content-length"));
        assert!(options.forwards("Trailer"));
    }

    #[test]
    fn lengths_are_digits() {
        assert_eq!(content_length(b"12"), Some(12));
        for bad in ["", "+1", "-1", "1, 1", "0x1", "18446744073709551616"] {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad}");
        }
    }
}
