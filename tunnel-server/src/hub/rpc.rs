//! The attachment RPC: what a link carries, as plain requests with complete answers, for desktop halves that can
//! hold no WebSocket and run no link.
//!
//! Every method is a `POST /rpc/{method}`. `attach`, `state`, `command` and `result` take and answer JSON. The
//! `tunnel.*` methods take JSON too, with `data` in base64, or bytes as `application/octet-stream` with everything
//! else in headers; they answer in the form in which they were asked.
//!
//! | method | input | output |
//! | --- | --- | --- |
//! | `attach` | `sessionID`, `connectionID`, `version` 4 | once the attachment is over: `outcome` `closed` or `replaced` |
//! | `state` | …, `state` | `{}` |
//! | `command` | …, `requestID` | `action` (the input, and the operation as `type`), `generation`, `files` |
//! | `result` | …, `requestID`, `outcome` | `{}`; an unknown `requestID` is ignored |
//! | `tunnel.open` | …, `target` (`Yonder-Target: host:port`) | `tunnelID` (`Yonder-Tunnel`) |
//! | `tunnel.read` | …, `tunnelID`, `maxBytes`, `sequence` | `data`, `eof` (`Yonder-Eof`); empty when nothing came for 10 s |
//! | `tunnel.write` | …, `tunnelID`, `data`, `end`, `sequence` | `{}` |
//! | `tunnel.close` | …, `tunnelID` | `{}`; may be repeated |
//!
//! The headers are `Yonder-Session`, `Yonder-Connection`, `Yonder-Tunnel`, `Yonder-Target`, `Yonder-Max-Bytes`,
//! `Yonder-Sequence` and `Yonder-End`. A `sequence` counts from 1 per tunnel and direction; the repetition of the last
//! one is answered as before and moves nothing twice. Errors are `{"error": {"code", "message"}}`.

mod attachment;
mod request;
mod tunnel;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use yonder_protocol::limits;

pub(crate) use self::attachment::RpcAttachment;
use self::request::{Call, Form};
use self::tunnel::Tunnel;
use super::Hub;
use super::events::Event;
use super::sessions::{Attachment, Backend, Detached};

/// The version of the attachment RPC.
pub const RPC_VERSION: u32 = 4;

const TUNNEL: HeaderName = HeaderName::from_static("yonder-tunnel");
const EOF: HeaderName = HeaderName::from_static("yonder-eof");

/// Why a method failed, as it is answered.
#[derive(Debug)]
struct RpcError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl RpcError {
    fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "invalid",
            message: message.into(),
        }
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::CONFLICT,
            code: "unavailable",
            message: message.into(),
        }
    }
}

/// What a method answers.
enum Answer {
    Json(Value),
    /// Bytes with their metadata in headers.
    Bytes(Bytes, Vec<(HeaderName, HeaderValue)>),
}

impl Hub {
    /// `POST /rpc/{method}`, authenticated and with its whole body. Dropping the future of `attach` ends the
    /// attachment, of `tunnel.read` loses nothing, of `tunnel.write` closes the tunnel.
    pub async fn rpc(
        self: &Arc<Self>,
        method: &str,
        request: Request<Bytes>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let answer = match Call::parse(request) {
            Ok(call) => self.run_rpc(method, call).await,
            Err(error) => Err(error),
        };
        let (status, kind, body, headers) = match answer {
            Ok(Answer::Json(value)) => (
                StatusCode::OK,
                "application/json",
                Bytes::from(value.to_string()),
                Vec::new(),
            ),
            Ok(Answer::Bytes(bytes, headers)) => {
                (StatusCode::OK, "application/octet-stream", bytes, headers)
            }
            Err(error) => {
                let body = json!({"error": {"code": error.code, "message": error.message}});
                (
                    error.status,
                    "application/json",
                    Bytes::from(body.to_string()),
                    Vec::new(),
                )
            }
        };
        let mut response = Response::new(Full::new(body).boxed());
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(
            CACHE_CONTROL,
            HeaderValue::from_static("no-store, no-transform"),
        );
        response
            .headers_mut()
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        response
    }

