//! The mouse, in coordinates of the page's viewport. The browser finds the frame below the pointer.

use std::time::Duration;

use serde_json::json;

use crate::cdp::{Ack, CdpError, Session};
use crate::page::geometry::Point;

/// A mouse button.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Button {
    Left,
    Right,
    Middle,
}

impl Button {
    fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
            Self::Middle => "middle",
        }
    }

    /// Its bit in `MouseEvent.buttons` (UI Events).
    fn bit(self) -> u32 {
        match self {
            Self::Left => 1,
            Self::Right => 2,
            Self::Middle => 4,
        }
    }
}

/// The pointer over a page, with the modifier keys that are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mouse<'a> {
    page: &'a Session,
    modifiers: u32,
    /// How long the page may take to handle an event.
    limit: Duration,
}

impl<'a> Mouse<'a> {
    pub(crate) fn new(page: &'a Session, modifiers: u32, limit: Duration) -> Self {
        Self {
            page,
            modifiers,
            limit,
        }
    }

    /// Moves the pointer; answers when the page has seen it.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn move_to(&self, to: Point) -> Result<(), CdpError> {
        self.dispatch("mouseMoved", to, "none", 0, 0).await
    }

    /// Presses and releases `button`; `click` is 1, or 2 for the second click of a double click.
    ///
    /// Cancel safety: the release is on its way as soon as the press is, so that no button stays down.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn click(
        &self,
        at: Point,
        button: Button,
        click: u32,
    ) -> Result<(), CdpError> {
        let name = button.name();
        let (pressed, released) = tokio::join!(
            // Both are sent before either is answered, in this order.
            biased;
            self.dispatch("mousePressed", at, name, button.bit(), click),
            self.dispatch("mouseReleased", at, name, 0, click),
        );
        pressed.and(released)
    }

    /// Turns the wheel by `x` and `y` CSS pixels; answers when the page has seen it, before anything has scrolled.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn wheel(&self, at: Point, x: i64, y: i64) -> Result<(), CdpError> {
        let event = json!({
            "type": "mouseWheel",
            "x": at.x,
            "y": at.y,
            "deltaX": x,
            "deltaY": y,
            "modifiers": self.modifiers,
            "pointerType": "mouse",
        });
        let Ack {} = self
            .page
            .call_within(self.limit, "Input.dispatchMouseEvent", event)
            .await?;
        Ok(())
    }

    /// Presses the left button, to be released with [`Self::release`].
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn press(&self, at: Point) -> Result<(), CdpError> {
        self.dispatch(
            "mousePressed",
            at,
            Button::Left.name(),
            Button::Left.bit(),
            1,
        )
        .await
    }

    /// Moves the pointer while the left button is down.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn pull_to(&self, to: Point) -> Result<(), CdpError> {
        self.dispatch("mouseMoved", to, Button::Left.name(), Button::Left.bit(), 0)
            .await
    }

    /// Releases the left button.
    ///
    /// # Errors
    /// See [`CdpError`].
    pub(crate) async fn release(&self, at: Point) -> Result<(), CdpError> {
        self.dispatch("mouseReleased", at, Button::Left.name(), 0, 1)
            .await
    }

    async fn dispatch(
        &self,
        kind: &'static str,
        at: Point,
        button: &'static str,
        held: u32,
        clicks: u32,
    ) -> Result<(), CdpError> {
        let event = json!({
            "type": kind,
            "x": at.x,
            "y": at.y,
            "modifiers": self.modifiers,
            "button": button,
            "buttons": held,
            "clickCount": clicks,
            "pointerType": "mouse",
        });
        let Ack {} = self
            .page
            .call_within(self.limit, "Input.dispatchMouseEvent", event)
            .await?;
        Ok(())
    }
}
