//! Two lanes joined in simulated time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::limits::{HEARTBEAT, HEARTBEAT_TIMEOUT, INITIAL_WINDOW};
use crate::link::budget::LEAST_WINDOW;
use crate::link::frame::Control;
use crate::link::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_repeated_whatever_happens(
        operations in prop::collection::vec(any::<u8>(), 0..4000),
    ) {
        fuzz::operations(&operations);
    }
}

fn lane(side: Side, budget: &Arc<Budget>) -> Lane {
    let mut lane = Lane::new(
        LaneConfig {
            side,
            data_max: 256 * 1024,
            window: INITIAL_WINDOW,
            peer_data_max: 256 * 1024,
            peer_window: INITIAL_WINDOW.min(EARLY_WINDOW),
            streams_max: 64,
            heartbeat: HEARTBEAT,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            budget: Arc::clone(budget),
        },
        Duration::ZERO,
    );
    lane.carrier_up(0, Duration::ZERO).unwrap();
    lane
}

/// One direction of a line: bytes enter at its rate and come out after its delay. The sender is asked
/// for more only when the last batch has entered, as a socket with a short send queue does.
struct Line {
    free_at: Duration,
    flying: VecDeque<(Duration, Bytes)>,
}

/// Bytes per second of the simulated line, and its delay one way.
const RATE: u64 = 12_500_000;
const DELAY: Duration = Duration::from_millis(5);

/// The smallest step of simulated time.
const TICK: Duration = Duration::from_micros(100);

impl Line {
    fn new() -> Self {
        Self {
            free_at: Duration::ZERO,
            flying: VecDeque::new(),
        }
    }

    fn step(&mut self, from: &mut Lane, to: &mut Lane, now: Duration) {
        while self.free_at <= now {
            let mut out = Vec::new();
            let bytes = from.poll_transmit(&mut out, now);
            if bytes == 0 {
                break;
            }
            for segment in out {
                // A line delivers in packets, not in batches.
                for start in (0..segment.len()).step_by(1500) {
                    let packet = segment.slice(start..segment.len().min(start + 1500));
                    self.free_at = self.free_at.max(now)
                        + Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / RATE);
                    self.flying.push_back((self.free_at + DELAY, packet));
                }
            }
        }
        while let Some((_, packet)) = self.flying.pop_front_if(|(at, _)| *at <= now) {
            to.receive(packet, now).unwrap();
        }
    }
}

/// What a simulation saw.
#[derive(Default)]
struct Seen {
    pings: Vec<Duration>,
    bulk: [usize; 2],
    round_trip: Option<Duration>,
}

/// Ping-pong of 64 bytes on one stream for `length`, beside bulk streams in the directions asked for,
/// which never stop writing and whose readers never stop reading.
fn simulate(upload: usize, download: usize, length: Duration) -> Seen {
    let budget = [
        Arc::new(Budget::new(64 << 20)),
        Arc::new(Budget::new(64 << 20)),
    ];
    let mut client = lane(Side::Client, &budget[0]);
    let mut server = lane(Side::Server, &budget[1]);
    let (mut up, mut down) = (Line::new(), Line::new());
    let mut seen = Seen::default();
    let mut now = Duration::ZERO;

    let ping = client.open(Open::call(), now).unwrap();
    let uploads: Vec<_> = (0..upload)
        .map(|_| client.open(Open::call(), now).unwrap())
        .collect();
    let downloads: Vec<_> = (0..download)
        .map(|_| client.open(Open::call(), now).unwrap())
        .collect();
    let block = Bytes::from(vec![7; 256 * 1024]);
    let mut pinged = None;
    let mut next_ping = Duration::from_millis(50);

    while now < length {
        if pinged.is_none() && now >= next_ping {
            client.send(ping, block.slice(..64)).unwrap();
            pinged = Some(now);
        }
        for (sender, streams) in [(&mut client, &uploads), (&mut server, &downloads)] {
            for &stream in streams {
                // What a stream handle buffers ahead of the lane.
                if sender.stats().queued < 512 * 1024 * streams.len() {
                    let room = sender.send_capacity(stream).min(block.len());
                    if room > 0 {
                        sender.send(stream, block.slice(..room)).unwrap();
                    }
                }
            }
        }
        up.step(&mut client, &mut server, now);
        down.step(&mut server, &mut client, now);
        for (index, lane) in [&mut client, &mut server].into_iter().enumerate() {
            while let Some(event) = lane.poll_event() {
                if let Event::Data { stream, bytes } = event {
                    lane.consumed(stream, bytes.len(), now);
                    if stream != ping {
                        seen.bulk[index] += bytes.len();
                    } else if index == 1 {
                        lane.send(ping, bytes).unwrap();
                    } else {
                        seen.pings
                            .push(now.checked_sub(pinged.take().unwrap()).unwrap());
                        next_ping = now + Duration::from_millis(20);
                    }
                }
            }
        }
        now += TICK;
    }
    seen.round_trip = client.stats().round_trip;
    seen.pings.sort();
    seen
}

