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
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where time is read from: the system's clock unless set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(TimeSource::of(clock));
        self
    }

    /// Seeds what is decided by chance: the jitter of cool-downs and the ramp.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds a policy: the breaker opens when any of them says so. The first call replaces the policies
    /// of the preset.
    pub fn trip_on(mut self, trip: impl Into<Trip>) -> Self {
        if std::mem::take(&mut self.preset) {
            self.trips.clear();
        }
        self.trips.push(trip.into());
        self
    }

    /// How long the breaker stays open before it lets a probe through. 0 is allowed.
    pub fn cool_down(self, cool_down: Duration) -> Self {
        self.set_up(|settings| settings.cool_down = nanos(cool_down))
    }

    /// By how much each cool-down is longer than the one before, when there was no stable time
    /// between: 1, which is none, and more.
    pub fn growth(self, factor: f64) -> Self {
        self.set_up(|settings| settings.growth = factor)
    }

    /// How long a cool-down can grow, before jitter; not less than the cool-down. Unless set, 60 s, or
    /// the cool-down if that is longer.
    pub fn max_cool_down(self, cap: Duration) -> Self {
        self.set_up(|settings| settings.max_cool_down = Some(nanos(cap)))
    }

    /// By which share a cool-down is longer at random, from 0 to 1: so that breakers that opened
    /// together do not probe together.
    pub fn jitter(self, share: f64) -> Self {
        self.set_up(|settings| settings.jitter = share)
    }

    /// How long the breaker has to stay closed for the growth of the cool-down to begin anew: 60 s
    /// unless set.
    pub fn stable_after(self, time: Duration) -> Self {
        self.set_up(|settings| settings.stable_after = nanos(time))
    }

    /// How many probes may be in flight while half-open, from 1.
    pub fn max_probes(self, probes: u32) -> Self {
        self.set_up(|settings| settings.max_probes = probes)
    }

    /// How long after the start of a probe the next one may start. Ignored and cancelled probes do
    /// not count.
    pub fn probe_interval(self, interval: Duration) -> Self {
        self.set_up(|settings| settings.probe_interval = nanos(interval))
    }

    /// How long a probe may take before its place is free again; its result is stale then. `None`
    /// lets a probe that never ends block its place for ever.
    pub fn lease(self, time: impl Into<Option<Duration>>) -> Self {
        let time = time.into();
        self.set_up(|settings| settings.lease = time.map_or(NEVER, nanos))
    }

    /// What a probe counts as when its lease expires: a failure unless set. Ignored, its turn is free
    /// again too.
    pub fn expired_as(self, verdict: Verdict) -> Self {
        self.set_up(|settings| settings.expired = verdict)
    }

    /// How long the breaker may be half-open without a decision, and what it does then. `None`, as
    /// unless set, is for ever.
    pub fn max_half_open(self, time: impl Into<Option<Duration>>, end: HalfOpenEnd) -> Self {
        let time = time.into();
        self.set_up(|settings| {
            settings.max_half_open = time.map_or(NEVER, nanos);
            settings.half_open_end = end;
        })
    }

    /// When a half-open breaker closes.
    pub fn closing(self, rule: Closing) -> Self {
        self.set_up(|settings| settings.closing = rule)
    }

    /// For how long after closing only a part of the calls is let through: from a quarter, growing
    /// steadily to all. A failure meanwhile opens the breaker again. 0 is no ramp.
    pub fn ramp(self, time: Duration) -> Self {
        self.set_up(|settings| settings.ramp = nanos(time))
    }

    /// Calls that take this long, or longer, are slow. `None`, as unless set, times nothing; timing
    /// costs two looks at the clock.
    pub fn slow_after(self, time: impl Into<Option<Duration>>) -> Self {
        let time = time.into();
        self.set_up(|settings| settings.slow_after = time.map_or(NEVER, nanos))
    }

    /// How many calls may be in flight at once, in every state but forced ones. `None`, as unless
    /// set, counts nothing; counting costs a cache line that all threads share.
    ///
    /// Without it a backend that hangs gets all calls that begin before the first has timed out.
    pub fn max_in_flight(self, calls: impl Into<Option<u32>>) -> Self {
        let calls = calls.into();
        self.set_up(|settings| settings.max_in_flight = calls)
    }

    /// What a call counts as whose permit was dropped without a verdict: ignored unless set.
    pub fn cancelled_as(self, verdict: Verdict) -> Self {
        self.set_up(|settings| settings.cancelled = verdict)
    }

    /// Calls `hook` at every transition, in order, outside every lock: it may use the breaker. It
    /// runs on the thread of the call that made the transition, or of another one that came then. A
    /// panic in it is counted and goes no further. While it takes its time, 1 024 transitions wait for
    /// it; further ones are lost, which shows in
    /// [`BreakerStats::lost_transitions`](crate::BreakerStats::lost_transitions).
    pub fn on_transition(mut self, hook: impl Fn(&Transition) + Send + Sync + 'static) -> Self {
        self.hooks.push(Hook(Arc::new(hook)));
        self
    }

    /// Lets transitions that are due by time happen, with their events, on time when no call comes.
    /// Takes the timers' clock, unless another is set.
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
