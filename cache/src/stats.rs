//! What a cache has done: counted in each shard under its lock, where it costs nothing.

use std::time::Duration;

use crate::Cause;

/// What a cache has done since it was built, and what it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Callers that had no load of their own run: they got the outcome of another's.
    pub coalesced: u64,
    /// Loads that gave a value.
    pub loads_ok: u64,
    /// Loads that failed.
    pub loads_failed: u64,
    /// Loads that were begun in the background, before the deadline of the value that was there.
    pub reloads: u64,
    /// Time spent in loads that ended.
    pub load_time: Duration,
    /// Values that were stored.
    pub stored: u64,
    /// Values reclaimed after their deadline, or found expired when they were replaced.
    pub expired: u64,
    /// Values that made room for others.
    pub evicted: u64,
    /// Values that were replaced while they were visible.
    pub replaced: u64,
    /// Values that were removed.
    pub removed: u64,
    /// Values that left when the cache was cleared or closed.
    pub cleared: u64,
    /// Panics of the listener, and of what reloads are handed to.
    pub listener_panics: u64,
    /// Entries, those included that have expired and are not reclaimed yet.
    pub len: u64,
    /// Their weight.
    pub weight: u64,
    /// Timers that wait to reclaim blocks of entries.
    pub timers: u64,
}

impl Stats {
    /// Hits among lookups, from 0 to 1; 0 before the first.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let lookups = self.hits.wrapping_add(self.misses);
        if lookups == 0 {
            0.0
        } else {
            self.hits as f64 / lookups as f64
        }
    }
}

/// The counts of one shard, but that of hits, which has a place of its own. They wrap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) misses: u64,
    pub(crate) stored: u64,
    causes: [u64; 5],
}

impl Counts {
    #[inline]
    pub(crate) fn left(&mut self, cause: Cause) {
        let count = &mut self.causes[cause as usize];
        *count = count.wrapping_add(1);
    }

    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let add = |sum: &mut u64, count: u64| *sum = sum.wrapping_add(count);
        add(&mut stats.misses, self.misses);
        add(&mut stats.stored, self.stored);
        add(&mut stats.expired, self.causes[Cause::Expired as usize]);
        add(&mut stats.evicted, self.causes[Cause::Evicted as usize]);
        add(&mut stats.replaced, self.causes[Cause::Replaced as usize]);
        add(&mut stats.removed, self.causes[Cause::Removed as usize]);
        add(&mut stats.cleared, self.causes[Cause::Cleared as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C25: counters near their end wrap.
    #[test]
    fn c25_counts_wrap() {
        let mut counts = Counts {
            misses: u64::MAX,
            ..Counts::default()
        };
        counts.causes = [u64::MAX; 5];
        counts.left(Cause::Expired);
        let mut stats = Stats {
            misses: 3,
            ..Stats::default()
        };
        counts.add_to(&mut stats);
        assert_eq!(
            (stats.misses, stats.expired, stats.evicted),
            (2, 0, u64::MAX)
        );
        stats.hits = 2;
        assert_eq!(stats.hit_ratio(), 0.5);
    }
}
