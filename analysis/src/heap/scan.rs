//! A reader of JSON as a stream (RFC 8259), as far as heap snapshots need one: keys, long arrays of whole numbers, strings,
//! and values that are skipped.

use std::io::Read;

use super::HeapError;

/// Bytes asked for at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Brackets in brackets in what is skipped: `trace_tree` is the deepest, with some hundred.
const DEPTH_MAX: usize = 100_000;

/// The input, and the part of it that was read and not used.
pub(super) struct Scanner<R> {
    input: R,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    /// Bytes before the buffer.
    before: u64,
}

impl<R: Read> Scanner<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES],
            at: 0,
            filled: 0,
            before: 0,
        }
    }

    /// Bytes used so far.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    pub(super) fn malformed(&self, what: &'static str) -> HeapError {
        HeapError::Malformed {
            what,
            offset: self.offset(),
        }
    }

    /// Reads more; `false` at the end.
    fn fill(&mut self) -> Result<bool, HeapError> {
        self.before += self.filled as u64;
        self.at = 0;
        self.filled = 0;
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(count) => {
                    self.filled = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(HeapError::Read(error)),
            }
        }
    }

    /// The next byte, not used up; `None` at the end.
    #[inline]
    fn peek(&mut self) -> Result<Option<u8>, HeapError> {
        if self.at == self.filled && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buffer[self.at]))
    }

    #[inline]
    fn next(&mut self) -> Result<u8, HeapError> {
        let byte = self
            .peek()?
            .ok_or_else(|| self.malformed("the file ends early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// The next byte that is no white space, not used up.
    #[inline]
    pub(super) fn token(&mut self) -> Result<u8, HeapError> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(self.malformed("the file ends early")),
            }
        }
    }

    pub(super) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), HeapError> {
        if self.token()? != byte {
            return Err(self.malformed(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Before an item of a list: whether there is one, its comma used up. `first` is set for the first and cleared.
    #[inline]
    pub(super) fn item(&mut self, close: u8, first: &mut bool) -> Result<bool, HeapError> {
        let byte = self.token()?;
        if byte == close {
            self.at += 1;
            return Ok(false);
        }
        if std::mem::take(first) {
            return Ok(true);
        }
        if byte != b',' {
            return Err(self.malformed("expected a comma"));
        }
        self.at += 1;
        Ok(true)
    }

    /// A whole number that is not negative.
    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, HeapError> {
        let first = self.token()?;
        if !first.is_ascii_digit() {
            return Err(self.malformed("expected a whole number"));
        }
        let mut value = 0_u64;
        while let Some(byte @ b'0'..=b'9') = self.peek()? {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(u64::from(byte - b'0')))
                .ok_or_else(|| self.malformed("a number is too large"))?;
            self.at += 1;
        }
        Ok(value)
    }

    /// A string into `out`, which is cleared first; at most `limit` bytes are kept, the rest is dropped. Lone halves of
    /// surrogate pairs, which are in many pages' strings, become U+FFFD.
    pub(super) fn string(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<(), HeapError> {
        out.clear();
        self.expect(b'"', "expected a string")?;
        // The first half of a pair, which the second may follow.
        let mut high: Option<u32> = None;
        loop {
            if self.at == self.filled && !self.fill()? {
                return Err(self.malformed("the file ends early"));
            }
            let rest = &self.buffer[self.at..self.filled];
            let plain = rest
                .iter()
                .position(|byte| *byte == b'"' || *byte == b'\\' || *byte < 0x20);
            let length = plain.unwrap_or(rest.len());
            if length > 0 {
                if high.take().is_some() {
                    push(out, limit, char::REPLACEMENT_CHARACTER);
                }
                let room = limit.saturating_sub(out.len()).min(length);
                out.extend_from_slice(&rest[..room]);
                self.at += length;
            }
            if plain.is_none() {
                continue;
            }
            match self.next()? {
                b'"' => {
                    if high.is_some() {
                        push(out, limit, char::REPLACEMENT_CHARACTER);
                    }
                    return Ok(());
                }
                b'\\' => {
                    let unit = self.escape()?;
                    if let (Some(high), 0xdc00..=0xdfff) = (high, unit) {
                        let code = 0x1_0000_u32 + ((high - 0xd800) << 10) + (unit - 0xdc00);
                        push(out, limit, character(code));
                    } else {
                        if high.is_some() {
                            push(out, limit, char::REPLACEMENT_CHARACTER);
                        }
                        if (0xd800..0xdc00).contains(&unit) {
                            high = Some(unit);
                            continue;
                        }
                        push(out, limit, character(unit));
                    }
                    high = None;
                }
                _ => return Err(self.malformed("a control character in a string")),
            }
        }
    }

    /// The UTF-16 code unit of an escape, its backslash used up.
    fn escape(&mut self) -> Result<u32, HeapError> {
        Ok(u32::from(match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.hex(),
            _ => return Err(self.malformed("an unknown escape in a string")),
        }))
    }

    fn hex(&mut self) -> Result<u32, HeapError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16);
            code = code * 16 + digit.ok_or_else(|| self.malformed("a bad \\u escape"))?;
        }
        Ok(code)
    }

    /// Passes over a value of any kind.
    pub(super) fn skip_value(&mut self) -> Result<(), HeapError> {
        let mut depth = 0_usize;
        let mut scratch = Vec::new();
        loop {
            match self.token()? {
                b'"' => self.string(&mut scratch, 0)?,
                b'{' | b'[' => {
                    depth += 1;
                    if depth > DEPTH_MAX {
                        return Err(self.malformed("nested too deep"));
                    }
                    self.at += 1;
                    continue;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b',' | b':' | b'}' | b']' => return Err(self.malformed("expected a value")),
                _ => self.skip_word()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn skip_word(&mut self) -> Result<(), HeapError> {
        let start = self.offset();
        while let Some(byte) = self.peek()? {
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
                break;
            }
            self.at += 1;
        }
        if self.offset() == start {
            return Err(self.malformed("expected a value"));
        }
        Ok(())
    }

    /// The text of an object, of at most `limit` bytes.
    pub(super) fn object_text(&mut self, limit: usize) -> Result<Vec<u8>, HeapError> {
        let mut text = Vec::new();
        let mut depth = 0_usize;
        let (mut in_string, mut escaped) = (false, false);
        if self.token()? != b'{' {
            return Err(self.malformed("expected an object"));
        }
        loop {
            let byte = self.next()?;
            if text.len() >= limit {
                return Err(self.malformed("the description of the snapshot is too long"));
            }
            text.push(byte);
            if in_string {
                if escaped {
                    escaped = false;
                } else if byte == b'\\' {
                    escaped = true;
                } else if byte == b'"' {
                    in_string = false;
                }
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(text);
                    }
                }
                _ => {}
            }
        }
    }
}

fn character(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn push(out: &mut Vec<u8>, limit: usize, character: char) {
    if out.len() < limit {
        let mut bytes = [0; 4];
        out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
    }
}
