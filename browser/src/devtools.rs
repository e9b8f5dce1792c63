//! A hidden page with Chromium's own developer tools, whose engines are run there: no Node, nothing to install, and always of
//! the version that fits the browser.
//!
//! The page is at an address of the browser itself (`devtools://`) and loads nothing else. What its engines answer was made
//! from pages, and is treated like what pages say.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tracing::debug;
use yonder_protocol::operation::error::{ErrorCode, OperationError};

use crate::cdp::{CdpError, Session};

/// Shows script text, and has the bundle's origin; loads in some 100 ms.
const PAGE: &str = "devtools://devtools/bundled/entrypoints/lighthouse_worker/lighthouse_worker.js";

/// How long the page may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(10);

/// How often it is asked whether it has loaded: it is not announced like other pages.
const LOAD_PAUSE: Duration = Duration::from_millis(10);

/// Characters of an engine's complaint that are told.
const REASON_CHARS: usize = 500;

/// The page; closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Devtools {
    root: Session,
    page: Session,
    target: String,
    tasks: TaskTracker,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    target_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    session_id: String,
}

/// `Runtime.evaluate`, by value.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Evaluated {
    result: EvaluatedResult,
    exception_details: Option<ExceptionDetails>,
}

#[derive(Deserialize)]
struct EvaluatedResult {
    value: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ExceptionDetails {
    #[serde(default)]
    text: String,
    exception: Option<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    description: Option<String>,
}

impl Devtools {
    /// Opens the page; `tasks` owns its closing.
    ///
    /// # Errors
    /// [`ErrorCode::Unsupported`] if the browser carries no developer tools.
    pub(crate) async fn open(root: &Session, tasks: &TaskTracker) -> Result<Self, OperationError> {
        let create = json!({ "url": PAGE, "hidden": true });
        let created = root.call::<Created>("Target.createTarget", create).await;
        let target = created.map_err(|error| missing(&error))?.target_id;
        let attach = json!({ "targetId": target, "flatten": true });
        let attached: Attached = match root.call("Target.attachToTarget", attach).await {
            Ok(attached) => attached,
            Err(error) => {
                close(root, &target).await;
                return Err(missing(&error));
            }
        };
        let devtools = Self {
            root: root.clone(),
            page: root.flat(&attached.session_id),
            target,
            tasks: tasks.clone(),
        };
        let loaded = async {
            loop {
                let place: String = devtools
                    .evaluate(LOAD_LIMIT, "location.protocol + document.readyState")
                    .await?;
                match &*place {
                    "devtools:complete" => return Ok(()),
                    place if place.starts_with("chrome-error:") => return Err(missing(&place)),
                    _ => sleep(LOAD_PAUSE).await,
                }
            }
        };
        let loaded = timeout(LOAD_LIMIT, loaded).await;
        loaded.unwrap_or_else(|_| Err(missing(&"they do not load")))?;
        Ok(devtools)
    }

    /// Runs script in the page, awaits what it answers, and reads that as `T`.
    ///
    /// # Errors
    /// [`ErrorCode::OperationFailed`] with the engine's words, [`ErrorCode::Timeout`] after `limit`.
    pub(crate) async fn evaluate<T: DeserializeOwned>(
        &self,
        limit: Duration,
        script: &str,
    ) -> Result<T, OperationError> {
        let input = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let evaluated = self
            .page
            .call_within::<Evaluated>(limit, "Runtime.evaluate", input);
        let evaluated = evaluated.await.map_err(|error| match error {
            CdpError::TimedOut { .. } => OperationError::new(
                ErrorCode::Timeout,
                format!(
                    "the browser's developer tools were not done within {} s",
                    limit.as_secs()
                ),
            ),
            error => disordered(&error.to_string()),
        })?;
        if let Some(exception) = evaluated.exception_details {
            let described = exception.exception.and_then(|thrown| thrown.description);
            return Err(disordered(&described.unwrap_or(exception.text)));
        }
        let value = evaluated.result.value;
        let value = value.as_deref().map_or("null", RawValue::get);
        serde_json::from_str(value).map_err(|error| disordered(&error.to_string()))
    }
}

impl Drop for Devtools {
    fn drop(&mut self) {
        let (root, target) = (self.root.clone(), std::mem::take(&mut self.target));
        self.tasks.spawn(async move { close(&root, &target).await });
    }
}

async fn close(root: &Session, target: &str) {
    let close = root.call::<IgnoredAny>("Target.closeTarget", json!({ "targetId": target }));
    if let Err(error) = close.await {
        debug!(%error, "the page of the developer tools was not closed");
    }
}

fn missing(reason: &dyn ToString) -> OperationError {
    OperationError::new(
        ErrorCode::Unsupported,
        format!(
            "this browser does not run its developer tools ({}): it may be a headless shell, which carries none, or a policy may switch them off; start the desktop half with a full Chromium (--browser)",
            clipped(&reason.to_string())
        ),
    )
}

fn disordered(reason: &str) -> OperationError {
    OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "the browser's developer tools could not do it: {}; another version of the browser may",
            clipped(reason)
        ),
    )
}

fn clipped(text: &str) -> String {
    text.chars().take(REASON_CHARS).collect()
}
