//! What a trace comes down to.

use std::collections::HashMap;

use super::read::{Candidate, LONG_TASK_US, LayoutShift, Navigation, Request, Run, Span, Trace};

/// Shifts further apart than this belong to different windows (web.dev, Cumulative Layout Shift).
const SHIFT_GAP_US: f64 = 1e6;

/// Longest window of shifts.
const SHIFT_WINDOW_US: f64 = 5e6;

/// Of this many interactions one may be slower without counting (web.dev, Interaction to Next Paint).
const INTERACTIONS_PER_OUTLIER: usize = 50;

/// Elements that a shift names.
const SHIFT_NODES: usize = 5;

/// The largest contentful paint and what it waited for. Milliseconds since the navigation; the parts add up to `at_ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lcp {
    /// When it was painted.
    pub at_ms: f64,
    /// `text` or `image`.
    pub kind: &'static str,
    /// The element, as far as it is known.
    pub node: String,
    /// Square pixels.
    pub size: u64,
    /// Of an image.
    pub url: Option<String>,
    /// From the end of the first part until the image was asked for.
    pub load_delay_ms: Option<f64>,
    /// Until the image was there.
    pub load_ms: Option<f64>,
    /// Until it was painted.
    pub render_delay_ms: Option<f64>,
}

/// A layout shift of the window that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// Milliseconds since the navigation.
    pub at_ms: f64,
    /// Its part of the sum.
    pub score: f64,
    /// What moved.
    pub nodes: Vec<String>,
}

/// An interaction by its slowest event.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// Milliseconds since the navigation.
    pub at_ms: f64,
    /// Such as `pointerup`.
    pub kind: String,
    /// Until the next paint; the next three add up to it.
    pub ms: f64,
    /// Until the first handler ran.
    pub input_delay_ms: f64,
    /// In handlers.
    pub processing_ms: f64,
    /// From the last handler to the paint.
    pub presentation_ms: f64,
}

/// What Chromium measured. All of the last navigation in the trace, or of the whole trace if it has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Of the navigation.
    pub url: Option<String>,
    /// Milliseconds from the navigation to the first byte of the document.
    pub ttfb_ms: Option<f64>,
    /// Milliseconds to the first contentful paint.
    pub fcp_ms: Option<f64>,
    /// The largest contentful paint.
    pub lcp: Option<Lcp>,
    /// Cumulative layout shift: of the worst window of shifts.
    pub cls: f64,
    /// The shifts of that window, the largest first.
    pub shifts: Vec<Shift>,
    /// Interaction to next paint.
    pub inp: Option<Interaction>,
    /// Interactions, the slowest first.
    pub interactions: Vec<Interaction>,
    /// Milliseconds beyond 50 of each long task after the first contentful paint.
    pub blocking_ms: f64,
}

/// A task of the main thread of over 50 ms.
#[derive(Clone, Debug, PartialEq)]
pub struct LongTask {
    /// Milliseconds since the navigation.
    pub at_ms: f64,
    /// Its length.
    pub ms: f64,
    /// The longest script in it, as `function (url:line:column)`.
    pub script: Option<String>,
}

/// A request that the first paint waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocking {
    /// Its address.
    pub url: String,
    /// `Stylesheet`, `Script`.
    pub kind: String,
    /// Milliseconds that it took.
    pub ms: Option<f64>,
    /// Bytes of it on the wire.
    pub bytes: u64,
}

/// A place in a script that made the browser lay out while it waited.
#[derive(Clone, Debug, PartialEq)]
pub struct ForcedLayout {
    /// `(anonymous)` without a name.
    pub function: String,
    /// Of the script.
    pub url: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// How often.
    pub count: u64,
    /// Milliseconds in all.
    pub ms: f64,
}

/// A script by what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Its address.
    pub url: String,
    /// Milliseconds that it and what it called kept the main thread.
    pub ms: f64,
    /// Bytes on the wire, if it was loaded in the trace.
    pub bytes: Option<u64>,
}

/// A kind of event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventTotal {
    /// Such as `Layout`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Milliseconds of all of them, others inside included.
    pub total_ms: f64,
    /// Milliseconds of the longest.
    pub max_ms: f64,
}

