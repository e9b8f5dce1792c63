//! Answers the operations that the server half sends: parse, execute, tell the new inventory, then the outcome.
//!
//! What an operation does is the browser's; this module knows its envelope, its deadline and its cancellation.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use yonder_browser::{BrowserSession, CapturedFile, Done, GivenFile};
use yonder_protocol::call::{Command, Outcome};
use yonder_protocol::limits;
use yonder_protocol::link::OpenKind;
use yonder_protocol::operation::types::State;
use yonder_protocol::operation::{Operation, Request};
use yonder_protocol::{ErrorCode, OperationError, TunnelError, TunnelErrorCode};
use yonder_transport::link::{Incoming, IncomingStream, Link};
use yonder_transport::message::{self, MessageError};
use yonder_transport::stream::Stream;

use crate::feed::{Feed, Flush};

/// From the opening of a call to its last byte: 25 MiB of files over a slow line, with the carrier lost once.
const COMMAND_LIMIT: Duration = Duration::from_mins(2);

/// For handing over an outcome with its files, as slow a line as above.
const OUTCOME_LIMIT: Duration = Duration::from_mins(2);

/// Carries out operations on one browser session.
pub(crate) trait Execute: Clone + Send + Sync + 'static {
    /// Does `request`, with `files` where it takes some, provided that the tab still shows document `generation`, where one is given.
    ///
    /// Dropping the future cancels.
    fn execute(
        &self,
        request: Request,
        generation: Option<u64>,
        files: Vec<GivenFile>,
    ) -> impl Future<Output = Result<Done, OperationError>> + Send;

    /// The session's tabs, always current.
    fn state(&self) -> watch::Receiver<State>;
}

impl Execute for BrowserSession {
    async fn execute(
        &self,
        request: Request,
        generation: Option<u64>,
        files: Vec<GivenFile>,
    ) -> Result<Done, OperationError> {
        self.execute_with(request, generation, files).await
    }

    fn state(&self) -> watch::Receiver<State> {
        Self::state(self)
    }
}

/// Serves the calls of one link, and feeds it the inventory of tabs, until the link is closed.
///
/// Dropping the future cancels every operation under way.
pub(crate) async fn serve<E: Execute>(link: Link, mut incoming: Incoming, session: E) {
    let (flush, feed) = Feed::new(link, session.state());
    let mut calls = JoinSet::new();
    let mut feeding = JoinSet::new();
    feeding.spawn(feed.run());
    loop {
        tokio::select! {
            next = incoming.next() => match next {
                Some(next) => take(next, &session, &flush, &mut calls),
                None => return,
            },
            Some(ended) = calls.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an operation ended abnormally");
                }
            }
        }
    }
}

/// Starts to answer one stream that the server half opened.
fn take<E: Execute>(next: IncomingStream, session: &E, flush: &Flush, calls: &mut JoinSet<()>) {
    if next.open.kind != OpenKind::Call {
        next.stream.reset(TunnelError::new(
            TunnelErrorCode::Denied,
            "the desktop half dials nothing for the server half",
        ));
    } else if calls.len() >= limits::CALLS_PER_LINK {
        next.stream.reset(TunnelError::new(
            TunnelErrorCode::Overloaded,
            format!(
                "{} operations are under way; wait for some to end",
                limits::CALLS_PER_LINK
            ),
        ));
    } else {
        calls.spawn(answer(next.stream, session.clone(), flush.clone()));
    }
}

