//! The one task that owns a link's state machine: it moves bytes between the carrier and the lane, and news
//! between the lane and the stream handles. There is no lock around the lane.
//!
//! Each turn of [`Driver::poll_carrier`] does a bounded part of everything there is to do (requests of
//! handles, one read, one batch of writes, timers), so neither direction delays the other for long.

mod source;

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use yonder_protocol::link::{CloseCode, Event, Lane, Open, OpenError, SendError, StreamId};
use yonder_protocol::{TunnelError, TunnelErrorCode};

pub(crate) use self::source::{ClientSource, Resumption, ServerSource, Source};
use crate::carrier::Carrier;
use crate::hub::{Hub, LOAD_INTERVAL};
use crate::link::{CloseReason, IncomingStream, LinkPhase};
use crate::stream::Stream;
use crate::stream::shared::Shared;
use crate::wire::Wire;

/// Rounds of one poll before other tasks get their turn: about a mebibyte each way, so that its consumers find it in the
/// processor's cache.
const ROUNDS_PER_POLL: usize = 4;

/// Requests of handles served in one round.
const REQUESTS_PER_ROUND: usize = 256;

/// Reads from a carrier that takes no more, to find the peer's farewell: more than a socket holds.
const READS_AFTER_FAILURE: usize = 64;

/// How long a closing link tries to tell the peer.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// How often the clocks, and the client's network, are looked at while a carrier is up.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// A clock that moved this much more than the check's interval means that this half was asleep.
const CLOCK_JUMP: Duration = Duration::from_secs(5);

/// After sleep or on another network the carrier is proven alive within this limit, or replaced.
const WAKE_LIMIT: Duration = Duration::from_secs(2);

/// How a carrier's time ended.
enum Outcome {
    /// It broke.
    Lost(String),
    /// The client came with a new one.
    Replaced(Box<Resumption>),
    /// This half, the client, has a better one.
    Better(Carrier),
    /// The link is over; the peer is to be told when the code is there.
    Closed(CloseReason),
}

/// Owns a lane. Made with [`Driver::new`], run with [`Driver::run`].
pub(crate) struct Driver {
    lane: Lane,
    hub: Arc<Hub>,
    streams: HashMap<StreamId, Arc<Shared>>,
    incoming: mpsc::Sender<IncomingStream>,
    /// Start of the lane's time.
    start: Instant,
    batch: Vec<Bytes>,
    /// The peer's farewell.
    farewell: Option<CloseReason>,
    timer: Pin<Box<Sleep>>,
    clock: Clock,
    /// When the current measurement of the load began, and the bytes moved until then.
    load_at: Duration,
    load_bytes: u64,
}

impl Driver {
    /// A driver of a fresh `lane`, which was made with time 0.
    pub(crate) fn new(lane: Lane, hub: Arc<Hub>, incoming: mpsc::Sender<IncomingStream>) -> Self {
        let start = Instant::now();
        Self {
            lane,
            hub,
            streams: HashMap::new(),
            incoming,
            start,
            batch: Vec::new(),
            farewell: None,
            timer: Box::pin(sleep_until(start)),
            clock: Clock::new(start, false),
            load_at: Duration::ZERO,
            load_bytes: 0,
        }
    }

    /// Drives the link on `wire`, whose peer received `peer_received` bytes, and on what `source` brings after
    /// it, to its end.
    pub(crate) async fn run(mut self, mut wire: Wire, mut peer_received: u64, mut source: Source) {
        let (reason, told) = loop {
            let outcome = self.drive(&mut wire, peer_received, &mut source).await;
            self.lane.carrier_lost();
            (wire, peer_received) = match outcome {
                Outcome::Closed(reason) => {
                    // The peer may be told; a wire that is dropped without is told by its end.
                    let told = self.farewell(&mut wire).await;
                    drop(wire);
                    break (reason, told);
                }
                Outcome::Lost(error) => {
                    tracing::info!(link = %self.hub.id, carrier = %wire.kind, error, "carrier lost");
                    drop(wire);
                    match self.reconnect(&mut source, error, None).await {
                        Ok(next) => next,
                        Err(reason) => break (reason, false),
                    }
                }
                Outcome::Better(carrier) => {
                    tracing::info!(link = %self.hub.id, from = %wire.kind, to = %carrier.kind, "changing to a better carrier");
                    drop(wire);
                    let reason = "changing to a better carrier".to_owned();
                    match self.reconnect(&mut source, reason, Some(carrier)).await {
                        Ok(next) => next,
                        Err(reason) => break (reason, false),
                    }
                }
                Outcome::Replaced(resumption) => {
                    drop(wire);
                    resumption.welcome(&self.lane)
                }
            };
            self.hub.figures.reconnects.fetch_add(1, Ordering::Relaxed);
        };
        tracing::info!(link = %self.hub.id, %reason, "link over");
        self.finish(reason.clone());
        if !told {
            self.farewell_elsewhere(&mut source, &reason).await;
        }
    }

