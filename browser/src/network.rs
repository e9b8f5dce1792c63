//! What pages and their workers loaded, kept per tab within bounds.
//!
//! Every hop of a redirect is an entry of its own. Nothing is ever loaded again to be shown: bodies come
//! from what the browser has kept of the answer, or they are told to be gone.

mod detail;
mod events;
mod frames;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::types::{
    Initiator, NetworkListRequest, NetworkRequest, RequestState, ResourceType,
};

use self::events::{Fields, ResourceTiming};
use self::frames::{FrameRing, Report};
use crate::cdp::{CdpError, Event, Session};
use crate::console::{Origin, StackTrace};
use crate::listing::{Budget, Cursor, Listed, cut, millis};
use crate::redact;

pub(crate) use self::detail::get;

/// Requests that are kept of one tab.
const REQUESTS_MAX: usize = 1_000;

/// Bytes that they may take together, headers and what was posted included.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Characters of an address that are kept.
const URL_CHARS_MAX: usize = 16_384;

/// Characters of an address that a list shows unless a limit was given, and of a `data:` address always.
const URL_CHARS_SHORT: usize = 200;

/// Fields of a header that are kept.
const FIELDS_MAX: usize = 100;

/// Characters of a field's value that are kept.
const VALUE_CHARS_MAX: usize = 2_000;

/// Characters of a header that are kept.
const HEADER_CHARS_MAX: usize = 16_000;

/// Characters of what a request posts that are kept.
pub(super) const POST_CHARS_MAX: usize = 20_000;

/// Requests whose header was reported before themselves. They follow at once, or never.
const EARLY_MAX: usize = 64;

/// What a request costs apart from its texts.
const OVERHEAD: usize = 600;

/// Fields between the browser and our own proxy. They never reach a server, and one of them is the
/// credential of the session, which nobody may see.
const PROXY_FIELDS: &[&str] = &["proxy-authorization", "proxy-connection"];

/// Letter that ids begin with.
const ID_PREFIX: char = 'n';

/// A header's fields in lower case.
#[derive(Clone, Debug, Default)]
struct Head {
    fields: Vec<(String, String)>,
    truncated: bool,
    /// As they went over the wire, cookies included.
    raw: bool,
}

impl Head {
    fn new(fields: &Fields, raw: bool) -> Self {
        let mut head = Self {
            raw,
            truncated: fields.len() > FIELDS_MAX,
            fields: Vec::new(),
        };
        let mut left = HEADER_CHARS_MAX;
        for (name, value) in fields.iter().take(FIELDS_MAX) {
            let value = value.as_str().unwrap_or_default();
            let (name, long_name) = cut(&name.to_lowercase(), VALUE_CHARS_MAX.min(left));
            if PROXY_FIELDS.contains(&&*name) {
                continue;
            }
            left -= name.chars().count();
            let (value, long_value) = cut(value, VALUE_CHARS_MAX.min(left));
            left -= value.chars().count();
            head.truncated |= long_name || long_value;
            head.fields.push((name, value));
            if left == 0 {
                head.truncated = true;
                break;
            }
        }
        head
    }

    fn bytes(&self) -> usize {
        self.fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + size_of::<(String, String)>())
            .sum()
    }

    fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(other, _)| other == name)?;
        Some(&field.1)
    }
}