/// A trace at a glance. Lists are cut to a length; the totals beside them are of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Milliseconds from the first event to the last.
    pub duration_ms: f64,
    /// Loads of the main frame in the trace.
    pub navigations: usize,
    /// What Chromium measured.
    pub metrics: Metrics,
    /// The longest first.
    pub long_tasks: Vec<LongTask>,
    /// How many.
    pub long_tasks_total: usize,
    /// In the order of their requests.
    pub render_blocking: Vec<Blocking>,
    /// By time.
    pub forced_layouts: Vec<ForcedLayout>,
    /// Milliseconds of all of them.
    pub forced_layouts_ms: f64,
    /// By time, then size.
    pub scripts: Vec<Script>,
    /// By time.
    pub events: Vec<EventTotal>,
}

impl Trace {
    /// The trace at a glance, with at most `limit` entries a list.
    pub fn summary(&self, limit: usize) -> Summary {
        let navigation = self.navigations.last();
        let origin = navigation.map(|navigation| navigation.at).or(self.first);
        let origin = origin.unwrap_or(0.0);
        let mut long_tasks: Vec<_> = (self.tasks.iter())
            .map(|task| LongTask {
                at_ms: milliseconds(task.start - origin),
                ms: milliseconds(task.end - task.start),
                script: self.longest_script(task),
            })
            .collect();
        long_tasks.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.at_ms.total_cmp(&b.at_ms)));
        let long_tasks_total = long_tasks.len();
        long_tasks.truncate(limit);
        let mut forced_layouts: Vec<_> = (self.forced.iter())
            .map(|(place, (count, us))| {
                let place = &self.places[*place];
                ForcedLayout {
                    function: shown(&place.function),
                    url: place.url.clone(),
                    line: place.line,
                    column: place.column,
                    count: *count,
                    ms: milliseconds(*us),
                }
            })
            .collect();
        forced_layouts.sort_by(|a, b| {
            let by_time = b.ms.total_cmp(&a.ms);
            by_time.then_with(|| (&a.url, a.line, a.column).cmp(&(&b.url, b.line, b.column)))
        });
        forced_layouts.truncate(limit);
        Summary {
            duration_ms: milliseconds(self.first.map_or(0.0, |first| self.last - first)),
            navigations: self.navigations.len(),
            metrics: self.metrics(navigation, origin, limit),
            long_tasks,
            long_tasks_total,
            render_blocking: self.render_blocking(navigation, limit),
            forced_layouts,
            forced_layouts_ms: milliseconds(self.forced.values().map(|(_, us)| us).sum()),
            scripts: self.scripts(limit),
            events: self.events(limit),
        }
    }

    fn metrics(&self, navigation: Option<&Navigation>, origin: f64, limit: usize) -> Metrics {
        let mut metrics = Metrics::default();
        if let Some(navigation) = navigation {
            metrics.url = Some(navigation.url.clone());
            let since = |at: f64| milliseconds(at - origin);
            // Chromium's id of a document's request is that of its navigation.
            let document = self.requests.get(&navigation.id);
            let first_byte = document.and_then(|document| document.answered);
            metrics.ttfb_ms = first_byte.map(since);
            metrics.fcp_ms = self.contentful.get(&navigation.id).copied().map(since);
            let candidate = (self.candidates.iter())
                .filter(|candidate| candidate.navigation == navigation.id)
                .max_by_key(|candidate| candidate.index);
            metrics.lcp = candidate.map(|candidate| self.lcp(candidate, origin, first_byte));
        }
        let (cls, window) = self.worst_window(origin);
        metrics.cls = rounded(cls, 10_000.0);
        let mut shifts: Vec<_> = (window.iter())
            .map(|shift| Shift {
                at_ms: milliseconds(shift.at - origin),
                score: rounded(shift.score, 10_000.0),
                nodes: (shift.nodes.iter().take(SHIFT_NODES))
                    .map(|node| self.node_name(*node, ""))
                    .collect(),
            })
            .collect();
        shifts.sort_by(|a, b| b.score.total_cmp(&a.score));
        shifts.truncate(limit);
        metrics.shifts = shifts;
        let mut interactions = self.interactions(origin);
        let counts = interactions.len() / INTERACTIONS_PER_OUTLIER;
        metrics.inp = interactions.get(counts).cloned();
        interactions.truncate(limit);
        metrics.interactions = interactions;
        let painted = metrics.fcp_ms.map_or(origin, |fcp| origin + fcp * 1e3);
        let blocking = self.tasks.iter().map(|task| {
            let length = task.end - task.start.max(painted);
            (length - LONG_TASK_US).max(0.0)
        });
        metrics.blocking_ms = milliseconds(blocking.sum());
        metrics
    }

    fn lcp(&self, candidate: &Candidate, origin: f64, first_byte: Option<f64>) -> Lcp {
        let url = candidate
            .node
            .filter(|_| candidate.image)
            .and_then(|node| self.images.get(&node));
        let request = url.and_then(|url| {
            let mut requests = self.requests.values();
            requests.find(|request| request.url == *url && request.sent <= candidate.at)
        });
        let mut lcp = Lcp {
            at_ms: milliseconds(candidate.at - origin),
            kind: if candidate.image { "image" } else { "text" },
            node: candidate.node.map_or_else(
                || candidate.node_name.clone(),
                |node| self.node_name(node, &candidate.node_name),
            ),
            size: candidate.size,
            url: url.cloned(),
            load_delay_ms: None,
            load_ms: None,
            render_delay_ms: None,
        };
        let loaded = request.and_then(|request| request.started.zip(request.finished));
        match (first_byte, loaded) {
            (Some(first_byte), Some((started, finished))) => {
                let started = started.max(first_byte);
                let finished = finished.clamp(started, candidate.at.max(started));
                lcp.load_delay_ms = Some(milliseconds(started - first_byte));
                lcp.load_ms = Some(milliseconds(finished - started));
                lcp.render_delay_ms = Some(milliseconds(candidate.at - finished));
            }
            // Text, and an image that is part of the document, need nothing but the document.
            (Some(first_byte), None) if url.is_none_or(|url| url.starts_with("data:")) => {
                lcp.render_delay_ms = Some(milliseconds(candidate.at - first_byte));
            }
            _ => {}
        }
        lcp
    }

    fn node_name(&self, node: i64, otherwise: &str) -> String {
        let name = self.node_names.get(&node).cloned();
        name.unwrap_or_else(|| match otherwise {
            "" => format!("node {node}"),
            name => name.to_lowercase(),
        })
    }

    /// The window of shifts with the largest sum.
    fn worst_window(&self, origin: f64) -> (f64, &[LayoutShift]) {
        let from = self.shifts.partition_point(|shift| shift.at < origin);
        let shifts = &self.shifts[from..];
        let mut worst: (f64, &[LayoutShift]) = (0.0, &[]);
        let mut begin = 0;
        let mut sum = 0.0;
        for (at, shift) in shifts.iter().enumerate() {
            let apart = at > 0
                && (shift.at - shifts[at - 1].at > SHIFT_GAP_US
                    || shift.at - shifts[begin].at > SHIFT_WINDOW_US);
            if apart {
                begin = at;
                sum = 0.0;
            }
            sum += shift.score;
            if sum > worst.0 {
                worst = (sum, &shifts[begin..=at]);
            }
        }
        worst
    }

    /// The slowest first.
    fn interactions(&self, origin: f64) -> Vec<Interaction> {
        let mut slowest: HashMap<u64, &super::read::Input> = HashMap::new();
        for input in self.inputs.iter().filter(|input| input.at >= origin) {
            let known = slowest.entry(input.interaction).or_insert(input);
            // Of equals, the one whose handlers ran longest is the cause.
            if (input.duration, input.processing) > (known.duration, known.processing) {
                *known = input;
            }
        }
        let mut interactions: Vec<_> = (slowest.into_values())
            .map(|input| Interaction {
                at_ms: milliseconds(input.at - origin),
                kind: input.kind.clone(),
                ms: rounded(input.duration, 10.0),
                input_delay_ms: rounded(input.delay, 10.0),
                processing_ms: rounded(input.processing, 10.0),
                presentation_ms: rounded(
                    (input.duration - input.delay - input.processing).max(0.0),
                    10.0,
                ),
            })
            .collect();
        interactions.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.at_ms.total_cmp(&b.at_ms)));
        interactions
    }

    fn longest_script(&self, task: &Span) -> Option<String> {
        let inside = self.runs_inside(task);
        let longest = inside.iter().max_by(|a, b| {
            let length = |run: &Run| run.span.end - run.span.start;
            length(a).total_cmp(&length(b))
        })?;
        let place = &self.places[longest.place];
        Some(format!(
            "{} ({}:{}:{})",
            shown(&place.function),
            place.url,
            place.line,
            place.column
        ))
    }

    fn runs_inside(&self, span: &Span) -> &[Run] {
        let from = self.runs.partition_point(|run| run.span.start < span.start);
        let to = self.runs.partition_point(|run| run.span.start < span.end);
        &self.runs[from..to.max(from)]
    }

    fn render_blocking(&self, navigation: Option<&Navigation>, limit: usize) -> Vec<Blocking> {
        let Some(navigation) = navigation else {
            return Vec::new();
        };
        let painted = self.contentful.get(&navigation.id).copied();
        let mut blocking: Vec<&Request> = (self.requests.values())
            .filter(|request| {
                matches!(&*request.blocking, "blocking" | "in_body_parser_blocking")
                    && request.sent >= navigation.at
                    && painted.is_none_or(|painted| {
                        request.sent < painted
                            // A script in the body holds up only what is painted after it.
                            && (request.blocking == "blocking"
                                || request.finished.is_some_and(|at| at < painted))
                    })
            })
            .collect();
        blocking.sort_by(|a, b| a.sent.total_cmp(&b.sent).then_with(|| a.url.cmp(&b.url)));
        blocking.truncate(limit);
        let told = blocking.into_iter().map(|request| Blocking {
            url: request.url.clone(),
            kind: request.kind.clone(),
            ms: (request.finished)
                .map(|finished| milliseconds(finished - request.started.unwrap_or(request.sent))),
            bytes: request.bytes,
        });
        told.collect()
    }

    fn scripts(&self, limit: usize) -> Vec<Script> {
        let mut scripts: HashMap<&str, (f64, Option<u64>)> = HashMap::new();
        let mut until = f64::NEG_INFINITY;
        for run in &self.runs {
            // What one script calls is the caller's time.
            if run.span.start < until {
                continue;
            }
            until = run.span.end;
            let url = &*self.places[run.place].url;
            if !url.is_empty() {
                scripts.entry(url).or_default().0 += run.span.end - run.span.start;
            }
        }
        for request in self.requests.values() {
            if request.kind == "Script" {
                let bytes = &mut scripts.entry(&request.url).or_default().1;
                *bytes = Some(bytes.unwrap_or(0) + request.bytes);
            }
        }
        let mut scripts: Vec<_> = (scripts.into_iter())
            .map(|(url, (us, bytes))| Script {
                url: url.to_owned(),
                ms: milliseconds(us),
                bytes,
            })
            .collect();
        scripts.sort_by(|a, b| {
            let by_time = b.ms.total_cmp(&a.ms);
            by_time.then_with(|| (b.bytes, &a.url).cmp(&(a.bytes, &b.url)))
        });
        scripts.truncate(limit);
        scripts
    }

    fn events(&self, limit: usize) -> Vec<EventTotal> {
        let mut events: Vec<_> = (self.totals.iter())
            .map(|(name, total)| EventTotal {
                name: name.clone(),
                count: total.count,
                total_ms: milliseconds(total.sum),
                max_ms: milliseconds(total.max),
            })
            .collect();
        events.sort_by(|a, b| {
            let by_time = b.total_ms.total_cmp(&a.total_ms);
            by_time.then_with(|| a.name.cmp(&b.name))
        });
        events.truncate(limit);
        events
    }
}

fn shown(function: &str) -> String {
    match function {
        "" => "(anonymous)".to_owned(),
        name => name.to_owned(),
    }
}

/// With one digit behind the point, as the Performance panel shows them.
fn milliseconds(us: f64) -> f64 {
    rounded(us / 1e3, 10.0)
}

fn rounded(value: f64, parts: f64) -> f64 {
    let rounded = (value * parts).round() / parts;
    if rounded.is_finite() { rounded } else { 0.0 }
}
