//! Request heads: parsed, judged, and rewritten for the target.

use std::fmt;
use std::mem::MaybeUninit;

use yonder_protocol::Target;

use crate::PRIMING_HOST;
use crate::body::Framing;
use crate::limits::REQUEST_FIELDS;

use super::target::{Absolute, absolute, host_and_port};
use super::{ConnectionOptions, content_length, list, push_field};

/// What is wrong with a request head. The client is to blame; nothing is dialled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadRequest {
    /// A path where a proxy needs a URL.
    OriginForm,
    /// Not a URL at all.
    Url,
    /// A scheme that is not forwarded in clear.
    Scheme,
    /// `user:password@` in front of the host.
    UserInfo,
    /// A fragment, which belongs to the browser alone.
    Fragment,
    /// A host that is neither a name nor an address.
    Host,
    /// A port that is not 1 to 65,535.
    Port,
    /// Not a request line.
    RequestLine,
    /// Not HTTP/1.0 or HTTP/1.1.
    Version,
    /// A malformed field, a folded one, or white space before its colon.
    Field,
    /// More than one `Host`.
    RepeatedHost,
    /// More than one `Content-Length`.
    RepeatedLength,
    /// A `Content-Length` that is not a number.
    Length,
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoFramings,
    /// A `Transfer-Encoding` other than one `chunked`, or one in HTTP/1.0.
    TransferEncoding,
    /// A body with `CONNECT`, which has none.
    ConnectBody,
    /// More than one `Proxy-Authorization`.
    RepeatedCredential,
    /// More than [`REQUEST_FIELDS`] fields.
    TooManyFields,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OriginForm => {
                "this address is an HTTP proxy, not a web server; \
                 set it as the proxy of a browser or with curl --proxy, and ask for a full URL"
            }
            Self::Url => "the request target is not an absolute http:// URL",
            Self::Scheme => {
                "only http:// URLs are forwarded in clear; clients reach https:// and wss:// with CONNECT"
            }
            Self::UserInfo => "a user name or password in the URL is not accepted; send it in Authorization",
            Self::Fragment => "the request target must not hold a fragment",
            Self::Host => "the host of the request target is neither a name nor an address",
            Self::Port => "the port of the request target is not a number from 1 to 65535",
            Self::RequestLine => "the request line is malformed",
            Self::Version => "only HTTP/1.0 and HTTP/1.1 are spoken here",
            Self::Field => "a header field is malformed, folded, or has white space before its colon",
            Self::RepeatedHost => "Host is given more than once",
            Self::RepeatedLength => "Content-Length is given more than once",
            Self::Length => "Content-Length is not a number",
            Self::TwoFramings => "Content-Length and Transfer-Encoding exclude each other",
            Self::TransferEncoding => "Transfer-Encoding must be chunked alone, and HTTP/1.1",
            Self::ConnectBody => "CONNECT takes no body",
            Self::RepeatedCredential => "Proxy-Authorization is given more than once",
            Self::TooManyFields => "the request has more than 100 header fields",
        })
    }
}

/// A request whose head has been understood.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not one state"
)]
pub(crate) struct Request {
    /// What it wants from the proxy.
    pub(crate) kind: Kind,
    /// What is to be dialled.
    pub(crate) target: Target,
    /// How its body ends.
    pub(crate) framing: Framing,
    /// The client speaks HTTP/1.0: no 1xx, no chunks, no second request.
    pub(crate) http_1_0: bool,
    /// The client asked for the connection to end after this request.
    pub(crate) close: bool,
    /// The answer has no body (`HEAD`).
    pub(crate) head_only: bool,
    /// It may be sent a second time when no answer came: an idempotent method without a body.
    pub(crate) repeatable: bool,
    /// The answer may be 101.
    pub(crate) upgrade: bool,
    /// The credential for the target is tied to the connection (NTLM, Negotiate), so nobody else may use it.
    pub(crate) bound: bool,
    /// A person may look at the answer.
    pub(crate) wants_html: bool,
}

/// What a request wants from the proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// `CONNECT`: a raw pipe.
    Tunnel,
    /// Anything else: one exchange of HTTP.
    Forward,
}

impl Request {
    /// Whether it is for the host that only teaches a browser its credential.
    pub(crate) fn is_priming(&self) -> bool {
        let host = self.target.host();
        host.strip_suffix('.')
            .unwrap_or(host)
            .eq_ignore_ascii_case(PRIMING_HOST)
    }
}

/// What [`parse`] found beside the request itself.
#[derive(Debug)]
pub(crate) struct Parsed<'b> {
    pub(crate) request: Request,
    /// The complete value of `Proxy-Authorization`.
    pub(crate) credential: Option<&'b [u8]>,
}

