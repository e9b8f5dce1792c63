//! The strings of a snapshot, in one buffer.

/// Strings by number.
#[derive(Debug, Default)]
pub(super) struct Strings {
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Strings {
    /// Adds the next string; `false` if the buffer is full, at 4 GiB.
    pub(super) fn push(&mut self, text: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + text.len()) else {
            return false;
        };
        self.text.push_str(text);
        self.ends.push(end);
        true
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string with `number`; empty if there is none.
    pub(super) fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let Some(end) = self.ends.get(at) else {
            return "";
        };
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start as usize..*end as usize]
    }

    pub(super) fn memory(&self) -> usize {
        self.text.len() + self.ends.len() * 4
    }
}
