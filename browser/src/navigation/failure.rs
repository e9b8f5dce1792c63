//! What to tell about a page that could not be loaded.

use url::Url;
use yonder_protocol::target::{Target, TunnelError};

/// The target that Chromium's proxy is asked for when `url` is loaded.
pub(crate) fn target(url: &str) -> Option<Target> {
    let url = Url::parse(url).ok()?;
    Target::new(url.host_str()?, url.port_or_known_default()?).ok()
}

/// One sentence: what failed, seen from where, and what to do. `cause` is what the other half said about
/// the last attempt to reach the target.
pub(crate) fn explain(url: &str, net_error: &str, cause: Option<&TunnelError>) -> String {
    let code = net_error.strip_prefix("net::").unwrap_or(net_error);
    let place = target(url).map_or_else(|| "the host".to_owned(), |target| target.to_string());
    let detail = match (cause, code) {
        (Some(cause), _) => format!(
            "{cause}; addresses are reached from the server, so check that the service runs there and listens on {place}"
        ),
        (None, "ERR_CONNECTION_REFUSED") => format!(
            "nothing listens on {place} as seen from the server; start the service there or correct the port"
        ),
        (None, "ERR_NAME_NOT_RESOLVED") => format!(
            "the name in {place} is not known on the server, where names are looked up; check its spelling"
        ),
        (None, "ERR_TUNNEL_CONNECTION_FAILED") => format!(
            "the server could not connect to {place}; check that the service runs there and listens on that port"
        ),
        (
            None,
            "ERR_PROXY_CONNECTION_FAILED"
            | "ERR_PROXY_AUTH_UNSUPPORTED"
            | "ERR_INVALID_AUTH_CREDENTIALS",
        ) => "the connection to the server half is not ready; try again in a moment".to_owned(),
        (None, "ERR_EMPTY_RESPONSE" | "ERR_CONNECTION_CLOSED" | "ERR_CONNECTION_RESET") => format!(
            "{place} closed the connection without an answer; see the log of the service there"
        ),
        (None, "ERR_SSL_PROTOCOL_ERROR" | "ERR_INVALID_HTTP_RESPONSE") => format!(
            "{place} does not speak the protocol of the address; try the other one of http and https"
        ),
        (None, code) if code.starts_with("ERR_CERT_") => format!(
            "the certificate of {place} is not valid; use http, or a certificate that the desktop trusts"
        ),
        (None, code) if code.starts_with("ERR_SSL_") || code.starts_with("ERR_TLS_") => format!(
            "no TLS connection with {place} came about; check its TLS settings, or use http"
        ),
        (None, "ERR_CONNECTION_TIMED_OUT" | "ERR_TIMED_OUT") => {
            format!(
                "{place} did not answer the server in time; check that it is reachable from there"
            )
        }
        (None, "ERR_UNSAFE_PORT") => {
            "Chromium never connects to this port; let the service listen on another one".to_owned()
        }
        (None, "ERR_TOO_MANY_REDIRECTS") => {
            "the page redirects in a circle; look at its redirects or its cookies".to_owned()
        }
        (None, "ERR_HTTP_RESPONSE_CODE_FAILURE") => {
            "the answer is an error without a page; see the log of the service".to_owned()
        }
        (None, "ERR_BLOCKED_BY_CLIENT" | "ERR_BLOCKED_BY_RESPONSE") => {
            "the browser or the page's own policy blocks it".to_owned()
        }
        (None, _) => "see the error's name; addresses are reached from the server".to_owned(),
    };
    if code.is_empty() {
        format!("{url} could not be loaded: {detail}")
    } else {
        format!("{url} could not be loaded: {detail} ({code})")
    }
}

#[cfg(test)]
mod tests {
    use yonder_protocol::target::TunnelErrorCode;

    use super::*;

    #[test]
    fn the_true_cause_wins() {
        let url = "https://localhost:8443/x";
        assert_eq!(target(url).unwrap().to_string(), "localhost:8443");
        let plain = explain(url, "net::ERR_TUNNEL_CONNECTION_FAILED", None);
        assert!(plain.contains("localhost:8443") && plain.contains("ERR_TUNNEL_CONNECTION_FAILED"));
        let cause = TunnelError::new(TunnelErrorCode::Refused, "connection refused");
        let told = explain(url, "net::ERR_TUNNEL_CONNECTION_FAILED", Some(&cause));
        assert!(
            told.contains("connection refused") && told.contains("server"),
            "{told}"
        );
    }
}
