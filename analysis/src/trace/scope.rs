//! Which processes of a trace a tab's frames live in, and the trace without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use serde_json::{Value, json};

use super::events::Events;
use super::{
    COMMITTED, Event, FrameData, LCP, NODE_NAMES, SHIFT, STARTED, TraceError, frames_of, nodes_of,
};

/// Frames of a tab that are told apart.
const FRAMES_MAX: usize = 4_096;

/// Nodes whose names are worth asking for.
const NODES_MAX: usize = 64;

/// The frames of a tab and the processes that ran them.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    frames: BTreeSet<String>,
    processes: BTreeSet<i64>,
    /// Processes of the main frame alone.
    main: BTreeSet<i64>,
    /// What shifted or was the largest.
    nodes: BTreeSet<i64>,
}

impl Scope {
    /// Finds the frames below the main frame `main`.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn find(input: impl Read, main: &str) -> Result<Self, TraceError> {
        let mut scope = Self::default();
        let mut told: Vec<FrameData> = Vec::new();
        let mut events = Events::new(input);
        while let Some(bytes) = events.next()? {
            // Most events are of other kinds; parsing them would be the better part of the work.
            let of_nodes = contains(bytes, b"impacted_nodes")
                || contains(bytes, b"largestContentfulPaint::Candidate");
            if !of_nodes && !contains(bytes, b"InBrowser\"") {
                continue;
            }
            let event: Event<'_> = serde_json::from_slice(bytes)?;
            if matches!(&*event.name, SHIFT | LCP) && scope.nodes.len() < NODES_MAX {
                scope.nodes.extend(nodes_of(&event, main));
            }
            if matches!(&*event.name, STARTED | COMMITTED) && told.len() < FRAMES_MAX {
                told.extend(frames_of(&event));
            }
        }
        scope.frames.insert(main.to_owned());
        loop {
            let before = (scope.frames.len(), scope.processes.len());
            for frame in &told {
                let parent = frame.parent.as_ref();
                if parent.is_some_and(|parent| scope.frames.contains(parent)) {
                    scope.frames.insert(frame.frame.clone());
                }
                if scope.frames.contains(&frame.frame) {
                    scope.processes.extend(frame.process_id);
                    if frame.frame == main {
                        scope.main.extend(frame.process_id);
                    }
                }
            }
            if before == (scope.frames.len(), scope.processes.len()) {
                return Ok(scope);
            }
        }
    }

    /// Whether the main frame changed its process: what it did before and after are parts of two.
    pub fn is_split(&self) -> bool {
        self.main.len() > 1
    }

    /// Whether the trace tells of the tab at all.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// The ids (CDP `DOM.BackendNodeId`) of elements that shifted or were the largest, whose names the trace does not hold.
    pub fn nodes(&self) -> impl Iterator<Item = i64> {
        self.nodes.iter().copied()
    }

    /// Writes the trace with the events of these processes alone, and those of the browser that tell of these frames; with
    /// `names` for [`Self::nodes`].
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn narrow(
        &self,
        input: impl Read,
        mut output: impl Write,
        names: &BTreeMap<i64, String>,
    ) -> Result<(), TraceError> {
        output.write_all(b"{\"traceEvents\":[")?;
        let mut separator: &[u8] = b"\n";
        let mut events = Events::new(input);
        while let Some(bytes) = events.next()? {
            let event: Event<'_> = serde_json::from_slice(bytes)?;
            let mut write = |event: &[u8]| {
                output.write_all(separator)?;
                separator = b",\n";
                output.write_all(event)
            };
            match &*event.name {
                STARTED => {
                    let mut event: Value = serde_json::from_slice(bytes)?;
                    if let Some(frames) = event.pointer_mut("/args/data/frames") {
                        let ours = |frame: &Value| {
                            let frame = frame.get("frame").and_then(Value::as_str);
                            frame.is_some_and(|frame| self.frames.contains(frame))
                        };
                        if let Some(frames) = frames.as_array_mut() {
                            frames.retain(ours);
                        }
                    }
                    write(&serde_json::to_vec(&event)?)?;
                }
                COMMITTED => {
                    let mut frames = frames_of(&event).into_iter();
                    if frames.any(|frame| self.frames.contains(&frame.frame)) {
                        write(bytes)?;
                    }
                }
                _ if self.processes.contains(&event.pid) => write(bytes)?,
                _ => {}
            }
        }
        let names = json!({ "name": NODE_NAMES, "ph": "M", "cat": "__metadata", "args": { "names": names } });
        output.write_all(separator)?;
        output.write_all(&serde_json::to_vec(&names)?)?;
        output.write_all(b"\n]}\n")?;
        output.flush()?;
        Ok(())
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(bytes, needle).is_some()
}
