//! Pictures of a tab: its viewport, an element, or the whole page.
//!
//! A tab that has its window to itself can be photographed at any time. One that shares its window is
//! brought to the front of that window first, since Chromium draws nothing for tabs behind others.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::Bounded;
use yonder_protocol::operation::types::{ImageFormat, Screenshot};

use crate::actions::{failed, kept_by};
use crate::cdp::{Ack, CdpError, NoParams, Session};
use crate::execute::CapturedFile;
use crate::page::element_rect;
use crate::page::geometry::Rect;
use crate::tab::Tab;

/// Width of a picture unless the caller says otherwise, in device pixels.
const WIDTH_DEFAULT: f64 = 2_000.0;

/// Pixels of a picture: 64 MB while Chromium encodes it. Larger pictures are scaled down to it.
const PIXELS_MAX: f64 = 16_000_000.0;

/// Longest side that Chromium draws in one piece, in device pixels; beyond, it repeats what it drew.
const SIDE_MAX: f64 = 16_384.0;

/// Quality of lossy formats unless the caller says otherwise, 1 to 100.
const QUALITY_DEFAULT: i64 = 80;

/// How long a picture may take. 50 to 200 ms are usual, the largest take seconds.
const CAPTURE_LIMIT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Window {
    window_id: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    /// In device pixels, for its proportion to the next one.
    layout_viewport: Size,
    css_layout_viewport: Size,
    css_visual_viewport: VisualViewport,
    css_content_size: Content,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    client_width: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VisualViewport {
    page_x: f64,
    page_y: f64,
    client_width: f64,
    client_height: f64,
}

#[derive(Deserialize)]
struct Content {
    width: f64,
    height: f64,
}

#[derive(Deserialize)]
struct Captured {
    data: String,
}

/// Takes a picture of `tab`. `others` are the session's other tabs, which may share its window.
///
/// # Errors
/// [`ErrorCode::Invalid`] for `ref` together with `fullPage`, those of the ref, [`ErrorCode::DialogOpen`],
/// [`ErrorCode::Timeout`] if the window is not drawn, [`ErrorCode::Overloaded`] for a file that is too large.
pub(crate) async fn screenshot(
    root: &Session,
    tab: &Tab,
    others: &[String],
    request: &Screenshot,
) -> Result<CapturedFile, OperationError> {
    let full_page = request.full_page.unwrap_or_default();
    if full_page && request.element.is_some() {
        return Err(OperationError::new(
            ErrorCode::Invalid,
            "screenshot: give either ref or fullPage, not both",
        ));
    }
    let work = async {
        if shares_window(root, tab, others).await {
            tab.session()
                .call::<Ack>("Page.bringToFront", NoParams {})
                .await
                .map_err(|error| failed(tab, error))?;
        }
        let element = match &request.element {
            Some(element) => Some(element_rect(tab, element).await?),
            None => None,
        };
        capture(tab, element, full_page, request).await
    };
    tokio::select! {
        biased;
        captured = work => captured,
        dialog = tab.dialog_opened() => Err(kept_by(&dialog)),
    }
}

/// Whether another tab is in the window of `tab`. One that is closed meanwhile is not.
async fn shares_window(root: &Session, tab: &Tab, others: &[String]) -> bool {
    let window = async |target: &str| {
        let of = json!({ "targetId": target });
        let window = root.call::<Window>("Browser.getWindowForTarget", of).await;
        window.ok().map(|window| window.window_id)
    };
    let (own, others) = tokio::join!(
        window(tab.target()),
        join_all(others.iter().map(|other| window(other)))
    );
    own.is_none() || others.contains(&own)
}

async fn capture(
    tab: &Tab,
    element: Option<Rect>,
    full_page: bool,
    request: &Screenshot,
) -> Result<CapturedFile, OperationError> {
    let page = tab.session();
    let metrics: Metrics = page
        .call("Page.getLayoutMetrics", NoParams {})
        .await
        .map_err(|error| failed(tab, error))?;
    let density = metrics.density();
    let area = metrics.area(element, full_page, density);
    if area.width < 1.0 || area.height < 1.0 {
        return Err(OperationError::new(
            ErrorCode::NotActionable,
            "screenshot: there is nothing to see, the picture would be empty; the window may be minimised",
        ));
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a bounded number of pixels is exact"
    )]
    let width_max = request
        .max_width
        .map_or(WIDTH_DEFAULT, |width| width.get() as f64);
    let scale = scale(&area, density, width_max);
    let format = request.format.unwrap_or_default();
    let (kind, mime, name) = match format {
        ImageFormat::Png => ("png", "image/png", "screenshot.png"),
        ImageFormat::Jpeg => ("jpeg", "image/jpeg", "screenshot.jpg"),
        ImageFormat::Webp => ("webp", "image/webp", "screenshot.webp"),
    };
    let mut params = json!({
        "format": kind,
        "clip": {
            "x": area.x,
            "y": area.y,
            "width": area.width,
            "height": area.height,
            "scale": scale,
        },
        "captureBeyondViewport": full_page || element.is_some(),
    });
    if format != ImageFormat::Png {
        params["quality"] = json!(request.quality.map_or(QUALITY_DEFAULT, Bounded::get));
    }
    let captured: Captured = page
        .call_within(CAPTURE_LIMIT, "Page.captureScreenshot", params)
        .await
        .map_err(|error| match error {
            CdpError::TimedOut { .. } => OperationError::new(
                ErrorCode::Timeout,
                "the browser did not draw the tab in time; its window may be minimised at the desk: restore it, or open a new tab",
            ),
            error => failed(tab, error),
        })?;
    let data = STANDARD.decode(&captured.data).map_err(|error| {
        OperationError::new(
            ErrorCode::OperationFailed,
            format!("the browser sent a picture that cannot be read ({error})"),
        )
    })?;
    if data.len() > limits::FILE_TRANSFER_BYTES {
        return Err(OperationError::new(
            ErrorCode::Overloaded,
            format!(
                "the picture of {} bytes is too large; use the format jpeg or a smaller maxWidth",
                data.len()
            ),
        ));
    }
    Ok(CapturedFile::new(name, mime, Bytes::from(data)))
}

