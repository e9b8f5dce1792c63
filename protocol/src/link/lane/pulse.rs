//! Heartbeat and round trip of the current carrier.

use std::time::Duration;

use crate::link::CarrierDead;

/// While data moves, the round trip is measured again at most this often.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// The ping that was sent last and not answered.
#[derive(Debug)]
struct Waiting {
    nonce: u64,
    sent: Duration,
    /// When the carrier is dead unless anything arrives.
    deadline: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Pulse {
    heartbeat: Duration,
    timeout: Duration,
    last_received: Duration,
    last_ping: Duration,
    waiting: Option<Waiting>,
    /// A ping to put into the next batch.
    due: Option<u64>,
    next_nonce: u64,
    smoothed: Option<Duration>,
    least: Option<Duration>,
}

impl Pulse {
    pub(super) fn new(heartbeat: Duration, timeout: Duration, now: Duration) -> Self {
        Self {
            heartbeat,
            timeout,
            last_received: now,
            last_ping: now,
            waiting: None,
            due: None,
            next_nonce: 0,
            smoothed: None,
            least: None,
        }
    }

    /// Starts on a new carrier, whose round trip is measured at once.
    pub(super) fn carrier_up(&mut self, now: Duration) {
        self.carrier_lost();
        self.last_received = now;
        self.ping(Some(self.timeout), now);
    }

    pub(super) fn carrier_lost(&mut self) {
        self.waiting = None;
        self.due = None;
        self.smoothed = None;
        self.least = None;
    }

    /// Asks for a ping; with a `limit`, the carrier is dead when nothing arrives within it.
    pub(super) fn ping(&mut self, limit: Option<Duration>, now: Duration) {
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        self.due = Some(nonce);
        self.last_ping = now;
        self.waiting = Some(Waiting {
            nonce,
            sent: now,
            deadline: limit.map(|limit| now + limit),
        });
    }

    /// Asks for a ping that rides with data when the last measurement is old.
    pub(super) fn measure(&mut self, now: Duration) {
        let overdue = now.saturating_sub(self.last_ping) >= MEASURE_INTERVAL;
        if overdue
            && self
                .waiting
                .as_ref()
                .is_none_or(|waiting| waiting.deadline.is_none())
        {
            self.ping(None, now);
        }
    }

    /// The ping to send now.
    pub(super) fn take_due(&mut self) -> Option<[u8; 8]> {
        self.due.take().map(u64::to_be_bytes)
    }

    /// Any byte is a sign of life.
    pub(super) fn on_bytes(&mut self, now: Duration) {
        self.last_received = now;
        if let Some(waiting) = &mut self.waiting {
            waiting.deadline = None;
        }
    }

    pub(super) fn on_pong(&mut self, nonce: [u8; 8], now: Duration) {
        let nonce = u64::from_be_bytes(nonce);
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.nonce == nonce) {
            let sample = now.saturating_sub(waiting.sent);
            // RFC 6298, section 2: seven parts of the old value, one of the new.
            self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
            self.smoothed = Some(self.smoothed.map_or(sample, |old| (old * 7 + sample) / 8));
        }
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The shortest round trip of the carrier: that of the path, without the queues that bulk builds on it.
    pub(super) fn least_round_trip(&self) -> Option<Duration> {
        self.least
    }

    pub(super) fn next_timeout(&self) -> Duration {
        self.deadline()
            .unwrap_or(self.last_received + self.heartbeat)
    }

    /// Returns whether a heartbeat is due (and asked for).
    pub(super) fn handle_timeout(&mut self, now: Duration) -> Result<bool, CarrierDead> {
        if let Some(deadline) = self.deadline() {
            if now >= deadline {
                return Err(CarrierDead {
                    silence: now.saturating_sub(self.last_received),
                });
            }
            return Ok(false);
        }
        let silent = now.saturating_sub(self.last_received) >= self.heartbeat;
        if silent {
            self.ping(Some(self.timeout), now);
        }
        Ok(silent)
    }

    fn deadline(&self) -> Option<Duration> {
        self.waiting.as_ref().and_then(|waiting| waiting.deadline)
    }
}