/// Parses `head`, a complete request head as [`HeadScan`](super::HeadScan) found it, and writes what
/// the target is to get into `forwarded` (nothing for `CONNECT`).
///
/// The target gets the head as the client wrote it, in origin-form and without the fields of this hop. No
/// `Via` is added: servers turn off compression and caching for clients behind a proxy, and pages
/// should behave as they do without one.
pub(crate) fn parse<'b>(head: &'b [u8], forwarded: &mut Vec<u8>) -> Result<Parsed<'b>, BadRequest> {
    forwarded.clear();
    let mut fields = [const { MaybeUninit::uninit() }; REQUEST_FIELDS];
    let mut parser = httparse::Request::new(&mut []);
    match parser.parse_with_uninit_headers(head, &mut fields) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) | Err(httparse::Error::Token | httparse::Error::Status) => {
            return Err(BadRequest::RequestLine);
        }
        Err(httparse::Error::Version) => return Err(BadRequest::Version),
        Err(httparse::Error::TooManyHeaders) => return Err(BadRequest::TooManyFields),
        Err(_) => return Err(BadRequest::Field),
    }
    let (Some(method), Some(url), Some(version)) = (parser.method, parser.path, parser.version)
    else {
        return Err(BadRequest::RequestLine);
    };
    let fields = &*parser.headers;
    let http_1_0 = version == 0;
    let facts = Facts::of(fields, http_1_0)?;
    let options = ConnectionOptions::of(fields);

    let (kind, target, upgrade) = if method == "CONNECT" {
        if !matches!(facts.framing, Framing::Empty | Framing::Length(0)) {
            return Err(BadRequest::ConnectBody);
        }
        (Kind::Tunnel, host_and_port(url, 443)?, None)
    } else {
        let url = absolute(url)?;
        // A connection is upgraded to what the client names, except HTTP/2: its first request would have
        // to be answered in a framing that nobody here checks.
        let upgrade = facts.upgrade.filter(|protocol| {
            options.upgrade && !http_1_0 && !protocol.eq_ignore_ascii_case(b"h2c")
        });
        if url.websocket && upgrade.is_none() {
            return Err(BadRequest::Scheme);
        }
        write_forwarded(
            forwarded,
            method,
            &url,
            fields,
            &options,
            facts.framing,
            upgrade,
        );
        (Kind::Forward, url.target, upgrade)
    };
    let idempotent = matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
    );
    Ok(Parsed {
        request: Request {
            kind,
            target,
            framing: facts.framing,
            http_1_0,
            close: options.close || http_1_0,
            head_only: method == "HEAD",
            repeatable: idempotent && facts.framing == Framing::Empty && upgrade.is_none(),
            upgrade: upgrade.is_some(),
            bound: facts.bound,
            wants_html: facts.wants_html,
        },
        credential: facts.credential,
    })
}

/// What single fields say.
#[derive(Debug)]
struct Facts<'b> {
    framing: Framing,
    credential: Option<&'b [u8]>,
    upgrade: Option<&'b [u8]>,
    bound: bool,
    wants_html: bool,
}

impl<'b> Facts<'b> {
    fn of(fields: &[httparse::Header<'b>], http_1_0: bool) -> Result<Self, BadRequest> {
        let mut length = None;
        let mut coding = None;
        let mut host = false;
        let mut facts = Self {
            framing: Framing::Empty,
            credential: None,
            upgrade: None,
            bound: false,
            wants_html: false,
        };
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                if length.replace(field.value).is_some() {
                    return Err(BadRequest::RepeatedLength);
                }
            } else if is("transfer-encoding") {
                if coding.replace(field.value).is_some() {
                    return Err(BadRequest::TransferEncoding);
                }
            } else if is("host") {
                if std::mem::replace(&mut host, true) {
                    return Err(BadRequest::RepeatedHost);
                }
            } else if is("proxy-authorization") {
                if facts.credential.replace(field.value).is_some() {
                    return Err(BadRequest::RepeatedCredential);
                }
            } else if is("upgrade") {
                facts.upgrade = Some(field.value);
            } else if is("authorization") {
                let scheme = field
                    .value
                    .split(|&byte| byte == b' ')
                    .next()
                    .unwrap_or_default();
                facts.bound |= scheme.eq_ignore_ascii_case(b"ntlm")
                    || scheme.eq_ignore_ascii_case(b"negotiate");
            } else if is("accept") {
                facts.wants_html |= list(field.value)
                    .filter_map(|range| range.split(|&byte| byte == b';').next())
                    .any(|range| range.trim_ascii().eq_ignore_ascii_case(b"text/html"));
            }
        }
        facts.framing = match (length, coding) {
            (Some(_), Some(_)) => return Err(BadRequest::TwoFramings),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") && !http_1_0 => {
                Framing::Chunked
            }
            (None, Some(_)) => return Err(BadRequest::TransferEncoding),
            (Some(length), None) => {
                Framing::Length(content_length(length).ok_or(BadRequest::Length)?)
            }
            (None, None) => Framing::Empty,
        };
        Ok(facts)
    }
}

fn write_forwarded(
    out: &mut Vec<u8>,
    method: &str,
    url: &Absolute<'_>,
    fields: &[httparse::Header<'_>],
    options: &ConnectionOptions<'_>,
    framing: Framing,
    upgrade: Option<&[u8]>,
) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    if url.rest.is_empty() && method == "OPTIONS" {
        // The request was about the server as a whole (RFC 9112, section 3.2.4).
        out.push(b'*');
    } else {
        if !url.rest.starts_with('/') {
            out.push(b'/');
        }
        out.extend_from_slice(url.rest.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_field(out, "Host", url.authority.as_bytes());
    for field in fields {
        if !field.name.eq_ignore_ascii_case("host") && options.forwards(field.name) {
            push_field(out, field.name, field.value);
        }
    }
    if framing == Framing::Chunked {
        push_field(out, "Transfer-Encoding", b"chunked");
    }
    if let Some(protocol) = upgrade {
        push_field(out, "Connection", b"Upgrade");
        push_field(out, "Upgrade", protocol);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
