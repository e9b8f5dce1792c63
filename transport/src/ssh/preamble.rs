//! The line by which `tunnel-server stdio` says that the bytes of the link begin, or why they do not.
//!
//! Login shells and their rc files may write to standard output before it, so it begins with a mark that no
//! such noise holds, and everything before the mark is skipped up to a bound.

use bytes::{Buf as _, Bytes, BytesMut};

/// Begins the line. A zero byte is in no message of the day.
const MARK: &[u8] = b"\0yonder-stdio 1 ";

/// Noise that is skipped: more than any message of the day.
pub const NOISE_BYTES_MAX: usize = 64 * 1024;

/// Longest line behind the mark.
const LINE_BYTES_MAX: usize = 2 * 1024;

/// What the far end says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Preamble {
    /// The bytes of the link follow.
    Ready {
        /// Version of the far end's `tunnel-server`.
        version: String,
    },
    /// There will be no link.
    Failed {
        /// Why, for a person.
        problem: String,
    },
}

/// Why output is not that of `tunnel-server stdio`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPreamble {
    /// Too much came before the mark.
    #[error("more than {NOISE_BYTES_MAX} bytes came before its greeting")]
    Noise,
    /// The line behind the mark is none.
    #[error("its greeting cannot be read; install the same release on both halves")]
    Line,
}

impl Preamble {
    /// The line as it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let (word, text) = match self {
            Self::Ready { version } => ("ready", version),
            Self::Failed { problem } => ("failed", problem),
        };
        let mut line = MARK.to_vec();
        let head = line.len();
        line.extend_from_slice(word.as_bytes());
        line.push(b' ');
        line.extend(text.bytes().map(|byte| match byte {
            0..=0x1f => b' ',
            byte => byte,
        }));
        line.truncate(head + LINE_BYTES_MAX - 1);
        line.push(b'\n');
        line
    }

    fn decode(line: &[u8]) -> Result<Self, InvalidPreamble> {
        let line = String::from_utf8_lossy(line);
        let (word, text) = line.split_once(' ').ok_or(InvalidPreamble::Line)?;
        let text = printable(text);
        match word {
            "ready" => Ok(Self::Ready { version: text }),
            "failed" => Ok(Self::Failed { problem: text }),
            _ => Err(InvalidPreamble::Line),
        }
    }
}

/// `text` without the control characters by which the far end could draw on a person's terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Looks for the [`Preamble`] in output that arrives in pieces.
#[derive(Debug, Default)]
pub struct Scanner {
    /// What arrived and is not skipped yet.
    buffer: BytesMut,
    /// Bytes skipped so far.
    skipped: usize,
    /// The end of what was skipped, which may tell why there is no preamble.
    noise: String,
}

/// Kept of the noise for messages.
const NOISE_KEPT: usize = 1024;

impl Scanner {
    /// Takes the next piece. Once the line is whole, answers it and the bytes behind it, which are the link's.
    ///
    /// # Errors
    /// If this cannot become the output of `tunnel-server stdio` any more.
    pub fn push(&mut self, piece: &[u8]) -> Result<Option<(Preamble, Bytes)>, InvalidPreamble> {
        self.buffer.extend_from_slice(piece);
        let Some(at) = find(&self.buffer, MARK) else {
            // The mark may have begun at the very end.
            let safe = self.buffer.len().saturating_sub(MARK.len() - 1);
            self.skip(safe)?;
            return Ok(None);
        };
        self.skip(at)?;
        let behind = self.buffer.get(MARK.len()..).unwrap_or_default();
        let Some(length) = behind
            .iter()
            .take(LINE_BYTES_MAX)
            .position(|&byte| byte == b'\n')
        else {
            return if behind.len() >= LINE_BYTES_MAX {
                Err(InvalidPreamble::Line)
            } else {
                Ok(None)
            };
        };
        self.buffer.advance(MARK.len());
        let line = self.buffer.split_to(length);
        self.buffer.advance(1);
        let preamble = Preamble::decode(&line)?;
        Ok(Some((preamble, self.buffer.split().freeze())))
    }

    /// The last line of what came instead of a preamble, if there was any.
    pub fn last_noise(&self) -> Option<String> {
        let rest = String::from_utf8_lossy(&self.buffer);
        format!("{}{rest}", self.noise)
            .lines()
            .rev()
            .map(printable)
            .find(|line| !line.is_empty())
    }

