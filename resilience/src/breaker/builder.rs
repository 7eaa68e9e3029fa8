//! [`BreakerBuilder`]: what a breaker is made of.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use wheelhouse_collection::Probability;
use wheelhouse_wheel::Clock;

use super::core::{Admission, Core};
use super::event::{Hook, Transition};
use super::settings::Settings;
use super::trip::Trip;
use super::{Breaker, Closing, Consecutive, Cusum, ErrorRate, HalfOpenEnd, Timers, Verdict};
use crate::BuildError;
use crate::clock::{NEVER, TimeSource, nanos};
use crate::text::{self, number};

/// Settings for breakers, from [`Breaker::builder`] and the presets.
///
/// Times may be of any length. A builder can build several breakers that differ in name; they share
/// what is set here, and nothing of what they count.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::{Breaker, Consecutive};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder()
///     .name("payments")
///     .trip_on(Consecutive::failures(5))
///     .cool_down(Duration::from_secs(2))
///     .growth(2.0)
///     .max_cool_down(Duration::from_secs(30))
///     .build()?;
/// assert_eq!(breaker.name(), "payments");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct BreakerBuilder {
    name: Option<Arc<str>>,
    clock: Option<TimeSource>,
    settings: Arc<Settings>,
    trips: Vec<Trip>,
    /// Whether the policies are still those of the preset.
    preset: bool,
    seed: Option<u64>,
    hooks: Vec<Hook>,
    timers: Option<Timers>,
}

impl BreakerBuilder {
    fn with(preset: &LazyLock<Arc<Settings>>, trips: Vec<Trip>) -> Self {
        BreakerBuilder {
            name: None,
            clock: None,
            settings: Arc::clone(preset),
            trips,
            preset: true,
            seed: None,
            hooks: Vec::new(),
            timers: None,
        }
    }

    /// The default breaker.
    pub(super) fn new() -> Self {
        let trips = vec![Cusum::new().into(), ErrorRate::above(0.5).into()];
        Self::with(&DEFAULT, trips)
    }

    pub(super) fn error_rate() -> Self {
        Self::with(&ERROR_RATE, vec![ErrorRate::above(0.5).into()])
    }

    pub(super) fn consecutive() -> Self {
        Self::with(&CONSECUTIVE, vec![Consecutive::failures(6).into()])
    }

    fn set_up(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// What the breaker is called in events, traces and metrics: "breaker" unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().name("payments").build()?;
    /// assert_eq!(breaker.name(), "payments");
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where time is read from: the system's clock unless set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, State};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let breaker = Breaker::consecutive().clock(clock.clone()).build()?;
    /// for _ in 0..6 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(breaker.state(), State::HalfOpen);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(TimeSource::of(clock));
        self
    }

    /// Seeds what is decided by chance: the jitter of cool-downs and the ramp.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let wait = || -> Result<_, wheelhouse_resilience::BuildError> {
    ///     let breaker = Breaker::builder().clock(ManualClock::new()).seed(7).build()?;
    ///     (0..17).for_each(|_| breaker.try_acquire().unwrap().failure());
    ///     Ok(breaker.try_acquire().unwrap_err().retry_after())
    /// };
    /// assert_eq!(wait()?, wait()?);
    /// # Ok(()) }
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds a policy: the breaker opens when any of them says so. The first call replaces the policies
    /// of the preset.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Consecutive, ErrorRate, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder()
    ///     .trip_on(Consecutive::failures(5))
    ///     .trip_on(ErrorRate::above(0.1).last(100).minimum(50))
    ///     .build()?;
    /// for _ in 0..5 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.state(), State::Open);
    /// # Ok(()) }
    /// ```
    pub fn trip_on(mut self, trip: impl Into<Trip>) -> Self {
        if std::mem::take(&mut self.preset) {
            self.trips.clear();
        }
        self.trips.push(trip.into());
        self
    }

    /// How long the breaker stays open before it lets a probe through. 0 is allowed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive().cool_down(Duration::ZERO).build()?;
    /// for _ in 0..6 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert!(breaker.try_acquire().unwrap().is_probe());
    /// # Ok(()) }
    /// ```
    pub fn cool_down(self, cool_down: Duration) -> Self {
        self.set_up(|settings| settings.cool_down = nanos(cool_down))
    }

