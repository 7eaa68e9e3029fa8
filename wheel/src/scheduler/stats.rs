//! What a scheduler has done.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::Lateness;

/// What a [`Scheduler`](super::Scheduler) has done since it was built.
///
/// Every task that was accepted is pending, running or ended; a run is counted as started once for
/// each attempt.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Tasks that were accepted.
    pub scheduled: u64,
    /// Tasks that have not ended, those that run included. Each run of a task that overlaps itself
    /// counts as one more.
    pub live: u64,
    /// Tasks that are due or running at the moment: in a queue for a place, about to begin, or at
    /// work; and those that have ended and are about to give their places back.
    pub in_progress: u64,
    /// Attempts that have begun.
    pub started: u64,
    /// Attempts that went well.
    pub succeeded: u64,
    /// Attempts that returned an error.
    pub failed: u64,
    /// Attempts that panicked.
    pub panicked: u64,
    /// Attempts that took longer than their timeout.
    pub timed_out: u64,
    /// Attempts that were cut off.
    pub aborted: u64,
    /// Attempts that were put off to be tried again.
    pub retried: u64,
    /// Runs that did not begin: because they would have been later than their grace, or, of a task
    /// that overlaps itself, because as many tasks were live as are allowed.
    pub missed: u64,
    /// Tasks that were cancelled or replaced, also while they ran, or were pending at a shutdown.
    pub cancelled: u64,
    /// Panics of other user code: outcomes and closures when they are dropped, wakers, clocks.
    pub contained: u64,
    /// Returns of the driver from its sleep, for any reason.
    pub wakeups: u64,
    /// How long after their tick runs began.
    pub lateness: Lateness,
}

/// The counts of one shard. Nothing is read through them, so every access is Relaxed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) scheduled: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) lateness: parking_lot::Mutex<Option<Box<Lateness>>>,
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counts {
    pub(super) fn add_to(&self, stats: &mut SchedulerStats) {
        stats.scheduled += self.scheduled.load(Relaxed);
        stats.started += self.started.load(Relaxed);
        stats.succeeded += self.succeeded.load(Relaxed);
        stats.failed += self.failed.load(Relaxed);
        stats.panicked += self.panicked.load(Relaxed);
        stats.timed_out += self.timed_out.load(Relaxed);
        stats.aborted += self.aborted.load(Relaxed);
        stats.retried += self.retried.load(Relaxed);
        stats.missed += self.missed.load(Relaxed);
        stats.cancelled += self.cancelled.load(Relaxed);
        if let Some(lateness) = &*self.lateness.lock() {
            stats.lateness.add(lateness);
        }
    }
}