fn median(pings: &[Duration]) -> Duration {
    pings[pings.len() / 2]
}

#[test]
fn bulk_does_not_slow_a_ping_pong_beside_it() {
    let length = Duration::from_secs(2);
    let idle = median(&simulate(0, 0, length).pings);
    assert!(idle >= DELAY * 2);
    for (upload, download) in [(1, 0), (0, 1), (1, 1), (4, 4)] {
        let seen = simulate(upload, download, length);
        let busy = median(&seen.pings);
        assert!(
            busy <= idle * 3,
            "{upload} up and {download} down: {busy:?} instead of {idle:?}"
        );
        // And the line is in use meanwhile.
        let capacity = usize::try_from(RATE * length.as_secs()).unwrap();
        for (streams, bytes) in [(download, seen.bulk[0]), (upload, seen.bulk[1])] {
            assert!(
                streams == 0 || bytes > capacity * 9 / 10,
                "{bytes} of {capacity} bytes"
            );
        }
    }
}

#[test]
fn the_round_trip_is_measured() {
    let seen = simulate(0, 0, Duration::from_millis(200));
    let measured = seen.round_trip.unwrap();
    assert!(
        measured >= DELAY * 2 && measured < DELAY * 3,
        "{measured:?}"
    );
}

/// Moves one batch and returns its size.
fn transfer(from: &mut Lane, to: &mut Lane, now: Duration) -> usize {
    let mut out = Vec::new();
    let bytes = from.poll_transmit(&mut out, now);
    for bytes in out {
        to.receive(bytes, now).unwrap();
    }
    bytes
}

/// Moves everything both ways until nothing is left, in no time.
fn exchange(a: &mut Lane, b: &mut Lane, now: Duration) {
    loop {
        if transfer(a, b, now) + transfer(b, a, now) == 0 {
            return;
        }
    }
}

fn drain(lane: &mut Lane, now: Duration, consume: bool) -> usize {
    let mut bytes = 0;
    while let Some(event) = lane.poll_event() {
        if let Event::Data {
            stream,
            bytes: data,
        } = event
        {
            bytes += data.len();
            if consume {
                lane.consumed(stream, data.len(), now);
            }
        }
    }
    bytes
}

#[test]
fn turns_are_fair_by_bytes() {
    let budget = Arc::new(Budget::new(64 << 20));
    let (mut client, mut server) = (lane(Side::Client, &budget), lane(Side::Server, &budget));
    let streams: Vec<_> = (0..3)
        .map(|_| client.open(Open::call(), Duration::ZERO).unwrap())
        .collect();
    // The rest of the first windows is granted.
    exchange(&mut client, &mut server, Duration::ZERO);
    for &stream in &streams {
        // The second one in very small pieces.
        let piece = if stream == streams[1] {
            512
        } else {
            1024 * 1024
        };
        for _ in 0..1024 * 1024 / piece {
            client.send(stream, Bytes::from(vec![0; piece])).unwrap();
        }
    }
    let mut out = Vec::new();
    let mut bytes = 0;
    while bytes < 1536 * 1024 {
        bytes += client.poll_transmit(&mut out, Duration::ZERO);
    }
    for bytes in out {
        server.receive(bytes, Duration::ZERO).unwrap();
    }
    let mut per_stream = [0_usize; 3];
    while let Some(event) = server.poll_event() {
        if let Event::Data { stream, bytes } = event {
            per_stream[streams.iter().position(|&id| id == stream).unwrap()] += bytes.len();
        }
    }
    let (least, most) = (
        per_stream.iter().min().unwrap(),
        per_stream.iter().max().unwrap(),
    );
    assert!(most - least <= 256 * 1024 + 16 * 1024, "{per_stream:?}");
}

