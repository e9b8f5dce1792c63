//! Received frames, unwrapped in place: pure, without I/O and without a buffer for payloads.

use std::collections::VecDeque;

use super::frame::{BadHeader, CONTROL_BYTES_MAX, HEADER_BYTES_MAX, Header, Opcode, apply_mask};

/// Answers kept until they can be sent. A peer that pings faster than it reads gets only the latest answers, which
/// RFC 6455, section 5.5.3, allows.
const REPLIES_MAX: usize = 4;

/// Close code for a frame that breaks the protocol (RFC 6455, section 7.4.1).
const CLOSE_PROTOCOL_ERROR: u16 = 1002;
/// Close code for data of a kind that this half does not take.
const CLOSE_UNSUPPORTED: u16 = 1003;
/// Close code for text that is none.
const CLOSE_NOT_TEXT: u16 = 1007;

/// How the other side broke RFC 6455, or what a carrier takes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketError {
    /// A bit that only extensions use was set; none was negotiated.
    #[error("the peer's WebSocket frame sets reserved bits")]
    ReservedBits,
    /// The frame's kind is not known.
    #[error("the peer's WebSocket frame has the unknown opcode {0}")]
    Opcode(u8),
    /// The length is not in its shortest form or is beyond 2^63.
    #[error("the peer's WebSocket frame has a malformed length")]
    Length,
    /// A text message: carriers move bytes.
    #[error("the peer sent a WebSocket text message; a link takes binary ones only")]
    Text,
    /// A control frame that is longer than 125 bytes or in fragments.
    #[error("the peer's WebSocket control frame is too long or fragmented")]
    Control,
    /// A client's frame without mask key, or a server's with one.
    #[error("the peer's WebSocket frame is {}", if *.0 { "masked" } else { "not masked" })]
    Mask(bool),
    /// A continuation without a message, or a message within a message.
    #[error("the peer's WebSocket frames are out of order")]
    Order,
    /// A close frame with half a code, or one that may not be sent (RFC 6455, section 7.4).
    #[error("the peer closed the WebSocket with an invalid code")]
    CloseCode,
    /// A close frame whose reason is not UTF-8.
    #[error("the peer closed the WebSocket with a reason that is not UTF-8")]
    CloseReason,
}

impl From<BadHeader> for WebSocketError {
    fn from(bad: BadHeader) -> Self {
        match bad {
            BadHeader::ReservedBits => Self::ReservedBits,
            BadHeader::Opcode(bits) => Self::Opcode(bits),
            BadHeader::Length => Self::Length,
        }
    }
}

/// A control frame that this side owes the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reply {
    pub(super) opcode: Opcode,
    pub(super) payload: Vec<u8>,
}

/// What one piece of received bytes held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Decoded {
    /// Bytes of the stream, now at the front of the piece.
    pub(super) payload: usize,
    /// No more will come: the peer closed.
    pub(super) closed: bool,
    /// No more will come: the peer broke the protocol.
    pub(super) error: Option<WebSocketError>,
}

/// Where in the frames the received bytes stand.
#[derive(Debug)]
enum Place {
    /// Within a header of which `have` bytes have come.
    Header {
        bytes: [u8; HEADER_BYTES_MAX],
        have: usize,
    },
    /// Within the payload of a data frame.
    Data { mask: [u8; 4], done: u64, left: u64 },
    /// Within the payload of a control frame.
    Control { header: Header, payload: Vec<u8> },
    /// Behind the close frame, or behind an error.
    Over,
}

impl Place {
    const START: Self = Self::Header {
        bytes: [0; HEADER_BYTES_MAX],
        have: 0,
    };
}

/// Takes frames apart, in pieces of any size.
#[derive(Debug)]
pub(super) struct Decoder {
    place: Place,
    /// Whether the peer must mask its frames, which clients must and servers must not.
    masked: bool,
    /// Whether a message has begun and its last frame has not.
    in_message: bool,
    /// Whether any frame of data has begun.
    seen_data: bool,
    replies: VecDeque<Reply>,
}

