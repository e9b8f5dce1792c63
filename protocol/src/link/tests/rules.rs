//! One lane against a hand-written peer: every rule a peer can break, and the timers.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::limits::{HEARTBEAT, HEARTBEAT_TIMEOUT};
use crate::link::frame::{Control, put_data_header};
use crate::link::*;
use crate::target::{TunnelError, TunnelErrorCode};

const NOW: Duration = Duration::ZERO;

fn lane(window: u32) -> Lane {
    let mut lane = Lane::new(
        LaneConfig {
            side: Side::Server,
            data_max: 1024,
            window,
            peer_data_max: 1024,
            peer_window: 1024,
            streams_max: 2,
            heartbeat: HEARTBEAT,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            budget: Arc::new(Budget::new(1 << 20)),
        },
        NOW,
    );
    lane.carrier_up(0, NOW).unwrap();
    lane
}

fn open(stream: u32) -> Control {
    Control::Open {
        stream,
        credit: 1000,
        open: Open::call(),
    }
}

fn feed(lane: &mut Lane, frames: &[Control]) -> Result<(), ProtocolError> {
    let mut wire = BytesMut::new();
    for frame in frames {
        frame.encode(&mut wire);
    }
    lane.receive(wire.freeze(), NOW)
}

fn data(stream: u32, length: usize) -> Bytes {
    let mut wire = BytesMut::new();
    put_data_header(&mut wire, stream, u32::try_from(length).unwrap());
    wire.extend_from_slice(&vec![0; length]);
    wire.freeze()
}

fn events(lane: &mut Lane) -> Vec<Event> {
    std::iter::from_fn(|| lane.poll_event()).collect()
}

/// All that the lane sends now.
fn sent(lane: &mut Lane, now: Duration) -> Vec<u8> {
    let mut out = Vec::new();
    while lane.poll_transmit(&mut out, now) > 0 {}
    out.concat()
}

#[test]
fn each_broken_rule_is_named() {
    let end = |stream| Control::End { stream };
    let credit = |bytes| Control::Credit { stream: 1, bytes };
    let opened = |stream| Control::Opened {
        stream,
        credit: 0,
        text: String::new(),
    };
    let cases: [(&[Control], ProtocolError); 9] = [
        (&[open(2)], ProtocolError::StreamId(2)),
        (&[open(3), open(3)], ProtocolError::StreamId(3)),
        (&[open(3), open(1)], ProtocolError::StreamId(1)),
        (&[open(1), end(1), end(1)], ProtocolError::AfterEnd(1)),
        (&[end(1)], ProtocolError::unopened_data(1)),
        (&[end(2)], ProtocolError::unopened_data(2)),
        (
            &[open(1), credit(u32::MAX)],
            ProtocolError::CreditOverflow(1),
        ),
        (&[open(1), opened(1)], ProtocolError::Unasked(1)),
        (&[Control::Ack(1)], ProtocolError::Acknowledgement(1)),
    ];
    for (frames, error) in cases {
        assert_eq!(feed(&mut lane(1024), frames), Err(error));
    }
}

#[test]
fn data_beyond_the_credit_resets_that_stream_alone() {
    let mut lane = lane(1024);
    feed(&mut lane, &[open(1), open(3)]).unwrap();
    lane.receive(data(1, 1024), NOW).unwrap();
    lane.receive(data(1, 1), NOW).unwrap();
    lane.receive(data(1, 1), NOW).unwrap();
    lane.receive(data(3, 5), NOW).unwrap();
    let events = events(&mut lane);
    assert!(events.iter().any(|event| matches!(
        event,
        Event::Reset { stream: 1, error } if error.code == TunnelErrorCode::FlowControl
    )));
    assert!(matches!(events.last(), Some(Event::Data { stream: 3, bytes }) if bytes.len() == 5));
    assert_eq!(lane.stats().streams, 1);
    assert_eq!(lane.stats().buffered, 5);
}

#[test]
fn one_stream_too_many_is_refused_without_harm() {
    let mut lane = lane(1024);
    feed(&mut lane, &[open(1), open(3), open(5)]).unwrap();
    lane.receive(data(5, 9), NOW).unwrap();
    assert_eq!(lane.stats().streams, 2);
    assert!(
        events(&mut lane)
            .iter()
            .all(|event| matches!(event, Event::Incoming { .. }))
    );
    let reset = Control::Reset {
        stream: 1,
        error: TunnelError::new(TunnelErrorCode::Reset, ""),
    };
    feed(&mut lane, &[reset, open(7)]).unwrap();
    assert_eq!(lane.stats().streams, 2);
}