/// A request, or one hop of it.
#[derive(Clone, Debug)]
struct Entry {
    /// The browser's id, the same for all hops.
    id: Arc<str>,
    document: u64,
    /// Where it was reported, and its body is kept.
    session: Session,
    origin: Origin,
    /// Without secrets.
    url: String,
    /// With them, if there are any.
    full_url: Option<String>,
    method: String,
    kind: ResourceType,
    state: RequestState,
    /// Seconds of the browser's clock.
    started: f64,
    ended: Option<f64>,
    timestamp_ms: u64,
    status: Option<u64>,
    failure: Option<String>,
    request: Head,
    response: Head,
    post: Option<String>,
    has_post: bool,
    mime: String,
    protocol: Option<String>,
    served_from: Option<&'static str>,
    transferred: u64,
    /// Of it, the response's header.
    header_bytes: u64,
    /// Decoded, as far as the page read it piece by piece.
    body_bytes: u64,
    initiator: Option<Initiator>,
    timing: Option<ResourceTiming>,
    redirected_from: Option<u64>,
    redirected_to: Option<u64>,
    /// Frames or events so far.
    frames: u64,
    open: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        OVERHEAD
            + self.url.len()
            + self.full_url.as_ref().map_or(0, String::len)
            + self.request.bytes()
            + self.response.bytes()
            + self.post.as_ref().map_or(0, String::len)
    }

    fn end(&mut self, state: RequestState, time: f64) {
        self.state = state;
        self.ended = Some(time);
    }

    /// Whether there was a body, kept or not.
    fn has_body(&self) -> bool {
        let length = self.response.get("content-length");
        self.body_bytes > 0
            || self.transferred > self.header_bytes
            || length.is_some_and(|length| length != "0")
    }

    fn answered(&mut self, response: &events::Response) {
        self.status = (response.status > 0).then_some(response.status);
        if !self.response.raw {
            self.response = Head::new(&response.headers, false);
        }
        if let Some(fields) = &response.request_headers {
            self.request = Head::new(fields, true);
        }
        self.mime = cut(&response.mime_type, VALUE_CHARS_MAX).0;
        self.protocol.clone_from(&response.protocol);
        self.transferred = millis(response.encoded_data_length);
        self.header_bytes = self.transferred;
        self.timing = response.timing;
        self.served_from = if response.from_service_worker {
            Some("serviceWorker")
        } else if response.from_disk_cache {
            Some("cache")
        } else if response.from_prefetch_cache {
            Some("prefetch")
        } else {
            self.served_from
        };
    }

    fn shown(&self, number: u64, url_chars: usize) -> NetworkRequest {
        let duration = self.ended.map(|ended| (ended - self.started) * 1_000.0);
        NetworkRequest {
            id: format!("{ID_PREFIX}{number}"),
            url: cut(&self.url, url_chars).0,
            method: self.method.clone(),
            resource_type: self.kind,
            state: self.state,
            status_code: self.status,
            timestamp_ms: self.timestamp_ms,
            duration_ms: duration.map(millis),
            bytes: (self.transferred > 0).then_some(self.transferred),
            failure: self.failure.clone(),
            frame_id: self.origin.frame.clone(),
            worker: self.origin.worker.clone(),
        }
    }
}

/// Headers that were reported before their request.
#[derive(Debug, Default)]
struct Early {
    request: Option<Head>,
    response: Option<Head>,
}

/// The requests of one tab.
#[derive(Debug, Default)]
pub(crate) struct NetworkLog {
    entries: VecDeque<Entry>,
    /// Entries that were let go, which is the number of the first one that is kept less one.
    gone: u64,
    /// The browser's id of a request to the number of its last hop.
    latest: HashMap<Arc<str>, u64>,
    early: HashMap<String, Early>,
    frames: FrameRing,
    bytes: usize,
    document: u64,
    dropped: u64,
    /// Seconds from the start of the browser's clock back to 1970.
    epoch: f64,
}

