//! The events of the domain `Network`, as far as they are used.

use serde::Deserialize;
use serde_json::Value;

use crate::console::StackTrace;

/// Header fields by name. Equal ones are joined by line breaks.
pub(super) type Fields = serde_json::Map<String, Value>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WillBeSent {
    pub(super) request_id: String,
    pub(super) request: Request,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) wall_time: f64,
    pub(super) initiator: Option<Initiator>,
    pub(super) redirect_response: Option<Response>,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) frame_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    #[serde(default)]
    pub(super) url: String,
    #[serde(default)]
    pub(super) method: String,
    #[serde(default)]
    pub(super) headers: Fields,
    pub(super) post_data: Option<String>,
    #[serde(default)]
    pub(super) has_post_data: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initiator {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) url: Option<String>,
    pub(super) line_number: Option<f64>,
    pub(super) stack: Option<StackTrace>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response {
    #[serde(default)]
    pub(super) status: u64,
    #[serde(default)]
    pub(super) headers: Fields,
    /// Of a WebSocket handshake.
    pub(super) request_headers: Option<Fields>,
    #[serde(default)]
    pub(super) mime_type: String,
    pub(super) protocol: Option<String>,
    #[serde(default)]
    pub(super) from_disk_cache: bool,
    #[serde(default)]
    pub(super) from_service_worker: bool,
    #[serde(default)]
    pub(super) from_prefetch_cache: bool,
    #[serde(default)]
    pub(super) encoded_data_length: f64,
    pub(super) timing: Option<ResourceTiming>,
}

/// Milliseconds since `request_time`; what did not happen is -1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceTiming {
    /// Seconds of the browser's clock.
    pub(super) request_time: f64,
    pub(super) send_start: f64,
    pub(super) send_end: f64,
    pub(super) receive_headers_end: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtraInfo {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) headers: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResponseReceived {
    pub(super) request_id: String,
    pub(super) response: Response,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DataReceived {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) data_length: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoadingFinished {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) encoded_data_length: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoadingFailed {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) error_text: String,
    #[serde(default)]
    pub(super) canceled: bool,
    pub(super) blocked_reason: Option<String>,
    pub(super) cors_error_status: Option<CorsErrorStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CorsErrorStatus {
    #[serde(default)]
    pub(super) cors_error: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfRequest {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebSocketCreated {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) url: String,
    pub(super) initiator: Option<Initiator>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Handshake {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) wall_time: f64,
    pub(super) request: HandshakeRequest,
}

#[derive(Deserialize)]
pub(super) struct HandshakeRequest {
    #[serde(default)]
    pub(super) headers: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HandshakeAnswered {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    pub(super) response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebSocketFrame {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    pub(super) response: FrameContent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FrameContent {
    /// RFC 6455, section 5.2.
    #[serde(default)]
    pub(super) opcode: f64,
    #[serde(default)]
    pub(super) payload_data: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WebSocketError {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) error_message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceMessage {
    pub(super) request_id: String,
    #[serde(default)]
    pub(super) timestamp: f64,
    #[serde(default)]
    pub(super) event_name: String,
    #[serde(default)]
    pub(super) data: String,
}
