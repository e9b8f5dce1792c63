//! The frames of the numbered byte stream, their encoding, and a decoder that takes the bytes in any
//! portions. It checks what a single frame must satisfy; what depends on earlier frames is the lane's.
//!
//! A frame is an eight-byte header (type `u8`, payload length `u24`, stream id `u32`, big-endian) and
//! its payload. The payload of `DATA` is handed on as it arrives; all others are short and collected.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::target::{HOST_BYTES_MAX, InvalidTarget, Target, TunnelError, TunnelErrorCode};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// Longest text in `OPENED`, `RESET` and `GOAWAY`, in bytes: a sentence for a person.
pub const TEXT_BYTES_MAX: usize = 256;

/// Longest initiator in `OPEN`, in bytes: an origin is a scheme, a host name and a port.
pub const INITIATOR_BYTES_MAX: usize = 512;

/// Largest payload a header can announce (its length field has 24 bits).
pub const PAYLOAD_BYTES_MAX: u32 = 0x00ff_ffff;

/// Types from here on are skipped by a receiver that does not know them; below, they are errors.
pub const FIRST_OPTIONAL_TYPE: u8 = 128;

const OPEN: u8 = 1;
const OPENED: u8 = 2;
const DATA: u8 = 3;
const CREDIT: u8 = 4;
const END: u8 = 5;
const RESET: u8 = 6;
const PING: u8 = 7;
const PONG: u8 = 8;
const GOAWAY: u8 = 9;
const ACK: u8 = 10;

const KIND_TUNNEL: u8 = 0;
const KIND_CALL: u8 = 1;

/// `OPEN` before its variable parts: kind, credit, port, length of the host.
const OPEN_FIXED_BYTES: usize = 1 + 4 + 2 + 1;
const OPEN_BYTES_MAX: usize = OPEN_FIXED_BYTES + HOST_BYTES_MAX + INITIATOR_BYTES_MAX;

/// How the peer broke the rules of the wire. Fatal to the link; the text travels in the `GOAWAY`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A type below [`FIRST_OPTIONAL_TYPE`] that this version does not know.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
    /// A payload length that the type does not allow.
    #[error("frame of type {kind} with a length of {length}")]
    Length {
        /// The frame's type.
        kind: u8,
        /// The announced length.
        length: u32,
    },
    /// Stream id 0 on a stream's frame, or another one on a frame of the link.
    #[error("frame of type {kind} on stream {stream}")]
    MisplacedStream {
        /// The frame's type.
        kind: u8,
        /// The stream id.
        stream: u32,
    },
    /// Text that is not UTF-8.
    #[error("text that is not UTF-8 in a frame of type {0}")]
    Text(u8),
    /// An `OPEN` of a kind that this version does not know.
    #[error("unknown kind {0} of stream")]
    Kind(u8),
    /// An `OPEN` of a call that names a target.
    #[error("a call with a target")]
    TargetOfCall,
    /// An `OPEN` whose target is not one.
    #[error("invalid target: {0}")]
    Target(#[from] InvalidTarget),
    /// A `DATA` frame longer than this half announced to take.
    #[error("data frame of {length} bytes where {max} are allowed")]
    DataLength {
        /// The announced length.
        length: u32,
        /// What this half takes.
        max: u32,
    },
    /// An `OPEN` with an id of this half's parity, or one not above all earlier ones.
    #[error("stream {0} cannot be opened: wrong parity or already used")]
    StreamId(u32),
    /// A frame for a stream that was never opened.
    #[error("frame of type {kind} for stream {stream}, which was never opened")]
    UnopenedStream {
        /// The frame's type.
        kind: u8,
        /// The stream id.
        stream: u32,
    },
    /// `OPENED` for a stream that the peer itself opened, or sent twice.
    #[error("stream {0} was opened by the peer or already accepted")]
    Unasked(u32),
    /// `DATA` or `END` after `END`.
    #[error("data on stream {0} after its end")]
    AfterEnd(u32),
    /// More credit than 32 bits count.
    #[error("credit of stream {0} overflows")]
    CreditOverflow(u32),
    /// An acknowledgement of bytes that were not sent, or lower than an earlier one.
    #[error("acknowledgement of byte {0}, which is not among those sent")]
    Acknowledgement(u64),
    /// The peer causes answers without taking them, or does not acknowledge what it took.
    #[error("the peer does not take or acknowledge what it is sent")]
    Flood,
}

impl ProtocolError {
    pub(super) fn unopened_data(stream: u32) -> Self {
        Self::UnopenedStream { kind: DATA, stream }
    }
}