    /// By how much each cool-down is longer than the one before, when there was no stable time
    /// between: 1, which is none, and more.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive().growth(2.0).build()?;
    /// let refused = Breaker::consecutive().growth(0.5).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "growth is 0.5; allowed are 1 and more");
    /// # Ok(()) }
    /// ```
    pub fn growth(self, factor: f64) -> Self {
        self.set_up(|settings| settings.growth = factor)
    }

    /// How long a cool-down can grow, before jitter; not less than the cool-down. Unless set, 60 s, or
    /// the cool-down if that is longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let minutes = Duration::from_secs(300);
    /// let breaker = Breaker::builder().growth(2.0).max_cool_down(minutes).build()?;
    /// let less = Breaker::consecutive().max_cool_down(Duration::from_secs(1)).build();
    /// assert_eq!(less.unwrap_err().argument(), "max_cool_down");
    /// # Ok(()) }
    /// ```
    pub fn max_cool_down(self, cap: Duration) -> Self {
        self.set_up(|settings| settings.max_cool_down = Some(nanos(cap)))
    }

    /// By which share a cool-down is longer at random, from 0 to 1: so that breakers that opened
    /// together do not probe together.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive().jitter(0.2).build()?;
    /// for _ in 0..6 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// let wait = breaker.try_acquire().unwrap_err().retry_after().unwrap();
    /// assert!(wait <= Duration::from_secs(72));
    /// # Ok(()) }
    /// ```
    pub fn jitter(self, share: f64) -> Self {
        self.set_up(|settings| settings.jitter = share)
    }

    /// How long the breaker has to stay closed for the growth of the cool-down to begin anew: 60 s
    /// unless set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let hour = Duration::from_secs(3600);
    /// let breaker = Breaker::builder().growth(2.0).stable_after(hour).build()?;
    /// # Ok(()) }
    /// ```
    pub fn stable_after(self, time: Duration) -> Self {
        self.set_up(|settings| settings.stable_after = nanos(time))
    }

    /// How many probes may be in flight while half-open, from 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Closing, Reason};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .cool_down(Duration::ZERO)
    ///     .max_probes(2)
    ///     .closing(Closing::successes(2))
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// let probes = (breaker.try_acquire().unwrap(), breaker.try_acquire().unwrap());
    /// assert_eq!(breaker.try_acquire().unwrap_err().reason(), Reason::HalfOpenFull);
    /// # drop(probes);
    /// # Ok(()) }
    /// ```
    pub fn max_probes(self, probes: u32) -> Self {
        self.set_up(|settings| settings.max_probes = probes)
    }

    /// How long after the start of a probe the next one may start. Ignored and cancelled probes do
    /// not count.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Closing, Reason};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .cool_down(Duration::ZERO)
    ///     .probe_interval(Duration::from_secs(60))
    ///     .closing(Closing::successes(2))
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// breaker.try_acquire().unwrap().success();
    /// assert_eq!(breaker.try_acquire().unwrap_err().reason(), Reason::ProbeInterval);
    /// # Ok(()) }
    /// ```
    pub fn probe_interval(self, interval: Duration) -> Self {
        self.set_up(|settings| settings.probe_interval = nanos(interval))
    }

    /// How long a probe may take before its place is free again; its result is stale then. `None`
    /// lets a probe that never ends block its place for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Settled, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .cool_down(Duration::ZERO)
    ///     .lease(Duration::ZERO)
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// let too_late = breaker.try_acquire().unwrap();
    /// assert_eq!(too_late.settle(Verdict::Success), Settled::Stale);
    /// # Ok(()) }
    /// ```
    pub fn lease(self, time: impl Into<Option<Duration>>) -> Self {
        let time = time.into();
        self.set_up(|settings| settings.lease = time.map_or(NEVER, nanos))
    }

