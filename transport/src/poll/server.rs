//! The server's end: carriers by identifier, and what each request does to its carrier.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Mutex as TurnMutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    ACCEPTED, ANSWER_BYTES_MAX, CARRIER, CLOSED, DIRECTION, DOWN, HOLD, OPEN, PIPE_BYTES, SEQUENCE,
    UP, UPLOAD_BYTES_MAX,
};
use crate::carrier::{Carrier, CarrierKind};
use crate::{VERSION, VERSION_HEADER};

/// What the body of a request may take: proxies were seen to pass on bodies that were slow for a minute.
const BODY_LIMIT: Duration = Duration::from_mins(1);

/// How long an upload waits for room before the server says how much it took: well within the shortest time limit seen
/// in a proxy (15 s).
const ROOM_LIMIT: Duration = Duration::from_secs(8);

/// How long an idle poll is held when it does not say, and at most.
const HOLD_DEFAULT: Duration = Duration::from_secs(10);
const HOLD_MAX: Duration = Duration::from_secs(25);

/// In which Envoy tells how long it will wait for an answer, in milliseconds.
const ENVOY_LIMIT: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");

/// A carrier without a request for this long is gone: above the pause between two polls, and about the time in which a
/// link's heartbeat notices the same.
const IDLE_LIMIT: Duration = Duration::from_secs(40);

/// How often carriers are looked through for such.
const REAP_EVERY: Duration = Duration::from_secs(5);

/// Read at a time from the link.
const READ_BYTES: usize = 64 * 1024;

/// Limits of a [`PollServer`].
#[derive(Clone, Copy, Debug)]
pub struct PollConfig {
    /// Carriers at once. Each may hold about 4 MiB in its buffers.
    pub carriers_max: usize,
    /// New carriers that wait to be taken.
    pub waiting_max: usize,
}

impl Default for PollConfig {
    fn default() -> Self {
        Self {
            carriers_max: 256,
            waiting_max: 16,
        }
    }
}

/// Serves the carriers of requests of one server half.
///
/// Whoever owns it has checked the token before [`PollServer::handle`] is called. Dropping it ends all carriers.
#[derive(Debug)]
pub struct PollServer {
    carriers: Arc<Carriers>,
    opened: mpsc::Sender<Carrier>,
    carriers_max: usize,
    _reaper: JoinSet<()>,
}

/// The carriers by identifier.
#[derive(Debug, Default)]
struct Carriers(Mutex<HashMap<String, Arc<Entry>>>);

impl Carriers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a carrier at once, whatever requests are under way on it.
    fn end(&self, id: &str) {
        if let Some(entry) = self.lock().remove(id) {
            entry.ended.cancel();
        }
    }

    async fn reap(self: Arc<Self>) {
        let mut ticks = interval(REAP_EVERY);
        loop {
            ticks.tick().await;
            self.lock().retain(|_, entry| {
                let keep = !entry.is_idle();
                if !keep {
                    tracing::debug!("a carrier of requests was left alone");
                    entry.ended.cancel();
                }
                keep
            });
        }
    }
}

/// One carrier. The far ends of its pipe are gone, and so the carrier, when this is dropped.
struct Entry {
    /// Held across awaits on purpose: a direction's requests take turns, so that a repetition finds the outcome of the
    /// request that it repeats.
    up: TurnMutex<Uploads>,
    down: TurnMutex<Polls>,
    ended: CancellationToken,
    activity: Mutex<Activity>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

struct Activity {
    requests: usize,
    last: Instant,
}

/// The bytes from the client.
struct Uploads {
    pipe: WriteHalf<DuplexStream>,
    turns: Turns,
    /// Bytes taken of the current upload. Kept up to date through every await, so that a repetition of an upload whose
    /// connection broke goes on from there.
    taken: usize,
    /// Whether the link takes no more.
    closed: bool,
}

/// The bytes for the client.
struct Polls {
    pipe: ReadHalf<DuplexStream>,
    turns: Turns,
    /// Gathered for the answer to the current poll.
    gathered: BytesMut,
    /// The answer to the current poll, once it was given.
    answer: Bytes,
    /// Whether the link writes no more.
    closed: bool,
}

/// The numbering of one direction.
#[derive(Debug, Default)]
struct Turns {
    /// The number of the current request; 0 before the first.
    current: u64,
    /// Whether it has been answered.
    answered: bool,
}

/// What a request's number makes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    /// The next request.
    New,
    /// The current request, whose first delivery was cut before its answer.
    Resumed,
    /// A repetition of an answered one.
    Again,
    /// A late copy of an earlier one, whose answer nobody waits for any more.
    Stale,
    /// One is missing: this carrier is broken.
    Gap,
}

impl Turns {
    fn take(&mut self, sequence: u64) -> Turn {
        let at_border = self.answered || self.current == 0;
        if sequence == 0 {
            Turn::Gap
        } else if sequence == self.current {
            if self.answered {
                Turn::Again
            } else {
                Turn::Resumed
            }
        } else if sequence < self.current {
            Turn::Stale
        } else if sequence == self.current + 1 && at_border {
            self.current = sequence;
            self.answered = false;
            Turn::New
        } else {
            Turn::Gap
        }
    }
}