impl Decoder {
    /// A decoder at the start of a connection; `masked` when the peer is a client.
    pub(super) fn new(masked: bool) -> Self {
        Self {
            place: Place::START,
            masked,
            in_message: false,
            seen_data: false,
            replies: VecDeque::new(),
        }
    }

    /// Whether the header of a data frame, be it an empty one, has arrived.
    pub(super) fn seen_data(&self) -> bool {
        self.seen_data
    }

    /// Whether the bytes so far end between two frames.
    pub(super) fn at_border(&self) -> bool {
        matches!(self.place, Place::Header { have: 0, .. } | Place::Over)
    }

    /// Whether a control frame is owed to the peer.
    pub(super) fn owes_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The next control frame that is owed to the peer.
    pub(super) fn take_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// Takes all of `bytes` apart and moves the stream's bytes among them, unmasked, to the front.
    ///
    /// After [`Decoded::closed`] or [`Decoded::error`], what follows is ignored.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Decoded {
        let mut decoded = Decoded::default();
        let mut at = 0;
        loop {
            let rest = bytes.len() - at;
            match &mut self.place {
                Place::Over => {
                    decoded.closed = decoded.error.is_none();
                    return decoded;
                }
                Place::Data { mask, done, left } if *left > 0 => {
                    if rest == 0 {
                        return decoded;
                    }
                    let take = usize::try_from(*left).map_or(rest, |left| left.min(rest));
                    apply_mask(&mut bytes[at..at + take], *mask, *done);
                    if decoded.payload != at {
                        bytes.copy_within(at..at + take, decoded.payload);
                    }
                    decoded.payload += take;
                    at += take;
                    let taken = take as u64;
                    *done += taken;
                    *left -= taken;
                }
                Place::Data { .. } => self.place = Place::START,
                Place::Header {
                    bytes: header,
                    have,
                } => {
                    let need = if *have < 2 {
                        2
                    } else {
                        Header::length_of(header[1])
                    };
                    let take = (need - *have).min(rest);
                    header[*have..*have + take].copy_from_slice(&bytes[at..at + take]);
                    *have += take;
                    at += take;
                    let (header, have) = (*header, *have);
                    match Header::parse(&header[..have])
                        .map_err(WebSocketError::from)
                        .and_then(|header| header.map(|header| self.begin(header)).transpose())
                    {
                        Ok(Some(place)) => self.place = place,
                        Ok(None) if at == bytes.len() => return decoded,
                        Ok(None) => {}
                        Err(error) => {
                            decoded.error = Some(error);
                            self.fail(error);
                        }
                    }
                }
                Place::Control { header, payload } => {
                    let left =
                        usize::try_from(header.length).map_or(0, |length| length - payload.len());
                    let take = left.min(rest);
                    payload.extend_from_slice(&bytes[at..at + take]);
                    at += take;
                    if take < left {
                        return decoded;
                    }
                    let opcode = header.opcode;
                    let mut payload = std::mem::take(payload);
                    apply_mask(&mut payload, header.mask.unwrap_or_default(), 0);
                    match self.control(opcode, payload) {
                        Ok(place) => self.place = place,
                        Err(error) => {
                            decoded.error = Some(error);
                            self.fail(error);
                        }
                    }
                }
            }
        }
    }

    /// Judges a frame by its header and says what its payload is.
    fn begin(&mut self, header: Header) -> Result<Place, WebSocketError> {
        if header.mask.is_some() != self.masked {
            return Err(WebSocketError::Mask(!self.masked));
        }
        if header.opcode.is_control() {
            if !header.last || header.length > CONTROL_BYTES_MAX as u64 {
                return Err(WebSocketError::Control);
            }
            return Ok(Place::Control {
                header,
                payload: Vec::new(),
            });
        }
        match header.opcode {
            Opcode::Text => return Err(WebSocketError::Text),
            Opcode::Continuation if !self.in_message => return Err(WebSocketError::Order),
            Opcode::Binary if self.in_message => return Err(WebSocketError::Order),
            _ => {}
        }
        self.in_message = !header.last;
        self.seen_data = true;
        Ok(Place::Data {
            mask: header.mask.unwrap_or_default(),
            done: 0,
            left: header.length,
        })
    }

    /// Acts on a whole control frame.
    fn control(&mut self, opcode: Opcode, payload: Vec<u8>) -> Result<Place, WebSocketError> {
        match opcode {
            Opcode::Close => {
                let code = close_code(&payload)?;
                // The answer repeats the code (RFC 6455, section 5.5.1).
                self.replies.clear();
                self.replies.push_back(Reply {
                    opcode: Opcode::Close,
                    payload: code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec()),
                });
                Ok(Place::Over)
            }
            Opcode::Ping => {
                if self.replies.len() == REPLIES_MAX {
                    self.replies.pop_front();
                }
                self.replies.push_back(Reply {
                    opcode: Opcode::Pong,
                    payload,
                });
                Ok(Place::START)
            }
            _ => Ok(Place::START),
        }
    }

    /// Takes nothing more and owes the peer the reason.
    fn fail(&mut self, error: WebSocketError) {
        let code = match error {
            WebSocketError::Text => CLOSE_UNSUPPORTED,
            WebSocketError::CloseReason => CLOSE_NOT_TEXT,
            _ => CLOSE_PROTOCOL_ERROR,
        };
        self.replies.clear();
        self.replies.push_back(Reply {
            opcode: Opcode::Close,
            payload: code.to_be_bytes().to_vec(),
        });
        self.place = Place::Over;
    }
}