    async fn run_rpc(self: &Arc<Self>, method: &str, call: Call) -> Result<Answer, RpcError> {
        if method == "attach" {
            return self.rpc_attach(&call).await;
        }
        let (attachment, rpc) = self.rpc_attachment(&call)?;
        match method {
            "state" => {
                let state = call.state()?;
                if state.tabs.len() > limits::TABS_PER_SESSION {
                    return Err(RpcError::invalid(format!(
                        "a session may have {} tabs",
                        limits::TABS_PER_SESSION
                    )));
                }
                attachment.publish(state);
                Ok(Answer::Json(json!({})))
            }
            "command" => Ok(Answer::Json(rpc.command(call.request_id()?)?)),
            "result" => {
                rpc.complete(call.request_id()?, call.outcome()?);
                Ok(Answer::Json(json!({})))
            }
            "tunnel.open" => self.rpc_open(&rpc, &call).await,
            "tunnel.read" => {
                let tunnel = rpc.tunnel(call.tunnel_id()?)?;
                let read = tunnel
                    .read(call.max_bytes()?, call.sequence()?, &self.metrics)
                    .await?;
                Ok(match call.form() {
                    Form::Json => Answer::Json(
                        json!({"data": request::to_base64(&read.data), "eof": read.eof}),
                    ),
                    Form::Bytes => {
                        let eof = HeaderValue::from_static(if read.eof { "true" } else { "false" });
                        Answer::Bytes(read.data, vec![(EOF, eof)])
                    }
                })
            }
            "tunnel.write" => {
                let id = call.tunnel_id()?;
                let tunnel = rpc.tunnel(id)?;
                // Where a cut-off write stood nobody knows, so the tunnel must not go on.
                let mut guard = rpc.closing(id);
                let written = tunnel
                    .write(call.data()?, call.end()?, call.sequence()?, &self.metrics)
                    .await;
                guard.disarm();
                written?;
                Ok(Answer::Json(json!({})))
            }
            "tunnel.close" => {
                rpc.close_tunnel(call.tunnel_id()?);
                Ok(Answer::Json(json!({})))
            }
            other => Err(RpcError {
                status: StatusCode::NOT_FOUND,
                code: "method_not_found",
                message: format!("there is no method {other:?}"),
            }),
        }
    }

    async fn rpc_attach(self: &Arc<Self>, call: &Call) -> Result<Answer, RpcError> {
        call.check_version()?;
        if self.stopping.is_cancelled() {
            return Err(RpcError::unavailable(
                "the server half is stopping; attach again when it is back",
            ));
        }
        let rpc = Arc::new(RpcAttachment::new(call.connection()?, self.events.clone()));
        let attachment = Attachment::new(call.session()?, Backend::Rpc(Arc::clone(&rpc)));
        // Ends everything when the client leaves, which drops this future.
        let _served = Served {
            hub: Arc::clone(self),
            attachment: Arc::clone(&attachment),
            rpc: Arc::clone(&rpc),
        };
        self.sessions.attach(&attachment);
        self.events.send(Event::attached(rpc.connection()));
        let outcome = match attachment.detached().await {
            Detached::Replaced => "replaced",
            Detached::Gone | Detached::Stopping => "closed",
        };
        Ok(Answer::Json(json!({"outcome": outcome})))
    }

    /// The attachment that a call belongs to.
    fn rpc_attachment(
        &self,
        call: &Call,
    ) -> Result<(Arc<Attachment>, Arc<RpcAttachment>), RpcError> {
        let (session, connection) = (call.session()?, call.connection()?);
        self.sessions
            .current(session)
            .and_then(|attachment| match attachment.backend() {
                Backend::Rpc(rpc) if rpc.connection() == connection => {
                    let rpc = Arc::clone(rpc);
                    Some((attachment, rpc))
                }
                _ => None,
            })
            .ok_or_else(|| {
                RpcError::unavailable(format!(
                    "connection {connection} is not attached to session {session}; it ended or was replaced"
                ))
            })
    }

    async fn rpc_open(
        self: &Arc<Self>,
        rpc: &Arc<RpcAttachment>,
        call: &Call,
    ) -> Result<Answer, RpcError> {
        let target = call.target()?;
        let place = rpc.reserve(Arc::clone(&self.tunnels))?;
        let socket = self.dialer.dial(&target).await.map_err(|error| {
            self.metrics.tunnel_failed(error.code);
            RpcError {
                status: StatusCode::BAD_GATEWAY,
                code: "dial_failed",
                message: error.to_string(),
            }
        })?;
        let id = rpc.insert(Tunnel::new(socket, place, Arc::clone(&self.metrics)))?;
        Ok(match call.form() {
            Form::Json => Answer::Json(json!({"tunnelID": id})),
            Form::Bytes => {
                let value = HeaderValue::from_str(&id)
                    .map_err(|_| RpcError::invalid("the tunnel's id is not a header value"))?;
                Answer::Bytes(Bytes::new(), vec![(TUNNEL, value)])
            }
        })
    }
}

/// Ends an attachment and all its tunnels when it is dropped.
struct Served {
    hub: Arc<Hub>,
    attachment: Arc<Attachment>,
    rpc: Arc<RpcAttachment>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.hub.sessions.detach(&self.attachment, Detached::Gone);
        self.rpc.close();
    }
}
