//! What the proxy itself answers: challenges, refusals, and why a target could not be reached.
//!
//! A person in a browser gets a small page that needs nothing from elsewhere, a program a few lines of
//! text; both say what failed, where, and what to do next. `Yonder-Error` carries the same as one word.

use std::fmt::Write as _;

use yonder_protocol::{Target, TunnelError, TunnelErrorCode};

use crate::head::InvalidHead;

/// An answer of the proxy's own.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    reason: &'static str,
    /// Value of `Yonder-Error`.
    code: &'static str,
    /// What failed, and where.
    title: String,
    /// The cause.
    detail: String,
    /// What to do next.
    hint: &'static str,
    /// Value of `Proxy-Authenticate`.
    challenge: Option<String>,
}

/// How an answer is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// As a page rather than as text.
    pub(crate) html: bool,
    /// Without its body, which a `HEAD` request must not get.
    pub(crate) head_only: bool,
    /// The connection ends afterwards.
    pub(crate) close: bool,
}

impl Style {
    /// For a client of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        html: false,
        head_only: false,
        close: true,
    };
}

/// The answer to a primed browser: nothing, so that the tab stays where it is.
pub(crate) const PRIMED: &[u8] = b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n";

/// The answer to a client beyond the limit of connections, written without waiting.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 70\r\nCache-Control: no-store\r\n\
    Yonder-Error: overloaded\r\nConnection: close\r\n\r\n\
    503 the proxy has too many connections; close some and try once more\r\n";

impl Answer {
    /// 400 to a request that is refused for `detail`.
    pub(crate) fn bad_request(detail: &impl ToString) -> Self {
        Self {
            status: 400,
            reason: "Bad Request",
            code: "bad_request",
            title: "The proxy refused the request".to_owned(),
            detail: detail.to_string(),
            hint: "Nothing was sent on. Correct the request.",
            challenge: None,
        }
    }

    /// 431 to a head with too many fields or bytes.
    pub(crate) fn head_too_large() -> Self {
        Self {
            status: 431,
            reason: "Request Header Fields Too Large",
            code: "head_too_large",
            title: "The request head is too large".to_owned(),
            detail: "a request head may have 64 KiB and 100 fields".to_owned(),
            hint: "Nothing was sent on. If cookies are the cause, delete those of this site.",
            challenge: None,
        }
    }

    /// 400 or 431 to bytes that begin no request.
    pub(crate) fn invalid_head(error: InvalidHead) -> Self {
        match error {
            InvalidHead::TooLong => Self::head_too_large(),
            InvalidHead::NotHttp => Self::bad_request(
                &"this is not HTTP; this address is an HTTP proxy, which https:// and other protocols reach with CONNECT",
            ),
            InvalidHead::BareLineEnd => {
                Self::bad_request(&"the request head holds a CR or LF on its own")
            }
        }
    }

    /// 408 to a head that did not come whole.
    pub(crate) fn head_timeout() -> Self {
        Self {
            status: 408,
            reason: "Request Timeout",
            code: "head_timeout",
            title: "The request did not arrive in time".to_owned(),
            detail: "the request head was not complete within its time limit".to_owned(),
            hint: "Send it once more.",
            challenge: None,
        }
    }

    /// 407 with a challenge.
    pub(crate) fn authenticate(realm: &str) -> Self {
        Self {
            status: 407,
            reason: "Proxy Authentication Required",
            code: "proxy_authentication_required",
            title: "The proxy needs a user name and password".to_owned(),
            detail: "the request carried no valid Proxy-Authorization".to_owned(),
            hint: "Use the proxy URL as it was printed, with user name and password; each start makes new ones.",
            challenge: Some(format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")),
        }
    }

    /// 403 without a challenge.
    pub(crate) fn unauthenticated() -> Self {
        Self {
            status: 403,
            reason: "Forbidden",
            code: "unauthenticated",
            title: "The proxy does not know this browser".to_owned(),
            detail: "the request carried no valid credential".to_owned(),
            hint: "Only the browser that was started for this proxy may use it; there, reload the page.",
            challenge: None,
        }
    }

    /// The failure of a tunnel to `target`.
    pub(crate) fn tunnel(target: &Target, error: &TunnelError) -> Self {
        let code = error.code;
        let (status, reason) = match code {
            TunnelErrorCode::TimedOut => (504, "Gateway Timeout"),
            TunnelErrorCode::Denied => (403, "Forbidden"),
            TunnelErrorCode::Overloaded | TunnelErrorCode::LinkDown => (503, "Service Unavailable"),
            _ => (502, "Bad Gateway"),
        };
        Self {
            status,
            reason,
            code: name(code),
            title: format!("Could not reach {target} from the server"),
            detail: if error.message.is_empty() {
                name(code).replace('_', " ")
            } else {
                error.message.clone()
            },
            hint: hint(code),
            challenge: None,
        }
    }

    /// 502 to an answer of `target` that is not understood for `detail`.
    pub(crate) fn bad_response(target: &Target, detail: &impl ToString) -> Self {
        Self {
            status: 502,
            reason: "Bad Gateway",
            code: "bad_response",
            title: format!("{target} gave an answer that cannot be passed on"),
            detail: detail.to_string(),
            hint: "Is it a web server that speaks plain HTTP on this port? For TLS use https://.",
            challenge: None,
        }
    }

    /// 502 to a target that closed the connection in place of an answer.
    pub(crate) fn no_response(target: &Target) -> Self {
        Self {
            status: 502,
            reason: "Bad Gateway",
            code: "no_response",
            title: format!("{target} closed the connection without an answer"),
            detail: "the connection was closed before an answer came".to_owned(),
            hint: "Its own log may tell why. If this port speaks TLS, use https://.",
            challenge: None,
        }
    }

    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The answer as bytes for the wire.
    pub(crate) fn render(&self, style: Style) -> Vec<u8> {
        let body = if style.html { self.page() } else { self.text() };
        let kind = if style.html { "html" } else { "plain" };
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: text/{kind}; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nYonder-Error: {}\r\n",
            self.status,
            self.reason,
            body.len(),
            self.code
        );
        if style.html {
            head.push_str(
                "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n",
            );
        }
        if let Some(challenge) = &self.challenge {
            head.push_str("Proxy-Authenticate: ");
            head.push_str(challenge);
            head.push_str("\r\n");
        }
        if style.close {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        if !style.head_only {
            head.push_str(&body);
        }
        head.into_bytes()
    }

    fn text(&self) -> String {
        format!(
            "{} {}: {}\r\n{}\r\n",
            self.status, self.title, self.detail, self.hint
        )
    }

    fn page(&self) -> String {
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
             <title>{title}</title><style>\
             body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:15vh auto 0;padding:0 1em}}\
             h1{{font-size:1.4em;font-weight:600;overflow-wrap:anywhere}}\
             code{{font-size:.9em;overflow-wrap:anywhere}}small{{opacity:.6}}</style></head>\n\
             <body><h1>{title}</h1>\n<p><code>{}</code></p>\n<p>{}</p>\n\
             <p><small>Yonder proxy · {} {} · {}</small></p></body></html>\n",
            escape(&self.detail),
            escape(self.hint),
            self.status,
            self.reason,
            self.code,
        )
    }
}

