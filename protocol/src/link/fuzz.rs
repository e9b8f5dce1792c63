//! Entry points for fuzzing, plain functions over bytes. They must return for every input.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::frame::Decoder;
use super::hello::{Answer, Hello, take_message};
use super::lane::{Event, Lane, LaneConfig, Side, StreamId};
use super::{Budget, Open, WINDOW_MAX};
use crate::target::{TunnelError, TunnelErrorCode};

/// Decodes `data` as greetings and as frames, whole and byte by byte, which must agree; then feeds it to
/// a lane.
pub fn decode(data: &[u8]) {
    let mut buffer = BytesMut::from(data);
    if let Ok(Some(message)) = take_message(&mut buffer) {
        if let Ok(hello) = Hello::decode(message.clone()) {
            assert!(Hello::decode(without_length(hello.encode())).is_ok());
        }
        if let Ok(answer) = Answer::decode(message) {
            assert_eq!(
                Answer::decode(without_length(answer.encode())).as_ref(),
                Ok(&answer)
            );
        }
    }

    let whole = frames(std::iter::once(Bytes::copy_from_slice(data)));
    let split = frames(data.iter().map(|&byte| Bytes::copy_from_slice(&[byte])));
    assert_eq!(whole, split, "the decoder depends on how its input is cut");

    let budget = Arc::new(Budget::new(LANE_BUDGET));
    let mut lane = lane(Side::Server, &budget);
    if lane
        .receive(Bytes::copy_from_slice(data), Duration::ZERO)
        .is_ok()
    {
        let mut out = Vec::new();
        while lane.poll_transmit(&mut out, Duration::ZERO) > 0 {}
    }
}

/// The one message in `encoded`.
fn without_length(encoded: Bytes) -> Bytes {
    let mut buffer = BytesMut::from(encoded);
    let message = take_message(&mut buffer);
    assert!(buffer.is_empty(), "bytes behind the message");
    message.ok().flatten().unwrap_or_default()
}

/// What a decoder made of its input: each control frame, and the sum of the data.
fn frames(input: impl Iterator<Item = Bytes>) -> (Vec<super::frame::Control>, usize, bool) {
    let mut decoder = Decoder::new(FUZZ_DATA_MAX);
    let (mut controls, mut data) = (Vec::new(), 0);
    for mut portion in input {
        loop {
            match decoder.next(&mut portion) {
                Ok(Some(super::frame::Item::Control(control))) => controls.push(control),
                Ok(Some(super::frame::Item::Data { bytes, .. })) => data += bytes.len(),
                Ok(Some(super::frame::Item::DataHeader { .. })) => {}
                Ok(None) => break,
                Err(_) => return (controls, data, true),
            }
        }
    }
    (controls, data, false)
}

const FUZZ_DATA_MAX: u32 = 4096;
const FUZZ_WINDOW: u32 = 4096;
const LANE_BUDGET: usize = 64 * 1024;

/// Streams that one run may hold open on each half.
const FUZZ_STREAMS: usize = 8;

fn lane(side: Side, budget: &Arc<Budget>) -> Lane {
    let config = LaneConfig {
        side,
        data_max: FUZZ_DATA_MAX,
        window: FUZZ_WINDOW,
        peer_data_max: FUZZ_DATA_MAX,
        peer_window: FUZZ_WINDOW,
        streams_max: FUZZ_STREAMS,
        heartbeat: crate::limits::HEARTBEAT,
        heartbeat_timeout: crate::limits::HEARTBEAT_TIMEOUT,
        budget: Arc::clone(budget),
    };
    let mut lane = Lane::new(config, Duration::ZERO);
    let up = lane.carrier_up(0, Duration::ZERO);
    debug_assert!(up.is_ok());
    lane
}

/// Runs a joined pair of lanes through the operations that `data` spells, two bytes each: opens, sends,
/// ends, resets, partial delivery and cuts of the carrier at any byte. Panics when a byte is lost,
/// repeated or altered, when either lane finds the other at fault, or when an account does not add up.
pub fn operations(data: &[u8]) {
    let mut pair = Pair::new();
    for operation in data.chunks_exact(2) {
        if let [code, argument] = *operation {
            pair.apply(code, argument);
        }
    }
    pair.settle();
}

/// What one half knows of a stream.
#[derive(Debug, Default)]
struct Known {
    id: StreamId,
    sent: u64,
    read: u64,
    unread: usize,
    ended: bool,
    read_end: bool,
}

