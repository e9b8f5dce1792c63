//! The upgrade to a WebSocket (RFC 6455, section 4) as data: requests and answers, no I/O.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ALLOW, CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};

/// The subprotocol of a link; the number grows when the two halves of two versions would not understand each other.
pub const SUBPROTOCOL: &str = "yonder.v1";

/// What the key is joined with before hashing (RFC 6455, section 1.3).
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes of a key before base64 (RFC 6455, section 4.1).
const KEY_BYTES: usize = 16;

/// The one protocol version there is.
const VERSION: &str = "13";

/// The value of `Sec-WebSocket-Accept` that answers `key` (RFC 6455, section 4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(ACCEPT_GUID);
    STANDARD.encode(hash.finish())
}

/// Why a request is not answered with an upgrade.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Another method than GET.
    #[error("a link is opened with GET and a WebSocket upgrade")]
    Method,
    /// No `Upgrade: websocket` with `Connection: upgrade` over HTTP/1.1 arrived.
    #[error(
        "the request carries no WebSocket upgrade; if a reverse proxy stands in front, let it pass the Upgrade and \
         Connection headers over HTTP/1.1 (nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
         proxy_set_header Connection \"upgrade\";)"
    )]
    NotAnUpgrade,
    /// A WebSocket version other than 13.
    #[error("only WebSocket version {VERSION} is spoken here")]
    Version,
    /// The key is missing or is not 16 bytes in base64.
    #[error("the header Sec-WebSocket-Key must be 16 bytes in base64")]
    Key,
    /// The client does not offer [`SUBPROTOCOL`].
    #[error(
        "the header Sec-WebSocket-Protocol must offer {SUBPROTOCOL}; update the half that asks"
    )]
    Subprotocol,
}

impl UpgradeError {
    /// The status that says so.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAnUpgrade | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Subprotocol => StatusCode::BAD_REQUEST,
        }
    }

    /// The answer without a body: status and the headers that go with it (RFC 9110, sections 7.8 and 15.5.6).
    pub fn response(self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        match self {
            Self::Method => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
            }
            Self::NotAnUpgrade | Self::Version => {
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            }
            Self::Key | Self::Subprotocol => {}
        }
        response
    }
}

/// Judges a request to open a link and answers it with `101 Switching Protocols`.
///
/// Whoever serves the request then takes the upgraded connection to
/// [`WebSocketStream::server`](super::WebSocketStream::server).
pub fn upgrade_response<B>(request: &Request<B>) -> Result<Response<()>, UpgradeError> {
    if request.method() != Method::GET {
        return Err(UpgradeError::Method);
    }
    let headers = request.headers();
    if request.version() != Version::HTTP_11
        || !lists(headers, &CONNECTION, "upgrade")
        || !lists(headers, &UPGRADE, "websocket")
    {
        return Err(UpgradeError::NotAnUpgrade);
    }
    if headers
        .get(SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version.as_bytes() != VERSION.as_bytes())
    {
        return Err(UpgradeError::Version);
    }
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .ok_or(UpgradeError::Key)?
        .as_bytes();
    if STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != KEY_BYTES {
        return Err(UpgradeError::Key);
    }
    if !lists(headers, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        return Err(UpgradeError::Subprotocol);
    }
    let accept = HeaderValue::try_from(accept_key(key)).map_err(|_| UpgradeError::Key)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    answer.insert(
        SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(SUBPROTOCOL),
    );
    Ok(response)
}

/// Whether the comma-separated lists in the fields `name` hold `token`, in any case of letters.
fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

/// The random key of one upgrade, kept to check the answer.
#[derive(Debug)]
pub(crate) struct ClientKey(String);

impl ClientKey {
    pub(crate) fn random() -> Self {
        Self(STANDARD.encode(rand::random::<[u8; KEY_BYTES]>()))
    }

    /// What is wrong with the headers of an answer with status 101, if anything (RFC 6455, section 4.1).
    pub(crate) fn fault(&self, answer: &HeaderMap) -> Option<&'static str> {
        if !lists(answer, &UPGRADE, "websocket") || !lists(answer, &CONNECTION, "upgrade") {
            return Some("the answer switches to another protocol than WebSocket");
        }
        if answer
            .get(SEC_WEBSOCKET_ACCEPT)
            .is_none_or(|accept| accept.as_bytes() != accept_key(self.0.as_bytes()).as_bytes())
        {
            return Some("the answer's Sec-WebSocket-Accept does not match the request");
        }
        if answer
            .get(SEC_WEBSOCKET_PROTOCOL)
            .is_none_or(|protocol| protocol.as_bytes() != SUBPROTOCOL.as_bytes())
        {
            return Some("the answer does not choose the subprotocol yonder.v1");
        }
        if answer.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
            return Some("the answer chooses a WebSocket extension that was not offered");
        }
        None
    }
}

/// The headers that ask for an upgrade, to be added to a GET without body.
pub(crate) fn upgrade_request(key: &ClientKey) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    if let Ok(key) = HeaderValue::try_from(key.0.as_str()) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    headers.insert(
        SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(SUBPROTOCOL),
    );
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking() -> (Request<()>, ClientKey) {
        let key = ClientKey::random();
        let mut request = Request::new(());
        *request.headers_mut() = upgrade_request(&key);
        (request, key)
    }

    #[test]
    fn the_accept_key_is_that_of_the_standard() {
        assert_eq!(
            accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn our_client_accepts_our_answer() {
        let (request, key) = asking();
        let response = upgrade_response(&request).expect("a proper request");
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(key.fault(response.headers()), None);
        assert!(ClientKey::random().fault(response.headers()).is_some());
    }

    #[test]
    fn lists_of_proxies_are_understood() {
        let (mut request, _) = asking();
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, UPGRADE"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("other"));
        headers.append(
            SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static("yonder.v1"),
        );
        assert!(upgrade_response(&request).is_ok());
    }

    fn set(request: &mut Request<()>, name: HeaderName, value: &'static str) {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }

    #[test]
    fn each_fault_is_named() {
        type Change = fn(&mut Request<()>);
        let cases: [(Change, UpgradeError, u16); 7] = [
            (
                |r| *r.method_mut() = Method::POST,
                UpgradeError::Method,
                405,
            ),
            (
                |r| *r.version_mut() = Version::HTTP_10,
                UpgradeError::NotAnUpgrade,
                426,
            ),
            (
                |r| drop(r.headers_mut().remove(UPGRADE)),
                UpgradeError::NotAnUpgrade,
                426,
            ),
            (
                |r| drop(r.headers_mut().remove(CONNECTION)),
                UpgradeError::NotAnUpgrade,
                426,
            ),
            (
                |r| set(r, SEC_WEBSOCKET_VERSION, "8"),
                UpgradeError::Version,
                426,
            ),
            (
                |r| set(r, SEC_WEBSOCKET_KEY, "c2hvcnQ="),
                UpgradeError::Key,
                400,
            ),
            (
                |r| drop(r.headers_mut().remove(SEC_WEBSOCKET_PROTOCOL)),
                UpgradeError::Subprotocol,
                400,
            ),
        ];
        for (change, error, status) in cases {
            let (mut request, _) = asking();
            change(&mut request);
            let got = upgrade_response(&request).expect_err("a faulty request");
            assert_eq!(got, error);
            assert_eq!(got.response().status().as_u16(), status);
        }
    }
}