    fn skip(&mut self, count: usize) -> Result<(), InvalidPreamble> {
        self.skipped += count;
        if self.skipped > NOISE_BYTES_MAX {
            return Err(InvalidPreamble::Noise);
        }
        let skipped = self.buffer.split_to(count);
        self.noise.push_str(&String::from_utf8_lossy(&skipped));
        if let Some(surplus) = self.noise.len().checked_sub(NOISE_KEPT) {
            let cut = self.noise.ceil_char_boundary(surplus);
            self.noise.drain(..cut);
        }
        Ok(())
    }
}

/// Entry point for fuzzing the scanner: any bytes, in pieces whose length the first of them says, must neither panic nor
/// make it keep more than its bound.
pub fn fuzz_scan(input: &[u8]) {
    let Some((&step, bytes)) = input.split_first() else {
        return;
    };
    let mut scanner = Scanner::default();
    for piece in bytes.chunks(usize::from(step).max(1)) {
        match scanner.push(piece) {
            Ok(None) => {}
            Ok(Some((preamble, _))) => {
                let again = Preamble::decode(&preamble.encode()[MARK.len()..]);
                assert!(again.is_ok(), "{preamble:?} cannot be said");
                return;
            }
            Err(_) => return,
        }
        assert!(scanner.buffer.len() <= MARK.len() + LINE_BYTES_MAX + piece.len());
    }
    let _noise = scanner.last_noise();
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ready() -> Preamble {
        Preamble::Ready {
            version: "1.2.3".to_owned(),
        }
    }

    /// Feeds `bytes` in pieces of `step`.
    fn scan(bytes: &[u8], step: usize) -> Result<Option<(Preamble, Vec<u8>)>, InvalidPreamble> {
        let mut scanner = Scanner::default();
        let mut pieces = bytes.chunks(step.max(1));
        for piece in pieces.by_ref() {
            if let Some((preamble, rest)) = scanner.push(piece)? {
                let rest = rest.iter().copied().chain(pieces.flatten().copied());
                return Ok(Some((preamble, rest.collect())));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_problem_stays_on_its_line() {
        let failed = Preamble::Failed {
            problem: "no\nway\x1b[2J".to_owned(),
        };
        let line = failed.encode();
        assert_eq!(
            line.iter().position(|&byte| byte == b'\n'),
            Some(line.len() - 1)
        );
        let (read, _) = scan(&line, 7).unwrap().unwrap();
        assert_eq!(
            read,
            Preamble::Failed {
                problem: "no way [2J".to_owned()
            }
        );
        let endless = Preamble::Failed {
            problem: "x".repeat(10_000),
        };
        assert!(scan(&endless.encode(), 100).unwrap().is_some());
    }

    #[test]
    fn what_is_no_preamble_is_told_by_its_last_line() {
        let mut scanner = Scanner::default();
        scanner
            .push(b"Welcome!\nThis account is not available.\n\n")
            .unwrap();
        assert_eq!(
            scanner.last_noise().as_deref(),
            Some("This account is not available.")
        );
        assert_eq!(Scanner::default().last_noise(), None);
    }

    #[test]
    fn endless_noise_and_endless_lines_are_refused() {
        assert_eq!(
            scan(&vec![b'x'; NOISE_BYTES_MAX * 2], 4096),
            Err(InvalidPreamble::Noise)
        );
        let mut endless = MARK.to_vec();
        endless.resize(LINE_BYTES_MAX * 2, b'x');
        assert_eq!(scan(&endless, 100), Err(InvalidPreamble::Line));
        let mut unknown = MARK.to_vec();
        unknown.extend_from_slice(b"later thing\n");
        assert_eq!(scan(&unknown, 100), Err(InvalidPreamble::Line));
    }

    proptest! {
        #[test]
        fn noise_is_skipped_and_the_links_bytes_are_kept(
            noise in proptest::collection::vec(1_u8.., 0..2000),
            link in proptest::collection::vec(any::<u8>(), 0..2000),
            step in 1_usize..300,
        ) {
            let mut bytes = noise;
            bytes.extend(ready().encode());
            bytes.extend(&link);
            prop_assert_eq!(scan(&bytes, step), Ok(Some((ready(), link))));
        }

        #[test]
        fn any_output_is_taken_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..4000),
            step in 1_usize..300,
        ) {
            let _ = scan(&bytes, step);
            let mut marked = vec![u8::try_from(step % 256).unwrap()];
            marked.extend_from_slice(MARK);
            marked.extend(bytes);
            fuzz_scan(&marked);
        }
    }
}
