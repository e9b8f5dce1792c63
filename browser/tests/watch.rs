//! What pages and workers log and load, on a real Chromium.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "watch/console.rs"]
mod console;
#[path = "watch/network.rs"]
mod network;
#[path = "watch/site.rs"]
mod site;
#[path = "watch/stage.rs"]
mod stage;
#[path = "watch/streams.rs"]
mod streams;