/// Answers one call. Failures of the stream itself end it: whoever called is gone or has given up.
async fn answer<E: Execute>(mut stream: Stream, session: E, flush: Flush) {
    stream.accept("");
    let read = tokio::time::timeout(COMMAND_LIMIT, message::read_message(&mut stream)).await;
    let result = match read {
        Ok(Ok((command, files))) => {
            tokio::select! {
                result = run(command, files, &session) => {
                    flush.flush().await;
                    result
                }
                // The caller cancelled: dropping the operation stops it, and nobody waits for an outcome.
                error = stream.failed() => {
                    tracing::debug!(%error, "a call was cancelled");
                    return;
                }
            }
        }
        Ok(Err(MessageError::Io(error))) => {
            tracing::debug!(%error, "a call broke off");
            return;
        }
        Ok(Err(error)) => Err(OperationError::new(ErrorCode::Invalid, error.to_string())),
        Err(_) => {
            tracing::debug!("a call did not arrive in time");
            stream.reset(TunnelError::new(
                TunnelErrorCode::TimedOut,
                "the call did not arrive in time",
            ));
            return;
        }
    };
    let (outcome, files) = envelope(result);
    let sent = tokio::time::timeout(OUTCOME_LIMIT, async {
        message::write_message(&mut stream, &outcome, &files).await?;
        stream.shutdown().await?;
        Ok::<_, MessageError>(())
    });
    match sent.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an outcome could not be sent"),
        Err(_) => tracing::debug!("an outcome could not be sent in time"),
    }
}

/// Parses and executes `command` within its deadline.
async fn run<E: Execute>(
    command: Command,
    files: Vec<Bytes>,
    session: &E,
) -> Result<Done, OperationError> {
    let Command::Operation {
        name,
        input,
        generation,
        files: heads,
    } = command
    else {
        return Err(OperationError::new(
            ErrorCode::Unsupported,
            "this tunnel-desktop does not know the command; update both halves to the same version",
        ));
    };
    let operation = Operation::named(&name)?;
    let request = operation.parse(input)?;
    if !operation.takes_files && !files.is_empty() {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            format!("{name}: the operation takes no files"),
        ));
    }
    let given = heads.into_iter().zip(files);
    let given = given.map(|(head, data)| GivenFile::new(head.name, data));
    carry_out(request, generation, given.collect(), session).await
}

/// Executes `request` within its deadline, and judges whether the result can be handed on.
///
/// Dropping the future cancels.
pub(crate) async fn carry_out<E: Execute>(
    request: Request,
    generation: Option<u64>,
    files: Vec<GivenFile>,
    session: &E,
) -> Result<Done, OperationError> {
    let name = request.name();
    let limit = request.deadline();
    tokio::time::timeout(limit, session.execute(request, generation, files))
        .await
        .unwrap_or_else(|_| {
            Err(OperationError::new(
                ErrorCode::Timeout,
                format!(
                    "{name}: no result within {} s; whether the page acted is unknown, \
                     so look (snapshot, screenshot) before doing it again",
                    limit.as_secs()
                ),
            ))
        })
        .and_then(within_bounds)
}

/// The outcome of `result` and the bytes that follow its head. What exceeds the bounds of the wire becomes a failure
/// that says so, since the server half could only cut the call off.
fn envelope(result: Result<Done, OperationError>) -> (Outcome, Vec<Bytes>) {
    match result {
        Ok(Done { value, files }) => {
            let (files, bytes) = files.into_iter().map(CapturedFile::into_parts).unzip();
            (Outcome::Success { value, files }, bytes)
        }
        Err(OperationError { code, message }) => {
            let message = message
                .chars()
                .take(limits::SHORT_CHARS)
                .collect::<String>();
            let error = OperationError { code, message };
            (Outcome::Failure { error }, Vec::new())
        }
    }
}

fn within_bounds(done: Done) -> Result<Done, OperationError> {
    let chars = done.value.to_string().chars().count();
    if chars > limits::RESULT_CHARS {
        return Err(OperationError::new(
            ErrorCode::OperationFailed,
            format!(
                "the result has {chars} characters as JSON, at most {} can be returned; ask for a part of it",
                limits::RESULT_CHARS
            ),
        ));
    }
    let bytes: usize = done.files.iter().map(|file| file.data.len()).sum();
    if bytes > limits::FILE_TRANSFER_BYTES || done.files.len() > limits::FILES_PER_TRANSFER {
        return Err(OperationError::new(
            ErrorCode::FileFailed,
            format!(
                "the result has {} file(s) of {bytes} bytes in all, at most {} files of {} bytes can be returned",
                done.files.len(),
                limits::FILES_PER_TRANSFER,
                limits::FILE_TRANSFER_BYTES
            ),
        ));
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
