//! What the lane sends: batches of frames for one vectored write each.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{CONTROL_BYTES_MAX, Event, Lane};
use crate::limits::{DATA_FRAME_BYTES, REPLAY_BYTES};
use crate::link::frame::{Control, HEADER_BYTES, put_data_header};
use crate::link::schedule::Turn;
use crate::link::stream::End;

/// A batch is closed once it holds this much: one bulk frame. What becomes urgent meanwhile waits for
/// no more than that.
const BATCH_BYTES: usize = DATA_FRAME_BYTES;

/// Segments of a batch: what one vectored write takes on common systems (1,024), with room to spare.
const BATCH_SEGMENTS: usize = 256;

/// Batch and frame size while something small shares the carrier with bulk.
const INTERACTIVE_BATCH_BYTES: usize = 64 * 1024;

/// How long after something small its neighbourship with bulk still shortens the batches: longer than the pause
/// between two keystrokes, and than a long batch takes on a slow line.
const INTERACTIVE_MEMORY: Duration = Duration::from_secs(1);

/// Pieces up to this size are copied next to their header: cheaper than a segment of their own, and
/// they do not keep a large buffer alive until the peer acknowledges them.
const COPY_BYTES: usize = 1024;

/// Space for headers and copies, allocated as one.
const SCRATCH_BYTES: usize = 4 * 1024;

impl Lane {
    /// Appends the next bytes for the carrier to `out`, as few segments as possible, and returns how many
    /// bytes they are; 0 when nothing is to be sent now. At most about 256 KiB at a time: call it when
    /// the last batch was written, not earlier, so that what is urgent can still go first.
    pub fn poll_transmit(&mut self, out: &mut Vec<Bytes>, now: Duration) -> usize {
        if !self.up {
            return 0;
        }
        if self.replay.is_behind() {
            return self.replay.next_batch(out, BATCH_BYTES, BATCH_SEGMENTS);
        }
        let mut batch = Batch {
            first: out.len(),
            out,
            scratch: std::mem::take(&mut self.scratch),
            sealed: 0,
        };
        self.write_control(&mut batch, now);
        if !self.gone_away {
            self.write_data(&mut batch, now);
        }
        batch.seal();
        let bytes = batch.sealed;
        self.scratch = batch.scratch;
        for segment in batch.out.get(batch.first..).unwrap_or_default() {
            self.replay.push(segment.clone());
        }
        bytes
    }

    /// What the carrier still has to take before it is closed: everything up to this half's `GOAWAY`, if one was asked
    /// for. To be called once a carrier, after [`Self::carrier_lost`]; what comes is bounded by the replay buffer.
    pub fn last_words(&mut self, out: &mut Vec<Bytes>, now: Duration) {
        if self.going_away.is_none() && !self.gone_away {
            return;
        }
        self.up = true;
        while (!self.gone_away || self.replay.is_behind()) && self.poll_transmit(out, now) > 0 {}
        self.up = false;
    }

    fn write_control(&mut self, batch: &mut Batch<'_>, now: Duration) {
        if self.gone_away {
            return;
        }
        if self.ack_due {
            self.ack_due = false;
            self.acknowledged = self.received;
            self.acknowledged_at = now;
            self.data_unacknowledged = false;
            Control::Ack(self.received).encode(batch.scratch());
        }
        // A peer that acknowledges nothing gets nothing more, not even answers.
        let stuck = self.replay.len() >= REPLAY_BYTES + CONTROL_BYTES_MAX;
        if !stuck {
            if let Some(nonce) = self.pong.take() {
                Control::Pong(nonce).encode(batch.scratch());
            }
            if let Some(nonce) = self.pulse.take_due() {
                Control::Ping(nonce).encode(batch.scratch());
            }
            if !self.control.is_empty() {
                batch.push(std::mem::take(&mut self.control).freeze());
            }
            while let Some(id) = self.grants.pop_front() {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.receive.grant_queued = false;
                    let bytes = stream.receive.take_grant();
                    if bytes > 0 {
                        Control::Credit { stream: id, bytes }.encode(batch.scratch());
                    }
                }
            }
        }
        if let Some(frame) = self.going_away.take() {
            frame.encode(batch.scratch());
            self.gone_away = true;
        }
    }

    fn write_data(&mut self, batch: &mut Batch<'_>, now: Duration) {
        let mut wrote = false;
        while self.replay.len() + batch.len() < REPLAY_BYTES
            && batch.out.len() < batch.first + BATCH_SEGMENTS
        {
            let limit = if now < self.interactive_until {
                INTERACTIVE_BATCH_BYTES
            } else {
                BATCH_BYTES
            };
            if batch.len() >= limit {
                break;
            }
            let Some(id) = self.schedule.take() else {
                break;
            };
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            let queued = stream.send.queued;
            if stream.send.rate.note(queued, now) {
                self.bulk_until = now + INTERACTIVE_MEMORY;
            } else if queued > 0 && now < self.bulk_until {
                self.interactive_until = now + INTERACTIVE_MEMORY;
            }
            let share = match stream.turn {
                Turn::Fresh(left) if !self.schedule.is_empty() => left,
                _ => limit,
            };
            let size = queued.min(share).min(self.config.peer_data_max as usize);
            if size > 0 {
                wrote = true;
                let length = u32::try_from(size).unwrap_or(u32::MAX);
                put_data_header(batch.scratch(), id, length);
                stream.send.take(size, |piece| batch.push(piece));
                self.queued -= size;
                self.events.push_back(Event::Sent {
                    stream: id,
                    bytes: size,
                });
            }
            if stream.send.queued == 0 && stream.send.end == End::Wanted {
                stream.send.end = End::Sent;
                Control::End { stream: id }.encode(batch.scratch());
            }
            let more = stream.send.is_ready();
            self.schedule.put_back(id, &mut stream.turn, size, more);
            self.finish_if_over(id);
        }
        if wrote {
            self.pulse.measure(now);
        }
    }
}

/// A batch in the making.
struct Batch<'a> {
    out: &'a mut Vec<Bytes>,
    /// Where the batch starts in `out`.
    first: usize,
    scratch: BytesMut,
    /// Bytes in `out`, without those in `scratch`.
    sealed: usize,
}

impl Batch<'_> {
    fn len(&self) -> usize {
        self.sealed + self.scratch.len()
    }

    /// Where to append a frame.
    fn scratch(&mut self) -> &mut BytesMut {
        if self.scratch.capacity() - self.scratch.len() < HEADER_BYTES {
            self.scratch.reserve(SCRATCH_BYTES);
        }
        &mut self.scratch
    }

    /// Appends bytes, by copying them when they are few.
    fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_BYTES {
            self.scratch().extend_from_slice(&bytes);
        } else {
            self.seal();
            self.sealed += bytes.len();
            self.out.push(bytes);
        }
    }

    /// Turns what was appended into a segment.
    fn seal(&mut self) {
        if !self.scratch.is_empty() {
            self.sealed += self.scratch.len();
            self.out.push(self.scratch.split().freeze());
        }
    }
}
