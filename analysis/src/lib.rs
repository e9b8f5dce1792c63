//! Reads what Chromium's profilers write, and answers questions about it: [`heap`] snapshots and [`cpu`]
//! profiles of V8, and [`trace`]s of the browser.
//!
//! Pure computation on any [`std::io::Read`]: no browser, no runtime, no clock. A file may come from anywhere, so that counts,
//! offsets, depth and sizes are checked before memory is taken for them; a malformed file is an error, never a panic.

pub mod cpu;
pub mod heap;
pub mod trace;
