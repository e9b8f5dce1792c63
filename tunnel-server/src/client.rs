//! Talks to a running server half over its HTTP API, for `status`, `call`, `mcp` and `doctor`.
//!
//! Connections, TLS and the mark by which a server half is known are the transport's
//! [`Connector`]; this adds how the server is found and which exit code a failure has.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use yonder_protocol::{ErrorCode, OperationError};
use yonder_transport::address::ServerAddress;
use yonder_transport::carrier::{Carrier, Connect as _, ConnectError};
use yonder_transport::connect::{AuthHeader, Connector, ConnectorConfig};
use yonder_transport::tls::{Pin, TlsOptions};
use yonder_transport::token::SecretToken;

use crate::cli::ServerOptions;
use crate::config::{Common, DEFAULT_LISTEN};
use crate::exit::{Exit, Failure};
use crate::server::presence::Presence;
use crate::token::{TokenError, TokenSource};

/// Limit of a request that the server answers at once.
pub(crate) const QUICK: Duration = Duration::from_secs(10);

/// Sent where there is no token, so that a server that is up says that it wants one, and one that is not is told as such.
const NO_TOKEN: &str = "none";

/// A running server half.
#[derive(Debug)]
pub(crate) struct Client {
    connector: Connector,
    /// Why there is no token to send, if so.
    tokenless: Option<TokenError>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    code: serde_json::Value,
    message: String,
}

impl Client {
    /// The server half that `options` name, or else the one that uses the same state directory.
    ///
    /// # Errors
    /// If the options are wrong or the token must not be used.
    pub(crate) fn new(common: &Common, options: ServerOptions) -> Result<Self, Failure> {
        let options = options.or_environment()?;
        let given = options.pin.as_deref().map(parse_pin).transpose()?;
        let (token, tokenless) = match common.token.read() {
            Ok(token) => (token, None),
            Err(missing @ TokenError::Missing { .. }) => {
                let none = SecretToken::new(NO_TOKEN).map_err(Failure::usage)?;
                (none, Some(missing))
            }
            Err(error) => return Err(Failure::usage(chain(&error))),
        };
        let local = match options.server {
            None => Presence::of_running(&common.state_dir),
            Some(_) => None,
        };
        let url = match (options.server, &local) {
            (Some(url), _) => url,
            (None, Some(presence)) => presence.url.clone(),
            // The state directory's token is not for whoever else listens there.
            (None, None) if matches!(common.token, TokenSource::StateDir(_)) => {
                return Err(not_running(common));
            }
            (None, None) => format!("http://{DEFAULT_LISTEN}"),
        };
        let address: ServerAddress = url.parse().map_err(Failure::usage)?;
        let pin = match (given, local.and_then(|presence| presence.pin)) {
            (Some(given), _) => Some(given),
            // A person who names an authority wants that one to decide.
            (None, Some(kept)) if options.ca.is_none() => Some(parse_pin(&kept)?),
            _ => None,
        };
        let connector = Connector::new(ConnectorConfig {
            address,
            token,
            tls: TlsOptions {
                ca_file: options.ca,
                pins: pin.into_iter().collect(),
            },
            headers: Vec::new(),
            auth_header: AuthHeader::default(),
            force: None,
        })
        .map_err(connect_failure)?;
        Ok(Self {
            connector,
            tokenless,
        })
    }

    /// Where the server is.
    pub(crate) fn address(&self) -> &ServerAddress {
        self.connector.address()
    }

    /// Gets a carrier to the server half.
    ///
    /// # Errors
    /// Of the class that the exit code needs.
    pub(crate) async fn carrier(&self) -> Result<Carrier, Failure> {
        self.connector
            .connect()
            .await
            .map_err(|error| self.failure(error))
    }

    /// Reads the JSON at `route`.
    ///
    /// # Errors
    /// Of the class that the exit code needs.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        route: &str,
        limit: Duration,
    ) -> Result<T, Failure> {
        let answer = self
            .connector
            .request(Method::GET, route, None, limit)
            .await
            .map_err(|error| self.failure(error))?;
        if answer.status() != StatusCode::OK {
            return Err(Failure::failed(problem(&answer)));
        }
        serde_json::from_slice(answer.body()).map_err(|error| {
            Failure::failed(format!("{} answered unreadably: {error}", self.address()))
        })
    }

    /// Runs an operation, whose name has been checked, on `session`. The answer is what `/call` answers, with
    /// `files` in the form of `files=inline` where `inline` is set.
    ///
    /// # Errors
    /// [`CallError`], which tells a failed operation from a failed request.
    pub(crate) async fn call(
        &self,
        session: &str,
        operation: &str,
        input: Bytes,
        inline: bool,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let files = if inline { "&files=inline" } else { "" };
        let route = format!("call/{operation}?session={session}{files}");
        let answer = self
            .connector
            .request(Method::POST, &route, Some(input), limit)
            .await
            .map_err(|error| CallError::Request(self.failure(error)))?;
        if answer.status() == StatusCode::OK {
            return Ok(answer.into_body());
        }
        let operation_error = serde_json::from_slice::<ErrorBody>(answer.body())
            .ok()
            .and_then(|body| {
                let code = serde_json::from_value::<ErrorCode>(body.error.code).ok()?;
                Some(OperationError::new(code, body.error.message))
            });
        Err(match operation_error {
            Some(error) => CallError::Operation(error),
            None => CallError::Request(Failure::failed(problem(&answer))),
        })
    }

    fn failure(&self, error: ConnectError) -> Failure {
        match (&self.tokenless, error.is_refused()) {
            (Some(missing), true) => Failure::new(Exit::Refused, anyhow::anyhow!("{missing}")),
            _ => connect_failure(error),
        }
    }
}

fn parse_pin(text: &str) -> Result<Pin, Failure> {
    text.parse().map_err(Failure::usage)
}

fn not_running(common: &Common) -> Failure {
    Failure::new(
        Exit::Unreachable,
        anyhow::anyhow!(
            "could not reach a server half: none runs on the state directory {}; start it with tunnel-server, or name \
             another with --server or --state-dir",
            common.state_dir.path().display()
        ),
    )
}

/// Why a call brought no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The operation failed.
    Operation(OperationError),
    /// The request did.
    Request(Failure),
}

/// The exit code of an unsuccessful request.
fn connect_failure(error: ConnectError) -> Failure {
    let exit = if error.is_refused() {
        Exit::Refused
    } else if error.is_configuration() {
        Exit::Usage
    } else {
        Exit::Unreachable
    };
    Failure::new(exit, error)
}

/// What an answer with an error says.
fn problem(answer: &Response<Bytes>) -> String {
    match serde_json::from_slice::<ErrorBody>(answer.body()) {
        Ok(body) => body.error.message,
        Err(_) => format!(
            "the server answered with status {}",
            answer.status().as_u16()
        ),
    }
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
