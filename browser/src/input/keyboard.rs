//! The keyboard: chords such as `Control+A` as the events that a US keyboard would cause.

use std::time::Duration;

use serde_json::{Value, json};
use yonder_protocol::operation::types::Modifier;

use super::modifier_bits;
use crate::cdp::{Ack, CdpError, Session};

/// Keys with a name: name, `KeyboardEvent.key`, `KeyboardEvent.code`, virtual key code, text that it
/// types (UI Events KeyboardEvent key and code values; key codes as Chromium's).
const NAMED: &[(&str, &str, &str, u32, &str)] = &[
    ("Enter", "Enter", "Enter", 13, "\r"),
    ("Tab", "Tab", "Tab", 9, ""),
    ("Escape", "Escape", "Escape", 27, ""),
    ("Backspace", "Backspace", "Backspace", 8, ""),
    ("Delete", "Delete", "Delete", 46, ""),
    ("Insert", "Insert", "Insert", 45, ""),
    ("ArrowUp", "ArrowUp", "ArrowUp", 38, ""),
    ("ArrowDown", "ArrowDown", "ArrowDown", 40, ""),
    ("ArrowLeft", "ArrowLeft", "ArrowLeft", 37, ""),
    ("ArrowRight", "ArrowRight", "ArrowRight", 39, ""),
    ("PageUp", "PageUp", "PageUp", 33, ""),
    ("PageDown", "PageDown", "PageDown", 34, ""),
    ("Home", "Home", "Home", 36, ""),
    ("End", "End", "End", 35, ""),
    ("Space", " ", "Space", 32, " "),
    ("F1", "F1", "F1", 112, ""),
    ("F2", "F2", "F2", 113, ""),
    ("F3", "F3", "F3", 114, ""),
    ("F4", "F4", "F4", 115, ""),
    ("F5", "F5", "F5", 116, ""),
    ("F6", "F6", "F6", 117, ""),
    ("F7", "F7", "F7", 118, ""),
    ("F8", "F8", "F8", 119, ""),
    ("F9", "F9", "F9", 120, ""),
    ("F10", "F10", "F10", 121, ""),
    ("F11", "F11", "F11", 122, ""),
    ("F12", "F12", "F12", 123, ""),
];

/// Keys that type a character that is neither letter nor digit: without and with Shift, code, key code.
const PUNCTUATION: &[(char, char, &str, u32)] = &[
    ('`', '~', "Backquote", 192),
    ('-', '_', "Minus", 189),
    ('=', '+', "Equal", 187),
    ('[', '{', "BracketLeft", 219),
    (']', '}', "BracketRight", 221),
    ('\\', '|', "Backslash", 220),
    (';', ':', "Semicolon", 186),
    ('\'', '"', "Quote", 222),
    (',', '<', "Comma", 188),
    ('.', '>', "Period", 190),
    ('/', '?', "Slash", 191),
];

/// What the digits type with Shift, from 0 to 9.
const SHIFTED_DIGITS: [char; 10] = [')', '!', '@', '#', '$', '%', '^', '&', '*', '('];

/// A key, with the modifiers that are held while it is pressed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Chord {
    modifiers: Vec<Modifier>,
    key: String,
    code: String,
    key_code: u32,
    /// What the key types; empty if nothing.
    text: String,
}

