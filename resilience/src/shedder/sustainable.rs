//! [`Sustainable`]: how many requests in flight the recent past shows to be sustainable.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use wheelhouse_collection::{Bucket, RollingWindow, Sum};

use super::Priority;
use crate::BuildError;

/// Seconds that a request is taken to need as long as none has passed.
const UNKNOWN_LATENCY: f64 = 1.0;

/// Demand is counted over the last second.
const DEMAND_BUCKETS: usize = 10;
const DEMAND_BUCKET: Duration = Duration::from_millis(100);

/// What the window shows, by Little's law: in a system in balance as many are in flight as arrive in
/// the time that each stays. The best throughput times the best latency is what was in flight when
/// the server was busy and nothing waited.
///
/// What finished buckets show stays the same until the next bucket, and is worked out once in each by
/// whoever gets the lock; the others go on with what was before.
#[derive(Debug)]
pub(super) struct Sustainable {
    /// Latencies of those that passed, in nanoseconds.
    passes: RollingWindow<Sum>,
    /// Those that asked to be let in, by priority.
    demand: RollingWindow<Demand>,
    best: CachePadded<Best>,
}

#[derive(Debug)]
struct Best {
    /// The bucket that the two others were worked out in.
    bucket: AtomicU64,
    /// Bits of an `f64`: requests a second.
    rate: AtomicU64,
    /// Bits of an `f64`: seconds.
    latency: AtomicU64,
    working: Mutex<()>,
}

impl Sustainable {
    pub(super) fn new(
        start: Instant,
        buckets: usize,
        bucket_length: Duration,
    ) -> Result<Self, BuildError> {
        let passes = RollingWindow::starting_at(start, buckets, bucket_length);
        let passes = passes.map_err(|_| {
            let value = format!("{buckets} buckets of {bucket_length:?}");
            BuildError::new(
                "window",
                value,
                "1ns and more in each of 2 to 1048576 buckets",
            )
        })?;
        let demand = RollingWindow::starting_at(start, DEMAND_BUCKETS, DEMAND_BUCKET);
        // As if one request had passed in each bucket.
        let rate = 1.0 / bucket_length.as_secs_f64();
        Ok(Sustainable {
            passes: passes.ignoring_current(),
            demand: demand.expect("10 buckets of 100 ms are in range"),
            best: CachePadded::new(Best {
                bucket: AtomicU64::new(0),
                rate: AtomicU64::new(rate.to_bits()),
                latency: AtomicU64::new(UNKNOWN_LATENCY.to_bits()),
                working: Mutex::new(()),
            }),
        })
    }

    /// Nanoseconds from the start to `now`.
    #[inline]
    pub(super) fn nanos_at(&self, now: Instant) -> u64 {
        self.passes.nanos_at(now)
    }

    /// One has passed.
    pub(super) fn passed(&self, nanos: u64, latency_nanos: u64) {
        self.passes.add_at_nanos(nanos, latency_nanos);
    }

    /// One asks to be let in.
    pub(super) fn asked(&self, nanos: u64, priority: Priority) {
        self.demand.add_at_nanos(nanos, priority);
    }

    /// How many may be in flight, before the overload is looked at: best rate × best mean latency,
    /// one at least.
    pub(super) fn max_flight(&self, now: Instant, nanos: u64) -> f64 {
        let (rate, latency) = self.best(now, nanos);
        (rate * latency).max(1.0)
    }

    /// How many places requests of higher priority need, by what asked in the last second.
    pub(super) fn reserved(&self, now: Instant, nanos: u64, priority: Priority) -> f64 {
        let demand = self.demand.snapshot_at_nanos(nanos);
        let higher: u64 = demand.0[priority as usize + 1..].iter().sum();
        if higher == 0 {
            return 0.0;
        }
        // The window is up to a bucket shorter than its buckets, the last of which is unfinished.
        let bucket = DEMAND_BUCKET.as_nanos() as u64;
        let seen = (DEMAND_BUCKETS as u64 - 1) * bucket + nanos % bucket;
        let seen = Duration::from_nanos(seen.min(nanos).max(1)).as_secs_f64();
        let (_, latency) = self.best(now, nanos);
        higher as f64 / seen * latency
    }

    fn best(&self, now: Instant, nanos: u64) -> (f64, f64) {
        // Acquire: pairs with the Release in `work_out`, so that the two are of that bucket or later.
        if self.passes.bucket_at(now) > self.best.bucket.load(Acquire) {
            self.work_out(now, nanos);
        }
        // Relaxed: either may be of a later bucket than the other, which is as good.
        let load = |bits: &AtomicU64| f64::from_bits(bits.load(Relaxed));
        (load(&self.best.rate), load(&self.best.latency))
    }

    #[cold]
    fn work_out(&self, now: Instant, nanos: u64) {
        let Some(_working) = self.best.working.try_lock() else {
            return;
        };
        let nothing = (1_u64, f64::INFINITY);
        let (most, least) = self
            .passes
            .reduce_at_nanos(nanos, nothing, |(most, least), bucket| {
                let mean = bucket.mean().unwrap_or(f64::INFINITY);
                (bucket.count.max(most), mean.min(least))
            });
        let rate = most as f64 / self.passes.bucket_length().as_secs_f64();
        let latency = if least.is_finite() {
            least / 1e9
        } else {
            UNKNOWN_LATENCY
        };
        // Relaxed: published by the store of the bucket.
        self.best.rate.store(rate.to_bits(), Relaxed);
        self.best.latency.store(latency.to_bits(), Relaxed);
        // Release: pairs with the Acquire in `best`.
        self.best.bucket.store(self.passes.bucket_at(now), Release);
    }
}

/// Requests by priority.
#[derive(Debug)]
struct Demand([u64; Priority::COUNT]);

impl Bucket for Demand {
    type Value = Priority;
    type Counters = [u32; Priority::COUNT];

    #[inline]
    fn increments(priority: Priority) -> [u64; Priority::COUNT] {
        let mut increments = [0; Priority::COUNT];
        increments[priority as usize] = 1;
        increments
    }

    #[inline]
    fn from_counts(counts: [u64; Priority::COUNT]) -> Self {
        Demand(counts)
    }
}
