//! Plain HTTP/1.1 requests to the server half, and what its answers mean.
//!
//! One [`HttpConnection`] carries one request at a time; whoever needs two at once opens two. Redirects are never
//! followed, proxies from the environment are not used.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::address::ServerAddress;
use crate::carrier::ConnectError;
use crate::dial::{ClientIo, dial};
use crate::{VERSION, VERSION_HEADER};

/// What is read of an answer that only serves to say what went wrong.
pub(crate) const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// Characters of a foreign text that a message repeats.
const QUOTED_CHARS_MAX: usize = 200;

/// Whom to ask, and what every request says.
#[derive(Debug)]
pub(crate) struct HttpClient {
    address: ServerAddress,
    tls: Option<Arc<ClientConfig>>,
    headers: HeaderMap,
}

/// One connection to the server half.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Drives the connection for as long as somebody holds it.
    _driver: JoinSet<()>,
    /// Whether nobody between the halves can see or choose bytes on the wire.
    pub(crate) private: bool,
    /// What protects the connection, for a person.
    pub(crate) protection: &'static str,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the answer did not come within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the answer broke off or was longer than {0} bytes")]
    Answer(usize),
}

impl RequestError {
    /// Whether the connection is at fault, so that a fresh one may do better.
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(self, Self::TimedOut(_))
    }
}

impl HttpClient {
    /// A client that sends `headers`, among them the token, with every request.
    pub(crate) fn new(
        address: ServerAddress,
        tls: Option<Arc<ClientConfig>>,
        headers: HeaderMap,
    ) -> Self {
        Self {
            address,
            tls,
            headers,
        }
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Opens a connection. Cancel safe.
    pub(crate) async fn open(&self) -> Result<HttpConnection, ConnectError> {
        let io = dial(&self.address, self.tls.as_ref()).await?;
        let (private, protection) = (io.is_private(), io.protection());
        let (sender, connection) = http1::handshake(TokioIo::new(io))
            .await
            .map_err(|error| self.broken(&error))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "an HTTP connection to the server ended");
            }
        });
        Ok(HttpConnection {
            sender,
            _driver: driver,
            private,
            protection,
        })
    }

    /// A request with everything that all of them have. `route` is relative to the server's address.
    pub(crate) fn request(&self, method: Method, route: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = self.anonymous_request(method, route, body);
        for (name, value) in &self.headers {
            request.headers_mut().append(name.clone(), value.clone());
        }
        request
    }

    /// The same without the token and the person's own headers.
    pub(crate) fn anonymous_request(
        &self,
        method: Method,
        route: &str,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let length = body.len();
        let mut request = Request::new(Full::new(body));
        // The HTTP library leaves the length of an empty body out; lighttpd answers 411 to a POST without.
        if method == Method::POST {
            let headers = request.headers_mut();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        *request.method_mut() = method;
        // Both are checked when the address is parsed, so neither can fail here; a server would refuse their lack.
        if let Ok(uri) = self.address.path(route).parse() {
            *request.uri_mut() = uri;
        }
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::try_from(self.address.authority()) {
            headers.insert(HOST, host);
        }
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("yonder/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        request
    }

    /// The error for a connection that broke before the answer.
    pub(crate) fn broken(&self, error: &dyn std::fmt::Display) -> ConnectError {
        ConnectError::Unreachable {
            server: self.address.to_string(),
            problem: format!("{error}; is it tunnel-server that listens there?"),
            source: None,
        }
    }

    /// Says what an answer means that is not one to the question: refusals, answers of others, overload.
    ///
    /// # Errors
    /// Everything but an answer that the server half gave and that leaves the judgement to the caller.
    pub(crate) fn judge(&self, answer: &Response<Bytes>) -> Result<(), ConnectError> {
        let status = answer.status();
        let server = self.address.to_string();
        let ours = answer.headers().contains_key(VERSION_HEADER);
        match (status, ours) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, true) => Err(ConnectError::Refused {
                server,
                status,
                problem: problem_in(answer.body()).unwrap_or_else(|| {
                    "the token is not the server's; copy the one that `tunnel-server token` names".to_owned()
                }),
            }),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, false) => Err(ConnectError::Refused {
                server,
                status,
                problem: format!(
                    "it was not tunnel-server but something in front of it that refused{}; \
                     give it what it asks for with --header, and the token as Yonder-Token if it needs Authorization itself",
                    seen(answer).map(|seen| format!(" ({seen})")).unwrap_or_default()
                ),
            }),
            (StatusCode::TOO_MANY_REQUESTS, _) | (StatusCode::SERVICE_UNAVAILABLE, true) => Err(ConnectError::Busy {
                server,
                status,
                problem: problem_in(answer.body()).unwrap_or_else(|| "it is overloaded".to_owned()),
                retry_after: retry_after(answer.headers()),
            }),
            (StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT, false) => {
                Err(ConnectError::Unreachable {
                    server,
                    problem: format!(
                        "the reverse proxy in front of it answered with status {}; is tunnel-server running behind it?",
                        status.as_u16()
                    ),
                    source: None,
                })
            }
            (_, false) => Err(ConnectError::NotOurServer {
                server,
                status,
                seen: seen(answer),
            }),
            (_, true) => Ok(()),
        }
    }
}