impl Chord {
    /// Reads a key or chord such as `Enter`, `a`, `Control+A` or `Control++`. Names may be in any case.
    ///
    /// # Errors
    /// A message that lists what is known.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut modifiers = Vec::new();
        let mut rest = text;
        // A plus sign that ends the text, or is all of it, is a key.
        while let Some((name, after)) = rest.split_once('+')
            && !name.is_empty()
            && !after.is_empty()
        {
            let modifier = modifier_named(name).ok_or_else(|| {
                format!(
                    "{:?} is not a modifier; the modifiers are Alt, Control, Meta and Shift",
                    shown(name)
                )
            })?;
            if !modifiers.contains(&modifier) {
                modifiers.push(modifier);
            }
            rest = after;
        }
        let mut characters = rest.chars();
        match (characters.next(), characters.next()) {
            (Some(' '), None) => Self::named("Space", modifiers),
            (Some(character), None) if !character.is_control() => {
                Ok(Self::character(character, modifiers))
            }
            _ => Self::named(rest, modifiers),
        }
    }

    fn named(name: &str, modifiers: Vec<Modifier>) -> Result<Self, String> {
        let known = NAMED
            .iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(name));
        if let Some((_, key, code, key_code, text)) = known {
            let types = !modifiers.iter().any(|modifier| holds_text_back(*modifier));
            return Ok(Self {
                key: (*key).to_owned(),
                code: (*code).to_owned(),
                key_code: *key_code,
                text: if types {
                    (*text).to_owned()
                } else {
                    String::new()
                },
                modifiers,
            });
        }
        if let Some(modifier) = modifier_named(name) {
            let (key, code, key_code) = modifier_key(modifier);
            return Ok(Self {
                modifiers,
                key: key.to_owned(),
                code: code.to_owned(),
                key_code,
                text: String::new(),
            });
        }
        let names: Vec<_> = NAMED.iter().map(|(name, ..)| *name).collect();
        Err(format!(
            "{:?} is not a key; a key is one character or one of {}, after any of Alt+, Control+, Meta+ and Shift+; use fill for longer texts",
            shown(name),
            names.join(", ")
        ))
    }

    fn character(character: char, mut modifiers: Vec<Modifier>) -> Self {
        let command = modifiers.iter().any(|modifier| holds_text_back(*modifier));
        let shifted = modifiers.contains(&Modifier::Shift);
        let (plain, with_shift, code, key_code) = physical(character);
        // `Control+A` is what people write for the keys Control and a.
        let upper = shifted || (!command && character == with_shift && plain != with_shift);
        if upper && !shifted {
            modifiers.push(Modifier::Shift);
        }
        let typed = if upper { with_shift } else { plain };
        // Whoever writes `Control+?` means the character, which takes Shift on this keyboard.
        let typed = if command && !character.is_alphabetic() {
            character
        } else {
            typed
        };
        Self {
            modifiers,
            key: typed.to_string(),
            code,
            key_code,
            text: if command {
                String::new()
            } else {
                typed.to_string()
            },
        }
    }

    /// Presses the modifiers in order, then the key, and releases all in the opposite order. The page
    /// may take `limit` to handle each event.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn press(&self, page: &Session, limit: Duration) -> Result<(), CdpError> {
        let keys = Keys { page, limit };
        let mut held = Vec::new();
        for modifier in &self.modifiers {
            held.push(*modifier);
            keys.modifier("rawKeyDown", *modifier, &held).await?;
        }
        let bits = modifier_bits(&held);
        let down = if self.text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        let pressed = keys.dispatch(self.event(down, bits, &self.text)).await;
        // What was pressed is released, whatever the page made of it.
        let released = keys.dispatch(self.event("keyUp", bits, "")).await;
        while let Some(modifier) = held.pop() {
            keys.modifier("keyUp", modifier, &held).await?;
        }
        pressed.and(released)
    }

    fn event(&self, kind: &'static str, modifiers: u32, text: &str) -> Value {
        json!({
            "type": kind,
            "modifiers": modifiers,
            "key": self.key,
            "code": self.code,
            "windowsVirtualKeyCode": self.key_code,
            "text": text,
            "unmodifiedText": text,
            "commands": if kind == "keyUp" { &[] } else { self.commands() },
        })
    }

    /// Editing commands that the window system binds to the chord and the page does not: those of macOS.
    fn commands(&self) -> &'static [&'static str] {
        if !cfg!(target_os = "macos") || !self.modifiers.contains(&Modifier::Meta) {
            return &[];
        }
        match (self.key.as_str(), self.modifiers.contains(&Modifier::Shift)) {
            ("a", _) => &["selectAll"],
            ("c", _) => &["copy"],
            ("v", _) => &["paste"],
            ("x", _) => &["cut"],
            ("z", false) => &["undo"],
            ("z" | "Z", true) => &["redo"],
            _ => &[],
        }
    }
}

/// Cut for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn modifier_named(name: &str) -> Option<Modifier> {
    [
        ("Alt", Modifier::Alt),
        ("Control", Modifier::Control),
        ("Meta", Modifier::Meta),
        ("Shift", Modifier::Shift),
    ]
    .into_iter()
    .find(|(known, _)| known.eq_ignore_ascii_case(name))
    .map(|(_, modifier)| modifier)
}

/// Whether a key types nothing while `modifier` is held.
fn holds_text_back(modifier: Modifier) -> bool {
    !matches!(modifier, Modifier::Shift)
}

fn modifier_key(modifier: Modifier) -> (&'static str, &'static str, u32) {
    match modifier {
        Modifier::Alt => ("Alt", "AltLeft", 18),
        Modifier::Control => ("Control", "ControlLeft", 17),
        Modifier::Meta => ("Meta", "MetaLeft", 91),
        Modifier::Shift => ("Shift", "ShiftLeft", 16),
    }
}

