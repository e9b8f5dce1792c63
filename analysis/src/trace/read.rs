//! Gathers from a trace what its summary needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

use serde::Deserialize;

use super::events::Events;
use super::{
    COMMITTED, Event, FrameData, ImpactedNode, LCP, NODE_NAMES, SHIFT, STARTED, TraceError,
    frames_of,
};

/// Kinds of events that are told apart; Chromium has some hundreds.
const NAMES_MAX: usize = 10_000;

/// Entries of each other list. A load of 30 s has some thousands.
const ENTRIES_MAX: usize = 200_000;

/// Names of nodes that are kept.
const NODE_NAMES_MAX: usize = 1_000;

/// Characters of an address or name.
const TEXT_CHARS: usize = 2_048;

/// Microseconds from which a task is long (W3C Long Tasks).
pub(super) const LONG_TASK_US: f64 = 50_000.0;

/// A stretch of one thread's time.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) start: f64,
    pub(super) end: f64,
}

#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) max: f64,
}

#[derive(Debug)]
pub(super) struct Navigation {
    pub(super) id: String,
    pub(super) url: String,
    pub(super) at: f64,
}

/// A candidate for the largest contentful paint.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) navigation: String,
    pub(super) at: f64,
    pub(super) index: u64,
    pub(super) image: bool,
    pub(super) node: Option<i64>,
    pub(super) node_name: String,
    pub(super) size: u64,
}

#[derive(Debug)]
pub(super) struct LayoutShift {
    pub(super) at: f64,
    pub(super) score: f64,
    pub(super) nodes: Vec<i64>,
}

/// An event that was part of an interaction.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) interaction: u64,
    pub(super) kind: String,
    pub(super) at: f64,
    /// Milliseconds.
    pub(super) duration: f64,
    pub(super) delay: f64,
    pub(super) processing: f64,
}

#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) url: String,
    pub(super) kind: String,
    pub(super) blocking: String,
    pub(super) sent: f64,
    /// When the browser began with it.
    pub(super) started: Option<f64>,
    pub(super) answered: Option<f64>,
    pub(super) finished: Option<f64>,
    pub(super) bytes: u64,
}

/// A place in a script.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    pub(super) function: String,
    pub(super) url: String,
    /// From 1.
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A piece of script that ran, in `places`.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) span: Span,
    pub(super) place: usize,
}

