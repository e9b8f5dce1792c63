//! The WebSocket carrier against an independent implementation of RFC 6455, in both roles: fragments, control frames
//! between them, every close code, and what has to be refused.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test reports, and helpers outside of #[test] functions are part of it"
)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Error, Message, WebSocket};
use yonder_transport::websocket::{Masking, WebSocketStream};

/// More than a test sends at once.
const AMPLE: usize = 1 << 20;

/// The bytes to and from the other implementation.
#[derive(Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match Read::read(&mut self.incoming, buffer)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            length => Ok(length),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut self.outgoing, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The other implementation, without I/O.
struct Peer(WebSocket<Pipe>);

impl Peer {
    fn new(role: Role) -> Self {
        Self(WebSocket::from_raw_socket(Pipe::default(), role, None))
    }

    /// What it has sent so far.
    fn outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0.get_mut().outgoing)
    }

    /// What it makes of `bytes`.
    fn hear(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.0.get_mut().incoming.extend(bytes);
        let mut messages = Vec::new();
        loop {
            match self.0.read() {
                Ok(message) => messages.push(message),
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return messages,
                Err(Error::ConnectionClosed) => return messages,
                Err(error) => panic!("the other implementation finds us at fault: {error}"),
            }
        }
    }

    /// The code with which we closed; [`NO_CODE`] without one.
    fn close_code(&mut self, bytes: &[u8]) -> Option<u16> {
        let messages = self.hear(bytes);
        let closes = messages.into_iter().filter_map(|message| match message {
            Message::Close(frame) => Some(frame.map_or(NO_CODE, |frame| frame.code.into())),
            _ => None,
        });
        closes.last()
    }
}

/// Stands for a close without a code (RFC 6455, section 7.4.1).
const NO_CODE: u16 = 1005;

/// Our end for a peer in `role`, over a pipe that holds so many bytes, and the pipe's other end.
fn ours(
    role: Role,
    pipe: usize,
    masking: Masking,
) -> (WebSocketStream<DuplexStream>, DuplexStream) {
    let (near, far) = duplex(pipe);
    let stream = match role {
        Role::Client => WebSocketStream::server(near, Bytes::new()),
        Role::Server => WebSocketStream::client(near, Bytes::new(), masking),
    };
    (stream, far)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// Delivers `wire`, in pieces no longer than `pipe`. Returns the bytes read, how reading ended, and what we sent.
async fn deliver(
    role: Role,
    pipe: usize,
    wire: &[u8],
    expected: usize,
) -> (Vec<u8>, io::Result<()>, Vec<u8>) {
    let (mut stream, far) = ours(role, pipe, Masking::Random);
    let (mut from, mut to) = tokio::io::split(far);
    let mut sent = Vec::new();
    let read = async move {
        let mut got = Vec::new();
        let mut buffer = [0; 700];
        let end = loop {
            // The pipe stays open, so reading ends with the bytes or by a close.
            if expected > 0 && got.len() >= expected {
                break Ok(());
            }
            match stream.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(length) => got.extend_from_slice(&buffer[..length]),
                Err(error) => break Err(error),
            }
        };
        // A broken stream does not flush.
        let _ = stream.flush().await;
        (got, end)
    };
    let write = async {
        // Nobody reads what follows a close.
        let _ = to.write_all(wire).await;
    };
    let ((), (got, end), answers) = tokio::join!(write, read, from.read_to_end(&mut sent));
    answers.unwrap();
    (got, end, sent)
}

