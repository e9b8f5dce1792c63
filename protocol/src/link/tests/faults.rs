//! Two lanes over a network that does to carriers what networks and proxies do, in simulated time: a thousand seeds.
//!
//! A run ends when every stream is over for both halves. Each direction then equals what was sent, or its stream was given
//! up by one of the halves, or the link was without a carrier for longer than its grace; and it must end within bounded
//! time, without a byte lost, repeated or altered. A seed that fails is printed; [`SEED`] runs it alone.

mod application;
mod network;
mod random;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::application::{Application, Fate};
use self::network::{Carrier, CarrierId};
use self::random::Random;
use crate::limits::{HANDSHAKE_TIMEOUT, HEARTBEAT, HEARTBEAT_TIMEOUT, RESUME_GRACE};
use crate::link::hello::{Answer, take_message};
use crate::link::*;

const SEEDS: u64 = 1_000;

/// Runs this one alone and tells what happens in it.
const SEED: &str = "YONDER_SEED";

/// Pause of the applications between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Pause of the client between two attempts.
const PAUSE: Duration = Duration::from_millis(400);

/// Longer takes no run: 1.5 MB within the smallest window, on the longest way, need 40 minutes.
const LONGEST: Duration = Duration::from_hours(1);

/// What is done to the network.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// All carriers die.
    Cut,
    /// Nothing comes out of a way for so long, then all of it.
    Hold(Duration),
    /// The same in both directions.
    HoldBoth(Duration),
    /// So many bytes per second, and so long a way.
    Slow(u64, Duration),
    /// All carriers die, and no new one is had for so long.
    Outage(Duration),
    /// The next carriers die within their first bytes.
    ShortLived(usize),
    /// An earlier greeting of the client is delivered once more.
    Repeat,
}

impl Fault {
    fn new(random: &mut Random) -> Self {
        match random.within(0..=13) {
            0..=3 => Self::Cut,
            4 => Self::Hold(random.millis(100..=70_000)),
            5 => Self::HoldBoth(random.millis(100..=24_000)),
            6 => Self::HoldBoth(Duration::from_secs(70)),
            7 | 8 => Self::Slow(random.within(8 << 10..=1 << 20), random.millis(0..=3_000)),
            9 | 10 => Self::ShortLived(random.size(1..=4)),
            11 => Self::Outage(random.millis(100..=20_000)),
            12 if random.one_in(3) => Self::Outage(random.millis(20_000..=90_000)),
            _ => Self::Repeat,
        }
    }
}

/// One half: its end of the link, and what uses it.
struct Half {
    lane: Lane,
    application: Application,
    carrier: Option<CarrierId>,
    /// When the link is lost, for want of a carrier.
    lost_at: Option<Duration>,
    over: bool,
}

/// An attempt of the client.
struct Attempt {
    carrier: CarrierId,
    until: Duration,
}

