//! How many files and sockets this process may hold open.
//!
//! Systems give processes a low limit that they may raise themselves: 1,024 is usual, for the sake of programs that
//! use `select`. A full link of tunnels needs more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use yonder_protocol::limits;

/// Two descriptors for each tunnel of a full link, and some for everything else.
pub(crate) const WANTED: u64 = 2 * limits::TUNNELS_PER_LINK as u64 + 256;

/// The limit that cannot be raised without privileges; `None` where there is none.
pub(crate) fn ceiling() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Raises this process's limit as far as it is needed and allowed; Chromium inherits it.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < WANTED) else {
        return;
    };
    let raised = Rlimit {
        current: Some(limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED))),
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, current, "could not raise the limit of open files");
    }
}
