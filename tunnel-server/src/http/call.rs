//! `POST /call/{operation}`: runs a browser operation. A caller that leaves cancels it, since hyper then drops the future.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};
use yonder_protocol::{ErrorCode, OperationError};

use super::answer::{self, Body};
use super::request;
use crate::hub::Hub;

/// Runs `operation` with the JSON in `body`.
///
/// With `files=inline` in the query the answer is `{"value": …, "files": […]}`, where each file carries its bytes in
/// base64: for callers that do not share the server's disk.
pub(crate) async fn call(
    hub: &Arc<Hub>,
    operation: &str,
    head: &Parts,
    body: &Bytes,
) -> Response<Body> {
    let session = match request::session(head) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let inline = match request::parameter(head, "files").as_deref() {
        None => false,
        Some("inline") => true,
        Some(_) => {
            return answer::failed_operation(&OperationError::new(
                ErrorCode::Invalid,
                "the query parameter files can only be inline",
            ));
        }
    };
    let input = match parse(body) {
        Ok(input) => input,
        Err(error) => return answer::failed_operation(&error),
    };
    match hub.operate(&session, operation, input).await {
        Ok(done) if inline => {
            let files: Vec<_> = done
                .files
                .iter()
                .map(|file| json!({"info": file.info, "data": STANDARD.encode(&file.data)}))
                .collect();
            answer::json(&json!({"value": done.value, "files": files}))
        }
        Ok(done) => answer::json(&done.value),
        Err(error) => answer::failed_operation(&error),
    }
}

/// The arguments; an empty body is an empty object.
fn parse(body: &[u8]) -> Result<Value, OperationError> {
    if body.trim_ascii().is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|error| {
        OperationError::new(
            ErrorCode::Invalid,
            format!("the request's body is not JSON: {error}"),
        )
    })
}
