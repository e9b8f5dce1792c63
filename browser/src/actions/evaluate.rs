//! `evaluate`: JavaScript in the page's own world, its value as JSON.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types::{Evaluate, Evaluated};

use super::{END_LIMIT, end_script, failed, kept_by};
use crate::cdp::{Ack, CdpError, NoParams, Session};
use crate::frames::FrameInfo;
use crate::page::world::{Evaluation, ExceptionDetails, RemoteObject};
use crate::tab::Tab;

/// How long a script and the promise that it answers may take. Below [`limits::OPERATION_DEADLINE`], so
/// that there is time left to end a script that loops.
const LIMIT: Duration = Duration::from_secs(45);

/// Characters of what a script threw.
const DETAIL_CHARS: usize = 800;

/// Objects of one evaluation, by which the browser lets go of them together.
const GROUP: &str = "yonder-evaluate";

/// Turns an object into JSON in the page, where `toJSON` methods are, and keeps what is too long there.
const TO_JSON: &str = "function (max) {
  const text = JSON.stringify(this);
  return text === undefined ? { none: true } : text.length > max ? { chars: text.length } : { text };
}";

/// Runs `input.script` in the frame and answers its value.
///
/// The script is an expression, whose value it is; or statements, whose value is that of the last one,
/// with `await` allowed and variables kept for the next call; or the body of an async function with
/// `return`. A promise is awaited, `undefined` is null.
///
/// # Errors
/// [`ErrorCode::OperationFailed`] with what the script threw, or if its value is not JSON;
/// [`ErrorCode::Timeout`] if it did not end in time: it is ended then.
pub(crate) async fn evaluate(tab: &Tab, input: &Evaluate) -> Result<Evaluated, OperationError> {
    let frame = tab.frame(input.frame_id.as_ref().map(AsRef::as_ref))?;
    let value = evaluate_within(tab, &frame, input.script.as_str(), LIMIT).await?;
    Ok(Evaluated {
        tab: tab.summary(),
        value,
    })
}

pub(super) async fn evaluate_within(
    tab: &Tab,
    frame: &FrameInfo,
    script: &str,
    limit: Duration,
) -> Result<Value, OperationError> {
    let deadline = Instant::now() + limit;
    let run = Run {
        tab,
        session: &frame.session,
        context: None,
        deadline,
    };
    let outcome = tokio::select! {
        biased;
        outcome = timeout_at(deadline, run.in_frame(frame, script)) => outcome,
        dialog = tab.dialog_opened() => return Err(kept_by(&dialog)),
    };
    match outcome {
        Ok(Err(Failure::Late)) | Err(_) => {
            // The browser ends what runs; a promise that is still open just stays so.
            let ended = end_script(&frame.session).await;
            Err(OperationError::new(
                ErrorCode::Timeout,
                format!(
                    "the script did not end within {} s{}; let it do less, or start the work and look for its result later",
                    limit.as_secs(),
                    if ended { " and was ended" } else { "" }
                ),
            ))
        }
        Ok(Err(Failure::Error(error))) => Err(error),
        Ok(Ok(value)) => Ok(value),
    }
}

enum Failure {
    /// The browser ended the script at the deadline.
    Late,
    Error(OperationError),
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        Self::Error(error)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextCreated {
    context: Context,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    unique_id: String,
    aux_data: Option<ContextData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextData {
    frame_id: Option<String>,
    #[serde(default)]
    is_default: bool,
}

/// One evaluation.
struct Run<'a> {
    tab: &'a Tab,
    session: &'a Session,
    /// The frame's own world; `None` for that of the session's topmost frame.
    context: Option<String>,
    deadline: Instant,
}

/// How a script is read.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Expression,
    Statements,
    Body,
}