impl Entry {
    fn new(far: DuplexStream) -> Self {
        let (reader, writer) = tokio::io::split(far);
        Self {
            up: TurnMutex::new(Uploads {
                pipe: writer,
                turns: Turns::default(),
                taken: 0,
                closed: false,
            }),
            down: TurnMutex::new(Polls {
                pipe: reader,
                turns: Turns::default(),
                gathered: BytesMut::new(),
                answer: Bytes::new(),
                closed: false,
            }),
            ended: CancellationToken::new(),
            activity: Mutex::new(Activity {
                requests: 0,
                last: Instant::now(),
            }),
        }
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        let activity = self.activity();
        activity.requests == 0 && activity.last.elapsed() > IDLE_LIMIT
    }

    fn enter(self: &Arc<Self>) -> Visit {
        self.activity().requests += 1;
        Visit(Arc::clone(self))
    }
}

/// Keeps a carrier from being taken for idle.
struct Visit(Arc<Entry>);

impl Drop for Visit {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.requests -= 1;
        activity.last = Instant::now();
    }
}

impl PollServer {
    /// A server without carriers, and where new ones come out. Call it within a tokio runtime.
    pub fn new(config: PollConfig) -> (Self, mpsc::Receiver<Carrier>) {
        let carriers = Arc::new(Carriers::default());
        let (opened, receiver) = mpsc::channel(config.waiting_max.max(1));
        let mut reaper = JoinSet::new();
        reaper.spawn(Arc::clone(&carriers).reap());
        let server = Self {
            carriers,
            opened,
            carriers_max: config.carriers_max,
            _reaper: reaper,
        };
        (server, receiver)
    }

    /// Carriers that are open.
    pub fn len(&self) -> usize {
        self.carriers.lock().len()
    }

    /// Whether no carrier is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `request` is one for [`PollServer::handle`] rather than an upgrade: a POST to the link's route.
    pub fn is_for_poll<B>(request: &Request<B>) -> bool {
        request.method() == Method::POST
    }

    /// Answers one request. Takes up to a minute for a slow body and 25 s for an idle poll, by its own clock.
    ///
    /// Cancel safe: a request that is dropped, as hyper does when its client leaves, counts as one whose answer was
    /// lost, and its repetition goes on from where it was.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        // Read to its end before any refusal: some proxies lose an answer that comes earlier.
        let body = match timeout(BODY_LIMIT, Limited::new(body, UPLOAD_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return refusal(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    &format!("the body of an upload has at most {UPLOAD_BYTES_MAX} bytes"),
                );
            }
            Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "the body broke off"),
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
        };
        let headers = &head.headers;
        let Some(id) = text(headers, &CARRIER) else {
            return refusal(
                StatusCode::BAD_REQUEST,
                "the header Yonder-Carrier is missing",
            );
        };
        if id == OPEN {
            return self.open();
        }
        let Some(visit) = self.carriers.lock().get(id).map(Entry::enter) else {
            let mut gone = refusal(StatusCode::GONE, "there is no such carrier; open another");
            gone.headers_mut()
                .insert(CLOSED, HeaderValue::from_static("1"));
            return gone;
        };
        let Some(sequence) = text(headers, &SEQUENCE).and_then(|text| text.parse().ok()) else {
            return refusal(
                StatusCode::BAD_REQUEST,
                "the header Yonder-Sequence must be a number",
            );
        };
        let entry = &visit.0;
        let serve = async {
            match text(headers, &DIRECTION) {
                Some(UP) => {
                    entry
                        .upload(sequence, &body, headers.contains_key(CLOSED))
                        .await
                }
                Some(DOWN) => entry.poll(sequence, hold(headers)).await,
                _ => Err(refusal(
                    StatusCode::BAD_REQUEST,
                    "the header Yonder-Direction must be up or down",
                )),
            }
        };
        let answer = tokio::select! {
            answer = serve => answer,
            () = entry.ended.cancelled() => Err(refusal(StatusCode::GONE, "the carrier has ended")),
        };
        match answer {
            Ok(answer) => answer,
            Err(refusal) => {
                if refusal.headers().contains_key(CLOSED) {
                    self.carriers.end(id);
                }
                refusal
            }
        }
    }

    fn open(&self) -> Response<Full<Bytes>> {
        let overloaded = || {
            let mut busy = refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many carriers are open; try again later",
            );
            busy.headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("5"));
            busy
        };
        let id = format!("{:032x}", rand::random::<u128>());
        let Ok(id_value) = HeaderValue::try_from(id.as_str()) else {
            return refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "no identifier could be made",
            );
        };
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        {
            let mut carriers = self.carriers.lock();
            if carriers.len() >= self.carriers_max {
                return overloaded();
            }
            carriers.insert(id.clone(), Arc::new(Entry::new(far)));
        }
        let carrier = Carrier::new(near, CarrierKind::Poll, "HTTP requests");
        if self.opened.try_send(carrier).is_err() {
            self.carriers.end(&id);
            return overloaded();
        }
        let mut response = answer(Bytes::new());
        response.headers_mut().insert(CARRIER, id_value);
        response
    }
}

