//! The input of a method, from JSON or from headers and bytes.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request};
use serde::Deserialize;
use serde_json::{Map, Value};
use yonder_protocol::call::{FileHead, Outcome, check_files};
use yonder_protocol::link::SessionName;
use yonder_protocol::operation::types::State;
use yonder_protocol::{ErrorCode, OperationError, Target, limits};

use super::attachment::Completed;
use super::{RPC_VERSION, RpcError};

/// How bytes stand in JSON (RFC 4648, section 4).
pub(super) const BASE64: GeneralPurpose = STANDARD;

/// Longest connection, request or tunnel id.
const ID_BYTES_MAX: usize = 64;

/// `bytes` as they stand in JSON.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn from_base64(text: &str) -> Result<Bytes, RpcError> {
    BASE64
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| RpcError::invalid(format!("data is not base64: {error}")))
}

/// The form in which a method was called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Json,
    Bytes,
}

/// The input of a method. Fields are looked up by their JSON names; in the form of bytes they come from headers.
pub(super) struct Call {
    form: Form,
    fields: Map<String, Value>,
    body: Bytes,
}

/// Fields and the headers that carry them in the form of bytes.
const HEADERS: &[(&str, &str)] = &[
    ("sessionID", "yonder-session"),
    ("connectionID", "yonder-connection"),
    ("tunnelID", "yonder-tunnel"),
    ("target", "yonder-target"),
    ("maxBytes", "yonder-max-bytes"),
    ("sequence", "yonder-sequence"),
    ("end", "yonder-end"),
];

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum RpcOutcome {
    Success { result: RpcResult },
    Failure { code: String, message: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcResult {
    value: Value,
    #[serde(default)]
    files: Vec<RpcFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcFile {
    id: String,
    name: String,
    mime: String,
    data: String,
}

impl Call {
    pub(super) fn parse(request: Request<Bytes>) -> Result<Self, RpcError> {
        let (head, body) = request.into_parts();
        let is_bytes = head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes()
                .to_ascii_lowercase()
                .starts_with(b"application/octet-stream")
        });
        if is_bytes {
            let fields = HEADERS
                .iter()
                .filter_map(|(field, header)| {
                    Some(((*field).to_owned(), text_of(&head.headers, header)?))
                })
                .collect();
            return Ok(Self {
                form: Form::Bytes,
                fields,
                body,
            });
        }
        let value: Value = serde_json::from_slice(&body)
            .map_err(|error| RpcError::invalid(format!("the body is not JSON: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(RpcError::invalid("the body must be a JSON object"));
        };
        Ok(Self {
            form: Form::Json,
            fields,
            body: Bytes::new(),
        })
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    fn text(&self, field: &str) -> Result<&str, RpcError> {
        self.fields
            .get(field)
            .and_then(Value::as_str)
            .ok_or_else(|| self.missing(field, "a text"))
    }

    fn missing(&self, field: &str, expected: &str) -> RpcError {
        let header = HEADERS.iter().find(|(name, _)| *name == field);
        RpcError::invalid(match (self.form, header) {
            (Form::Bytes, Some((_, header))) => format!("the header {header} must be {expected}"),
            _ => format!("{field} must be {expected}"),
        })
    }

    fn id(&self, field: &str) -> Result<&str, RpcError> {
        self.text(field).and_then(|id| {
            let fits =
                (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
            fits.then_some(id)
                .ok_or_else(|| self.missing(field, "1 to 64 visible ASCII characters"))
        })
    }

    pub(super) fn session(&self) -> Result<&str, RpcError> {
        let session = self.text("sessionID")?;
        session
            .parse::<SessionName>()
            .map_err(|error| RpcError::invalid(format!("sessionID: {error}")))?;
        Ok(session)
    }

    pub(super) fn connection(&self) -> Result<&str, RpcError> {
        self.id("connectionID")
    }

    pub(super) fn request_id(&self) -> Result<&str, RpcError> {
        self.id("requestID")
    }

    pub(super) fn tunnel_id(&self) -> Result<&str, RpcError> {
        self.id("tunnelID")
    }

    pub(super) fn check_version(&self) -> Result<(), RpcError> {
        match self.fields.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(RPC_VERSION) => Ok(()),
            _ => Err(RpcError::invalid(format!("version must be {RPC_VERSION}"))),
        }
    }

    pub(super) fn state(&self) -> Result<State, RpcError> {
        let state = self.fields.get("state").cloned().unwrap_or_default();
        serde_path_to_error::deserialize(state)
            .map_err(|error| RpcError::invalid(format!("state: {error}")))
    }

    pub(super) fn target(&self) -> Result<Target, RpcError> {
        let target = match self.fields.get("target") {
            Some(Value::String(text)) => text.parse().map_err(|error| format!("{error}")),
            Some(value) => serde_json::from_value(value.clone()).map_err(|error| error.to_string()),
            None => Err("it is missing".to_owned()),
        };
        target.map_err(|error| RpcError::invalid(format!("target: {error}")))
    }

    fn number(&self, field: &str) -> Result<Option<u64>, RpcError> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => text
                .parse()
                .map(Some)
                .map_err(|_| self.missing(field, "a whole number")),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| self.missing(field, "a whole number")),
        }
    }

    pub(super) fn max_bytes(&self) -> Result<usize, RpcError> {
        let wanted = match self.number("maxBytes")? {
            None => return Ok(limits::UNARY_CHUNK_BYTES),
            Some(wanted) => usize::try_from(wanted).unwrap_or(usize::MAX),
        };
        if wanted == 0 {
            return Err(self.missing("maxBytes", "at least 1"));
        }
        Ok(wanted.min(limits::UNARY_CHUNK_BYTES_MAX))
    }

    pub(super) fn sequence(&self) -> Result<Option<u64>, RpcError> {
        self.number("sequence")
    }

    pub(super) fn end(&self) -> Result<bool, RpcError> {
        match self.fields.get("end") {
            None => Ok(false),
            Some(Value::Bool(end)) => Ok(*end),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(self.missing("end", "true or false")),
        }
    }

    pub(super) fn data(&self) -> Result<Bytes, RpcError> {
        let data = match self.form {
            Form::Bytes => self.body.clone(),
            Form::Json => match self.fields.get("data") {
                None => Bytes::new(),
                Some(Value::String(text)) => from_base64(text)?,
                Some(_) => return Err(self.missing("data", "a text in base64")),
            },
        };
        if data.len() > limits::UNARY_CHUNK_BYTES_MAX {
            return Err(RpcError::invalid(format!(
                "a chunk may have {} bytes, not {}",
                limits::UNARY_CHUNK_BYTES_MAX,
                data.len()
            )));
        }
        Ok(data)
    }

    pub(super) fn outcome(&self) -> Result<Completed, RpcError> {
        let outcome = self.fields.get("outcome").cloned().unwrap_or_default();
        let outcome: RpcOutcome = serde_path_to_error::deserialize(outcome)
            .map_err(|error| RpcError::invalid(format!("outcome: {error}")))?;
        match outcome {
            RpcOutcome::Failure { code, message } => {
                // A code that this version does not know is still a failure.
                let code =
                    serde_json::from_value(Value::from(code)).unwrap_or(ErrorCode::OperationFailed);
                let message: String = message.chars().take(limits::SHORT_CHARS).collect();
                Ok((
                    Outcome::Failure {
                        error: OperationError::new(code, message),
                    },
                    Vec::new(),
                ))
            }
            RpcOutcome::Success { result } => {
                let mut heads = Vec::with_capacity(result.files.len());
                let mut contents = Vec::with_capacity(result.files.len());
                for file in result.files {
                    let bytes = from_base64(&file.data)?;
                    heads.push(FileHead {
                        id: Some(file.id),
                        name: file.name,
                        mime: file.mime,
                        bytes: bytes.len() as u64,
                    });
                    contents.push(bytes);
                }
                check_files(&heads).map_err(|error| RpcError::invalid(error.to_string()))?;
                Ok((
                    Outcome::Success {
                        value: result.value,
                        files: heads,
                    },
                    contents,
                ))
            }
        }
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<Value> {
    headers.get(name)?.to_str().ok().map(Value::from)
}
