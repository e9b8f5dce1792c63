//! The arguments of a console call as one line of text, as developer tools show it.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::listing::cut;

/// Arguments of one call that are shown.
const ARGUMENTS_MAX: usize = 50;

/// A value of the page as the browser describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteObject {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    value: Option<Value>,
    unserializable_value: Option<String>,
    description: Option<String>,
    object_id: Option<String>,
    preview: Option<Preview>,
}

#[derive(Debug, Deserialize)]
struct Preview {
    subtype: Option<String>,
    description: Option<String>,
    #[serde(default)]
    overflow: bool,
    #[serde(default)]
    properties: Vec<Property>,
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Property {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    value_preview: Option<Preview>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    key: Option<Preview>,
    value: Preview,
}

impl RemoteObject {
    /// Whether the browser keeps the object for us.
    pub(super) fn is_held(&self) -> bool {
        self.object_id.is_some()
    }

    /// The value as text: strings as they are, objects by what the browser shows of them.
    pub(super) fn text(&self, chars: usize) -> String {
        let mut text = String::new();
        self.write(&mut text);
        cut(&text, chars).0
    }

    fn write(&self, text: &mut String) {
        if let Some(value) = &self.unserializable_value {
            text.push_str(value);
            return;
        }
        match (&self.value, self.kind.as_str(), self.subtype.as_deref()) {
            (Some(Value::String(value)), _, _) => text.push_str(value),
            (Some(value), _, _) => {
                // Writing to a string does not fail.
                let _ = write!(text, "{value}");
            }
            (None, "undefined", _) => text.push_str("undefined"),
            (None, _, Some("null")) => text.push_str("null"),
            (None, "object", None | Some("array" | "map" | "set" | "typedarray" | "iterator")) => {
                match &self.preview {
                    Some(preview) => preview.write(text),
                    None => text.push_str(self.described()),
                }
            }
            // Errors with their stack, elements, dates, functions.
            _ => text.push_str(self.described()),
        }
    }

