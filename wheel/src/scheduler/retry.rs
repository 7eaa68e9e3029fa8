//! When a run that failed is tried again.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::Refusal;

/// Tries a run again that returned an error, panicked or took too long.
///
/// The delay before attempt `n + 1` is `base × factor^(n - 1)`, at most `max_delay`, and then
/// shortened by a random share of up to `jitter` of it, so that tasks that failed together do not
/// come back together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_wheel::scheduler::Retry;
///
/// let retry = Retry::exponential(Duration::from_millis(100))
///     .max_attempts(5)
///     .max_delay(Duration::from_secs(10))
///     .only_if(|failure| !failure.is_panic());
/// # let _ = retry;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Retry {
    base: Duration,
    factor: f64,
    max_delay: Duration,
    jitter: f64,
    max_attempts: u32,
    wanted: Option<Arc<Wanted>>,
}

/// Whether a failure is worth another attempt.
type Wanted = dyn Fn(&Failure<'_>) -> bool + Send + Sync;

impl Retry {
    /// Delays that double from `base` on, at most 60 s, with half of each at random; 5 attempts.
    pub fn exponential(base: Duration) -> Self {
        Retry {
            base,
            factor: 2.0,
            max_delay: Duration::from_secs(60),
            jitter: 0.5,
            max_attempts: 5,
            wanted: None,
        }
    }

    /// The same delay before every attempt, without jitter; 5 attempts.
    pub fn fixed(delay: Duration) -> Self {
        Retry {
            factor: 1.0,
            max_delay: delay,
            jitter: 0.0,
            ..Self::exponential(delay)
        }
    }

    /// How many attempts a run has in all, the first included: 1 or more.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// What each delay is multiplied by to get the next: 1 or more.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The longest delay, before jitter.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// The share of each delay that is random: 0 (none of it) to 1 (all of it).
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Which failures are worth another attempt; without it, all of them. Must not block. A panic in
    /// it counts as no.
    pub fn only_if(
        mut self,
        wanted: impl Fn(&Failure<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.wanted = Some(Arc::new(wanted));
        self
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.max_attempts == 0 {
            return Err(Refusal::argument("retry.max_attempts", 0, "1 or more"));
        }
        if !(self.factor.is_finite() && self.factor >= 1.0) {
            return Err(Refusal::argument("retry.factor", self.factor, "1 or more"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(Refusal::argument("retry.jitter", self.jitter, "0 to 1"));
        }
        Ok(())
    }

    /// The delay before the attempt after `attempt` (from 1), or `None` when that was the last.
    /// `random` is in 0..1. Asks user code.
    pub(super) fn delay(
        &self,
        attempt: u32,
        failure: &Failure<'_>,
        random: f64,
    ) -> Option<Duration> {
        let wants = |wanted: &Arc<Wanted>| wanted(failure);
        if attempt >= self.max_attempts || !self.wanted.as_ref().is_none_or(wants) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let full = if self.base.is_zero() {
            0.0
        } else {
            self.base.as_secs_f64() * self.factor.powi(exponent)
        };
        // What overflows, also to infinity, is more than the longest delay.
        let full = Duration::try_from_secs_f64(full)
            .unwrap_or(Duration::MAX)
            .min(self.max_delay);
        Some(full - full.mul_f64(self.jitter * random))
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("base", &self.base)
            .field("factor", &self.factor)
            .field("max_delay", &self.max_delay)
            .field("jitter", &self.jitter)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

/// Why an attempt failed, as [`Retry::only_if`] sees it.
#[derive(Debug)]
pub struct Failure<'a> {
    pub(super) kind: FailureKind<'a>,
}

#[derive(Debug)]
pub(super) enum FailureKind<'a> {
    Error(&'a (dyn Any + Send)),
    Panic(&'a str),
    Timeout(Duration),
}

impl<'a> Failure<'a> {
    /// The error that the work returned, if it is of this type.
    #[must_use]
    pub fn error<E: 'static>(&self) -> Option<&'a E> {
        match self.kind {
            FailureKind::Error(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The message of the panic, if it was one.
    #[must_use]
    pub fn panic(&self) -> Option<&'a str> {
        match self.kind {
            FailureKind::Panic(message) => Some(message),
            _ => None,
        }
    }

    /// Whether the work panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.kind, FailureKind::Panic(_))
    }

    /// The timeout that the work exceeded, if it was that.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        match self.kind {
            FailureKind::Timeout(timeout) => Some(timeout),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const FAILURE: Failure<'static> = Failure {
        kind: FailureKind::Timeout(S),
    };

    #[test]
    fn delays_double_up_to_the_longest() {
        let retry = Retry::exponential(S).max_attempts(6).max_delay(5 * S);
        let delays =
            |random| -> Vec<_> { (1..=6).map(|n| retry.delay(n, &FAILURE, random)).collect() };
        let full = [S, 2 * S, 4 * S, 5 * S, 5 * S].map(Some);
        assert_eq!(delays(0.0)[..5], full);
        assert_eq!(delays(0.0)[5], None);
        assert_eq!(delays(1.0)[..5], full.map(|d| d.map(|d| d / 2)));
    }

    #[test]
    fn what_overflows_is_the_longest_delay() {
        let retry = Retry::exponential(Duration::MAX)
            .max_attempts(u32::MAX)
            .max_delay(Duration::MAX)
            .factor(f64::MAX);
        assert_eq!(
            retry.delay(4_000_000_000, &FAILURE, 0.0),
            Some(Duration::MAX)
        );
    }

    #[test]
    fn only_wanted_failures_are_retried() {
        let retry = Retry::fixed(S).only_if(|f| f.error::<u32>() == Some(&503));
        let failure = |error| Failure {
            kind: FailureKind::Error(error),
        };
        assert_eq!(retry.delay(1, &failure(&503_u32), 0.5), Some(S));
        assert_eq!(retry.delay(1, &failure(&404_u32), 0.5), None);
        assert_eq!(retry.delay(1, &failure(&503_u64), 0.5), None);
        assert_eq!(retry.delay(1, &FAILURE, 0.5), None);
    }
}
