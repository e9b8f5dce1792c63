//! Reading requests: bodies within bounds, and the few parameters that routes take.
//!
//! A body is read to its end even when the request is refused, since several reverse proxies lose an answer that
//! comes while they still send.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as HttpBody;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{Refusal, refusal};
use crate::config::{DEFAULT_SESSION, is_session_name};

/// Names the browser session of a request.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("yonder-session");

/// Silence within a body after which its sender counts as gone.
const BODY_SILENCE: Duration = Duration::from_secs(15);

/// What a whole body may take: 1 MiB over a line of 10 KiB/s.
const BODY_LIMIT: Duration = Duration::from_mins(2);

/// How much of a refused body is read before the connection is given up instead.
const DRAIN_BYTES: usize = 8 * 1024 * 1024;

/// What reading a refused body may take.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

fn refuse<T>(status: StatusCode, code: &str, message: &str) -> Result<T, Refusal> {
    Err(Box::new(refusal(status, code, message)))
}

/// Reads `body`, at most `limit` bytes of it.
///
/// # Errors
/// With the answer to give.
pub(crate) async fn read<B>(body: B, limit: usize) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: fmt::Display,
{
    let mut body = pin!(body);
    let deadline = Instant::now() + BODY_LIMIT;
    let mut whole = BytesMut::new();
    loop {
        let frame = match timeout_at(deadline, timeout(BODY_SILENCE, body.frame())).await {
            Ok(Ok(None)) => return Ok(whole.freeze()),
            Ok(Ok(Some(Ok(frame)))) => frame,
            Ok(Ok(Some(Err(error)))) => {
                return refuse(
                    StatusCode::BAD_REQUEST,
                    "incomplete",
                    &format!("the request's body broke off: {error}"),
                );
            }
            Ok(Err(_)) | Err(_) => {
                return refuse(
                    StatusCode::REQUEST_TIMEOUT,
                    "timeout",
                    "the request's body did not arrive in time",
                );
            }
        };
        if let Ok(data) = frame.into_data() {
            if data.remaining() > limit - whole.len() {
                drain(body).await;
                return refuse(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "too_large",
                    &format!("the body of this request may have {limit} bytes"),
                );
            }
            whole.extend_from_slice(&data);
        }
    }
}

/// Reads a refused `body` to its end, within bounds.
pub(crate) async fn drain<B>(body: B)
where
    B: HttpBody<Data = Bytes>,
{
    let mut body = pin!(body);
    let read = async {
        let mut left = DRAIN_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // What is not read by then is cut off with the connection.
    let _finished = timeout(DRAIN_LIMIT, read).await;
}

/// The value of the parameter `name` in the query.
pub(crate) fn parameter(head: &Parts, name: &str) -> Option<String> {
    url::form_urlencoded::parse(head.uri.query()?.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// The browser session that a request means, by header or query.
///
/// # Errors
/// With the answer to give where the name cannot be one.
pub(crate) fn session(head: &Parts) -> Result<String, Refusal> {
    let named = match head.headers.get(&SESSION_HEADER) {
        Some(value) => Some(value.to_str().unwrap_or_default().to_owned()),
        None => parameter(head, "session"),
    };
    let name = named.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
    if is_session_name(&name) {
        return Ok(name);
    }
    refuse(
        StatusCode::BAD_REQUEST,
        "invalid",
        "a session's name has 1 to 64 letters, digits, '.', '_' and '-'",
    )
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::Full;

    use super::*;

    fn head(uri: &str, session: Option<&str>) -> Parts {
        let mut request = Request::builder().uri(uri);
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_header_wins_over_the_query() {
        assert_eq!(session(&head("/mcp", None)).unwrap(), "default");
        assert_eq!(session(&head("/mcp?session=a", None)).unwrap(), "a");
        assert_eq!(session(&head("/mcp?session=a", Some("b"))).unwrap(), "b");
        assert!(session(&head("/mcp?session=a%2Fb", None)).is_err());
        assert!(session(&head("/mcp", Some(""))).is_err());
    }

    #[tokio::test]
    async fn a_body_of_the_limit_passes_and_one_more_byte_does_not() {
        let body = |length| Full::new(Bytes::from(vec![0; length]));
        assert_eq!(read(body(10), 10).await.unwrap().len(), 10);
        let refused = read(body(11), 10).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
