//! Isolated worlds: one for each document that we look into, where our script keeps its elements.
//!
//! A world is addressed by the object that our script evaluated to, never by the number of its
//! context: numbers repeat between renderer processes, objects do not, so that a call that comes too
//! late fails instead of reaching another document.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::refs::RefTable;
use super::script;
use crate::cdp::{CdpError, Session};
use crate::frames::FrameInfo;

/// Name of our worlds, as developer tools show it.
const WORLD_NAME: &str = "yonder";

/// Times that a world is made anew when the document is replaced under our hands.
const ATTEMPTS: usize = 3;

/// Counts worlds over all tabs, so that an element's number in one is never taken for one in another.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Our script in one document of one frame.
#[derive(Debug)]
pub(crate) struct World {
    /// Tells worlds apart.
    pub(super) id: u64,
    /// The frame.
    pub(crate) frame: String,
    pub(crate) session: Session,
    /// The script's object, by the browser's name for it.
    object: String,
    /// The world's context; only ever used together with an object of it, see the module's words.
    context: i64,
}

/// Why a call into a world has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorldError {
    /// The document was replaced, and the world with it.
    #[error("the frame shows another document by now")]
    Replaced,
    /// The browser or page could not answer.
    #[error(transparent)]
    Cdp(#[from] CdpError),
    /// Our script failed, for which a page that broke the DOM's built-in behaviour may be the cause.
    #[error("the page could not be looked at: {0}")]
    Script(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IsolatedWorld {
    execution_context_id: i64,
}

/// The reply of `Runtime.evaluate` and `Runtime.callFunctionOn`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evaluation {
    pub(crate) result: RemoteObject,
    pub(crate) exception_details: Option<ExceptionDetails>,
}

/// A JavaScript value as the browser tells it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteObject {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) subtype: Option<String>,
    pub(crate) class_name: Option<String>,
    /// For values that JSON has: the value.
    pub(crate) value: Option<Value>,
    /// For numbers that JSON lacks: their literal.
    pub(crate) unserializable_value: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) object_id: Option<String>,
}

/// An exception that no script caught. Lines and columns count from 0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExceptionDetails {
    pub(crate) text: String,
    pub(crate) line_number: i64,
    pub(crate) column_number: i64,
    pub(crate) exception: Option<RemoteObject>,
    pub(crate) stack_trace: Option<Value>,
}

impl World {
    /// The world of the document that `frame` shows, made if there is none.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub(crate) async fn of(table: &RefTable, frame: &FrameInfo) -> Result<Arc<Self>, WorldError> {
        if let Some(world) = table.world(frame) {
            return Ok(world);
        }
        let mut outcome = Err(WorldError::Replaced);
        for _ in 0..ATTEMPTS {
            outcome = Self::make(frame).await;
            if !matches!(outcome, Err(WorldError::Replaced)) {
                break;
            }
        }
        let world = Arc::new(outcome?);
        table.enter_world(Arc::clone(&world));
        Ok(world)
    }

    async fn make(frame: &FrameInfo) -> Result<Self, WorldError> {
        let context: IsolatedWorld = frame
            .session
            .call(
                "Page.createIsolatedWorld",
                json!({ "frameId": frame.id, "worldName": WORLD_NAME }),
            )
            .await
            .map_err(replaced)?;
        let made: Evaluation = frame
            .session
            .call(
                "Runtime.evaluate",
                json!({ "expression": script::SOURCE, "contextId": context.execution_context_id }),
            )
            .await
            .map_err(replaced)?;
        let object = made
            .result
            .object_id
            .filter(|_| made.exception_details.is_none());
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            frame: frame.id.clone(),
            session: frame.session.clone(),
            context: context.execution_context_id,
            object: object.ok_or_else(|| {
                WorldError::Script(made.exception_details.map_or_else(
                    || "the script has no value".to_owned(),
                    |details| details.message(),
                ))
            })?,
        })
    }

    /// Calls `method` of the script with `argument` and reads its JSON answer, within `limit`.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub(crate) async fn call<R: DeserializeOwned>(
        &self,
        limit: Duration,
        method: &'static str,
        argument: impl Serialize + Send,
    ) -> Result<R, WorldError> {
        let reply: Evaluation = self
            .session
            .call_within(
                limit,
                "Runtime.callFunctionOn",
                json!({
                    "objectId": self.object,
                    "functionDeclaration": "function (method, argument) { return this.run(method, argument); }",
                    "arguments": [{ "value": method }, { "value": argument }],
                    "awaitPromise": true,
                    "returnByValue": true,
                }),
            )
            .await
            .map_err(replaced)?;
        if let Some(details) = reply.exception_details {
            return Err(WorldError::Script(details.message()));
        }
        let Some(Value::String(answer)) = reply.result.value else {
            return Err(WorldError::Script("no answer".to_owned()));
        };
        serde_json::from_str(&answer).map_err(|error| WorldError::Script(error.to_string()))
    }

    /// The browser's name for the element with `number`; `None` if it is gone.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub(crate) async fn element(&self, number: u64) -> Result<Option<String>, WorldError> {
        let reply: Evaluation = self
            .session
            .call(
                "Runtime.callFunctionOn",
                json!({
                    "objectId": self.object,
                    "functionDeclaration": "function (number) { return this.element(number); }",
                    "arguments": [{ "value": number }],
                    "objectGroup": WORLD_NAME,
                }),
            )
            .await
            .map_err(replaced)?;
        Ok(reply.result.object_id)
    }
}

