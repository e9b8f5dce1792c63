//! Figures and how people read them.

use std::time::Duration;

/// Times of one kind of event, in the order of their length once asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Those of both.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The time below which `percent` of 100 of them lie (nearest rank); `None` where there are none.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

/// `0.31 ms`, `12.4 ms`, `1.20 s`.
pub(super) fn time(time: Option<Duration>) -> String {
    let Some(time) = time else {
        return "none".to_owned();
    };
    let milliseconds = time.as_secs_f64() * 1e3;
    if milliseconds < 10.0 {
        format!("{milliseconds:.2} ms")
    } else if milliseconds < 1_000.0 {
        format!("{milliseconds:.1} ms")
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

/// `512 bytes`, `1.2 kB`, `34.5 MB`, `1.20 GB`: powers of ten, as lines are sold.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// `12.3 MB/s`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is no more than what was moved"
)]
pub(super) fn rate(per_second: f64) -> String {
    format!("{}/s", bytes(per_second as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), None);
        for milliseconds in (1..=200).rev() {
            times.add(Duration::from_millis(milliseconds));
        }
        assert_eq!(times.percentile(50), Some(Duration::from_millis(100)));
        assert_eq!(times.percentile(99), Some(Duration::from_millis(198)));
        assert_eq!(times.percentile(100), Some(Duration::from_millis(200)));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(time(Some(Duration::from_micros(312))), "0.31 ms");
        assert_eq!(time(Some(Duration::from_micros(45_678))), "45.7 ms");
        assert_eq!(time(Some(Duration::from_millis(1_234))), "1.23 s");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(rate(12_345_678.9), "12.3 MB/s");
        assert_eq!(bytes(2_500_000_000), "2.50 GB");
    }
}
