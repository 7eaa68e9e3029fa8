//! [`Breaker`]: the three-state circuit breaker, and the throttles behind the same face.

mod arming;
mod builder;
mod call;
mod closing;
pub(crate) mod core;
mod event;
mod gate;
mod lane;
#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;
mod meters;
mod permit;
pub(crate) mod settings;
mod stats;
pub(crate) mod tally;
mod timers;
mod trip;
mod verdict;
mod word;

pub use builder::BreakerBuilder;
pub use call::Fallback;
pub use closing::{Closing, Decision, Probes};
pub use event::{Cause, Events, Transition};
pub use permit::{OwnedPermit, Permit};
pub use stats::BreakerStats;
pub use timers::Timers;
pub use trip::{Consecutive, Cusum, ErrorRate, SlowRate, Trip, TripPolicy};
pub use verdict::{CallError, Reason, Rejected, Settled, Verdict};

use std::sync::{Arc, LazyLock};

use self::core::{Admission, Core};
use self::settings::Settings;
use self::word::Mode;
use crate::BuildError;
use crate::clock::TimeSource;
use crate::throttle::{Throttle, ThrottleBuilder};

/// Lets calls through while what they call works, and rejects them when it does not.
///
/// A cheap handle: clones share their state.
///
/// ```
/// use wheelhouse_resilience::{Breaker, CallError, State};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().name("payments").build()?;
/// for _ in 0..17 {
///     let _ = breaker.call(|| Err::<(), _>("connection refused"));
/// }
/// assert_eq!(breaker.state(), State::Open);
/// match breaker.call(|| Ok::<_, String>("never runs")) {
///     Err(CallError::Rejected(rejected)) => assert!(rejected.retry_after().is_some()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Breaker {
    core: Arc<Core>,
}

/// What a breaker does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It lets them through, or, for a while after closing, a growing part of them. A throttle is
    /// closed unless it is forced to something else.
    Closed,
    /// It rejects them, until the cool-down is over.
    Open,
    /// It lets probes through.
    HalfOpen,
    /// It rejects them until it is told otherwise.
    ForcedOpen,
    /// It lets them through until it is told otherwise, and counts them.
    ForcedClosed,
    /// It lets them through until it is told otherwise, and counts nothing: neither how they end nor
    /// that they were cancelled. Verdicts of calls from before are [stale](Settled::Stale), as ever.
    Disabled,
    /// It lets them through until it is told otherwise, and counts them in its windows too, but does
    /// not open.
    MetricsOnly,
}

/// What becomes of a breaker that has been half-open for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HalfOpenEnd {
    /// It opens again, for another cool-down.
    Open,
    /// It closes.
    Closed,
}

impl Breaker {
    /// Settings of the default breaker: opens on [`Cusum`], or an error rate above 0.5 in the last
    /// 10 s of 200 calls or more; probes one call a second after the first; closes at the first that
    /// goes well, over a ramp of 500 ms.
    ///
    /// The cool-down is 1 s and up to 10 % more.
    pub fn builder() -> BreakerBuilder {
        BreakerBuilder::new()
    }