struct Half {
    lane: Lane,
    budget: Arc<Budget>,
    streams: Vec<Known>,
    /// Bytes on their way to this half.
    pipe: VecDeque<u8>,
}

/// Two lanes and the two directions of a carrier between them.
struct Pair {
    halves: [Half; 2],
    now: Duration,
}

/// The byte at `offset` of what one half sends on a stream.
fn pattern(stream: StreamId, by_client: bool, offset: u64) -> u8 {
    let mixed = (u64::from(stream) * 2 + u64::from(by_client)).wrapping_mul(0x9e37_79b9) ^ offset;
    mixed.wrapping_mul(0x85eb_ca6b).to_be_bytes()[4]
}

impl Pair {
    fn new() -> Self {
        Self {
            halves: [Side::Client, Side::Server].map(|side| {
                let budget = Arc::new(Budget::new(LANE_BUDGET));
                Half {
                    lane: lane(side, &budget),
                    budget,
                    streams: Vec::new(),
                    pipe: VecDeque::new(),
                }
            }),
            now: Duration::ZERO,
        }
    }

    fn apply(&mut self, code: u8, argument: u8) {
        self.now += Duration::from_millis(1);
        let at = usize::from(code & 1);
        let amount = usize::from(argument) * 16 + 1;
        match code >> 1 & 7 {
            0 => self.open(at),
            1 => self.send(at, argument, amount),
            2 => self.end(at, argument),
            3 => self.reset(at, argument),
            4 => self.transmit(at),
            5 => self.deliver(at, amount),
            6 => self.consume(at, argument, amount),
            _ if argument < CUT_BELOW => self.cut(),
            _ => self.deliver(at, amount * 16),
        }
    }

    fn half(&mut self, at: usize) -> &mut Half {
        let [client, server] = &mut self.halves;
        if at == 0 { client } else { server }
    }

    fn stream(&mut self, at: usize, argument: u8) -> Option<&mut Known> {
        let streams = &mut self.half(at).streams;
        let index = usize::from(argument).checked_rem(streams.len())?;
        streams.get_mut(index)
    }

    fn open(&mut self, at: usize) {
        let now = self.now;
        let half = self.half(at);
        if let Ok(id) = half.lane.open(Open::call(), now) {
            half.streams.push(Known {
                id,
                ..Known::default()
            });
        }
    }

    fn send(&mut self, at: usize, argument: u8, amount: usize) {
        let Some(stream) = self.stream(at, argument) else {
            return;
        };
        let (id, offset, ended) = (stream.id, stream.sent, stream.ended);
        let half = self.half(at);
        let amount = amount.min(half.lane.send_capacity(id));
        if ended || amount == 0 {
            return;
        }
        let bytes = (offset..offset + amount as u64).map(|at_byte| pattern(id, at == 0, at_byte));
        let sent = half.lane.send(id, bytes.collect());
        assert_eq!(sent, Ok(()), "bytes within the capacity were not taken");
        if let Some(stream) = self.stream(at, argument) {
            stream.sent += amount as u64;
        }
    }

    fn end(&mut self, at: usize, argument: u8) {
        if let Some(stream) = self.stream(at, argument) {
            stream.ended = true;
            let id = stream.id;
            self.half(at).lane.end(id);
        }
    }

    fn reset(&mut self, at: usize, argument: u8) {
        if let Some(stream) = self.stream(at, argument) {
            let id = stream.id;
            let unread = stream.unread;
            let half = self.half(at);
            half.budget.release(unread);
            half.lane.reset(
                id,
                TunnelError::new(TunnelErrorCode::Cancelled, "cancelled"),
            );
            half.streams.retain(|stream| stream.id != id);
        }
    }

    fn transmit(&mut self, at: usize) {
        let now = self.now;
        let half = self.half(at);
        let mut out = Vec::new();
        let bytes = half.lane.poll_transmit(&mut out, now);
        assert_eq!(bytes, out.iter().map(Bytes::len).sum::<usize>());
        self.half(1 - at).pipe.extend(out.iter().flatten());
        self.events(at);
    }

    fn deliver(&mut self, at: usize, amount: usize) {
        let now = self.now;
        let half = self.half(at);
        let amount = amount.min(half.pipe.len());
        let bytes: Bytes = half.pipe.drain(..amount).collect();
        let received = half.lane.receive(bytes, now);
        assert_eq!(received, Ok(()), "a lane finds its peer at fault");
        self.events(at);
    }

