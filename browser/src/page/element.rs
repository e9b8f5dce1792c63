//! Elements by their refs, and whether a person could act on them now.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::locator::Aim;
use yonder_protocol::operation::scalar::Ref;

use super::geometry::{self, OnPage, Point, Rect, Viewport};
use super::locate::locate;
use super::world::{World, WorldError};
use crate::actions::failed;
use crate::frames::FrameInfo;
use crate::tab::Tab;

/// Limit of one look into a page. A page that is busy for longer cannot be acted on anyway.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// How long an action waits for its element to become ready: what a person would wait before saying
/// that the page does not work.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two looks at an element that is not ready.
pub(crate) const READY_PAUSE: Duration = Duration::from_millis(50);

/// What the script says of an element.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ready {
        x: f64,
        y: f64,
    },
    /// No longer in the page.
    Gone,
    Hidden,
    Disabled,
    /// Behind a modal dialog, or in an inert part.
    Inert,
    Moving,
    /// No frame was drawn in time, so that movement cannot be told.
    Undrawn,
    /// `pointer-events: none`.
    Untouchable,
    /// No point of it can be brought into the viewport.
    Offscreen,
    Covered {
        by: String,
    },
    Readonly,
    /// It did not take the focus.
    Unfocusable,
    Refused {
        why: String,
    },
    Malformed {
        expected: String,
    },
}

impl Verdict {
    /// Whether waiting may help.
    pub(crate) fn may_change(&self) -> bool {
        !matches!(
            self,
            Self::Ready { .. } | Self::Gone | Self::Refused { .. } | Self::Malformed { .. }
        )
    }

    /// The failure of an action on `element` that ended with this.
    pub(crate) fn into_error(self, element: Ref) -> OperationError {
        let not = |reason: &str| {
            OperationError::new(ErrorCode::NotActionable, format!("{element} {reason}"))
        };
        match self {
            Self::Ready { .. } => not("was not acted on"),
            Self::Gone => gone(element),
            Self::Hidden => not("is not visible; take a new snapshot to see what is"),
            Self::Disabled => not("is disabled; do first what the page asks for to enable it"),
            Self::Inert => not(
                "is out of reach behind a modal dialog or in an inert part of the page; deal with the dialog first",
            ),
            Self::Moving => not("does not stop moving; wait until its animation is over"),
            Self::Undrawn => {
                not("is on a page that is too busy to be drawn; wait until it is done")
            }
            Self::Untouchable => not(
                "ignores the pointer (CSS pointer-events: none); act on the element around or in it",
            ),
            Self::Offscreen => not("cannot be scrolled into view"),
            Self::Covered { by } => not(&format!(
                "is covered by {by}; close or move that first, or act on it"
            )),
            Self::Readonly => not("is read-only"),
            Self::Unfocusable => {
                not("does not take the focus, so that nothing can be typed into it")
            }
            Self::Refused { why } => OperationError::new(
                ErrorCode::Invalid,
                format!("{element} does not take this: {why}"),
            ),
            Self::Malformed { expected } => OperationError::new(
                ErrorCode::Invalid,
                format!("{element} takes a value of the form {expected}"),
            ),
        }
    }
}

fn gone(element: Ref) -> OperationError {
    OperationError::new(
        ErrorCode::NotFound,
        format!("the element of {element} is no longer on the page; take a new snapshot"),
    )
}

/// An element of the tab's current document or of a frame in it.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) name: Ref,
    pub(crate) frame: FrameInfo,
    pub(crate) world: Arc<World>,
    /// Its number in `world`.
    pub(crate) number: u64,
}

impl Element {
    /// The element of `aim`: at once for a ref, waited for where a locator fits nothing yet.
    ///
    /// # Errors
    /// [`ErrorCode::Stale`] or [`ErrorCode::NotFound`], with what to do; [`ErrorCode::Invalid`] for a locator that fits
    /// several elements.
    pub(crate) async fn aimed(tab: &Tab, aim: &Aim) -> Result<Self, OperationError> {
        match aim {
            Aim::Ref(name) => Self::of(tab, *name),
            Aim::Locator(locator) => locate(tab, locator).await,
        }
    }

    /// The element of `name`.
    ///
    /// # Errors
    /// [`ErrorCode::Stale`] or [`ErrorCode::NotFound`], with what to do.
    pub(crate) fn of(tab: &Tab, name: Ref) -> Result<Self, OperationError> {
        let place = tab.refs().place(name)?;
        let frame = tab
            .frame(Some(&place.world.frame))
            .ok()
            .filter(|frame| frame.session == place.world.session)
            .ok_or_else(|| gone(name))?;
        Ok(Self {
            name,
            frame,
            world: place.world,
            number: place.number,
        })
    }

    /// Calls `method` of the script with the element's number and the fields of `more`.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if its document is gone, else as [`failed`] tells.
    pub(crate) async fn ask<R: DeserializeOwned>(
        &self,
        tab: &Tab,
        method: &'static str,
        mut more: Map<String, Value>,
    ) -> Result<R, OperationError> {
        more.insert("number".to_owned(), self.number.into());
        self.world
            .call(LOOK_LIMIT, method, more)
            .await
            .map_err(|error| self.failure(tab, error))
    }

