//! [`Lane`]: what a group of threads counts, on one cache line.

use wheelhouse_collection::{Carry, ErrorCount, Outcomes};

use super::trip::Weights;
use crate::sync::{AtomicU64, Ordering};

/// The successes in a lane's word: bits 0 to 47. After 2⁴⁸ of them they begin anew.
pub(crate) const SUCCESSES: u64 = (1 << EVIDENCE_FROM) - 1;
/// The evidence is in bits 48 to 63.
const EVIDENCE_FROM: u32 = 48;

/// What a group of threads has counted: seven words, which with one of a window fill a line. Two of
/// them mean one thing in a circuit and another in an adaptive throttle, which needs no others so.
///
/// Accesses are Relaxed where each word stands for itself. What counts is a Release, and pairs with the
/// Acquire of who weighs evidence: that finds with a failure the successes before it, and with a success
/// the failures.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The successes, and the evidence as of the last failure.
    word: AtomicU64,
    /// The successes as of the last failure. In an adaptive throttle: the calls that have started,
    /// without those that ended and say nothing.
    at_or_started: AtomicU64,
    failures: AtomicU64,
    /// Slow calls. In an adaptive throttle, which times none: failures since the last success.
    slow_or_run: AtomicU64,
    pub(super) ignored: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) rejected: AtomicU64,
}

impl Lane {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Lane {
            word: zero(),
            at_or_started: zero(),
            failures: zero(),
            slow_or_run: zero(),
            ignored: zero(),
            cancelled: zero(),
            rejected: zero(),
        }
    }

    #[inline]
    pub(crate) fn succeed(&self) {
        self.word.fetch_add(1, Ordering::Release);
    }

    /// Which failure of the lane it is.
    pub(super) fn count_failure(&self) -> u64 {
        self.failures
            .fetch_add(1, Ordering::Release)
            .wrapping_add(1)
    }

    /// Which slow call of the lane it is.
    pub(super) fn count_slow(&self) -> u64 {
        self.slow_or_run
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
    }

    pub(super) fn slow(&self) -> u64 {
        self.slow_or_run.load(Ordering::Relaxed)
    }

    /// Counts a failure and its evidence, and returns all the evidence of this lane. `read` gives the
    /// word, and the successes that are not in it yet, as of one moment. Also says which failure of the
    /// lane it is.
    #[inline]
    pub(super) fn fail(&self, weights: &Weights, read: impl Fn() -> (u64, u64)) -> (u16, u64) {
        loop {
            let (word, pending) = read();
            let successes = (word & SUCCESSES).wrapping_add(pending) & SUCCESSES;
            let at = self.at_or_started.load(Ordering::Relaxed);
            let since = successes.wrapping_sub(at) & SUCCESSES;
            let own = weights.after_failure((word >> EVIDENCE_FROM) as u16, since);
            let new = word & SUCCESSES | u64::from(own) << EVIDENCE_FROM;
            let exchanged =
                self.word
                    .compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed);
            if exchanged.is_ok() {
                self.at_or_started.store(successes, Ordering::Relaxed);
                return (own, self.count_failure());
            }
        }
    }

    /// Replaces the evidence of the last failure, unless it has changed or had a success since.
    pub(crate) fn set_evidence(&self, old: u16, new: u16) {
        let word = self.word.load(Ordering::Relaxed);
        if old != new && (word >> EVIDENCE_FROM) as u16 == old {
            let changed = word & SUCCESSES | u64::from(new) << EVIDENCE_FROM;
            // One that fails leaves the lane with less, or with what another has weighed.
            let _ = self
                .word
                .compare_exchange(word, changed, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(crate) fn clear_evidence(&self) {
        self.word.fetch_and(SUCCESSES, Ordering::Relaxed);
    }

    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }
}

/// Of an adaptive throttle.
impl Lane {
    /// How many have started in this lane, with this one.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.at_or_started
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
    }

    /// Takes back a start: the call has ended, and says nothing. Below 0 it wraps, and so does the sum
    /// over all lanes.
    pub(crate) fn unstart(&self) {
        self.at_or_started.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn started(&self) -> u64 {
        self.at_or_started.load(Ordering::Relaxed)
    }

    /// Counts a success, which ends the run of failures.
    #[inline]
    pub(crate) fn succeed_in_run(&self) {
        self.succeed();
        if self.slow_or_run.load(Ordering::Relaxed) != 0 {
            self.end_run();
        }
    }

    /// How many have failed in this lane in a row, with this one.
    #[inline]
    pub(crate) fn fail_in_run(&self) -> u64 {
        self.count_failure();
        self.count_slow()
    }

    pub(crate) fn end_run(&self) {
        self.slow_or_run.store(0, Ordering::Relaxed);
    }
}

// What leaves a window's line is counted here.
impl Carry<ErrorCount> for Lane {
    fn taken(&self, [requests, errors]: &[u64; 2]) {
        self.word.fetch_add(requests - errors, Ordering::Relaxed);
    }
}

impl Carry<Outcomes> for Lane {
    fn taken(&self, [requests, errors, _slow]: &[u64; 3]) {
        self.word.fetch_add(requests - errors, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_and_a_word_fill_a_line() {
        assert_eq!(size_of::<Lane>() + size_of::<AtomicU64>(), 64);
    }

    #[test]
    fn a_success_ends_the_run_of_its_lane() {
        let (here, there) = (Lane::new(), Lane::new());
        assert_eq!((here.fail_in_run(), here.fail_in_run()), (1, 2));
        assert_eq!(there.fail_in_run(), 1);
        here.succeed_in_run();
        assert_eq!((here.fail_in_run(), there.fail_in_run()), (1, 2));
        assert_eq!((here.failures(), here.word() & SUCCESSES), (3, 1));
    }

    /// A call may end in another lane than it began in.
    #[test]
    fn starts_may_be_taken_back_elsewhere() {
        let (here, there) = (Lane::new(), Lane::new());
        here.start();
        here.start();
        there.unstart();
        assert_eq!(here.started().wrapping_add(there.started()), 1);
    }
}
