//! [`Ewma`]: an average that forgets.

use std::time::{Duration, Instant};

use crate::BuildError;

/// An exponentially weighted moving average over time.
///
/// A sample is what held since the sample before. The old average keeps the weight `decay` after one
/// `period`, `decay²` after two, and so on, whatever the times of the samples: sampling more often
/// does not make it forget faster.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse_collection::Ewma;
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let start = Instant::now();
/// let mut load = Ewma::new(0.95, Duration::from_millis(250))?;
/// load.update_at(start, 0.0);
/// let average = load.update_at(start + Duration::from_millis(250), 100.0);
/// assert!((average - 5.0).abs() < 1e-9);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Ewma {
    /// ln `decay` per nanosecond.
    rate: f64,
    /// The last sample's instant, and the average then.
    last: Option<(Instant, f64)>,
}

impl Ewma {
    /// An average that keeps the weight `decay`, from 0 up to but not including 1, over one `period`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::Ewma;
    ///
    /// let refused = Ewma::new(1.0, Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(refused.to_string(), "decay is 1; allowed are 0 to less than 1");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when `decay` is outside its range or not a number, or `period` is zero.
    pub fn new(decay: f64, period: Duration) -> Result<Self, BuildError> {
        if !(0.0..1.0).contains(&decay) {
            let value = decay.to_string();
            return Err(BuildError::new("decay", value, "0 to less than 1"));
        }
        if period.is_zero() {
            let value = format!("{period:?}");
            return Err(BuildError::new("period", value, "1ns and more"));
        }
        Ok(Ewma {
            rate: decay.ln() / period.as_nanos() as f64,
            last: None,
        })
    }

    /// Takes in a sample at the present instant, as [`update_at`](Self::update_at).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::Ewma;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut average = Ewma::new(0.5, Duration::from_secs(1))?;
    /// assert_eq!(average.update(3.0), 3.0);
    /// # Ok(()) }
    /// ```
    pub fn update(&mut self, sample: f64) -> f64 {
        self.update_at(Instant::now(), sample)
    }

    /// Takes in a sample that held from the one before until `now`, and returns the average.
    ///
    /// The first sample is the average. A sample at or before the instant of the last one held for no
    /// time and changes nothing, and neither does one that is not a finite number; before the first,
    /// the average is 0.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::Ewma;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let mut average = Ewma::new(0.5, Duration::from_secs(1))?;
    /// assert_eq!(average.update_at(start, 8.0), 8.0);
    /// assert_eq!(average.update_at(start + Duration::from_secs(1), 0.0), 4.0);
    /// assert_eq!(average.update_at(start, 1000.0), 4.0);
    /// # Ok(()) }
    /// ```
    pub fn update_at(&mut self, now: Instant, sample: f64) -> f64 {
        match self.last {
            _ if !sample.is_finite() => self.value().unwrap_or(0.0),
            None => {
                self.last = Some((now, sample));
                sample
            }
            Some((last, average)) => {
                let Some(elapsed) = now.checked_duration_since(last).filter(|d| !d.is_zero())
                else {
                    return average;
                };
                let kept = (self.rate * elapsed.as_nanos() as f64).exp();
                // In this form no sum goes beyond the greater of the two.
                let average = average * kept + sample * (1.0 - kept);
                self.last = Some((now, average));
                average
            }
        }
    }

    /// The average after the last sample, `None` before the first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::Ewma;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut average = Ewma::new(0.5, Duration::from_secs(1))?;
    /// assert_eq!(average.value(), None);
    /// average.update(3.0);
    /// assert_eq!(average.value(), Some(3.0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.last.map(|(_, average)| average)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * right.abs().max(1.0)
    }

    /// The same level over the same time gives the same average, however it is cut up.
    #[test]
    fn weighs_by_time_and_not_by_samples() {
        let start = Instant::now();
        let new = || {
            let mut ewma = Ewma::new(0.9, Duration::from_millis(100)).unwrap();
            ewma.update_at(start, 50.0);
            ewma
        };
        let at = |ms| start + Duration::from_millis(ms);
        let once = new().update_at(at(700), 10.0);
        let mut often = new();
        let last = (1..=700).map(|ms| often.update_at(at(ms), 10.0)).last();
        assert!(close(last.unwrap(), once));
        assert!(close(once, 10.0 + 40.0 * 0.9_f64.powi(7)));
    }

    /// R61 for averages: a clock that steps back a day and forward again.
    #[test]
    fn clock_that_steps_back_changes_nothing() {
        let start = Instant::now() + Duration::from_secs(86_400);
        let mut stepped = Ewma::new(0.5, Duration::from_secs(1)).unwrap();
        stepped.update_at(start, 1.0);
        assert_eq!(
            stepped.update_at(start - Duration::from_secs(86_400), 9.0),
            1.0
        );
        assert_eq!(stepped.update_at(start, 9.0), 1.0);
        assert_eq!(stepped.update_at(start + Duration::from_secs(1), 3.0), 2.0);
    }

    #[test]
    fn stays_finite_and_forgets_all_at_last() {
        let start = Instant::now();
        let mut ewma = Ewma::new(0.0, Duration::MAX).unwrap();
        assert_eq!(ewma.update_at(start, f64::NAN), 0.0);
        assert_eq!(ewma.update_at(start, f64::MAX), f64::MAX);
        let later = start + Duration::from_secs(1);
        assert_eq!(ewma.update_at(later, f64::INFINITY), f64::MAX);
        assert_eq!(ewma.update_at(later, -f64::MAX), -f64::MAX);

        let mut ewma = Ewma::new(0.95, Duration::from_nanos(1)).unwrap();
        ewma.update_at(start, 1.0);
        assert_eq!(ewma.update_at(later, 2.0), 2.0);
    }
}