/// The key that types `character`: what it types without and with Shift, its code and key code. Characters
/// that are on no US key come from no key: they have neither.
fn physical(character: char) -> (char, char, String, u32) {
    if character.is_ascii_alphabetic() {
        let upper = character.to_ascii_uppercase();
        let plain = character.to_ascii_lowercase();
        return (plain, upper, format!("Key{upper}"), u32::from(upper));
    }
    for (digit, shifted) in ('0'..='9').zip(SHIFTED_DIGITS) {
        if character == digit || character == shifted {
            return (digit, shifted, format!("Digit{digit}"), u32::from(digit));
        }
    }
    for (plain, shifted, code, key_code) in PUNCTUATION {
        if character == *plain || character == *shifted {
            return (*plain, *shifted, (*code).to_owned(), *key_code);
        }
    }
    (character, character, String::new(), 0)
}

/// The keyboard of a page.
struct Keys<'a> {
    page: &'a Session,
    limit: Duration,
}

impl Keys<'_> {
    async fn modifier(
        &self,
        kind: &'static str,
        modifier: Modifier,
        held: &[Modifier],
    ) -> Result<(), CdpError> {
        let (key, code, key_code) = modifier_key(modifier);
        self.dispatch(json!({
            "type": kind,
            "modifiers": modifier_bits(held),
            "key": key,
            "code": code,
            "windowsVirtualKeyCode": key_code,
            "location": 1,
        }))
        .await
    }

    async fn dispatch(&self, event: Value) -> Result<(), CdpError> {
        let Ack {} = self
            .page
            .call_within(self.limit, "Input.dispatchKeyEvent", event)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<Modifier>, String, String, u32, String) {
        let chord = Chord::parse(text).unwrap();
        (
            chord.modifiers,
            chord.key,
            chord.code,
            chord.key_code,
            chord.text,
        )
    }

    #[test]
    fn characters_become_the_keys_of_a_us_keyboard() {
        let own = ToOwned::to_owned;
        assert_eq!(parsed("a"), (vec![], own("a"), own("KeyA"), 65, own("a")));
        assert_eq!(
            parsed("A"),
            (vec![Modifier::Shift], own("A"), own("KeyA"), 65, own("A"))
        );
        assert_eq!(
            parsed("Shift+a"),
            (vec![Modifier::Shift], own("A"), own("KeyA"), 65, own("A"))
        );
        assert_eq!(
            parsed("?"),
            (vec![Modifier::Shift], own("?"), own("Slash"), 191, own("?"))
        );
        assert_eq!(parsed("5"), (vec![], own("5"), own("Digit5"), 53, own("5")));
        assert_eq!(parsed("é"), (vec![], own("é"), own(""), 0, own("é")));
        assert_eq!(parsed(" "), (vec![], own(" "), own("Space"), 32, own(" ")));
    }

    #[test]
    fn commands_type_nothing() {
        let own = ToOwned::to_owned;
        for text in ["Control+A", "Control+a", "control+A"] {
            assert_eq!(
                parsed(text),
                (vec![Modifier::Control], own("a"), own("KeyA"), 65, own(""))
            );
        }
        assert_eq!(
            parsed("Control+Shift+z"),
            (
                vec![Modifier::Control, Modifier::Shift],
                own("Z"),
                own("KeyZ"),
                90,
                own("")
            )
        );
        assert_eq!(
            parsed("Control+Enter"),
            (
                vec![Modifier::Control],
                own("Enter"),
                own("Enter"),
                13,
                own("")
            )
        );
    }

    #[test]
    fn a_plus_sign_can_be_the_key() {
        assert_eq!(parsed("+").1, "+");
        assert_eq!(parsed("Control++").0, [Modifier::Control]);
        assert_eq!(parsed("Control++").1, "+");
    }

    #[test]
    fn named_keys_in_any_case() {
        assert_eq!(parsed("Enter").4, "\r");
        assert_eq!(parsed("arrowdown").1, "ArrowDown");
        assert_eq!(parsed("Shift+Tab").0, [Modifier::Shift]);
        assert_eq!(parsed("Space").1, " ");
        assert_eq!(parsed("Shift").1, "Shift");
    }

    #[test]
    fn unknown_keys_are_answered_with_the_list() {
        let error = Chord::parse("Entre").unwrap_err();
        assert!(
            error.contains("Entre") && error.contains("Enter, Tab"),
            "{error}"
        );
        let error = Chord::parse("Hyper+a").unwrap_err();
        assert!(error.contains("Alt, Control, Meta and Shift"), "{error}");
        for odd in ["", "Control+", "\n", "++", "abc"] {
            assert!(Chord::parse(odd).is_err(), "{odd:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(chord) = Chord::parse(&text) {
                proptest::prop_assert!(!chord.key.is_empty());
            }
        }
    }
}
