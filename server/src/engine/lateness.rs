//! How late first attempts begin, counted in fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets in milliseconds, the bound included; one more has the rest.
pub const LATENESS_BOUNDS_MS: [u64; 12] =
    [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 300_000];

/// How late the first attempts of tasks began, from [`Engine::lateness`](super::Engine::lateness).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lateness {
    /// Attempts by bucket of [`LATENESS_BOUNDS_MS`]; the last is for what is later than all.
    pub buckets: [u64; LATENESS_BOUNDS_MS.len() + 1],
    /// The sum of all, in milliseconds.
    pub sum_ms: u64,
}

/// Relaxed throughout: nothing is read through the counts, and a reader that meets a writer misses at
/// most the attempt that is being counted.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    buckets: [AtomicU64; LATENESS_BOUNDS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Recorder {
    pub(super) fn record(&self, late_ms: u64) {
        let bucket = LATENESS_BOUNDS_MS.partition_point(|bound| *bound < late_ms);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(late_ms, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Lateness {
        Lateness {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum_ms: self.sum_ms.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket() {
        let recorder = Recorder::default();
        for late in [0, 1, 2, 3, 300_000, 300_001, 1 << 40] {
            recorder.record(late);
        }
        let read = recorder.read();
        assert_eq!(read.buckets[..3], [2, 1, 1]);
        assert_eq!(read.buckets[11..], [1, 2]);
        assert_eq!(read.buckets.iter().sum::<u64>(), 7);
    }
}
