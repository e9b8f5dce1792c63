//! The state machine of one lane: a resumable byte stream in each direction that carries many streams.
//!
//! Bytes of the current carrier go in through [`Lane::receive`] and come out of [`Lane::poll_transmit`];
//! what they mean for the streams comes out of [`Lane::poll_event`]. The lane has no carrier at first,
//! and again after [`Lane::carrier_lost`]; everything may still be called then, and what there is to
//! send waits for [`Lane::carrier_up`].
//!
//! Bounds: a stream holds at most its window of unconsumed bytes, and its sender hands over at most the
//! credit it has; sent bytes kept for replay are bounded by [`REPLAY_BYTES`] and [`CONTROL_BYTES_MAX`];
//! control frames waiting to be sent by [`CONTROL_BYTES_MAX`]. A peer that would make the lane exceed
//! them breaks the protocol.

mod inbound;
mod outbound;
mod pulse;

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use self::pulse::Pulse;
use super::budget::Budget;
use super::frame::{CloseCode, Control, Decoder, Open};
use super::replay::Replay;
use super::schedule::{Schedule, Turn};
use super::stream::{End, ReceiveSide, SendSide, Stream};
#[cfg(doc)]
use crate::limits::REPLAY_BYTES;
use crate::target::{TunnelError, TunnelErrorCode};

/// Control frames that may wait, or be kept for replay beyond the data: room for every stream of a full
/// lane to be opened, accepted, granted and reset at once.
pub const CONTROL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// With this much waiting (a long time without a carrier), new streams are refused.
const CONTROL_BYTES_FULL: usize = CONTROL_BYTES_MAX / 2;

/// Most that a greeting announces: what a peer may send on a stream it opens before it hears of it. A request rides with
/// its opening; the rest of the window follows as credit, as the budget allows.
pub const EARLY_WINDOW: u32 = 64 * 1024;

/// Names a stream within its lane: odd when the client opened it, even when the server did.
pub type StreamId = u32;

/// Which half this lane end belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The desktop half, which dials carriers and opens odd streams.
    Client,
    /// The server half, which accepts carriers and opens even streams.
    Server,
}

/// What a lane is made with. The peer's figures come from its greeting.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Which half this is.
    pub side: Side,
    /// Longest `DATA` payload that this half takes, in bytes, as announced.
    pub data_max: u32,
    /// Window of a new stream while the budget allows; at most [`EARLY_WINDOW`] of it was announced.
    pub window: u32,
    /// Longest `DATA` payload that the peer takes.
    pub peer_data_max: u32,
    /// Bytes that this half may send on each stream it opens before it is granted more.
    pub peer_window: u32,
    /// Streams that each half may have open.
    pub streams_max: usize,
    /// Silence after which this half pings.
    pub heartbeat: Duration,
    /// A carrier is dead when nothing arrived for this long after such a ping.
    pub heartbeat_timeout: Duration,
    /// Bytes queued over all links of this half. The lane looks at it before it grants; whoever keeps
    /// the bytes of [`Event::Data`] charges them.
    pub budget: Arc<Budget>,
}

/// What happened on the lane. For each stream the order is the one in which it happened; after
/// [`Event::Reset`] or [`Event::Over`] nothing more comes for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The peer opened a stream.
    Incoming {
        /// The new stream.
        stream: StreamId,
        /// Bytes that this half may send at once; [`Event::Writable`] adds to them.
        credit: u32,
        /// What it is for.
        open: Open,
    },
    /// The peer accepted a stream that this half opened.
    Opened {
        /// The stream.
        stream: StreamId,
        /// The peer's words, such as the address it reached.
        text: String,
    },
    /// Bytes arrived; say [`Lane::consumed`] when they are used.
    Data {
        /// The stream.
        stream: StreamId,
        /// The bytes; never empty.
        bytes: Bytes,
    },
    /// No more bytes will arrive on the stream.
    End {
        /// The stream.
        stream: StreamId,
    },
    /// The peer, or the flow control of this half, reset the stream. What arrived and was not consumed
    /// is to be discarded.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        error: TunnelError,
    },
    /// The peer granted more.
    Writable {
        /// The stream.
        stream: StreamId,
        /// How many bytes more.
        bytes: u32,
    },
    /// Bytes given to [`Lane::send`] were handed out for a carrier.
    Sent {
        /// The stream.
        stream: StreamId,
        /// How many.
        bytes: usize,
    },
    /// Both halves ended the stream and all bytes were consumed.
    Over {
        /// The stream.
        stream: StreamId,
    },
    /// The peer ended the link.
    GoAway {
        /// Why.
        code: CloseCode,
        /// The same for a person.
        text: String,
    },
}