/// The code in the payload of a close frame, which may have none.
fn close_code(payload: &[u8]) -> Result<Option<u16>, WebSocketError> {
    let Some((&code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(None)
        } else {
            Err(WebSocketError::CloseCode)
        };
    };
    let code = u16::from_be_bytes(code);
    // The protocol's own codes as far as they may be sent and are registered, and those of libraries and applications.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(WebSocketError::CloseCode);
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(WebSocketError::CloseReason),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(last: bool, opcode: Opcode, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let (header, used) = Header {
            last,
            opcode,
            mask,
            length: payload.len() as u64,
        }
        .encode();
        let mut bytes = header[..used].to_vec();
        let at = bytes.len();
        bytes.extend_from_slice(payload);
        apply_mask(&mut bytes[at..], mask.unwrap_or_default(), 0);
        bytes
    }

    /// One message in any number of frames, with pings between them, and the payload it stands for.
    fn message() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, usize)> {
        prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..300),
                any::<[u8; 4]>(),
                any::<bool>(),
            ),
            1..5,
        )
        .prop_map(|parts| {
            let mut wire = Vec::new();
            let mut payload = Vec::new();
            let mut pings = 0;
            let count = parts.len();
            for (i, (part, mask, ping)) in parts.into_iter().enumerate() {
                let opcode = if i == 0 {
                    Opcode::Binary
                } else {
                    Opcode::Continuation
                };
                wire.extend(frame(i + 1 == count, opcode, Some(mask), &part));
                payload.extend(part);
                if ping {
                    wire.extend(frame(true, Opcode::Ping, Some(mask), b"are you there"));
                    pings += 1;
                }
            }
            (wire, payload, pings)
        })
    }

    proptest! {
        #[test]
        fn any_fragmentation_and_any_cut_yields_the_bytes(
            messages in prop::collection::vec(message(), 1..4),
            cuts in prop::collection::vec(1usize..50, 1..20),
        ) {
            let mut wire: Vec<u8> = messages.iter().flat_map(|(wire, ..)| wire.clone()).collect();
            let expected: Vec<u8> = messages.iter().flat_map(|(_, payload, _)| payload.clone()).collect();
            let mut pings: usize = messages.iter().map(|(.., pings)| pings).sum();
            let mut decoder = Decoder::new(true);
            let mut got = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            let mut rest = wire.as_mut_slice();
            while !rest.is_empty() {
                let cut = cuts.next().expect("cycles").min(rest.len());
                let (piece, more) = rest.split_at_mut(cut);
                let decoded = decoder.decode(piece);
                prop_assert_eq!(decoded.error, None);
                prop_assert!(!decoded.closed);
                got.extend_from_slice(&piece[..decoded.payload]);
                while let Some(reply) = decoder.take_reply() {
                    prop_assert_eq!(reply, Reply { opcode: Opcode::Pong, payload: b"are you there".to_vec() });
                    pings -= 1;
                }
                rest = more;
            }
            prop_assert_eq!(got, expected);
            prop_assert_eq!(pings, 0);
            prop_assert!(decoder.at_border());
        }

        #[test]
        fn mangled_frames_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::super::fuzz_decode(&bytes);
        }

        #[test]
        fn a_damaged_message_never_panics(
            (mut wire, ..) in message(),
            at in any::<prop::sample::Index>(),
            with: u8,
        ) {
            *at.get_mut(&mut wire) = with;
            super::super::fuzz_decode(&wire);
        }
    }

    #[test]
    fn what_a_carrier_does_not_take_is_named() {
        let key = Some([1, 2, 3, 4]);
        let cases: [(Vec<u8>, WebSocketError); 8] = [
            (
                frame(true, Opcode::Text, key, b"hello"),
                WebSocketError::Text,
            ),
            (
                frame(true, Opcode::Binary, None, b"hello"),
                WebSocketError::Mask(false),
            ),
            (
                frame(true, Opcode::Continuation, key, b""),
                WebSocketError::Order,
            ),
            (
                frame(false, Opcode::Ping, key, b""),
                WebSocketError::Control,
            ),
            (
                frame(true, Opcode::Ping, key, &[0; 126]),
                WebSocketError::Control,
            ),
            (vec![0xc2, 0x80], WebSocketError::ReservedBits),
            (vec![0x83, 0x80], WebSocketError::Opcode(3)),
            (
                [
                    frame(false, Opcode::Binary, key, b"a"),
                    frame(true, Opcode::Binary, key, b"b"),
                ]
                .concat(),
                WebSocketError::Order,
            ),
        ];
        for (mut wire, error) in cases {
            let mut decoder = Decoder::new(true);
            assert_eq!(decoder.decode(&mut wire).error, Some(error));
            assert_eq!(
                decoder.take_reply().map(|reply| reply.opcode),
                Some(Opcode::Close)
            );
            assert_eq!(decoder.decode(&mut [0x82, 0x00]).payload, 0);
        }
        let mut decoder = Decoder::new(false);
        let mut masked = frame(true, Opcode::Binary, key, b"x");
        assert_eq!(
            decoder.decode(&mut masked).error,
            Some(WebSocketError::Mask(true))
        );
    }

    #[test]
    fn bytes_before_a_close_are_delivered_and_the_close_is_answered() {
        let mut decoder = Decoder::new(false);
        let mut wire = [
            frame(true, Opcode::Binary, None, b"last words"),
            frame(true, Opcode::Close, None, b"\x03\xe9going away"),
            b"noise".to_vec(),
        ]
        .concat();
        let decoded = decoder.decode(&mut wire);
        assert_eq!(&wire[..decoded.payload], b"last words");
        assert!(decoded.closed);
        assert_eq!(
            decoder.take_reply(),
            Some(Reply {
                opcode: Opcode::Close,
                payload: vec![0x03, 0xe9]
            })
        );
    }

    #[test]
    fn a_flood_of_pings_keeps_only_the_latest_answers() {
        let mut decoder = Decoder::new(false);
        for i in 0..100u8 {
            decoder.decode(&mut frame(true, Opcode::Ping, None, &[i]));
        }
        let answers: Vec<u8> = std::iter::from_fn(|| decoder.take_reply())
            .flat_map(|reply| reply.payload)
            .collect();
        assert_eq!(answers, [96, 97, 98, 99]);
    }
}
