//! Response heads: parsed, judged, and rewritten for the client.

use std::fmt;
use std::mem::MaybeUninit;

use crate::body::Framing;
use crate::limits::{HEAD_BYTES, RESPONSE_FIELDS};

use super::{ConnectionOptions, content_length, push_field};

/// What is wrong with a response head. The target is to blame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadResponse {
    /// Not an HTTP/1 response.
    Malformed,
    /// More than [`HEAD_BYTES`] or [`RESPONSE_FIELDS`].
    TooLong,
    /// Lengths that contradict each other or are no numbers.
    Length,
    /// A transfer coding that nobody asked for.
    TransferEncoding,
    /// 101 without a request to upgrade.
    UnaskedUpgrade,
    /// 407, which only a proxy may send: a browser would forget its credential for the real one.
    ProxyStatus,
    /// Interim responses without end.
    InterimFlood,
}

impl fmt::Display for BadResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the answer is not HTTP/1",
            Self::TooLong => "the head of the answer exceeds 64 KiB or 256 fields",
            Self::Length => "the answer's Content-Length is contradictory or not a number",
            Self::TransferEncoding => "the answer uses a transfer coding other than chunked",
            Self::UnaskedUpgrade => "the answer switches protocols without being asked to",
            Self::ProxyStatus => {
                "the answer is 407 Proxy Authentication Required, which only a proxy may send"
            }
            Self::InterimFlood => "interim answers (1xx) do not end",
        })
    }
}

/// What of the request decides how its response is read and passed on.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not one state"
)]
pub(crate) struct Asked {
    /// The method was `HEAD`.
    pub(crate) head_only: bool,
    /// An upgrade was asked for.
    pub(crate) upgrade: bool,
    /// The client speaks HTTP/1.0: it gets neither 1xx nor chunks.
    pub(crate) http_1_0: bool,
    /// The client connection ends after this response.
    pub(crate) close: bool,
}

/// A response whose head has been understood.
#[derive(Debug)]
pub(crate) struct Response {
    /// Length of its head.
    pub(crate) length: usize,
    /// What kind of response it is.
    pub(crate) kind: Kind,
    /// How its body ends.
    pub(crate) framing: Framing,
    /// The target keeps its connection open for another request.
    pub(crate) keeps_open: bool,
    /// The client is told that its connection ends after this response.
    pub(crate) close: bool,
}

/// What follows a response head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// 1xx: another response.
    Interim,
    /// 101: another protocol.
    Switch,
    /// The body, if there is one, and then nothing.
    Final,
}

