//! What uses the streams of one half: it opens, writes, reads, dawdles, ends and gives up, and checks every byte.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;

use super::random::Random;
use crate::link::*;
use crate::target::{TunnelError, TunnelErrorCode};

/// Streams that each half opens over a run, at most.
const OPENS: usize = 6;

/// What travels is cut out of this. Its length is a prime, so no loss of a round number of bytes goes unnoticed.
const TABLE_BYTES: usize = 1_048_573;

static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = Random::new(0);
    (0..TABLE_BYTES)
        .map(|_| u8::try_from(random.within(0..=255)).unwrap())
        .collect()
});

/// The next piece, of at most `length` bytes, of what the client or the server sends on a stream.
fn pattern(stream: StreamId, by: usize, offset: u64, length: usize) -> Bytes {
    let start = u64::from(stream) * 7_919 + by as u64 * 104_729 + offset;
    let start = usize::try_from(start % TABLE_BYTES as u64).unwrap();
    TABLE.slice(start..TABLE_BYTES.min(start + length))
}

/// How a stream was over for one half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// Both directions ended, and all was read.
    Over,
    /// This half gave it up.
    GivenUp,
    /// The other half gave it up.
    Reset,
    /// The link was lost.
    LinkLost,
}

/// One half's part in a stream.
#[derive(Debug)]
pub(super) struct Talk {
    size: u64,
    pub(super) sent: u64,
    pub(super) ended: bool,
    /// Whether it answers only once it has heard all of the question.
    answers: bool,
    /// When it loses patience.
    gives_up_at: Option<Duration>,
    pub(super) read: u64,
    pub(super) read_end: bool,
    unread: usize,
    /// Bytes it reads each time it is looked at, from a moment on.
    pace: usize,
    reads_from: Duration,
    pub(super) fate: Option<Fate>,
}

impl Talk {
    fn new(opener: bool, now: Duration, random: &mut Random) -> Self {
        let size = match random.within(0..=9) {
            0 => 0,
            1..=4 => random.within(1..=300),
            5..=7 => random.within(1..=40_000),
            8 => random.within(1..=400_000),
            _ => random.within(1..=1_500_000),
        };
        Self {
            size,
            sent: 0,
            ended: false,
            answers: !opener && random.one_in(3),
            gives_up_at: random.one_in(6).then(|| now + random.millis(0..=20_000)),
            read: 0,
            read_end: false,
            unread: 0,
            pace: [700, 20_000, usize::MAX][random.size(0..=2)],
            reads_from: if random.one_in(4) {
                now + random.millis(0..=15_000)
            } else {
                now
            },
            fate: None,
        }
    }
}

/// The streams of one half.
pub(super) struct Application {
    /// 0 for the client, 1 for the server.
    at: usize,
    opens: Vec<Duration>,
    pub(super) talks: BTreeMap<StreamId, Talk>,
    budget: Arc<Budget>,
}

impl Application {
    pub(super) fn new(at: usize, budget: Arc<Budget>, random: &mut Random) -> Self {
        let count = random.size(1..=OPENS);
        let mut opens: Vec<_> = (0..count).map(|_| random.millis(0..=40_000)).collect();
        opens.sort_by(|a, b| b.cmp(a));
        Self {
            at,
            opens,
            talks: BTreeMap::new(),
            budget,
        }
    }

    /// Whether it has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.opens.is_empty() && self.talks.values().all(|talk| talk.fate.is_some())
    }

    /// Does a little of what it wants.
    pub(super) fn act(&mut self, lane: &mut Lane, now: Duration, random: &mut Random) {
        while self.opens.pop_if(|at| *at <= now).is_some() {
            let id = lane.open(Open::call(), now).unwrap();
            self.talks.insert(id, Talk::new(true, now, random));
        }
        for (&id, talk) in &mut self.talks {
            if talk.fate.is_some() {
                continue;
            }
            if talk.gives_up_at.is_some_and(|at| at <= now) {
                talk.fate = Some(Fate::GivenUp);
                self.budget.release(std::mem::take(&mut talk.unread));
                lane.reset(id, TunnelError::new(TunnelErrorCode::Cancelled, "gave up"));
                continue;
            }
            if now >= talk.reads_from && talk.unread > 0 {
                let bytes = talk.unread.min(talk.pace);
                talk.unread -= bytes;
                self.budget.release(bytes);
                lane.consumed(id, bytes, now);
            }
            if talk.ended || (talk.answers && !talk.read_end) {
                continue;
            }
            let left = talk.size - talk.sent;
            let wanted = usize::try_from(left).unwrap().min(random.size(1..=200_000));
            let room = lane.send_capacity(id).min(wanted);
            let bytes = pattern(id, self.at, talk.sent, room);
            talk.sent += bytes.len() as u64;
            lane.send(id, bytes).unwrap();
            if talk.sent == talk.size {
                talk.ended = true;
                lane.end(id);
            }
        }
    }

    /// Takes the lane's news and checks them.
    pub(super) fn hear(&mut self, lane: &mut Lane, now: Duration, random: &mut Random) {
        while let Some(event) = lane.poll_event() {
            match event {
                Event::Incoming { stream, .. } => {
                    let before = self.talks.insert(stream, Talk::new(false, now, random));
                    assert!(before.is_none(), "stream {stream} was opened twice");
                    lane.accept(stream, String::new());
                }
                Event::Data { stream, bytes } => {
                    let by = 1 - self.at;
                    let Some(talk) = self.live(stream) else {
                        continue;
                    };
                    assert!(!talk.read_end, "bytes behind the end");
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let expected = pattern(stream, by, talk.read, rest.len());
                        assert!(
                            rest[..expected.len()] == expected,
                            "bytes of stream {stream} were lost, repeated or altered at {}",
                            talk.read
                        );
                        talk.read += expected.len() as u64;
                        rest = &rest[expected.len()..];
                    }
                    talk.unread += bytes.len();
                    self.budget.charge(bytes.len());
                }
                Event::End { stream } => {
                    if let Some(talk) = self.live(stream) {
                        assert!(!talk.read_end, "a second end of stream {stream}");
                        talk.read_end = true;
                    }
                }
                Event::Over { stream } => {
                    if let Some(talk) = self.live(stream) {
                        assert!(talk.ended && talk.read_end && talk.unread == 0);
                        talk.fate = Some(Fate::Over);
                    }
                }
                Event::Reset { stream, error } => {
                    assert_eq!(error.code, TunnelErrorCode::Cancelled, "{error}");
                    if let Some(talk) = self.live(stream) {
                        talk.fate = Some(Fate::Reset);
                        let unread = std::mem::take(&mut talk.unread);
                        self.budget.release(unread);
                    }
                }
                Event::Opened { .. } | Event::Writable { .. } | Event::Sent { .. } => {}
                Event::GoAway { code, text } => panic!("{code:?}: {text}"),
            }
        }
        let unread: usize = self.talks.values().map(|talk| talk.unread).sum();
        assert_eq!(self.budget.used(), unread);
        assert_eq!(lane.stats().buffered, unread);
    }

    /// The link is over: so is every stream, and no new one is opened.
    pub(super) fn lose(&mut self) {
        self.opens.clear();
        for talk in self.talks.values_mut() {
            talk.fate.get_or_insert(Fate::LinkLost);
            self.budget.release(std::mem::take(&mut talk.unread));
        }
    }

    fn live(&mut self, stream: StreamId) -> Option<&mut Talk> {
        self.talks
            .get_mut(&stream)
            .filter(|talk| talk.fate.is_none())
    }
}
