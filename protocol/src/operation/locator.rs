//! What an action acts on: a ref from an observation, or a locator that says what the element is like.
//!
//! ```text
//! locator = "css=" selector / "testid=" text / "text=" words / "label=" words / "placeholder=" words
//!         / "role=" role [ "[name=" quoted "]" ]
//! words   = quoted / text          ; quoted: the whole text, as written; else any part of it, in any case
//! quoted  = DQUOTE text DQUOTE     ; with \" and \\ for these two
//! ```

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::scalar::Ref;
use crate::limits;

/// What of an element a locator speaks of.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LocatorKind {
    /// A CSS selector.
    Css,
    /// The `data-testid` attribute.
    TestId,
    /// The text that a person sees in it.
    Text,
    /// The label of a field.
    Label,
    /// The placeholder of a field.
    Placeholder,
    /// The ARIA role, and the accessible name if one is given.
    Role,
}

/// Kinds by their prefix.
const KINDS: [(&str, LocatorKind); 6] = [
    ("css=", LocatorKind::Css),
    ("testid=", LocatorKind::TestId),
    ("text=", LocatorKind::Text),
    ("label=", LocatorKind::Label),
    ("placeholder=", LocatorKind::Placeholder),
    ("role=", LocatorKind::Role),
];

const FORMS: &str = "take a ref such as @e12 from snapshot or find, or a locator: css=SELECTOR, text=WORDS, role=button[name=\"Save\"], label=WORDS, placeholder=WORDS, testid=ID";

/// A description that exactly one element of the page is to fit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Locator {
    /// What [`Self::text`] speaks of.
    pub kind: LocatorKind,
    /// The selector, words, id or role; not empty.
    pub text: String,
    /// For words: the whole text and as written, instead of a part in any case.
    pub exact: bool,
    /// For roles: the whole accessible name.
    pub name: Option<String>,
}

/// What an operation acts on.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Aim {
    /// An element of an observation.
    Ref(Ref),
    /// The one element that fits.
    Locator(Locator),
}

impl TryFrom<String> for Aim {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = KINDS
            .iter()
            .find_map(|(prefix, kind)| Some((*kind, text.strip_prefix(prefix)?)));
        let Some((kind, rest)) = known else {
            return Ref::try_from(text).map(Self::Ref).map_err(|error| {
                let what = error.split(';').next().unwrap_or_default();
                format!("{what}; {FORMS}")
            });
        };
        let count = rest.chars().count();
        if count > limits::SHORT_CHARS {
            return Err(format!(
                "a locator of {count} characters is too long, at most {} are allowed",
                limits::SHORT_CHARS
            ));
        }
        Locator::parse(kind, rest).map(Self::Locator)
    }
}

impl Locator {
    fn parse(kind: LocatorKind, rest: &str) -> Result<Self, String> {
        let mut locator = Self {
            kind,
            text: rest.trim().to_owned(),
            exact: true,
            name: None,
        };
        match kind {
            LocatorKind::Css | LocatorKind::TestId => {}
            LocatorKind::Text | LocatorKind::Label | LocatorKind::Placeholder => {
                match quoted(&locator.text)? {
                    Some(text) => locator.text = text,
                    None => locator.exact = false,
                }
            }
            LocatorKind::Role => {
                let role = locator.text.clone();
                if let Some((role, condition)) = role.split_once('[') {
                    let name = condition
                        .trim_end()
                        .strip_suffix(']')
                        .and_then(|condition| condition.trim().strip_prefix("name="))
                        .map(str::trim)
                        .ok_or_else(|| bad_role(rest))?;
                    locator.name = Some(quoted(name)?.ok_or_else(|| bad_role(rest))?);
                    role.trim().clone_into(&mut locator.text);
                }
                if !locator.text.bytes().all(|b| b.is_ascii_lowercase()) {
                    return Err(bad_role(rest));
                }
            }
        }
        if locator.text.trim().is_empty() {
            return Err(format!("the locator says nothing; {FORMS}"));
        }
        Ok(locator)
    }
}

fn bad_role(rest: &str) -> String {
    let rest: String = rest.chars().take(80).collect();
    format!(
        "{rest:?} does not name a role; write role=button or role=button[name=\"Save\"], the role as snapshot shows it"
    )
}

/// The content of a quoted text; `None` if `text` does not begin with a quote.
fn quoted(text: &str) -> Result<Option<String>, String> {
    let Some(rest) = text.strip_prefix('"') else {
        return Ok(None);
    };
    let mut content = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            Some('\\') => match chars.next() {
                Some(c @ ('"' | '\\')) => content.push(c),
                _ => return Err("in a quoted text, write \\\" and \\\\ for \" and \\".to_owned()),
            },
            Some('"') if chars.as_str().is_empty() => return Ok(Some(content)),
            Some('"') => return Err("something follows the closing quote".to_owned()),
            Some(c) => content.push(c),
            None => return Err("the closing quote is missing".to_owned()),
        }
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        f.write_str(prefix.map_or("", |(prefix, _)| prefix))?;
        match self.kind {
            LocatorKind::Css | LocatorKind::TestId => f.write_str(&self.text),
            LocatorKind::Role => {
                f.write_str(&self.text)?;
                match &self.name {
                    Some(name) => write!(f, "[name={}]", quote(name)),
                    None => Ok(()),
                }
            }
            _ if self.exact => f.write_str(&quote(&self.text)),
            _ => f.write_str(&self.text),
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ref(element) => element.fmt(f),
            Self::Locator(locator) => locator.fmt(f),
        }
    }
}

impl From<Aim> for String {
    fn from(aim: Aim) -> Self {
        aim.to_string()
    }
}

impl From<Ref> for Aim {
    fn from(element: Ref) -> Self {
        Self::Ref(element)
    }
}

impl JsonSchema for Aim {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Aim".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(@?e[1-9][0-9]*$|css=|text=|role=|label=|placeholder=|testid=)"
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn aim(text: &str) -> Result<Aim, String> {
        Aim::try_from(text.to_owned())
    }

    fn locator(text: &str) -> Locator {
        match aim(text) {
            Ok(Aim::Locator(locator)) => locator,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn refs_and_locators_are_told_apart() {
        assert!(matches!(aim("@e12"), Ok(Aim::Ref(_))));
        assert!(matches!(aim("e12"), Ok(Aim::Ref(_))));
        let save = locator(r#"role=button[name="Save \"it\""]"#);
        assert_eq!(
            (save.text.as_str(), save.name.as_deref()),
            ("button", Some("Save \"it\""))
        );
        assert!(!locator("text=Sign in").exact);
        assert!(locator("text=\"Sign in\"").exact);
        assert_eq!(locator("css=a[href='x']").text, "a[href='x']");
        assert_eq!(locator("role=link").name, None);
    }

    #[test]
    fn what_is_neither_is_told_with_the_forms() {
        for (text, word) in [
            ("button", "css="),
            ("@e0", "css="),
            ("xpath=//a", "role="),
            ("text=", "nothing"),
            ("text=\"a", "closing quote"),
            ("text=\"a\" b", "closing quote"),
            ("role=Button", "role="),
            ("role=button[title=\"x\"]", "name="),
            ("role=button[name=Save]", "name="),
        ] {
            let error = aim(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}", prefix in 0..=KINDS.len()) {
            let prefix = KINDS.get(prefix).map_or("", |(prefix, _)| prefix);
            if let Ok(aim) = aim(&format!("{prefix}{text}")) {
                prop_assert_eq!(Aim::try_from(aim.to_string()), Ok(aim));
            }
        }
    }
}
