//! Traces of Chromium (`Tracing`, the JSON of `chrome://tracing`): what a page's load and its main thread took.
//!
//! A trace is read as a stream: what is kept of it is bounded, whatever the length of the file. Metrics are told as Chromium
//! itself measured them; one that the trace does not hold is absent.

mod events;
mod read;
mod scope;
mod summary;

use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

pub use self::read::Trace;
pub use self::scope::Scope;
pub use self::summary::{
    Blocking, EventTotal, ForcedLayout, Interaction, Lcp, LongTask, Metrics, Script, Shift, Summary,
};

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no trace.
    #[error("it is not a trace of Chromium in JSON, or is damaged: {0}")]
    Malformed(&'static str),
    /// An event of it is none.
    #[error("it is not a trace of Chromium in JSON, or is damaged: {0}")]
    Event(#[from] serde_json::Error),
    /// It is longer than 4 GiB.
    #[error("the trace is longer than 4 GiB; record for a shorter time")]
    TooLarge,
}

/// An event, as much of it as is looked at.
#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    tid: i64,
    /// Microseconds, of a clock that starts anywhere.
    #[serde(default)]
    ts: f64,
    /// Microseconds.
    #[serde(default)]
    dur: f64,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

impl Event<'_> {
    /// Its arguments as `T`; nothing if they are of another form.
    fn arguments<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        self.args
            .and_then(|args| serde_json::from_str(args.get()).ok())
    }
}

/// `args` of the events that tell of frames.
#[derive(Deserialize)]
struct FramesArguments {
    data: FramesData,
}

/// `TracingStartedInBrowser` has `frames`, `FrameCommittedInBrowser` is of one.
#[derive(Deserialize)]
struct FramesData {
    #[serde(default)]
    frames: Vec<FrameData>,
    #[serde(flatten)]
    frame: Option<FrameData>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameData {
    frame: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    process_id: Option<i64>,
    #[serde(default)]
    is_outermost_main_frame: Option<bool>,
    #[serde(default)]
    is_in_primary_main_frame: Option<bool>,
}

/// `LayoutShift` and `largestContentfulPaint::Candidate`.
#[derive(Deserialize)]
struct NodesArguments {
    frame: String,
    data: NodesData,
}

#[derive(Deserialize)]
struct NodesData {
    #[serde(default)]
    impacted_nodes: Vec<ImpactedNode>,
    #[serde(default, rename = "nodeId")]
    node_id: Option<i64>,
}

#[derive(Deserialize)]
struct ImpactedNode {
    node_id: i64,
}

const SHIFT: &str = "LayoutShift";
const LCP: &str = "largestContentfulPaint::Candidate";

/// Our own event, with the names of nodes that Chromium's events have ids of.
const NODE_NAMES: &str = "yonder.nodeNames";

fn nodes_of(event: &Event<'_>, frame: &str) -> Vec<i64> {
    match event.arguments() {
        Some(NodesArguments { frame: of, data }) if of == frame => {
            let impacted = data.impacted_nodes.iter().map(|node| node.node_id);
            impacted.chain(data.node_id).collect()
        }
        _ => Vec::new(),
    }
}

/// What the frames of a trace are told by.
const STARTED: &str = "TracingStartedInBrowser";
const COMMITTED: &str = "FrameCommittedInBrowser";

fn frames_of(event: &Event<'_>) -> Vec<FrameData> {
    let Some(FramesArguments { data }) = event.arguments() else {
        return Vec::new();
    };
    let mut frames = data.frames;
    frames.extend(data.frame);
    frames
}
