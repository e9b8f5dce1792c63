//! The sent bytes that the peer has not acknowledged, kept to be sent again on the next carrier.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// A window over the lane's outgoing byte stream, from the first unacknowledged byte to the last one
/// handed out. After a resume a cursor runs through it once more.
#[derive(Debug, Default)]
pub(super) struct Replay {
    segments: VecDeque<Bytes>,
    /// Offset in the stream of the first byte kept.
    base: u64,
    bytes: usize,
    /// Index of the first segment that the current carrier has not been given.
    cursor: usize,
}

impl Replay {
    /// Offset of the first byte kept: the highest acknowledgement.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Offset behind the last byte ever handed out.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes as u64
    }

    /// Bytes kept.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Keeps `segment`, which the current carrier is given right now.
    pub(super) fn push(&mut self, segment: Bytes) {
        debug_assert!(!self.is_behind(), "new bytes before the replayed ones");
        self.bytes += segment.len();
        self.segments.push_back(segment);
        self.cursor = self.segments.len();
    }

    /// Forgets what lies before `offset`. Returns whether `offset` lies in the window.
    pub(super) fn acknowledge(&mut self, offset: u64) -> bool {
        let Some(mut drop) = offset
            .checked_sub(self.base)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|&bytes| bytes <= self.bytes)
        else {
            return false;
        };
        self.base = offset;
        self.bytes -= drop;
        while let Some(front) = self.segments.front_mut() {
            if front.len() > drop {
                front.advance(drop);
                break;
            }
            drop -= front.len();
            self.segments.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.segments.is_empty() {
            // A burst leaves no memory behind.
            self.segments.shrink_to(SEGMENTS_KEPT);
        }
        true
    }

    /// Starts over for a new carrier.
    pub(super) fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Whether bytes wait to be sent again.
    pub(super) fn is_behind(&self) -> bool {
        self.cursor < self.segments.len()
    }

    /// Hands out the next segments to send again, until `limit` bytes or `count` segments are reached.
    /// Returns how many bytes.
    pub(super) fn next_batch(&mut self, out: &mut Vec<Bytes>, limit: usize, count: usize) -> usize {
        let mut bytes = 0;
        let start = self.cursor;
        for segment in self
            .segments
            .range(start.min(self.segments.len())..)
            .take(count)
        {
            out.push(segment.clone());
            bytes += segment.len();
            self.cursor += 1;
            if bytes >= limit {
                break;
            }
        }
        bytes
    }
}

/// Capacity of the list that an idle lane keeps.
const SEGMENTS_KEPT: usize = 16;
