//! Cuts a trace file into its events without holding more than one of them.

use std::io::{self, Read};

use memchr::{memchr2, memchr3};

use super::TraceError;

/// Longest event. The longest of Chromium's own are sources of scripts and pictures, of a few megabytes.
const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Longest file, unpacked: the format has no end of its own.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// Deepest nesting outside events.
const DEPTH_MAX: usize = 128;

/// The events of a trace in JSON: an array of events, or an object whose `traceEvents` is one.
pub(super) struct Events<R> {
    input: R,
    buffer: Vec<u8>,
    /// In `buffer`: what is not used yet.
    start: usize,
    end: usize,
    read: u64,
    begun: bool,
}

impl<R: Read> Events<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            read: 0,
            begun: false,
        }
    }

    /// The bytes of the next event; nothing after the last.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        if !self.begun {
            self.find_array()?;
            self.begun = true;
        }
        loop {
            match self.token()? {
                b',' => {}
                b'{' => break,
                b']' => return Ok(None),
                _ => return Err(TraceError::Malformed("an event is no object")),
            }
        }
        // The brace is part of the event.
        self.start -= 1;
        let length = self.object()?;
        let event = &self.buffer[self.start..self.start + length];
        self.start += length;
        Ok(Some(event))
    }

    /// The length of the object at `start`, all of which is in the buffer then.
    fn object(&mut self) -> Result<usize, TraceError> {
        let mut depth = 0_usize;
        let mut at = 0;
        let mut in_string = false;
        loop {
            let rest = &self.buffer[self.start + at..self.end];
            let found = if in_string {
                memchr2(b'"', b'\\', rest)
            } else {
                memchr3(b'"', b'{', b'}', rest)
            };
            let Some(found) = found else {
                at = self.end - self.start;
                self.more()?;
                continue;
            };
            at += found + 1;
            match rest[found] {
                b'"' => in_string = !in_string,
                b'\\' => {
                    // What it escapes is not looked at.
                    while self.start + at >= self.end {
                        self.more()?;
                    }
                    at += 1;
                }
                b'{' => depth += 1,
                _ => depth -= 1,
            }
            if depth == 0 && !in_string {
                return Ok(at);
            }
        }
    }

    /// Goes behind the bracket that opens the array of events.
    fn find_array(&mut self) -> Result<(), TraceError> {
        match self.token()? {
            b'[' => return Ok(()),
            b'{' => {}
            _ => return Err(TraceError::Malformed("it is no JSON object or array")),
        }
        loop {
            match self.token()? {
                b',' => continue,
                b'"' => {}
                _ => return Err(TraceError::Malformed("it has no traceEvents")),
            }
            let is_events = self.string_is(b"traceEvents")?;
            if self.token()? != b':' {
                return Err(TraceError::Malformed("a key has no value"));
            }
            if is_events {
                return match self.token()? {
                    b'[' => Ok(()),
                    _ => Err(TraceError::Malformed("traceEvents is no array")),
                };
            }
            self.skip_value()?;
        }
    }

    /// Goes behind the value that comes next.
    fn skip_value(&mut self) -> Result<(), TraceError> {
        let mut depth = 0_usize;
        loop {
            match self.token()? {
                b'"' => {
                    self.string_is(b"")?;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => depth -= 1,
                b',' | b'}' if depth == 0 => {
                    // It belongs to the object around.
                    self.start -= 1;
                    return Ok(());
                }
                _ => {}
            }
            if depth > DEPTH_MAX {
                return Err(TraceError::Malformed("it is nested too deep"));
            }
        }
    }

    /// Goes behind the string whose quote was just read; whether it is `expected`.
    fn string_is(&mut self, expected: &[u8]) -> Result<bool, TraceError> {
        let mut length = 0;
        let mut same = true;
        loop {
            match self.byte()? {
                b'"' => return Ok(same && length == expected.len()),
                b'\\' => {
                    self.byte()?;
                    same = false;
                }
                byte => same &= expected.get(length) == Some(&byte),
            }
            length += 1;
        }
    }

    /// The next byte that is no white space.
    fn token(&mut self) -> Result<u8, TraceError> {
        loop {
            let byte = self.byte()?;
            if !byte.is_ascii_whitespace() {
                return Ok(byte);
            }
        }
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        while self.start == self.end {
            self.more()?;
        }
        self.start += 1;
        Ok(self.buffer[self.start - 1])
    }

    /// Reads more behind what is there.
    fn more(&mut self) -> Result<(), TraceError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.end >= EVENT_BYTES_MAX {
                return Err(TraceError::Malformed("an event is longer than 32 MiB"));
            }
            self.buffer.resize(self.end * 2, 0);
        }
        let read = loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        self.read += read as u64;
        if read == 0 {
            return Err(TraceError::Malformed("it ends in the middle"));
        }
        if self.read > FILE_BYTES_MAX {
            return Err(TraceError::TooLarge);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else {
                return Ok(0);
            };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn all(input: impl Read) -> Result<Vec<String>, TraceError> {
        let mut events = Events::new(input);
        let mut all = Vec::new();
        while let Some(event) = events.next()? {
            all.push(String::from_utf8(event.to_vec()).unwrap());
        }
        Ok(all)
    }

    #[test]
    fn events_are_cut_wherever_the_pieces_end() {
        let events = [
            r#"{"name":"a}\"{\\","args":{"b":[{}]}}"#,
            "{}",
            r#"{"c":"{"}"#,
        ];
        let array = format!("[{}]", events.join(",\n"));
        let object = format!(
            r#" {{"metadata": {{"traceEvents": [1], "x": "\"}}"}}, "n": 1, "traceEvents" : {array}, "z": 0}}"#
        );
        for text in [&array, &object] {
            assert_eq!(all(text.as_bytes()).unwrap(), events);
            assert_eq!(all(Slow(text.as_bytes())).unwrap(), events);
        }
        assert_eq!(all("[]".as_bytes()).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for text in [
            "",
            "1",
            "{}",
            r#"{"traceEvents":1}"#,
            r#"{"a" 1}"#,
            "[1]",
            "[{",
            r#"[{"a":"b}"#,
            "[{}",
            r#"{"a":[[[[1]}"#,
        ] {
            let refused = all(text.as_bytes());
            assert!(matches!(refused, Err(TraceError::Malformed(_))), "{text}");
        }
    }
}
