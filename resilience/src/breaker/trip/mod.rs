//! What trips a closed breaker: the policies as their users see them.

mod evidence;
mod rate;

pub(crate) use evidence::{Evidence, Weights};
pub(crate) use rate::{Finding, Marks, Rates, Window};

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wheelhouse_collection::Outcome;

use crate::BuildError;

/// A policy that trips a breaker, for [`BreakerBuilder::trip_on`](crate::BreakerBuilder::trip_on).
#[derive(Clone, Debug)]
pub struct Trip {
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Rate(Rate),
    Consecutive(Consecutive),
    Cusum(Cusum),
    User(fn() -> &'static str, MakePolicy),
}

/// Makes the policy of one breaker.
#[derive(Clone)]
pub(crate) struct MakePolicy(pub(crate) Arc<dyn Fn() -> Box<dyn TripPolicy> + Send + Sync>);

impl fmt::Debug for MakePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakePolicy(..)")
    }
}

/// A policy of the user's own.
///
/// Its calls come from all threads, so what it counts it counts in atomics or under a lock of its own;
/// what that costs is what a call costs. It is called outside every lock, and may use breakers. A panic
/// in it is counted, in [`BreakerStats::policy_panics`](crate::BreakerStats::policy_panics), and goes
/// no further.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Instant;
/// use wheelhouse_resilience::{Breaker, Outcome, State, Trip, TripPolicy};
///
/// /// Trips at the third failure, whenever it comes.
/// #[derive(Debug, Default)]
/// struct ThreeStrikes(AtomicU32);
///
/// impl TripPolicy for ThreeStrikes {
///     fn record(&self, outcome: Outcome, _now: Instant) -> bool {
///         outcome.is_error() && self.0.fetch_add(1, Ordering::Relaxed) == 2
///     }
///     fn reset(&self) { self.0.store(0, Ordering::Relaxed) }
/// }
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().trip_on(Trip::policy::<ThreeStrikes>()).build()?;
/// for _ in 0..3 {
///     breaker.try_acquire().unwrap().failure();
/// }
/// assert_eq!(breaker.state(), State::Open);
/// # Ok(()) }
/// ```
pub trait TripPolicy: fmt::Debug + Send + Sync + 'static {
    /// Takes note of a call that ended at `now`, while the breaker is closed, and says whether the
    /// breaker is to open. Its panic is a no.
    fn record(&self, outcome: Outcome, now: Instant) -> bool;

    /// Forgets everything: the breaker has closed. Comes before the first call of the new time is
    /// recorded; calls that end on other threads while it runs are not.
    fn reset(&self);
}

impl Trip {
    /// A policy of the user's own; each breaker gets one from `P::default()`.
    #[must_use]
    pub fn policy<P: TripPolicy + Default>() -> Self {
        Self::policy_with(|| P::default())
    }

    /// A policy of the user's own; each breaker gets what `make` returns.
    ///
    /// ```
    /// # use std::time::Instant;
    /// # use wheelhouse_resilience::{Outcome, Trip, TripPolicy};
    /// #[derive(Debug)]
    /// struct AnyError;
    ///
    /// impl TripPolicy for AnyError {
    ///     fn record(&self, outcome: Outcome, _now: Instant) -> bool { outcome.is_error() }
    ///     fn reset(&self) {}
    /// }
    /// let trip = Trip::policy_with(|| AnyError);
    /// ```
    #[must_use]
    pub fn policy_with<P: TripPolicy>(make: impl Fn() -> P + Send + Sync + 'static) -> Self {
        Trip {
            kind: Kind::User(
                std::any::type_name::<P>,
                MakePolicy(Arc::new(move || Box::new(make()))),
            ),
        }
    }
}

/// Trips when too large a share of the calls in a window fail.
///
/// Looked at whenever a call fails, and, while the rate is too large but the minimum volume missing,
/// whenever one goes well. Below the minimum volume nothing trips.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::{Breaker, ErrorRate, State};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder()
///     .trip_on(ErrorRate::above(0.5).within(Duration::from_secs(10), 40).minimum(4))
///     .build()?;
/// for _ in 0..3 {
///     breaker.try_acquire().unwrap().failure();
/// }
/// assert_eq!(breaker.state(), State::Closed);
/// breaker.try_acquire().unwrap().failure();
/// assert_eq!(breaker.state(), State::Open);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ErrorRate {
    rate: Rate,
}

/// Trips when too large a share of the calls in a window are slow, failed or not. What is slow is
/// said by [`BreakerBuilder::slow_after`](crate::BreakerBuilder::slow_after).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::{Breaker, SlowRate, State};
/// use wheelhouse_wheel::ManualClock;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let clock = ManualClock::new();
/// let breaker = Breaker::builder()
///     .clock(clock.clone())
///     .slow_after(Duration::from_millis(100))
///     .trip_on(SlowRate::at_least(1.0).last(10).minimum(1))
///     .build()?;
/// let permit = breaker.try_acquire().unwrap();
/// clock.advance(Duration::from_millis(100));
/// permit.success();
/// assert_eq!(breaker.state(), State::Open);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SlowRate {
    rate: Rate,
}

