//! The outline of a tab: what the script tells of each frame, joined into one text with refs.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::Ref;

use super::element::Element;
use super::world::{World, WorldError};
use crate::actions::failed;
use crate::frames::FrameInfo;
use crate::tab::Tab;

/// Lines of one outline.
pub(crate) const LINES_MAX: usize = 500;

/// Levels of an outline unless the caller asks for others.
pub(crate) const DEPTH_DEFAULT: usize = 8;

/// Characters kept free for the line that tells what was left out.
const CLOSING_CHARS: usize = 400;

/// Frames that one outline looks into. More fit on no screen.
pub(super) const FRAMES_MAX: usize = 100;

/// Closed shadow roots in closed shadow roots that are opened.
pub(super) const CLOSED_NESTING: usize = 4;

/// Limit of the walk through the document that the caller asked for.
const WALK_LIMIT: Duration = Duration::from_secs(20);

/// Limit of the walk through a frame in it: a frame that hangs must not take the outline of the rest along.
const FRAME_WALK_LIMIT: Duration = Duration::from_secs(5);

/// What to outline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// Only this frame and those in it.
    pub(crate) frame: Option<&'a str>,
    /// Only this element and what it holds.
    pub(crate) element: Option<Ref>,
    /// Levels below the root.
    pub(crate) depth: usize,
    /// Add the box of each element.
    pub(crate) boxes: bool,
    /// Only lines that hold this text, of any level and without indentation.
    pub(crate) needle: Option<&'a str>,
}

/// What the script tells of one frame.
#[derive(Debug, Deserialize)]
struct Walk {
    lines: Vec<Line>,
    /// Lines beyond [`LINES_MAX`].
    more: usize,
    /// Lines below the wanted depth.
    deeper: usize,
    /// The walk ended before the page did.
    cut: bool,
    /// Elements, by number, that may have a closed shadow root and were not asked about before.
    hosts: Vec<u64>,
}

/// Level, number of the element or 0, text, box, and for a frame where its document begins.
#[derive(Debug, Deserialize)]
struct Line(usize, u64, String, Option<[i64; 4]>, Option<[i64; 2]>);

/// The outline of `scope` and whether it leaves something out.
///
/// # Errors
/// [`ErrorCode::NotFound`] and [`ErrorCode::Stale`] for frames and refs that are not there,
/// [`ErrorCode::Timeout`] if the page is too busy to be looked at.
pub(crate) async fn outline(tab: &Tab, scope: Scope<'_>) -> Result<(String, bool), OperationError> {
    let frames = tab.frames();
    tab.refs().keep_worlds(&frames);
    let element = scope
        .element
        .map(|element| Element::of(tab, element))
        .transpose()?;
    let top = match &element {
        Some(element) => element.frame.clone(),
        None => tab.frame(scope.frame)?,
    };
    let root = element.as_ref().map_or(0, |element| element.number);
    if let (Some(element), Some(frame)) = (&element, scope.frame)
        && element.frame.id != frame
    {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            format!("{} is in another frame; leave frameID out", element.name),
        ));
    }
    let below = frames_below(&frames, &top);
    let rest = async {
        let walks = below.iter().take(FRAMES_MAX).map(|frame| async move {
            let walk = timeout(FRAME_WALK_LIMIT, walk(tab, frame, 0, scope)).await;
            (frame.id.clone(), walk)
        });
        join_all(walks).await
    };
    let first = timeout(WALK_LIMIT, walk(tab, &top, root, scope));
    let (first, rest) = tokio::join!(first, rest);
    let first = first.map_err(|_| {
        OperationError::new(
            ErrorCode::Timeout,
            format!(
                "the page did not let itself be looked at within {} s, its script may be busy; wait, or reload it",
                WALK_LIMIT.as_secs()
            ),
        )
    })?;
    let first = first.map_err(|error| match &element {
        Some(element) => element.failure(tab, error),
        None => failed(tab, error),
    })?;
    let Some(first) = first else {
        return Err(match element {
            Some(element) => element.failure(tab, WorldError::Replaced),
            None => failed(tab, WorldError::Replaced),
        });
    };
    let mut parts = HashMap::new();
    let mut silent = HashSet::new();
    for (id, outcome) in rest {
        match outcome {
            Ok(Ok(Some(part))) => {
                parts.insert(id, part);
            }
            Ok(Ok(None) | Err(_)) | Err(_) => {
                silent.insert(id);
            }
        }
    }
    let mut text = Text::new(tab, scope, parts, silent);
    text.add(&first, 0, [0, 0]);
    text.skipped_frames = below.len().saturating_sub(FRAMES_MAX);
    Ok(text.finish())
}