struct World {
    random: Random,
    now: Duration,
    halves: [Half; 2],
    carriers: Vec<Carrier>,
    attempt: Option<Attempt>,
    /// When the client dials next.
    dial_at: Option<Duration>,
    greetings: Vec<Bytes>,
    faults: VecDeque<(Duration, Fault)>,
    down_until: Duration,
    short_lived: usize,
    look_at: Duration,
    told: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl World {
    fn new(seed: u64, told: bool) -> Self {
        let mut random = Random::new(seed);
        let window = [4 << 10, 64 << 10, 1 << 20][random.size(0..=2)];
        let data_max = [1 << 10, 16 << 10, 256 << 10][random.size(0..=2)];
        let halves = [Side::Client, Side::Server].map(|side| {
            let budget = Arc::new(Budget::new([1 << 20, 64 << 20][random.size(0..=1)]));
            let config = LaneConfig {
                side,
                data_max,
                window,
                peer_data_max: data_max,
                peer_window: window.min(EARLY_WINDOW),
                streams_max: 64,
                heartbeat: HEARTBEAT,
                heartbeat_timeout: HEARTBEAT_TIMEOUT,
                budget: Arc::clone(&budget),
            };
            let at = usize::from(side == Side::Server);
            Half {
                lane: Lane::new(config, Duration::ZERO),
                application: Application::new(at, budget, &mut random),
                carrier: None,
                lost_at: Some(RESUME_GRACE),
                over: false,
            }
        });
        let mut faults: Vec<_> = (0..random.within(0..=8))
            .map(|_| (random.millis(0..=60_000), Fault::new(&mut random)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        Self {
            random,
            now: Duration::ZERO,
            halves,
            carriers: Vec::new(),
            attempt: None,
            dial_at: Some(Duration::ZERO),
            greetings: Vec::new(),
            faults: faults.into(),
            down_until: Duration::ZERO,
            short_lived: 0,
            look_at: Duration::ZERO,
            told,
        }
    }

    #[allow(clippy::print_stderr, reason = "asked for by whoever replays a seed")]
    fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            eprintln!("{:9.3} {what}", self.now.as_secs_f64());
        }
    }

    /// Runs to the end. Returns whether the link was lost.
    fn run(mut self) -> bool {
        loop {
            self.strike();
            self.dial();
            for at in [CLIENT, SERVER] {
                self.receive(at);
                self.watch(at);
            }
            if self.now >= self.look_at {
                self.look_at = self.now + LOOK;
                for half in self.halves.iter_mut().filter(|half| !half.over) {
                    half.application
                        .act(&mut half.lane, self.now, &mut self.random);
                }
            }
            for at in [CLIENT, SERVER] {
                self.hear(at);
                self.transmit(at);
                self.hear(at);
            }
            if let Some(lost) = self.ending() {
                self.judge(lost);
                return lost;
            }
            self.now = self.next_time();
            if self.now >= LONGEST {
                let halves = self
                    .halves
                    .map(|half| (half.lane.stats(), half.application.talks));
                panic!("this hangs: {halves:#?}");
            }
        }
    }

    /// Whether the link was lost, once nothing is left to do.
    fn ending(&self) -> Option<bool> {
        let [client, server] = &self.halves;
        let done = client.application.is_done() && server.application.is_done();
        if client.over || server.over {
            return done.then_some(true);
        }
        let [near, far] = [client.lane.stats(), server.lane.stats()];
        let silent = near.sent == far.received && far.sent == near.received;
        (done && silent && near.streams + far.streams == 0).then_some(false)
    }

    /// Does to the network what is due.
    fn strike(&mut self) {
        while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= self.now) {
            self.tell(format_args!("{fault:?}"));
            match fault {
                Fault::Cut => self.cut(),
                Fault::Hold(length) => {
                    let way = self.random.size(0..=1);
                    for carrier in &mut self.carriers {
                        carrier.ways[way].held_until = self.now + length;
                    }
                }
                Fault::HoldBoth(length) => {
                    for way in self.carriers.iter_mut().flat_map(|c| &mut c.ways) {
                        way.held_until = self.now + length;
                    }
                }
                Fault::Slow(rate, delay) => {
                    for way in self.carriers.iter_mut().flat_map(|c| &mut c.ways) {
                        (way.rate, way.delay) = (rate, delay);
                    }
                }
                Fault::Outage(length) => {
                    self.cut();
                    self.down_until = self.now + length;
                }
                Fault::ShortLived(count) => self.short_lived = count,
                Fault::Repeat if self.greetings.is_empty() => {}
                Fault::Repeat => {
                    let index = self.random.size(0..=self.greetings.len() - 1);
                    let mut carrier = Carrier::new(false, &mut self.random);
                    carrier.ends[CLIENT].open = false;
                    let greeting = self.greetings[index].clone();
                    carrier.ways[CLIENT].send(greeting, self.now, &mut self.random);
                    self.carriers.push(carrier);
                }
            }
        }
    }

    fn cut(&mut self) {
        for carrier in &mut self.carriers {
            carrier.cut(self.now, &mut self.random);
        }
    }

    /// The client's attempts at a carrier.
    fn dial(&mut self) {
        let client = &self.halves[CLIENT];
        if let Some(attempt) = self.attempt.take_if(|attempt| attempt.until <= self.now) {
            self.carriers[attempt.carrier].close(CLIENT, self.now);
            self.dial_at = Some(self.now);
        }
        if client.over || self.dial_at.is_none_or(|at| at > self.now) {
            return;
        }
        if self.now < self.down_until {
            self.dial_at = Some(self.now + PAUSE);
            return;
        }
        self.dial_at = None;
        let short = self.short_lived > 0;
        self.short_lived -= usize::from(short);
        let mut carrier = Carrier::new(short, &mut self.random);
        let hello = Hello {
            link: LinkId([1; 16]),
            lane: 0,
            secret: ResumeSecret::new([7; 32]),
            received: client.lane.received(),
            role: Role::Tunnels,
            session: SessionName::default(),
            agent: String::new(),
            data_max: 1 << 20,
            window: 1 << 20,
        }
        .encode();
        self.greetings.push(hello.clone());
        if carrier.ways[CLIENT].send(hello, self.now, &mut self.random) {
            carrier.cut(self.now, &mut self.random);
        }
        self.attempt = Some(Attempt {
            carrier: self.carriers.len(),
            until: self.now + HANDSHAKE_TIMEOUT,
        });
        self.tell(format_args!("dialled carrier {}", self.carriers.len()));
        self.carriers.push(carrier);
    }

