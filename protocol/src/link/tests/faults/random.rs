//! Chance that a seed repeats.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A generator of numbers (SplitMix64): the same seed gives the same run on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range.
    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end() - range.start();
        range.start() + self.next() % (span + 1)
    }

    /// [`Self::within`] for sizes.
    pub(super) fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        let range = *range.start() as u64..=*range.end() as u64;
        usize::try_from(self.within(range)).unwrap()
    }

    /// A duration of so many milliseconds.
    pub(super) fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }
}
