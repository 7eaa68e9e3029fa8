//! [`Flight`]: how many requests are in flight, now and on average.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use wheelhouse_collection::Ewma;

use super::Priority;

/// The average keeps this weight over one [`PERIOD`].
const DECAY: f64 = 0.9;
const PERIOD: Duration = Duration::from_millis(10);

/// The average is brought up to date at most this often.
const STEP_NANOS: u64 = 1_000_000;

/// The requests in flight, and their average, which is weighted by time: it moves on whenever a
/// request asks to be let in, also while nothing ends. Both are known for each priority together with
/// all lower ones.
///
/// Every access is Relaxed: each number stands for itself, and nothing else is read through it. The
/// averages are written by whoever gets the lock, and the others go on with those before.
#[derive(Debug)]
pub(super) struct Flight {
    counts: CachePadded<Counts>,
    average: CachePadded<Average>,
}

/// On one cache line, since the same calls write them.
#[derive(Debug, Default)]
struct Counts {
    now: [AtomicU64; Priority::COUNT],
    passed: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct Average {
    /// Nanoseconds at which the next sample is to be taken.
    due: AtomicU64,
    /// Bits of an `f64` each.
    up_to: [AtomicU64; Priority::COUNT],
    averages: Mutex<[Ewma; Priority::COUNT]>,
}

impl Flight {
    pub(super) fn new() -> Self {
        let average = Ewma::new(DECAY, PERIOD).expect("0.9 and 10 ms are in range");
        Flight {
            counts: CachePadded::default(),
            average: CachePadded::new(Average {
                due: AtomicU64::new(0),
                up_to: std::array::from_fn(|_| AtomicU64::new(0_f64.to_bits())),
                averages: Mutex::new(std::array::from_fn(|_| average.clone())),
            }),
        }
    }

    /// One more is in flight.
    pub(super) fn begin(&self, priority: Priority) {
        self.counts.now[priority as usize].fetch_add(1, Relaxed);
    }

    /// One has ended, well or not.
    pub(super) fn end(&self, priority: Priority, passed: bool) {
        let ended = match passed {
            true => &self.counts.passed,
            false => &self.counts.failed,
        };
        ended.fetch_add(1, Relaxed);
        self.counts.now[priority as usize].fetch_sub(1, Relaxed);
    }

    /// In flight now, of this priority and lower ones.
    pub(super) fn up_to(&self, priority: Priority) -> u64 {
        let counts = self.counts.now[..=priority as usize].iter();
        counts.map(|count| count.load(Relaxed)).sum()
    }

    /// In flight now.
    pub(super) fn all(&self) -> u64 {
        self.up_to(Priority::Critical)
    }

    pub(super) fn passed(&self) -> u64 {
        self.counts.passed.load(Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.counts.failed.load(Relaxed)
    }

    /// In flight on average, of this priority and lower ones.
    pub(super) fn average_up_to(&self, priority: Priority) -> f64 {
        f64::from_bits(self.average.up_to[priority as usize].load(Relaxed))
    }

    /// Brings the averages up to `now`, which is `nanos` after the start, unless that was done just
    /// before or is being done.
    #[inline]
    pub(super) fn observe(&self, now: Instant, nanos: u64) {
        if nanos >= self.average.due.load(Relaxed) {
            self.sample(now, nanos);
        }
    }

    #[cold]
    fn sample(&self, now: Instant, nanos: u64) {
        let Some(mut averages) = self.average.averages.try_lock() else {
            return;
        };
        for (priority, average) in Priority::ALL.into_iter().zip(averages.iter_mut()) {
            let value = average.update_at(now, self.up_to(priority) as f64);
            self.average.up_to[priority as usize].store(value.to_bits(), Relaxed);
        }
        let due = nanos.saturating_add(STEP_NANOS);
        self.average.due.store(due, Relaxed);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_average_moves_while_nothing_ends() {
        let flight = Flight::new();
        let start = Instant::now();
        let observe = |ms: u64| {
            flight.observe(start + Duration::from_millis(ms), ms * 1_000_000);
            flight.average_up_to(Priority::Critical)
        };
        assert_eq!(observe(0), 0.0);
        for _ in 0..10 {
            flight.begin(Priority::Normal);
        }
        assert!((observe(10) - 1.0).abs() < 1e-9);
        assert!((observe(20) - 1.9).abs() < 1e-9);
        assert_eq!(flight.average_up_to(Priority::Low), 0.0);
        // Back in time, and twice at one instant: nothing.
        assert_eq!(observe(0), observe(20));
        for passed in [true, false, true, true, true, true, true, true, true, true] {
            flight.end(Priority::Normal, passed);
        }
        assert_eq!((flight.all(), flight.passed(), flight.failed()), (0, 9, 1));
        assert!((observe(30) - 1.71).abs() < 1e-9);
        assert!(observe(1000) < 1e-3);
    }
}
