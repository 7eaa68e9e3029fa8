//! What a limit learns from: [`Sample`], and what it does with it: [`Limiter`].

use std::time::Duration;

use crate::BuildError;

/// What finished calls tell a [`Limiter`]: one of them, or those of a window together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The mean round-trip time of the good calls; `None` if there was none.
    pub rtt: Option<Duration>,
    /// How many calls were in flight when one of these began, itself included: the most of them.
    pub in_flight: usize,
    /// Whether any of them was dropped: timed out, or turned away by a server that has too much to
    /// do.
    pub dropped: bool,
}

impl Sample {
    /// One good call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::limit::Sample;
    ///
    /// let sample = Sample::good(Duration::from_millis(3), 7);
    /// assert_eq!((sample.in_flight, sample.dropped), (7, false));
    /// ```
    #[must_use]
    pub fn good(rtt: Duration, in_flight: usize) -> Self {
        Sample {
            rtt: Some(rtt),
            in_flight,
            dropped: false,
        }
    }

    /// One call that was dropped.
    ///
    /// ```
    /// use wheelhouse_resilience::limit::Sample;
    ///
    /// assert_eq!(Sample::dropped(7).rtt, None);
    /// ```
    #[must_use]
    pub fn dropped(in_flight: usize) -> Self {
        Sample {
            rtt: None,
            in_flight,
            dropped: true,
        }
    }
}

/// A rule by which a limit follows what finished calls tell.
///
/// The limit itself, its bounds and the samples are kept by
/// [`AdaptiveLimit`](super::AdaptiveLimit); a limiter only keeps what else it has to remember.
///
/// ```
/// use wheelhouse_resilience::AdaptiveLimit;
/// use wheelhouse_resilience::limit::{Limiter, Sample};
///
/// /// Half of what it was after a drop, and back up by a tenth.
/// struct Halving;
///
/// impl Limiter for Halving {
///     fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
///         if sample.dropped { limit / 2.0 } else { limit * 1.1 }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = AdaptiveLimit::builder(Halving).initial(20).build()?;
/// limit.try_acquire()?.dropped();
/// assert_eq!(limit.limit(), 10);
/// # Ok(()) }
/// ```
pub trait Limiter: Send + 'static {
    /// The limit after `sample`, given the one before, which is within the bounds. What is outside
    /// them is brought back by the caller; what is no number changes nothing.
    ///
    /// Called for one sample at a time, outside every lock.
    fn update(&mut self, limit: f64, sample: &Sample) -> f64;
}

/// Whether so few calls were in flight that the time they took says nothing about the limit: below
/// half of it, as in Netflix's concurrency-limits.
pub(super) fn is_idle(limit: f64, sample: &Sample) -> bool {
    (sample.in_flight as f64) * 2.0 < limit
}

pub(super) fn checked_smoothing(share: f64) -> Result<f64, BuildError> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(BuildError::new(
            "smoothing",
            share.to_string(),
            "above 0 to 1",
        ));
    }
    Ok(share)
}

/// A round-trip time that was taken as seconds. The longest is a hair more in them than it was.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
