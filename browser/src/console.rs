//! What pages and their workers wrote to the console, kept per tab within bounds.
//!
//! Equal messages of one document are kept once, with a count and in the place of the last one. What is
//! asked for is answered from here, so that a page that hangs can still be read.

mod render;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use yonder_protocol::operation::error::OperationError;
use yonder_protocol::operation::types::{Console, ConsoleEntry, Level, Source};

use self::render::RemoteObject;
use crate::cdp::{CdpError, Event};
use crate::listing::{Budget, Cursor, Listed, cut, millis};
use crate::redact;

/// Messages that are kept of one tab.
const MESSAGES_MAX: usize = 1_000;

/// Bytes that they may take together.
const BYTES_MAX: usize = 1024 * 1024;

/// Characters of a message that are kept.
const TEXT_CHARS_MAX: usize = 2_000;

/// Characters of a message that an answer shows unless a limit was given.
const TEXT_CHARS_SHORT: usize = 500;

/// Characters of an address that are kept and shown.
const URL_CHARS_MAX: usize = 500;

/// What a message costs apart from its texts.
const OVERHEAD: usize = 200;

/// Letter that ids begin with.
const ID_PREFIX: char = 'c';

/// Where a message comes from: a worker, or a frame other than the main one.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Origin {
    pub(crate) frame: Option<String>,
    pub(crate) worker: Option<String>,
}

#[derive(Debug, Eq, Hash, PartialEq)]
struct Message {
    document: u64,
    level: Level,
    text: String,
    truncated: bool,
    source: Option<Source>,
    origin: Origin,
}

#[derive(Debug)]
struct Kept {
    message: Message,
    hash: u64,
    count: u64,
    timestamp_ms: u64,
    /// The browser's number of an exception, by which it may be taken back.
    exception: Option<i64>,
}

impl Kept {
    fn bytes(&self) -> usize {
        let message = &self.message;
        OVERHEAD
            + message.text.len()
            + message.source.as_ref().map_or(0, |source| source.url.len())
            + message.origin.frame.as_ref().map_or(0, String::len)
            + message.origin.worker.as_ref().map_or(0, String::len)
    }
}

