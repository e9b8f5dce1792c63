//! The forms of our answers: JSON, errors as JSON, and the headers that every answer carries.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use serde::Serialize;
use serde_json::json;
use yonder_protocol::{ErrorCode, OperationError};
use yonder_transport::{VERSION, VERSION_HEADER};

/// The body of every answer.
pub type Body = BoxBody<Bytes, Infallible>;

/// An answer that says no, boxed because most requests are let through.
pub(crate) type Refusal = Box<Response<Body>>;

/// A body without bytes.
pub(crate) fn empty() -> Body {
    Empty::new().boxed()
}

/// `value` as JSON with status 200.
pub(crate) fn json(value: &impl Serialize) -> Response<Body> {
    json_with(StatusCode::OK, value)
}

/// `value` as JSON.
pub(crate) fn json_with(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => bytes(status, "application/json", text),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the answer could not be written; see the server's log",
            )
        }
    }
}

/// `content` of the media type `kind`.
pub(crate) fn bytes(
    status: StatusCode,
    kind: &'static str,
    content: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Full::new(content.into()).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An error in its JSON form.
pub(crate) fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let error = json!({"error": {"code": code, "message": message}});
    bytes(status, "application/json", error.to_string())
}

/// The answer to a request without a valid token.
pub(crate) fn unauthorized(message: &str) -> Response<Body> {
    let mut response = refusal(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response.headers_mut().insert(
        WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"yonder\""),
    );
    response
}

/// The answer to a method that the route does not have.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        &format!("this route takes {allowed}"),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A failed operation.
pub(crate) fn failed_operation(error: &OperationError) -> Response<Body> {
    refusal(
        operation_status(error.code),
        error.code.as_str(),
        &error.message,
    )
}

/// The status of a failed operation; the table is part of `/openapi.json`.
pub(crate) fn operation_status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Invalid => StatusCode::BAD_REQUEST,
        ErrorCode::UnknownOperation | ErrorCode::TabUnavailable | ErrorCode::NotFound => {
            StatusCode::NOT_FOUND
        }
        ErrorCode::Stale | ErrorCode::DialogOpen | ErrorCode::NotActionable => StatusCode::CONFLICT,
        ErrorCode::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Disconnected => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::NavigationFailed | ErrorCode::Crashed => StatusCode::BAD_GATEWAY,
        ErrorCode::Timeout | ErrorCode::Cancelled => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Adds what every answer carries: the mark by which clients know us, and that nobody in between may keep it.
pub(crate) fn mark(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}
