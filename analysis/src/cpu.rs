//! V8 CPU profiles (`.cpuprofile`, CDP `Profiler.Profile`): which functions took the time.

use std::collections::HashMap;
use std::io::Read;

use serde::Deserialize;

/// Longest file that is read: a minute at the default interval has some 2 MiB.
pub const PROFILE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Frames of a stack that are told.
const STACK_FRAMES_MAX: usize = 30;

/// Deepest stack that is followed; V8 ends far shallower ones.
const STACK_DEPTH_MAX: usize = 100_000;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// It is no profile.
    #[error("it is not a CPU profile of V8, or is damaged: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Its nodes do not make a tree, or its samples name none of them.
    #[error("it is not a CPU profile of V8, or is damaged: {0}")]
    Inconsistent(&'static str),
    /// It is longer than [`PROFILE_BYTES_MAX`].
    #[error("the profile is longer than {} MiB; record for a shorter time", PROFILE_BYTES_MAX / 1024 / 1024)]
    TooLarge,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    nodes: Vec<Node>,
    start_time: f64,
    end_time: f64,
    #[serde(default)]
    samples: Vec<u64>,
    /// Microseconds since the sample before, or since the start.
    #[serde(default)]
    time_deltas: Vec<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: u64,
    call_frame: CallFrame,
    #[serde(default)]
    children: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CallFrame {
    function_name: String,
    url: String,
    /// From 0; -1 for what has no source.
    line_number: i64,
    column_number: i64,
}

/// A function with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name, `(anonymous)` without one.
    pub name: String,
    /// Its script; empty for what V8 itself does.
    pub url: String,
    /// From 1; 0 for what has no source.
    pub line: u32,
    /// From 1; 0 for what has no source.
    pub column: u32,
    /// Microseconds in which it was the innermost.
    pub self_us: u64,
    /// Microseconds in which it was on the stack.
    pub total_us: u64,
}

/// A stack with the time that its innermost function took.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Microseconds.
    pub self_us: u64,
    /// `name (url:line)`, the innermost first.
    pub frames: Vec<String>,
}

/// A profile at a glance. Idle time and V8's own frames for the root and the program are in no list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Microseconds from start to end.
    pub duration_us: u64,
    /// Microseconds in which nothing ran.
    pub idle_us: u64,
    /// Microseconds of garbage collection.
    pub gc_us: u64,
    /// Samples.
    pub samples: usize,
    /// By self time.
    pub functions: Vec<Function>,
    /// How many functions were seen.
    pub functions_total: usize,
    /// By self time.
    pub stacks: Vec<Stack>,
}

/// A parsed profile.
#[derive(Debug)]
pub struct Profile {
    nodes: Vec<Node>,
    /// By place in `nodes`: the place of the caller, or its own.
    parent: Vec<usize>,
    /// By place in `nodes`: microseconds.
    self_us: Vec<u64>,
    samples: usize,
    duration_us: u64,
}

