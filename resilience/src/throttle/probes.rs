//! The probe budget: who may go through although a throttle rejects.
//!
//! One word says from when on a probe is due, and whoever moves it on wins the probe. So at each
//! instant at which a probe is due exactly one caller gets it, however many ask.
//!
//! - I1: every probe moves `due` to a later instant by a compare-exchange, so two callers that saw
//!   the same `due` cannot both win.
//! - I2: `step` is written by the winner of a probe, and by who sets the budget anew. It is a pace
//!   and nothing rests on it: a writer that comes late makes the next pause shorter or longer, never
//!   a second winner.

use crate::sync::{AtomicU64, Ordering};

/// All in nanoseconds of the throttle's time.
#[derive(Debug)]
pub(super) struct Probes {
    /// From when on the next probe may go.
    due: AtomicU64,
    /// The pause after the next probe.
    step: AtomicU64,
    /// The longest pause.
    interval: u64,
}

impl Probes {
    /// A probe is due at once, and then one every `interval`.
    pub(super) fn every(interval: u64) -> Self {
        Probes {
            due: AtomicU64::new(0),
            step: AtomicU64::new(interval),
            interval,
        }
    }

    /// Whether the caller wins the probe that is due at `now`, if one is.
    #[inline]
    pub(super) fn claim(&self, now: u64) -> bool {
        // Relaxed, all of it: the word itself is all that is passed on (I1).
        let due = self.due.load(Ordering::Relaxed);
        if now < due {
            return false;
        }
        let step = self.step.load(Ordering::Relaxed);
        let next = now.saturating_add(step);
        let won = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if won && step < self.interval {
            let longer = step.saturating_mul(2).min(self.interval);
            self.step.store(longer, Ordering::Relaxed);
        }
        won
    }

    /// Takes note that a call went through anyway: the next probe is due an interval later.
    ///
    /// Most calls find that somebody has said so lately and write nothing.
    #[inline]
    pub(super) fn passed(&self, now: u64) {
        let next = now.saturating_add(self.interval);
        // Relaxed: as in `claim`.
        let due = self.due.load(Ordering::Relaxed);
        if due < next - self.interval / 8 {
            self.due.fetch_max(next, Ordering::Relaxed);
        }
    }

    /// Starts anew at `due`, with pauses that double from `step` up to the interval.
    pub(super) fn restart(&self, due: u64, step: u64) {
        // Relaxed: as in `claim`, and I2.
        self.step.store(step.min(self.interval), Ordering::Relaxed);
        self.due.store(due, Ordering::Relaxed);
    }

    /// Nanoseconds from `now` until the next probe is due.
    #[inline]
    pub(super) fn wait(&self, now: u64) -> u64 {
        // Relaxed: a hint.
        self.due.load(Ordering::Relaxed).saturating_sub(now)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_interval() {
        let probes = Probes::every(1000);
        probes.restart(100, 100);
        let won: Vec<u64> = (0..5000).filter(|&now| probes.claim(now)).collect();
        assert_eq!(won, [100, 200, 400, 800, 1600, 2600, 3600, 4600]);
    }

    #[test]
    fn a_call_that_passed_puts_the_probe_off() {
        let probes = Probes::every(1000);
        for now in 0..=5000 {
            probes.passed(now);
            assert!(!probes.claim(now), "at {now}");
        }
        assert!(probes.wait(5000) > 800);
        assert!((5800..=6000).any(|now| probes.claim(now)));
    }

    #[test]
    fn any_time_is_legal() {
        let probes = Probes::every(u64::MAX);
        assert!(probes.claim(5));
        assert!(!probes.claim(u64::MAX - 1));
        probes.passed(u64::MAX);
        assert_eq!(probes.wait(u64::MAX), 0);
    }

    /// Threads that all ask at each of many instants: one winner for each.
    #[test]
    fn one_winner_for_each_probe() {
        let probes = Probes::every(10);
        let time = AtomicU64::new(0);
        let won = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        // Relaxed: counters of the test.
                        let now = time.fetch_add(1, Ordering::Relaxed);
                        won.fetch_add(u64::from(probes.claim(now / 4)), Ordering::Relaxed);
                    }
                });
            }
        });
        let won = won.load(Ordering::Relaxed);
        // Time goes from 0 to 19 999. A thread that stops between taking its time and asking only
        // lets probes be late.
        assert!((1..=2000).contains(&won), "{won}");
    }
}

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Of three callers that ask when a probe is due, exactly one gets it. Fails when `claim` stores
    /// the next instant instead of exchanging it.
    #[test]
    fn a_probe_has_one_winner() {
        loom::model(|| {
            let probes = Arc::new(Probes::every(1000));
            probes.restart(5, 100);
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let probes = probes.clone();
                    thread::spawn(move || u32::from(probes.claim(7)))
                })
                .collect();
            let mut won = u32::from(probes.claim(7));
            for other in others {
                won += other.join().expect("the other thread does not panic");
            }
            assert_eq!(won, 1);
            assert!(!probes.claim(106) && probes.claim(107));
        });
    }

    /// A call that passes at the same time puts the probe off or comes after it; the next one is
    /// never due earlier than a pause after the present.
    #[test]
    fn a_passing_call_never_brings_a_probe_forward() {
        loom::model(|| {
            let probes = Arc::new(Probes::every(1000));
            let other = probes.clone();
            let passing = thread::spawn(move || other.passed(7));
            let won = probes.claim(7);
            passing.join().expect("the other thread does not panic");
            assert!(won || probes.wait(7) == 1000);
            assert!(!probes.claim(1006));
        });
    }
}
