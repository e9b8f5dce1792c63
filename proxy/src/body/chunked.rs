//! The chunked transfer coding (RFC 9112, section 7.1) as a tracker: bytes are checked and counted, not
//! decoded.
//!
//! It is strict where implementations differ and a difference would move the end of the message: no
//! bare CR or LF, no space before a size, no sign or prefix.

use std::fmt;

use crate::limits::{CHUNK_EXTENSION_BYTES, CHUNK_SIZE_DIGITS, TRAILER_BYTES};

use super::take;

/// What is wrong with a chunked body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InvalidChunk {
    /// A size that is missing, too long, or holds something else than hexadecimal digits.
    Size,
    /// Extensions of a chunk that are too long or hold control characters.
    Extension,
    /// A chunk's data that is not followed by CR LF, or a CR or LF on its own.
    LineEnd,
    /// A trailer that is not a field, or one that may only stand in a head (RFC 9110, section 6.5.1).
    Trailer,
    /// Trailers that are too long.
    TrailersTooLong,
}

impl fmt::Display for InvalidChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "a chunk size is not a hexadecimal number of at most 15 digits",
            Self::Extension => "a chunk extension is too long or malformed",
            Self::LineEnd => "a chunk does not end with CR LF",
            Self::Trailer => "a trailer field is malformed or not allowed in trailers",
            Self::TrailersTooLong => "the trailers exceed 16 KiB",
        })
    }
}

/// The next bytes of a chunked body: first some that frame it, then some of its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    /// Bytes of sizes, line ends and trailers.
    pub(crate) framing: usize,
    /// Bytes of content that follow them.
    pub(crate) content: usize,
}

/// Follows a chunked body.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// Content of the current chunk still to come, or its size while that is read.
    left: u64,
    /// Digits of the size, bytes of the extension, or bytes of all trailers so far.
    count: u32,
    /// The start of the current trailer's name, in lower case.
    name: Name,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    /// In the digits of a size.
    #[default]
    Size,
    /// In white space after the size, which some senders pad to a fixed width.
    Padding,
    /// In an extension.
    Extension,
    /// After the CR of a size line.
    SizeLf,
    /// In a chunk's content.
    Content,
    /// Before the CR after the content.
    ContentCr,
    /// Before the LF after the content.
    ContentLf,
    /// At the start of a trailer line or of the empty line that ends the body.
    TrailerStart,
    /// In the name of a trailer.
    TrailerName,
    /// In the value of a trailer.
    TrailerValue,
    /// After the CR of a trailer line.
    TrailerLf,
    /// After the CR of the last, empty line.
    EndLf,
    /// Behind the body.
    Done,
}

/// Room for the longest name in [`NOT_IN_TRAILERS`].
const NAME_BYTES: usize = 19;

/// Fields that frame, route or authenticate a message and must not arrive behind its body.
const NOT_IN_TRAILERS: [&[u8]; 9] = [
    b"connection",
    b"content-length",
    b"host",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
];

#[derive(Debug, Default)]
struct Name {
    bytes: [u8; NAME_BYTES],
    /// Length of the name, of which only the first `NAME_BYTES` are kept.
    length: usize,
}

impl Name {
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte.to_ascii_lowercase();
        }
        self.length += 1;
    }

    fn is_allowed(&self) -> bool {
        self.bytes
            .get(..self.length)
            .is_none_or(|name| !NOT_IN_TRAILERS.contains(&name))
    }
}

impl Chunked {
    /// Whether the last line has come.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many of the first `bytes` belong to the body, framing and content alike.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        let mut accepted = 0;
        while accepted < bytes.len() && !self.is_done() {
            let piece = self.next(&bytes[accepted..])?;
            accepted += piece.framing + piece.content;
        }
        Ok(accepted)
    }

    /// The framing at the start of `bytes` and the content that follows it. Call again with what is
    /// behind them. Both are 0 when `bytes` is empty or the body is done.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Piece, InvalidChunk> {
        let mut framing = 0;
        for &byte in bytes {
            if self.state == State::Content || self.state == State::Done {
                break;
            }
            self.step(byte)?;
            framing += 1;
        }
        let mut content = 0;
        if self.state == State::Content {
            content = take(&mut self.left, bytes.len() - framing);
            if self.left == 0 {
                self.state = State::ContentCr;
            }
        }
        Ok(Piece { framing, content })
    }

    /// Takes one byte of framing.
    fn step(&mut self, byte: u8) -> Result<(), InvalidChunk> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.count == CHUNK_SIZE_DIGITS {
                    return Err(InvalidChunk::Size);
                }
                let digit = char::from(byte).to_digit(16).ok_or(InvalidChunk::Size)?;
                self.count += 1;
                self.left = self.left << 4 | u64::from(digit);
                State::Size
            }
            (State::Size, b'\r') if self.count > 0 => State::SizeLf,
            (State::Size, b';') if self.count > 0 => {
                self.count = 0;
                State::Extension
            }
            (State::Size, b' ' | b'\t') if self.count > 0 => {
                self.count = 0;
                State::Padding
            }

            (State::Padding | State::Extension, b'\r') => State::SizeLf,
            (State::Padding, b';') => State::Extension,
            (State::Padding, b' ' | b'\t') if self.count < CHUNK_EXTENSION_BYTES => {
                self.count += 1;
                State::Padding
            }
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..)
                if self.count < CHUNK_EXTENSION_BYTES =>
            {
                self.count += 1;
                State::Extension
            }

            (State::SizeLf, b'\n') => {
                self.count = 0;
                if self.left == 0 {
                    State::TrailerStart
                } else {
                    State::Content
                }
            }
            (State::ContentCr, b'\r') => State::ContentLf,
            (State::ContentLf, b'\n') => State::Size,

            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::Done,
            (State::TrailerStart | State::TrailerName, byte) if is_token(byte) => {
                if self.state == State::TrailerStart {
                    self.name = Name::default();
                }
                self.name.push(byte);
                self.count_trailer()?;
                State::TrailerName
            }
            (State::TrailerName, b':') if self.name.is_allowed() => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_trailer()?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,

            (State::Extension | State::TrailerValue, b'\n')
            | (
                State::SizeLf
                | State::ContentCr
                | State::ContentLf
                | State::TrailerLf
                | State::EndLf,
                _,
            ) => return Err(InvalidChunk::LineEnd),
            (State::Size | State::Padding, _) => return Err(InvalidChunk::Size),
            (State::Extension, _) => return Err(InvalidChunk::Extension),
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                return Err(InvalidChunk::Trailer);
            }
            // `next` hands over framing only.
            (State::Content | State::Done, _) => self.state,
        };
        Ok(())
    }

    fn count_trailer(&mut self) -> Result<(), InvalidChunk> {
        self.count += 1;
        if self.count > TRAILER_BYTES {
            return Err(InvalidChunk::TrailersTooLong);
        }
        Ok(())
    }
}