fn frames_below(frames: &[FrameInfo], top: &FrameInfo) -> Vec<FrameInfo> {
    let mut inside = HashSet::from([top.id.as_str()]);
    // Parents come before their children.
    for frame in frames {
        if frame
            .parent
            .as_deref()
            .is_some_and(|parent| inside.contains(parent))
        {
            inside.insert(&frame.id);
        }
    }
    frames
        .iter()
        .filter(|frame| frame.id != top.id && inside.contains(frame.id.as_str()))
        .cloned()
        .collect()
}

/// One frame, walked.
struct Part {
    world: Arc<World>,
    walk: Walk,
    /// Frames in it, by the number of their element.
    children: HashMap<u64, String>,
}

/// Walks `frame`, from the element with number `root` or whole if that is 0. `None` if the element is gone.
async fn walk(
    tab: &Tab,
    frame: &FrameInfo,
    root: u64,
    scope: Scope<'_>,
) -> Result<Option<Part>, WorldError> {
    let argument = json!({
        "root": root,
        // The root's own line is not a level below it.
        "depth": if root == 0 { scope.depth } else { scope.depth + 1 },
        "limit": LINES_MAX,
        "boxes": scope.boxes,
        "needle": scope.needle,
    });
    let mut world = World::of(tab.refs(), frame).await?;
    let mut walked = world.call(WALK_LIMIT, "outline", &argument).await;
    if root == 0 && matches!(walked, Err(WorldError::Replaced)) {
        // The frame moved on since it was last looked at.
        tab.refs().leave_world(&world);
        world = World::of(tab.refs(), frame).await?;
        walked = world.call(WALK_LIMIT, "outline", &argument).await;
    }
    let Some::<Walk>(mut walk) = walked? else {
        return Ok(None);
    };
    // Closed shadow roots may hold others.
    for _ in 0..CLOSED_NESTING {
        let opened = join_all(walk.hosts.iter().map(|host| world.open_closed_root(*host))).await;
        if !opened.iter().any(|opened| matches!(opened, Ok(true))) {
            break;
        }
        let Some::<Walk>(again) = world.call(WALK_LIMIT, "outline", &argument).await? else {
            return Ok(None);
        };
        walk = again;
    }
    let owners = walk.lines.iter().filter(|line| line.4.is_some());
    let children = join_all(owners.map(|line| async {
        let child = world.child_frame(line.1).await.ok().flatten();
        child.map(|child| (line.1, child))
    }))
    .await;
    Ok(Some(Part {
        world,
        walk,
        children: children.into_iter().flatten().collect(),
    }))
}

/// The text while it grows.
struct Text<'a> {
    tab: &'a Tab,
    scope: Scope<'a>,
    parts: HashMap<String, Part>,
    /// Frames that did not answer.
    silent: HashSet<String>,
    content: String,
    chars: usize,
    lines: usize,
    more: usize,
    deeper: usize,
    skipped_frames: usize,
    cut: bool,
}

impl<'a> Text<'a> {
    fn new(
        tab: &'a Tab,
        scope: Scope<'a>,
        parts: HashMap<String, Part>,
        silent: HashSet<String>,
    ) -> Self {
        Self {
            tab,
            scope,
            parts,
            silent,
            content: String::new(),
            chars: 0,
            lines: 0,
            more: 0,
            deeper: 0,
            skipped_frames: 0,
            cut: false,
        }
    }