/// The messages of one tab.
#[derive(Debug, Default)]
pub(crate) struct ConsoleLog {
    /// By the number of the last of equal ones.
    messages: BTreeMap<u64, Kept>,
    /// Hash of a message to its number. Where two differ and have one hash, the later is found.
    known: HashMap<u64, u64>,
    hasher: RandomState,
    next: u64,
    bytes: usize,
    document: u64,
    dropped: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiCall {
    #[serde(rename = "type")]
    kind: String,
    args: Vec<RemoteObject>,
    #[serde(default)]
    timestamp: f64,
    stack_trace: Option<StackTrace>,
}

/// Calls of a stack; only where a message was written is of interest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StackTrace {
    #[serde(default)]
    call_frames: Vec<CallFrame>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame {
    #[serde(default)]
    url: String,
    #[serde(default)]
    line_number: i64,
    #[serde(default)]
    column_number: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thrown {
    #[serde(default)]
    timestamp: f64,
    exception_details: ExceptionDetails,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExceptionDetails {
    exception_id: i64,
    #[serde(default)]
    text: String,
    #[serde(default)]
    line_number: i64,
    #[serde(default)]
    column_number: i64,
    url: Option<String>,
    stack_trace: Option<StackTrace>,
    exception: Option<RemoteObject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    exception_id: i64,
}

#[derive(Deserialize)]
struct EntryAdded {
    entry: LogEntry,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogEntry {
    #[serde(default)]
    source: String,
    #[serde(default)]
    level: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    timestamp: f64,
    url: Option<String>,
    line_number: Option<i64>,
    stack_trace: Option<StackTrace>,
}

impl StackTrace {
    /// The address and line of the innermost call that has an address.
    pub(crate) fn top(&self) -> Option<Source> {
        let top = self.call_frames.iter().find(|call| !call.url.is_empty())?;
        Some(place(&top.url, top.line_number, top.column_number))
    }
}

/// A place in a script from the browser's counts, which start at 0.
fn place(url: &str, line: i64, column: i64) -> Source {
    let count = |number: i64| u64::try_from(number).unwrap_or(0) + 1;
    Source {
        url: cut(&redact::address(url), URL_CHARS_MAX).0,
        line: count(line),
        column: count(column),
    }
}

impl ConsoleLog {
    /// Takes an event of the domains `Runtime` and `Log`; answers how many objects of the page it made the
    /// browser hold on to.
    ///
    /// # Errors
    /// [`CdpError::Malformed`] if the event has another form than known.
    pub(crate) fn apply(&mut self, event: &Event, origin: Origin) -> Result<usize, CdpError> {
        match event.method.as_str() {
            "Runtime.consoleAPICalled" => {
                let call: ApiCall = event.parse()?;
                let objects = call.args.iter().filter(|arg| arg.is_held()).count();
                let level = match call.kind.as_str() {
                    "debug" => Level::Debug,
                    "warning" => Level::Warning,
                    "error" | "assert" => Level::Error,
                    // They say nothing.
                    "clear" | "endGroup" => return Ok(objects),
                    _ => Level::Info,
                };
                let mut text = render::message(&call.args, TEXT_CHARS_MAX);
                if call.kind == "assert" {
                    text.insert_str(0, "Assertion failed: ");
                }
                let source = call.stack_trace.and_then(|stack| stack.top());
                self.add(level, &text, source, origin, call.timestamp, None);
                Ok(objects)
            }
            "Runtime.exceptionThrown" => {
                let Thrown {
                    timestamp,
                    exception_details: details,
                } = event.parse()?;
                let objects = usize::from(details.exception.is_some());
                let mut text = details.text.clone();
                if let Some(exception) = &details.exception {
                    let what = exception.text(TEXT_CHARS_MAX);
                    if !what.is_empty() {
                        text = format!("{text} {what}");
                    }
                }
                let source = match (&details.url, &details.stack_trace) {
                    (Some(url), _) if !url.is_empty() => {
                        Some(place(url, details.line_number, details.column_number))
                    }
                    (_, Some(stack)) => stack.top(),
                    _ => None,
                };
                let exception = Some(details.exception_id);
                self.add(Level::Error, &text, source, origin, timestamp, exception);
                Ok(objects)
            }
            "Runtime.exceptionRevoked" => {
                let revoked: Revoked = event.parse()?;
                let number = self.messages.iter().rev().find(|(_, kept)| {
                    kept.exception == Some(revoked.exception_id) && kept.count == 1
                });
                if let Some(number) = number.map(|(number, _)| *number) {
                    self.remove(number);
                }
                Ok(0)
            }
            "Log.entryAdded" => {
                let EntryAdded { entry } = event.parse()?;
                // The worker's own session tells it with more.
                if entry.source == "worker" {
                    return Ok(0);
                }
                let level = match entry.level.as_str() {
                    "verbose" => Level::Debug,
                    "warning" => Level::Warning,
                    "error" => Level::Error,
                    _ => Level::Info,
                };
                let stack = entry.stack_trace.and_then(|stack| stack.top());
                let source = stack.or_else(|| {
                    let url = entry.url.as_deref().filter(|url| !url.is_empty())?;
                    Some(place(url, entry.line_number.unwrap_or(0), 0))
                });
                self.add(level, &entry.text, source, origin, entry.timestamp, None);
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    /// The main frame shows another document: what is written from now on belongs to it.
    pub(crate) fn next_document(&mut self) {
        self.document += 1;
        self.dropped = 0;
    }

    fn add(
        &mut self,
        level: Level,
        text: &str,
        source: Option<Source>,
        origin: Origin,
        timestamp: f64,
        exception: Option<i64>,
    ) {
        let (text, truncated) = cut(&redact::addresses_in(text), TEXT_CHARS_MAX);
        let message = Message {
            document: self.document,
            level,
            text,
            truncated,
            source,
            origin,
        };
        let hash = self.hasher.hash_one(&message);
        let same = self.known.get(&hash).copied();
        let before = same
            .filter(|number| {
                let kept = self.messages.get(number);
                kept.is_some_and(|kept| kept.message == message)
            })
            .and_then(|number| self.remove(number));
        let kept = Kept {
            message,
            hash,
            count: before.map_or(1, |before| before.count + 1),
            timestamp_ms: millis(timestamp),
            exception,
        };
        self.bytes += kept.bytes();
        self.next += 1;
        self.known.insert(hash, self.next);
        self.messages.insert(self.next, kept);
        while self.messages.len() > MESSAGES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.messages.keys().next().copied() else {
                break;
            };
            if let Some(kept) = self.remove(oldest)
                && kept.message.document == self.document
            {
                self.dropped += kept.count;
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Kept> {
        let kept = self.messages.remove(&number)?;
        self.bytes -= kept.bytes();
        if self.known.get(&kept.hash) == Some(&number) {
            self.known.remove(&kept.hash);
        }
        Some(kept)
    }

    /// The messages that `request` asks for, oldest first: those, how many match, whether there are more,
    /// and how many were dropped.
    ///
    /// # Errors
    /// [`yonder_protocol::ErrorCode::Invalid`] for a cursor that is none.
    pub(crate) fn list(&self, request: &Console) -> Result<Listed<ConsoleEntry>, OperationError> {
        let cursor = Cursor::new(
            "console",
            ID_PREFIX,
            request.before.as_ref(),
            request.after.as_ref(),
        )?;
        let level = request.level.unwrap_or_default();
        let needle = request
            .contains
            .as_ref()
            .map(|needle| needle.as_str().to_lowercase());
        let earlier = request.earlier.unwrap_or_default();
        let matching: Vec<_> = self
            .messages
            .iter()
            .filter(|(_, kept)| {
                let message = &kept.message;
                message.level >= level
                    && (earlier || message.document == self.document)
                    && needle
                        .as_ref()
                        .is_none_or(|needle| message.text.to_lowercase().contains(needle))
            })
            .collect();
        let text_chars = if request.limit.is_some() {
            TEXT_CHARS_MAX
        } else {
            TEXT_CHARS_SHORT
        };
        let budget = Budget::of(request.limit);
        let (entries, truncated) = cursor.pick(
            matching.iter().map(|(number, kept)| (**number, *kept)),
            budget,
            |number, kept| entry(number, kept, text_chars),
        );
        Ok(Listed {
            entries,
            total: matching.len() as u64,
            truncated,
            dropped: self.dropped,
        })
    }
}

fn entry(number: u64, kept: &Kept, text_chars: usize) -> ConsoleEntry {
    let message = &kept.message;
    let (text, cut) = cut(&message.text, text_chars);
    ConsoleEntry {
        id: format!("{ID_PREFIX}{number}"),
        timestamp_ms: kept.timestamp_ms,
        level: message.level,
        text,
        text_truncated: message.truncated || cut,
        count: (kept.count > 1).then_some(kept.count),
        source: message.source.clone(),
        frame_id: message.origin.frame.clone(),
        worker: message.origin.worker.clone(),
    }
}

#[cfg(test)]
mod tests;