impl NetworkLog {
    /// Takes an event of the domain `Network`, which `session` reported of `origin`. `main` is the id of the
    /// tab's main frame.
    ///
    /// # Errors
    /// [`CdpError::Malformed`] if the event has another form than known.
    pub(crate) fn apply(
        &mut self,
        event: &Event,
        session: &Session,
        origin: &Origin,
        main: &str,
    ) -> Result<(), CdpError> {
        match event.method.as_str() {
            "Network.requestWillBeSent" => {
                let sent = event.parse()?;
                self.sent(sent, session, origin, main);
            }
            "Network.requestWillBeSentExtraInfo" => {
                let events::ExtraInfo {
                    request_id,
                    headers,
                } = event.parse()?;
                let head = Head::new(&headers, true);
                if let Some(hop) = self.first_hop(&request_id, |entry| !entry.request.raw) {
                    self.change_hop(hop, |entry| entry.request = head);
                } else if let Some(early) = self.early(request_id) {
                    early.request = Some(head);
                }
            }
            "Network.responseReceivedExtraInfo" => {
                let events::ExtraInfo {
                    request_id,
                    headers,
                } = event.parse()?;
                let head = Head::new(&headers, true);
                if let Some(hop) = self.first_hop(&request_id, |entry| !entry.response.raw) {
                    self.change_hop(hop, |entry| entry.response = head);
                } else if let Some(early) = self.early(request_id) {
                    early.response = Some(head);
                }
            }
            "Network.responseReceived" => {
                let received: events::ResponseReceived = event.parse()?;
                self.change(&received.request_id, |entry| {
                    entry.answered(&received.response);
                    entry.session = session.clone();
                    if !received.kind.is_empty() {
                        entry.kind = kind(&received.kind);
                    }
                    entry.open = entry.kind == ResourceType::EventSource;
                });
            }
            "Network.requestServedFromCache" => {
                let of: events::OfRequest = event.parse()?;
                self.change(&of.request_id, |entry| entry.served_from = Some("cache"));
            }
            "Network.dataReceived" => {
                let data: events::DataReceived = event.parse()?;
                self.change(&data.request_id, |entry| {
                    entry.body_bytes = entry.body_bytes.saturating_add(data.data_length);
                });
            }
            "Network.loadingFinished" => {
                let finished: events::LoadingFinished = event.parse()?;
                self.change(&finished.request_id, |entry| {
                    entry.end(RequestState::Completed, finished.timestamp);
                    entry.transferred = millis(finished.encoded_data_length);
                    entry.open = false;
                });
            }
            "Network.loadingFailed" => {
                let failed: events::LoadingFailed = event.parse()?;
                self.change(&failed.request_id, |entry| {
                    entry.open = false;
                    // The page had its answer and did not care for the rest of the body.
                    if failed.canceled && entry.status.is_some() {
                        entry.end(RequestState::Completed, failed.timestamp);
                        return;
                    }
                    entry.end(RequestState::Failed, failed.timestamp);
                    entry.failure = Some(failure(&failed));
                });
            }
            _ => return self.apply_stream(event, session, origin),
        }
        Ok(())
    }