impl Run<'_> {
    async fn in_frame(mut self, frame: &FrameInfo, script: &str) -> Result<Value, Failure> {
        if !frame.is_root_of_session {
            self.context = Some(self.own_world(frame).await?);
        }
        let mut reply = None;
        for form in [Form::Expression, Form::Statements, Form::Body] {
            let outcome = self.evaluate(script, form).await?;
            let unreadable = outcome
                .exception_details
                .as_ref()
                .is_some_and(is_unreadable);
            if !unreadable {
                return self.value(outcome, form).await;
            }
            // The message about the statements is the one that fits what was written.
            if reply.is_none() || form == Form::Statements {
                reply = Some((outcome, form));
            }
        }
        let (outcome, form) = reply.expect("each form was tried");
        self.value(outcome, form).await
    }

    /// The world in which the page's script of `frame` runs. The browser tells it on request only.
    async fn own_world(&self, frame: &FrameInfo) -> Result<String, Failure> {
        let mut events = self.session.events();
        let enabled: Result<Ack, _> = self.session.call("Runtime.enable", NoParams {}).await;
        let disabled: Result<Ack, _> = self.session.call("Runtime.disable", NoParams {}).await;
        enabled
            .and(disabled)
            .map_err(|error| failed(self.tab, error))?;
        // The worlds that exist were all told before the reply.
        while let Ok(Some(event)) = timeout_at(Instant::now(), events.next()).await {
            if event.method != "Runtime.executionContextCreated" {
                continue;
            }
            let Ok(ContextCreated { context }) = event.parse() else {
                continue;
            };
            let ours = context
                .aux_data
                .is_some_and(|data| data.is_default && data.frame_id.as_deref() == Some(&frame.id));
            if ours {
                return Ok(context.unique_id);
            }
        }
        Err(Failure::Error(OperationError::new(
            ErrorCode::OperationFailed,
            "the frame has no document to run a script in yet; wait for it to load",
        )))
    }

    async fn evaluate(&self, script: &str, form: Form) -> Result<Evaluation, Failure> {
        let expression = match form {
            // The line break ends a comment that the script may end with.
            Form::Expression => format!("({script}\n)"),
            Form::Statements => script.to_owned(),
            Form::Body => format!("(async () => {{{script}\n}})()"),
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let mut params = json!({
            "expression": expression,
            "objectGroup": GROUP,
            "awaitPromise": true,
            "userGesture": true,
            "replMode": form == Form::Statements,
            // The browser ends a loop by itself, even if nobody waits for the reply any more.
            "timeout": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(context) = &self.context {
            params["uniqueContextId"] = context.as_str().into();
        }
        self.call("Runtime.evaluate", params).await
    }

    /// Runs a command that runs script; the browser names no reason when it ends that.
    async fn call(&self, method: &'static str, params: Value) -> Result<Evaluation, Failure> {
        // The deadline of the whole evaluation comes first.
        let limit = self.deadline.saturating_duration_since(Instant::now()) + END_LIMIT;
        self.session
            .call_within(limit, method, params)
            .await
            .map_err(|error| match error {
                CdpError::Refused { message, .. } if message == "Internal error" => Failure::Late,
                CdpError::Refused { .. } => Failure::Error(OperationError::new(
                    ErrorCode::OperationFailed,
                    "the page moved to another document before the script ended; wait for it to load",
                )),
                error => Failure::Error(failed(self.tab, error)),
            })
    }

    async fn value(&self, outcome: Evaluation, form: Form) -> Result<Value, Failure> {
        if let Some(details) = outcome.exception_details {
            return Err(thrown(&details, form).into());
        }
        let mut object = outcome.result;
        if object.subtype.as_deref() == Some("promise")
            && let Some(id) = &object.object_id
        {
            let settled = self
                .call("Runtime.awaitPromise", json!({ "promiseObjectId": id }))
                .await?;
            if let Some(details) = settled.exception_details {
                return Err(thrown(&details, form).into());
            }
            object = settled.result;
        }
        if let Some(reason) = not_json(&object) {
            return Err(OperationError::new(ErrorCode::OperationFailed, reason).into());
        }
        let value = match &object.object_id {
            Some(id) => {
                let value = self.to_json(id).await;
                let release = json!({ "objectGroup": GROUP });
                // Only to save memory in the page: a failure changes nothing for the caller.
                let _: Result<Ack, _> = self
                    .session
                    .call_within(END_LIMIT, "Runtime.releaseObjectGroup", release)
                    .await;
                value?
            }
            None => object.value.unwrap_or(Value::Null),
        };
        let chars = chars(&value);
        if chars > RESULT_CHARS {
            return Err(too_long(chars).into());
        }
        Ok(value)
    }

    async fn to_json(&self, object: &str) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        struct Told {
            text: Option<String>,
            chars: Option<usize>,
        }
        let reply = self
            .call(
                "Runtime.callFunctionOn",
                json!({
                    "objectId": object,
                    "functionDeclaration": TO_JSON,
                    "arguments": [{ "value": RESULT_CHARS }],
                    "returnByValue": true,
                }),
            )
            .await?;
        if let Some(details) = reply.exception_details {
            return Err(OperationError::new(
                ErrorCode::OperationFailed,
                format!(
                    "the script's value is not JSON ({}); return the plain parts of it that you need",
                    detail(&details)
                ),
            )
            .into());
        }
        let told = reply.result.value.unwrap_or(Value::Null);
        match serde_json::from_value(told) {
            Ok(Told {
                text: Some(text), ..
            }) => Ok(serde_json::from_str(&text).map_err(|error| {
                OperationError::new(
                    ErrorCode::OperationFailed,
                    format!("the script's value is nested too deeply, or is not JSON ({error}); return less of it"),
                )
            })?),
            Ok(Told {
                chars: Some(chars), ..
            }) => Err(too_long(chars).into()),
            _ => Ok(Value::Null),
        }
    }
}

/// The longest value: the rest of [`limits::RESULT_CHARS`] is for the envelope with the tab.
const RESULT_CHARS: usize = limits::RESULT_CHARS - 24_000;

/// Characters of `value` as JSON, if it may be long.
fn chars(value: &Value) -> usize {
    match value {
        // Only a text can be long here: objects were measured in the page.
        Value::String(_) => value.to_string().chars().count(),
        _ => 0,
    }
}

fn too_long(chars: usize) -> OperationError {
    OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "the script's value has {chars} characters as JSON, at most {RESULT_CHARS} are allowed; return less of it"
        ),
    )
}

