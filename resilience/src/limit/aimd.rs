//! [`Aimd`]: a step up while all goes well, down by a share when it does not.

use std::time::Duration;

use crate::BuildError;

use super::limiter::is_idle;
use super::{Limiter, Sample};

/// Additive increase, multiplicative decrease: finds the limit by losses, as TCP's congestion
/// avoidance does.
///
/// - a call was dropped, or took longer than `timeout`: `limit = min(limit − 1, limit · backoff)`
/// - else, when in flight ≥ limit / 2: `limit = limit + 1`
///
/// After Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in
/// computer networks" (1989), with the conditions of `AIMDLimit` in Netflix's concurrency-limits.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::limit::{Aimd, Limiter, Sample};
///
/// let mut aimd = Aimd::default();
/// assert_eq!(aimd.update(20.0, &Sample::good(Duration::from_millis(5), 12)), 21.0);
/// assert_eq!(aimd.update(20.0, &Sample::dropped(12)), 18.0);
/// ```
#[derive(Debug, Clone)]
pub struct Aimd {
    backoff: f64,
    timeout: Duration,
}

impl Default for Aimd {
    /// Backoff 0.9, timeout 5 s.
    fn default() -> Self {
        Aimd {
            backoff: 0.9,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Aimd {
    /// What is left of the limit after a drop: 0.5 up to but not 1.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// assert!(Aimd::default().backoff(0.8).is_ok());
    /// let refused = Aimd::default().backoff(1.0).unwrap_err();
    /// assert_eq!(refused.to_string(), "backoff is 1; allowed are 0.5 up to but not 1");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when it is outside that.
    pub fn backoff(mut self, share: f64) -> Result<Self, BuildError> {
        if !(0.5..1.0).contains(&share) {
            let value = share.to_string();
            return Err(BuildError::new("backoff", value, "0.5 up to but not 1"));
        }
        self.backoff = share;
        Ok(self)
    }

    /// A good call that took longer than this counts as dropped: from 1 ns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// assert!(Aimd::default().timeout(Duration::from_millis(200)).is_ok());
    /// assert!(Aimd::default().timeout(Duration::ZERO).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when it is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, BuildError> {
        if timeout.is_zero() {
            return Err(BuildError::new("timeout", "0ns", "1ns and more"));
        }
        self.timeout = timeout;
        Ok(self)
    }
}

impl Limiter for Aimd {
    fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
        if sample.dropped || sample.rtt.is_some_and(|rtt| rtt > self.timeout) {
            (limit - 1.0).min(limit * self.backoff)
        } else if is_idle(limit, sample) {
            limit
        } else {
            limit + 1.0
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_are_drops_and_idle_ones_are_nothing() {
        let mut aimd = Aimd::default().timeout(Duration::from_secs(1)).unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(aimd.update(100.0, &Sample::good(second, 50)), 101.0);
        assert_eq!(aimd.update(100.0, &Sample::good(second, 49)), 100.0);
        let slower = second + Duration::from_nanos(1);
        assert_eq!(aimd.update(100.0, &Sample::good(slower, 1)), 90.0);
        // Below 10 the share would take off less than a call.
        assert_eq!(aimd.update(5.0, &Sample::dropped(1)), 4.0);
    }

    #[test]
    fn backoff_is_what_is_left() {
        let drop = Sample::dropped(1);
        let halving = Aimd::default().backoff(0.5);
        assert_eq!(halving.unwrap().update(100.0, &drop), 50.0);
        let least = Aimd::default().backoff(1.0 - f64::EPSILON);
        assert_eq!(least.unwrap().update(100.0, &drop), 99.0);
    }
}