    /// Adds a frame whose lines begin at `level` and whose document begins at `origin`.
    fn add(&mut self, part: &Part, level: usize, origin: [i64; 2]) {
        self.more += part.walk.more;
        self.deeper += part.walk.deeper;
        self.cut |= part.walk.cut;
        for line in &part.walk.lines {
            let at = level + line.0;
            if self.scope.needle.is_none() && at > self.deepest() {
                self.deeper += 1;
                continue;
            }
            let child = part.children.get(&line.1);
            // What was looked for may be in a frame without the frame's own line holding it.
            let listed = self.scope.needle.is_none_or(|needle| {
                line.4.is_none() || line.2.to_lowercase().contains(&needle.to_lowercase())
            });
            if listed {
                self.line(part, line, at, origin, child);
            }
            let (Some(child), Some(offset)) = (child, line.4) else {
                continue;
            };
            let inner = [origin[0] + offset[0], origin[1] + offset[1]];
            if let Some(inside) = self.parts.remove(child) {
                self.add(&inside, at + 1, inner);
            } else if self.silent.remove(child) && self.scope.needle.is_none() {
                self.push(at + 1, "text \"(this frame did not answer)\"");
            }
        }
    }

    /// The last level that is shown: the line of an element as root is level 0, a document has none.
    fn deepest(&self) -> usize {
        if self.scope.element.is_some() {
            self.scope.depth
        } else {
            self.scope.depth.saturating_sub(1)
        }
    }

    fn line(
        &mut self,
        part: &Part,
        line: &Line,
        level: usize,
        origin: [i64; 2],
        child: Option<&String>,
    ) {
        let mut text = String::new();
        if line.1 != 0 && self.lines < LINES_MAX {
            let name = self.tab.refs().assign(&part.world, line.1);
            // Writing to a string does not fail.
            let _ = write!(text, "{name} ");
        }
        text.push_str(&line.2);
        if let Some(child) = child {
            let _ = write!(text, " frame={child}");
        }
        if let Some([x, y, width, height]) = line.3 {
            let place =
                json!({ "x": x + origin[0], "y": y + origin[1], "width": width, "height": height });
            let _ = write!(text, " {place}");
        }
        self.push(level, &text);
    }

    fn push(&mut self, level: usize, text: &str) {
        let indent = if self.scope.needle.is_some() {
            0
        } else {
            2 * level
        };
        let chars = indent + text.chars().count() + 1;
        if self.lines >= LINES_MAX || self.chars + chars > limits::TEXT_CHARS - CLOSING_CHARS {
            self.more += 1;
            return;
        }
        self.content.extend(std::iter::repeat_n(' ', indent));
        self.content.push_str(text);
        self.content.push('\n');
        self.chars += chars;
        self.lines += 1;
    }

    /// Closes the text with what was left out and how to see it.
    fn finish(mut self) -> (String, bool) {
        if self.lines == 0 {
            self.content.push_str(match self.scope.needle {
                Some(_) => "(nothing holds this text)\n",
                None => "(nothing is visible here)\n",
            });
        }
        let mut left_out = Vec::new();
        if self.more > 0 {
            left_out.push(match self.scope.needle {
                Some(_) => format!("{} more matches: look for a longer text", self.more),
                None => format!(
                    "about {} more lines: snapshot with ref or frameID for a part, or find",
                    self.more
                ),
            });
        }
        if self.deeper > 0 {
            left_out.push(format!(
                "about {} lines deeper than depth {}: raise depth, or snapshot with ref",
                self.deeper, self.scope.depth
            ));
        }
        if self.skipped_frames > 0 {
            left_out.push(format!(
                "{} more frames: see frames, then snapshot with frameID",
                self.skipped_frames
            ));
        }
        if self.cut {
            left_out.push("the page is too large to be walked whole: snapshot with ref".to_owned());
        }
        let truncated = !left_out.is_empty();
        if truncated {
            let _ = write!(self.content, "({})", left_out.join("; "));
        } else {
            self.content.pop();
        }
        (self.content, truncated)
    }
}
