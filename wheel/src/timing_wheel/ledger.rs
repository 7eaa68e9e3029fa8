//! Counts of what a wheel has done, and how many timers are pending against its limit.
//!
//! No hand-shake rests on these: the limit is approximate between batches, and the others are only
//! shown. So every access is Relaxed, nothing is read through any of them, and they stay out of the
//! loom models.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::stats::{Lateness, Stats};

#[derive(Debug)]
pub(crate) struct Ledger {
    /// Live timers as of each shard's last batch, and due pairs whose callback has not begun.
    pending: CachePadded<AtomicUsize>,
    max_pending: usize,
    /// What the channels and the hands of the driver can hide from `pending`.
    slack: usize,
    /// Begun, or in the hands of an inline driver.
    fired: AtomicU64,
    /// In the hands of an inline driver and not begun; only it writes this.
    in_hand: CachePadded<AtomicUsize>,
    lateness: Mutex<Option<Lateness>>,
    drained: AtomicU64,
    returned: AtomicU64,
    dropped: AtomicU64,
    panicked: AtomicU64,
    wakeups: AtomicU64,
    #[cfg(feature = "metrics")]
    meters: Meters,
}

/// Where the `metrics` recorder that was installed when the wheel was built keeps its figures.
#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Meters {
    fired: metrics::Counter,
    panics: metrics::Counter,
    lateness: metrics::Histogram,
    pending: metrics::Gauge,
}

impl Ledger {
    /// `name` is the wheel's, `slack` what its channels and driver hold at most.
    pub(crate) fn new(name: &str, max_pending: usize, slack: usize) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = name;
        Ledger {
            pending: CachePadded::new(AtomicUsize::new(0)),
            max_pending,
            slack,
            fired: AtomicU64::new(0),
            in_hand: CachePadded::new(AtomicUsize::new(0)),
            lateness: Mutex::new(None),
            drained: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            meters: Meters::new(name),
        }
    }

    /// Whether the channels could hide that the limit is reached, so that sets must be counted
    /// one by one.
    #[inline]
    pub(crate) fn near_limit(&self) -> bool {
        self.pending.load(Relaxed).saturating_add(self.slack) >= self.max_pending
    }

    /// Whether one more timer may be pending, when nothing hides in a channel. Two callers may both
    /// take the last place, within the slack that is allowed.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.load(Relaxed) + self.in_hand.load(Relaxed) < self.max_pending
    }

    /// A shard that had `before` timers when it was last asked has `after`.
    pub(crate) fn account(&self, before: usize, after: usize) {
        if after > before {
            self.pending.fetch_add(after - before, Relaxed);
        } else if after < before {
            self.pending.fetch_sub(before - after, Relaxed);
        }
    }

    /// A callback begins: from here on its pair is not pending but fired.
    pub(crate) fn begun(&self, lateness: Duration) {
        self.pending.fetch_sub(1, Relaxed);
        self.fired.fetch_add(1, Relaxed);
        self.record(&[lateness]);
    }

    /// An inline driver has taken `count` pairs, and begins them one after another: what the
    /// callers' threads look at is written once for all of them.
    pub(crate) fn take_in_hand(&self, count: usize) {
        self.in_hand.store(count, Relaxed);
        self.fired.fetch_add(count as u64, Relaxed);
        self.pending.fetch_sub(count, Relaxed);
    }

    /// `left` of the pairs in hand have not begun.
    #[inline]
    pub(crate) fn still_in_hand(&self, left: usize) {
        self.in_hand.store(left, Relaxed);
    }

    /// The `left` pairs that are still in hand will not begin.
    pub(crate) fn put_back(&self, left: usize) {
        self.pending.fetch_add(left, Relaxed);
        self.fired.fetch_sub(left as u64, Relaxed);
        self.in_hand.store(0, Relaxed);
    }

    /// Adds to the histogram of lateness.
    pub(crate) fn record(&self, lateness: &[Duration]) {
        {
            let mut recorded = self.lateness.lock();
            let recorded = recorded.get_or_insert_with(Lateness::new);
            lateness.iter().for_each(|late| recorded.record(*late));
        }
        // The recorder is user code: it is called outside the lock.
        #[cfg(feature = "metrics")]
        for late in lateness {
            self.meters.fired.increment(1);
            self.meters.lateness.record(*late);
        }
        #[cfg(feature = "metrics")]
        self.show_pending();
    }

    /// Shows how many timers are pending. Calls the recorder, so not under a lock.
    #[cfg(feature = "metrics")]
    pub(crate) fn show_pending(&self) {
        let pending = self.pending.load(Relaxed) + self.in_hand.load(Relaxed);
        self.meters.pending.set(pending as f64);
    }

    pub(crate) fn drained(&self) {
        self.drained.fetch_add(1, Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panicked.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.meters.panics.increment(1);
    }

    pub(crate) fn woken(&self) {
        self.wakeups.fetch_add(1, Relaxed);
    }

    /// `count` pending pairs are given back by a stop. The reader of a stream may be about to
    /// account for a pair that it has taken, so the others stay counted.
    pub(crate) fn returned(&self, count: usize) {
        self.pending.fetch_sub(count, Relaxed);
        self.returned.fetch_add(count as u64, Relaxed);
    }

    /// Adds what is counted here; every shard has been accounted for before.
    pub(crate) fn fill(&self, stats: &mut Stats) {
        let in_hand = self.in_hand.load(Relaxed) as u64;
        stats.pending = self.pending.load(Relaxed) as u64 + in_hand;
        stats.fired = self.fired.load(Relaxed).saturating_sub(in_hand);
        stats.drained = self.drained.load(Relaxed);
        stats.returned = self.returned.load(Relaxed);
        stats.dropped += self.dropped.load(Relaxed);
        stats.panicked += self.panicked.load(Relaxed);
        stats.wakeups = self.wakeups.load(Relaxed);
        if let Some(lateness) = &*self.lateness.lock() {
            stats.lateness = lateness.clone();
        }
    }
}

#[cfg(feature = "metrics")]
impl Meters {
    fn new(name: &str) -> Self {
        let wheel = name.to_owned();
        Meters {
            fired: metrics::counter!("wheelhouse_timers_fired_total", "wheel" => wheel.clone()),
            panics: metrics::counter!("wheelhouse_timer_panics_total", "wheel" => wheel.clone()),
            pending: metrics::gauge!("wheelhouse_timers_pending", "wheel" => wheel.clone()),
            lateness: metrics::histogram!("wheelhouse_timer_lateness_seconds", "wheel" => wheel),
        }
    }
}