/// A share that is too large, of what, and in which window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) slow: bool,
    pub(crate) limit: f64,
    /// Whether the limit itself is too large.
    pub(crate) inclusive: bool,
    pub(crate) window: Window,
    pub(crate) minimum: u64,
    /// Whether successes look too as long as there is a mark in the window: one that leaves it raises
    /// the rate.
    pub(crate) eager: bool,
}

macro_rules! rate {
    ($name:ident, $slow:literal) => {
        impl $name {
            /// Trips above this share, from 0 (exclusive) to 1: never at 1.
            ///
            /// The window is 10 s long in 40 buckets, and the minimum 200 calls, unless set.
            #[must_use]
            pub fn above(share: f64) -> Self {
                Self::new(share, false)
            }

            /// Trips at this share and above, from 0 (exclusive) to 1.
            #[must_use]
            pub fn at_least(share: f64) -> Self {
                Self::new(share, true)
            }

            fn new(limit: f64, inclusive: bool) -> Self {
                let window = Window::Time {
                    span: Duration::from_secs(10),
                    buckets: 40,
                };
                $name {
                    rate: Rate {
                        slow: $slow,
                        limit,
                        inclusive,
                        window,
                        minimum: 200,
                        eager: false,
                    },
                }
            }

            /// Counts the calls that ended within the last `span`, which passes in steps of a
            /// `buckets`th: at least a nanosecond each, 1 to 1 048 576.
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = concat!("use wheelhouse_resilience::{Breaker, ", stringify!($name), "};")]
            ///
            /// let minute = Duration::from_secs(60);
            #[doc = concat!("let rate = ", stringify!($name), "::above(0.5);")]
            /// assert!(Breaker::builder().trip_on(rate.within(minute, 60)).build().is_ok());
            /// assert!(Breaker::builder().trip_on(rate.within(minute, 0)).build().is_err());
            /// ```
            #[must_use]
            pub fn within(mut self, span: Duration, buckets: usize) -> Self {
                self.rate.window = Window::Time { span, buckets };
                self
            }

            /// Counts the last `calls` that ended, 1 to 16 777 216. Reads no clock.
            ///
            /// With several threads that write at the same time it is off by at most 8 calls for each,
            /// and 16 for one that has suddenly become slower.
            ///
            /// ```
            #[doc = concat!("use wheelhouse_resilience::{Breaker, ", stringify!($name), "};")]
            ///
            #[doc = concat!("let rate = ", stringify!($name), "::above(0.5);")]
            /// assert!(Breaker::builder().trip_on(rate.last(100)).build().is_ok());
            /// assert!(Breaker::builder().trip_on(rate.last(0)).build().is_err());
            /// ```
            #[must_use]
            pub fn last(mut self, calls: usize) -> Self {
                self.rate.window = Window::Count(calls);
                self
            }

            /// With fewer calls than this in the window nothing trips. 0 and 1 are the same: without
            /// a call there is no rate. In a window of a number of calls it is at most that number.
            ///
            /// ```
            #[doc = concat!("use wheelhouse_resilience::{Breaker, ", stringify!($name), "};")]
            ///
            #[doc = concat!("let rate = ", stringify!($name), "::at_least(0.5).minimum(20);")]
            /// assert!(Breaker::builder().trip_on(rate).build().is_ok());
            /// ```
            #[must_use]
            pub fn minimum(mut self, calls: u64) -> Self {
                self.rate.minimum = calls;
                self
            }
        }

        impl From<$name> for Trip {
            fn from(policy: $name) -> Self {
                Trip {
                    kind: Kind::Rate(policy.rate),
                }
            }
        }
    };
}

rate!(ErrorRate, false);
rate!(SlowRate, true);

impl ErrorRate {
    /// Looks at successes too while there is a failure in the window.
    #[cfg(feature = "tokio")]
    pub(crate) fn eager(mut self) -> Self {
        self.rate.eager = true;
        self
    }
}

impl Rate {
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let name = if self.slow { "slow_rate" } else { "error_rate" };
        // At 0 a single mark is too many: that is no rate, and `Consecutive` says it.
        if !(self.limit > 0.0 && self.limit <= 1.0) {
            let value = self.limit.to_string();
            return Err(BuildError::new(name, value, "more than 0, to 1"));
        }
        Ok(())
    }
}

/// Trips at this many failures in a row.
///
/// Exact when calls end on one thread. With several it never counts a failure that came before a
/// success, and may trip a few failures late: see the notes on evidence in the source.
///
/// ```
/// use wheelhouse_resilience::{Breaker, Consecutive, State};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().trip_on(Consecutive::failures(2)).build()?;
/// breaker.try_acquire().unwrap().failure();
/// breaker.try_acquire().unwrap().success();
/// breaker.try_acquire().unwrap().failure();
/// assert_eq!(breaker.state(), State::Closed);
/// breaker.try_acquire().unwrap().failure();
/// assert_eq!(breaker.state(), State::Open);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Consecutive {
    failures: u32,
    interval: Option<Duration>,
}

