//! Rates: when a window is looked at, and what is seen there.
//!
//! A look at a window reads what every thread writes to, so a failure looks only when the breaker
//! could be near a trip. What counts towards a rate is a mark: a failure, or a slow call.
//!
//! - I1: a look that does not trip finds how many marks it takes at least to do so, if every call from
//!   now on has one, and publishes the greatest power of two, the step, that all stripes together
//!   can make without getting there. Each looks again when its own marks cross a multiple of the step.
//! - I2: successes that leave a window in time make the rate rise without a mark, so in a new bucket
//!   every stripe looks at its first mark.
//!
//! From I1 and I2: on one thread a rate trips at the very call at which it is exceeded, and with
//! several at one that ends while that call does.

use std::time::Duration;

use wheelhouse_collection::Outcomes;

use super::Rate;
use crate::sync::{AtomicU64, Ordering};

/// The window of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Time { span: Duration, buckets: usize },
    Count(usize),
}

/// How many stripes a window has, at most.
const STRIPES: u64 = 4;

/// The rates that go by the same window.
#[derive(Debug)]
pub(crate) struct Rates {
    rates: Box<[Rate]>,
    /// A power of two, see I1.
    step: AtomicU64,
}

impl Rates {
    pub(crate) fn new(rates: Vec<Rate>) -> Self {
        Rates {
            rates: rates.into(),
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

    /// Whether a rate is exceeded.
    pub(crate) fn look(&self, sum: &Outcomes) -> Option<Rate> {
        let mut needed = u64::MAX;
        for rate in &self.rates {
            let (marks, requests) = (rate.marks(sum), sum.requests);
            if rate.is_exceeded(marks, requests) {
                return Some(*rate);
            }
            needed = needed.min(rate.needed(marks, requests));
        }
        let step = 1 << (needed / STRIPES).max(1).ilog2();
        if self.step.load(Ordering::Relaxed) != step {
            self.step.store(step, Ordering::Relaxed);
        }
        None
    }
}

impl Rate {
    pub(crate) fn name(self) -> &'static str {
        if self.slow { "slow rate" } else { "error rate" }
    }

    fn marks(&self, sum: &Outcomes) -> u64 {
        if self.slow { sum.slow } else { sum.errors }
    }

    fn is_exceeded(&self, marks: u64, requests: u64) -> bool {
        // Without a call there is no rate, whatever the minimum is.
        if requests == 0 || requests < self.least() {
            return false;
        }
        let limit = self.limit * requests as f64;
        match self.inclusive {
            true => marks as f64 >= limit,
            false => marks as f64 > limit,
        }
    }

    /// A window of `n` calls never has more of them.
    fn least(&self) -> u64 {
        match self.window {
            Window::Count(size) => self.minimum.min(size as u64),
            Window::Time { .. } => self.minimum,
        }
    }

    /// How many more marks it takes at least, from 1. The volume does not come into it: successes
    /// make it without a mark.
    fn needed(&self, marks: u64, requests: u64) -> u64 {
        let missing = self.limit * requests as f64 - marks as f64;
        let missing = match self.window {
            // A mark takes the place of another call.
            Window::Count(_) => missing,
            // A mark is a call more.
            Window::Time { .. } => missing / (1.0 - self.limit),
        };
        // Saturates; what is not a number is nothing over nothing.
        (missing as u64).max(1)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::super::{ErrorRate, Kind, Trip};
    use super::*;

    fn rate(policy: ErrorRate) -> Rate {
        match Trip::from(policy).kind {
            Kind::Rate(rate) => rate,
            other => panic!("{other:?}"),
        }
    }

    /// With fewer marks than it says nothing can trip, whatever successes do.
    #[test]
    fn needed_is_never_too_many() {
        for limit in [0.0, 0.1, 0.5, 0.9, 1.0] {
            for policy in [ErrorRate::above(limit), ErrorRate::at_least(limit.max(0.1))] {
                let rate = rate(policy.minimum(0));
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

    #[test]
    fn crosses_each_multiple_of_the_step() {
        let rates = Rates::new(Vec::new());
        rates.step.store(8, Ordering::Relaxed);
        let due: Vec<u64> = (1..=33).filter(|&marks| rates.is_due(marks, 1)).collect();
        assert_eq!(due, [8, 16, 24, 32]);
        assert!(rates.is_due(9, 2) && !rates.is_due(11, 2));
    }
}