/// Nothing arrived on the carrier for too long after a ping.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("nothing arrived for {} ms", silence.as_millis())]
pub struct CarrierDead {
    /// Time since the last byte.
    pub silence: Duration,
}

/// The peer asks to go on from a byte that is not kept: the two lane ends do not belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the other half wants to go on from byte {wanted}, but bytes {first} to {end} are kept")]
pub struct ReplayGap {
    /// Offset that the peer named.
    pub wanted: u64,
    /// First byte kept.
    pub first: u64,
    /// End of the bytes ever sent.
    pub end: u64,
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// As many as allowed are open, or too much waits for a carrier.
    #[error("the link holds as many streams as it may")]
    TooMany,
    /// All ids were used; a new link is needed.
    #[error("the link has used up its stream numbers")]
    IdsUsedUp,
    /// The link is being closed.
    #[error("the link is closing")]
    Closing,
}

/// Why bytes are not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The stream is over, was reset or never was.
    #[error("the stream is gone")]
    Gone,
    /// This half ended the stream before.
    #[error("the stream was ended")]
    Ended,
    /// More than [`Lane::send_capacity`].
    #[error("more than the peer granted")]
    OverCredit,
}

/// Figures of a lane.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LaneStats {
    /// Open streams.
    pub streams: usize,
    /// Bytes given to [`Lane::send`] and not handed out.
    pub queued: usize,
    /// Bytes that arrived and were not consumed.
    pub buffered: usize,
    /// Bytes kept for replay.
    pub unacknowledged: usize,
    /// Length of the outgoing byte stream so far.
    pub sent: u64,
    /// Length of the incoming byte stream so far.
    pub received: u64,
    /// Smoothed round trip of the current carrier, once measured.
    pub round_trip: Option<Duration>,
}

/// One end of a lane. See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent flags, each of which some step reads"
)]
pub struct Lane {
    config: LaneConfig,
    streams: HashMap<StreamId, Stream>,
    events: VecDeque<Event>,
    up: bool,
    /// `None` once ids are used up.
    next_id: Option<StreamId>,
    /// Highest id that the peer opened.
    peer_highest: StreamId,
    /// Streams in `streams` that the peer opened.
    peer_streams: usize,
    /// Unconsumed bytes of all streams.
    buffered: usize,
    /// Bytes in the send queues of all streams.
    queued: usize,

    decoder: Decoder,
    /// Whether the payload under way goes to its stream rather than nowhere.
    payload_wanted: bool,
    received: u64,
    acknowledged: u64,
    acknowledged_at: Duration,
    /// Data arrived since: acknowledgements alone are not worth acknowledging.
    data_unacknowledged: bool,

    replay: Replay,
    schedule: Schedule,
    /// Encoded frames that go before all data.
    control: BytesMut,
    /// Streams that are to be granted credit when the next batch is made.
    grants: VecDeque<StreamId>,
    pong: Option<[u8; 8]>,
    ack_due: bool,
    going_away: Option<Control>,
    gone_away: bool,
    /// Headers and small payloads of the batch being made.
    scratch: BytesMut,
    /// Until when bulk counts as being under way.
    bulk_until: Duration,
    /// Until when bulk goes in short frames because something small shares the carrier.
    interactive_until: Duration,
    pulse: Pulse,
}

impl Lane {
    /// A lane without a carrier, at byte 0 both ways. `now` is the time since any fixed start; the same
    /// start counts for all later calls.
    pub fn new(config: LaneConfig, now: Duration) -> Self {
        Self {
            streams: HashMap::new(),
            events: VecDeque::new(),
            up: false,
            next_id: Some(match config.side {
                Side::Client => 1,
                Side::Server => 2,
            }),
            peer_highest: 0,
            peer_streams: 0,
            buffered: 0,
            queued: 0,
            decoder: Decoder::new(config.data_max),
            payload_wanted: false,
            received: 0,
            acknowledged: 0,
            acknowledged_at: now,
            data_unacknowledged: false,
            replay: Replay::default(),
            schedule: Schedule::default(),
            control: BytesMut::new(),
            grants: VecDeque::new(),
            pong: None,
            ack_due: false,
            going_away: None,
            gone_away: false,
            scratch: BytesMut::new(),
            bulk_until: Duration::ZERO,
            interactive_until: Duration::ZERO,
            pulse: Pulse::new(config.heartbeat, config.heartbeat_timeout, now),
            config,
        }
    }