impl Consecutive {
    /// At `failures` of them, 1 to 65 535.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Consecutive};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().trip_on(Consecutive::failures(3)).build()?;
    /// let refused = Breaker::builder().trip_on(Consecutive::failures(0)).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "failures is 0; allowed are 1 to 65535");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn failures(failures: u32) -> Self {
        Consecutive {
            failures,
            interval: None,
        }
    }

    /// Forgets the failures of a closed breaker every `interval` on its clock (gobreaker's `Interval`):
    /// at its multiples since the clock began, whenever the breaker closed. `None`, as by default, never
    /// does. Reads the clock when a call fails.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Consecutive, State};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let policy = Consecutive::failures(2).interval(Duration::from_secs(60));
    /// let breaker = Breaker::builder().clock(clock.clone()).trip_on(policy).build()?;
    /// breaker.try_acquire().unwrap().failure();
    /// clock.advance(Duration::from_secs(60));
    /// breaker.try_acquire().unwrap().failure();
    /// assert_eq!(breaker.state(), State::Closed);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.interval = interval.into();
        self
    }
}

impl Consecutive {
    pub(crate) fn weights(&self) -> Result<Weights, BuildError> {
        let Some(failures) = u16::try_from(self.failures).ok().filter(|&n| n > 0) else {
            let value = self.failures.to_string();
            return Err(BuildError::new("failures", value, "1 to 65535"));
        };
        if self.interval == Some(Duration::ZERO) {
            return Err(BuildError::new("interval", "0ns", "1ns and more, or none"));
        }
        Ok(Weights::consecutive(failures, self.interval))
    }
}

impl From<Consecutive> for Trip {
    fn from(policy: Consecutive) -> Self {
        Trip {
            kind: Kind::Consecutive(policy),
        }
    }
}

/// Trips on evidence that the error rate has changed from a normal one to a bad one: a cumulative
/// sum test (Page, 1954).
///
/// A failure adds ln(bad / normal) to the evidence, a success ln((1 − bad) / (1 − normal)), which is
/// negative; it never falls below 0, and trips at the threshold. With the defaults, 0.2, 0.7 and
/// ln 10⁹, 17 failures in a row trip it, and random errors at the normal rate once in 10⁹ calls or
/// less. It needs no window, no minimum volume and no clock.
///
/// Threads as in [`Consecutive`].
///
/// ```
/// use wheelhouse_resilience::{Breaker, Cusum, State};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().trip_on(Cusum::new()).build()?;
/// for _ in 0..16 {
///     breaker.try_acquire().unwrap().failure();
/// }
/// assert_eq!(breaker.state(), State::Closed);
/// breaker.try_acquire().unwrap().failure();
/// assert_eq!(breaker.state(), State::Open);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Cusum {
    normal: f64,
    bad: f64,
    threshold: f64,
}

impl Cusum {
    /// From 20 % to 70 %, at ln 10⁹.
    #[must_use]
    pub fn new() -> Self {
        Cusum {
            normal: 0.2,
            bad: 0.7,
            threshold: 1e9_f64.ln(),
        }
    }

    /// Another pair of error rates, `normal` less than `bad`, both from 0 to 1 exclusively.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Cusum};
    ///
    /// let breaker = Breaker::builder().trip_on(Cusum::new().rates(0.01, 0.2)).build();
    /// assert!(breaker.is_ok());
    /// ```
    #[must_use]
    pub fn rates(mut self, normal: f64, bad: f64) -> Self {
        (self.normal, self.bad) = (normal, bad);
        self
    }

    /// The evidence at which it trips, from 0 exclusively: ln(n) for a false alarm in n calls or
    /// less often.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Cusum};
    ///
    /// let breaker = Breaker::builder().trip_on(Cusum::new().threshold(1e6_f64.ln())).build();
    /// assert!(breaker.is_ok());
    /// ```
    #[must_use]
    pub fn threshold(mut self, threshold: f64) -> Self {
        self.threshold = threshold;
        self
    }
}

impl Cusum {
    pub(crate) fn weights(&self) -> Result<Weights, BuildError> {
        let Cusum {
            normal,
            bad,
            threshold,
        } = *self;
        if !(0.0 < normal && normal < bad && bad < 1.0) {
            let value = format!("{normal} and {bad}");
            return Err(BuildError::new(
                "rates",
                value,
                "more than 0, growing, less than 1",
            ));
        }
        if !(threshold > 0.0 && threshold.is_finite()) {
            let value = threshold.to_string();
            return Err(BuildError::new("threshold", value, "more than 0"));
        }
        Ok(Weights::cusum(normal, bad, threshold))
    }
}

impl Default for Cusum {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Cusum> for Trip {
    fn from(policy: Cusum) -> Self {
        Trip {
            kind: Kind::Cusum(policy),
        }
    }
}