/// What is kept of a trace.
#[derive(Debug, Default)]
pub struct Trace {
    pub(super) first: Option<f64>,
    pub(super) last: f64,
    /// By kind of event.
    pub(super) totals: HashMap<String, Total>,
    pub(super) navigations: Vec<Navigation>,
    /// First contentful paints by navigation.
    pub(super) contentful: HashMap<String, f64>,
    pub(super) candidates: Vec<Candidate>,
    /// Images that were painted: by node, their address.
    pub(super) images: HashMap<i64, String>,
    pub(super) shifts: Vec<LayoutShift>,
    pub(super) inputs: Vec<Input>,
    pub(super) tasks: Vec<Span>,
    pub(super) requests: HashMap<String, Request>,
    pub(super) places: Vec<Place>,
    known_places: HashMap<Place, usize>,
    pub(super) runs: Vec<Run>,
    /// Layouts that a script waited for: how many, and microseconds.
    pub(super) forced: HashMap<usize, (u64, f64)>,
    pub(super) node_names: BTreeMap<i64, String>,
    main_frame: Option<String>,
    frames: HashSet<String>,
    /// Renderer main threads.
    main_threads: HashSet<(i64, i64)>,
    /// Long tasks of threads whose name may come later.
    long: Vec<(i64, i64, Span)>,
    calls: Vec<(i64, i64, Run)>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct NodeNames {
    names: BTreeMap<i64, String>,
}

#[derive(Deserialize)]
struct OfFrame<T> {
    frame: String,
    data: T,
}

#[derive(Deserialize)]
struct Data<T> {
    data: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NavigationData {
    #[serde(default)]
    navigation_id: String,
    #[serde(default, rename = "documentLoaderURL")]
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CandidateData {
    #[serde(default)]
    navigation_id: String,
    #[serde(default)]
    candidate_index: u64,
    #[serde(default)]
    node_id: Option<i64>,
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    size: u64,
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImageData {
    #[serde(default, rename = "DOMNodeId")]
    node_id: Option<i64>,
    #[serde(default)]
    image_url: String,
}

#[derive(Deserialize)]
struct ShiftData {
    #[serde(default)]
    had_recent_input: bool,
    #[serde(default)]
    score: f64,
    #[serde(default)]
    weighted_score_delta: Option<f64>,
    #[serde(default)]
    impacted_nodes: Vec<ImpactedNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputData {
    #[serde(default)]
    frame: String,
    #[serde(default)]
    interaction_id: u64,
    #[serde(default, rename = "type")]
    kind: String,
    /// Milliseconds, as the next three.
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    time_stamp: f64,
    #[serde(default)]
    processing_start: f64,
    #[serde(default)]
    processing_end: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendData {
    request_id: String,
    #[serde(default)]
    frame: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    resource_type: String,
    #[serde(default)]
    render_blocking: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseData {
    request_id: String,
    #[serde(default)]
    timing: Option<Timing>,
}

/// CDP `Network.ResourceTiming`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timing {
    /// Seconds.
    request_time: f64,
    /// Milliseconds since then.
    receive_headers_start: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FinishData {
    request_id: String,
    #[serde(default)]
    encoded_data_length: f64,
    /// Seconds.
    #[serde(default)]
    finish_time: f64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame {
    #[serde(default)]
    function_name: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    line_number: i64,
    #[serde(default)]
    column_number: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutArguments {
    begin_data: LayoutData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutData {
    #[serde(default)]
    stack_trace: Vec<CallFrame>,
}

impl Trace {
    /// Reads a trace. Times are those of the main frame that the trace begins with and the frames below it.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn read(input: impl Read) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut events = Events::new(input);
        while let Some(bytes) = events.next()? {
            let event: Event<'_> = serde_json::from_slice(bytes)?;
            trace.take(&event);
        }
        trace.settle();
        Ok(trace)
    }

    fn take(&mut self, event: &Event<'_>) {
        if event.ph == "M" {
            self.take_metadata(event);
            return;
        }
        if event.ts.is_finite() && event.ts > 0.0 {
            self.first = Some(self.first.map_or(event.ts, |first| first.min(event.ts)));
            self.last = self.last.max(event.ts + event.dur.max(0.0));
        }
        if event.ph == "X" {
            self.take_span(event);
        }
        match &*event.name {
            STARTED => {
                let frames = frames_of(event);
                let main = frames.iter().find(|frame| {
                    frame.is_outermost_main_frame != Some(false)
                        && frame.is_in_primary_main_frame != Some(false)
                        && frame.parent.is_none()
                });
                if self.main_frame.is_none() {
                    self.main_frame = main.map(|main| main.frame.clone());
                    self.frames.extend(self.main_frame.clone());
                }
                self.take_frames(&frames);
            }
            COMMITTED => self.take_frames(&frames_of(event)),
            "navigationStart" => self.take_navigation(event),
            "firstContentfulPaint" => {
                if let Some(OfFrame { data, .. }) = self.of_main::<NavigationData>(event)
                    && self.contentful.len() < ENTRIES_MAX
                {
                    self.contentful.insert(data.navigation_id, event.ts);
                }
            }
            LCP => self.take_candidate(event),
            "LargestImagePaint::Candidate" => {
                if let Some(OfFrame { data, .. }) = self.of_main::<ImageData>(event)
                    && let Some(node) = data.node_id
                    && self.images.len() < ENTRIES_MAX
                {
                    self.images.insert(node, clipped(&data.image_url));
                }
            }
            SHIFT => {
                let shift = event.arguments::<OfFrame<ShiftData>>();
                if let Some(OfFrame { frame, data }) = shift
                    && self.frames.contains(&frame)
                    && !data.had_recent_input
                    && self.shifts.len() < ENTRIES_MAX
                {
                    self.shifts.push(LayoutShift {
                        at: event.ts,
                        score: data.weighted_score_delta.unwrap_or(data.score),
                        nodes: (data.impacted_nodes.iter())
                            .map(|node| node.node_id)
                            .collect(),
                    });
                }
            }
            "EventTiming" if event.ph == "b" => self.take_input(event),
            "ResourceSendRequest" | "ResourceReceiveResponse" | "ResourceFinish" => {
                self.take_request(event);
            }
            _ => {}
        }
    }

    fn take_metadata(&mut self, event: &Event<'_>) {
        match &*event.name {
            "thread_name" => {
                let named = event.arguments::<Named>();
                if named.is_some_and(|named| named.name == "CrRendererMain")
                    && self.main_threads.len() < ENTRIES_MAX
                {
                    self.main_threads.insert((event.pid, event.tid));
                }
            }
            NODE_NAMES => {
                if let Some(NodeNames { names }) = event.arguments() {
                    let names = names.into_iter().take(NODE_NAMES_MAX);
                    self.node_names = names.map(|(id, name)| (id, clipped(&name))).collect();
                }
            }
            _ => {}
        }
    }

    fn take_frames(&mut self, frames: &[FrameData]) {
        for frame in frames {
            let below = frame.parent.as_ref();
            if below.is_some_and(|parent| self.frames.contains(parent))
                && self.frames.len() < ENTRIES_MAX
            {
                self.frames.insert(frame.frame.clone());
            }
        }
    }

    /// What an event tells of the main frame.
    fn of_main<'a, T: Deserialize<'a>>(&self, event: &'a Event<'_>) -> Option<OfFrame<T>> {
        let told = event.arguments::<OfFrame<T>>()?;
        (self.main_frame.as_ref() == Some(&told.frame)).then_some(told)
    }

    fn take_navigation(&mut self, event: &Event<'_>) {
        let Some(OfFrame { data, .. }) = self.of_main::<NavigationData>(event) else {
            return;
        };
        // The blank page from which a load starts has no address.
        if !data.url.is_empty() && self.navigations.len() < ENTRIES_MAX {
            self.navigations.push(Navigation {
                id: data.navigation_id,
                url: clipped(&data.url),
                at: event.ts,
            });
        }
    }

    fn take_candidate(&mut self, event: &Event<'_>) {
        let Some(OfFrame { data, .. }) = self.of_main::<CandidateData>(event) else {
            return;
        };
        if self.candidates.len() < ENTRIES_MAX {
            self.candidates.push(Candidate {
                navigation: data.navigation_id,
                at: event.ts,
                index: data.candidate_index,
                image: data.kind == "image",
                node: data.node_id,
                node_name: clipped(&data.node_name),
                size: data.size,
            });
        }
    }

    fn take_input(&mut self, event: &Event<'_>) {
        let Some(Data { data }) = event.arguments::<Data<InputData>>() else {
            return;
        };
        if data.interaction_id == 0
            || !self.frames.contains(&data.frame)
            || self.inputs.len() >= ENTRIES_MAX
        {
            return;
        }
        self.inputs.push(Input {
            interaction: data.interaction_id,
            kind: clipped(&data.kind),
            at: event.ts,
            duration: data.duration,
            delay: data.processing_start - data.time_stamp,
            processing: data.processing_end - data.processing_start,
        });
    }

    fn take_request(&mut self, event: &Event<'_>) {
        match &*event.name {
            "ResourceSendRequest" => {
                let Some(Data { data }) = event.arguments::<Data<SendData>>() else {
                    return;
                };
                if !self.frames.contains(&data.frame) || self.requests.len() >= ENTRIES_MAX {
                    return;
                }
                let request = Request {
                    url: clipped(&data.url),
                    kind: clipped(&data.resource_type),
                    blocking: clipped(&data.render_blocking),
                    sent: event.ts,
                    ..Request::default()
                };
                self.requests.insert(data.request_id, request);
            }
            "ResourceReceiveResponse" => {
                let response = event.arguments::<Data<ResponseData>>();
                if let Some(Data { data }) = response
                    && let Some(request) = self.requests.get_mut(&data.request_id)
                    && let Some(timing) = data.timing
                {
                    let start = timing.request_time * 1e6;
                    request.started = Some(start);
                    request.answered = Some(start + timing.receive_headers_start * 1e3);
                }
            }
            _ => {
                let finish = event.arguments::<Data<FinishData>>();
                if let Some(Data { data }) = finish
                    && let Some(request) = self.requests.get_mut(&data.request_id)
                {
                    request.bytes = count(data.encoded_data_length);
                    let at = data.finish_time * 1e6;
                    request.finished = Some(if at > 0.0 { at } else { event.ts });
                }
            }
        }
    }

    fn take_span(&mut self, event: &Event<'_>) {
        if !event.dur.is_finite() || event.dur < 0.0 {
            return;
        }
        if let Some(total) = self.totals.get_mut(&*event.name) {
            total.count += 1;
            total.sum += event.dur;
            total.max = total.max.max(event.dur);
        } else if self.totals.len() < NAMES_MAX {
            let total = Total {
                count: 1,
                sum: event.dur,
                max: event.dur,
            };
            self.totals.insert(clipped(&event.name), total);
        }
        let span = Span {
            start: event.ts,
            end: event.ts + event.dur,
        };
        match &*event.name {
            "RunTask" | "ThreadControllerImpl::RunTask"
                if event.dur > LONG_TASK_US && self.long.len() < ENTRIES_MAX =>
            {
                self.long.push((event.pid, event.tid, span));
            }
            "FunctionCall" | "EvaluateScript" | "v8.evaluateModule" => {
                let Some(Data { data }) = event.arguments::<Data<CallFrame>>() else {
                    return;
                };
                if self.calls.len() < ENTRIES_MAX
                    && let Some(place) = self.place(&data)
                {
                    self.calls.push((event.pid, event.tid, Run { span, place }));
                }
            }
            "Layout" | "UpdateLayoutTree" => {
                let layout = event.arguments::<LayoutArguments>();
                if let Some(frame) =
                    layout.and_then(|layout| layout.begin_data.stack_trace.into_iter().next())
                    && let Some(place) = self.place(&frame)
                {
                    let forced = self.forced.entry(place).or_default();
                    forced.0 += 1;
                    forced.1 += event.dur;
                }
            }
            _ => {}
        }
    }

    fn place(&mut self, frame: &CallFrame) -> Option<usize> {
        let place = Place {
            function: clipped(&frame.function_name),
            url: clipped(&frame.url),
            line: u32::try_from(frame.line_number).unwrap_or(0),
            column: u32::try_from(frame.column_number).unwrap_or(0),
        };
        if let Some(known) = self.known_places.get(&place) {
            return Some(*known);
        }
        if self.places.len() >= ENTRIES_MAX {
            return None;
        }
        self.places.push(place.clone());
        self.known_places.insert(place, self.places.len() - 1);
        Some(self.places.len() - 1)
    }

    /// Leaves out what other threads did, now that all are known.
    fn settle(&mut self) {
        let is_main =
            |threads: &HashSet<_>, pid, tid| threads.is_empty() || threads.contains(&(pid, tid));
        let threads = std::mem::take(&mut self.main_threads);
        let mut tasks: Vec<Span> = std::mem::take(&mut self.long)
            .into_iter()
            .filter(|(pid, tid, _)| is_main(&threads, *pid, *tid))
            .map(|(.., span)| span)
            .collect();
        tasks.sort_by(|a, b| a.start.total_cmp(&b.start));
        // A task may run others inside.
        let mut until = f64::NEG_INFINITY;
        tasks.retain(|task| {
            let outer = task.start >= until;
            until = until.max(task.end);
            outer
        });
        self.tasks = tasks;
        self.runs = std::mem::take(&mut self.calls)
            .into_iter()
            .filter(|(pid, tid, _)| is_main(&threads, *pid, *tid))
            .map(|(.., run)| run)
            .collect();
        self.runs
            .sort_by(|a, b| a.span.start.total_cmp(&b.span.start));
        self.navigations.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.shifts.sort_by(|a, b| a.at.total_cmp(&b.at));
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}

/// A count that JSON tells as a float.
pub(super) fn count(float: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cast to the nearest number there is"
    )]
    let count = float.max(0.0) as u64;
    count
}
