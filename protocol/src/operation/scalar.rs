//! Bounded scalar types of the operations. Each checks itself while it is parsed, so code behind the
//! dispatcher never meets a value out of range.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::limits;

macro_rules! bounded_text {
    ($(#[$doc:meta])* $name:ident, $min:expr, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Eq, Hash, PartialEq, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// `text`, cut to the longest prefix that fits.
            pub fn truncated(text: &str) -> Self {
                Self(text.chars().take($max).collect())
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let bounds: std::ops::RangeInclusive<usize> = $min..=$max;
                // Bytes bound characters from above, so most texts need no count.
                let count = if text.len() <= $max && !text.is_empty() { text.len() } else { text.chars().count() };
                if count < *bounds.start() {
                    return Err(format!("expected at least {} character(s)", $min));
                }
                if count > $max {
                    return Err(format!("{count} characters are too many, at most {} are allowed", $max));
                }
                Ok(Self(text))
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                if $min > 0 {
                    json_schema!({ "type": "string", "minLength": $min, "maxLength": $max })
                } else {
                    json_schema!({ "type": "string", "maxLength": $max })
                }
            }
        }
    };
}

bounded_text!(
    /// A short text: a URL argument, a name. At most [`limits::SHORT_CHARS`] characters.
    Short, 0, limits::SHORT_CHARS
);
bounded_text!(
    /// A short text that is not empty.
    Needle, 1, limits::SHORT_CHARS
);
bounded_text!(
    /// A text of at most [`limits::TEXT_CHARS`] characters.
    Text, 0, limits::TEXT_CHARS
);
bounded_text!(
    /// What is typed into a field: at most 10,000 characters, since each is an input event to the page.
    Typed, 0, 10_000
);

macro_rules! patterned {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $hint:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    Ok(Self(text))
                } else {
                    Err(format!(
                        "{:?} is not valid; {}",
                        text.chars().take(80).collect::<String>(),
                        $hint
                    ))
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

patterned!(
    /// A tab, as `tab_` and a UUID.
    TabId, "^tab_[0-9a-f-]{36}$", "take a tab's id from tabs.list",
    |text| text.strip_prefix("tab_").is_some_and(is_uuid)
);
patterned!(
    /// A file of a tab, as `file_` and a UUID.
    FileId, "^file_[0-9a-f-]{36}$", "take a file's id from the operation that made it",
    |text| text.strip_prefix("file_").is_some_and(is_uuid)
);

impl TabId {
    /// The id of a UUID in its hyphenated lower-case form.
    ///
    /// # Errors
    /// If `uuid` has another form.
    pub fn from_uuid(uuid: &str) -> Result<Self, String> {
        Self::try_from(format!("tab_{uuid}"))
    }
}

impl FileId {
    /// The id of a UUID in its hyphenated lower-case form.
    ///
    /// # Errors
    /// If `uuid` has another form.
    pub fn from_uuid(uuid: &str) -> Result<Self, String> {
        Self::try_from(format!("file_{uuid}"))
    }
}

/// An element of an observation: `e` and a positive number, with or without a leading `@`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ref(u64);

impl Ref {
    /// The ref with `number`, which is at least 1.
    pub fn new(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// Its number, at least 1.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for Ref {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bare = text.strip_prefix('@').unwrap_or(&text);
        bare.strip_prefix('e')
            .filter(|digits| !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .map(Self)
            .ok_or_else(|| {
                format!(
                    "{:?} is not a ref; take one such as @e12 from snapshot or find",
                    text.chars().take(80).collect::<String>()
                )
            })
    }
}

impl From<Ref> for String {
    fn from(value: Ref) -> Self {
        value.to_string()
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@e{}", self.0)
    }
}

impl JsonSchema for Ref {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ref".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^@?e[1-9][0-9]*$" })
    }
}

/// An integer from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Bounded<const MIN: i64, const MAX: i64>(i64);

impl<const MIN: i64, const MAX: i64> Bounded<MIN, MAX> {
    /// `value`, if it lies in the range.
    pub fn new(value: i64) -> Option<Self> {
        (MIN..=MAX).contains(&value).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl<const MIN: i64, const MAX: i64> TryFrom<i64> for Bounded<MIN, MAX> {
    type Error = String;

    fn try_from(value: i64) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("{value} is out of range, expected {MIN} to {MAX}"))
    }
}

impl<const MIN: i64, const MAX: i64> From<Bounded<MIN, MAX>> for i64 {
    fn from(value: Bounded<MIN, MAX>) -> Self {
        value.0
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Integer{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A list of `MIN` to `MAX` items.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Listed<T, const MIN: usize, const MAX: usize>(Vec<T>);

impl<T, const MIN: usize, const MAX: usize> Listed<T, MIN, MAX> {
    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for Listed<T, MIN, MAX>
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Arguments were bounded as a whole before they are parsed, and so is this list.
        let items = Vec::deserialize(deserializer)?;
        if !(MIN..=MAX).contains(&items.len()) {
            return Err(serde::de::Error::custom(format!(
                "{} items, expected {MIN} to {MAX}",
                items.len()
            )));
        }
        Ok(Self(items))
    }
}

impl<T: JsonSchema, const MIN: usize, const MAX: usize> JsonSchema for Listed<T, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": MIN, "maxItems": MAX })
    }
}