    /// The events of WebSockets and EventSources.
    fn apply_stream(
        &mut self,
        event: &Event,
        session: &Session,
        origin: &Origin,
    ) -> Result<(), CdpError> {
        match event.method.as_str() {
            "Network.webSocketCreated" => {
                let created: events::WebSocketCreated = event.parse()?;
                let mut entry = self.entry(&created.request_id, session, origin, &created.url);
                "GET".clone_into(&mut entry.method);
                entry.kind = ResourceType::WebSocket;
                entry.initiator = created.initiator.map(initiator);
                entry.open = true;
                self.add(entry);
            }
            "Network.webSocketWillSendHandshakeRequest" => {
                let handshake: events::Handshake = event.parse()?;
                self.synchronise(handshake.wall_time, handshake.timestamp);
                let timestamp_ms = self.date(handshake.timestamp);
                self.change(&handshake.request_id, |entry| {
                    entry.request = Head::new(&handshake.request.headers, true);
                    entry.started = handshake.timestamp;
                    entry.timestamp_ms = timestamp_ms;
                });
            }
            "Network.webSocketHandshakeResponseReceived" => {
                let answered: events::HandshakeAnswered = event.parse()?;
                self.change(&answered.request_id, |entry| {
                    entry.answered(&answered.response);
                    entry.end(RequestState::Completed, answered.timestamp);
                });
            }
            "Network.webSocketFrameSent" | "Network.webSocketFrameReceived" => {
                let frame: events::WebSocketFrame = event.parse()?;
                let payload = &frame.response.payload_data;
                let is_text = (frame.response.opcode - 1.0).abs() < f64::EPSILON;
                let report = Report {
                    timestamp_ms: self.date(frame.timestamp),
                    sent: event.method.ends_with("Sent"),
                    kind: if is_text { "text" } else { "binary" },
                    text: payload,
                    bytes: if is_text {
                        payload.len() as u64
                    } else {
                        decoded_length(payload)
                    },
                };
                self.frame(&frame.request_id, &report);
            }
            "Network.webSocketFrameError" => {
                let error: events::WebSocketError = event.parse()?;
                let report = Report {
                    timestamp_ms: self.date(error.timestamp),
                    sent: false,
                    kind: "error",
                    text: &error.error_message,
                    bytes: 0,
                };
                self.frame(&error.request_id, &report);
                self.change(&error.request_id, |entry| {
                    entry.failure = Some(cut(&error.error_message, VALUE_CHARS_MAX).0);
                    if entry.state == RequestState::Pending {
                        entry.end(RequestState::Failed, error.timestamp);
                    }
                });
            }
            "Network.webSocketClosed" => {
                let closed: events::OfRequest = event.parse()?;
                self.change(&closed.request_id, |entry| {
                    entry.open = false;
                    if entry.state == RequestState::Pending {
                        entry.end(RequestState::Failed, closed.timestamp);
                        entry
                            .failure
                            .get_or_insert_with(|| "closed before it was open".to_owned());
                    }
                });
            }
            "Network.eventSourceMessageReceived" => {
                let message: events::SourceMessage = event.parse()?;
                let report = Report {
                    timestamp_ms: self.date(message.timestamp),
                    sent: false,
                    kind: &message.event_name,
                    text: &message.data,
                    bytes: message.data.len() as u64,
                };
                self.frame(&message.request_id, &report);
            }
            _ => {}
        }
        Ok(())
    }

    /// The main frame shows another document, whose own request had the browser's id `loader`.
    pub(crate) fn next_document(&mut self, loader: &str) {
        self.document += 1;
        self.dropped = 0;
        for entry in &mut self.entries {
            if *entry.id == *loader {
                entry.document = self.document;
            }
        }
    }

    fn sent(&mut self, sent: events::WillBeSent, session: &Session, origin: &Origin, main: &str) {
        self.synchronise(sent.wall_time, sent.timestamp);
        let before = self.latest.get(&*sent.request_id).copied();
        if let Some(response) = &sent.redirect_response {
            self.change(&sent.request_id, |entry| {
                entry.answered(response);
                entry.end(RequestState::Completed, sent.timestamp);
            });
        } else if let Some(entry) = before.and_then(|number| self.get_mut(number))
            && entry.state == RequestState::Pending
        {
            // Told by a second session, such as a service worker's in two frames.
            entry.session = session.clone();
            return;
        }
        let mut origin = origin.clone();
        if origin.worker.is_none() && origin.frame.is_none() {
            origin.frame = sent.frame_id.filter(|frame| frame != main);
        }
        let mut entry = self.entry(&sent.request_id, session, &origin, &sent.request.url);
        entry.method = cut(&sent.request.method, VALUE_CHARS_MAX).0;
        entry.kind = kind(&sent.kind);
        entry.started = sent.timestamp;
        entry.timestamp_ms = self.date(sent.timestamp);
        entry.request = Head::new(&sent.request.headers, false);
        entry.has_post = sent.request.has_post_data || sent.request.post_data.is_some();
        entry.post = sent
            .request
            .post_data
            .map(|data| cut(&data, POST_CHARS_MAX).0);
        entry.initiator = sent.initiator.map(initiator);
        entry.redirected_from = before.filter(|_| sent.redirect_response.is_some());
        // The browser knows no more what asked first.
        if let Some(hop) = entry.redirected_from.and_then(|from| self.get(from)) {
            entry.initiator.clone_from(&hop.initiator);
        }
        if let Some(early) = self.early.remove(&sent.request_id) {
            entry.request = early.request.unwrap_or(entry.request);
            entry.response = early.response.unwrap_or(entry.response);
        }
        let from = entry.redirected_from;
        let number = self.add(entry);
        if let Some(entry) = from.and_then(|from| self.get_mut(from)) {
            entry.redirected_to = Some(number);
        }
    }

