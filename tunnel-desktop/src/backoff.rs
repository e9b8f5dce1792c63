//! How long to wait between attempts to reach the server half.

use std::time::Duration;

/// After a failure: a server that restarts is back within a blink.
const FIRST: Duration = Duration::from_millis(200);

/// As many times it stays at that, so that whoever waits for a restart does not wait longer than it takes.
const SHORT_WAITS: u32 = 50;

/// At most this long, so that a laptop that wakes up is back before its owner asks.
const LONGEST: Duration = Duration::from_secs(10);

/// Waits that stay short for some seconds and then double up to a ceiling, each shortened by a random part so that many desktops do not return at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    short_left: u32,
}

impl Backoff {
    /// From the shortest wait on.
    pub(crate) fn new() -> Self {
        Self {
            next: FIRST,
            short_left: SHORT_WAITS,
        }
    }

    /// How long to wait now; at least `asked`, which is what the server asked for.
    pub(crate) fn wait(&mut self, asked: Option<Duration>) -> Duration {
        let full = self.next;
        if let Some(left) = self.short_left.checked_sub(1) {
            self.short_left = left;
        } else {
            self.next = (full * 2).min(LONGEST);
        }
        // Between half and all of it.
        let wait = full.mul_f64(rand::random_range(0.5..=1.0));
        asked.map_or(wait, |asked| wait.max(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_ceiling() {
        let mut backoff = Backoff::new();
        assert!(backoff.wait(None) <= FIRST);
        for _ in 1..SHORT_WAITS {
            assert!(backoff.wait(None) <= FIRST);
        }
        for _ in 0..20 {
            let wait = backoff.wait(None);
            assert!(wait >= FIRST / 2 && wait <= LONGEST);
        }
        assert!(backoff.wait(None) >= LONGEST / 2);
        assert_eq!(
            backoff.wait(Some(Duration::from_mins(1))),
            Duration::from_mins(1)
        );
    }
}