    /// What a probe counts as when its lease expires: a failure unless set. Ignored, its turn is free
    /// again too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .lease(Duration::from_secs(5))
    ///     .expired_as(Verdict::Ignored)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn expired_as(self, verdict: Verdict) -> Self {
        self.set_up(|settings| settings.expired = verdict)
    }

    /// How long the breaker may be half-open without a decision, and what it does then. `None`, as
    /// unless set, is for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, HalfOpenEnd, State};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let breaker = Breaker::consecutive()
    ///     .clock(clock.clone())
    ///     .max_half_open(Duration::from_secs(10), HalfOpenEnd::Closed)
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// clock.advance(Duration::from_secs(60));
    /// drop(breaker.try_acquire());
    /// clock.advance(Duration::from_secs(10));
    /// drop(breaker.try_acquire());
    /// assert_eq!(breaker.state(), State::Closed);
    /// # Ok(()) }
    /// ```
    pub fn max_half_open(self, time: impl Into<Option<Duration>>, end: HalfOpenEnd) -> Self {
        let time = time.into();
        self.set_up(|settings| {
            settings.max_half_open = time.map_or(NEVER, nanos);
            settings.half_open_end = end;
        })
    }

    /// When a half-open breaker closes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, Closing, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .cool_down(Duration::ZERO)
    ///     .closing(Closing::successes(2))
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// breaker.try_acquire().unwrap().success();
    /// assert_eq!(breaker.state(), State::HalfOpen);
    /// breaker.try_acquire().unwrap().success();
    /// assert_eq!(breaker.state(), State::Closed);
    /// # Ok(()) }
    /// ```
    pub fn closing(self, rule: Closing) -> Self {
        self.set_up(|settings| settings.closing = rule)
    }

    /// For how long after closing only a part of the calls is let through: from a quarter, growing
    /// steadily to all. A failure meanwhile opens the breaker again. 0 is no ramp.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::consecutive()
    ///     .cool_down(Duration::ZERO)
    ///     .ramp(Duration::from_secs(60))
    ///     .build()?;
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// breaker.try_acquire().unwrap().success();
    /// assert!(breaker.rejection_probability() > 0.5);
    /// # Ok(()) }
    /// ```
    pub fn ramp(self, time: Duration) -> Self {
        self.set_up(|settings| settings.ramp = nanos(time))
    }

    /// Calls that take this long, or longer, are slow. `None`, as unless set, times nothing; timing
    /// costs two looks at the clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let breaker = Breaker::builder()
    ///     .clock(clock.clone())
    ///     .slow_after(Duration::from_millis(200))
    ///     .build()?;
    /// let permit = breaker.try_acquire().unwrap();
    /// clock.advance(Duration::from_millis(200));
    /// permit.success();
    /// assert_eq!((breaker.stats().successes, breaker.stats().slow), (1, 1));
    /// # Ok(()) }
    /// ```
    pub fn slow_after(self, time: impl Into<Option<Duration>>) -> Self {
        let time = time.into();
        self.set_up(|settings| settings.slow_after = time.map_or(NEVER, nanos))
    }

    /// How many calls may be in flight at once, in every state but forced ones. `None`, as unless
    /// set, counts nothing; counting costs a cache line that all threads share.
    ///
    /// Without it a backend that hangs gets all calls that begin before the first has timed out.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Reason};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().max_in_flight(1).build()?;
    /// let held = breaker.try_acquire().unwrap();
    /// assert_eq!(breaker.try_acquire().unwrap_err().reason(), Reason::InFlightCap);
    /// held.success();
    /// assert!(breaker.try_acquire().is_ok());
    /// # Ok(()) }
    /// ```
    pub fn max_in_flight(self, calls: impl Into<Option<u32>>) -> Self {
        let calls = calls.into();
        self.set_up(|settings| settings.max_in_flight = calls)
    }

    /// What a call counts as whose permit was dropped without a verdict: ignored unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().cancelled_as(Verdict::Failure).build()?;
    /// drop(breaker.try_acquire());
    /// assert_eq!((breaker.stats().cancelled, breaker.stats().failures), (1, 1));
    /// # Ok(()) }
    /// ```
    pub fn cancelled_as(self, verdict: Verdict) -> Self {
        self.set_up(|settings| settings.cancelled = verdict)
    }

    /// Calls `hook` at every transition, in order, outside every lock: it may use the breaker. It
    /// runs on the thread of the call that made the transition, or of another one that came then. A
    /// panic in it is counted and goes no further. While it takes its time, 1 024 transitions wait for
    /// it; further ones are lost, which shows in
    /// [`BreakerStats::lost_transitions`](crate::BreakerStats::lost_transitions).
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder()
    ///     .on_transition(|event| println!("{}: {:?}, {:?}", event.name, event.to, event.cause))
    ///     .build()?;
    /// breaker.force_open();
    /// # Ok(()) }
    /// ```
    pub fn on_transition(mut self, hook: impl Fn(&Transition) + Send + Sync + 'static) -> Self {
        self.hooks.push(Hook(Arc::new(hook)));
        self
    }

    /// Lets transitions that are due by time happen, with their events, on time when no call comes.
    /// Takes the timers' clock, unless another is set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, State, Timers};
    /// use wheelhouse_wheel::SystemClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let timers = Timers::new(SystemClock)?;
    /// let breaker = Breaker::consecutive().timers(&timers).cool_down(Duration::from_millis(1)).build()?;
    /// let events = breaker.subscribe();
    /// (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    /// let told = [(); 2].map(|()| events.next_within(Duration::from_secs(60)).unwrap().to);
    /// assert_eq!(told, [State::Open, State::HalfOpen]);
    /// # Ok(()) }
    /// ```
    pub fn timers(mut self, timers: &Timers) -> Self {
        self.timers = Some(timers.clone());
        self
    }

    /// Sets an option by its name, from text: for configuration files and command lines.
    ///
    /// Durations have a unit ("10s", "200ms"); a bare number is refused. The options are the methods
    /// `cool_down`, `growth`, `max_cool_down`, `jitter`, `stable_after`, `max_probes`,
    /// `probe_interval`, `lease`, `ramp`, `slow_after`, `max_in_flight`, and `closing_successes`.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().set("cool_down", "10s")?.build()?;
    /// let refused = Breaker::builder().set("cool_down", "10").unwrap_err();
    /// assert_eq!(refused.argument(), "cool_down");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when there is no such option, or the text does not say a value of its kind.
    pub fn set(self, option: &str, value: &str) -> Result<Self, BuildError> {
        let time = || text::duration(option, value);
        Ok(match option {
            "cool_down" => self.cool_down(time()?),
            "growth" => self.growth(number(option, value, "a number")?),
            "max_cool_down" => self.max_cool_down(time()?),
            "jitter" => self.jitter(number(option, value, "a number")?),
            "stable_after" => self.stable_after(time()?),
            "max_probes" => self.max_probes(number(option, value, "a whole number")?),
            "probe_interval" => self.probe_interval(time()?),
            "lease" => self.lease(time()?),
            "ramp" => self.ramp(time()?),
            "slow_after" => self.slow_after(time()?),
            "max_in_flight" => {
                let calls: u32 = number(option, value, "a whole number")?;
                self.max_in_flight(calls)
            }
            "closing_successes" => {
                self.closing(Closing::successes(number(option, value, "a whole number")?))
            }
            _ => return Err(BuildError::new("option", option, OPTIONS)),
        })
    }

    /// The breaker.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when a setting is out of range.
    pub fn build(&self) -> Result<Breaker, BuildError> {
        self.settings.check()?;
        let clock = match (&self.clock, &self.timers) {
            (Some(clock), _) => clock.clone(),
            (None, Some(timers)) => timers.time_source(),
            (None, None) => TimeSource::system(),
        };
        let core = Core::new(
            self.name.clone(),
            clock,
            self.settings.clone(),
            &self.trips,
            Admission::Circuit,
            self.seed.map(Probability::seeded),
            self.hooks.clone(),
            self.timers.clone(),
        )?;
        Ok(Breaker::of(core))
    }
}

/// Breakers that change nothing of a preset share its settings.
static DEFAULT: LazyLock<Arc<Settings>> = LazyLock::new(|| Arc::new(Settings::new()));

static ERROR_RATE: LazyLock<Arc<Settings>> = LazyLock::new(|| {
    Arc::new(Settings {
        cool_down: nanos(Duration::from_secs(5)),
        jitter: 0.0,
        probe_interval: nanos(Duration::from_millis(200)),
        closing: Closing::successes(2),
        ramp: 0,
        ..Settings::new()
    })
});

static CONSECUTIVE: LazyLock<Arc<Settings>> = LazyLock::new(|| {
    Arc::new(Settings {
        cool_down: nanos(Duration::from_secs(60)),
        jitter: 0.0,
        probe_interval: 0,
        lease: nanos(Duration::from_secs(60)),
        ramp: 0,
        ..Settings::new()
    })
});

const OPTIONS: &str = "cool_down, growth, max_cool_down, jitter, stable_after, max_probes, \
    probe_interval, lease, ramp, slow_after, max_in_flight and closing_successes";

impl fmt::Debug for BreakerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .field("trips", &self.trips)
            .finish_non_exhaustive()
    }
}