    /// A new carrier took over; the peer has `peer_received` bytes of this half's stream, and goes on
    /// from [`Self::received`] of its own.
    pub fn carrier_up(&mut self, peer_received: u64, now: Duration) -> Result<(), ReplayGap> {
        let (first, end) = (self.replay.base(), self.replay.end());
        if !self.replay.acknowledge(peer_received) {
            return Err(ReplayGap {
                wanted: peer_received,
                first,
                end,
            });
        }
        self.replay.rewind();
        self.acknowledged = self.received;
        self.acknowledged_at = now;
        self.data_unacknowledged = false;
        self.ack_due = false;
        self.up = true;
        self.pulse.carrier_up(now);
        Ok(())
    }

    /// The bytes from which a peer can go on: a greeting that names another is stale or a stranger's.
    pub fn resumable(&self) -> RangeInclusive<u64> {
        self.replay.base()..=self.replay.end()
    }

    /// The carrier is gone. What it was given and the peer did not acknowledge is sent again on the next.
    pub fn carrier_lost(&mut self) {
        self.up = false;
        self.pulse.carrier_lost();
    }

    /// Whether the lane has a carrier.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Bytes of the peer's stream that arrived: what a greeting names.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Opens a stream. Up to [`Self::send_capacity`] bytes may be sent before the peer's verdict.
    pub fn open(&mut self, open: Open, now: Duration) -> Result<StreamId, OpenError> {
        if self.going_away.is_some() || self.gone_away {
            return Err(OpenError::Closing);
        }
        let own = self.streams.len() - self.peer_streams;
        if own >= self.config.streams_max || self.control.len() >= CONTROL_BYTES_FULL {
            return Err(OpenError::TooMany);
        }
        let id = self.next_id.ok_or(OpenError::IdsUsedUp)?;
        self.next_id = id.checked_add(2);
        let budget = &self.config.budget;
        let credit = budget.first_window(self.config.window);
        let receive = ReceiveSide::new(credit, credit, now, budget);
        let stream = Stream {
            send: SendSide::new(self.config.peer_window),
            receive,
            turn: Turn::Idle,
            accepted: false,
        };
        self.streams.insert(id, stream);
        Control::Open {
            stream: id,
            credit,
            open,
        }
        .encode(&mut self.control);
        Ok(id)
    }

    /// Tells the opener that its stream is taken; `text` says what was reached. Without effect on
    /// streams that are gone, were opened by this half, or were accepted before.
    pub fn accept(&mut self, id: StreamId, text: String) {
        let ours = self.is_own(id);
        if let Some(stream) = self.streams.get_mut(&id)
            && !ours
            && !stream.accepted
        {
            stream.accepted = true;
            Control::Opened {
                stream: id,
                credit: 0,
                text,
            }
            .encode(&mut self.control);
        }
    }

    /// Bytes that [`Self::send`] takes now.
    pub fn send_capacity(&self, id: StreamId) -> usize {
        self.streams
            .get(&id)
            .filter(|stream| stream.send.end == End::Open)
            .map_or(0, |stream| stream.send.credit as usize)
    }

    /// Window of a stream, which is what its consumer may leave unconsumed; 0 when it is gone.
    pub fn window(&self, id: StreamId) -> u32 {
        self.streams
            .get(&id)
            .map_or(0, |stream| stream.receive.window)
    }

