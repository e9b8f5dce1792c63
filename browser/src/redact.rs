//! Hides what looks like a secret in header fields, addresses and bodies before an agent sees it.
//!
//! A name decides, never a value: `token=abc` is hidden, `abc` alone is not. So this keeps credentials out
//! of transcripts by default; it does not keep them from an agent that may run script in the page.

use std::borrow::Cow;

/// What stands in the place of a hidden value.
pub(crate) const HIDDEN: &str = "<redacted>";

/// Header fields whose values are credentials, whatever they hold.
const HEADERS: &[&str] = &[
    "authorization",
    "authentication",
    "cookie",
    "cookie2",
    "proxy-authenticate",
    "proxy-authorization",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
];

/// A name that holds one of these, without `-` and `_` and in lower case, names a secret.
const PARTS: &[&str] = &[
    "accesskey",
    "apikey",
    "authorization",
    "clientsecret",
    "credential",
    "csrf",
    "xsrf",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "sessionid",
    "signature",
    "token",
];

/// A name that is one of these names a secret.
const NAMES: &[&str] = &[
    "auth", "cvc", "cvv", "key", "otp", "pass", "pin", "pwd", "sid", "sig",
];

/// Whether `name` of a header field, parameter or member is that of a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| !matches!(c, '-' | '_' | ' '))
        .flat_map(char::to_lowercase)
        .collect();
    NAMES.contains(&&*plain) || PARTS.iter().any(|part| plain.contains(part))
}

/// The value of the header field `name` (in lower case) as it may be shown.
pub(crate) fn header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if HEADERS.contains(&name) || is_secret(name) {
        return Cow::Borrowed(HIDDEN);
    }
    if matches!(
        name,
        "location" | "referer" | "content-location" | "refresh"
    ) {
        return Cow::Owned(address(value));
    }
    Cow::Borrowed(value)
}

/// The address `url` without the password of its user information and without secret parameters. What is
/// not an address is answered as it is.
pub(crate) fn address(url: &str) -> String {
    let mut shown = String::with_capacity(url.len());
    let mut rest = url;
    if let Some(at) = rest.find("://") {
        let after = at + 3;
        shown.push_str(&rest[..after]);
        rest = &rest[after..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if let Some(user) = rest[..end].rfind('@') {
            shown.push_str(HIDDEN);
            rest = &rest[user..];
        }
    }
    while let Some(at) = rest.find(['?', '#']) {
        shown.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let end = rest.find('#').unwrap_or(rest.len());
        shown.push_str(&parameters(&rest[..end]));
        rest = &rest[end..];
    }
    shown.push_str(rest);
    shown
}

/// `name=value` pairs joined by `&`, as in a query and in a form's body.
pub(crate) fn parameters(query: &str) -> String {
    let name_of = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        url::form_urlencoded::parse(name.as_bytes())
            .next()
            .map(|(name, _)| name.into_owned())
            .unwrap_or_default()
    };
    // An OAuth code is as good as a password, a code without a state is anything.
    let grants = query.split('&').any(|pair| name_of(pair) == "state");
    let shown = query.split('&').map(|pair| {
        let name = name_of(pair);
        match pair.split_once('=') {
            Some((raw, value))
                if !value.is_empty() && (is_secret(&name) || grants && name == "code") =>
            {
                format!("{raw}={HIDDEN}")
            }
            _ => pair.to_owned(),
        }
    });
    shown.collect::<Vec<_>>().join("&")
}

/// `text` with the secrets of every address in it hidden.
pub(crate) fn addresses_in(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let after = at + 3;
        let end = rest[after..]
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ')' | '<' | '>'))
            .map_or(rest.len(), |end| after + end);
        shown.push_str(&rest[..at]);
        shown.push_str(&address(&rest[at..end]));
        rest = &rest[end..];
    }
    shown.push_str(rest);
    shown
}

/// The body `text` of the media type `mime` with the values of secret fields hidden. It may be cut off
/// anywhere.
pub(crate) fn body(mime: &str, text: &str) -> String {
    if mime.starts_with("application/x-www-form-urlencoded") {
        parameters(text)
    } else if mime.starts_with("multipart/form-data") {
        multipart(text)
    } else {
        members(text)
    }
}

