//! The way to one server half: HTTP in one of its forms, or the person's `ssh`.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use http::Method;
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;
use yonder_transport::carrier::{Connect, ConnectError};
use yonder_transport::connect::Connector;
use yonder_transport::ssh::SshConnector;

/// The way to one server half. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// `http://` or `https://`.
    Http(Arc<Connector>),
    /// `ssh://`.
    Ssh(Arc<SshConnector>),
}

impl Way {
    /// The server half's address, for messages.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Http(connector) => connector.address().to_string(),
            Self::Ssh(connector) => connector.address().to_string(),
        }
    }

    /// What gets carriers.
    pub(crate) fn connector(&self) -> Arc<dyn Connect> {
        match self {
            Self::Http(connector) => connector.clone(),
            Self::Ssh(connector) => connector.clone(),
        }
    }

    /// Whether a person may be asked for a password on the way.
    pub(crate) fn prompts(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Ssh(connector) => connector.prompts(),
        }
    }

    /// Asks the server half, once, whether it would have us.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) async fn probe(&self) -> Result<(), ConnectError> {
        match self {
            Self::Http(connector) => connector
                .request(Method::GET, "status", None, HANDSHAKE_TIMEOUT)
                .await
                .map(drop),
            // The login is the answer; the link uses it, so that nobody is asked twice.
            Self::Ssh(connector) => connector.prepare().await,
        }
    }
}

/// Whether `ssh` can ask a person: at the terminal, or by the program that their desktop has for it.
pub(crate) fn person_is_there() -> bool {
    io::stdin().is_terminal()
        || io::stderr().is_terminal()
        || std::env::var_os("SSH_ASKPASS").is_some_and(|program| !program.is_empty())
}