/// The word for `code` in `Yonder-Error`.
fn name(code: TunnelErrorCode) -> &'static str {
    match code {
        TunnelErrorCode::Refused => "refused",
        TunnelErrorCode::Unreachable => "unreachable",
        TunnelErrorCode::NameNotFound => "name_not_found",
        TunnelErrorCode::TimedOut => "timed_out",
        TunnelErrorCode::Denied => "denied",
        TunnelErrorCode::Reset => "reset",
        TunnelErrorCode::Overloaded => "overloaded",
        TunnelErrorCode::FlowControl => "flow_control",
        TunnelErrorCode::Cancelled => "cancelled",
        TunnelErrorCode::LinkDown => "link_down",
        _ => "internal",
    }
}

/// What to do about `code`.
fn hint(code: TunnelErrorCode) -> &'static str {
    match code {
        TunnelErrorCode::Refused => {
            "Nothing listens on that port of the server. Start the program there, or check the port."
        }
        TunnelErrorCode::Unreachable => {
            "The server has no route to that host. Check the address and the server's network."
        }
        TunnelErrorCode::NameNotFound => {
            "Names are resolved on the server, and it does not know this one. Check the spelling, or use an address."
        }
        TunnelErrorCode::TimedOut => {
            "The server got no answer in time. The host may be down, or a firewall may drop the connection."
        }
        TunnelErrorCode::Denied => {
            "The server's egress policy forbids this target. Whoever runs the server can allow it."
        }
        TunnelErrorCode::Reset => {
            "The program on that port cut the connection. Its own log may tell why."
        }
        TunnelErrorCode::Overloaded => {
            "A limit of tunnels or memory was reached. Close some pages and try once more."
        }
        TunnelErrorCode::LinkDown => {
            "The connection to the server is down and is being made again. Try once more in a moment."
        }
        _ => "Try once more. If it stays so, the logs of both halves tell more.",
    }
}

/// Makes `text` harmless inside an HTML element or attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Style = Style {
        html: true,
        head_only: false,
        close: false,
    };

    fn parts(bytes: &[u8]) -> (String, String) {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn a_page_tells_what_where_and_what_next() {
        let target = Target::new("localhost", 8000).unwrap();
        let error = TunnelError::new(TunnelErrorCode::Refused, "<connection> refused");
        let (head, body) = parts(&Answer::tunnel(&target, &error).render(PAGE));
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"));
        assert!(head.contains("Yonder-Error: refused"));
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(body.contains("localhost:8000") && body.contains("&lt;connection&gt; refused"));
        assert!(body.contains("Nothing listens on that port"));
    }

    #[test]
    fn statuses_follow_the_cause() {
        let target = Target::new("h", 1).unwrap();
        for (code, status) in [
            (TunnelErrorCode::Refused, 502),
            (TunnelErrorCode::NameNotFound, 502),
            (TunnelErrorCode::TimedOut, 504),
            (TunnelErrorCode::Denied, 403),
            (TunnelErrorCode::Overloaded, 503),
            (TunnelErrorCode::LinkDown, 503),
        ] {
            let answer = Answer::tunnel(&target, &TunnelError::new(code, ""));
            assert_eq!(answer.status(), status);
            assert!(!answer.detail.is_empty());
        }
    }

    #[test]
    fn a_head_request_gets_no_body() {
        let style = Style {
            head_only: true,
            ..Style::UNKNOWN
        };
        let (head, body) = parts(&Answer::head_timeout().render(style));
        assert!(head.contains("Connection: close") && body.is_empty());
    }

    #[test]
    fn the_fixed_answer_has_the_length_it_says() {
        let (head, body) = parts(TOO_MANY_CONNECTIONS);
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{}",
            body.len()
        );
    }

    #[test]
    fn escaping_leaves_no_markup() {
        assert_eq!(
            escape("<a href='x'>&\"\n"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\u{a}"
        );
    }
}
