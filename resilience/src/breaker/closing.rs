//! When a half-open breaker closes: [`Closing`].

use std::fmt;
use std::sync::Arc;

use crate::BuildError;
use crate::contain::contained;

/// What the probes of one half-open time have shown so far. Ignored ones are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Probes {
    /// Those that ended well.
    pub successes: u32,
    /// Those that failed, or whose lease expired.
    pub failures: u32,
    /// Those of either that were slow.
    pub slow: u32,
    /// Successes since the last failure.
    pub consecutive_successes: u32,
}

impl Probes {
    /// Successes and failures.
    ///
    /// ```
    /// assert_eq!(wheelhouse_resilience::Probes::default().settled(), 0);
    /// ```
    #[must_use]
    pub fn settled(&self) -> u32 {
        self.successes.saturating_add(self.failures)
    }

    pub(crate) fn count(&mut self, failed: bool, slow: bool) {
        if failed {
            self.failures = self.failures.saturating_add(1);
            self.consecutive_successes = 0;
        } else {
            self.successes = self.successes.saturating_add(1);
            self.consecutive_successes = self.consecutive_successes.saturating_add(1);
        }
        self.slow = self.slow.saturating_add(u32::from(slow));
    }
}

/// What follows from the probes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The backend has recovered.
    Close,
    /// It has not.
    Open,
    /// Not known yet.
    Wait,
}

/// When a half-open breaker closes, and when it opens again.
///
/// ```
/// use wheelhouse_resilience::{Breaker, Closing, State};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// use std::time::Duration;
/// let breaker = Breaker::consecutive()
///     .cool_down(Duration::ZERO)
///     .max_probes(5)
///     .closing(Closing::of(4, 5))
///     .build()?;
/// for _ in 0..6 {
///     breaker.try_acquire().unwrap().failure();
/// }
/// for success in [true, false, true, true] {
///     assert_eq!(breaker.state(), State::HalfOpen);
///     let probe = breaker.try_acquire().unwrap();
///     if success { probe.success() } else { probe.failure() };
/// }
/// breaker.try_acquire().unwrap().success();
/// assert_eq!(breaker.state(), State::Closed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Closing {
    rule: Rule,
}

type Decide = Arc<dyn Fn(&Probes) -> Decision + Send + Sync>;

#[derive(Clone)]
enum Rule {
    Successes(u32),
    Of { needed: u32, of: u32 },
    Rate { of: u32, above: f64 },
    By(Decide),
}

impl Closing {
    /// After `needed` successes in a row, from 1. Any failure opens the breaker again.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Closing};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::error_rate().closing(Closing::successes(5)).build()?;
    /// let refused = Breaker::error_rate().closing(Closing::successes(0)).build();
    /// assert_eq!(refused.unwrap_err().argument(), "closing");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn successes(needed: u32) -> Self {
        Closing {
            rule: Rule::Successes(needed),
        }
    }

    /// After `needed` successes among `of` probes; it opens as soon as that cannot be reached.
    #[must_use]
    pub fn of(needed: u32, of: u32) -> Self {
        Closing {
            rule: Rule::Of { needed, of },
        }
    }

    /// After `of` probes, all of which run: it opens when the share of failures is above `error_rate`,
    /// from 0 to 1, and closes otherwise.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Closing};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let closing = Closing::rate(10, 0.2);
    /// let breaker = Breaker::error_rate().max_probes(10).closing(closing).build()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rate(of: u32, error_rate: f64) -> Self {
        Closing {
            rule: Rule::Rate {
                of,
                above: error_rate,
            },
        }
    }

    /// As `decide` says, which is asked about each probe that has ended, in turn and outside every
    /// lock: it may use the breaker. Its panic is counted, in
    /// [`BreakerStats::policy_panics`](crate::BreakerStats::policy_panics), and taken for
    /// [`Decision::Open`].
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Closing, Decision};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let closing = Closing::by(|probes| match (probes.slow, probes.settled()) {
    ///     (1.., _) => Decision::Open,
    ///     (0, 3..) => Decision::Close,
    ///     _ => Decision::Wait,
    /// });
    /// let breaker = Breaker::error_rate().closing(closing).build()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn by(decide: impl Fn(&Probes) -> Decision + Send + Sync + 'static) -> Self {
        Closing {
            rule: Rule::By(Arc::new(decide)),
        }
    }

    /// `None` if the user's own code is to be asked.
    pub(super) fn decide(&self, probes: &Probes) -> Option<Decision> {
        Some(match &self.rule {
            Rule::Successes(_) if probes.failures > 0 => Decision::Open,
            Rule::Successes(needed) if probes.consecutive_successes >= *needed => Decision::Close,
            Rule::Of { needed, .. } if probes.successes >= *needed => Decision::Close,
            Rule::Of { needed, of } if probes.failures > of - needed => Decision::Open,
            Rule::Rate { of, above } if probes.settled() >= *of => {
                match f64::from(probes.failures) > above * f64::from(probes.settled()) {
                    true => Decision::Open,
                    false => Decision::Close,
                }
            }
            Rule::By(_) => return None,
            _ => Decision::Wait,
        })
    }

    pub(super) fn is_users(&self) -> bool {
        matches!(self.rule, Rule::By(_))
    }

    /// What the user's own code says; `None` when it panics.
    pub(super) fn ask(&self, probes: &Probes) -> Option<Decision> {
        match &self.rule {
            Rule::By(decide) => contained(|| decide(probes)),
            _ => self.decide(probes),
        }
    }

    /// How many probes it takes at most, settled and in flight together.
    pub(crate) fn most(&self) -> u32 {
        match self.rule {
            Rule::Successes(needed) => needed,
            Rule::Of { of, .. } | Rule::Rate { of, .. } => of,
            Rule::By(_) => u32::MAX,
        }
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let refused = |value: String, allowed| Err(BuildError::new("closing", value, allowed));
        match self.rule {
            Rule::Successes(0) => refused("successes(0)".into(), "1 success and more"),
            Rule::Of { needed, of } if needed == 0 || needed > of => refused(
                format!("of({needed}, {of})"),
                "1 success and more, of at least as many",
            ),
            Rule::Rate { of, above } if of == 0 || !(0.0..=1.0).contains(&above) => refused(
                format!("rate({of}, {above})"),
                "1 probe and more, with a rate from 0 to 1",
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Rule::Successes(needed) => write!(f, "Closing::successes({needed})"),
            Rule::Of { needed, of } => write!(f, "Closing::of({needed}, {of})"),
            Rule::Rate { of, above } => write!(f, "Closing::rate({of}, {above})"),
            Rule::By(_) => f.write_str("Closing::by(..)"),
        }
    }
}
