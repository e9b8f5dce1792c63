//! The browser operations as MCP tools, over standard input and output and over streamable HTTP.
//!
//! What carries an operation out is the [`Operate`] trait; this crate knows neither the link nor
//! Chromium. Each tool is made from an operation's own data (`yonder_protocol::operation`), so names,
//! schemas and descriptions cannot drift apart from what is executed. Only [`handler`] and the two
//! endpoints name types of the SDK, since those change often.
//!
//! While no desktop is attached to the browser session the list of tools is empty; clients are told
//! when that changes (`notifications/tools/list_changed`, or a `subscriptions/listen` of the 2026-07-28
//! specification).

mod handler;
mod http;
mod instructions;
mod stdio;
mod tools;

use std::future::Future;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use yonder_protocol::OperationError;
use yonder_protocol::operation::Operation;

pub use self::http::HttpEndpoint;
pub use self::stdio::{StdioError, serve_stdio};

/// A picture that an operation made, to be shown to the model.
#[derive(Clone, Debug)]
pub struct Image {
    /// Media type, such as `image/png`.
    pub mime: String,
    /// The encoded picture.
    pub data: Bytes,
}

/// What an operation answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The result, which fits the operation's output schema.
    pub value: Value,
    /// Pictures among the files of the result.
    pub images: Vec<Image>,
}

/// Carries operations out on a browser session.
pub trait Operate: Send + Sync + 'static {
    /// Runs `operation` with `input`, which is checked by the callee. Dropping the future cancels the
    /// operation; whether the browser acted is then unknown.
    fn operate(
        &self,
        session: &str,
        operation: &'static Operation,
        input: Value,
    ) -> impl Future<Output = Result<Answer, OperationError>> + Send;

    /// Whether a desktop is attached to `session`, now and from now on.
    fn attached(&self, session: &str) -> watch::Receiver<bool>;
}