/// Parses the head at the start of `bytes` if it has come whole, and writes what the client is to get
/// into `forwarded`.
pub(crate) fn parse(
    bytes: &[u8],
    asked: Asked,
    forwarded: &mut Vec<u8>,
) -> Result<Option<Response>, BadResponse> {
    forwarded.clear();
    let mut fields = [const { MaybeUninit::uninit() }; RESPONSE_FIELDS];
    let mut parser = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    // White space there must be removed by a proxy, not refused (RFC 9112, section 5.1).
    config.allow_spaces_after_header_name_in_responses(true);
    let length = match config.parse_response_with_uninit_headers(&mut parser, bytes, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES => length,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadResponse::TooLong),
        Err(_) => return Err(BadResponse::Malformed),
    };
    let (Some(version), Some(status)) = (parser.version, parser.code) else {
        return Err(BadResponse::Malformed);
    };
    let reason = parser.reason.unwrap_or_default();
    let fields = &*parser.headers;
    let kind = match status {
        101 if asked.upgrade => Kind::Switch,
        101 => return Err(BadResponse::UnaskedUpgrade),
        100..=199 => Kind::Interim,
        407 => return Err(BadResponse::ProxyStatus),
        200..=999 => Kind::Final,
        _ => return Err(BadResponse::Malformed),
    };
    let options = ConnectionOptions::of(fields);
    let announced = announced_framing(fields, version == 0)?;
    let bodiless = asked.head_only || kind != Kind::Final || matches!(status, 204 | 304);
    let framing = if bodiless { Framing::Empty } else { announced };
    // An HTTP/1.0 client reads until the end where the target sends chunks.
    let dechunk = asked.http_1_0 && framing == Framing::Chunked;
    let close = kind == Kind::Final && (asked.close || dechunk || framing == Framing::UntilClose);
    let response = Response {
        length,
        kind,
        framing,
        keeps_open: kind == Kind::Final
            && framing != Framing::UntilClose
            && !options.close
            && (version == 1 || options.keep_alive),
        close,
    };

    forwarded.extend_from_slice(b"HTTP/1.1 ");
    forwarded.extend_from_slice(status.to_string().as_bytes());
    forwarded.push(b' ');
    forwarded.extend_from_slice(reason.as_bytes());
    forwarded.extend_from_slice(b"\r\n");
    let has_length = match announced {
        // Beside chunks a length means nothing, and 1xx and 204 have none (RFC 9110, section 8.6).
        Framing::Length(_) => kind == Kind::Final && status != 204,
        _ => false,
    };
    for field in fields {
        if options.forwards(field.name) && !field.name.eq_ignore_ascii_case("content-length") {
            push_field(forwarded, field.name, field.value);
        } else if kind == Kind::Switch && field.name.eq_ignore_ascii_case("upgrade") {
            push_field(forwarded, "Upgrade", field.value);
        }
    }
    if let Framing::Length(length) = announced
        && has_length
    {
        push_field(forwarded, "Content-Length", length.to_string().as_bytes());
    }
    if framing == Framing::Chunked && !dechunk {
        push_field(forwarded, "Transfer-Encoding", b"chunked");
    }
    if kind == Kind::Switch {
        push_field(forwarded, "Connection", b"Upgrade");
    } else if close {
        push_field(forwarded, "Connection", b"close");
    }
    forwarded.extend_from_slice(b"\r\n");
    Ok(Some(response))
}

