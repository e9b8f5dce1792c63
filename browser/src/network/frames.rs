//! WebSocket frames and EventSource events of one tab, kept within bounds.

use std::collections::VecDeque;

use yonder_protocol::operation::types::NetworkFrame;

use crate::listing::{Budget, cut, fill};
use crate::redact;

/// Frames that are kept of one tab.
const FRAMES_MAX: usize = 2_000;

/// Bytes that they may take together.
const BYTES_MAX: usize = 1024 * 1024;

/// Characters of a frame that are kept.
const TEXT_CHARS_MAX: usize = 2_000;

/// What a frame costs apart from its text.
const OVERHEAD: usize = 100;

/// A frame as it is reported.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) timestamp_ms: u64,
    pub(super) sent: bool,
    pub(super) kind: &'a str,
    pub(super) text: &'a str,
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Frame {
    /// Number of the request that it belongs to.
    request: u64,
    number: u64,
    timestamp_ms: u64,
    sent: bool,
    kind: String,
    text: String,
    truncated: bool,
    bytes: u64,
}

impl Frame {
    fn cost(&self) -> usize {
        OVERHEAD + self.kind.len() + self.text.len()
    }
}

/// The frames of one tab, oldest first.
#[derive(Debug, Default)]
pub(super) struct FrameRing {
    frames: VecDeque<Frame>,
    bytes: usize,
}

/// Which frames are asked for.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) contains: Option<&'a str>,
    pub(super) before: Option<u64>,
    pub(super) secrets: bool,
}

impl FrameRing {
    /// Keeps the frame `number` of `request`.
    pub(super) fn add(&mut self, request: u64, number: u64, report: &Report<'_>) {
        let (text, truncated) = cut(report.text, TEXT_CHARS_MAX);
        let frame = Frame {
            request,
            number,
            timestamp_ms: report.timestamp_ms,
            sent: report.sent,
            kind: cut(report.kind, TEXT_CHARS_MAX).0,
            text,
            truncated,
            bytes: report.bytes,
        };
        self.bytes += frame.cost();
        self.frames.push_back(frame);
        while self.frames.len() > FRAMES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.frames.pop_front() else {
                break;
            };
            self.bytes -= oldest.cost();
        }
    }

    /// The latest frames of `request` that are wanted and fit a short answer, oldest first; whether more of
    /// them match; and how many of the request's frames are kept.
    pub(super) fn list(&self, request: u64, wanted: &Wanted<'_>) -> (Vec<NetworkFrame>, bool, u64) {
        let of_request = || self.frames.iter().filter(|frame| frame.request == request);
        let matching = of_request()
            .rev()
            .map(|frame| (frame.number, shown(frame, wanted.secrets)))
            .filter(|(number, frame)| {
                wanted.before.is_none_or(|before| *number < before)
                    && wanted
                        .contains
                        .is_none_or(|needle| frame.text.contains(needle))
            });
        let (mut list, more) = fill(matching, Budget::of(None), |_, frame| frame);
        list.reverse();
        (list, more, of_request().count() as u64)
    }
}

fn shown(frame: &Frame, secrets: bool) -> NetworkFrame {
    let text = if secrets || frame.kind == "binary" {
        frame.text.clone()
    } else {
        redact::addresses_in(&redact::body("", &frame.text))
    };
    NetworkFrame {
        number: frame.number,
        timestamp_ms: frame.timestamp_ms,
        direction: if frame.sent { "sent" } else { "received" }.to_owned(),
        kind: frame.kind.clone(),
        text,
        truncated: frame.truncated,
        bytes: frame.bytes,
    }
}