impl Profile {
    /// Parses a profile.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn read(input: impl Read) -> Result<Self, ProfileError> {
        let mut text = Vec::new();
        let mut input = input.take(PROFILE_BYTES_MAX + 1);
        input
            .read_to_end(&mut text)
            .map_err(serde_json::Error::io)?;
        if text.len() as u64 > PROFILE_BYTES_MAX {
            return Err(ProfileError::TooLarge);
        }
        let file: File = serde_json::from_slice(&text)?;
        let places: HashMap<u64, usize> = (file.nodes.iter().enumerate())
            .map(|(place, node)| (node.id, place))
            .collect();
        let parent = parents(&file.nodes, &places)?;
        let mut self_us = vec![0_u64; file.nodes.len()];
        // A delta is the time until its sample, in which what the sample before shows went on.
        for (at, sample) in file.samples.iter().enumerate() {
            let place = places.get(sample);
            let place = *place.ok_or(ProfileError::Inconsistent("a sample of no node"))?;
            let until_next = file.time_deltas.get(at + 1).copied();
            let took = until_next.unwrap_or_else(|| last_delta(&file, at));
            self_us[place] = self_us[place].saturating_add(u64::try_from(took).unwrap_or(0));
        }
        let duration = (file.end_time - file.start_time).max(0.0);
        Ok(Self {
            samples: file.samples.len(),
            nodes: file.nodes,
            parent,
            self_us,
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float is cast to the nearest number there is, and this one is not negative"
            )]
            duration_us: duration as u64,
        })
    }

    fn is_overhead(&self, place: usize) -> bool {
        matches!(
            self.nodes[place].call_frame.function_name.as_str(),
            "(root)" | "(program)" | "(idle)" | "(garbage collector)"
        )
    }

    /// The profile at a glance, with at most `limit` entries a list.
    pub fn summary(&self, limit: usize) -> Summary {
        let mut functions: HashMap<&CallFrame, (u64, u64)> = HashMap::new();
        let mut on_stack: Vec<&CallFrame> = Vec::new();
        let of = |name: &str| {
            (0..self.nodes.len())
                .filter(|place| self.nodes[*place].call_frame.function_name == name)
                .map(|place| self.self_us[place])
                .fold(0, u64::saturating_add)
        };
        let mut stacks = Vec::new();
        for place in 0..self.nodes.len() {
            let took = self.self_us[place];
            if self.is_overhead(place) {
                continue;
            }
            let own = functions.entry(&self.nodes[place].call_frame).or_default();
            own.0 = own.0.saturating_add(took);
            if took == 0 {
                continue;
            }
            stacks.push((took, place));
            // A function that calls itself is on the stack once.
            on_stack.clear();
            let mut at = place;
            loop {
                let frame = &self.nodes[at].call_frame;
                if !self.is_overhead(at) && !on_stack.contains(&frame) {
                    on_stack.push(frame);
                }
                if self.parent[at] == at || on_stack.len() > STACK_DEPTH_MAX {
                    break;
                }
                at = self.parent[at];
            }
            for frame in &on_stack {
                let total = functions.entry(frame).or_default();
                total.1 = total.1.saturating_add(took);
            }
        }
        let functions_total = functions.len();
        let mut functions: Vec<_> = functions
            .into_iter()
            .map(|(frame, (self_us, total_us))| Function {
                name: shown(&frame.function_name),
                url: frame.url.clone(),
                line: from_one(frame.line_number),
                column: from_one(frame.column_number),
                self_us,
                total_us,
            })
            .collect();
        functions.sort_by(|a, b| {
            (b.self_us, b.total_us, &a.name, a.line).cmp(&(a.self_us, a.total_us, &b.name, b.line))
        });
        functions.truncate(limit);
        stacks.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        stacks.truncate(limit);
        Summary {
            duration_us: self.duration_us,
            idle_us: of("(idle)"),
            gc_us: of("(garbage collector)"),
            samples: self.samples,
            functions,
            functions_total,
            stacks: stacks
                .into_iter()
                .map(|(self_us, place)| Stack {
                    self_us,
                    frames: self.frames(place),
                })
                .collect(),
        }
    }

    fn frames(&self, place: usize) -> Vec<String> {
        let mut frames = Vec::new();
        let mut at = place;
        while frames.len() < STACK_FRAMES_MAX {
            let frame = &self.nodes[at].call_frame;
            if !self.is_overhead(at) {
                let name = shown(&frame.function_name);
                frames.push(if frame.url.is_empty() {
                    name
                } else {
                    format!("{name} ({}:{})", frame.url, from_one(frame.line_number))
                });
            }
            if self.parent[at] == at {
                break;
            }
            at = self.parent[at];
        }
        frames
    }
}

/// The place of each node's caller; its own for one that has none.
fn parents(nodes: &[Node], places: &HashMap<u64, usize>) -> Result<Vec<usize>, ProfileError> {
    if places.len() != nodes.len() {
        return Err(ProfileError::Inconsistent("two nodes with the same id"));
    }
    let mut parent: Vec<usize> = (0..nodes.len()).collect();
    for (place, node) in nodes.iter().enumerate() {
        for child in &node.children {
            let child = places.get(child);
            let child = *child.ok_or(ProfileError::Inconsistent("a child that is no node"))?;
            if child == place || parent[child] != child {
                return Err(ProfileError::Inconsistent("its nodes are no tree"));
            }
            parent[child] = place;
        }
    }
    // Every node has one parent at most, so that what hangs on a node without one is a tree, and the rest are circles.
    let mut waiting: Vec<usize> = (0..nodes.len()).filter(|at| parent[*at] == *at).collect();
    let mut reached = 0;
    while let Some(at) = waiting.pop() {
        reached += 1;
        waiting.extend(
            nodes[at]
                .children
                .iter()
                .filter_map(|child| places.get(child)),
        );
    }
    if reached != nodes.len() {
        return Err(ProfileError::Inconsistent("its nodes are no tree"));
    }
    Ok(parent)
}

/// The last sample goes on until the end of the profile.
fn last_delta(file: &File, at: usize) -> i64 {
    let before: i64 = file
        .time_deltas
        .iter()
        .take(at + 1)
        .fold(0, |sum: i64, delta| sum.saturating_add(*delta));
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float is cast to the nearest number there is"
    )]
    let duration = (file.end_time - file.start_time) as i64;
    duration.saturating_sub(before).max(0)
}

fn shown(name: &str) -> String {
    if name.is_empty() {
        "(anonymous)".to_owned()
    } else {
        name.to_owned()
    }
}

fn from_one(number: i64) -> u32 {
    u32::try_from(number.saturating_add(1)).unwrap_or(0)
}