    /// Takes what arrives at one half, on any carrier.
    fn receive(&mut self, at: usize) {
        for id in 0..self.carriers.len() {
            while self.carriers[id].ends[at].open
                && let Some(bytes) = self.carriers[id].receive(at, self.now)
            {
                if self.carriers[id].ends[at].greeted {
                    let half = &mut self.halves[at];
                    assert_eq!(half.carrier, Some(id));
                    half.lane.receive(bytes, self.now).unwrap();
                } else {
                    self.carriers[id].ends[at]
                        .greeting
                        .extend_from_slice(&bytes);
                    let greeting = &mut self.carriers[id].ends[at].greeting;
                    if let Some(message) = take_message(greeting).unwrap() {
                        let rest = std::mem::take(greeting).freeze();
                        self.greet(at, id, message, rest);
                    }
                }
                self.hear(at);
            }
        }
    }

    /// A greeting has arrived, with the first numbered bytes behind it.
    fn greet(&mut self, at: usize, id: CarrierId, message: Bytes, rest: Bytes) {
        if at == SERVER {
            let hello = Hello::decode(message).unwrap();
            let server = &mut self.halves[SERVER];
            if server.over || !server.lane.resumable().contains(&hello.received) {
                let refusal = Refusal::new(RefusalCode::UnknownLink, "no such link");
                // While a carrier is up, a greeting from before it is dropped without a word.
                if server.over || server.carrier.is_none() {
                    let answer = Answer::Refused(refusal).encode();
                    self.carriers[id].ways[SERVER].send(answer, self.now, &mut self.random);
                }
                self.carriers[id].close(SERVER, self.now);
                return;
            }
            if let Some(old) = server.carrier {
                self.drop_carrier(SERVER, old);
            }
            let server = &mut self.halves[SERVER];
            let welcome = Welcome {
                link: hello.link,
                received: server.lane.received(),
                data_max: 1 << 20,
                window: 1 << 20,
                grace: RESUME_GRACE,
                heartbeat: HEARTBEAT,
                agent: String::new(),
            };
            self.take_up(SERVER, id, hello.received, rest);
            let answer = Answer::Welcome(welcome).encode();
            if self.carriers[id].ways[SERVER].send(answer, self.now, &mut self.random) {
                self.carriers[id].cut(self.now, &mut self.random);
            }
            return;
        }
        self.attempt = None;
        match Answer::decode(message).unwrap() {
            Answer::Welcome(welcome) => self.take_up(CLIENT, id, welcome.received, rest),
            Answer::Refused(_) => {
                self.carriers[id].close(CLIENT, self.now);
                self.lose(CLIENT);
            }
        }
    }

    fn take_up(&mut self, at: usize, id: CarrierId, peer_received: u64, rest: Bytes) {
        self.tell(format_args!("half {at} is on carrier {id}"));
        let half = &mut self.halves[at];
        half.lane.carrier_up(peer_received, self.now).unwrap();
        (half.carrier, half.lost_at) = (Some(id), None);
        self.carriers[id].ends[at].greeted = true;
        half.lane.receive(rest, self.now).unwrap();
    }

    /// One half notices that its carrier is dead, or that its link is lost.
    fn watch(&mut self, at: usize) {
        for id in 0..self.carriers.len() {
            if !self.carriers[id].ends[at].open || !self.carriers[id].is_gone(at, self.now) {
                continue;
            }
            if self.halves[at].carrier == Some(id) {
                self.drop_carrier(at, id);
            }
            self.carriers[id].close(at, self.now);
            if at == CLIENT
                && self
                    .attempt
                    .take_if(|attempt| attempt.carrier == id)
                    .is_some()
            {
                self.dial_at = Some(self.now + PAUSE);
            }
        }
        let half = &mut self.halves[at];
        if half.over {
            return;
        }
        if half.lane.next_timeout().is_some_and(|at| at <= self.now)
            && half.lane.handle_timeout(self.now).is_err()
            && let Some(id) = half.carrier
        {
            self.tell(format_args!("half {at} hears nothing on carrier {id}"));
            self.drop_carrier(at, id);
        }
        if self.halves[at].lost_at.is_some_and(|at| at <= self.now) {
            self.lose(at);
        }
    }

