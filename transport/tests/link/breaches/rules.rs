//! The rules of the wire, and for each the bytes that break it.

use yonder_protocol::Target;
use yonder_protocol::link::frame::{
    HEADER_BYTES, INITIATOR_BYTES_MAX, ProtocolError, TEXT_BYTES_MAX,
};

pub(super) const OPEN: u8 = 1;
const OPENED: u8 = 2;
pub(super) const DATA: u8 = 3;
const CREDIT: u8 = 4;
const END: u8 = 5;
pub(super) const RESET: u8 = 6;
const PING: u8 = 7;
const PONG: u8 = 8;
const GOAWAY: u8 = 9;
const ACK: u8 = 10;

/// A frame as it stands on the wire.
pub(super) fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(kind, stream, payload.len()).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) fn header(kind: u8, stream: u32, length: usize) -> [u8; HEADER_BYTES] {
    let word = u32::from(kind) << 24 | u32::try_from(length).unwrap();
    (u64::from(word) << 32 | u64::from(stream)).to_be_bytes()
}

/// The payload of an `OPEN`.
pub(super) fn opening(kind: u8, port: u16, host: &[u8], initiator: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 1, 0];
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.push(u8::try_from(host.len()).unwrap());
    bytes.extend_from_slice(host);
    bytes.extend_from_slice(initiator);
    bytes
}

/// What a peer sends that breaks a rule, and the rule. `theirs` is the first stream of the breaking peer, which it has
/// opened, and `ours` the one that the other half has opened.
pub(super) fn breaches(theirs: u32, ours: u32, data_max: u32) -> Vec<(Vec<u8>, ProtocolError)> {
    let length = |kind, length: usize| ProtocolError::Length {
        kind,
        length: u32::try_from(length).unwrap(),
    };
    let misplaced = |kind, stream| ProtocolError::MisplacedStream { kind, stream };
    let unopened = |kind, stream| ProtocolError::UnopenedStream { kind, stream };
    let call = opening(1, 0, b"", b"");
    let mut list = Vec::new();

    for kind in [0, 11, 127] {
        list.push((frame(kind, theirs, b""), ProtocolError::UnknownType(kind)));
    }
    // Lengths that the type does not allow; the payload need not come for that.
    for (kind, least, most) in [
        (OPEN, 8_usize, 8 + 253 + INITIATOR_BYTES_MAX),
        (OPENED, 4, 4 + TEXT_BYTES_MAX),
        (CREDIT, 4, 4),
        (END, 0, 0),
        (RESET, 2, 2 + TEXT_BYTES_MAX),
        (PING, 8, 8),
        (PONG, 8, 8),
        (GOAWAY, 2, 2 + TEXT_BYTES_MAX),
        (ACK, 8, 8),
    ] {
        let stream = if matches!(kind, PING | PONG | GOAWAY | ACK) {
            0
        } else {
            theirs
        };
        for wrong in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
            list.push((header(kind, stream, wrong).to_vec(), length(kind, wrong)));
        }
    }
    let mut cut = opening(0, 80, b"localhost", b"");
    cut.truncate(cut.len() - 1);
    list.push((frame(OPEN, theirs + 2, &cut), length(OPEN, cut.len())));
    let long = opening(1, 0, b"", &[b'x'; INITIATOR_BYTES_MAX + 1]);
    list.push((frame(OPEN, theirs + 2, &long), length(OPEN, long.len())));

    for (kind, valid) in [
        (OPEN, 8),
        (OPENED, 4),
        (DATA, 0),
        (CREDIT, 4),
        (END, 0),
        (RESET, 2),
    ] {
        list.push((header(kind, 0, valid).to_vec(), misplaced(kind, 0)));
    }
    for kind in [PING, PONG, GOAWAY, ACK] {
        list.push((header(kind, theirs, 8).to_vec(), misplaced(kind, theirs)));
    }

    for (kind, stream, payload) in [
        (OPEN, theirs + 2, opening(0, 80, b"\xff", b"")),
        (OPEN, theirs + 2, opening(1, 0, b"", b"\xff")),
        (OPENED, ours, b"\0\0\0\0\xff".to_vec()),
        (RESET, theirs, b"\0\x01\xff".to_vec()),
        (GOAWAY, 0, b"\0\x01\xff".to_vec()),
    ] {
        list.push((frame(kind, stream, &payload), ProtocolError::Text(kind)));
    }
    list.push((
        frame(OPEN, theirs + 2, &opening(2, 0, b"", b"")),
        ProtocolError::Kind(2),
    ));
    for target in [opening(1, 0, b"localhost", b""), opening(1, 80, b"", b"")] {
        list.push((
            frame(OPEN, theirs + 2, &target),
            ProtocolError::TargetOfCall,
        ));
    }
    for (host, port) in [("", 80), ("localhost", 0), ("two words", 80)] {
        let problem = Target::new(host, port).unwrap_err();
        let payload = opening(0, port, host.as_bytes(), b"");
        list.push((frame(OPEN, theirs + 2, &payload), problem.into()));
    }
    list.push((
        header(DATA, theirs, data_max as usize + 1).to_vec(),
        ProtocolError::DataLength {
            length: data_max + 1,
            max: data_max,
        },
    ));

    // Streams of the wrong parity, used ones, and ones below a used one.
    for stream in [ours + 2, theirs] {
        list.push((frame(OPEN, stream, &call), ProtocolError::StreamId(stream)));
    }
    let skipping = [
        frame(OPEN, theirs + 4, &call),
        frame(OPEN, theirs + 2, &call),
    ];
    list.push((skipping.concat(), ProtocolError::StreamId(theirs + 2)));
    for stream in [theirs + 2, ours + 2] {
        list.push((frame(DATA, stream, b"x"), unopened(DATA, stream)));
        // One rule for all that a stream has to be open for.
        for (kind, payload) in [(CREDIT, &[0; 4][..]), (END, b""), (RESET, &[0; 2])] {
            list.push((frame(kind, stream, payload), unopened(DATA, stream)));
        }
    }
    let opened = |stream| frame(OPENED, stream, &[0; 4]);
    list.push((opened(theirs), ProtocolError::Unasked(theirs)));
    list.push((opened(ours + 2), ProtocolError::Unasked(ours + 2)));
    list.push((
        [opened(ours), opened(ours)].concat(),
        ProtocolError::Unasked(ours),
    ));
    for late in [frame(DATA, theirs, b"x"), frame(END, theirs, b"")] {
        let after = [frame(END, theirs, b""), late].concat();
        list.push((after, ProtocolError::AfterEnd(theirs)));
    }
    list.push((
        frame(CREDIT, theirs, &u32::MAX.to_be_bytes()),
        ProtocolError::CreditOverflow(theirs),
    ));
    let beyond = 1_u64 << 40;
    list.push((
        frame(ACK, 0, &beyond.to_be_bytes()),
        ProtocolError::Acknowledgement(beyond),
    ));
    list
}
