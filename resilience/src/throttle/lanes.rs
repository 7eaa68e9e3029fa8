//! What an adaptive throttle counts: each thread in a lane of its own, on one cache line.
//!
//! All counters only grow, so the difference of two sums is what happened between them: the window,
//! the calls in flight and the statistics come from the same counters, and a call writes to nothing
//! else. [`run`](Lane::run) is the exception: failures in the lane since its last success.

use wheelhouse_collection::Striped;

use crate::sync::{AtomicU64, Ordering};

use super::Totals;

/// The counters of the threads of one lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Without a verdict.
    ignored: AtomicU64,
    /// From before the backend was given up.
    stale: AtomicU64,
    probes: AtomicU64,
    run: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Lanes(Striped<Lane>);

// Relaxed, all below: counters, through which nothing is read. A sum is taken while they move; what
// it may be off by is what moved meanwhile.
impl Lane {
    /// How many have started in this lane, with this one.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.started.fetch_add(1, Ordering::Relaxed) + 1
    }

    #[inline]
    pub(super) fn succeed(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        if self.run.load(Ordering::Relaxed) != 0 {
            self.run.store(0, Ordering::Relaxed);
        }
    }

    /// How many have failed in this lane in a row, with this one.
    #[inline]
    pub(super) fn fail(&self) -> u64 {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.run.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn ignore(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn outlive(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn probe(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Lanes {
    pub(super) fn new() -> Self {
        Lanes(Striped::new(Lane::default))
    }

    /// The lane of this thread.
    #[inline]
    pub(super) fn mine(&self) -> &Lane {
        self.0.mine()
    }

    /// Ends before starts, so that no more seem to have ended than started.
    pub(super) fn totals(&self) -> Totals {
        let sum = |counter: fn(&Lane) -> &AtomicU64| {
            self.0.iter().fold(0_u64, |sum, lane| {
                sum.wrapping_add(counter(lane).load(Ordering::Relaxed))
            })
        };
        Totals {
            succeeded: sum(|lane| &lane.succeeded),
            failed: sum(|lane| &lane.failed),
            ignored: sum(|lane| &lane.ignored),
            stale: sum(|lane| &lane.stale),
            probes: sum(|lane| &lane.probes),
            started: sum(|lane| &lane.started),
        }
    }

    /// Ends the runs of failures of all lanes.
    pub(super) fn end_runs(&self) {
        for lane in self.0.iter() {
            lane.run.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_fits_a_line() {
        assert!(size_of::<Lane>() <= 64);
    }

    #[test]
    fn a_success_ends_the_run_of_its_lane() {
        let lanes = Lanes::new();
        assert_eq!((lanes.mine().fail(), lanes.mine().fail()), (1, 2));
        let elsewhere = std::thread::scope(|scope| {
            let other = scope.spawn(|| lanes.mine().fail());
            other.join().expect("the other thread does not panic")
        });
        assert_eq!(elsewhere, 1);
        lanes.mine().succeed();
        assert_eq!(lanes.mine().fail(), 1);
        let totals = lanes.totals();
        assert_eq!((totals.succeeded, totals.failed), (1, 4));
    }
}
