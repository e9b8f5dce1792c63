//! Gives Chromium the proxy credential of a browser context, once, so that it sends it unasked from then on.
//!
//! The proxy challenges a single host that exists nowhere else. A hidden page of the context goes there,
//! answers the challenge, and is closed. After that nothing is intercepted and nothing costs anything.
//! The credential is lost when Chromium's network process dies; then this is done again.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tracing::debug;

use crate::cdp::{Ack, CdpError, EventStream, NoParams, Session};

/// Where the proxy asks for the credential and answers 204 once it has it.
const PRIMING_URL: &str = "http://prime.invalid/";

/// For the whole exchange; 50 ms is usual.
const PRIME_LIMIT: Duration = Duration::from_secs(20);

/// What `Page.navigate` answers when the proxy answered 204: there is no document to show.
const NO_DOCUMENT: &str = "net::ERR_ABORTED";

/// Name and password with which a browser session's requests go to the proxy.
#[derive(Clone)]
pub struct ProxyCredential {
    username: String,
    password: String,
}

impl ProxyCredential {
    /// A credential for HTTP's Basic scheme (RFC 7617), so that the name must hold no colon.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: username.into(),
            password: password.into(),
        }
    }
}

impl fmt::Debug for ProxyCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyCredential")
            .field("username", &self.username)
            .field("password", &"…")
            .finish()
    }
}

/// Why the proxy does not know the browser.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrimeError {
    /// The proxy did not accept the credential.
    #[error("the proxy refused the browser's credential")]
    Refused,
    /// The proxy could not be asked.
    #[error("the browser's proxy did not answer as expected ({0})")]
    Unanswered(String),
    /// The browser failed.
    #[error("the browser could not be introduced to its proxy")]
    Browser(#[from] CdpError),
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Navigated {
    error_text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Paused {
    request_id: String,
}

/// Introduces the context (`None` for the default one) to the proxy. It must hold an ordinary page already.
///
/// # Cancel safety
/// Dropping the future leaves a hidden blank page behind, which goes with the context.
pub(crate) async fn prime(
    root: &Session,
    context: Option<&str>,
    credential: &ProxyCredential,
) -> Result<(), PrimeError> {
    let mut target = json!({ "url": "about:blank", "hidden": true });
    if let Some(context) = context {
        target["browserContextId"] = json!(context);
    }
    let created: Created = root.call("Target.createTarget", target).await?;
    let exchange =
        tokio::time::timeout(PRIME_LIMIT, introduce(root, &created.target_id, credential));
    let result = exchange.await.unwrap_or_else(|_| {
        Err(PrimeError::Unanswered(
            "it did not answer in time".to_owned(),
        ))
    });
    let close = json!({ "targetId": created.target_id });
    if let Err(error) = root.call::<Ack>("Target.closeTarget", close).await {
        debug!(%error, "the priming page could not be closed");
    }
    result
}

async fn introduce(
    root: &Session,
    target: &str,
    credential: &ProxyCredential,
) -> Result<(), PrimeError> {
    let attached: Attached = root
        .call(
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        )
        .await?;
    let page = root.flat(&attached.session_id);
    let events = page.events();
    let patterns = json!({
        "handleAuthRequests": true,
        "patterns": [{ "urlPattern": format!("{PRIMING_URL}*") }],
    });
    page.call::<Ack>("Fetch.enable", patterns).await?;
    page.call::<Ack>("Runtime.runIfWaitingForDebugger", NoParams {})
        .await?;
    let navigate = page.call::<Navigated>("Page.navigate", json!({ "url": PRIMING_URL }));
    let answer = answer(&page, events, credential);
    let navigated = tokio::select! {
        navigated = navigate => navigated?,
        error = answer => return Err(error),
    };
    match navigated.error_text.as_deref() {
        Some(NO_DOCUMENT) => Ok(()),
        error => Err(PrimeError::Unanswered(
            error.unwrap_or("it sent a document").to_owned(),
        )),
    }
}

/// Lets requests pass and answers the first challenge; returns only with a failure.
async fn answer(
    page: &Session,
    mut events: EventStream,
    credential: &ProxyCredential,
) -> PrimeError {
    let mut given = false;
    while let Some(event) = events.next().await {
        let done = match event.method.as_str() {
            "Fetch.requestPaused" => match event.parse::<Paused>() {
                Ok(paused) => {
                    let request = json!({ "requestId": paused.request_id });
                    page.call::<Ack>("Fetch.continueRequest", request).await
                }
                Err(error) => Err(error),
            },
            "Fetch.authRequired" => match event.parse::<Paused>() {
                Ok(paused) if !given => {
                    given = true;
                    let response = json!({
                        "requestId": paused.request_id,
                        "authChallengeResponse": {
                            "response": "ProvideCredentials",
                            "username": credential.username,
                            "password": credential.password,
                        },
                    });
                    page.call::<Ack>("Fetch.continueWithAuth", response).await
                }
                // Asked again: what was given is wrong.
                Ok(_) => return PrimeError::Refused,
                Err(error) => Err(error),
            },
            _ => continue,
        };
        if let Err(error) = done {
            return error.into();
        }
    }
    PrimeError::Browser(CdpError::Detached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_shown() {
        let credential = ProxyCredential::new("session", "hunter2");
        let shown = format!("{credential:?}");
        assert!(shown.contains("session") && !shown.contains("hunter2"));
    }
}
