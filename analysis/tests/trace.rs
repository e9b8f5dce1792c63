//! Traces: one that Chromium recorded, beside what its page was told, and made ones.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test where something is not as it must be"
)]

use std::collections::BTreeMap;
use std::io::{self, Read};

use proptest::prelude::*;
use serde_json::{Value, json};
use yonder_analysis::trace::{Scope, Trace, TraceError};

/// A load of a page with a slow style sheet, a shift, a long task that forces layouts, and a click whose handler takes 120 ms.
/// The page's own observers said: first byte after 55.9 ms, FCP and LCP 280, a shift of 0.2614, an interaction of 128 ms, and
/// long tasks of 187 and 123 ms.
const LOAD: &[u8] = include_bytes!("data/load.trace.json");

const MAIN: &str = "D2CE43526D3E532C412AA337D552527F";

fn near(told: f64, page: f64, within: f64) {
    assert!((told - page).abs() <= within, "{told} beside {page}");
}

#[test]
fn a_load_is_told_as_the_page_saw_it() {
    let summary = Trace::read(LOAD).unwrap().summary(10);
    let metrics = &summary.metrics;
    assert_eq!(metrics.url.as_deref(), Some("http://site.test/a"));
    near(metrics.ttfb_ms.unwrap(), 55.9, 0.2);
    // The page's clock for paints has steps of 4 ms.
    near(metrics.fcp_ms.unwrap(), 280.0, 4.0);
    let lcp = metrics.lcp.as_ref().unwrap();
    near(lcp.at_ms, 280.0, 4.0);
    assert_eq!((lcp.kind, &*lcp.node), ("text", "h1"));
    near(
        metrics.ttfb_ms.unwrap() + lcp.render_delay_ms.unwrap(),
        lcp.at_ms,
        0.11,
    );
    near(metrics.cls, 0.2614, 0.0001);
    let inp = metrics.inp.as_ref().unwrap();
    near(inp.ms, 128.0, 8.0);
    near(
        inp.input_delay_ms + inp.processing_ms + inp.presentation_ms,
        inp.ms,
        0.21,
    );
    let tasks: Vec<_> = summary.long_tasks.iter().map(|task| task.ms).collect();
    near(tasks[0], 187.0, 1.0);
    near(tasks[1], 123.0, 1.0);
    assert_eq!(summary.long_tasks_total, 2);
    near(metrics.blocking_ms, 187.0 + 123.0 - 100.0, 2.0);
    let blocking: Vec<_> = summary.render_blocking.iter().map(|it| &*it.url).collect();
    assert!(blocking.contains(&"http://site.test/s.css"), "{blocking:?}");
    let forced = &summary.forced_layouts[0];
    assert_eq!((&*forced.function, forced.line), ("forced", 4));
}

#[test]
fn what_a_trace_lacks_is_not_invented() {
    let summary = Trace::read("[]".as_bytes()).unwrap().summary(10);
    let metrics = summary.metrics;
    assert_eq!(
        (metrics.url, metrics.ttfb_ms, metrics.fcp_ms),
        (None, None, None)
    );
    assert_eq!((metrics.lcp, metrics.inp), (None, None));
    assert_eq!(summary.events, []);
}

#[test]
fn a_narrowed_trace_has_the_tab_and_nothing_of_others() {
    let event = |name: &str, pid: i64, args: Value| json!({ "name": name, "ph": "X", "pid": pid, "tid": 1, "ts": 1, "dur": 1, "args": args });
    let frame = |frame: &str, parent: Option<&str>, pid: i64| json!({ "frame": frame, "parent": parent, "processId": pid, "url": format!("http://{frame}.test/") });
    let started =
        json!({ "data": { "frames": [frame("mine", None, 1), frame("other", None, 2)] } });
    let committed = |it: Value| json!({ "data": it });
    let events = json!([
        event("Layout", 1, json!({})),
        event("Secret", 2, json!({})),
        event("InnerFrame", 3, json!({})),
        event("TracingStartedInBrowser", 9, started),
        event(
            "FrameCommittedInBrowser",
            9,
            committed(frame("inner", Some("mine"), 3))
        ),
        event(
            "FrameCommittedInBrowser",
            9,
            committed(frame("other", None, 2))
        ),
    ]);
    let text = serde_json::to_vec(&events).unwrap();
    let scope = Scope::find(&*text, "mine").unwrap();
    assert!(!scope.is_split() && !scope.is_empty());
    let mut narrowed = Vec::new();
    scope
        .narrow(&*text, &mut narrowed, &BTreeMap::new())
        .unwrap();
    let narrowed = String::from_utf8(narrowed).unwrap();
    for kept in [
        "Layout",
        "InnerFrame",
        "http://mine.test/",
        "http://inner.test/",
    ] {
        assert!(narrowed.contains(kept), "{kept} is not in {narrowed}");
    }
    for left in ["Secret", "http://other.test/"] {
        assert!(!narrowed.contains(left), "{left} is in {narrowed}");
    }
    assert!(Scope::find(&*text, "unknown").unwrap().is_empty());
    let moved = json!([
        event(
            "FrameCommittedInBrowser",
            9,
            committed(frame("mine", None, 1))
        ),
        event(
            "FrameCommittedInBrowser",
            9,
            committed(frame("mine", None, 5))
        ),
    ]);
    let moved = serde_json::to_vec(&moved).unwrap();
    assert!(Scope::find(&*moved, "mine").unwrap().is_split());
    assert!(!Scope::find(LOAD, MAIN).unwrap().is_split());
}

/// Hands out pieces of the given lengths, over and over.
struct Pieces<'a> {
    rest: &'a [u8],
    lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = *self.lengths.next().unwrap();
        let length = length.min(self.rest.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.rest = &self.rest[length..];
        Ok(length)
    }
}

proptest! {
    #[test]
    fn the_pieces_in_which_a_file_comes_do_not_matter(lengths in proptest::collection::vec(1_usize..5_000, 1..20)) {
        let pieces = Pieces { rest: LOAD, lengths: lengths.iter().cycle() };
        let read = Trace::read(pieces).unwrap().summary(50);
        prop_assert_eq!(read, Trace::read(LOAD).unwrap().summary(50));
    }

    #[test]
    fn a_damaged_file_is_an_error_or_a_trace(at in 0..LOAD.len(), byte: u8) {
        let mut damaged = LOAD.to_vec();
        damaged[at] = byte;
        if let Ok(trace) = Trace::read(&*damaged) {
            let _ = trace.summary(10);
        }
        let cut = Trace::read(&LOAD[..at]);
        prop_assert!(matches!(cut, Err(TraceError::Malformed(_))));
    }
}
