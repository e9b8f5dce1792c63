//! From coordinates of a frame to those of the page, and whether something lies on top of the frame.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use yonder_protocol::operation::error::OperationError;

use super::element::LOOK_LIMIT;
use super::world::{World, WorldError, replaced};
use crate::cdp::Session;
use crate::frames::FrameInfo;
use crate::tab::Tab;

/// A place in CSS pixels, from the top left of a viewport.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// A box in CSS pixels.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Where a point of a frame is on the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OnPage {
    /// There, and the pointer would hit the frame.
    Free(Point),
    /// Something of a document above lies over the frame there, or the frame is scrolled out of sight.
    Covered,
}

/// The viewport of a frame.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Viewport {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) scroll_x: f64,
    pub(crate) scroll_y: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameOwner {
    backend_node_id: i64,
}

#[derive(Deserialize)]
struct BoxModel {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    content: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeForLocation {
    backend_node_id: i64,
    frame_id: String,
}

/// The corners of a box that transforms may have turned or skewed: top left, top right, bottom right, bottom left.
#[derive(Clone, Copy, Debug)]
struct Quad([Point; 4]);

impl Quad {
    fn new(numbers: &[f64]) -> Option<Self> {
        let [ax, ay, bx, by, cx, cy, dx, dy] = *numbers else {
            return None;
        };
        let point = |x, y| Point { x, y };
        Some(Self([
            point(ax, ay),
            point(bx, by),
            point(cx, cy),
            point(dx, dy),
        ]))
    }

    /// The place of `point`, which is in a box of `width` and `height` that this quad shows.
    fn place(&self, point: Point, width: f64, height: f64) -> Point {
        let [a, b, _, d] = self.0;
        // A frame without extent has no inside; any place will do.
        let across = if width > 0.0 { point.x / width } else { 0.0 };
        let down = if height > 0.0 { point.y / height } else { 0.0 };
        Point {
            x: a.x + (b.x - a.x) * across + (d.x - a.x) * down,
            y: a.y + (b.y - a.y) * across + (d.y - a.y) * down,
        }
    }
}

/// Translates `point` of the viewport of `frame` to the viewport of the page. With `pointer`, each
/// frame on the way must be hit there.
///
/// # Errors
/// If a document on the way was replaced or does not answer.
pub(crate) async fn to_page(
    tab: &Tab,
    frame: &FrameInfo,
    point: Point,
    pointer: bool,
) -> Result<OnPage, WorldError> {
    let mut frame = frame.clone();
    let mut point = point;
    while let Some(parent) = &frame.parent {
        let parent = tab.frame(Some(parent)).map_err(gone)?;
        let session = parent.session.clone();
        let owner: FrameOwner = session
            .call("DOM.getFrameOwner", json!({ "frameId": frame.id }))
            .await
            .map_err(replaced)?;
        let world = World::of(tab.refs(), &frame).await?;
        let viewport: Viewport = world.call(LOOK_LIMIT, "viewport", ()).await?;
        // Quads are told from the topmost frame of the same session. (`DOM.getContentQuads` would
        // answer border boxes for frames.)
        let boxed: Result<BoxModel, _> = session
            .call(
                "DOM.getBoxModel",
                json!({ "backendNodeId": owner.backend_node_id }),
            )
            .await;
        let boxed = match boxed.map_err(replaced) {
            // The element of the frame is not rendered.
            Err(WorldError::Replaced) => return Ok(OnPage::Covered),
            other => other?,
        };
        let Some(quad) = Quad::new(&boxed.model.content) else {
            return Ok(OnPage::Covered);
        };
        point = quad.place(point, viewport.width, viewport.height);
        let top = root_of_session(tab, parent)?;
        if pointer {
            let hit = hit(tab, &top, point).await?;
            if hit.is_none_or(|hit| {
                hit.frame_id != frame.id && hit.backend_node_id != owner.backend_node_id
            }) {
                return Ok(OnPage::Covered);
            }
        }
        frame = top;
    }
    Ok(OnPage::Free(point))
}

fn root_of_session(tab: &Tab, mut frame: FrameInfo) -> Result<FrameInfo, WorldError> {
    while !frame.is_root_of_session
        && let Some(parent) = &frame.parent
    {
        frame = tab.frame(Some(parent)).map_err(gone)?;
    }
    Ok(frame)
}

fn gone(_: OperationError) -> WorldError {
    WorldError::Replaced
}

/// The node at `point` of the viewport of `top`, in the frames of its session; `None` outside of it.
async fn hit(
    tab: &Tab,
    top: &FrameInfo,
    point: Point,
) -> Result<Option<NodeForLocation>, WorldError> {
    let world: Arc<World> = World::of(tab.refs(), top).await?;
    let viewport: Viewport = world.call(LOOK_LIMIT, "viewport", ()).await?;
    let inside =
        (0.0..viewport.width).contains(&point.x) && (0.0..viewport.height).contains(&point.y);
    if !inside {
        return Ok(None);
    }
    let reply = node_at(
        &top.session,
        point.x + viewport.scroll_x,
        point.y + viewport.scroll_y,
    )
    .await;
    match reply {
        Ok(node) => Ok(Some(node)),
        // The browser refuses to name a node where there is none.
        Err(WorldError::Replaced) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The node at a place of the document, counted from its top left whatever is scrolled.
async fn node_at(session: &Session, x: f64, y: f64) -> Result<NodeForLocation, WorldError> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the protocol takes whole pixels, and the point lies in a viewport"
    )]
    let (x, y) = (x.round() as i64, y.round() as i64);
    session
        .call("DOM.getNodeForLocation", json!({ "x": x, "y": y }))
        .await
        .map_err(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_and_scaled_frame_places_its_points() {
        // A box of 100 x 50, turned by a quarter and doubled.
        let quad = Quad::new(&[200.0, 10.0, 200.0, 210.0, 100.0, 210.0, 100.0, 10.0]).unwrap();
        let place = quad.place(Point { x: 50.0, y: 25.0 }, 100.0, 50.0);
        assert_eq!(place, Point { x: 150.0, y: 110.0 });
        assert!(Quad::new(&[1.0]).is_none());
    }
}
