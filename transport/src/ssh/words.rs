//! Reads a command as people write it, for example `ssh -F "my config"`, into its words.

/// Why a text is no command.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCommand {
    /// No word at all.
    #[error("the command is empty")]
    Empty,
    /// A quote that does not end.
    #[error("the command has a quote {0} without its end")]
    Quote(char),
}

/// The words of `text`, separated by white space. Quotes of either kind keep white space within a word, and mean nothing
/// else; there are no variables and no escapes.
///
/// # Errors
/// If there is no word, or a quote does not end.
pub fn words(text: &str) -> Result<Vec<String>, InvalidCommand> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match quote {
            Some(open) if character == open => quote = None,
            None if matches!(character, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(open) = quote {
        return Err(InvalidCommand::Quote(open));
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) {
        return Err(InvalidCommand::Empty);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_white_space_together() {
        for (text, expected) in [
            ("ssh", &["ssh"][..]),
            ("  ssh  -p 22 ", &["ssh", "-p", "22"]),
            (
                r#"ssh -F "my file" -o 'A="b"' x"" """#,
                &["ssh", "-F", "my file", "-o", "A=\"b\"", "x", ""],
            ),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert_eq!(words(" "), Err(InvalidCommand::Empty));
        assert_eq!(words("''"), Err(InvalidCommand::Empty));
        assert_eq!(words("ssh 'x"), Err(InvalidCommand::Quote('\'')));
    }
}