impl Metrics {
    /// Device pixels per CSS pixel.
    fn density(&self) -> f64 {
        let density = self.layout_viewport.client_width / self.css_layout_viewport.client_width;
        if density.is_finite() && density > 0.0 {
            density
        } else {
            1.0
        }
    }

    /// What is to be seen, in CSS pixels of the document.
    fn area(&self, element: Option<Rect>, full_page: bool, density: f64) -> Rect {
        let view = &self.css_visual_viewport;
        match element {
            Some(element) => element,
            None if full_page => Rect {
                x: 0.0,
                y: 0.0,
                width: self.css_content_size.width.min(SIDE_MAX / density),
                height: self.css_content_size.height.min(SIDE_MAX / density),
            },
            None => Rect {
                x: view.page_x,
                y: view.page_y,
                width: view.client_width,
                height: view.client_height,
            },
        }
    }
}

/// How much the picture is shrunk, at most 1: to the width asked for, and to the bound of its pixels.
fn scale(area: &Rect, density: f64, width_max: f64) -> f64 {
    let (width, height) = (area.width * density, area.height * density);
    let by_width = width_max / width;
    let by_pixels = (PIXELS_MAX / (width * height)).sqrt();
    by_width.min(by_pixels).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_shrink_to_their_bounds_and_never_grow() {
        let area = |width, height| Rect {
            x: 0.0,
            y: 0.0,
            width,
            height,
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(scale(&area(1_000.0, 500.0), 1.0, 2_000.0), 1.0));
        assert!(near(scale(&area(1_000.0, 500.0), 2.0, 500.0), 0.25));
        let tall = area(2_000.0, 16_384.0);
        let scale = scale(&tall, 1.0, 4_000.0);
        assert!(tall.width * tall.height * scale * scale <= PIXELS_MAX + 1.0);
    }
}
