//! [`Vegas`]: keeps a short queue at the server, estimated from the round-trip time.

use std::time::Duration;

use crate::BuildError;

use super::limiter::{checked_smoothing, is_idle, seconds};
use super::{Limiter, Sample};

/// Follows the queue that the round-trip time betrays: `queue = ⌈limit · (1 − rtt_noload / rtt)⌉`.
///
/// With `step = max(1, ⌊log₁₀ limit⌋)`:
///
/// - a call was dropped: `limit − step`
/// - fewer than half of the limit in flight: no change
/// - `queue ≤ step`: `limit + 6·step`
/// - `queue < 3·step`: `limit + step`
/// - `queue > 6·step`: `limit − step`
/// - else no change
///
/// `rtt_noload` is the least round-trip time seen. So that it can rise when the server has become
/// slower for good, it is taken anew from a single sample after every `30 · limit` samples, times a
/// random factor from 0.5 to 1, so that clients of one server do not all do it together.
///
/// After Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global Internet"
/// (1995), in the form of `VegasLimit` in Netflix's concurrency-limits.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::limit::{Limiter, Sample, Vegas};
///
/// let mut vegas = Vegas::default();
/// let rtt = Duration::from_millis(10);
/// // The first sample is the base.
/// assert_eq!(vegas.update(20.0, &Sample::good(rtt, 20)), 20.0);
/// assert_eq!(vegas.update(20.0, &Sample::good(rtt, 20)), 26.0);
/// // Half of the time is spent in a queue of ten.
/// assert_eq!(vegas.update(20.0, &Sample::good(rtt * 2, 20)), 19.0);
/// ```
#[derive(Debug, Clone)]
pub struct Vegas {
    rtt_noload: Option<f64>,
    smoothing: f64,
    probe_multiplier: f64,
    /// Samples since the base was last taken anew.
    samples: u64,
    /// The random factor of the present round.
    factor: f64,
    random: fastrand::Rng,
}

impl Default for Vegas {
    /// Smoothing 1, probe multiplier 30.
    fn default() -> Self {
        let mut random = fastrand::Rng::new();
        Vegas {
            rtt_noload: None,
            smoothing: 1.0,
            probe_multiplier: 30.0,
            samples: 0,
            factor: half_to_one(&mut random),
            random,
        }
    }
}

impl Vegas {
    /// How much of each change is taken: above 0, up to 1.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Vegas;
    ///
    /// assert!(Vegas::default().smoothing(0.5).is_ok());
    /// let refused = Vegas::default().smoothing(0.0).unwrap_err();
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

    /// After how many samples per unit of the limit the base is taken anew, from 1 up.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Vegas;
    ///
    /// assert!(Vegas::default().probe_multiplier(100).is_ok());
    /// assert!(Vegas::default().probe_multiplier(0).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when it is 0.
    pub fn probe_multiplier(mut self, multiplier: u32) -> Result<Self, BuildError> {
        if multiplier == 0 {
            return Err(BuildError::new("probe_multiplier", "0", "1 and more"));
        }
        self.probe_multiplier = f64::from(multiplier);
        Ok(self)
    }

    /// Makes the random factors a function of `seed`.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Vegas;
    ///
    /// let debug = |vegas: Vegas| format!("{vegas:?}");
    /// assert_eq!(debug(Vegas::default().seed(7)), debug(Vegas::default().seed(7)));
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = fastrand::Rng::with_seed(seed);
        self.factor = half_to_one(&mut self.random);
        self
    }

    /// The round-trip time without a queue, as far as it is known.
    #[must_use]
    pub fn rtt_noload(&self) -> Option<Duration> {
        self.rtt_noload.map(seconds)
    }
}

impl Limiter for Vegas {
    fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
        let step = limit.log10().floor().max(1.0);
        let next = match sample.rtt {
            _ if sample.dropped => limit - step,
            None => return limit,
            Some(rtt) => {
                // At least what a clock can tell apart, so that there is a ratio.
                let rtt = rtt.as_secs_f64().max(1e-9);
                if self.rebase(limit, rtt) || is_idle(limit, sample) {
                    return limit;
                }
                let base = self.rtt_noload.unwrap_or(rtt);
                match (limit * (1.0 - base / rtt)).ceil() {
                    queue if queue <= step => limit + 6.0 * step,
                    queue if queue < 3.0 * step => limit + step,
                    queue if queue > 6.0 * step => limit - step,
                    _ => return limit,
                }
            }
        };
        limit + (next - limit) * self.smoothing
    }
}

impl Vegas {
    /// Counts a sample; whether it has become the base.
    fn rebase(&mut self, limit: f64, rtt: f64) -> bool {
        self.samples += 1;
        if self.samples as f64 >= self.factor * self.probe_multiplier * limit {
            self.samples = 0;
            self.factor = half_to_one(&mut self.random);
            self.rtt_noload = Some(rtt);
            return true;
        }
        if self.rtt_noload.is_none_or(|base| rtt < base) {
            self.rtt_noload = Some(rtt);
            return true;
        }
        false
    }
}

fn half_to_one(random: &mut fastrand::Rng) -> f64 {
    0.5 + random.f64() / 2.0
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(10);

    /// A limiter that knows the base and does not probe within a test.
    fn vegas() -> Vegas {
        let mut vegas = Vegas::default()
            .probe_multiplier(1_000_000)
            .unwrap()
            .seed(1);
        vegas.update(100.0, &Sample::good(BASE, 100));
        vegas
    }

    /// The sample that lets 100 in flight look like `queue` of them waiting.
    fn with_queue(queue: f64) -> Sample {
        Sample::good(BASE.div_f64(1.0 - (queue - 0.5) / 100.0), 100)
    }

    #[test]
    fn each_band_of_the_queue_moves_the_limit_its_way() {
        // The step is 2.
        let bands = [
            (2.0, 112.0),
            (3.0, 102.0),
            (5.0, 102.0),
            (6.0, 100.0),
            (12.0, 100.0),
            (13.0, 98.0),
        ];
        for (queue, limit) in bands {
            assert_eq!(
                vegas().update(100.0, &with_queue(queue)),
                limit,
                "queue {queue}"
            );
        }
        assert_eq!(vegas().update(100.0, &Sample::dropped(100)), 98.0);
        assert_eq!(vegas().update(100.0, &Sample::good(BASE, 49)), 100.0);
        assert_eq!(
            vegas()
                .smoothing(0.5)
                .unwrap()
                .update(100.0, &with_queue(13.0)),
            99.0
        );
    }

    #[test]
    fn the_base_is_taken_anew_after_a_while() {
        let mut vegas = Vegas::default().seed(7);
        let slow = Sample::good(BASE * 3, 10);
        vegas.update(10.0, &Sample::good(BASE, 10));
        let until = (1..=300).find(|_| {
            vegas.update(10.0, &slow);
            vegas.rtt_noload() == Some(BASE * 3)
        });
        assert!(
            until.is_some_and(|samples| (149..=299).contains(&samples)),
            "{until:?}"
        );
    }
}