/// What a stream is for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OpenKind {
    /// A relayed TCP connection to the target.
    Tunnel(Target),
    /// One call: a request, a half-close, an answer (see [`crate::call`]).
    Call,
}

/// The contents of an `OPEN`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Open {
    /// What the stream is for.
    pub kind: OpenKind,
    /// Who asked for it where known (the origin of a page); at most [`INITIATOR_BYTES_MAX`] bytes,
    /// longer ones are cut. Empty when unknown.
    pub initiator: String,
}

impl Open {
    /// An `OPEN` of a tunnel to `target` without a known initiator.
    pub fn tunnel(target: Target) -> Self {
        Self {
            kind: OpenKind::Tunnel(target),
            initiator: String::new(),
        }
    }

    /// An `OPEN` of a call.
    pub fn call() -> Self {
        Self {
            kind: OpenKind::Call,
            initiator: String::new(),
        }
    }
}

/// Why a link ends, as it travels in `GOAWAY`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CloseCode {
    /// The half that closes is done.
    Detached,
    /// A newer attachment took the session.
    Replaced,
    /// The server half finishes its work before it stops.
    Draining,
    /// The half stops.
    ShuttingDown,
    /// The other half broke the rules of the wire.
    Protocol,
    /// One lane is not needed any more; the link goes on with its others.
    Retired,
    /// A number that this version does not know.
    Other(u16),
}

impl CloseCode {
    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Detached => 1,
            Self::Replaced => 2,
            Self::Draining => 3,
            Self::ShuttingDown => 4,
            Self::Protocol => 5,
            Self::Retired => 6,
            Self::Other(number) => number,
        }
    }

    /// The code of a number.
    pub fn from_wire(number: u16) -> Self {
        match number {
            1 => Self::Detached,
            2 => Self::Replaced,
            3 => Self::Draining,
            4 => Self::ShuttingDown,
            5 => Self::Protocol,
            6 => Self::Retired,
            other => Self::Other(other),
        }
    }
}

/// A complete frame other than `DATA`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Control {
    /// Opens `stream` and grants the peer `credit` bytes on it.
    Open {
        /// The new stream.
        stream: u32,
        /// Bytes that the receiver may send at once.
        credit: u32,
        /// What for.
        open: Open,
    },
    /// Accepts `stream`; `credit` comes on top of the initial window.
    Opened {
        /// The accepted stream.
        stream: u32,
        /// Further bytes that the receiver may send.
        credit: u32,
        /// What was reached (an address), for a person.
        text: String,
    },
    /// Grants `bytes` more on `stream`.
    Credit {
        /// The stream.
        stream: u32,
        /// How many more.
        bytes: u32,
    },
    /// No more data this way.
    End {
        /// The stream.
        stream: u32,
    },
    /// The stream is over both ways at once; what is queued is discarded.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        error: TunnelError,
    },
    /// Asks for a `Pong` with the same bytes.
    Ping([u8; 8]),
    /// Answers a `Ping`.
    Pong([u8; 8]),
    /// The link is over.
    GoAway {
        /// Why.
        code: CloseCode,
        /// The same for a person.
        text: String,
    },
    /// All bytes of the receiver's stream below this offset have arrived.
    Ack(u64),
}

/// What the decoder makes of its input.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// A frame other than `DATA`.
    Control(Control),
    /// The header of a `DATA` frame; [`Item::Data`] portions of `length` bytes in sum follow.
    DataHeader {
        /// The stream.
        stream: u32,
        /// Bytes of the whole payload.
        length: u32,
    },
    /// The next portion of the current `DATA` payload; never empty.
    Data {
        /// The stream.
        stream: u32,
        /// A slice of the input.
        bytes: Bytes,
    },
}

/// Longest prefix of `text` within `max` bytes that ends at a character.
pub(super) fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// Appends the header of a `DATA` frame. `length` must not exceed [`PAYLOAD_BYTES_MAX`].
pub fn put_data_header(out: &mut BytesMut, stream: u32, length: u32) {
    put_header(out, DATA, length, stream);
}

fn put_header(out: &mut BytesMut, kind: u8, length: u32, stream: u32) {
    debug_assert!(length <= PAYLOAD_BYTES_MAX);
    out.put_u32((u32::from(kind) << 24) | (length & PAYLOAD_BYTES_MAX));
    out.put_u32(stream);
}

/// Appends a header for a payload whose length is known to be small.
fn put_short_header(out: &mut BytesMut, kind: u8, length: usize, stream: u32) {
    put_header(
        out,
        kind,
        u32::try_from(length).unwrap_or(PAYLOAD_BYTES_MAX),
        stream,
    );
}