    fn consume(&mut self, at: usize, argument: u8, amount: usize) {
        let now = self.now;
        if let Some(stream) = self.stream(at, argument) {
            let amount = amount.min(stream.unread);
            stream.unread -= amount;
            let id = stream.id;
            let half = self.half(at);
            half.budget.release(amount);
            half.lane.consumed(id, amount, now);
            self.events(at);
        }
    }

    /// The carrier dies with everything in it, and a new one takes over.
    fn cut(&mut self) {
        let now = self.now;
        for half in &mut self.halves {
            half.pipe.clear();
            half.lane.carrier_lost();
        }
        let received = [0, 1].map(|at| self.half(at).lane.received());
        for (half, peer) in self.halves.iter_mut().zip(received.into_iter().rev()) {
            assert_eq!(half.lane.carrier_up(peer, now), Ok(()), "a resume failed");
        }
    }

    fn events(&mut self, at: usize) {
        let half = self.half(at);
        while let Some(event) = half.lane.poll_event() {
            let known = |streams: &mut Vec<Known>, id: StreamId| {
                streams.iter().position(|known| known.id == id)
            };
            match event {
                Event::Incoming { stream: id, .. } => {
                    half.streams.push(Known {
                        id,
                        ..Known::default()
                    });
                    half.lane.accept(id, String::new());
                }
                Event::Data { stream: id, bytes } => {
                    let index = known(&mut half.streams, id);
                    if let Some(stream) = index.and_then(|index| half.streams.get_mut(index)) {
                        for &byte in &bytes {
                            assert_eq!(
                                byte,
                                pattern(id, at == 1, stream.read),
                                "a byte was lost, repeated or altered"
                            );
                            stream.read += 1;
                        }
                        stream.unread += bytes.len();
                        half.budget.charge(bytes.len());
                        // The window grows where it is the bound; within it, the lane itself resets who exceeds it.
                        assert!(
                            stream.unread <= WINDOW_MAX as usize,
                            "more than the largest window is buffered"
                        );
                    }
                }
                Event::End { stream: id } => {
                    let index = known(&mut half.streams, id);
                    if let Some(stream) = index.and_then(|index| half.streams.get_mut(index)) {
                        assert!(!stream.read_end, "a second end");
                        stream.read_end = true;
                    }
                }
                Event::Reset { stream: id, error } => {
                    assert_ne!(
                        error.code,
                        TunnelErrorCode::FlowControl,
                        "credit was exceeded"
                    );
                    let index = known(&mut half.streams, id);
                    if let Some(index) = index {
                        half.budget.release(half.streams.swap_remove(index).unread);
                    }
                }
                Event::Over { stream: id } => {
                    let index = known(&mut half.streams, id);
                    if let Some(stream) = index.and_then(|index| half.streams.get(index)) {
                        assert!(
                            stream.read_end && stream.ended && stream.unread == 0,
                            "over too early"
                        );
                    }
                    half.streams.retain(|stream| stream.id != id);
                }
                Event::Opened { .. } | Event::Writable { .. } | Event::Sent { .. } => {}
                Event::GoAway { .. } => unreachable!("nobody closes the link"),
            }
        }
        let unread = half
            .streams
            .iter()
            .map(|stream| stream.unread)
            .sum::<usize>();
        assert_eq!(
            half.budget.used(),
            unread,
            "the budget does not equal what is unread"
        );
        assert_eq!(half.lane.stats().buffered, unread);
    }

    /// Ends every stream and moves everything until both lanes are idle, which must happen.
    fn settle(&mut self) {
        for _ in 0..SETTLE_ROUNDS {
            for at in [0, 1] {
                for index in 0..self.half(at).streams.len() {
                    let argument = u8::try_from(index).unwrap_or(u8::MAX);
                    self.consume(at, argument, usize::MAX);
                    self.end(at, argument);
                }
                self.transmit(at);
                self.deliver(1 - at, usize::MAX);
            }
            let idle = self
                .halves
                .iter()
                .all(|half| half.streams.is_empty() && half.pipe.is_empty());
            if idle {
                break;
            }
        }
        for half in &self.halves {
            let stats = half.lane.stats();
            assert_eq!(
                (stats.streams, stats.queued, stats.buffered),
                (0, 0, 0),
                "a lane does not become idle"
            );
        }
        let [client, server] = &self.halves;
        assert_eq!(client.lane.stats().sent, server.lane.stats().received);
        assert_eq!(server.lane.stats().sent, client.lane.stats().received);
    }
}

/// One in sixteen of the eighth operation cuts the carrier.
const CUT_BELOW: u8 = 16;

/// Each round moves a batch each way; a run queues far less than this many.
const SETTLE_ROUNDS: usize = 10_000;