    /// Queues `bytes` on the stream; at most [`Self::send_capacity`].
    pub fn send(&mut self, id: StreamId, bytes: Bytes) -> Result<(), SendError> {
        let stream = self.streams.get_mut(&id).ok_or(SendError::Gone)?;
        if stream.send.end != End::Open {
            return Err(SendError::Ended);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let credit = u32::try_from(bytes.len())
            .ok()
            .and_then(|length| stream.send.credit.checked_sub(length))
            .ok_or(SendError::OverCredit)?;
        stream.send.credit = credit;
        stream.send.queued += bytes.len();
        self.queued += bytes.len();
        stream.send.queue.push_back(bytes);
        self.schedule.activate(id, &mut stream.turn);
        Ok(())
    }

    /// Says that this half sends no more on the stream, behind what is queued.
    pub fn end(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.send.end == End::Open
        {
            stream.send.end = End::Wanted;
            self.schedule.activate(id, &mut stream.turn);
        }
    }

    /// Ends the stream both ways at once and discards what is queued. Nothing is sent when both halves
    /// ended it already.
    pub fn reset(&mut self, id: StreamId, error: TunnelError) {
        if let Some(stream) = self.remove(id)
            && !stream.is_over()
        {
            Control::Reset { stream: id, error }.encode(&mut self.control);
        }
    }

    /// The consumer used `bytes` of what arrived: the peer may be granted as many. Returns the stream's window, which may
    /// be another one now; 0 when the stream is gone.
    pub fn consumed(&mut self, id: StreamId, bytes: usize, now: Duration) -> u32 {
        let round_trip = self.pulse.least_round_trip();
        let Some(stream) = self.streams.get_mut(&id) else {
            return 0;
        };
        let bytes = bytes.min(stream.receive.buffered);
        let budget = &self.config.budget;
        stream.receive.consume(bytes, now, round_trip, budget);
        self.buffered -= bytes;
        if stream.is_over() {
            self.finish_if_over(id);
            return 0;
        }
        if !stream.receive.grant_queued && stream.receive.is_grant_due() {
            stream.receive.grant_queued = true;
            self.grants.push_back(id);
        }
        stream.receive.window
    }

    /// Pings at once; the carrier is dead when nothing arrives within `limit`. For a half that was asleep.
    pub fn ping(&mut self, limit: Duration, now: Duration) {
        self.pulse.ping(Some(limit), now);
    }

    /// Ends the link: once what goes before it was handed out, a `GOAWAY` follows and then nothing more.
    pub fn go_away(&mut self, code: CloseCode, text: String) {
        if !self.gone_away && self.going_away.is_none() {
            self.going_away = Some(Control::GoAway { code, text });
        }
    }

    /// Whether the `GOAWAY` of this half was handed out.
    pub fn has_gone_away(&self) -> bool {
        self.gone_away
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is to be called at the latest. It may move with every other call.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.up.then(|| self.pulse.next_timeout())
    }

    /// Does what is due at `now`. An error says that the carrier is dead: drop it, call
    /// [`Self::carrier_lost`] and get another.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), CarrierDead> {
        if self.up {
            let heartbeat = self.pulse.handle_timeout(now)?;
            self.ack_due |= heartbeat && self.received > self.acknowledged;
        }
        Ok(())
    }

    /// Figures of the lane.
    pub fn stats(&self) -> LaneStats {
        LaneStats {
            streams: self.streams.len(),
            queued: self.queued,
            buffered: self.buffered,
            unacknowledged: self.replay.len(),
            sent: self.replay.end(),
            received: self.received,
            round_trip: self.pulse.round_trip(),
        }
    }

    /// Whether this half opens streams of this id's parity.
    fn is_own(&self, id: StreamId) -> bool {
        (id % 2 == 1) == (self.config.side == Side::Client)
    }

    /// Takes the stream out of all accounts.
    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        if !self.is_own(id) {
            self.peer_streams -= 1;
        }
        self.queued -= stream.send.queued;
        self.buffered -= stream.receive.buffered;
        stream.receive.withdraw(&self.config.budget);
        if self.streams.is_empty() {
            // A burst of streams leaves no memory behind.
            self.streams.shrink_to(STREAMS_KEPT);
        }
        Some(stream)
    }

    fn finish_if_over(&mut self, id: StreamId) {
        if self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.is_over() && stream.receive.buffered == 0)
        {
            self.remove(id);
            self.events.push_back(Event::Over { stream: id });
        }
    }

    /// Resets a stream for a reason of this half that its consumer does not know of yet.
    fn fail(&mut self, id: StreamId, code: TunnelErrorCode, message: &str) {
        let error = TunnelError::new(code, message);
        self.reset(id, error.clone());
        self.events.push_back(Event::Reset { stream: id, error });
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for stream in self.streams.values() {
            stream.receive.withdraw(&self.config.budget);
        }
    }
}

/// Capacity of the table of streams that an idle lane keeps.
const STREAMS_KEPT: usize = 16;
