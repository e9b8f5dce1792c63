//! Real input events: the mouse, the keyboard, and text.
//!
//! They enter the browser where a person's would, so that pages cannot tell them apart and every
//! default action (focus, forms, selection) follows. What they should hit is decided elsewhere.

pub(crate) mod keyboard;
pub(crate) mod mouse;

use std::time::Duration;

use yonder_protocol::operation::types::Modifier;

/// How long a page may take to handle one event: what browsers allow before they call a page unresponsive.
pub(crate) const EVENT_LIMIT: Duration = Duration::from_secs(20);

/// The modifiers as the protocol's `Input` domain counts them.
pub(crate) fn modifier_bits(modifiers: &[Modifier]) -> u32 {
    modifiers.iter().fold(0, |bits, modifier| {
        bits | match modifier {
            Modifier::Alt => 1,
            Modifier::Control => 2,
            Modifier::Meta => 4,
            Modifier::Shift => 8,
        }
    })
}
