//! Runs the real program: its command line, its HTTP surface and its life from start to stop.

mod auth;
mod command_line;
mod lifecycle;
mod support;
mod surface;
mod wire;