impl Control {
    /// Appends the frame. Texts over their limits are cut.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Open {
                stream,
                credit,
                open,
            } => {
                let initiator = clip(&open.initiator, INITIATOR_BYTES_MAX).as_bytes();
                let (kind, host, port) = match &open.kind {
                    OpenKind::Tunnel(target) => {
                        (KIND_TUNNEL, target.host().as_bytes(), target.port())
                    }
                    OpenKind::Call => (KIND_CALL, &[][..], 0),
                };
                let length = OPEN_FIXED_BYTES + host.len() + initiator.len();
                put_short_header(out, OPEN, length, *stream);
                out.put_u8(kind);
                out.put_u32(*credit);
                out.put_u16(port);
                // A target's host has at most HOST_BYTES_MAX (253) bytes.
                out.put_u8(u8::try_from(host.len()).unwrap_or(u8::MAX));
                out.put_slice(host);
                out.put_slice(initiator);
            }
            Self::Opened {
                stream,
                credit,
                text,
            } => {
                let text = clip(text, TEXT_BYTES_MAX).as_bytes();
                put_short_header(out, OPENED, 4 + text.len(), *stream);
                out.put_u32(*credit);
                out.put_slice(text);
            }
            Self::Credit { stream, bytes } => {
                put_header(out, CREDIT, 4, *stream);
                out.put_u32(*bytes);
            }
            Self::End { stream } => put_header(out, END, 0, *stream),
            Self::Reset { stream, error } => {
                put_coded(out, RESET, *stream, error.code.to_wire(), &error.message);
            }
            Self::Ping(nonce) => {
                put_header(out, PING, 8, 0);
                out.put_slice(nonce);
            }
            Self::Pong(nonce) => {
                put_header(out, PONG, 8, 0);
                out.put_slice(nonce);
            }
            Self::GoAway { code, text } => put_coded(out, GOAWAY, 0, code.to_wire(), text),
            Self::Ack(offset) => {
                put_header(out, ACK, 8, 0);
                out.put_u64(*offset);
            }
        }
    }

    fn decode(kind: u8, stream: u32, mut payload: Bytes) -> Result<Self, ProtocolError> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let short = |_| ProtocolError::Length { kind, length };
        Ok(match kind {
            OPEN => {
                let open_kind = payload.try_get_u8().map_err(short)?;
                let credit = payload.try_get_u32().map_err(short)?;
                let port = payload.try_get_u16().map_err(short)?;
                let host_length = usize::from(payload.try_get_u8().map_err(short)?);
                if host_length > payload.len() || payload.len() - host_length > INITIATOR_BYTES_MAX
                {
                    return Err(ProtocolError::Length { kind, length });
                }
                let host = text(kind, &payload.split_to(host_length))?;
                let open_kind = match open_kind {
                    KIND_TUNNEL => OpenKind::Tunnel(Target::new(&host, port)?),
                    KIND_CALL if host.is_empty() && port == 0 => OpenKind::Call,
                    KIND_CALL => return Err(ProtocolError::TargetOfCall),
                    other => return Err(ProtocolError::Kind(other)),
                };
                let initiator = text(kind, &payload)?;
                Self::Open {
                    stream,
                    credit,
                    open: Open {
                        kind: open_kind,
                        initiator,
                    },
                }
            }
            OPENED => Self::Opened {
                stream,
                credit: payload.try_get_u32().map_err(short)?,
                text: text(kind, &payload)?,
            },
            CREDIT => Self::Credit {
                stream,
                bytes: payload.try_get_u32().map_err(short)?,
            },
            END => Self::End { stream },
            RESET => {
                let code = TunnelErrorCode::from_wire(payload.try_get_u16().map_err(short)?);
                Self::Reset {
                    stream,
                    error: TunnelError::new(code, text(kind, &payload)?),
                }
            }
            PING => Self::Ping(payload.try_get_u64().map_err(short)?.to_be_bytes()),
            PONG => Self::Pong(payload.try_get_u64().map_err(short)?.to_be_bytes()),
            GOAWAY => Self::GoAway {
                code: CloseCode::from_wire(payload.try_get_u16().map_err(short)?),
                text: text(kind, &payload)?,
            },
            ACK => Self::Ack(payload.try_get_u64().map_err(short)?),
            other => return Err(ProtocolError::UnknownType(other)),
        })
    }
}

fn put_coded(out: &mut BytesMut, kind: u8, stream: u32, code: u16, text: &str) {
    let text = clip(text, TEXT_BYTES_MAX).as_bytes();
    put_short_header(out, kind, 2 + text.len(), stream);
    out.put_u16(code);
    out.put_slice(text);
}