#[test]
fn the_tail_of_a_reset_stream_is_ignored() {
    let mut lane = lane(1024);
    feed(&mut lane, &[open(1)]).unwrap();
    lane.reset(1, TunnelError::new(TunnelErrorCode::Cancelled, "cancelled"));
    lane.receive(data(1, 1024), NOW).unwrap();
    lane.receive(data(1, 1024), NOW).unwrap();
    feed(&mut lane, &[Control::End { stream: 1 }]).unwrap();
    assert_eq!(lane.stats().buffered, 0);
    assert!(matches!(events(&mut lane)[..], [Event::Incoming { .. }]));
}

#[test]
fn payloads_are_handed_on_as_they_arrive() {
    let mut lane = lane(1024);
    feed(&mut lane, &[open(1)]).unwrap();
    events(&mut lane);
    let wire = data(1, 1000);
    lane.receive(wire.slice(..18), NOW).unwrap();
    assert!(matches!(&events(&mut lane)[..], [Event::Data { bytes, .. }] if bytes.len() == 10));
    lane.receive(wire.slice(18..), NOW).unwrap();
    assert!(matches!(&events(&mut lane)[..], [Event::Data { bytes, .. }] if bytes.len() == 990));
}

#[test]
fn a_flood_of_opens_that_takes_no_answers_is_an_error() {
    let mut lane = lane(1024);
    let mut id = 1;
    let result = loop {
        let frames: Vec<_> = (0..1000).map(|n| open(id + 2 * n)).collect();
        id += 2000;
        if let Err(error) = feed(&mut lane, &frames) {
            break error;
        }
        events(&mut lane);
    };
    assert_eq!(result, ProtocolError::Flood);
}

#[test]
fn silence_is_pinged_and_then_fatal() {
    let mut lane = lane(1024);
    sent(&mut lane, NOW);
    feed(&mut lane, &[Control::Pong([0; 8])]).unwrap();
    assert_eq!(lane.next_timeout(), Some(HEARTBEAT));
    assert_eq!(lane.handle_timeout(HEARTBEAT), Ok(()));
    assert_eq!(
        sent(&mut lane, HEARTBEAT).len(),
        16 + 16,
        "an acknowledgement and a ping"
    );
    let dead = HEARTBEAT + HEARTBEAT_TIMEOUT;
    assert_eq!(lane.next_timeout(), Some(dead));
    assert_eq!(
        lane.handle_timeout(dead),
        Err(CarrierDead { silence: dead })
    );
    lane.carrier_lost();
    assert_eq!(lane.next_timeout(), None);
}

#[test]
fn any_byte_is_a_sign_of_life() {
    let mut lane = lane(1024);
    sent(&mut lane, NOW);
    feed(&mut lane, &[Control::Pong([0; 8])]).unwrap();
    lane.handle_timeout(HEARTBEAT).unwrap();
    lane.receive(data(1, 0).slice(..3), HEARTBEAT + Duration::from_secs(1))
        .unwrap();
    assert_eq!(
        lane.next_timeout(),
        Some(HEARTBEAT * 2 + Duration::from_secs(1))
    );
    lane.ping(Duration::from_secs(3), HEARTBEAT * 2);
    assert_eq!(
        lane.next_timeout(),
        Some(HEARTBEAT * 2 + Duration::from_secs(3))
    );
}

#[test]
fn a_resume_from_an_unknown_byte_is_refused() {
    let mut lane = lane(1024);
    let bytes = sent(&mut lane, NOW).len() as u64;
    lane.carrier_lost();
    let gap = lane.carrier_up(bytes + 1, NOW).unwrap_err();
    assert_eq!((gap.wanted, gap.first, gap.end), (bytes + 1, 0, bytes));
    lane.carrier_up(bytes, NOW).unwrap();
}

#[test]
fn go_away_is_the_last_frame() {
    let mut lane = lane(1024);
    feed(&mut lane, &[open(1)]).unwrap();
    sent(&mut lane, NOW);
    lane.send(1, Bytes::from_static(b"never")).unwrap();
    lane.go_away(CloseCode::Replaced, "taken over".to_owned());
    let mut expected = BytesMut::new();
    Control::GoAway {
        code: CloseCode::Replaced,
        text: "taken over".to_owned(),
    }
    .encode(&mut expected);
    assert_eq!(sent(&mut lane, NOW), expected);
    assert!(lane.has_gone_away());
    assert_eq!(lane.open(Open::call(), NOW), Err(OpenError::Closing));
}
