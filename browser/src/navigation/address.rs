//! Which addresses a tab may be sent to, and how those that people shorten are completed.

use std::net::IpAddr;

use url::{Host, Url};
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};

/// The one address that is no place on the network.
pub(crate) const BLANK: &str = "about:blank";

/// Characters of a refused address that an error repeats.
const SHOWN_CHARS: usize = 200;

/// Completes and checks an address. Without a scheme, `http` is put before hosts that are the server
/// itself and `https` before others. Empty text is [`BLANK`].
///
/// # Errors
/// [`ErrorCode::Invalid`] for file paths, user-info, port 0, schemes other than `http` and `https`, and
/// what is no address.
pub fn normalise(text: &str) -> Result<String, OperationError> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case(BLANK) {
        return Ok(BLANK.to_owned());
    }
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    let refuse = |why: &str| {
        Err(OperationError::new(
            ErrorCode::Invalid,
            format!("cannot open {shown:?}: {why}"),
        ))
    };
    if looks_like_path(text) {
        return refuse(
            "it looks like a file path; files are not opened, serve them over http and open that address",
        );
    }
    let parsed = match scheme(text) {
        Some(scheme) if ["http", "https"].contains(&&*scheme.to_ascii_lowercase()) => {
            Url::parse(text)
        }
        Some(scheme) => {
            return refuse(&format!(
                "the scheme {scheme:?} is not allowed; use http, https or about:blank"
            ));
        }
        None => Url::parse(&format!("http://{text}")).and_then(|local| {
            if is_local(&local) {
                Ok(local)
            } else {
                Url::parse(&format!("https://{text}"))
            }
        }),
    };
    let url = match parsed {
        Ok(url) => url,
        Err(error) => return refuse(&format!("it is not a valid address ({error})")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        // The message must not repeat a password.
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "cannot open an address with a user name or password; leave that part out and log in on the page",
        ));
    }
    if url.port() == Some(0) {
        return refuse("port 0 cannot be connected to");
    }
    let url = String::from(url);
    if url.chars().count() > limits::SHORT_CHARS {
        return refuse(&format!(
            "it is longer than {} characters once encoded",
            limits::SHORT_CHARS
        ));
    }
    Ok(url)
}

fn looks_like_path(text: &str) -> bool {
    let mut start = text.chars();
    let (first, second, third) = (start.next(), start.next(), start.next());
    matches!(first, Some('/' | '\\' | '.' | '~'))
        || (first.is_some_and(|letter| letter.is_ascii_alphabetic())
            && second == Some(':')
            && matches!(third, Some('/' | '\\')))
}

/// What stands before the first colon, if that is a scheme (RFC 3986, section 3.1) and not a host whose
/// port follows.
fn scheme(text: &str) -> Option<&str> {
    let (before, after) = text.split_once(':')?;
    let is_scheme = before.starts_with(|first: char| first.is_ascii_alphabetic())
        && before
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let is_port = digits > 0
        && matches!(
            after.as_bytes().get(digits),
            None | Some(b'/' | b'?' | b'#')
        );
    (is_scheme && !is_port).then_some(before)
}

/// Whether the host is the server itself.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_forms_are_completed() {
        for (text, url) in [
            ("", "about:blank"),
            (" about:BLANK ", "about:blank"),
            ("localhost:8000", "http://localhost:8000/"),
            ("LOCALHOST:8000/a?b#c", "http://localhost:8000/a?b#c"),
            ("app.localhost", "http://app.localhost/"),
            ("127.0.0.1:3000/x y", "http://127.0.0.1:3000/x%20y"),
            ("[::1]:3000", "http://[::1]:3000/"),
            ("example.com", "https://example.com/"),
            ("example.com:8443/a", "https://example.com:8443/a"),
            ("10.0.0.1", "https://10.0.0.1/"),
            ("http://example.com", "http://example.com/"),
            ("HTTPS://Example.com/ü", "https://example.com/%C3%BC"),
        ] {
            assert_eq!(normalise(text).as_deref(), Ok(url), "{text}");
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        for (text, why) in [
            ("/etc/passwd", "file path"),
            ("./index.html", "file path"),
            ("C:\\a", "file path"),
            ("~/x", "file path"),
            ("file:///etc/passwd", "scheme"),
            ("javascript:alert(1)", "scheme"),
            ("chrome://settings", "scheme"),
            ("data:text/html,x", "scheme"),
            ("about:config", "scheme"),
            ("view-source:http://localhost", "scheme"),
            ("http://user:secret@localhost/", "password"),
            ("user@localhost", "password"),
            ("http://localhost:0/", "port 0"),
            ("http://", "valid"),
            ("http://a b/", "valid"),
            ("::1", "valid"),
        ] {
            let error = normalise(text).unwrap_err();
            assert!(
                error.code == ErrorCode::Invalid && error.message.contains(why),
                "{text}: {error}"
            );
            assert!(!error.message.contains("secret"), "{error}");
        }
        assert!(normalise(&format!("localhost/{}", "ü".repeat(1_000))).is_err());
    }

    proptest! {
        #[test]
        fn only_web_addresses_pass(text in "\\PC{0,60}") {
            if let Ok(url) = normalise(&text) {
                prop_assert!(url == BLANK || url.starts_with("http://") || url.starts_with("https://"));
                prop_assert_eq!(normalise(&url), Ok(url.clone()));
            }
        }
    }
}