impl HttpConnection {
    /// Sends `request` and waits for the head of the answer. Give it a deadline. Cancel safe, but the connection is of
    /// no further use then.
    pub(crate) async fn start(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends `request` and reads the whole answer, within `limit`, up to `length` bytes.
    ///
    /// After an error the connection is of no further use.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        length: usize,
        limit: Duration,
    ) -> Result<Response<Bytes>, RequestError> {
        let exchange = async { whole(self.start(request).await?, length).await };
        timeout(limit, exchange)
            .await
            .map_err(|_| RequestError::TimedOut(limit))?
    }

    /// Whether another request may be sent.
    pub(crate) fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// Reads the body of an answer, up to `length` bytes.
pub(crate) async fn whole(
    answer: Response<Incoming>,
    length: usize,
) -> Result<Response<Bytes>, RequestError> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, length)
        .collect()
        .await
        .map_err(|_| RequestError::Answer(length))?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// The upgraded connection behind an answer with status 101, and what was received beyond its head.
pub(crate) async fn upgraded(
    answer: Response<Incoming>,
) -> Result<(ClientIo, Bytes), RequestError> {
    let upgraded = hyper::upgrade::on(answer).await?;
    match upgraded.downcast::<TokioIo<ClientIo>>() {
        Ok(parts) => Ok((parts.io.into_inner(), parts.read_buf)),
        Err(_) => Err(RequestError::Answer(0)),
    }
}

/// How long an answer asks to wait: seconds only, since dates would need clocks that agree.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// The message in an answer of the server half: of its JSON, or its first line.
pub(crate) fn problem_in(body: &[u8]) -> Option<String> {
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(json) => ["/error/message", "/message", "/error"]
            .iter()
            .find_map(|place| json.pointer(place)?.as_str().map(str::to_owned))?,
        Err(_) => std::str::from_utf8(body).ok()?.lines().next()?.to_owned(),
    };
    quotable(&message)
}

/// What a foreign answer looked like to a person.
fn seen(answer: &Response<Bytes>) -> Option<String> {
    if answer.status().is_redirection() {
        let location = answer.headers().get(LOCATION)?.to_str().ok()?;
        // What follows may hold identifiers of a login.
        let location = quotable(location.split(['?', '#']).next()?)?;
        return Some(format!("redirect to {location}"));
    }
    page_title(answer.body()).map(|title| format!("page title {title:?}"))
}

/// The title of an HTML page.
fn page_title(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let lower = text.to_ascii_lowercase();
    let open = lower.find("<title")?;
    let start = open + lower.get(open..)?.find('>')? + 1;
    let end = start + lower.get(start..)?.find("</title")?;
    quotable(text.get(start..end)?)
}

