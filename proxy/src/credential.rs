//! Who may use the proxy, and which browser session a request belongs to.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// A text that must not show up in logs: `Debug` hides it.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// The text itself; whoever asks for it answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// User name and password of one browser session at one proxy. Both are random and hexadecimal, so they
/// need no escaping in a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Credential {
    username: String,
    password: Secret,
}

impl Credential {
    /// 16 random bytes for the name, 32 for the password.
    fn generate() -> Self {
        Self {
            username: hex(&rand::random::<[u8; 16]>()),
            password: Secret(hex(&rand::random::<[u8; 32]>())),
        }
    }

    /// The user name: 32 hexadecimal digits.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The password: 64 hexadecimal digits.
    pub fn password(&self) -> &Secret {
        &self.password
    }

    /// The one value of `Proxy-Authorization` that is accepted (RFC 7617, section 2).
    fn header_value(&self) -> String {
        let pair = format!("{}:{}", self.username, self.password.0);
        format!("Basic {}", STANDARD.encode(pair))
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// A browser session that may use the proxy.
#[derive(Debug)]
pub(crate) struct Session {
    /// Name that [`Dial`](crate::Dial) is given.
    pub(crate) name: Box<str>,
    /// Cancelled when the session is removed; its connections end then.
    pub(crate) removed: CancellationToken,
    expected: Secret,
}

/// The sessions of one proxy.
#[derive(Debug, Default)]
pub(crate) struct Sessions(RwLock<Vec<Arc<Session>>>);

impl Sessions {
    /// Adds `name` with a new credential. One of that name that is there already is removed first.
    pub(crate) fn add(&self, name: &str) -> Credential {
        let credential = Credential::generate();
        let session = Arc::new(Session {
            name: name.into(),
            removed: CancellationToken::new(),
            expected: Secret(credential.header_value()),
        });
        self.remove(name);
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(session);
        credential
    }

    /// Removes `name`, if it is there, and cuts its connections.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut sessions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = sessions.iter().position(|session| &*session.name == name) else {
            return false;
        };
        let session = sessions.swap_remove(at);
        drop(sessions);
        session.removed.cancel();
        true
    }

    /// The session whose credential is `value`, the complete value of `Proxy-Authorization`.
    ///
    /// The time taken does not depend on how much of a secret was guessed: every session is compared
    /// in full.
    pub(crate) fn authenticate(&self, value: &[u8]) -> Option<Arc<Session>> {
        let sessions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for session in sessions.iter() {
            if bool::from(session.expected.0.as_bytes().ct_eq(value)) {
                found = Some(Arc::clone(session));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_names_its_session() {
        let sessions = Sessions::default();
        let first = sessions.add("first");
        let second = sessions.add("second");
        let found = sessions
            .authenticate(second.header_value().as_bytes())
            .unwrap();
        assert_eq!(&*found.name, "second");
        assert!(sessions.authenticate(b"").is_none());
        assert!(
            sessions
                .authenticate(&first.header_value().as_bytes()[1..])
                .is_none()
        );
        assert!(sessions.remove("second"));
        assert!(found.removed.is_cancelled());
        assert!(
            sessions
                .authenticate(second.header_value().as_bytes())
                .is_none()
        );
    }

    #[test]
    fn adding_again_replaces() {
        let sessions = Sessions::default();
        let old = sessions.add("a");
        let new = sessions.add("a");
        assert_ne!(old, new);
        assert!(
            sessions
                .authenticate(old.header_value().as_bytes())
                .is_none()
        );
        assert!(
            sessions
                .authenticate(new.header_value().as_bytes())
                .is_some()
        );
    }

    #[test]
    fn debug_hides_the_password() {
        let credential = Credential::generate();
        assert_eq!(credential.username().len(), 32);
        assert_eq!(credential.password().expose().len(), 64);
        assert!(!format!("{credential:?}").contains(credential.password().expose()));
    }
}
