//! The secret that both halves share.

use std::fmt;

use http::HeaderValue;
use subtle::ConstantTimeEq as _;

/// Longest token: with everything else, a request head stays below 4 KiB, which the narrowest proxies need.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// Why a text is no token. The text itself is never repeated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// Nothing but white space.
    #[error("the token is empty")]
    Empty,
    /// More than [`TOKEN_BYTES_MAX`].
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// A character that cannot stand in an HTTP header as it is.
    #[error("the token may hold visible ASCII characters only, and no spaces")]
    Character,
}

/// A token. It shows itself to nobody by accident: its `Debug` form is a placeholder and it has no `Display`.
#[derive(Clone)]
pub struct SecretToken(String);

impl SecretToken {
    /// Takes the token out of `text`, without the white space around it, such as a file's last line break.
    pub fn new(text: &str) -> Result<Self, InvalidToken> {
        let token = text.trim();
        if token.is_empty() {
            return Err(InvalidToken::Empty);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(InvalidToken::TooLong);
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken::Character);
        }
        Ok(Self(token.to_owned()))
    }

    /// The token as it stands.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `candidate` is this token, in a time that depends on the candidate's length alone.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }

    /// The token behind `prefix` as a header value that logs do not show.
    pub(crate) fn header(&self, prefix: &str) -> Result<HeaderValue, InvalidToken> {
        let mut value = HeaderValue::try_from(format!("{prefix}{}", self.0))
            .map_err(|_| InvalidToken::Character)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_trimmed_checked_and_hidden() {
        let token = SecretToken::new(" s3cret-token\n").expect("valid");
        assert_eq!(token.expose(), "s3cret-token");
        assert!(token.matches(b"s3cret-token"));
        assert!(!token.matches(b"s3cret-tokem"));
        assert!(!token.matches(b"s3cret"));
        assert!(!format!("{token:?}").contains("s3cret"));
        let header = token.header("Bearer ").expect("valid");
        assert_eq!(header.as_bytes(), b"Bearer s3cret-token");
        assert!(!format!("{header:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert_eq!(
            SecretToken::new(" \n").expect_err("empty"),
            InvalidToken::Empty
        );
        assert_eq!(
            SecretToken::new("two words").expect_err("space"),
            InvalidToken::Character
        );
        assert_eq!(
            SecretToken::new("naïve").expect_err("not ASCII"),
            InvalidToken::Character
        );
        assert_eq!(
            SecretToken::new(&"a".repeat(1025)).expect_err("long"),
            InvalidToken::TooLong
        );
    }
}