    fn entry(&self, id: &str, session: &Session, origin: &Origin, url: &str) -> Entry {
        let chars = if url.starts_with("data:") {
            URL_CHARS_SHORT
        } else {
            URL_CHARS_MAX
        };
        let (full, _) = cut(url, chars);
        let url = redact::address(&full);
        Entry {
            id: Arc::from(id),
            document: self.document,
            session: session.clone(),
            origin: origin.clone(),
            full_url: (full != url).then_some(full),
            url,
            method: String::new(),
            kind: ResourceType::Other,
            state: RequestState::Pending,
            started: 0.0,
            ended: None,
            timestamp_ms: 0,
            status: None,
            failure: None,
            request: Head::default(),
            response: Head::default(),
            post: None,
            has_post: false,
            mime: String::new(),
            protocol: None,
            served_from: None,
            transferred: 0,
            header_bytes: 0,
            body_bytes: 0,
            initiator: None,
            timing: None,
            redirected_from: None,
            redirected_to: None,
            frames: 0,
            open: false,
        }
    }

    /// Keeps `entry` and answers its number.
    fn add(&mut self, entry: Entry) -> u64 {
        self.bytes += entry.bytes();
        let id = Arc::clone(&entry.id);
        self.entries.push_back(entry);
        let number = self.gone + self.entries.len() as u64;
        self.latest.insert(id, number);
        self.shrink();
        number
    }

    fn shrink(&mut self) {
        while self.entries.len() > REQUESTS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.gone += 1;
            self.bytes -= oldest.bytes();
            if self.latest.get(&oldest.id) == Some(&self.gone) {
                self.latest.remove(&oldest.id);
            }
            if oldest.document == self.document {
                self.dropped += 1;
            }
        }
    }

    /// Changes the last hop of the request that the browser calls `id`. One that is gone is left out.
    fn change(&mut self, id: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(number) = self.latest.get(id).copied() {
            self.change_hop(number, change);
        }
    }

    fn change_hop(&mut self, number: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.get_mut(number) {
            let before = entry.bytes();
            change(entry);
            let after = entry.bytes();
            self.bytes = self.bytes - before + after;
            self.shrink();
        }
    }

    fn get(&self, number: u64) -> Option<&Entry> {
        let index = number.checked_sub(self.gone + 1)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let index = number.checked_sub(self.gone + 1)?;
        self.entries.get_mut(usize::try_from(index).ok()?)
    }

    /// The number of the first hop of the browser's request `id` for which `missing` holds.
    fn first_hop(&self, id: &str, missing: impl Fn(&Entry) -> bool) -> Option<u64> {
        let mut number = self.latest.get(id).copied()?;
        let mut found = None;
        while let Some(entry) = self.get(number) {
            if missing(entry) {
                found = Some(number);
            }
            match entry.redirected_from {
                Some(before) => number = before,
                None => break,
            }
        }
        found
    }

    /// The place for headers of a request that was not reported yet.
    fn early(&mut self, id: String) -> Option<&mut Early> {
        if self.latest.contains_key(&*id) {
            return None;
        }
        if self.early.len() >= EARLY_MAX {
            self.early.clear();
        }
        Some(self.early.entry(id).or_default())
    }

    fn frame(&mut self, id: &str, report: &Report<'_>) {
        let Some(number) = self.latest.get(id).copied() else {
            return;
        };
        let Some(entry) = self.get_mut(number) else {
            return;
        };
        entry.frames += 1;
        let count = entry.frames;
        self.frames.add(number, count, report);
    }

    fn synchronise(&mut self, wall: f64, clock: f64) {
        if wall > 0.0 && clock > 0.0 {
            self.epoch = wall - clock;
        }
    }

    /// Milliseconds since 1970 of a time of the browser's clock.
    fn date(&self, clock: f64) -> u64 {
        millis((clock + self.epoch) * 1_000.0)
    }

    /// The requests that `request` asks for.
    ///
    /// # Errors
    /// [`yonder_protocol::ErrorCode::Invalid`] for a cursor that is none.
    pub(crate) fn list(
        &self,
        request: &NetworkListRequest,
    ) -> Result<Listed<NetworkRequest>, OperationError> {
        let cursor = Cursor::new(
            "network.list",
            ID_PREFIX,
            request.before.as_ref(),
            request.after.as_ref(),
        )?;
        let earlier = request.earlier.unwrap_or_default();
        let matching: Vec<_> = (self.gone + 1..)
            .zip(&self.entries)
            .filter(|(_, entry)| {
                (earlier || entry.document == self.document)
                    && request
                        .url_contains
                        .as_ref()
                        .is_none_or(|needle| entry.url.contains(needle.as_str()))
                    && request.resource_type.is_none_or(|kind| entry.kind == kind)
                    && request.state.is_none_or(|state| entry.state == state)
            })
            .collect();
        let url_chars = if request.limit.is_some() {
            URL_CHARS_MAX
        } else {
            URL_CHARS_SHORT
        };
        let total = matching.len() as u64;
        let (entries, truncated) = cursor.pick(
            matching.into_iter(),
            Budget::of(request.limit),
            |number, entry| entry.shown(number, url_chars),
        );
        Ok(Listed {
            entries,
            total,
            truncated,
            dropped: self.dropped,
        })
    }
}