    /// Moves bytes until the carrier or the link is over.
    async fn drive(&mut self, wire: &mut Wire, peer_received: u64, source: &mut Source) -> Outcome {
        let now = self.now();
        if let Err(gap) = self.lane.carrier_up(peer_received, now) {
            return Outcome::Closed(CloseReason::Protocol(gap.to_string()));
        }
        tracing::info!(link = %self.hub.id, carrier = %wire.kind, "carrier up");
        self.hub.set_phase(LinkPhase::Up {
            since: Instant::now(),
            kind: wire.kind,
            description: wire.description.clone(),
        });
        let up_at = Instant::now();
        self.clock = Clock::new(up_at, source.is_client());
        source.carrier_up(wire.kind);
        self.arm_timer();
        let outcome = poll_fn(|cx| self.poll_carrier(wire, source, cx)).await;
        if let Outcome::Lost(_) = outcome {
            source.carrier_cut(up_at.elapsed());
        }
        outcome
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn poll_carrier(
        &mut self,
        wire: &mut Wire,
        source: &mut Source,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        self.hub.register(cx.waker());
        for _ in 0..ROUNDS_PER_POLL {
            if let Poll::Ready(resumption) = source.poll_replacement(cx) {
                if self.lane.resumable().contains(&resumption.peer_received) {
                    return Poll::Ready(Outcome::Replaced(Box::new(resumption)));
                }
                // An earlier attempt that came late, after a newer one went on: nobody waits for it.
                tracing::debug!(link = %self.hub.id, "dropped a stale carrier");
                continue;
            }
            if let Poll::Ready(carrier) = source.poll_better(cx) {
                return Poll::Ready(Outcome::Better(carrier));
            }
            let now = self.now();
            let mut progress = self.serve_requests(now);
            match wire.poll_read(cx) {
                Poll::Ready(Ok(Some(bytes))) => {
                    progress = true;
                    if let Err(error) = self.lane.receive(bytes, now) {
                        self.lane.go_away(CloseCode::Protocol, error.to_string());
                        return Poll::Ready(Outcome::Closed(CloseReason::Protocol(
                            error.to_string(),
                        )));
                    }
                }
                Poll::Ready(Ok(None)) => {
                    return Poll::Ready(Outcome::Lost("it was closed".to_owned()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Outcome::Lost(error.to_string())),
                Poll::Pending => {}
            }
            self.dispatch();
            if let Some(reason) = self.farewell.take() {
                return Poll::Ready(Outcome::Closed(reason));
            }
            // After the read, which finds a carrier that is already dead and would swallow the farewell.
            if let Some((code, text)) = self.hub.close_request() {
                self.lane.go_away(code, text.clone());
                return Poll::Ready(Outcome::Closed(CloseReason::Local { code, text }));
            }
            match self.poll_write(wire, cx, now) {
                Ok(wrote) => progress |= wrote,
                Err(error) => return Poll::Ready(self.broken(wire, cx, &error)),
            }
            if let Err(error) = self.poll_timer(wire, cx) {
                return Poll::Ready(Outcome::Lost(error));
            }
            if !progress {
                self.note_load(now);
                return Poll::Pending;
            }
        }
        let now = self.now();
        self.note_load(now);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Publishes the lane's figures and whether it carries bulk.
    fn note_load(&mut self, now: Duration) {
        let stats = self.lane.stats();
        let total = stats.sent + stats.received;
        self.hub.note_load(&stats, total - self.load_bytes);
        if now.saturating_sub(self.load_at) >= LOAD_INTERVAL {
            self.load_at = now;
            self.load_bytes = total;
        }
    }

    /// The carrier takes no more. The peer's farewell may have come before that; what else arrived counts as received.
    fn broken(&mut self, wire: &mut Wire, cx: &mut Context<'_>, error: &std::io::Error) -> Outcome {
        for _ in 0..READS_AFTER_FAILURE {
            let Poll::Ready(Ok(Some(bytes))) = wire.poll_read(cx) else {
                break;
            };
            if self.lane.receive(bytes, self.now()).is_err() {
                break;
            }
            self.dispatch();
            if let Some(reason) = self.farewell.take() {
                return Outcome::Closed(reason);
            }
        }
        Outcome::Lost(error.to_string())
    }

    /// Writes what is queued, then at most one more batch. Returns whether a batch was made.
    fn poll_write(
        &mut self,
        wire: &mut Wire,
        cx: &mut Context<'_>,
        now: Duration,
    ) -> std::io::Result<bool> {
        if wire.poll_write(cx)?.is_pending() {
            return Ok(false);
        }
        let made = self.lane.poll_transmit(&mut self.batch, now) > 0;
        if made {
            wire.queue(self.batch.drain(..));
            self.dispatch();
            if wire.poll_write(cx)?.is_pending() {
                // Woken when there is room; until then no further batch is made.
                return Ok(false);
            }
        } else {
            // A pending flush wakes the task like a pending write.
            let _ = wire.poll_flush(cx)?;
        }
        Ok(made)
    }

    /// Fires what is due, and sleeps until the next time.
    fn poll_timer(&mut self, wire: &mut Wire, cx: &mut Context<'_>) -> Result<(), String> {
        self.arm_timer();
        while self.timer.as_mut().poll(cx).is_ready() {
            if let Some(jumped) = self.clock.check(Instant::now()) {
                wire.trim();
                if jumped {
                    tracing::debug!(link = %self.hub.id, "this half was asleep or changed its network; proving the carrier");
                    self.lane.ping(WAKE_LIMIT, self.now());
                }
            }
            let now = self.now();
            if let Err(dead) = self.lane.handle_timeout(now) {
                return Err(dead.to_string());
            }
            let next = self.next_time();
            self.timer.as_mut().reset(next);
        }
        Ok(())
    }

    fn next_time(&self) -> Instant {
        let lane = self.lane.next_timeout().map(|at| self.start + at);
        lane.map_or(self.clock.next, |at| at.min(self.clock.next))
    }

    /// Makes the timer fire early enough. That it may fire too early is cheaper than moving it with every byte.
    fn arm_timer(&mut self) {
        let next = self.next_time();
        if next < self.timer.deadline() || self.timer.is_elapsed() {
            self.timer.as_mut().reset(next);
        }
    }

    /// Serves handles that want something. Returns whether there were any.
    fn serve_requests(&mut self, now: Duration) -> bool {
        for served in 0..REQUESTS_PER_ROUND {
            let Some(shared) = self.hub.pop_ready() else {
                return served > 0;
            };
            self.serve(&shared, now);
        }
        true
    }

    fn serve(&mut self, shared: &Arc<Shared>, now: Duration) {
        let requests = shared.take_requests();
        let mut id = requests.id;
        if let Some(open) = requests.open {
            if let Some(error) = requests.reset {
                // Dropped before it was ever opened; what was written to it is released.
                shared.fail(&error);
                return;
            }
            match self.lane.open(open, now) {
                Ok(new) => {
                    shared.set_id(new);
                    shared.set_window(self.lane.window(new));
                    self.streams.insert(new, Arc::clone(shared));
                    self.hub.figures.opened.fetch_add(1, Ordering::Relaxed);
                    id = Some(new);
                }
                Err(error) => {
                    let code = match error {
                        OpenError::TooMany => TunnelErrorCode::Overloaded,
                        _ => TunnelErrorCode::LinkDown,
                    };
                    shared.fail(&TunnelError::new(code, error.to_string()));
                    return;
                }
            }
        }
        let Some(id) = id else {
            return;
        };
        if let Some(error) = requests.reset {
            self.reset(id, error);
            return;
        }
        if let Some(text) = requests.accept {
            self.lane.accept(id, text);
        } else if !requests.data.is_empty() {
            self.lane.accept(id, String::new());
        }
        for bytes in requests.data {
            match self.lane.send(id, bytes) {
                Ok(()) => {}
                // Over already; its handle knows or is about to.
                Err(SendError::Gone) => return,
                Err(error) => {
                    // The handle's account differs from the lane's: better no stream than one with a hole.
                    tracing::error!(link = %self.hub.id, stream = id, %error, "bytes not taken");
                    self.reset(
                        id,
                        TunnelError::new(TunnelErrorCode::Internal, error.to_string()),
                    );
                    return;
                }
            }
        }
        if requests.end {
            self.lane.end(id);
        }
        if requests.consumed > 0 {
            shared.set_window(self.lane.consumed(id, requests.consumed, now));
        }
    }

    /// Resets a stream for a reason of this half.
    fn reset(&mut self, id: StreamId, error: TunnelError) {
        if let Some(shared) = self.forget(id) {
            shared.fail(&error);
        }
        self.lane.reset(id, error);
    }

    /// Hands the lane's news to the streams.
    fn dispatch(&mut self) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                Event::Incoming {
                    stream,
                    credit,
                    open,
                } => self.on_incoming(stream, credit, open),
                Event::Opened { stream, text } => {
                    self.with(stream, |shared| shared.on_opened(text));
                }
                Event::Data { stream, bytes } => {
                    let now = self.now();
                    if let Some(shared) = self.streams.get(&stream)
                        && let consumed @ 1.. = shared.on_data(bytes)
                    {
                        shared.set_window(self.lane.consumed(stream, consumed, now));
                    }
                }
                Event::End { stream } => self.with(stream, Shared::on_end),
                Event::Writable { stream, bytes } => {
                    self.with(stream, |shared| shared.on_writable(bytes as usize));
                }
                Event::Sent { stream, bytes } => self.with(stream, |shared| shared.on_sent(bytes)),
                Event::Reset { stream, error } => {
                    if let Some(shared) = self.forget(stream) {
                        shared.fail(&error);
                    }
                }
                Event::Over { stream } => {
                    self.forget(stream);
                }
                Event::GoAway { code, text } => {
                    self.farewell = Some(CloseReason::Peer { code, text });
                }
            }
        }
    }

    fn with(&self, stream: StreamId, tell: impl FnOnce(&Shared)) {
        if let Some(shared) = self.streams.get(&stream) {
            tell(shared);
        }
    }

    fn forget(&mut self, stream: StreamId) -> Option<Arc<Shared>> {
        let shared = self.streams.remove(&stream);
        if self.streams.is_empty() {
            // A burst of streams leaves no memory behind.
            self.streams.shrink_to(STREAMS_KEPT);
        }
        shared
    }

    fn on_incoming(&mut self, id: StreamId, credit: u32, open: Open) {
        self.hub.figures.opened.fetch_add(1, Ordering::Relaxed);
        let permit = match self.incoming.try_reserve() {
            Ok(permit) => permit,
            Err(error) => {
                let error = match error {
                    mpsc::error::TrySendError::Full(()) => TunnelError::new(
                        TunnelErrorCode::Overloaded,
                        "too many streams wait to be taken",
                    ),
                    mpsc::error::TrySendError::Closed(()) => {
                        TunnelError::new(TunnelErrorCode::Denied, "the other half takes no streams")
                    }
                };
                self.lane.reset(id, error);
                return;
            }
        };
        let shared = Shared::incoming(Arc::clone(&self.hub), id, credit as usize);
        shared.set_window(self.lane.window(id));
        self.streams.insert(id, Arc::clone(&shared));
        permit.send(IncomingStream {
            open,
            stream: Stream::new(shared),
        });
    }

    /// Gets the next carrier, `first` if there is one already, while handles go on to be served.
    async fn reconnect(
        &mut self,
        source: &mut Source,
        error: String,
        first: Option<Carrier>,
    ) -> Result<(Wire, u64), CloseReason> {
        self.hub.set_phase(LinkPhase::Reconnecting {
            since: Instant::now(),
            attempts: 0,
            error: error.clone(),
        });
        let hub = Arc::clone(&self.hub);
        let received = self.lane.received();
        let next = {
            let next = source.next(&hub, received, self.lane.resumable(), error, first);
            tokio::pin!(next);
            poll_fn(|cx| {
                self.hub.register(cx.waker());
                let now = self.now();
                while self.serve_requests(now) {}
                self.dispatch();
                if let Some((code, text)) = self.hub.close_request() {
                    self.lane.go_away(code, text.clone());
                    return Poll::Ready(Err(CloseReason::Local { code, text }));
                }
                next.as_mut().poll(cx)
            })
            .await?
        };
        Ok(match next {
            source::Next::Resumed(wire, peer_received) => (wire, peer_received),
            source::Next::Resumption(resumption) => resumption.welcome(&self.lane),
        })
    }

    /// Says farewell on a new carrier, within a limit, where the last one did not carry it: the server would hold everything
    /// for the whole grace. A client's part, and only of a link that it closes itself.
    async fn farewell_elsewhere(&mut self, source: &mut Source, reason: &CloseReason) {
        let (Source::Client(client), CloseReason::Local { .. }) = (source, reason) else {
            return;
        };
        let attempt = client.once(self.lane.received());
        let Ok(Some((mut wire, peer_received))) = timeout(FAREWELL_LIMIT, attempt).await else {
            tracing::debug!(link = %self.hub.id, "no carrier for the farewell");
            return;
        };
        if self.lane.carrier_up(peer_received, self.now()).is_ok() {
            self.lane.carrier_lost();
            self.farewell(&mut wire).await;
        }
    }

    /// Lets the last frames out, within a limit. Returns whether the carrier took them.
    async fn farewell(&mut self, wire: &mut Wire) -> bool {
        // The state machine is done with the carrier, but its last bytes are not sent.
        let lane = &mut self.lane;
        let now = self.start.elapsed();
        lane.last_words(&mut self.batch, now);
        wire.queue(self.batch.drain(..));
        let gone_away = lane.has_gone_away();
        let mut shut_down = false;
        let told = timeout(
            FAREWELL_LIMIT,
            poll_fn(|cx| {
                let written = wire.poll_write(cx)?;
                if written.is_pending() || wire.poll_flush(cx)?.is_pending() {
                    return Poll::Pending;
                }
                if !shut_down {
                    ready!(wire.poll_shutdown(cx))?;
                    shut_down = true;
                }
                // Closed with something unread, a socket is reset, and the reset overtakes what was said.
                while gone_away && ready!(wire.poll_read(cx))?.is_some() {}
                Poll::Ready(std::io::Result::Ok(()))
            }),
        );
        match told.await {
            Ok(Ok(())) => true,
            // A carrier that stands still.
            Err(_) => false,
            Ok(Err(error)) => {
                tracing::debug!(link = %self.hub.id, %error, "the farewell was not delivered");
                false
            }
        }
    }

    /// The link is over for every stream.
    fn finish(&mut self, reason: CloseReason) {
        let error = reason.to_error();
        self.dispatch();
        self.hub.set_closed(reason);
        for (_, shared) in self.streams.drain() {
            shared.fail(&error);
        }
        self.hub.fail_ready(&error);
    }
}

/// Capacity of the table of streams that an idle link keeps.
const STREAMS_KEPT: usize = 16;

/// Notices that this half was asleep or went to another network. The monotonic clock stands still during suspend on some
/// systems and the wall clock does not; a stopped process sees both jump.
struct Clock {
    next: Instant,
    wall: SystemTime,
    /// The addresses that the network gives this half; `None` where they do not matter.
    addresses: Option<[Option<IpAddr>; 2]>,
}

impl Clock {
    fn new(now: Instant, watch_network: bool) -> Self {
        Self {
            next: now + CLOCK_CHECK,
            wall: SystemTime::now(),
            addresses: watch_network.then(own_addresses),
        }
    }

    /// Looks when it is time to, and says whether the carrier is in doubt.
    fn check(&mut self, now: Instant) -> Option<bool> {
        if now < self.next {
            return None;
        }
        let late = now.saturating_duration_since(self.next);
        // A wall clock set back says nothing.
        let wall = self.wall.elapsed().unwrap_or_default();
        let slept = late > CLOCK_JUMP || wall > CLOCK_CHECK + late + CLOCK_JUMP;
        let next = Self::new(now, self.addresses.is_some());
        let moved = next.addresses != self.addresses;
        *self = next;
        Some(slept || moved)
    }
}

/// The addresses from which this half would reach the IPv4 and the IPv6 internet: what the system's routes say. Nothing is
/// sent.
fn own_addresses() -> [Option<IpAddr>; 2] {
    // Addresses for documentation (RFC 5737, RFC 3849), which nobody has.
    const FAR: [(IpAddr, IpAddr); 2] = [
        (
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        ),
        (
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        ),
    ];
    FAR.map(|(any, far)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}
