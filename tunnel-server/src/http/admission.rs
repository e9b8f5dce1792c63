//! Who may send requests: callers with the token, and web pages only of origins that the administrator named.
//!
//! `Host` is never judged: plain reverse proxies rewrite it. What keeps a page on a rebound name out is the token.

use std::collections::BTreeSet;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    AUTHORIZATION, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};
use yonder_transport::TOKEN_HEADER;

use super::answer::{self, Body, Refusal};
use super::route::Route;
use crate::token::TokenGate;

/// The scheme before a token in `Authorization` (RFC 6750, section 2.1).
const BEARER: &[u8] = b"bearer ";

/// Headers that pages of allowed origins may send.
const PAGE_HEADERS: &str = "authorization, content-type, yonder-token, yonder-session, accept, mcp-session-id, \
                            mcp-protocol-version, last-event-id";

/// Decides about requests before anything is done for them.
#[derive(Debug)]
pub(crate) struct Admission {
    gate: TokenGate,
    origins: BTreeSet<String>,
}

impl Admission {
    pub(crate) fn new(gate: TokenGate, origins: BTreeSet<String>) -> Self {
        Self { gate, origins }
    }

    /// Lets a request for `route` through.
    ///
    /// # Errors
    /// With the answer to give.
    pub(crate) fn check(&self, route: &Route, headers: &HeaderMap) -> Result<(), Refusal> {
        if headers.contains_key(ORIGIN) && self.allowed_origin(headers).is_none() {
            return Err(Box::new(answer::refusal(
                StatusCode::FORBIDDEN,
                "origin_refused",
                "requests from web pages are refused; an administrator allows an origin with --allow-origin",
            )));
        }
        if *route == Route::Health {
            return Ok(());
        }
        let problem = match credential(headers) {
            Some(token) if self.gate.accepts(token) => return Ok(()),
            Some(_) => {
                "the token is wrong; copy the server's token file (tunnel-server token prints its path)"
            }
            None => {
                "a token is needed, as Authorization: Bearer TOKEN or Yonder-Token: TOKEN; \
                 tunnel-server token prints where it lies"
            }
        };
        Err(Box::new(answer::unauthorized(problem)))
    }

    /// The answer to a page's question whether it may send a request (Fetch standard, section 3.2.2). Browsers ask
    /// without credentials, and learn nothing but that the origin is allowed.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        self.allowed_origin(headers)?;
        let mut response = Response::new(answer::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        answer.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, DELETE"),
        );
        answer.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(PAGE_HEADERS),
        );
        answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        Some(response)
    }

    /// Lets the page that sent `request` read `response`, where its origin is allowed.
    pub(crate) fn share(&self, origin: Option<&HeaderValue>, response: &mut HeaderMap) {
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else {
            return;
        };
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        response.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("yonder-version, mcp-session-id, www-authenticate"),
        );
        response.append(VARY, HeaderValue::from_static("origin"));
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        origin
            .to_str()
            .is_ok_and(|origin| self.origins.contains(origin))
    }

    fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(origin), None) => Some(origin).filter(|origin| self.allows(origin)),
            _ => None,
        }
    }
}

/// The token that a request shows. Where both headers are there ours counts, since a reverse proxy may use the other.
fn credential(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(token) = headers.get(&TOKEN_HEADER) {
        return Some(token.as_bytes().trim_ascii());
    }
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme
        .eq_ignore_ascii_case(BEARER)
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use yonder_transport::token::SecretToken;

    use super::*;
    use crate::token::TokenSource;

    fn admission(origins: &[&str]) -> Admission {
        let token = TokenSource::Environment(SecretToken::new("right-token-right-token").unwrap());
        Admission::new(
            TokenGate::open(&token).unwrap(),
            origins.iter().map(|origin| (*origin).to_owned()).collect(),
        )
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    fn status(admission: &Admission, lines: &[(&'static str, &'static str)]) -> u16 {
        match admission.check(&Route::Metrics, &headers(lines)) {
            Ok(()) => 200,
            Err(refusal) => refusal.status().as_u16(),
        }
    }

    #[test]
    fn either_header_carries_the_token() {
        let admission = admission(&[]);
        for (lines, expected) in [
            (&[][..], 401),
            (&[("authorization", "Bearer right-token-right-token")], 200),
            (
                &[("authorization", "bEARER  right-token-right-token ")],
                200,
            ),
            (&[("authorization", "Basic right-token-right-token")], 401),
            (&[("authorization", "Bearer")], 401),
            (&[("authorization", "Bearer wrong")], 401),
            (&[("yonder-token", "right-token-right-token")], 200),
            (&[("yonder-token", "right-token-right-toke")], 401),
            (
                &[
                    ("authorization", "Basic proxy"),
                    ("yonder-token", "right-token-right-token"),
                ],
                200,
            ),
            (
                &[
                    ("authorization", "Bearer right-token-right-token"),
                    ("yonder-token", "wrong"),
                ],
                401,
            ),
        ] {
            assert_eq!(status(&admission, lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn pages_are_refused_unless_their_origin_is_named() {
        let token = ("yonder-token", "right-token-right-token");
        let strict = admission(&[]);
        assert_eq!(status(&strict, &[token, ("origin", "null")]), 403);
        assert!(
            strict
                .check(&Route::Health, &headers(&[("origin", "https://a.example")]))
                .is_err()
        );
        let open = admission(&["https://a.example"]);
        assert_eq!(
            status(&open, &[token, ("origin", "https://a.example")]),
            200
        );
        assert_eq!(status(&open, &[("origin", "https://a.example")]), 401);
        assert_eq!(
            status(&open, &[token, ("origin", "https://b.example")]),
            403
        );
        let ask = headers(&[
            ("origin", "https://a.example"),
            ("access-control-request-method", "POST"),
        ]);
        assert!(open.preflight(&Method::OPTIONS, &ask).is_some());
        assert!(strict.preflight(&Method::OPTIONS, &ask).is_none());
    }
}
