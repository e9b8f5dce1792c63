//! `call`: runs one operation on a running server half.

use std::io::{self, Read as _};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use yonder_protocol::operation::Operation;
use yonder_protocol::{ErrorCode, OperationError, limits};

use super::print;
use crate::cli::CallOptions;
use crate::client::{CallError, Client};
use crate::config::{self, Common};
use crate::exit::{CommandResult, Exit, Failure};

pub(super) async fn run(common: &Common, options: CallOptions) -> CommandResult {
    let session = config::session(options.session)?;
    let operation = Operation::named(&options.operation).map_err(failure)?;
    let input = arguments(options.input.as_deref())?;
    // Checked here too, so that mistakes are told without a server.
    let request = operation.parse(input.clone()).map_err(failure)?;
    let limit = call_limit(request.deadline());
    let client = Client::new(common, options.server)?;
    let answer = client
        .call(
            &session,
            operation.name,
            Bytes::from(input.to_string()),
            false,
            limit,
        )
        .await
        .map_err(|error| match error {
            CallError::Operation(error) => failure(error),
            CallError::Request(failure) => failure,
        })?;
    print(&String::from_utf8_lossy(&answer))
}

/// What a request may take for an operation that may take `deadline`: the server answers first.
pub(super) fn call_limit(deadline: Duration) -> Duration {
    deadline + 2 * limits::DEADLINE_MARGIN
}

/// The arguments as JSON, from the command line or standard input.
fn arguments(text: Option<&str>) -> Result<Value, Failure> {
    let text = match text {
        None => return Ok(json!({})),
        Some("-") => {
            let mut text = String::new();
            io::stdin()
                .lock()
                .take(limits::INPUT_BYTES as u64 + 1)
                .read_to_string(&mut text)
                .map_err(|error| {
                    Failure::usage(format!(
                        "cannot read the arguments from standard input: {error}"
                    ))
                })?;
            text
        }
        Some(text) => text.to_owned(),
    };
    if text.len() > limits::INPUT_BYTES {
        return Err(Failure::usage(format!(
            "the arguments may have {} bytes",
            limits::INPUT_BYTES
        )));
    }
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!(
            "the arguments are not JSON: {error}; write for example '{{\"url\": \"http://localhost:8000\"}}'"
        ))
    })
}

/// The exit code of a failed operation.
fn failure(error: OperationError) -> Failure {
    let exit = match error.code {
        ErrorCode::Invalid | ErrorCode::UnknownOperation | ErrorCode::Unsupported => Exit::Usage,
        // The server half is there, but the desktop half is not.
        ErrorCode::Disconnected => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}