/// Whether `byte` may stand in a field name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Shows `bytes` in blocks that end at `cuts`; how many belong to the body, and whether it is done.
    fn track(bytes: &[u8], cuts: &[usize]) -> Result<(usize, bool), InvalidChunk> {
        let mut tracker = Chunked::default();
        let mut at = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        for end in ends {
            if at < end {
                let accepted = tracker.accept(&bytes[at..end])?;
                at += accepted;
                if at < end {
                    assert!(tracker.is_done(), "stopped before the end");
                    break;
                }
            }
        }
        Ok((at, tracker.is_done()))
    }

    /// The content of a complete body by another way: line by line over the whole of it.
    fn decode(mut bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let line = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let size = std::str::from_utf8(&bytes[..line]).unwrap();
            let size = usize::from_str_radix(size.split([';', ' ']).next().unwrap(), 16).unwrap();
            bytes = &bytes[line + 2..];
            if size == 0 {
                return content;
            }
            content.extend_from_slice(&bytes[..size]);
            bytes = &bytes[size + 2..];
        }
    }

    fn encode(chunks: &[Vec<u8>], extension: &str, trailers: &[(String, String)]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            out.extend_from_slice(format!("x-{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    proptest! {
        #[test]
        fn the_end_is_found_however_the_bytes_are_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            extension in prop_oneof!["", ";[a-z]{1,9}=\"[a-z;]{0,9}\"", " ;a", "  "],
            trailers in prop::collection::vec(("[A-Za-z]{1,30}", "[ -~]{0,20}"), 0..3),
            behind in prop::collection::vec(any::<u8>(), 0..20),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            let body = encode(&chunks, &extension, &trailers);
            let mut bytes = body.clone();
            bytes.extend_from_slice(&behind);
            prop_assert_eq!(track(&bytes, &cuts), Ok((body.len(), true)));

            let mut tracker = Chunked::default();
            let mut content = Vec::new();
            let mut at = 0;
            while !tracker.is_done() {
                let piece = tracker.next(&bytes[at..]).unwrap();
                at += piece.framing;
                content.extend_from_slice(&bytes[at..at + piece.content]);
                at += piece.content;
            }
            prop_assert_eq!(at, body.len());
            prop_assert_eq!(&content, &decode(&body));
            prop_assert_eq!(content, chunks.concat());
        }

        #[test]
        fn any_bytes_get_the_same_verdict_however_they_are_cut(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b';'), Just(b':'), any::<u8>()],
                0..60,
            ),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            prop_assert_eq!(track(&bytes, &cuts), track(&bytes, &[]));
        }
    }

    #[test]
    fn ambiguous_bodies_are_refused() {
        let cases: [(&[u8], InvalidChunk); 15] = [
            (b"\r\n", InvalidChunk::Size),
            (b" 1\r\na\r\n", InvalidChunk::Size),
            (b"+1\r\na\r\n", InvalidChunk::Size),
            (b"0x1\r\n", InvalidChunk::Size),
            (b"1000000000000000\r\n", InvalidChunk::Size),
            (b"1\na\r\n", InvalidChunk::Size),
            (b"1 2\r\na\r\n", InvalidChunk::Size),
            (b"1;a\nb\r\n", InvalidChunk::LineEnd),
            (b"1;a\rb\r\n", InvalidChunk::LineEnd),
            (b"1\r\nab\r\n", InvalidChunk::LineEnd),
            (b"1\r\na\n", InvalidChunk::LineEnd),
            (b"0\r\n name: folded\r\n", InvalidChunk::Trailer),
            (b"0\r\nname : spaced\r\n", InvalidChunk::Trailer),
            (b"0\r\nContent-Length: 5\r\n", InvalidChunk::Trailer),
            (b"0\r\nProxy-Authorization: x\r\n", InvalidChunk::Trailer),
        ];
        for (bytes, error) in cases {
            assert_eq!(track(bytes, &[]), Err(error), "{}", bytes.escape_ascii());
        }
        let long = [b"0\r\nx: ".as_slice(), &[b'a'; TRAILER_BYTES as usize]].concat();
        assert_eq!(track(&long, &[]), Err(InvalidChunk::TrailersTooLong));
        let long = [
            b"1;".as_slice(),
            &[b'a'; CHUNK_EXTENSION_BYTES as usize + 1],
        ]
        .concat();
        assert_eq!(track(&long, &[]), Err(InvalidChunk::Extension));
    }
}