/// A part of a message, and the ping that follows it, if any.
fn part() -> impl Strategy<Value = (Vec<u8>, Option<Vec<u8>>)> {
    (
        prop::collection::vec(any::<u8>(), 0..1_500),
        prop::option::weighted(0.3, prop::collection::vec(any::<u8>(), 0..=125)),
    )
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Client), Just(Role::Server)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fragments_with_control_frames_between_them_are_understood(
        role in role(),
        messages in prop::collection::vec(prop::collection::vec(part(), 1..5), 1..4),
        pipe in 1_usize..5_000,
    ) {
        let mut peer = Peer::new(role);
        let mut expected = Vec::new();
        let mut pings = Vec::new();
        for parts in &messages {
            for (index, (payload, ping)) in parts.iter().enumerate() {
                let kind = if index == 0 { Data::Binary } else { Data::Continue };
                let last = index + 1 == parts.len();
                let frame = Frame::message(payload.clone(), OpCode::Data(kind), last);
                peer.0.write(Message::Frame(frame)).unwrap();
                expected.extend_from_slice(payload);
                if let Some(ping) = ping {
                    peer.0.write(Message::Ping(ping.clone().into())).unwrap();
                    pings.push(ping.clone());
                }
            }
        }
        peer.0.write(Message::Binary(Bytes::from_static(b"!"))).unwrap();
        expected.push(b'!');
        peer.0.flush().unwrap();
        let wire = peer.outgoing();
        let (got, end, sent) = runtime().block_on(deliver(role, pipe, &wire, expected.len()));
        prop_assert!(end.is_ok(), "{:?}", end);
        prop_assert!(got == expected);
        let pongs: Vec<_> = peer.hear(&sent).into_iter().filter_map(|message| match message {
            Message::Pong(payload) => Some(payload.to_vec()),
            _ => None,
        }).collect();
        // Answers may be left out but for the last (RFC 6455, section 5.5.3), never reordered or made up.
        prop_assert_eq!(pongs.last(), pings.last());
        let mut rest = pings.iter();
        prop_assert!(pongs.iter().all(|pong| rest.any(|ping| ping == pong)));
    }

    #[test]
    fn what_we_send_is_understood(
        role in role(),
        writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70_000), 0..6),
        zero: bool,
        pieces in 1_usize..10_000,
    ) {
        let masking = if zero { Masking::Zero } else { Masking::Random };
        let (mut stream, mut far) = ours(role, AMPLE, masking);
        let sent = runtime().block_on(async move {
            for bytes in &writes {
                stream.write_all(bytes).await.unwrap();
            }
            stream.shutdown().await.unwrap();
            drop(stream);
            let mut sent = Vec::new();
            far.read_to_end(&mut sent).await.unwrap();
            (sent, writes.concat())
        });
        let (sent, expected) = sent;
        let mut peer = Peer::new(role);
        let mut got = Vec::new();
        let mut closed = false;
        for message in sent.chunks(pieces).flat_map(|piece| peer.hear(piece)) {
            match message {
                Message::Binary(bytes) => got.extend_from_slice(&bytes),
                Message::Close(Some(frame)) => {
                    prop_assert_eq!(frame.code, CloseCode::Normal);
                    closed = true;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert!(closed && got == expected);
    }
}

/// Whether a peer may close with this code (RFC 6455, section 7.4, and the codes registered since).
fn may_close_with(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[test]
fn every_close_code_is_echoed_or_refused() {
    let runtime = runtime();
    for role in [Role::Client, Role::Server] {
        for code in (0..=5_100).chain([9_999, 0x8000, u16::MAX]) {
            let mut peer = Peer::new(role);
            let close = CloseFrame {
                code: CloseCode::from(code),
                reason: "because".into(),
            };
            peer.0.close(Some(close)).unwrap();
            let wire = peer.outgoing();
            let (got, end, sent) = runtime.block_on(deliver(role, AMPLE, &wire, 0));
            assert!(got.is_empty());
            let told = Peer::new(role).close_code(&sent);
            if may_close_with(code) {
                assert!(end.is_ok(), "{code}: {end:?}");
                // Registered after the other implementation's list was made, which reads it as a breach.
                let read_as = if code == 1014 { 1002 } else { code };
                assert_eq!(told, Some(read_as));
            } else {
                assert_eq!(end.unwrap_err().kind(), ErrorKind::InvalidData, "{code}");
                assert_eq!(told, Some(1002), "{code}");
            }
        }
    }
}

#[tokio::test]
async fn a_close_without_a_code_is_answered_without_one() {
    for role in [Role::Client, Role::Server] {
        let mut peer = Peer::new(role);
        peer.0.close(None).unwrap();
        let wire = peer.outgoing();
        let (_, end, sent) = deliver(role, AMPLE, &wire, 0).await;
        assert!(end.is_ok());
        assert_eq!(Peer::new(role).close_code(&sent), Some(NO_CODE));
    }
}

/// A frame by hand: its first byte, whether it says to be masked (with the key zero), its length field and what follows.
fn frame(first: u8, masked: bool, length: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend_from_slice(length);
    if masked {
        bytes[1] |= 0x80;
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes.extend_from_slice(payload);
    bytes
}

#[tokio::test]
async fn each_breach_is_refused_with_its_close_code() {
    for role in [Role::Client, Role::Server] {
        let masked = role == Role::Client;
        let short = |first: u8, payload: &[u8]| {
            frame(
                first,
                masked,
                &[u8::try_from(payload.len()).unwrap()],
                payload,
            )
        };
        let long = [&[127][..], &(u64::MAX).to_be_bytes()].concat();
        let wasteful_long = [&[127][..], &200_u64.to_be_bytes()].concat();
        let mut cases = vec![
            ("a text message", short(0x81, b"hello"), 1003),
            ("a text message in fragments", short(0x01, b"hello"), 1003),
            ("the wrong masking", frame(0x82, !masked, &[1], b"x"), 1002),
            ("a continuation of nothing", short(0x80, b"x"), 1002),
            (
                "a message within a message",
                [short(0x02, b"a"), short(0x82, b"b")].concat(),
                1002,
            ),
            ("a ping in fragments", short(0x09, b""), 1002),
            ("a close in fragments", short(0x08, b""), 1002),
            (
                "a long ping",
                frame(0x89, masked, &[126, 0, 126], &[0; 126]),
                1002,
            ),
            (
                "a long close",
                frame(0x88, masked, &[126, 0, 126], &[0; 126]),
                1002,
            ),
            (
                "a length that needs less",
                frame(0x82, masked, &[126, 0, 125], b""),
                1002,
            ),
            ("another", frame(0x82, masked, &wasteful_long, b""), 1002),
            (
                "a length beyond 2^63",
                frame(0x82, masked, &long, b""),
                1002,
            ),
            ("half a close code", short(0x88, &[3]), 1002),
            (
                "a reason that is no text",
                short(0x88, &[3, 232, 0xff, 0xfe]),
                1007,
            ),
        ];
        for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
            cases.push(("an unknown opcode", short(0x80 | opcode, b""), 1002));
        }
        for reserved in [0x40, 0x20, 0x10] {
            cases.push(("a reserved bit", short(0x82 | reserved, b""), 1002));
        }
        for (what, breach, code) in cases {
            // Good bytes before it are handed out, those behind it are not.
            let wire = [short(0x82, b"ok"), breach, short(0x82, b"no")].concat();
            let (got, end, sent) = deliver(role, AMPLE, &wire, 0).await;
            let good = if what.contains("within") {
                &b"oka"[..]
            } else {
                b"ok"
            };
            assert_eq!(got, good, "{what}");
            assert_eq!(end.unwrap_err().kind(), ErrorKind::InvalidData, "{what}");
            let told = Peer::new(role).close_code(&sent);
            assert_eq!(told, Some(code), "{what} of a {role:?}");
        }
    }
}
