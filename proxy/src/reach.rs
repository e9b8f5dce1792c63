//! Which targets answered or failed of late.
//!
//! Two askers: `CONNECT` is answered before the target was reached when that target answered a moment
//! ago, and the browser's tools want to know why a `CONNECT` failed, since Chromium keeps that to itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use yonder_protocol::{Target, TunnelError};

use crate::limits::{REACH_MEMORY, REACH_TARGETS};

#[derive(Debug)]
struct Entry {
    since: Instant,
    /// `None`: the target answered.
    failure: Option<TunnelError>,
}

/// What happened last with each target.
#[derive(Debug, Default)]
pub(crate) struct Reach(Mutex<HashMap<Target, Entry>>);

impl Reach {
    /// The target took a connection.
    pub(crate) fn answered(&self, target: &Target) {
        self.note(target, None);
    }

    /// The target could not be reached.
    pub(crate) fn failed(&self, target: &Target, error: &TunnelError) {
        self.note(target, Some(error.clone()));
    }

    /// Whether the last that was heard of the target, not long ago, is that it answered.
    pub(crate) fn is_reachable(&self, target: &Target) -> bool {
        self.with(target, |entry| entry.failure.is_none())
            .unwrap_or_default()
    }

    /// Why the target could not be reached, if that is the last that was heard of it, not long ago.
    pub(crate) fn last_failure(&self, target: &Target) -> Option<TunnelError> {
        self.with(target, |entry| entry.failure.clone()).flatten()
    }

    fn with<T>(&self, target: &Target, read: impl FnOnce(&Entry) -> T) -> Option<T> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(target)
            .filter(|entry| entry.since.elapsed() < REACH_MEMORY)
            .map(read)
    }

    fn note(&self, target: &Target, failure: Option<TunnelError>) {
        let entry = Entry {
            since: Instant::now(),
            failure,
        };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = entries.get_mut(target) {
            *known = entry;
            return;
        }
        if entries.len() >= REACH_TARGETS {
            entries.retain(|_, entry| entry.since.elapsed() < REACH_MEMORY);
        }
        if entries.len() >= REACH_TARGETS {
            let oldest = entries
                .iter()
                .min_by_key(|(_, entry)| entry.since)
                .map(|(target, _)| target.clone());
            if let Some(oldest) = oldest {
                entries.remove(&oldest);
            }
        }
        entries.insert(target.clone(), entry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use yonder_protocol::TunnelErrorCode;

    use super::*;

    fn target(port: u16) -> Target {
        Target::new("localhost", port).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_counts_until_it_is_old() {
        let reach = Reach::default();
        let error = TunnelError::new(TunnelErrorCode::Refused, "connection refused");
        assert!(!reach.is_reachable(&target(1)));
        reach.failed(&target(1), &error);
        assert_eq!(reach.last_failure(&target(1)), Some(error.clone()));
        reach.answered(&target(1));
        assert_eq!(reach.last_failure(&target(1)), None);
        assert!(reach.is_reachable(&target(1)));
        tokio::time::advance(REACH_MEMORY).await;
        assert!(!reach.is_reachable(&target(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let reach = Reach::default();
        for port in 1..=u16::try_from(REACH_TARGETS).unwrap() + 1 {
            reach.answered(&target(port));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(!reach.is_reachable(&target(1)));
        assert!(reach.is_reachable(&target(2)));
        assert_eq!(reach.0.lock().unwrap().len(), REACH_TARGETS);
    }
}