/// A DOM node with what is directly in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    frame_id: Option<String>,
    #[serde(default)]
    shadow_roots: Vec<ShadowRoot>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShadowRoot {
    backend_node_id: i64,
    #[serde(default)]
    shadow_root_type: String,
}

#[derive(Deserialize)]
struct Described {
    node: Node,
}

#[derive(Deserialize)]
struct Resolved {
    object: RemoteObject,
}

impl World {
    async fn describe(&self, number: u64) -> Result<Option<Node>, WorldError> {
        let Some(object) = self.element(number).await? else {
            return Ok(None);
        };
        let described: Described = self
            .session
            .call(
                "DOM.describeNode",
                json!({ "objectId": object, "depth": 1, "pierce": true }),
            )
            .await
            .map_err(replaced)?;
        Ok(Some(described.node))
    }

    /// The id of the frame whose element has `number`.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub(super) async fn child_frame(&self, number: u64) -> Result<Option<String>, WorldError> {
        Ok(self.describe(number).await?.and_then(|node| node.frame_id))
    }

    /// Hands the closed shadow root of the element with `number` to the script, and answers whether there is one.
    ///
    /// # Errors
    /// See [`WorldError`].
    pub(super) async fn open_closed_root(&self, number: u64) -> Result<bool, WorldError> {
        let node = self.describe(number).await?;
        let roots = node.map(|node| node.shadow_roots).unwrap_or_default();
        let Some(root) = roots.iter().find(|root| root.shadow_root_type == "closed") else {
            return Ok(false);
        };
        let resolved: Resolved = self
            .session
            .call(
                "DOM.resolveNode",
                json!({
                    "backendNodeId": root.backend_node_id,
                    "executionContextId": self.context,
                    "objectGroup": WORLD_NAME,
                }),
            )
            .await
            .map_err(replaced)?;
        let _: Evaluation = self
            .session
            .call(
                "Runtime.callFunctionOn",
                json!({
                    "objectId": self.object,
                    "functionDeclaration": "function (number, root) { this.adopt(number, root); }",
                    "arguments": [{ "value": number }, { "objectId": resolved.object.object_id }],
                }),
            )
            .await
            .map_err(replaced)?;
        Ok(true)
    }
}

impl ExceptionDetails {
    /// What was thrown, in one line.
    fn message(&self) -> String {
        let thrown = self.exception.as_ref().and_then(|e| e.description.clone());
        let text = thrown.unwrap_or_else(|| self.text.clone());
        text.lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect()
    }
}

/// A refused call means that the object or context is gone: its other parameters are ours.
pub(super) fn replaced(error: CdpError) -> WorldError {
    match error {
        CdpError::Refused { .. } => WorldError::Replaced,
        other => WorldError::Cdp(other),
    }
}
