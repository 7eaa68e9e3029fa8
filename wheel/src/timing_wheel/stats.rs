//! What a wheel has done so far.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// A snapshot of what a [`TimingWheel`](super::TimingWheel) has done, from
/// [`stats`](super::TimingWheel::stats).
///
/// Every set that returned Ok is in exactly one of `pending`, `fired`, `removed`, `replaced`,
/// `drained`, `returned` and `dropped` (but for those that other threads are carrying out at this
/// moment).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// Timers set, whether new or in place of another.
    pub set: u64,
    /// Timers that wait for their deadline, or are due and wait for a worker.
    pub pending: u64,
    /// Callbacks begun, or pairs yielded by the stream.
    pub fired: u64,
    /// Timers removed or taken.
    pub removed: u64,
    /// Moves that found their timer.
    pub moved: u64,
    /// Values replaced by a set of the same key.
    pub replaced: u64,
    /// Pairs handed to the closure of a drain.
    pub drained: u64,
    /// Pairs returned by stop.
    pub returned: u64,
    /// Pairs dropped unseen, because the closure of a drain or the `Eq` of a key panicked.
    pub dropped: u64,
    /// Panics caught in callbacks, in the `Drop` of keys and values, in `Eq` and `Hash` of keys on
    /// threads of the wheel, and in its clock.
    pub panicked: u64,
    /// Returns of the driver from its sleep, for whatever reason.
    pub wakeups: u64,
    /// Timers moved to a later deadline that were filed anew when their old one was reached.
    pub relocations: u64,
    /// Timers that came down from a coarser level of the wheel.
    pub cascades: u64,
    /// References to removed or moved timers that were met and skipped.
    pub stale: u64,
    /// How often memory was given back while timers went on.
    pub compactions: u64,
    /// Start of each callback after the instant of its tick, which itself is up to one interval
    /// after the timer was due. An inline driver adds to it every 64 callbacks and when it has
    /// nothing more at hand.
    pub lateness: Lateness,
}

impl Stats {
    /// Nothing has happened yet.
    pub(crate) fn new() -> Self {
        Stats {
            set: 0,
            pending: 0,
            fired: 0,
            removed: 0,
            moved: 0,
            replaced: 0,
            drained: 0,
            returned: 0,
            dropped: 0,
            panicked: 0,
            wakeups: 0,
            relocations: 0,
            cascades: 0,
            stale: 0,
            compactions: 0,
            lateness: Lateness::new(),
        }
    }
}

impl Default for Lateness {
    fn default() -> Self {
        Self::new()
    }
}

/// How late callbacks began, as a histogram of two significant digits in nanoseconds.
#[derive(Clone)]
pub struct Lateness {
    histogram: Histogram<u64>,
}

/// Up to an hour is told apart; whatever is later counts as an hour.
const LATEST: Duration = Duration::from_secs(3600);

impl Lateness {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATEST.as_nanos() as u64, 2)
            .expect("the bounds are constants that hdrhistogram accepts");
        Lateness { histogram }
    }

    pub(crate) fn record(&mut self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn add(&mut self, other: &Lateness) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
    }

    /// How many callbacks were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The lateness that `quantile` of the callbacks did not exceed; zero when there were none.
    /// What is outside 0 to 1 counts as the nearer of the two.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(quantile))
    }

    /// The largest lateness; zero when there were no callbacks.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}
