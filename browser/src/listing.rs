//! How long lists are answered in parts: which entries, how many, and where to go on.

use serde::Serialize;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::{Bounded, Short};

/// Characters of an answer's entries as JSON unless a limit was given: below 1,000 tokens with the tab.
const CHARS_SHORT: usize = 3_000;

/// Characters of an answer's entries when the caller names how many it wants.
const CHARS_MAX: usize = 100_000;

/// Entries unless the caller says otherwise.
const ENTRIES_DEFAULT: usize = 100;

/// How much an answer may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    entries: usize,
    chars: usize,
}

impl Budget {
    /// The budget of a call that asks for at most `limit` entries, or for what fits a short answer.
    pub(crate) fn of(limit: Option<Bounded<1, 500>>) -> Self {
        match limit {
            Some(limit) => Self {
                entries: usize::try_from(limit.get()).unwrap_or(ENTRIES_DEFAULT),
                chars: CHARS_MAX,
            },
            None => Self {
                entries: ENTRIES_DEFAULT,
                chars: CHARS_SHORT,
            },
        }
    }
}

/// A part of what is kept.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    /// Oldest first.
    pub(crate) entries: Vec<T>,
    /// How many match.
    pub(crate) total: u64,
    /// More match than are listed.
    pub(crate) truncated: bool,
    /// How many of the current document are no longer kept.
    pub(crate) dropped: u64,
}

/// Which part of a list is asked for, by numbers that ids are made from. The ends themselves are left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    before: Option<u64>,
    after: Option<u64>,
}

impl Cursor {
    /// Reads the ids `before` and `after`, which begin with `prefix`.
    ///
    /// # Errors
    /// [`ErrorCode::Invalid`] for an id that is none of `operation`.
    pub(crate) fn new(
        operation: &str,
        prefix: char,
        before: Option<&Short>,
        after: Option<&Short>,
    ) -> Result<Self, OperationError> {
        let read = |id: Option<&Short>| {
            match id {
            None => Ok(None),
            Some(id) => number(prefix, id.as_str()).map(Some).ok_or_else(|| {
                let id: String = id.as_str().chars().take(80).collect();
                OperationError::new(
                    ErrorCode::Invalid,
                    format!("{operation}: {id:?} is no id of this list; take one such as {prefix}12 from {operation}"),
                )
            }),
        }
        };
        Ok(Self {
            before: read(before)?,
            after: read(after)?,
        })
    }

    /// The entries of `list` (ascending) that are asked for and fit `budget`, oldest first, and whether there
    /// are more in that range: the latest ones, or with `after` the ones that follow it.
    pub(crate) fn pick<T, E: Serialize>(
        self,
        list: impl DoubleEndedIterator<Item = (u64, T)>,
        budget: Budget,
        show: impl Fn(u64, T) -> E,
    ) -> (Vec<E>, bool) {
        let range = list.filter(|(number, _)| {
            self.before.is_none_or(|before| *number < before)
                && self.after.is_none_or(|after| *number > after)
        });
        if self.after.is_some() {
            fill(range, budget, show)
        } else {
            let (mut entries, more) = fill(range.rev(), budget, show);
            entries.reverse();
            (entries, more)
        }
    }
}

/// The number in an id such as `c12`.
pub(crate) fn number(prefix: char, id: &str) -> Option<u64> {
    let digits = id.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// Takes from `list` what fits `budget`, the first one always.
pub(crate) fn fill<T, E: Serialize>(
    list: impl Iterator<Item = (u64, T)>,
    budget: Budget,
    show: impl Fn(u64, T) -> E,
) -> (Vec<E>, bool) {
    let mut entries = Vec::new();
    let mut left = budget.chars;
    for (number, item) in list {
        let entry = show(number, item);
        // Bytes bound characters from above.
        let size = serde_json::to_string(&entry).map_or(0, |text| text.len() + 1);
        if entries.len() >= budget.entries || (size > left && !entries.is_empty()) {
            return (entries, true);
        }
        left = left.saturating_sub(size);
        entries.push(entry);
    }
    (entries, false)
}

/// `text` cut to `chars` characters, and whether something was cut off.
pub(crate) fn cut(text: &str, chars: usize) -> (String, bool) {
    match text.char_indices().nth(chars) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

/// A time in milliseconds as a whole number; what is none is 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, which is what is wanted of a time that is out of range"
)]
pub(crate) fn millis(time: f64) -> u64 {
    time.round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short(text: &str) -> Short {
        Short::truncated(text)
    }

    #[test]
    fn ids_that_are_none_are_refused() {
        for id in [
            "",
            "c",
            "12",
            "n1",
            "c-1",
            "c1x",
            "c99999999999999999999999",
        ] {
            let error = Cursor::new("console", 'c', Some(&short(id)), None);
            if id == "c" {
                // No digits at all.
                assert!(error.is_err());
                continue;
            }
            let error = error.unwrap_err();
            assert!(error.message.contains("console"), "{error}");
        }
        assert!(Cursor::new("console", 'c', Some(&short("c12")), None).is_ok());
    }

    proptest! {
        #[test]
        fn pages_cover_the_list_once_in_either_direction(count in 0_u64..300, limit in 1_i64..100) {
            let all: Vec<u64> = (1..=count).collect();
            let budget = Budget::of(Bounded::new(limit));
            let page = |cursor: Cursor| cursor.pick(all.iter().map(|n| (*n, ())), budget, |n, ()| n);
            let mut seen: Vec<u64> = Vec::new();
            let mut cursor = Cursor { before: None, after: Some(0) };
            loop {
                let (part, more) = page(cursor);
                seen.extend(&part);
                cursor.after = part.last().copied();
                if !more { break }
            }
            prop_assert_eq!(&seen, &all);
            let mut seen: Vec<u64> = Vec::new();
            let mut cursor = Cursor { before: None, after: None };
            loop {
                let (part, more) = page(cursor);
                seen.splice(0..0, part.iter().copied());
                cursor.before = part.first().copied();
                if !more { break }
            }
            prop_assert_eq!(&seen, &all);
        }
    }
}