    pub(crate) fn failure(&self, tab: &Tab, error: WorldError) -> OperationError {
        match error {
            WorldError::Replaced => gone(self.name),
            other => failed(tab, other),
        }
    }

    /// Waits until the pointer can act on the element, and answers where: in the viewport of its frame
    /// and in that of the page.
    ///
    /// # Errors
    /// [`ErrorCode::NotActionable`] with the reason after [`READY_LIMIT`], [`ErrorCode::NotFound`] if
    /// the element goes away.
    pub(crate) async fn ready_for_pointer(&self, tab: &Tab) -> Result<Spot, OperationError> {
        let deadline = Instant::now() + READY_LIMIT;
        for attempt in 0_u32.. {
            let verdict: Verdict = self
                .ask(
                    tab,
                    "readiness",
                    fields([("pointer", true.into()), ("attempt", attempt.into())]),
                )
                .await?;
            let verdict = match verdict {
                Verdict::Ready { x, y } => {
                    let inner = Point { x, y };
                    let outer = geometry::to_page(tab, &self.frame, inner, true)
                        .await
                        .map_err(|error| self.failure(tab, error))?;
                    match outer {
                        OnPage::Free(outer) => return Ok(Spot { inner, outer }),
                        OnPage::Covered => Verdict::Covered {
                            by: "something of the document around its frame".to_owned(),
                        },
                    }
                }
                other => other,
            };
            if !verdict.may_change() || Instant::now() >= deadline {
                return Err(verdict.into_error(self.name));
            }
            sleep(READY_PAUSE).await;
        }
        Err(Verdict::Moving.into_error(self.name))
    }
}

impl Element {
    /// Where something that is dragged can be let go over the element, in the viewport of the page. It may be covered by what
    /// is dragged.
    ///
    /// # Errors
    /// [`ErrorCode::NotActionable`] if it has no box in the viewport, [`ErrorCode::NotFound`].
    pub(crate) async fn ready_for_drop(&self, tab: &Tab) -> Result<Point, OperationError> {
        let inner = match self.ask(tab, "boxOf", Map::new()).await? {
            Boxed::Ready {
                x,
                y,
                width,
                height,
            } => Point {
                x: x + width / 2.0,
                y: y + height / 2.0,
            },
            Boxed::Gone => return Err(gone(self.name)),
            Boxed::Hidden => return Err(Verdict::Hidden.into_error(self.name)),
        };
        match geometry::to_page(tab, &self.frame, inner, false).await {
            Ok(OnPage::Free(outer)) => Ok(outer),
            Ok(OnPage::Covered) => Err(Verdict::Hidden.into_error(self.name)),
            Err(error) => Err(self.failure(tab, error)),
        }
    }
}

/// The arguments of a method of the script.
pub(crate) fn fields<const N: usize>(list: [(&str, Value); N]) -> Map<String, Value> {
    list.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Where the pointer acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// In the viewport of the element's frame.
    pub(crate) inner: Point,
    /// In the viewport of the page.
    pub(crate) outer: Point,
}

#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Boxed {
    /// It can be acted on, with the pointer at this point of its frame's viewport.
    Ready {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
    },
    Gone,
    Hidden,
}

/// Scrolls the element of `aim` into view and answers its box in the coordinates of the page's
/// document (not of its viewport), in CSS pixels.
///
/// # Errors
/// [`ErrorCode::Stale`], [`ErrorCode::NotFound`], or [`ErrorCode::NotActionable`] if it has no box.
pub(crate) async fn element_rect(tab: &Tab, aim: &Aim) -> Result<Rect, OperationError> {
    let element = Element::aimed(tab, aim).await?;
    let name = element.name;
    let (x, y, width, height) = match element.ask(tab, "boxOf", Map::new()).await? {
        Boxed::Ready {
            x,
            y,
            width,
            height,
        } => (x, y, width, height),
        Boxed::Gone => return Err(gone(name)),
        Boxed::Hidden => return Err(Verdict::Hidden.into_error(name)),
    };
    let corners = [(x, y), (x + width, y + height)];
    let mut placed = [Point { x: 0.0, y: 0.0 }; 2];
    for (corner, (x, y)) in placed.iter_mut().zip(corners) {
        let on_page = geometry::to_page(tab, &element.frame, Point { x, y }, false)
            .await
            .map_err(|error| element.failure(tab, error))?;
        match on_page {
            OnPage::Free(point) => *corner = point,
            OnPage::Covered => return Err(Verdict::Hidden.into_error(name)),
        }
    }
    let main = tab.frame(None)?;
    let scroll: Viewport = World::of(tab.refs(), &main)
        .await
        .map_err(|error| failed(tab, error))?
        .call(LOOK_LIMIT, "viewport", ())
        .await
        .map_err(|error| failed(tab, error))?;
    let [a, b] = placed;
    Ok(Rect {
        x: a.x.min(b.x) + scroll.scroll_x,
        y: a.y.min(b.y) + scroll.scroll_y,
        width: (b.x - a.x).abs(),
        height: (b.y - a.y).abs(),
    })
}