/// Whether the browser could not read the script, so that nothing of it ran.
fn is_unreadable(details: &ExceptionDetails) -> bool {
    details.stack_trace.is_none()
        && details.exception.as_ref().is_some_and(|thrown| {
            // An error that script threw has the place in its description.
            thrown.subtype.as_deref() == Some("error")
                && thrown.class_name.as_deref() == Some("SyntaxError")
                && !thrown
                    .description
                    .as_deref()
                    .is_some_and(|text| text.contains("\n    at "))
        })
}

/// Why `object` has no JSON form that tells what it is.
fn not_json(object: &RemoteObject) -> Option<String> {
    let kind = match (object.kind.as_str(), object.subtype.as_deref()) {
        ("function", _) => {
            return Some("the script's value is a function; call it, as in (() => …)()".to_owned());
        }
        ("symbol", _) => "a symbol",
        ("bigint", _) => "a BigInt, use String() on it",
        ("number", _) => match &object.unserializable_value {
            Some(literal) => {
                return Some(format!("the script's value is {literal}, which JSON lacks"));
            }
            None => return None,
        },
        (_, Some("node")) => "a DOM node; return its text or attributes, or use snapshot for a ref",
        (_, Some("map" | "set")) => "a Map or Set; spread it into an array",
        (_, Some("weakmap" | "weakset" | "iterator" | "generator" | "weakref")) => {
            "not data; return the plain parts of it that you need"
        }
        (_, Some("error")) => {
            let text = object.description.as_deref().unwrap_or("an error");
            return Some(format!("the script's value is an error: {}", cut(text)));
        }
        _ => {
            return object
                .class_name
                .as_deref()
                .filter(|name| *name == "Window")
                .map(|_| {
                    "the script's value is a window; return the properties of it that you need"
                        .to_owned()
                });
        }
    };
    Some(format!("the script's value is {kind}"))
}

fn thrown(details: &ExceptionDetails, form: Form) -> OperationError {
    // The wrapping put one character before the first line.
    let shift = match form {
        Form::Expression => 1,
        Form::Statements => 0,
        Form::Body => 14,
    };
    let column = if details.line_number == 0 {
        (details.column_number - shift).max(0)
    } else {
        details.column_number
    };
    OperationError::new(
        ErrorCode::OperationFailed,
        format!(
            "the script threw {} (line {}, column {} of the script or of the page's own code that it called)",
            detail(details),
            details.line_number + 1,
            column + 1
        ),
    )
}

fn detail(details: &ExceptionDetails) -> String {
    let thrown = details.exception.as_ref();
    let text = thrown
        .and_then(|thrown| thrown.description.clone())
        .or_else(|| {
            thrown
                .and_then(|thrown| thrown.value.as_ref())
                .map(ToString::to_string)
        })
        .unwrap_or_else(|| details.text.clone());
    cut(&text)
}

fn cut(text: &str) -> String {
    text.chars().take(DETAIL_CHARS).collect()
}
