//! [`Gradient2`]: compares the round-trip time of now with that of the long run.

use std::time::Duration;

use crate::BuildError;

use super::limiter::{checked_smoothing, is_idle, seconds};
use super::{Limiter, Sample};

/// How many samples make the first mean of the long run.
const WARM_UP: u32 = 10;

/// Follows the gradient between the round-trip time of the long run and that of now.
///
/// - `long` is the mean of the first 10 samples, then moves by `2 / (window + 1)` of the way to each
/// - `gradient = clamp(long / now, 0.5, 1)`
/// - `next = limit · gradient + queue`
/// - `limit = limit · (1 − smoothing) + next · smoothing`
///
/// Where `long` is more than twice `now`, the load is over, and `long` shrinks by a tenth per sample
/// besides. Fewer than half of the limit in flight change nothing but `long`. Means are more robust
/// than the least time that [`Vegas`](super::Vegas) goes by where calls differ a lot.
///
/// After `Gradient2Limit` in Netflix's concurrency-limits, but for drops: there a dropped call is a
/// sample like others. Here it has no round-trip time, and counts as the steepest gradient, 0.5 and
/// no queue.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::limit::{Gradient2, Limiter, Sample};
///
/// let mut gradient = Gradient2::default();
/// let rtt = Duration::from_millis(10);
/// assert_eq!(gradient.update(20.0, &Sample::good(rtt, 20)), 20.8);
/// assert_eq!(gradient.update(20.0, &Sample::dropped(20)), 18.0);
/// ```
#[derive(Debug, Clone)]
pub struct Gradient2 {
    smoothing: f64,
    queue: f64,
    /// How much of the way to a sample `long` moves.
    factor: f64,
    long: f64,
    samples: u32,
}

impl Default for Gradient2 {
    /// Smoothing 0.2, queue 4, window 600 samples.
    fn default() -> Self {
        Gradient2 {
            smoothing: 0.2,
            queue: 4.0,
            factor: factor(600),
            long: 0.0,
            samples: 0,
        }
    }
}

impl Gradient2 {
    /// How much of each change is taken: above 0, up to 1.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Gradient2;
    ///
    /// assert!(Gradient2::default().smoothing(0.5).is_ok());
    /// let refused = Gradient2::default().smoothing(0.0).unwrap_err();
    /// assert_eq!(refused.to_string(), "smoothing is 0; allowed are above 0 to 1");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when it is outside that.
    pub fn smoothing(mut self, share: f64) -> Result<Self, BuildError> {
        self.smoothing = checked_smoothing(share)?;
        Ok(self)
    }

    /// How many calls may wait at the server: by so many the limit grows while times stay level.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::limit::{Gradient2, Limiter, Sample};
    ///
    /// let level = Sample::good(Duration::from_millis(10), 20);
    /// assert_eq!(Gradient2::default().queue(10).update(20.0, &level), 22.0);
    /// ```
    #[must_use]
    pub fn queue(mut self, calls: u32) -> Self {
        self.queue = f64::from(calls);
        self
    }

    /// How many samples the long run is, from 1 up.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Gradient2;
    ///
    /// assert!(Gradient2::default().window(100).is_ok());
    /// assert!(Gradient2::default().window(0).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when it is 0.
    pub fn window(mut self, samples: u32) -> Result<Self, BuildError> {
        if samples == 0 {
            return Err(BuildError::new("window", "0", "1 and more samples"));
        }
        self.factor = factor(samples);
        Ok(self)
    }

    /// The round-trip time of the long run, as far as it is known.
    #[must_use]
    pub fn long_rtt(&self) -> Option<Duration> {
        (self.samples > 0).then(|| seconds(self.long))
    }
}

impl Limiter for Gradient2 {
    fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
        let gradient = sample.rtt.map(|rtt| self.gradient(rtt.as_secs_f64()));
        let next = match gradient {
            _ if sample.dropped => limit * 0.5,
            Some(gradient) if !is_idle(limit, sample) => limit * gradient + self.queue,
            _ => return limit,
        };
        limit * (1.0 - self.smoothing) + next * self.smoothing
    }
}

impl Gradient2 {
    fn gradient(&mut self, now: f64) -> f64 {
        if self.samples < WARM_UP {
            self.samples += 1;
            self.long += (now - self.long) / f64::from(self.samples);
        } else {
            self.long += (now - self.long) * self.factor;
        }
        let ratio = self.long / now;
        if ratio > 2.0 {
            self.long *= 0.9;
        }
        // Calls that take no time at all leave no ratio; nothing waits then.
        if ratio.is_nan() {
            1.0
        } else {
            ratio.clamp(0.5, 1.0)
        }
    }
}

fn factor(samples: u32) -> f64 {
    2.0 / (f64::from(samples) + 1.0)
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(10);

    fn warm() -> Gradient2 {
        let mut gradient = Gradient2::default();
        for _ in 0..WARM_UP {
            gradient.update(100.0, &Sample::good(BASE, 1));
        }
        gradient
    }

    #[test]
    fn limit_moves_by_the_formula() {
        let long = 10.0 + (20.0 - 10.0) * 2.0 / 601.0;
        let next = 100.0 * long / 20.0 + 4.0;
        let expected = 100.0 * 0.8 + next * 0.2;
        let limit = warm().update(100.0, &Sample::good(BASE * 2, 100));
        assert!((limit - expected).abs() < 1e-9, "{limit} for {expected}");
        // Never by more than half before it is smoothed.
        assert_eq!(warm().update(100.0, &Sample::good(BASE * 50, 100)), 90.8);
        assert_eq!(warm().update(100.0, &Sample::good(BASE, 49)), 100.0);
    }

    #[test]
    fn long_run_comes_down_quickly_after_the_load() {
        let mut gradient = warm();
        for _ in 0..10_000 {
            gradient.update(100.0, &Sample::good(BASE * 10, 1));
        }
        let samples = (1..).find(|_| {
            gradient.update(100.0, &Sample::good(BASE, 1));
            gradient.long_rtt() <= Some(BASE * 2)
        });
        assert!(samples.is_some_and(|samples| samples < 20), "{samples:?}");
    }

    #[test]
    fn calls_without_a_time_are_not_slow() {
        let mut gradient = Gradient2::default();
        assert_eq!(
            gradient.update(100.0, &Sample::good(Duration::ZERO, 100)),
            100.8
        );
    }
}