    /// Settings of the three-state breaker that go-zero's article describes: opens at an error rate
    /// above 0.5 in the last 10 s (40 buckets) of 200 calls or more, for 5 s; probes every 200 ms; two
    /// successes close it, at once for all calls.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::error_rate().build()?;
    /// for _ in 0..200 {
    ///     assert_eq!(breaker.state(), State::Closed);
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.state(), State::Open);
    /// # Ok(()) }
    /// ```
    pub fn error_rate() -> BreakerBuilder {
        BreakerBuilder::error_rate()
    }

    /// Settings of gobreaker: opens at more than 5 failures in a row, for 60 s; one probe at a time,
    /// whose success closes it.
    ///
    /// | gobreaker | here |
    /// |---|---|
    /// | `MaxRequests` n | [`max_probes(n)`](BreakerBuilder::max_probes) and [`Closing::successes(n)`](Closing::successes) |
    /// | `Interval`, `BucketPeriod` | [`Consecutive::interval`], or [`ErrorRate::within`] |
    /// | `Timeout` | [`cool_down`](BreakerBuilder::cool_down) |
    /// | `ReadyToTrip` | [`trip_on`](BreakerBuilder::trip_on) |
    /// | `IsSuccessful`, `IsExcluded` | [`call_if`](Breaker::call_if) with a [`Verdict`] |
    /// | `OnStateChange` | [`on_transition`](BreakerBuilder::on_transition) |
    /// | `TwoStepCircuitBreaker` | [`try_acquire`](Breaker::try_acquire) |
    ///
    /// Unlike there, a probe that never ends frees its place, after 60 s unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive().build()?;
    /// for _ in 0..6 {
    ///     assert_eq!(breaker.state(), State::Closed);
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.state(), State::Open);
    /// # Ok(()) }
    /// ```
    pub fn consecutive() -> BreakerBuilder {
        BreakerBuilder::consecutive()
    }

    /// Settings of a throttle, which rejects a part of the calls by chance and has no states of its
    /// own.
    pub fn throttle() -> ThrottleBuilder {
        ThrottleBuilder::new()
    }

    pub(crate) fn of(core: Arc<Core>) -> Self {
        Breaker { core }
    }

    pub(crate) fn throttled(
        name: Option<Arc<str>>,
        clock: TimeSource,
        throttle: Box<Throttle>,
    ) -> Result<Self, BuildError> {
        // None of them goes by any, so they share one.
        static SETTINGS: LazyLock<Arc<Settings>> = LazyLock::new(|| Arc::new(Settings::new()));
        let core = Core::new(
            name,
            clock,
            SETTINGS.clone(),
            &[],
            Admission::Throttle(throttle),
            None,
            Vec::new(),
            None,
        )?;
        Ok(Breaker { core })
    }

    /// One that is [disabled](Self::disable) whatever anybody says.
    pub(crate) fn exempt(name: Arc<str>) -> Result<Self, BuildError> {
        let core = Core::new(
            Some(name),
            TimeSource::system(),
            Arc::new(Settings {
                exempt: true,
                ..Settings::new()
            }),
            &[],
            Admission::Circuit,
            None,
            Vec::new(),
            None,
        )?;
        core.force(Mode::Disabled);
        Ok(Breaker { core })
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// The same, to outlive it.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.core.shared_name()
    }

    /// Whether anybody else has a handle on it, a permit included.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.core) > 1
    }

    /// Whether it is closed, and not told to be something else. Unlike [`state`](Self::state) it does
    /// not ask the clock.
    pub(crate) fn is_closed(&self) -> bool {
        self.core.load().mode().state() == State::Closed
    }

    fn force(&self, mode: Mode) {
        if !self.core.settings.exempt {
            self.core.force(mode);
        }
    }

    /// Why it rejects every call at present, if it does. Counts nothing.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn rejects_all(&self) -> Option<Rejected> {
        self.core.rejects_all()
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Asks whether a call may be made: the first of two steps, of which the permit's verdict is the
    /// second.
    ///
    /// # Errors
    ///
    /// [`Rejected`] if not.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, Rejected> {
        let ticket = self.core.admit()?;
        Ok(Permit::new(&self.core, ticket))
    }

    /// The same, with a permit that can go anywhere.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let permit = breaker.try_acquire_owned().unwrap();
    /// std::thread::spawn(move || permit.success()).join().unwrap();
    /// assert_eq!(breaker.stats().successes, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Rejected`] if not.
    #[inline]
    pub fn try_acquire_owned(&self) -> Result<OwnedPermit, Rejected> {
        let ticket = self.core.admit()?;
        Ok(OwnedPermit::new(self.clone(), ticket))
    }

    /// What it does with calls at present. Open past its cool-down is half-open, whether or not a call
    /// has come since.
    #[must_use]
    pub fn state(&self) -> State {
        self.core.state()
    }

    /// The probability with which the next call is rejected, probes left out: of a throttle what its
    /// rule says at present, also in [`metrics_only`](Self::metrics_only), otherwise that of its state.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().build()?;
    /// assert_eq!(breaker.rejection_probability(), 0.0);
    /// for _ in 0..30 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.rejection_probability(), 1.0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rejection_probability(&self) -> f64 {
        self.core.rejection_probability()
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> BreakerStats {
        self.core.stats()
    }

    /// Brings its counters in the `metrics` facade up to date: the calls by how they ended, and the
    /// rejections. Calls do not write there themselves; this is for whoever scrapes.
    ///
    /// ```
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// # #[cfg(feature = "metrics")] {
    /// let breaker = wheelhouse_resilience::Breaker::builder().build()?;
    /// breaker.publish_metrics();
    /// # }
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        meters::calls(self.name(), &self.stats());
    }

    /// Its transitions from now on.
    pub fn subscribe(&self) -> Events {
        self.core.subscribe()
    }

    /// Rejects every call from now on, until another of these says otherwise.
    pub fn force_open(&self) {
        self.force(Mode::ForcedOpen);
    }

    /// Lets every call through from now on, and counts them in the figures.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// breaker.force_closed();
    /// for _ in 0..1000 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.state(), State::ForcedClosed);
    /// # Ok(()) }
    /// ```
    pub fn force_closed(&self) {
        self.force(Mode::ForcedClosed);
    }

    /// Lets every call through from now on, and counts nothing.
    pub fn disable(&self) {
        self.force(Mode::Disabled);
    }

    /// Lets every call through from now on, and counts them in the windows, without opening.
    pub fn metrics_only(&self) {
        self.force(Mode::MetricsOnly);
    }

    /// Closes the breaker, from whatever state, with empty windows.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// breaker.force_open();
    /// breaker.reset();
    /// assert_eq!(breaker.state(), State::Closed);
    /// # Ok(()) }
    /// ```
    pub fn reset(&self) {
        self.force(Mode::Closed);
    }
}