    fn described(&self) -> &str {
        self.description.as_deref().unwrap_or(&self.kind)
    }
}

impl Preview {
    fn write(&self, text: &mut String) {
        let name = self.description.as_deref().unwrap_or_default();
        let is_list = matches!(self.subtype.as_deref(), Some("array" | "typedarray"));
        if self.properties.is_empty() && self.entries.is_empty() && !self.overflow {
            text.push_str(match (name, is_list) {
                ("Object", _) => "{}",
                (_, true) => "[]",
                _ => name,
            });
            return;
        }
        if !is_list && !name.is_empty() && name != "Object" {
            text.push_str(name);
            text.push(' ');
        }
        text.push(if is_list { '[' } else { '{' });
        let mut first = true;
        let mut separate = |text: &mut String| {
            if !std::mem::take(&mut first) {
                text.push_str(", ");
            }
        };
        for entry in &self.entries {
            separate(text);
            if let Some(key) = &entry.key {
                key.write(text);
                text.push_str(" => ");
            }
            entry.value.write(text);
        }
        let keyed = !self.entries.is_empty();
        for property in &self.properties {
            let is_index = property.name.bytes().all(|byte| byte.is_ascii_digit());
            // The size of a map and the buffer of a typed array are in its name.
            if (keyed && property.name == "size") || (is_list && !is_index) {
                continue;
            }
            separate(text);
            if !is_list {
                text.push_str(&property.name);
                text.push_str(": ");
            }
            match (&property.value_preview, &property.value) {
                (Some(preview), _) => preview.write(text),
                (None, Some(value)) if property.kind == "string" => {
                    let _ = write!(text, "{value:?}");
                }
                (None, Some(value)) if property.kind == "function" => {
                    text.push_str(if value.is_empty() { "ƒ" } else { value });
                }
                (None, Some(value)) => text.push_str(value),
                (None, None) => text.push('…'),
            }
        }
        if self.overflow {
            separate(text);
            text.push('…');
        }
        text.push(if is_list { ']' } else { '}' });
    }
}

/// `args` as a line of at most about `chars` characters, with the first one's format specifiers filled in
/// (Console Standard, section 2.2.1).
pub(super) fn message(args: &[RemoteObject], chars: usize) -> String {
    let mut args = args.iter().take(ARGUMENTS_MAX);
    let mut text = String::new();
    let Some(first) = args.next() else {
        return text;
    };
    match &first.value {
        Some(Value::String(format)) if format.contains('%') => {
            let mut rest = format.as_str();
            while let Some(at) = rest.find('%') {
                text.push_str(&rest[..at]);
                rest = &rest[at..];
                let specifier = rest.as_bytes().get(1).copied();
                match specifier {
                    Some(b'%') => text.push('%'),
                    Some(b's' | b'd' | b'i' | b'f' | b'o' | b'O' | b'c') => match args.next() {
                        // Style.
                        Some(_) if specifier == Some(b'c') => {}
                        Some(arg) => arg.write(&mut text),
                        None => text.push_str(&rest[..2]),
                    },
                    _ => {
                        text.push('%');
                        rest = &rest[1..];
                        continue;
                    }
                }
                rest = &rest[2..];
            }
            text.push_str(rest);
        }
        _ => first.write(&mut text),
    }
    for arg in args {
        // One more than is shown tells that there is more.
        if text.len() > 4 * chars {
            break;
        }
        text.push(' ');
        arg.write(&mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(args: Value) -> String {
        let args: Vec<RemoteObject> = serde_json::from_value(args).unwrap();
        message(&args, 2_000)
    }

    #[test]
    fn formats_are_filled_in() {
        let string = |text: &str| json!({ "type": "string", "value": text });
        let number = json!({ "type": "number", "value": 7, "description": "7" });
        for (args, expected) in [
            (
                json!([string("a %s b %d%%"), string("x"), number]),
                "a x b 7%",
            ),
            (
                json!([string("%c styled"), string("color:red"), number]),
                " styled 7",
            ),
            (json!([string("50%"), number]), "50% 7"),
            (json!([string("%s and %s"), string("one")]), "one and %s"),
            (json!([string("%ü %x"), number]), "%ü %x 7"),
            (json!([]), ""),
        ] {
            assert_eq!(line(args), expected);
        }
    }

    #[test]
    fn objects_are_shown_as_the_browser_previews_them() {
        let object = json!([{ "type": "object", "objectId": "1", "description": "Object", "preview": {
            "type": "object", "description": "Object", "overflow": true, "properties": [
                { "name": "a", "type": "number", "value": "1" },
                { "name": "b", "type": "string", "value": "x" },
                { "name": "c", "type": "accessor" },
                { "name": "d", "type": "object", "value": "Array(3)", "subtype": "array" },
            ] } }]);
        assert_eq!(line(object), "{a: 1, b: \"x\", c: …, d: Array(3), …}");
        let map = json!([{ "type": "object", "subtype": "map", "description": "Map(1)", "preview": {
            "type": "object", "subtype": "map", "description": "Map(1)", "overflow": false,
            "properties": [{ "name": "size", "type": "number", "value": "1" }],
            "entries": [{ "key": { "type": "number", "description": "1", "overflow": false, "properties": [] },
                          "value": { "type": "number", "description": "2", "overflow": false, "properties": [] } }] } }]);
        assert_eq!(line(map), "Map(1) {1 => 2}");
        let others = json!([
            { "type": "undefined" },
            { "type": "object", "subtype": "null", "value": null },
            { "type": "bigint", "unserializableValue": "10n", "description": "10n" },
            { "type": "object", "subtype": "error", "description": "Error: boom\n    at x", "objectId": "1" },
            { "type": "object", "subtype": "node", "description": "body", "objectId": "2" },
            { "type": "function", "description": "()=>1", "objectId": "3" },
        ]);
        assert_eq!(
            line(others),
            "undefined null 10n Error: boom\n    at x body ()=>1"
        );
    }
}