/// A foreign text as one short line without control characters; `None` when nothing is left.
fn quotable(text: &str) -> Option<String> {
    let mut words = String::new();
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
    {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    if words.chars().count() > QUOTED_CHARS_MAX {
        words = words.chars().take(QUOTED_CHARS_MAX).chain(['…']).collect();
    }
    Some(words).filter(|words| !words.is_empty())
}

/// Whether `name` belongs to a request's framing or to this crate, so that a person's own header must not set it.
pub(crate) fn is_reserved_header(name: &HeaderName) -> bool {
    const RESERVED: [&str; 10] = [
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.contains(&name.as_str())
        || name.as_str().starts_with("sec-websocket-")
        || name.as_str().starts_with("yonder-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> HttpClient {
        HttpClient::new(
            "http://host.example/p".parse().expect("valid"),
            None,
            HeaderMap::new(),
        )
    }

    fn answer(status: u16, ours: bool, body: &'static str) -> Response<Bytes> {
        let mut builder = Response::builder().status(status).header(RETRY_AFTER, "3");
        if ours {
            builder = builder.header(VERSION_HEADER, VERSION);
        }
        builder
            .body(Bytes::from_static(body.as_bytes()))
            .expect("valid")
    }

    #[test]
    fn answers_are_told_apart_by_status_and_marker() {
        let judge = |status, ours, body| client().judge(&answer(status, ours, body));
        assert!(judge(200, true, "").is_ok());
        assert!(judge(404, true, "").is_ok());
        assert!(judge(401, true, "").expect_err("refused").is_refused());
        assert!(
            judge(401, false, "")
                .expect_err("refused")
                .to_string()
                .contains("something in front of it")
        );
        let busy = judge(503, true, r#"{"error":{"message":"too many links"}}"#).expect_err("busy");
        assert!(busy.to_string().contains("too many links"));
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
        assert!(
            judge(502, false, "")
                .expect_err("down")
                .to_string()
                .contains("running behind it?")
        );
        let foreign = judge(200, false, "<html><TITLE lang=en>\n Log  in\u{7} </TITLE>")
            .expect_err("foreign");
        assert!(
            foreign.to_string().contains(r#"(page title "Log in")"#),
            "{foreign}"
        );
    }

    #[test]
    fn a_redirect_is_named_without_its_query() {
        let mut redirect = answer(302, false, "");
        redirect.headers_mut().insert(
            LOCATION,
            HeaderValue::from_static("https://login.example/start?state=secret"),
        );
        let error = client().judge(&redirect).expect_err("foreign").to_string();
        assert!(
            error.contains("redirect to https://login.example/start)"),
            "{error}"
        );
        assert!(!error.contains("secret"));
    }

    #[test]
    fn a_problem_is_found_in_json_and_in_text() {
        for (body, problem) in [
            (r#"{"error":{"message":"one"}}"#, Some("one")),
            (r#"{"error":"two"}"#, Some("two")),
            (r#"{"message":"three"}"#, Some("three")),
            ("four\nmore", Some("four")),
            (r#"{"other":1}"#, None),
            ("", None),
            ("\u{7}", None),
        ] {
            assert_eq!(problem_in(body.as_bytes()).as_deref(), problem, "{body}");
        }
        assert_eq!(
            problem_in(&[b'a'; 1000]).map(|text| text.chars().count()),
            Some(QUOTED_CHARS_MAX + 1)
        );
    }

    #[test]
    fn requests_stay_below_the_address() {
        let request = client().request(Method::POST, "link", Bytes::new());
        assert_eq!(request.uri(), "/p/link");
        assert_eq!(request.headers()[HOST], "host.example");
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
    }

    #[test]
    fn a_post_tells_its_length_even_when_empty() {
        for (body, length) in [(&b""[..], "0"), (b"abc", "3")] {
            let request = client().request(Method::POST, "link", Bytes::from_static(body));
            assert_eq!(request.headers()[CONTENT_LENGTH], length);
        }
        let request = client().request(Method::GET, "status", Bytes::new());
        assert!(!request.headers().contains_key(CONTENT_LENGTH));
    }
}
