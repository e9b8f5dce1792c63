//! Frames and greetings: round trips, exact bytes, mangled input.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::link::frame::{Control, Decoder, Item, put_data_header};
use crate::link::hello::{Answer, InvalidGreeting, InvalidSessionName, take_message};
use crate::link::*;
use crate::target::{Target, TunnelError, TunnelErrorCode};

fn control() -> impl Strategy<Value = Control> {
    let stream = 1..=u32::MAX;
    let text = "\\PC{0,64}";
    let open = prop_oneof![
        ("[a-z0-9.-]{1,253}", 1..=u16::MAX, text).prop_map(|(host, port, initiator)| Open {
            kind: OpenKind::Tunnel(Target::new(&host, port).unwrap()),
            initiator,
        }),
        text.prop_map(|initiator| Open {
            kind: OpenKind::Call,
            initiator
        }),
    ];
    prop_oneof![
        (stream.clone(), any::<u32>(), open).prop_map(|(stream, credit, open)| Control::Open {
            stream,
            credit,
            open
        }),
        (stream.clone(), any::<u32>(), text).prop_map(|(stream, credit, text)| Control::Opened {
            stream,
            credit,
            text
        }),
        (stream.clone(), any::<u32>())
            .prop_map(|(stream, bytes)| Control::Credit { stream, bytes }),
        stream.clone().prop_map(|stream| Control::End { stream }),
        (stream, 1..=11_u16, text).prop_map(|(stream, code, text)| Control::Reset {
            stream,
            error: TunnelError::new(TunnelErrorCode::from_wire(code), text),
        }),
        any::<[u8; 8]>().prop_map(Control::Ping),
        any::<[u8; 8]>().prop_map(Control::Pong),
        (any::<u16>(), text).prop_map(|(code, text)| Control::GoAway {
            code: CloseCode::from_wire(code),
            text
        }),
        any::<u64>().prop_map(Control::Ack),
    ]
}

/// Decodes `wire` in portions of at most `portion` bytes; data payloads are joined.
fn decode_all(wire: &[u8], portion: usize) -> Result<(Vec<Control>, Vec<u8>), ProtocolError> {
    let mut decoder = Decoder::new(1024);
    let (mut controls, mut data) = (Vec::new(), Vec::new());
    for part in wire.chunks(portion) {
        let mut part = Bytes::copy_from_slice(part);
        while let Some(item) = decoder.next(&mut part)? {
            match item {
                Item::Control(control) => controls.push(control),
                Item::DataHeader { .. } => {}
                Item::Data { bytes, .. } => data.extend_from_slice(&bytes),
            }
        }
        assert!(part.is_empty());
    }
    Ok((controls, data))
}

proptest! {
    #[test]
    fn frames_round_trip_however_they_are_cut(
        frames in prop::collection::vec(control(), 0..8),
        payload in prop::collection::vec(any::<u8>(), 0..64),
        portion in 1..40_usize,
    ) {
        let mut wire = BytesMut::new();
        put_data_header(&mut wire, 7, u32::try_from(payload.len()).unwrap());
        wire.extend_from_slice(&payload);
        for frame in &frames {
            frame.encode(&mut wire);
            // An optional frame of a later version is skipped wherever it stands.
            wire.extend_from_slice(&[200, 0, 0, 3, 0, 0, 0, 0, 1, 2, 3]);
        }
        prop_assert_eq!(decode_all(&wire, portion), Ok((frames, payload)));
    }

    #[test]
    fn mangled_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..256)) {
        fuzz::decode(&data);
    }

    #[test]
    fn mangled_frames_never_panic(
        frames in prop::collection::vec(control(), 1..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut wire = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut wire);
        }
        for (index, value) in flips {
            let at = index.index(wire.len());
            wire[at] = value;
        }
        wire.truncate(cut.index(wire.len() + 1));
        fuzz::decode(&wire);
    }

    #[test]
    fn mangled_greetings_never_panic(
        index in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        hello_message in any::<bool>(),
    ) {
        let wire = if hello_message { hello().encode() } else { Answer::Welcome(welcome()).encode() };
        let mut wire = wire.to_vec();
        let at = index.index(wire.len());
        wire[at] = value;
        wire.truncate(cut.index(wire.len() + 1));
        fuzz::decode(&wire);
    }
}

fn hello() -> Hello {
    Hello {
        link: LinkId([1; 16]),
        lane: 0,
        secret: ResumeSecret::new([2; 32]),
        received: 3,
        role: Role::Browser,
        session: SessionName::default(),
        agent: "tunnel-desktop 0.1.0".to_owned(),
        data_max: 4096,
        window: 8192,
    }
}

fn welcome() -> Welcome {
    Welcome {
        link: LinkId([1; 16]),
        received: 4,
        data_max: 4096,
        window: 8192,
        grace: Duration::from_secs(30),
        heartbeat: Duration::from_secs(15),
        agent: "tunnel-server 0.1.0".to_owned(),
    }
}