/// Hides the values of secret members of JSON, and of anything that looks like it. The text is scanned
/// rather than parsed, since it may be cut off, and what is not hidden must stay as it is.
fn members(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let Some(length) = string_end(&rest[start + 1..]) else {
            break;
        };
        let end = start + 1 + length;
        let name = &rest[start + 1..end];
        shown.push_str(&rest[..=end]);
        rest = &rest[end + 1..];
        let colon = rest.len() - rest.trim_start().len();
        if !rest[colon..].starts_with(':') || !is_secret(name) {
            continue;
        }
        let value = &rest[colon + 1..];
        let gap = colon + 1 + (value.len() - value.trim_start().len());
        let value = &rest[gap..];
        let end = if let Some(inner) = value.strip_prefix('"') {
            string_end(inner).map_or(value.len(), |end| end + 2)
        } else if value.starts_with(['{', '[']) {
            // Its members are judged by their own names.
            0
        } else {
            value
                .find([',', '}', ']', '\n', ' '])
                .unwrap_or(value.len())
        };
        if end > 0 && !matches!(&value[..end], "null" | "true" | "false" | "\"\"") {
            shown.push_str(&rest[..gap]);
            shown.push('"');
            shown.push_str(HIDDEN);
            shown.push('"');
            rest = &rest[gap + end..];
        }
    }
    shown.push_str(rest);
    shown
}

/// Where the JSON string whose inside starts `text` ends: the index of its closing quote.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some(at),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// Hides the secret parts of a multipart form (RFC 7578).
fn multipart(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("name=\"") {
        let start = at + 6;
        let Some(length) = rest[start..].find('"') else {
            break;
        };
        let name = &rest[start..start + length];
        shown.push_str(&rest[..start + length]);
        rest = &rest[start + length..];
        let Some(head) = rest.find("\r\n\r\n").filter(|_| is_secret(name)) else {
            continue;
        };
        shown.push_str(&rest[..head + 4]);
        shown.push_str(HIDDEN);
        rest = &rest[head + 4..];
        rest = &rest[rest.find("\r\n--").unwrap_or(rest.len())..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_decide() {
        for name in [
            "access_token",
            "X-Api-Key",
            "api-key",
            "userPassword",
            "client_secret",
            "sid",
            "X-CSRF-Token",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["tab", "keyword", "side", "page", "author", "x-request-id"] {
            assert!(!is_secret(name), "{name}");
        }
        assert_eq!(header("set-cookie", "a=b"), HIDDEN);
        assert_eq!(header("content-type", "text/html"), "text/html");
        assert_eq!(
            header("location", "/next?token=abc&x=1"),
            "/next?token=<redacted>&x=1"
        );
    }

    #[test]
    fn addresses_lose_their_secrets_only() {
        for (url, shown) in [
            ("http://a.test/p?q=1#f", "http://a.test/p?q=1#f"),
            (
                "http://me:pw@a.test/?access_token=x&y=2",
                "http://<redacted>@a.test/?access_token=<redacted>&y=2",
            ),
            (
                "https://a.test/cb?code=12&state=s",
                "https://a.test/cb?code=<redacted>&state=s",
            ),
            ("https://a.test/?code=12", "https://a.test/?code=12"),
            (
                "https://a.test/#id_token=x&b",
                "https://a.test/#id_token=<redacted>&b",
            ),
            ("http://a.test/@me?x=u@v", "http://a.test/@me?x=u@v"),
            ("ws://a.test/?%74oken=1", "ws://a.test/?%74oken=<redacted>"),
        ] {
            assert_eq!(address(url), shown);
        }
        assert_eq!(
            addresses_in("GET http://a/?token=b failed (http://c/?pw&token=d)"),
            "GET http://a/?token=<redacted> failed (http://c/?pw&token=<redacted>)"
        );
    }

    #[test]
    fn bodies_keep_their_form() {
        assert_eq!(
            body("application/x-www-form-urlencoded", "user=a&password=b"),
            "user=a&password=<redacted>"
        );
        assert_eq!(
            body(
                "application/json",
                r#"{"user": "a\"b", "password" : "x\"y", "token":12,"ok":true, "secrets": {"a": 1}, "api_key":"cut"#
            ),
            r#"{"user": "a\"b", "password" : "<redacted>", "token":"<redacted>","ok":true, "secrets": {"a": 1}, "api_key":"<redacted>""#
        );
        let form = "--x\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nhunter2\r\n--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--";
        let shown = body("multipart/form-data; boundary=x", form);
        assert!(!shown.contains("hunter2") && shown.contains("\r\n\r\nb\r\n--x--"));
    }

    proptest! {
        #[test]
        fn no_text_upsets_it(text in "(\\PC|[\"\\\\:?&#=@{}]|token|://){0,40}") {
            address(&text);
            addresses_in(&text);
            members(&text);
            multipart(&text);
            parameters(&text);
        }

        #[test]
        fn a_secret_member_is_never_shown(value in "[a-z0-9]{8,20}", before in "[a-z]{0,5}") {
            let text = format!(r#"{{"{before}x":1,"token":"{value}"}}"#);
            prop_assert!(!members(&text).contains(&value));
        }
    }
}
