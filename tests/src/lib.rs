//! What the end-to-end tests share: the two halves as real programs, sites to browse, and things that
//! go wrong on purpose.
//!
//! Everything listens on loopback ports that the system picks, waits for conditions rather than for
//! time, and ends with the test: a dropped [`process::Process`] is killed.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a harness of tests: a panic is how it reports"
)]

pub mod client;
pub mod cut;
pub mod halves;
pub mod process;
pub mod reverse_proxy;
pub mod site;
pub mod sshd;
pub mod vite;

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Patience of tests on a machine of two busy cores. Only failures take that long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two looks at a condition that has no way to tell us.
const POLL: Duration = Duration::from_millis(20);

/// Looks until `look` answers `Ok`, and panics with its last answer after `limit`.
pub async fn eventually_within<T, E: Debug>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(error) if Instant::now() > deadline => {
                panic!("{what}: not within {limit:?}: {error:?}")
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// [`eventually_within`] the usual [`PATIENCE`].
pub async fn eventually<T, E: Debug>(what: &str, look: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_within(PATIENCE, what, look).await
}
