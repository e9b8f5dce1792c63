//! Carriers as a network and the proxies on it treat them: slow, held back, cut short, dead without a word.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::random::Random;

/// What a socket and the proxies behind it take before a sender has to wait.
const QUEUE_BYTES: usize = 64 * 1024;

/// Names a carrier: its place in the order in which they were dialled.
pub(super) type CarrierId = usize;

/// One direction of a carrier.
pub(super) struct Way {
    /// Bytes per second.
    pub(super) rate: u64,
    /// Time from one end to the other.
    pub(super) delay: Duration,
    /// Until when nothing comes out, however much has come in.
    pub(super) held_until: Duration,
    /// Bytes after which the carrier is cut.
    left: u64,
    free_at: Duration,
    flying: VecDeque<(Duration, Bytes)>,
    queued: usize,
    dead: bool,
}

impl Way {
    /// Whether it takes more.
    pub(super) fn has_room(&self) -> bool {
        self.queued < QUEUE_BYTES
    }

    /// Takes `bytes`, which it delivers in packets that have nothing to do with frames. Returns whether this was too
    /// much for the carrier, which is then to be cut.
    pub(super) fn send(&mut self, mut bytes: Bytes, now: Duration, random: &mut Random) -> bool {
        let kept = bytes
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let cut = kept < bytes.len();
        bytes.truncate(kept);
        self.left -= kept as u64;
        if self.dead {
            return false;
        }
        while !bytes.is_empty() {
            let packet = bytes.split_to(random.size(1..=16 * 1024).min(bytes.len()));
            let took = Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / self.rate);
            self.free_at = self.free_at.max(now) + took;
            let last = self.flying.back().map_or(now, |(at, _)| *at);
            self.queued += packet.len();
            self.flying
                .push_back((last.max(self.free_at + self.delay), packet));
        }
        cut
    }

    /// What comes out by `now`.
    fn receive(&mut self, now: Duration) -> Option<Bytes> {
        if now < self.held_until {
            return None;
        }
        let (_, packet) = self.flying.pop_front_if(|(at, _)| *at <= now)?;
        self.queued -= packet.len();
        Some(packet)
    }

    fn next_time(&self) -> Option<Duration> {
        let (at, _) = self.flying.front()?;
        Some(self.held_until.max(*at))
    }

    /// Takes nothing more, and loses all but some of what is under way: the end of that in the middle of a packet.
    fn cut(&mut self, random: &mut Random) {
        self.dead = true;
        let kept = random.size(0..=self.flying.len());
        self.flying.truncate(kept);
        if let Some((_, packet)) = self.flying.back_mut() {
            packet.truncate(random.size(1..=packet.len()));
        }
        self.queued = self.flying.iter().map(|(_, packet)| packet.len()).sum();
    }
}

/// One end of a carrier.
#[derive(Default)]
pub(super) struct End {
    /// Whether it is held.
    pub(super) open: bool,
    /// Bytes of the peer's greeting.
    pub(super) greeting: BytesMut,
    /// Whether the greeting is over and the numbered bytes follow.
    pub(super) greeted: bool,
    /// When whoever holds it notices that the carrier is dead; unless it does by itself.
    gone_at: Option<Duration>,
}

/// One carrier: ends and ways are the client's first. A way is the one of the half that sends.
pub(super) struct Carrier {
    pub(super) ways: [Way; 2],
    pub(super) ends: [End; 2],
}

impl Carrier {
    /// A carrier that the network of the seed grants; `short` ones die within the first bytes.
    pub(super) fn new(short: bool, random: &mut Random) -> Self {
        let ways = std::array::from_fn(|_| Way {
            rate: [16 << 10, 256 << 10, 12 << 20, 125 << 20][random.size(0..=3)],
            delay: random.millis(0..=150),
            held_until: Duration::ZERO,
            left: if short {
                random.within(0..=600)
            } else if random.one_in(4) {
                random.within(0..=400_000)
            } else {
                u64::MAX
            },
            free_at: Duration::ZERO,
            flying: VecDeque::new(),
            queued: 0,
            dead: false,
        });
        let ends = std::array::from_fn(|_| End {
            open: true,
            ..End::default()
        });
        Self { ways, ends }
    }

    /// The carrier dies. Each end learns of it at once, late, or never.
    pub(super) fn cut(&mut self, now: Duration, random: &mut Random) {
        for (way, end) in self.ways.iter_mut().zip(&mut self.ends) {
            way.cut(random);
            let notice = match random.within(0..=3) {
                0 | 1 => Some(now),
                2 => Some(now + random.millis(0..=8_000)),
                _ => None,
            };
            end.gone_at = [end.gone_at, notice].into_iter().flatten().min();
        }
    }

    /// The half `at` lets go of it; the other learns when what was sent before has arrived.
    pub(super) fn close(&mut self, at: usize, now: Duration) {
        self.ends[at].open = false;
        let [ours, theirs] = [at, 1 - at];
        if !self.ways[ours].dead {
            let last = self.ways[ours].flying.back().map_or(now, |(at, _)| *at);
            let arrived = last.max(now);
            self.ends[theirs].gone_at.get_or_insert(arrived);
        }
        self.ways[ours].dead = true;
    }

    /// What arrives at the half `at` by `now`.
    pub(super) fn receive(&mut self, at: usize, now: Duration) -> Option<Bytes> {
        self.ways[1 - at].receive(now)
    }

    /// Whether the half `at` notices by `now` that the carrier is dead.
    pub(super) fn is_gone(&self, at: usize, now: Duration) -> bool {
        self.ends[at].gone_at.is_some_and(|gone| gone <= now)
    }

    /// When something happens at an end that is held.
    pub(super) fn next_time(&self) -> Option<Duration> {
        let times = self.ends.iter().zip(self.ways.iter().rev());
        times
            .filter(|(end, _)| end.open)
            .flat_map(|(end, way)| [end.gone_at, way.next_time()])
            .flatten()
            .min()
    }
}
