//! Finding the one element that a locator describes, in all frames and shadow roots of a tab.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::locator::Locator;

use super::element::{Element, READY_LIMIT, READY_PAUSE};
use super::outline::{CLOSED_NESTING, FRAMES_MAX};
use super::world::{World, WorldError};
use crate::frames::FrameInfo;
use crate::tab::Tab;

/// Elements that an error about several names.
const NAMED_MAX: usize = 5;

/// Limit of the search in one frame: one that hangs must not keep the others from being searched.
const SEARCH_LIMIT: Duration = Duration::from_secs(5);

/// What the script answers of one frame.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Invalid { invalid: String },
    Found(Found),
}

#[derive(Deserialize)]
struct Found {
    /// Elements that may have a closed shadow root and were not asked about before.
    hosts: Vec<u64>,
    /// Elements that fit.
    total: usize,
    /// They are visible; if none is, those that are not are told.
    seen: bool,
    /// The first ones: number, and how the page's source shows it.
    first: Vec<(u64, String)>,
}

/// The element that `locator` fits; waited for while there is none.
///
/// # Errors
/// [`ErrorCode::NotFound`] if none appears within [`READY_LIMIT`], [`ErrorCode::Invalid`] if several fit or the selector
/// is none.
pub(super) async fn locate(tab: &Tab, locator: &Locator) -> Result<Element, OperationError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let frames = tab.frames();
        tab.refs().keep_worlds(&frames);
        let searches: Vec<_> = frames
            .iter()
            .take(FRAMES_MAX)
            .map(|frame| search(tab, frame, locator))
            .collect();
        let matches = judge(locator, &frames, join_all(searches).await)?;
        if let Some(element) = the_one(tab, locator, &matches)? {
            return Ok(element);
        }
        if Instant::now() >= deadline {
            return Err(OperationError::new(
                ErrorCode::NotFound,
                format!("nothing on the page fits {locator}; take a snapshot to see what is there"),
            ));
        }
        sleep(READY_PAUSE).await;
    }
}

/// What fits in one frame.
struct Match<'a> {
    frame: &'a FrameInfo,
    world: Arc<World>,
    found: Found,
}

/// Sorts out the frames' answers. A frame that moves or hangs is searched again, or not at all: the others count.
fn judge<'a>(
    locator: &Locator,
    frames: &'a [FrameInfo],
    answers: Vec<Option<(Arc<World>, Answer)>>,
) -> Result<Vec<Match<'a>>, OperationError> {
    let mut matches = Vec::new();
    for (frame, answer) in frames.iter().zip(answers) {
        match answer {
            Some((_, Answer::Invalid { invalid })) => {
                return Err(OperationError::new(
                    ErrorCode::Invalid,
                    format!("{locator} is not a selector: {invalid}"),
                ));
            }
            Some((world, Answer::Found(found))) => matches.push(Match {
                frame,
                world,
                found,
            }),
            None => {}
        }
    }
    if matches.iter().any(|one| one.found.seen) {
        matches.retain(|one| one.found.seen);
    }
    Ok(matches)
}

/// The element, if there is exactly one.
fn the_one(
    tab: &Tab,
    locator: &Locator,
    matches: &[Match<'_>],
) -> Result<Option<Element>, OperationError> {
    let total: usize = matches.iter().map(|one| one.found.total).sum();
    let mut named = Vec::new();
    for one in matches {
        for (number, shown) in &one.found.first {
            let name = tab.refs().assign(&one.world, *number);
            if total == 1 {
                return Ok(Some(Element {
                    name,
                    frame: one.frame.clone(),
                    world: Arc::clone(&one.world),
                    number: *number,
                }));
            }
            if named.len() < NAMED_MAX {
                named.push(format!("{name} {shown}"));
            }
        }
    }
    if total == 0 {
        return Ok(None);
    }
    Err(OperationError::new(
        ErrorCode::Invalid,
        format!(
            "{locator} fits {total} elements, and must fit one; among them {}; use a ref, or say more",
            named.join(", ")
        ),
    ))
}

/// The answer of one frame; `None` if it has none in time.
async fn search(tab: &Tab, frame: &FrameInfo, locator: &Locator) -> Option<(Arc<World>, Answer)> {
    timeout(SEARCH_LIMIT, look(tab, frame, locator))
        .await
        .ok()?
        .ok()
}

async fn look(
    tab: &Tab,
    frame: &FrameInfo,
    locator: &Locator,
) -> Result<(Arc<World>, Answer), WorldError> {
    let argument = json!({
        "kind": locator.kind,
        "text": locator.text,
        "exact": locator.exact,
        "name": locator.name,
        "limit": NAMED_MAX,
    });
    let mut world = World::of(tab.refs(), frame).await?;
    let mut answer = world.call(SEARCH_LIMIT, "locate", &argument).await;
    if matches!(answer, Err(WorldError::Replaced)) {
        // The frame moved on since it was last looked at.
        tab.refs().leave_world(&world);
        world = World::of(tab.refs(), frame).await?;
        answer = world.call(SEARCH_LIMIT, "locate", &argument).await;
    }
    let mut answer = answer?;
    for _ in 0..CLOSED_NESTING {
        let Answer::Found(found) = &answer else { break };
        let asked: Vec<_> = found
            .hosts
            .iter()
            .map(|host| world.open_closed_root(*host))
            .collect();
        let opened = join_all(asked).await;
        if !opened.iter().any(|opened| matches!(opened, Ok(true))) {
            break;
        }
        answer = world.call(SEARCH_LIMIT, "locate", &argument).await?;
    }
    Ok((world, answer))
}
