//! `mcp`: serves MCP over standard input and output by way of a running server half.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use yonder_mcp::{Answer, Image, Operate, serve_stdio};
use yonder_protocol::operation::Operation;
use yonder_protocol::{ErrorCode, OperationError};

use super::call::call_limit;
use crate::cli::McpOptions;
use crate::client::{CallError, Client, QUICK};
use crate::config::{self, Common};
use crate::exit::{CommandResult, Failure};
use crate::operations::IMAGE;

/// Above the time for which the server holds a question about attachments.
const ATTACHED_LIMIT: Duration = Duration::from_secs(40);

/// Pause before a server half that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn run(common: &Common, options: McpOptions) -> CommandResult {
    let session = config::session(options.session)?;
    let client = Client::new(common, options.server)?;
    // A wrong address or token is better told at the start than by every tool.
    let first = client
        .get::<Attached>(&format!("attached?session={session}"), QUICK)
        .await?;
    let remote = Arc::new(RemoteOperations::new(client));
    // Known before the client's first question, which some ask but once.
    remote.watch(&session, first.attached);
    serve_stdio(remote, session)
        .await
        .map_err(|error| Failure::failed(error.to_string()))
}

/// Answer of `/attached`.
#[derive(Deserialize)]
struct Attached {
    attached: bool,
}

/// Answer of `/call` with `files=inline`.
#[derive(Deserialize)]
struct Inline {
    value: Value,
    files: Vec<InlineFile>,
}

#[derive(Deserialize)]
struct InlineFile {
    info: InlineInfo,
    data: String,
}

#[derive(Deserialize)]
struct InlineInfo {
    mime: String,
}

/// Calls operations on the server half behind `client`.
struct RemoteOperations {
    client: Arc<Client>,
    attached: Mutex<Watches>,
}

/// What is known about attachments, and the tasks that keep it so; they end with this.
#[derive(Default)]
struct Watches {
    sessions: HashMap<String, watch::Receiver<bool>>,
    tasks: JoinSet<()>,
}

impl RemoteOperations {
    fn new(client: Client) -> Self {
        Self {
            client: Arc::new(client),
            attached: Mutex::default(),
        }
    }

    /// Follows whether a desktop is attached to `session`; until the server half says so, it is as `first` has it.
    fn watch(&self, session: &str, first: bool) -> watch::Receiver<bool> {
        let mut watches = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = watches.sessions.get(session) {
            return known.clone();
        }
        let (sender, receiver) = watch::channel(first);
        watches
            .sessions
            .insert(session.to_owned(), receiver.clone());
        watches
            .tasks
            .spawn(follow(self.client.clone(), session.to_owned(), sender));
        receiver
    }
}

impl Operate for RemoteOperations {
    async fn operate(
        &self,
        session: &str,
        operation: &'static Operation,
        input: Value,
    ) -> Result<Answer, OperationError> {
        let limit = call_limit(operation.parse(input.clone())?.deadline());
        let answer = self
            .client
            .call(
                session,
                operation.name,
                Bytes::from(input.to_string()),
                true,
                limit,
            )
            .await
            .map_err(|error| match error {
                CallError::Operation(error) => error,
                CallError::Request(failure) => {
                    OperationError::new(ErrorCode::Disconnected, failure.to_string())
                }
            })?;
        let broken = |problem: String| {
            OperationError::new(
                ErrorCode::OperationFailed,
                format!(
                    "the server half answered unreadably: {problem}; use the same version on both sides"
                ),
            )
        };
        let answer: Inline =
            serde_json::from_slice(&answer).map_err(|error| broken(error.to_string()))?;
        let images = answer
            .files
            .into_iter()
            .filter(|file| file.info.mime.starts_with(IMAGE))
            .map(|file| {
                Ok(Image {
                    data: STANDARD
                        .decode(file.data)
                        .map_err(|error| broken(error.to_string()))?
                        .into(),
                    mime: file.info.mime,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Answer {
            value: answer.value,
            images,
        })
    }

    fn attached(&self, session: &str) -> watch::Receiver<bool> {
        self.watch(session, false)
    }
}

/// Keeps `attached` as the server half has it; while that is away, nothing is attached.
async fn follow(client: Arc<Client>, session: String, attached: watch::Sender<bool>) {
    let mut known = None;
    loop {
        let was = known.map_or_else(String::new, |was: bool| format!("&was={was}"));
        let route = format!("attached?session={session}{was}");
        match client.get::<Attached>(&route, ATTACHED_LIMIT).await {
            Ok(now) => {
                known = Some(now.attached);
                attached
                    .send_if_modified(|was| std::mem::replace(was, now.attached) != now.attached);
            }
            Err(error) => {
                tracing::debug!(%error, "the server half did not say whether a desktop is attached");
                known = None;
                attached.send_if_modified(|was| std::mem::replace(was, false));
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