/// How the body ends if there is one (RFC 9112, section 6.3).
fn announced_framing(
    fields: &[httparse::Header<'_>],
    http_1_0: bool,
) -> Result<Framing, BadResponse> {
    let mut length = None;
    let mut chunked = false;
    for field in fields {
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || http_1_0 || !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(BadResponse::TransferEncoding);
            }
            chunked = true;
        } else if field.name.eq_ignore_ascii_case("content-length") {
            // A length that is repeated is tolerated as long as it stays the same.
            for member in field.value.split(|&byte| byte == b',') {
                let member = content_length(member.trim_ascii())
                    .filter(|_| !member.is_empty())
                    .ok_or(BadResponse::Length)?;
                if length
                    .replace(member)
                    .is_some_and(|before| before != member)
                {
                    return Err(BadResponse::Length);
                }
            }
        }
    }
    Ok(match length {
        _ if chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Asked = Asked {
        head_only: false,
        upgrade: false,
        http_1_0: false,
        close: false,
    };

    fn read(head: &str, asked: Asked) -> Result<(Response, String), BadResponse> {
        let mut out = Vec::new();
        let response = parse(head.as_bytes(), asked, &mut out)?.expect("a whole head");
        assert_eq!(response.length, head.len());
        Ok((response, String::from_utf8(out).unwrap()))
    }

    #[test]
    fn framing_follows_the_rules() {
        let framing = |lines: &str, asked: Asked| {
            read(&format!("HTTP/1.1 {lines}\r\n\r\n"), asked).map(|(response, _)| response.framing)
        };
        let head_only = Asked {
            head_only: true,
            ..PLAIN
        };
        for (lines, asked, expected) in [
            ("200 OK\r\nContent-Length: 5", PLAIN, Ok(Framing::Length(5))),
            (
                "200 OK\r\nContent-Length: 5, 5",
                PLAIN,
                Ok(Framing::Length(5)),
            ),
            (
                "200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
                PLAIN,
                Err(BadResponse::Length),
            ),
            (
                "200 OK\r\nContent-Length: x",
                PLAIN,
                Err(BadResponse::Length),
            ),
            ("200 OK\r\nContent-Length:", PLAIN, Err(BadResponse::Length)),
            (
                "200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
                PLAIN,
                Ok(Framing::Chunked),
            ),
            (
                "200 OK\r\nTransfer-Encoding: gzip",
                PLAIN,
                Err(BadResponse::TransferEncoding),
            ),
            ("200 OK", PLAIN, Ok(Framing::UntilClose)),
            ("200 OK\r\nContent-Length: 5", head_only, Ok(Framing::Empty)),
            (
                "204 No Content\r\nContent-Length: 5",
                PLAIN,
                Ok(Framing::Empty),
            ),
            (
                "304 Not Modified\r\nContent-Length: 5",
                PLAIN,
                Ok(Framing::Empty),
            ),
            ("100 Continue", PLAIN, Ok(Framing::Empty)),
            (
                "101 Switching Protocols",
                PLAIN,
                Err(BadResponse::UnaskedUpgrade),
            ),
            (
                "407 Proxy Authentication Required",
                PLAIN,
                Err(BadResponse::ProxyStatus),
            ),
            ("99 Odd", PLAIN, Err(BadResponse::Malformed)),
        ] {
            assert_eq!(framing(lines, asked), expected, "{lines}");
        }
    }

    #[test]
    fn the_client_gets_the_head_without_the_fields_of_this_hop() {
        let head = "HTTP/1.0 200 Fine\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nSet-Cookie : a\r\n\
            Upgrade: h2c\r\nYonder-Error: refused\r\nContent-Length: 1, 1\r\nSet-Cookie: b\r\n\r\n";
        let (response, text) = read(head, PLAIN).unwrap();
        assert!(response.keeps_open);
        assert_eq!(
            text,
            "HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 1\r\n\r\n"
        );
    }

    #[test]
    fn connections_end_where_the_body_does_not_say_so() {
        let (response, text) = read("HTTP/1.1 200 OK\r\n\r\n", PLAIN).unwrap();
        assert!(response.close && !response.keeps_open);
        assert!(text.contains("Connection: close\r\n"));
        let old = Asked {
            http_1_0: true,
            close: true,
            ..PLAIN
        };
        let (response, text) =
            read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", old).unwrap();
        assert!(response.close && response.keeps_open);
        assert!(!text.contains("chunked"));
    }

    #[test]
    fn a_switch_keeps_its_fields() {
        let asked = Asked {
            upgrade: true,
            ..PLAIN
        };
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        let (response, text) = read(head, asked).unwrap();
        assert_eq!(response.kind, Kind::Switch);
        assert_eq!(text, head);
    }

    #[test]
    fn a_head_that_never_ends_is_refused() {
        let mut head = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        let mut out = Vec::new();
        assert!(parse(&head, PLAIN, &mut out).unwrap().is_none());
        head.resize(HEAD_BYTES + 1, b'a');
        assert_eq!(
            parse(&head, PLAIN, &mut out).unwrap_err(),
            BadResponse::TooLong
        );
        assert_eq!(
            parse(b"SSH-2.0-x\r\n", PLAIN, &mut out).unwrap_err(),
            BadResponse::Malformed
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzzing::fuzz_response_head(&bytes);
        }

        #[test]
        fn heads_near_the_grammar_are_judged_without_panic(
            line in "HTTP/1\\.[01] (1[0-9]{2}|200|204|304|[0-9]{3}) ?[ -~]{0,9}",
            fields in prop::collection::vec(
                ("(Content-Length|Transfer-Encoding|Connection|Upgrade|[!-~]{0,5}) ?", "(chunked|[0-9,+ ]{0,4}|[ -~\t]{0,9})", "\r\n|\n"),
                0..6,
            ),
        ) {
            use std::fmt::Write as _;
            let mut head = format!("{line}\r\n");
            for (name, value, end) in fields {
                let _ = write!(head, "{name}:{value}{end}");
            }
            head.push_str("\r\n");
            crate::fuzzing::fuzz_response_head(head.as_bytes());
        }
    }
}