fn message(wire: Bytes) -> Bytes {
    take_message(&mut BytesMut::from(wire)).unwrap().unwrap()
}

#[test]
fn greetings_round_trip() {
    let read = Hello::decode(message(hello().encode())).unwrap();
    assert_eq!(
        (read.link, read.received, read.role),
        (hello().link, 3, Role::Browser)
    );
    assert_eq!(read.secret.expose(), &[2; 32]);
    assert_eq!(
        (read.session, read.agent),
        (SessionName::default(), hello().agent)
    );
    assert_eq!((read.data_max, read.window), (4096, 8192));

    let refused = Answer::Refused(Refusal::new(RefusalCode::UnknownLink, "no such link"));
    for answer in [Answer::Welcome(welcome()), refused] {
        assert_eq!(Answer::decode(message(answer.encode())), Ok(answer));
    }
}

#[test]
fn greetings_leave_what_follows() {
    let mut buffer = BytesMut::from(hello().encode());
    buffer.extend_from_slice(b"frames");
    assert!(take_message(&mut buffer).unwrap().is_some());
    assert_eq!(&buffer[..], b"frames");
    assert_eq!(take_message(&mut BytesMut::from(&[0, 9, 1][..])), Ok(None));
}

#[test]
fn strangers_and_other_versions_are_told_apart() {
    let http = BytesMut::from(&b"HTTP/1.1 400 Bad Request\r\n"[..]);
    assert_eq!(
        take_message(&mut http.clone()),
        Err(InvalidGreeting::TooLong(0x4854))
    );
    let mut other = message(hello().encode()).to_vec();
    other[6] = 9;
    assert_eq!(
        Hello::decode(other.clone().into()).unwrap_err(),
        InvalidGreeting::Version(9)
    );
    other[1] = b'X';
    assert_eq!(
        Hello::decode(other.into()).unwrap_err(),
        InvalidGreeting::Stranger
    );
    assert_eq!(
        Answer::decode(message(hello().encode())).unwrap_err(),
        InvalidGreeting::Stranger
    );
}

#[test]
fn session_names_are_checked() {
    for good in ["default", "a", "A.b_c-9", &"x".repeat(64)] {
        assert!(SessionName::new(good).is_ok(), "{good}");
    }
    for bad in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
        assert_eq!(SessionName::new(bad), Err(InvalidSessionName), "{bad}");
    }
}

#[test]
fn secrets_are_not_printed() {
    assert_eq!(
        format!("{:?}", ResumeSecret::new([0x41; 32])),
        "ResumeSecret(..)"
    );
}

#[test]
fn the_bytes_of_an_open_are_as_documented() {
    let mut wire = BytesMut::new();
    Control::Open {
        stream: 0x0102_0304,
        credit: 0x0a0b_0c0d,
        open: Open {
            kind: OpenKind::Tunnel(Target::new("ab", 0x1f40).unwrap()),
            initiator: "x".to_owned(),
        },
    }
    .encode(&mut wire);
    assert_eq!(
        &wire[..],
        &[
            1, 0, 0, 11, 1, 2, 3, 4, 0, 10, 11, 12, 13, 0x1f, 0x40, 2, b'a', b'b', b'x'
        ]
    );
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut wire = BytesMut::new();
    Control::Reset {
        stream: 1,
        error: TunnelError::new(TunnelErrorCode::Internal, "ä".repeat(200) + "b"),
    }
    .encode(&mut wire);
    let (frames, _) = decode_all(&wire, 1000).unwrap();
    let [Control::Reset { error, .. }] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(error.message, "ä".repeat(128));
}

#[test]
fn each_malformed_frame_is_named() {
    let cases: [(&[u8], ProtocolError); 9] = [
        (&[0, 0, 0, 0, 0, 0, 0, 1], ProtocolError::UnknownType(0)),
        (&[127, 0, 0, 0, 0, 0, 0, 1], ProtocolError::UnknownType(127)),
        (
            &[5, 0, 0, 1, 0, 0, 0, 1],
            ProtocolError::Length { kind: 5, length: 1 },
        ),
        (
            &[6, 0, 2, 0, 0, 0, 0, 1],
            ProtocolError::Length {
                kind: 6,
                length: 512,
            },
        ),
        (
            &[3, 0, 4, 1, 0, 0, 0, 1],
            ProtocolError::DataLength {
                length: 1025,
                max: 1024,
            },
        ),
        (
            &[7, 0, 0, 8, 0, 0, 0, 1],
            ProtocolError::MisplacedStream { kind: 7, stream: 1 },
        ),
        (
            &[3, 0, 0, 1, 0, 0, 0, 0],
            ProtocolError::MisplacedStream { kind: 3, stream: 0 },
        ),
        (
            &[1, 0, 0, 8, 0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0],
            ProtocolError::Kind(9),
        ),
        (
            &[6, 0, 0, 3, 0, 0, 0, 1, 0, 1, 0xff],
            ProtocolError::Text(6),
        ),
    ];
    for (wire, error) in cases {
        assert_eq!(decode_all(wire, 3), Err(error));
    }
}