fn kind(name: &str) -> ResourceType {
    match name {
        "Document" => ResourceType::Document,
        "Stylesheet" => ResourceType::Stylesheet,
        "Image" => ResourceType::Image,
        "Media" | "TextTrack" => ResourceType::Media,
        "Font" => ResourceType::Font,
        "Script" => ResourceType::Script,
        "XHR" => ResourceType::Xhr,
        "Fetch" => ResourceType::Fetch,
        "EventSource" => ResourceType::EventSource,
        "WebSocket" => ResourceType::WebSocket,
        "Manifest" => ResourceType::Manifest,
        _ => ResourceType::Other,
    }
}

fn initiator(reported: events::Initiator) -> Initiator {
    let top = reported.stack.as_ref().and_then(StackTrace::top);
    let url = reported
        .url
        .map(|url| cut(&redact::address(&url), URL_CHARS_SHORT).0);
    Initiator {
        kind: cut(&reported.kind, VALUE_CHARS_MAX).0,
        line: top
            .as_ref()
            .map(|top| top.line)
            .or_else(|| reported.line_number.map(|line| millis(line) + 1)),
        url: top.map(|top| top.url).or(url),
    }
}

fn failure(failed: &events::LoadingFailed) -> String {
    let mut text = cut(&failed.error_text, VALUE_CHARS_MAX).0;
    if let Some(reason) = &failed.blocked_reason {
        text = format!("{text}, blocked: {}", cut(reason, VALUE_CHARS_MAX).0);
    }
    if let Some(cors) = &failed.cors_error_status {
        text = format!("{text}, CORS: {}", cut(&cors.cors_error, VALUE_CHARS_MAX).0);
    }
    if text.is_empty() {
        "it failed without a reason".clone_into(&mut text);
    }
    cut(&text, VALUE_CHARS_MAX).0
}

/// The number of bytes that `base64` stands for.
fn decoded_length(base64: &str) -> u64 {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    ((base64.len() / 4) * 3).saturating_sub(padding) as u64
}