#[test]
fn a_window_grows_where_it_is_the_bound() {
    let budget = Arc::new(Budget::new(64 << 20));
    let (mut client, mut server) = (lane(Side::Client, &budget), lane(Side::Server, &budget));
    let stream = client.open(Open::call(), Duration::ZERO).unwrap();
    let mut now = Duration::ZERO;
    // A round trip of 100 ms on which a whole window passes each time.
    let mut capacity = Vec::new();
    for _ in 0..14 {
        let room = client.send_capacity(stream);
        capacity.push(room);
        client.send(stream, Bytes::from(vec![0; room])).unwrap();
        let mut out = Vec::new();
        while client.poll_transmit(&mut out, now) > 0 {}
        now += Duration::from_millis(50);
        for bytes in out {
            server.receive(bytes, now).unwrap();
        }
        drain(&mut server, now, true);
        let mut out = Vec::new();
        while server.poll_transmit(&mut out, now) > 0 {}
        now += Duration::from_millis(50);
        for bytes in out {
            client.receive(bytes, now).unwrap();
        }
        drain(&mut client, now, true);
    }
    assert_eq!(capacity[0], EARLY_WINDOW as usize);
    assert!(capacity.contains(&(INITIAL_WINDOW as usize)));
    assert!(capacity.iter().max().unwrap() <= &(WINDOW_MAX as usize));
    assert_eq!(
        *capacity.last().unwrap(),
        WINDOW_MAX as usize,
        "{capacity:?}"
    );
}

#[test]
fn windows_shrink_as_the_budget_is_promised_and_used() {
    let small = Arc::new(Budget::new(4 << 20));
    let large = Arc::new(Budget::new(64 << 20));
    let (mut client, mut server) = (lane(Side::Client, &small), lane(Side::Server, &large));
    let now = Duration::ZERO;
    let streams: Vec<_> = (0..60)
        .map(|_| client.open(Open::call(), now).unwrap())
        .collect();
    let windows: Vec<_> = streams.iter().map(|&id| client.window(id)).collect();
    assert_eq!(windows[0], 128 * 1024);
    assert!(windows.is_sorted_by(|a, b| a >= b));
    assert_eq!(
        small.promised(),
        windows.iter().map(|&window| window as usize).sum::<usize>()
    );
    exchange(&mut client, &mut server, now);
    drain(&mut server, now, true);
    for &id in &streams {
        let room = server.send_capacity(id);
        server.send(id, Bytes::from(vec![0; room])).unwrap();
    }
    exchange(&mut client, &mut server, now);
    // What is queued is what was promised, and no more.
    let queued = drain(&mut client, now, false);
    assert_eq!(queued, small.promised());
    // While the budget is over, a reader is granted no more than the least window again.
    small.charge(4 << 20);
    assert!(small.is_over());
    client.consumed(streams[0], 128 * 1024, now);
    assert_eq!(client.window(streams[0]), LEAST_WINDOW);
    exchange(&mut client, &mut server, now);
    assert_eq!(server.send_capacity(streams[0]), LEAST_WINDOW as usize);
    small.release(4 << 20);
    drop(client);
    assert_eq!(small.promised(), 0);
}

#[test]
fn unacknowledged_bytes_are_bounded() {
    let budget = Arc::new(Budget::new(1 << 30));
    let mut client = lane(Side::Client, &budget);
    let mut out = Vec::new();
    for _ in 0..40 {
        let stream = client.open(Open::call(), Duration::ZERO).unwrap();
        let mut credit = BytesMut::new();
        let bytes = 1 << 20;
        Control::Credit { stream, bytes }.encode(&mut credit);
        client.receive(credit.freeze(), Duration::ZERO).unwrap();
        client.send(stream, Bytes::from(vec![0; 1 << 20])).unwrap();
        while client.poll_transmit(&mut out, Duration::ZERO) > 0 {}
    }
    let kept = client.stats().unacknowledged;
    assert!(kept <= crate::limits::REPLAY_BYTES + 512 * 1024, "{kept}");
    assert!(client.stats().queued > 20 << 20);
}

#[test]
fn acknowledgements_are_not_acknowledged_for_ever() {
    let budget = Arc::new(Budget::new(64 << 20));
    let (mut client, mut server) = (lane(Side::Client, &budget), lane(Side::Server, &budget));
    let stream = client.open(Open::call(), Duration::ZERO).unwrap();
    exchange(&mut client, &mut server, Duration::ZERO);
    for _ in 0..8 {
        client.send(stream, Bytes::from(vec![0; 1 << 20])).unwrap();
        exchange(&mut client, &mut server, Duration::ZERO);
        drain(&mut server, Duration::ZERO, true);
        exchange(&mut client, &mut server, Duration::ZERO);
    }
    assert!(client.stats().unacknowledged <= 256 * 1024);
    assert!(server.stats().sent < 1024, "{}", server.stats().sent);
    client.send(stream, Bytes::from_static(&[0; 100])).unwrap();
    exchange(&mut client, &mut server, Duration::ZERO);
    assert!(client.stats().unacknowledged >= 100);
    // The next heartbeat frees the rest.
    client.handle_timeout(HEARTBEAT).unwrap();
    exchange(&mut client, &mut server, HEARTBEAT);
    assert!(
        client.stats().unacknowledged < 64,
        "{}",
        client.stats().unacknowledged
    );
}
