//! Links through the public interface, over carriers within the process.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test reports, and helpers outside of #[test] functions are part of it"
)]

mod breaches;
mod greeting;
mod lanes;
mod life;
mod resume;
mod stalled;
mod streams;
mod world;