fn text(kind: u8, bytes: &[u8]) -> Result<String, ProtocolError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ProtocolError::Text(kind)),
    }
}

/// Takes the numbered byte stream in any portions and yields its frames. It holds at most one control
/// payload (under 1 KiB), so it costs an idle link nothing.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    data_max: u32,
}

#[derive(Debug)]
enum State {
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Payload {
        kind: u8,
        stream: u32,
        length: usize,
        bytes: BytesMut,
    },
    Data {
        stream: u32,
        remaining: usize,
    },
    Skip {
        remaining: usize,
    },
}

const AT_HEADER: State = State::Header {
    bytes: [0; HEADER_BYTES],
    have: 0,
};

impl Decoder {
    /// A decoder at the start of a stream, which takes `DATA` frames of at most `data_max` bytes.
    pub fn new(data_max: u32) -> Self {
        Self {
            state: AT_HEADER,
            data_max,
        }
    }

    /// The next item of `input`, which is advanced past what was used; `None` when it is used up.
    /// After an error the decoder must not be used again.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Item>, ProtocolError> {
        loop {
            match &mut self.state {
                State::Header { bytes, have } => {
                    let missing = bytes.get_mut(*have..).unwrap_or_default();
                    let taken = missing.len().min(input.len());
                    for (to, from) in missing.iter_mut().zip(input.split_to(taken)) {
                        *to = from;
                    }
                    *have += taken;
                    if *have < HEADER_BYTES {
                        return Ok(None);
                    }
                    let header = u64::from_be_bytes(*bytes);
                    if let Some(item) = self.start(header)? {
                        return Ok(Some(item));
                    }
                }
                State::Payload {
                    kind,
                    stream,
                    length,
                    bytes,
                } => {
                    let missing = length.saturating_sub(bytes.len());
                    let taken = missing.min(input.len());
                    let payload = if taken == *length {
                        input.split_to(taken)
                    } else {
                        bytes.put(input.split_to(taken));
                        if taken < missing {
                            return Ok(None);
                        }
                        bytes.split().freeze()
                    };
                    let (kind, stream) = (*kind, *stream);
                    self.state = AT_HEADER;
                    return Control::decode(kind, stream, payload)
                        .map(|frame| Some(Item::Control(frame)));
                }
                State::Data { stream, remaining } => {
                    let taken = (*remaining).min(input.len());
                    if taken == 0 {
                        return Ok(None);
                    }
                    let stream = *stream;
                    *remaining -= taken;
                    if *remaining == 0 {
                        self.state = AT_HEADER;
                    }
                    return Ok(Some(Item::Data {
                        stream,
                        bytes: input.split_to(taken),
                    }));
                }
                State::Skip { remaining } => {
                    let taken = (*remaining).min(input.len());
                    input.advance(taken);
                    *remaining -= taken;
                    if *remaining > 0 {
                        return Ok(None);
                    }
                    self.state = AT_HEADER;
                }
            }
        }
    }

    /// Judges a header and chooses the next state.
    fn start(&mut self, header: u64) -> Result<Option<Item>, ProtocolError> {
        let [kind, l0, l1, l2, s0, s1, s2, s3] = header.to_be_bytes();
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let (least, most) = match kind {
            OPEN => (OPEN_FIXED_BYTES, OPEN_BYTES_MAX),
            OPENED => (4, 4 + TEXT_BYTES_MAX),
            DATA => (0, size),
            CREDIT => (4, 4),
            END => (0, 0),
            RESET | GOAWAY => (2, 2 + TEXT_BYTES_MAX),
            PING | PONG | ACK => (8, 8),
            FIRST_OPTIONAL_TYPE.. => {
                self.state = State::Skip { remaining: size };
                return Ok(None);
            }
            _ => return Err(ProtocolError::UnknownType(kind)),
        };
        if size < least || size > most {
            return Err(ProtocolError::Length { kind, length });
        }
        let of_link = matches!(kind, PING | PONG | GOAWAY | ACK);
        if of_link != (stream == 0) {
            return Err(ProtocolError::MisplacedStream { kind, stream });
        }
        if kind == DATA {
            if length > self.data_max {
                return Err(ProtocolError::DataLength {
                    length,
                    max: self.data_max,
                });
            }
            self.state = if size == 0 {
                AT_HEADER
            } else {
                State::Data {
                    stream,
                    remaining: size,
                }
            };
            return Ok(Some(Item::DataHeader { stream, length }));
        }
        self.state = State::Payload {
            kind,
            stream,
            length: size,
            bytes: BytesMut::new(),
        };
        Ok(None)
    }
}
