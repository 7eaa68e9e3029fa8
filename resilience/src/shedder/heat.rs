//! [`Heat`]: how busy the processors are, smoothed, and whether that is too busy.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use wheelhouse_collection::Ewma;

use crate::CpuSource;
use crate::clock::nanos;

/// All of the processors, in the unit that thresholds are given in.
pub(super) const WHOLE: f64 = 1000.0;

/// The least of what is sustainable that is let in, however busy the processors are.
const LEAST_FACTOR: f64 = 0.1;

/// The average keeps this weight over one sample period.
const DECAY: f64 = 0.95;

/// The average of the processor usage in thousandths, and until when it is hot.
///
/// A sample is taken by whoever gets the lock once it is due; the others go on with what was before.
/// Every access to an atomic is Relaxed: each number stands for itself.
pub(super) struct Heat {
    sampled: CachePadded<Sampled>,
    source: Mutex<Source>,
    threshold: f64,
    cool_off_nanos: u64,
    period_nanos: u64,
    failed: AtomicU64,
    /// Drivers that take the samples on time.
    drivers: AtomicUsize,
}

/// What every call reads, apart from what is written often.
struct Sampled {
    /// Nanoseconds at which the next sample is due.
    due: AtomicU64,
    /// The instant in nanoseconds before which it is hot.
    hot_until: AtomicU64,
    /// Bits of an `f64`.
    average: AtomicU64,
}

struct Source {
    cpu: Box<dyn CpuSource>,
    average: Ewma,
    /// Nanoseconds at which the average was last at the threshold.
    hot_at: Option<u64>,
    was_hot: bool,
}

/// What a sample brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) cpu: f64,
    /// Whether it is hot now and was not before, or the other way round.
    pub(super) turned: Option<bool>,
}

impl Heat {
    /// `threshold` is in thousandths, below [`WHOLE`].
    pub(super) fn new(
        mut cpu: Box<dyn CpuSource>,
        threshold: f64,
        cool_off: Duration,
        period: Duration,
        start: Instant,
    ) -> Self {
        let average = Ewma::new(DECAY, period).expect("the builder refused a period of zero");
        // So that the first sample has an interval to report on. A source that panics will do so
        // again, and be counted then.
        let _ = catch_unwind(AssertUnwindSafe(|| cpu.usage_at(start)));
        Heat {
            sampled: CachePadded::new(Sampled {
                due: AtomicU64::new(nanos(period)),
                hot_until: AtomicU64::new(0),
                average: AtomicU64::new(0_f64.to_bits()),
            }),
            source: Mutex::new(Source {
                cpu,
                average,
                hot_at: None,
                was_hot: false,
            }),
            threshold,
            cool_off_nanos: nanos(cool_off),
            period_nanos: nanos(period),
            failed: AtomicU64::new(0),
            drivers: AtomicUsize::new(0),
        }
    }

    /// The average in thousandths, 0 as long as nothing is known.
    pub(super) fn cpu(&self) -> f64 {
        f64::from_bits(self.sampled.average.load(Relaxed))
    }

    /// Whether the average was at the threshold or above it within the cool-off.
    #[inline]
    pub(super) fn is_hot(&self, nanos: u64) -> bool {
        nanos < self.sampled.hot_until.load(Relaxed)
    }

    /// Which part of what is sustainable may be let in: 1 below the threshold, less and less above.
    pub(super) fn factor(&self) -> f64 {
        let factor = (WHOLE - self.cpu()) / (WHOLE - self.threshold);
        factor.clamp(LEAST_FACTOR, 1.0)
    }

    /// Samples that did not come about, because the source panicked.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Whether a call has to take a sample. Where a driver does it, calls step in when it is a whole
    /// period late.
    #[inline]
    pub(super) fn is_due_on_call(&self, nanos: u64) -> bool {
        let due = self.sampled.due.load(Relaxed);
        nanos >= due && (self.drivers.load(Relaxed) == 0 || nanos - due >= self.period_nanos)
    }

    /// Takes a sample if it is due and nobody else is at it.
    #[cold]
    pub(super) fn sample(&self, now: Instant, nanos: u64) -> Option<Sample> {
        // No call waits for another's sample, nor does a source that asks the shedder itself.
        let mut source = self.source.try_lock()?;
        if nanos < self.sampled.due.load(Relaxed) {
            return None;
        }
        self.sampled
            .due
            .store(nanos.saturating_add(self.period_nanos), Relaxed);
        let usage = catch_unwind(AssertUnwindSafe(|| source.cpu.usage_at(now)));
        if usage.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
        let usage = usage.ok().flatten().filter(|usage| usage.is_finite());
        let cpu = match usage {
            // More than all is a misreading, and must not outlast the overload.
            Some(usage) => source
                .average
                .update_at(now, (usage * WHOLE).clamp(0.0, WHOLE)),
            None => source.average.value().unwrap_or(0.0),
        };
        self.sampled.average.store(cpu.to_bits(), Relaxed);
        let hot_until = match usage {
            // Also without a cool-off it stays so until the next sample, which may be late.
            Some(_) if cpu >= self.threshold => {
                source.hot_at = Some(nanos);
                let next = self.period_nanos.saturating_mul(2);
                Some(nanos.saturating_add(self.cool_off_nanos.max(next)))
            }
            Some(_) => Some(
                source
                    .hot_at
                    .map_or(0, |hot_at| hot_at.saturating_add(self.cool_off_nanos)),
            ),
            // What is not known any more neither ends it nor makes it last.
            None => None,
        };
        if let Some(hot_until) = hot_until {
            self.sampled.hot_until.store(hot_until, Relaxed);
        }
        let is_hot = self.is_hot(nanos);
        let turned = (is_hot != source.was_hot).then_some(is_hot);
        source.was_hot = is_hot;
        Some(Sample { cpu, turned })
    }

    pub(super) fn driver_begins(&self) {
        self.drivers.fetch_add(1, Relaxed);
    }

    pub(super) fn driver_ends(&self) {
        self.drivers.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Heat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heat")
            .field("cpu", &self.cpu())
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}
