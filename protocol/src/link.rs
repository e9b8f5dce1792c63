//! The link: frames and state machine of the multiplexed, flow-controlled, resumable session
//! between the two halves.
//!
//! * [`hello`]: the greeting at the head of every carrier.
//! * [`frame`]: the frames of the numbered byte stream that follows it, and their decoder.
//! * [`lane`]: the state machine of one such byte stream: streams, credit, fair turns, replay, heartbeat.
//! * [`budget`]: the bytes that all links of a half may hold queued.
//!
//! A link owns lanes (today exactly one); a lane is one byte stream in each direction whose bytes are
//! numbered from the first, so that it outlives the carriers (connections) that move it. Nothing here
//! does I/O or reads a clock: bytes and the time since an arbitrary start go in, bytes and events come
//! out. The `transport` crate is the shell that moves them.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod budget;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod hello;
pub mod lane;
mod replay;
mod schedule;
mod stream;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub use frame::{CloseCode, Open, OpenKind, ProtocolError};
pub use hello::{Hello, LinkId, Refusal, RefusalCode, ResumeSecret, Role, SessionName, Welcome};
pub use lane::{
    CarrierDead, EARLY_WINDOW, Event, Lane, LaneConfig, LaneStats, OpenError, ReplayGap, SendError,
    Side, StreamId,
};
pub use stream::WINDOW_MAX;
