//! Rates: when a window is looked at, and what is seen there.
//!
//! A look at a window reads what every thread writes to, so a failure looks only when the breaker
//! could be near a trip. What counts towards a rate is a mark: a failure, or a slow call.
//!
//! - I1: a look that does not trip finds how many marks it takes at least to do so, if every call from
//!   now on has one, and publishes the greatest power of two, the step, that all stripes together
//!   can make without getting there. Each looks again when its own marks cross a multiple of the step.
//!   Where failures and slow calls are counted apart, each goes by half of the step.
//! - I2: successes that leave a window in time make the rate rise without a mark, so in a new bucket
//!   every stripe looks at its first mark.
//!
//! - I3: a look that finds a rate exceeded but for the minimum volume says so, and the breaker is
//!   watched then (see word.rs): each success looks too. So does one that finds any mark, if the rate
//!   is eager: a success that leaves the window raises the rate.
//!
//! From these: on one thread a rate trips at the very call at which it is exceeded, and with several at
//! one that ends while that call does, or, if that is a success, at the next.

use std::time::Duration;

use wheelhouse_collection::{Outcomes, Striped};

use super::Rate;
use crate::sync::{AtomicU64, Ordering};

/// The window of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Time { span: Duration, buckets: usize },
    Count(usize),
}

/// How many stripes a window has, at most.
const STRIPES: u64 = Striped::<()>::COUNT as u64;

/// A share that is too large, of a window's calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    share: f64,
    /// At least 1: without a call there is no rate.
    minimum: u64,
    slow: bool,
    /// Whether the share itself is too large.
    inclusive: bool,
    /// Whether a call takes the place of another in the window.
    takes_place: bool,
    /// Whether any mark in the window makes successes look.
    eager: bool,
}

/// What a lane has counted with the outcome at hand, by which no other thread of the lane is told the
/// same number; 0 for what the outcome is not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    pub(crate) failures: u64,
    pub(crate) slow: u64,
    /// Whether the lane has slow calls at all.
    pub(crate) some_slow: bool,
}

/// What is seen in windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Finding {
    /// Nothing.
    Fine,
    /// A rate is exceeded but for the minimum volume, or has a mark and is eager: successes are to look.
    Short,
    /// A policy trips: its name.
    Exceeded(&'static str),
}

impl Finding {
    pub(crate) fn of(tripped: Option<&'static str>) -> Self {
        tripped.map_or(Finding::Fine, Finding::Exceeded)
    }

    /// The weightier of two, the first of equals.
    pub(crate) fn or(self, other: Finding) -> Finding {
        match (self, other) {
            (Finding::Exceeded(_), _) | (_, Finding::Fine) => self,
            (Finding::Fine, _) | (_, Finding::Exceeded(_)) => other,
            (Finding::Short, Finding::Short) => self,
        }
    }
}

/// The rates that go by the same window.
#[derive(Debug)]
pub(crate) struct Rates {
    first: Limit,
    /// Rarely any. Not in a slice of its own, which would take twice the room.
    #[expect(clippy::box_collection, reason = "a word when there are none")]
    others: Option<Box<Vec<Limit>>>,
    /// A power of two, see I1.
    step: AtomicU64,
}

impl Rates {
    pub(crate) fn new(first: &Rate, others: &[Rate]) -> Self {
        let others: Vec<Limit> = others.iter().map(Limit::of).collect();
        Rates {
            first: Limit::of(first),
            others: (!others.is_empty()).then(|| Box::new(others)),
            step: AtomicU64::new(1),
        }
    }

    /// The window is empty.
    pub(crate) fn reset(&self) {
        // Relaxed: as in `look`.
        self.step.store(1, Ordering::Relaxed);
    }

    /// Whether a stripe that has made `marks`, `by` of them just now, is to look.
    #[inline]
    pub(crate) fn is_due(&self, marks: u64, by: u64) -> bool {
        // Relaxed, and in `look`: nothing is read through it, and one that is not the latest was right
        // a moment ago.
        let step = self.step.load(Ordering::Relaxed);
        (marks ^ marks.wrapping_sub(by)) >= step
    }

    /// The same where failures and slow calls are counted apart.
    pub(crate) fn is_due_by(&self, marks: Marks) -> bool {
        let step = self.step.load(Ordering::Relaxed);
        let half = if marks.some_slow {
            step.div_ceil(2)
        } else {
            step
        };
        let crosses = |count: u64| count > 0 && count.is_multiple_of(half);
        crosses(marks.failures) || marks.slow == 1 || crosses(marks.slow)
    }