impl Drop for PollServer {
    fn drop(&mut self) {
        for (_, entry) in self.carriers.lock().drain() {
            entry.ended.cancel();
        }
    }
}

/// A refusal that ends the carrier.
fn broken() -> Response<Full<Bytes>> {
    let mut refusal = refusal(
        StatusCode::CONFLICT,
        "a request is missing; the carrier has ended",
    );
    refusal
        .headers_mut()
        .insert(CLOSED, HeaderValue::from_static("1"));
    refusal
}

fn stale() -> Response<Full<Bytes>> {
    refusal(StatusCode::CONFLICT, "the request was answered before")
}

impl Entry {
    async fn upload(
        &self,
        sequence: u64,
        body: &[u8],
        last: bool,
    ) -> Result<Response<Full<Bytes>>, Response<Full<Bytes>>> {
        let mut up = self.up.lock().await;
        let turn = up.turns.take(sequence);
        match turn {
            Turn::Stale => return Err(stale()),
            Turn::Gap => return Err(broken()),
            Turn::Again => {}
            Turn::New => {
                up.taken = 0;
                up.take(body, last, Instant::now() + ROOM_LIMIT).await;
            }
            Turn::Resumed => up.take(body, last, Instant::now() + ROOM_LIMIT).await,
        }
        let mut response = answer(Bytes::new());
        response
            .headers_mut()
            .insert(ACCEPTED, HeaderValue::from(up.taken));
        if up.closed {
            response
                .headers_mut()
                .insert(CLOSED, HeaderValue::from_static("1"));
        }
        Ok(response)
    }

    async fn poll(
        &self,
        sequence: u64,
        hold: Duration,
    ) -> Result<Response<Full<Bytes>>, Response<Full<Bytes>>> {
        let mut down = self.down.lock().await;
        match down.turns.take(sequence) {
            Turn::Stale => return Err(stale()),
            Turn::Gap => return Err(broken()),
            Turn::Again => {}
            Turn::New | Turn::Resumed => {
                // The number shows that the answer before has arrived.
                down.answer = Bytes::new();
                down.gather(Instant::now() + hold).await;
            }
        }
        let mut response = answer(down.answer.clone());
        if down.closed {
            response
                .headers_mut()
                .insert(CLOSED, HeaderValue::from_static("1"));
        }
        Ok(response)
    }
}

impl Uploads {
    /// Takes what there is room for until `deadline`.
    async fn take(&mut self, body: &[u8], last: bool, deadline: Instant) {
        while let Some(rest) = body
            .get(self.taken..)
            .filter(|rest| !rest.is_empty() && !self.closed)
        {
            match timeout_at(deadline, self.pipe.write(rest)).await {
                Ok(Ok(taken)) if taken > 0 => self.taken += taken,
                Ok(_) => self.closed = true,
                Err(_) => break,
            }
        }
        if last && self.taken >= body.len() {
            // A pipe that is closed already needs no end.
            let _: io::Result<()> = self.pipe.shutdown().await;
        }
        self.turns.answered = true;
    }
}

impl Polls {
    /// Waits until `deadline` for the first bytes and takes what is there with them.
    async fn gather(&mut self, deadline: Instant) {
        while !self.closed && self.gathered.len() < ANSWER_BYTES_MAX {
            self.gathered.reserve(READ_BYTES);
            let waiting = self.gathered.is_empty();
            let room = ANSWER_BYTES_MAX - self.gathered.len();
            let mut buffer = (&mut self.gathered).limit(room);
            let read = self.pipe.read_buf(&mut buffer);
            let read = if waiting {
                timeout_at(deadline, read).await.ok()
            } else {
                read.now_or_never()
            };
            match read {
                Some(Ok(read)) if read > 0 => {}
                Some(_) => self.closed = true,
                None => break,
            }
        }
        self.answer = self.gathered.split().freeze();
        self.turns.answered = true;
    }
}

/// How long a poll may be held.
fn hold(headers: &HeaderMap) -> Duration {
    let asked = text(headers, &HOLD)
        .and_then(|seconds| seconds.parse().ok())
        .map_or(HOLD_DEFAULT, Duration::from_secs);
    // A third is left for the way.
    let envoy = text(headers, &ENVOY_LIMIT)
        .and_then(|limit| limit.parse().ok())
        .map_or(HOLD_MAX, |limit: u64| Duration::from_millis(limit) * 2 / 3);
    asked.min(envoy).min(HOLD_MAX)
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// An answer with status 200 and what all answers have.
fn answer(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    response
}

fn refusal(status: StatusCode, problem: &str) -> Response<Full<Bytes>> {
    let mut response = answer(Bytes::from(format!("{problem}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests;
