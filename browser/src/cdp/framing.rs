//! Cuts the debugging pipe's byte stream into messages: JSON texts, each ended by a NUL byte.

use bytes::{Bytes, BytesMut};

/// Longest message: a heap or network reply of a very large page is about 50 MB, a full-page picture
/// of the largest size that we ask for below 100 MB. More means that the stream is broken.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Room that is offered to each read of the pipe: the largest size that a Linux pipe holds by default.
const READ_BYTES: usize = 64 * 1024;

/// A message longer than [`MESSAGE_BYTES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the browser sent a message of more than {MESSAGE_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// Bytes received and not yet handed out.
#[derive(Debug, Default)]
pub(super) struct Messages {
    buffer: BytesMut,
    /// Bytes at the start of `buffer` that are known to hold no NUL.
    scanned: usize,
}

impl Messages {
    /// Where the next read puts its bytes.
    pub(super) fn spare(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// The next whole message without its NUL, or `None` until more bytes arrive.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr(0, fresh) else {
            self.scanned = self.buffer.len();
            return if self.scanned > MESSAGE_BYTES_MAX {
                Err(TooLong)
            } else {
                Ok(None)
            };
        };
        let mut message = self.buffer.split_to(self.scanned + at + 1);
        message.truncate(self.scanned + at);
        self.scanned = 0;
        Ok(Some(message.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            texts in prop::collection::vec("[^\\x00]{0,40}", 0..8),
            cuts in prop::collection::vec(1_usize..30, 1..40),
        ) {
            let stream: Vec<u8> = texts.iter().flat_map(|text| text.bytes().chain([0])).collect();
            let mut messages = Messages::default();
            let mut found = Vec::new();
            let mut rest = &stream[..];
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                messages.spare().extend_from_slice(now);
                rest = later;
                while let Some(message) = messages.next().unwrap() {
                    found.push(String::from_utf8(message.to_vec()).unwrap());
                }
            }
            prop_assert_eq!(found, texts);
        }
    }
}
