//! Whose turn it is to send: streams with data take turns by bytes, and those that send little go first.
//!
//! Two rings, after the idea of flow queueing (RFC 8290, section 4.2): a stream that had nothing to
//! send enters the ring of fresh streams, which is served first, and moves to the ring of bulk streams
//! once it sent [`FRESH_BYTES`] or ran empty while bulk waits. So a keystroke passes bulk, and a
//! stream that only looks small cannot starve it. Every turn in the bulk ring is worth the same bytes,
//! and payloads can be cut anywhere, so no deficit has to be carried over.

use std::collections::VecDeque;

/// What a stream may send ahead of bulk each time it becomes active.
pub(super) const FRESH_BYTES: usize = 16 * 1024;

/// Where a stream stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Turn {
    /// In no ring.
    #[default]
    Idle,
    /// In the ring of fresh streams, with this many bytes left to send from there.
    Fresh(usize),
    /// In the ring of bulk streams.
    Bulk,
}

/// The two rings. Ids of streams that are gone may linger in them; who takes a turn checks.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    fresh: VecDeque<u32>,
    bulk: VecDeque<u32>,
}

impl Schedule {
    /// Puts a stream that has something to send into the ring of fresh ones, unless it is in one.
    pub(super) fn activate(&mut self, id: u32, turn: &mut Turn) {
        if *turn == Turn::Idle {
            *turn = Turn::Fresh(FRESH_BYTES);
            self.fresh.push_back(id);
        }
    }

    /// Takes the stream whose turn it is out of its ring; give it back with [`Self::put_back`].
    pub(super) fn take(&mut self) -> Option<u32> {
        self.fresh.pop_front().or_else(|| self.bulk.pop_front())
    }

    /// Whether no stream waits for its turn.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.bulk.is_empty()
    }

    /// Puts a stream back after its turn, in which it sent `sent` bytes and was left with data or not.
    pub(super) fn put_back(&mut self, id: u32, turn: &mut Turn, sent: usize, has_more: bool) {
        *turn = match *turn {
            Turn::Fresh(left) if has_more && left > sent => {
                self.fresh.push_front(id);
                Turn::Fresh(left - sent)
            }
            // Ran empty while bulk waits: it queues there once, or a stream that sends in many small
            // portions would be fresh for ever.
            Turn::Fresh(_) if has_more || !self.bulk.is_empty() => {
                self.bulk.push_back(id);
                Turn::Bulk
            }
            Turn::Bulk if has_more => {
                self.bulk.push_back(id);
                Turn::Bulk
            }
            Turn::Fresh(_) | Turn::Bulk | Turn::Idle => Turn::Idle,
        };
    }
}