    pub(crate) fn look(&self, sum: &Outcomes) -> Finding {
        let mut needed = u64::MAX;
        let mut found = Finding::Fine;
        let others = self.others.iter().flat_map(|others| others.iter());
        for limit in std::iter::once(&self.first).chain(others) {
            let (marks, requests) = (limit.marks(sum), sum.requests);
            if limit.is_exceeded(marks, requests) {
                match requests >= limit.minimum {
                    true => return Finding::Exceeded(limit.name()),
                    false => found = Finding::Short,
                }
            } else if limit.eager && marks > 0 {
                found = Finding::Short;
            }
            needed = needed.min(limit.needed(marks, requests));
        }
        let step = 1 << (needed / STRIPES).max(1).ilog2();
        if self.step.load(Ordering::Relaxed) != step {
            self.step.store(step, Ordering::Relaxed);
        }
        found
    }
}

impl Limit {
    fn of(rate: &Rate) -> Self {
        let (takes_place, most) = match rate.window {
            Window::Count(size) => (true, size as u64),
            Window::Time { .. } => (false, u64::MAX),
        };
        Limit {
            share: rate.limit,
            // A window of `n` calls never has more of them.
            minimum: rate.minimum.min(most).max(1),
            slow: rate.slow,
            inclusive: rate.inclusive,
            takes_place,
            eager: rate.eager,
        }
    }

    fn name(&self) -> &'static str {
        if self.slow { "slow rate" } else { "error rate" }
    }

    fn marks(&self, sum: &Outcomes) -> u64 {
        if self.slow { sum.slow } else { sum.errors }
    }

    /// Whatever the volume; but without a call there is no rate.
    fn is_exceeded(&self, marks: u64, requests: u64) -> bool {
        let limit = self.share * requests as f64;
        let exceeds = match self.inclusive {
            true => marks as f64 >= limit,
            false => marks as f64 > limit,
        };
        exceeds && requests > 0
    }

    /// How many more marks it takes at least, from 1. The volume does not come into it: successes
    /// make it without a mark.
    fn needed(&self, marks: u64, requests: u64) -> u64 {
        let missing = self.share * requests as f64 - marks as f64;
        let missing = match self.takes_place {
            true => missing,
            // A mark is a call more.
            false => missing / (1.0 - self.share),
        };
        // Saturates; what is not a number is nothing over nothing.
        (missing as u64).max(1)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::super::{ErrorRate, Kind, Trip};
    use super::*;

    fn limit(policy: ErrorRate) -> Limit {
        match Trip::from(policy).kind {
            Kind::Rate(rate) => Limit::of(&rate),
            other => panic!("{other:?}"),
        }
    }

    /// With fewer marks than it says nothing can trip, whatever successes do.
    #[test]
    fn needed_is_never_too_many() {
        for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
            for policy in [ErrorRate::above(share), ErrorRate::at_least(share.max(0.1))] {
                let rate = limit(policy.minimum(0));
                for requests in 0..60 {
                    for marks in 0..=requests {
                        if rate.is_exceeded(marks, requests) {
                            continue;
                        }
                        let needed = rate.needed(marks, requests);
                        for more in 0..needed.min(200) {
                            assert!(!rate.is_exceeded(marks + more, requests + more));
                        }
                    }
                }
            }
        }
    }

    /// However failures and slow calls of a lane alternate, and whatever other threads of it see, fewer
    /// than the step pass without a look.
    #[test]
    fn no_step_passes_without_a_look() {
        let rates = Rates {
            first: limit(ErrorRate::above(0.5)),
            others: None,
            step: AtomicU64::new(8),
        };
        for pattern in 0_u32..1 << 16 {
            let (mut failures, mut slow, mut since) = (0, 0, 0);
            for bit in 0..16 {
                let is_slow = pattern >> bit & 1 == 1;
                *(if is_slow { &mut slow } else { &mut failures }) += 1;
                since += 1;
                let marks = Marks {
                    failures: if is_slow { 0 } else { failures },
                    slow: if is_slow { slow } else { 0 },
                    some_slow: slow > 0,
                };
                if rates.is_due_by(marks) {
                    since = 0;
                }
                assert!(since < 8, "{pattern:b}");
            }
        }
    }

    #[test]
    fn crosses_each_multiple_of_the_step() {
        let rates = Rates {
            first: limit(ErrorRate::above(0.5)),
            others: None,
            step: AtomicU64::new(8),
        };
        let due: Vec<u64> = (1..=33).filter(|&marks| rates.is_due(marks, 1)).collect();
        assert_eq!(due, [8, 16, 24, 32]);
        assert!(rates.is_due(9, 2) && !rates.is_due(11, 2));
    }
}
