//! Running a browser operation: from a name and JSON to a checked result.
//!
//! Everything that the server half can judge by itself is judged before the desktop half is asked, and what
//! the desktop half answers is judged before anybody relies on it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use yonder_captures::SavedFile;
use yonder_protocol::call::{Command, FileHead, Outcome};
use yonder_protocol::operation::{Operation, Request};
use yonder_protocol::{ErrorCode, OperationError, limits};

use super::Hub;
use super::sessions::Attachment;

/// What an operation answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result, which fits the operation's output schema.
    pub value: Value,
    /// The files of the result, saved on the server.
    pub files: Vec<SavedFile>,
}

impl Hub {
    /// Runs the operation `name` with `input` on a browser session and waits for its result.
    ///
    /// Dropping the future cancels the operation; whether the browser acted is then unknown.
    ///
    /// # Errors
    /// With a code and a message for whoever called: what failed and what to do.
    pub async fn operate(
        &self,
        session: &str,
        name: &str,
        input: Value,
    ) -> Result<Answer, OperationError> {
        let operation = Operation::named(name)?;
        let started = Instant::now();
        let mut counted = Counted {
            hub: self,
            operation,
            started,
            outcome: Err(ErrorCode::Cancelled),
        };
        let result = self.run(session, operation, input).await;
        counted.outcome = result.as_ref().map(drop).map_err(|error| error.code);
        result
    }

    async fn run(
        &self,
        session: &str,
        operation: &'static Operation,
        input: Value,
    ) -> Result<Answer, OperationError> {
        let request = operation.parse(input)?;
        if self.stopping.is_cancelled() {
            return Err(OperationError::new(
                ErrorCode::Disconnected,
                "the server is stopping and takes no new operation; try again when it is back",
            ));
        }
        let _running = self.running.token();
        let attachment = self.sessions.current(session).ok_or_else(|| {
            OperationError::new(
                ErrorCode::Disconnected,
                format!(
                    "no desktop is attached to session {session}; \
                     on the desk, run: tunnel-desktop open SERVER --session {session}"
                ),
            )
        })?;
        let generation = generation(&attachment, operation, &request).await?;
        let paths = request.paths().iter().map(ToString::to_string).collect();
        let (heads, contents) = self.uploads.read(paths).await?;
        let mut input = request.to_input();
        if operation.takes_files
            && let Some(object) = input.as_object_mut()
        {
            // The desktop half needs no paths of the server.
            let names = heads.iter().map(|head| head.name.clone().into()).collect();
            object.insert("paths".to_owned(), Value::Array(names));
        }
        let command = Command::Operation {
            name: operation.name.to_owned(),
            input,
            generation,
            files: heads,
        };
        let limit = request.deadline() + limits::DEADLINE_MARGIN;
        let (outcome, contents) = timeout(limit, attachment.call(&command, &contents))
            .await
            .map_err(|_| too_late(operation, limit))??;
        match outcome {
            Outcome::Success { value, files } => {
                self.checked(operation, value, files, contents).await
            }
            Outcome::Failure { error } => Err(OperationError::new(
                error.code,
                error
                    .message
                    .chars()
                    .take(limits::SHORT_CHARS)
                    .collect::<String>(),
            )),
        }
    }

    /// Judges a result, saves its files and tells in it where they are.
    async fn checked(
        &self,
        operation: &Operation,
        mut value: Value,
        heads: Vec<FileHead>,
        contents: Vec<Bytes>,
    ) -> Result<Answer, OperationError> {
        // Characters are at most bytes, so the count is made only for results near the bound.
        let text = value.to_string();
        if text.len() > limits::RESULT_CHARS && text.chars().count() > limits::RESULT_CHARS {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!(
                    "{}: the result is larger than {} characters; ask for less of the page at once",
                    operation.name,
                    limits::RESULT_CHARS
                ),
            ));
        }
        let described = value
            .get("files")
            .filter(|_| !operation.lists_files)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        if described != heads.len() {
            return Err(malformed(
                operation,
                "it describes other files than it brings",
            ));
        }
        let files = self.captures.save(heads, contents).await?;
        if !files.is_empty() {
            let infos = files
                .iter()
                .map(|file| serde_json::to_value(&file.info))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| malformed(operation, &error.to_string()))?;
            if let Some(described) = value.get("files").and_then(Value::as_array)
                && !same_ids(described, &infos)
            {
                return Err(malformed(
                    operation,
                    "it describes other files than it brings",
                ));
            }
            if let Some(object) = value.as_object_mut() {
                object.insert("files".to_owned(), Value::Array(infos));
            }
        }
        operation.check_output(&value)?;
        Ok(Answer { value, files })
    }
}

/// Counts an operation however its future ends.
struct Counted<'a> {
    hub: &'a Hub,
    operation: &'static Operation,
    started: Instant,
    outcome: Result<(), ErrorCode>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.hub
            .metrics
            .operation(self.operation.name, self.outcome, self.started.elapsed());
        tracing::debug!(
            operation = self.operation.name,
            outcome = self.outcome.err().map_or("ok", ErrorCode::as_str),
            "an operation ended"
        );
    }
}

/// The generation that the caller's tab was last published with, where the operation is bound to it.
async fn generation(
    attachment: &Attachment,
    operation: &Operation,
    request: &Request,
) -> Result<Option<u64>, OperationError> {
    let Some(wanted) = request.tab() else {
        return Ok(None);
    };
    let state = attachment.first_state().await?;
    let tab = state
        .tabs
        .iter()
        .find(|tab| tab.id == *wanted)
        .ok_or_else(|| {
            OperationError::new(
                ErrorCode::TabUnavailable,
                format!(
                    "{}: session {} has no tab {wanted}; it may have been closed: see tabs.list",
                    operation.name,
                    attachment.session()
                ),
            )
        })?;
    Ok(operation.checks_generation.then_some(tab.generation))
}

fn same_ids(described: &[Value], saved: &[Value]) -> bool {
    described
        .iter()
        .zip(saved)
        .all(|(described, saved)| described.get("id") == saved.get("id"))
}

fn malformed(operation: &Operation, why: &str) -> OperationError {
    OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "{}: the desktop half sent a malformed result: {why}; update both halves to the same version",
            operation.name
        ),
    )
}

fn too_late(operation: &Operation, limit: Duration) -> OperationError {
    let repeat = if operation.read_only {
        "it changes nothing, so it may be repeated"
    } else {
        "whether the browser acted is unknown: look at the page before repeating"
    };
    OperationError::new(
        ErrorCode::Timeout,
        format!(
            "{}: no result within {} s; {repeat}",
            operation.name,
            limit.as_secs()
        ),
    )
}