    fn drop_carrier(&mut self, at: usize, id: CarrierId) {
        self.tell(format_args!("half {at} drops carrier {id}"));
        self.carriers[id].close(at, self.now);
        let half = &mut self.halves[at];
        half.lane.carrier_lost();
        half.carrier = None;
        half.lost_at = Some(self.now + RESUME_GRACE);
        if at == CLIENT {
            self.dial_at = Some(self.now);
        }
    }

    fn lose(&mut self, at: usize) {
        self.tell(format_args!("half {at} loses the link"));
        let half = &mut self.halves[at];
        (half.over, half.lost_at) = (true, None);
        half.application.lose();
        if let Some(attempt) = self.attempt.take_if(|_| at == CLIENT) {
            self.carriers[attempt.carrier].close(CLIENT, self.now);
        }
    }

    fn hear(&mut self, at: usize) {
        let half = &mut self.halves[at];
        if !half.over {
            half.application
                .hear(&mut half.lane, self.now, &mut self.random);
        }
    }

    /// Gives the carrier what it takes.
    fn transmit(&mut self, at: usize) {
        let half = &mut self.halves[at];
        let Some(id) = half.carrier else {
            return;
        };
        let mut batch = Vec::new();
        while self.carriers[id].ways[at].has_room()
            && half.lane.poll_transmit(&mut batch, self.now) > 0
        {
            for bytes in batch.drain(..) {
                if self.carriers[id].ways[at].send(bytes, self.now, &mut self.random) {
                    self.carriers[id].cut(self.now, &mut self.random);
                }
            }
        }
    }

    fn next_time(&self) -> Duration {
        let carriers = self.carriers.iter().filter_map(Carrier::next_time);
        let halves = self.halves.iter().filter(|half| !half.over);
        let halves = halves.flat_map(|half| [half.lost_at, half.lane.next_timeout()]);
        let others = [
            Some(self.look_at),
            self.dial_at.filter(|_| !self.halves[CLIENT].over),
            self.attempt.as_ref().map(|attempt| attempt.until),
            self.faults.front().map(|(at, _)| *at),
        ];
        let next = carriers.chain(halves.chain(others).flatten()).min();
        next.unwrap_or(self.look_at).max(self.now)
    }

    /// Compares what the halves saw of each stream.
    fn judge(&self, lost: bool) {
        let [client, server] = self.halves.each_ref().map(|half| &half.application.talks);
        for id in client.keys().chain(server.keys()) {
            let (Some(near), Some(far)) = (client.get(id), server.get(id)) else {
                assert!(lost, "stream {id} never arrived");
                continue;
            };
            for (from, to) in [(near, far), (far, near)] {
                assert!(to.read <= from.sent, "stream {id} has more than was sent");
                if to.read_end {
                    let whole = from.ended && to.read == from.sent;
                    assert!(whole, "stream {id} ended early");
                }
                let explained = match to.fate {
                    // Who was done with it first may not see how the other gave up what was left to read.
                    Some(Fate::Over) => to.read_end && from.fate != Some(Fate::Reset),
                    Some(Fate::Reset) => from.fate == Some(Fate::GivenUp),
                    Some(Fate::LinkLost) => lost,
                    Some(Fate::GivenUp) => true,
                    None => false,
                };
                assert!(explained, "stream {id}: {:?} for {:?}", to.fate, from.fate);
            }
        }
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "a failing seed is to be known")]
fn a_thousand_networks_lose_and_repeat_nothing() {
    if let Ok(seed) = std::env::var(SEED) {
        World::new(seed.parse().unwrap(), true).run();
        return;
    }
    let mut lost = 0;
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| World::new(seed, false).run());
        match run {
            Ok(over) => lost += u64::from(over),
            Err(panic) => {
                eprintln!("{SEED}={seed} fails");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Both ends of a run are seen, and a link is lost only where its carriers were gone for long.
    assert!((10..SEEDS / 5).contains(&lost), "{lost} links were lost");
}
