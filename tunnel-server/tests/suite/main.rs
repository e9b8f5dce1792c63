//! Runs the real program: its command line, its HTTP surface and its life from start to stop.

#![allow(
    clippy::unwrap_used,
    reason = "helpers outside of #[test] functions are test code too"
)]

mod auth;
mod builtin;
mod command_line;
mod lifecycle;
mod link;
mod support;
mod surface;
mod wire;
