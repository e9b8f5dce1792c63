//! Frame headers of RFC 6455, section 5.2, as bytes. Payloads are not touched here.

/// Payload bytes of one message that this half sends: as much as one batch of the link, so that a batch needs one
/// header, and little enough that an intermediary which gathers whole messages holds no more than that.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Longest header: two bytes, eight of length, four of mask key.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// Longest payload of a control frame (RFC 6455, section 5.5).
pub(super) const CONTROL_BYTES_MAX: usize = 125;

/// Set in the first byte of a message's last frame.
const FIN: u8 = 0x80;
/// Bits in the first byte that only extensions use; none is ever negotiated.
const RESERVED: u8 = 0x70;
/// Set in the second byte when a mask key follows.
const MASKED: u8 = 0x80;
/// In the second byte: the length follows in two bytes.
const LENGTH_16: u8 = 126;
/// In the second byte: the length follows in eight bytes.
const LENGTH_64: u8 = 127;

/// What a frame is (RFC 6455, section 11.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// One frame header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) last: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) length: u64,
}

/// Why bytes are no frame header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BadHeader {
    ReservedBits,
    Opcode(u8),
    Length,
}

impl Header {
    /// How long the header is that begins with these two bytes.
    pub(super) fn length_of(second: u8) -> usize {
        let length = match second & !MASKED {
            LENGTH_16 => 2,
            LENGTH_64 => 8,
            _ => 0,
        };
        2 + length + if second & MASKED == 0 { 0 } else { 4 }
    }

    /// Reads the header that fills the front of `bytes`; `None` while bytes are missing.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, BadHeader> {
        let (Some(&first), Some(&second)) = (bytes.first(), bytes.get(1)) else {
            return Ok(None);
        };
        // Judged before the rest has come, so that a peer which speaks something else is told at once.
        if first & RESERVED != 0 {
            return Err(BadHeader::ReservedBits);
        }
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(BadHeader::Opcode(first & 0x0f))?;
        let Some(rest) = bytes.get(2..Self::length_of(second)) else {
            return Ok(None);
        };
        let (length, rest) = match second & !MASKED {
            LENGTH_16 => {
                let (length, rest) = rest.split_first_chunk().ok_or(BadHeader::Length)?;
                (u64::from(u16::from_be_bytes(*length)), rest)
            }
            LENGTH_64 => {
                let (length, rest) = rest.split_first_chunk().ok_or(BadHeader::Length)?;
                (u64::from_be_bytes(*length), rest)
            }
            short => (u64::from(short), rest),
        };
        // Lengths take the shortest form and stay below 2^63 (RFC 6455, section 5.2).
        let shortest = match second & !MASKED {
            LENGTH_16 => length >= u64::from(LENGTH_16),
            LENGTH_64 => length > u64::from(u16::MAX) && length >> 63 == 0,
            _ => true,
        };
        if !shortest {
            return Err(BadHeader::Length);
        }
        Ok(Some(Self {
            last: first & FIN != 0,
            opcode,
            mask: rest.first_chunk().copied().filter(|_| second & MASKED != 0),
            length,
        }))
    }

    /// Writes the header to the front of the result and says how many bytes it takes.
    pub(super) fn encode(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[0] = self.opcode.bits() | if self.last { FIN } else { 0 };
        let mut used = 2;
        if let Some(short) = u8::try_from(self.length).ok().filter(|&l| l < LENGTH_16) {
            bytes[1] = short;
        } else if let Ok(medium) = u16::try_from(self.length) {
            bytes[1] = LENGTH_16;
            bytes[2..4].copy_from_slice(&medium.to_be_bytes());
            used = 4;
        } else {
            bytes[1] = LENGTH_64;
            bytes[2..10].copy_from_slice(&self.length.to_be_bytes());
            used = 10;
        }
        if let Some(key) = self.mask {
            bytes[1] |= MASKED;
            bytes[used..used + 4].copy_from_slice(&key);
            used += 4;
        }
        (bytes, used)
    }
}

/// Masks or unmasks `bytes`, whose first byte is at `offset` of the payload (RFC 6455, section 5.3).
///
/// A zero key changes nothing and costs nothing.
pub(super) fn apply_mask(bytes: &mut [u8], key: [u8; 4], offset: u64) {
    if key == [0; 4] {
        return;
    }
    let mut turned = key;
    turned.rotate_left(usize::from(offset.to_le_bytes()[0] & 3));
    let [a, b, c, d] = turned;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, tail) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn opcode() -> impl Strategy<Value = Opcode> {
        prop_oneof![
            Just(Opcode::Continuation),
            Just(Opcode::Text),
            Just(Opcode::Binary),
            Just(Opcode::Close),
            Just(Opcode::Ping),
            Just(Opcode::Pong),
        ]
    }

    proptest! {
        #[test]
        fn a_header_survives_its_bytes(
            last: bool,
            opcode in opcode(),
            mask: Option<[u8; 4]>,
            length in prop_oneof![0u64..200, 65_000u64..66_000, 0..(1u64 << 63)],
        ) {
            let header = Header { last, opcode, mask, length };
            let (bytes, used) = header.encode();
            prop_assert_eq!(Header::length_of(bytes[1]), used);
            prop_assert_eq!(Header::parse(&bytes[..used]), Ok(Some(header)));
            for cut in 0..used {
                prop_assert_eq!(Header::parse(&bytes[..cut]), Ok(None));
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = Header::parse(&bytes);
        }

        #[test]
        fn masking_in_pieces_equals_masking_at_once(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            key: [u8; 4],
            cut in 0usize..100,
        ) {
            let cut = cut.min(bytes.len());
            let mut whole = bytes.clone();
            apply_mask(&mut whole, key, 0);
            let expected: Vec<u8> = bytes.iter().enumerate().map(|(i, b)| b ^ key[i % 4]).collect();
            prop_assert_eq!(&whole, &expected);
            let mut pieces = bytes;
            let (front, back) = pieces.split_at_mut(cut);
            apply_mask(front, key, 0);
            apply_mask(back, key, u64::try_from(cut).expect("small"));
            prop_assert_eq!(pieces, expected);
        }
    }

    #[test]
    fn a_longer_form_than_needed_is_refused() {
        assert_eq!(Header::parse(&[0x82, 126, 0, 125]), Err(BadHeader::Length));
        assert_eq!(
            Header::parse(&[0x82, 127, 0, 0, 0, 0, 0, 0, 255, 255]),
            Err(BadHeader::Length)
        );
        assert_eq!(
            Header::parse(&[0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0]),
            Err(BadHeader::Length)
        );
    }
}
