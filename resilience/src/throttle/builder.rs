//! [`ThrottleBuilder`] and [`ThrottleMode`].

use std::sync::Arc;
use std::time::Duration;

use crate::text::{self, number};
use crate::{Breaker, BuildError};

use super::{Settings, Throttle};

/// By which rule a throttle rejects.
///
/// All look at a window, 10 s in 40 buckets unless set otherwise. "Accepts" are calls that succeeded;
/// a probability below 0 means 0.
///
/// | mode | probability of a rejection | K | protection |
/// |---|---|---|---|
/// | `Sre` | (requests - protection - K · accepts) / (requests + 1), requests counted when they are made, rejected ones too | 2 | 0 |
/// | `GoZero2022` | (total - protection - K · accepts) / (total + 1), only calls that finished counted | 1.5 | 5 |
/// | `GoZero` | (total - protection - w · accepts) / (total + 1) · (n - working) / n, rejections counted in total | 1.5 | 5 |
/// | `Adaptive` | (n - protection - K · accepts) / (n + 1) of the n admitted calls that finished, at most 0.9; beyond that see below | 2 | 5 |
///
/// # Where they differ
///
/// Counting rejections among the requests makes `Sre` and `GoZero` reject more the more they reject.
/// That drives the load on a dead backend towards zero (of 10 000 calls in 10 s about 10 reach it
/// with `Sre`, about 350 with `GoZero2022`). It also means a cliff: where 40 % of the calls fail
/// whatever the load, `GoZero` (w = 1.5) first rejects a few, takes these for more failures, and ends
/// at a few per cent admitted; `Sre` with K = 2 has its cliff at 50 %. `GoZero2022` and `Adaptive`
/// have none.
///
/// Sources: Alejandro Forero Cuervo, "Handling Overload", in *Site Reliability Engineering* (2016),
/// equation of the adaptive throttling; go-zero's `core/breaker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ThrottleMode {
    /// Client-side throttling as the book has it.
    ///
    /// It starts with no accepts to its credit, and calls under way count as requests that were not
    /// accepted: at a new throttle, or after a pause of a window, the first calls in flight are
    /// rejected in part, and where many fail as well it can take minutes to believe in the backend.
    /// A [`protection`](ThrottleBuilder::protection) of as many requests as are usually in flight
    /// avoids that.
    Sre,
    /// go-zero's breaker as its article of 2022 has it.
    GoZero2022,
    /// go-zero's breaker of today: w = max(1.1, K - (K - 1.1) · failing / n) for n buckets, where
    /// failing is the trailing run of buckets with failures and no success, working the trailing run
    /// of buckets with successes and no failure. When the last call was let through over a second
    /// ago, one is.
    GoZero,
    /// Learns from the calls that it admits only, so it does not mistake its own rejections for
    /// failures: at a constant share e of failures it rejects 1 - K · (1 - e) and nothing below
    /// e = 0.5.
    ///
    /// A backend is given up after a run of failures that would have a chance of 10⁻⁹ at the rate
    /// seen before (10 failures where there were none, 23 at 40 %, at most 200), or when as many
    /// calls are overdue. Then only probes go through: after a tenth of the probe interval, with
    /// pauses that double up to the interval, exactly one caller each. The first success starts a
    /// ramp from 1/32 that doubles every 100 ms, with at least one success for each doubling; at its
    /// beginning any failure ends it.
    #[default]
    Adaptive,
}

/// Builds a throttling [`Breaker`](crate::Breaker); from [`Breaker::throttle`](crate::Breaker::throttle).
///
/// ```
/// use wheelhouse_resilience::{Breaker, ThrottleMode};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::throttle().mode(ThrottleMode::Sre).k(1.5).build()?;
/// assert_eq!(breaker.call(|| Ok::<_, ()>("hello")), Ok("hello"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ThrottleBuilder {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) time: crate::clock::TimeSource,
    mode: ThrottleMode,
    window: Duration,
    buckets: usize,
    k: Option<f64>,
    protection: Option<u64>,
    probe_interval: Duration,
    seed: Option<u64>,
}

impl ThrottleBuilder {
    pub(crate) fn new() -> Self {
        ThrottleBuilder {
            name: None,
            time: crate::clock::TimeSource::system(),
            mode: ThrottleMode::default(),
            window: Duration::from_secs(10),
            buckets: 40,
            k: None,
            protection: None,
            probe_interval: Settings::PROBE_INTERVAL,
            seed: None,
        }
    }

    /// The rule, [`Adaptive`](ThrottleMode::Adaptive) by default.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, ThrottleMode};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().mode(ThrottleMode::GoZero2022).build()?;
    /// for _ in 0..5 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert_eq!(breaker.rejection_probability(), 0.0);
    /// # Ok(()) }
    /// ```
    pub fn mode(mut self, mode: ThrottleMode) -> Self {
        self.mode = mode;
        self
    }

    /// How long the past counts, and in how many buckets: 1 to 4096, each at least a nanosecond. 10 s
    /// in 40 buckets by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().window(Duration::from_secs(60), 60).build()?;
    /// let refused = Breaker::throttle().window(Duration::from_secs(60), 0).build().unwrap_err();
    /// assert_eq!(refused.argument(), "buckets");
    /// # Ok(()) }
    /// ```
    pub fn window(mut self, window: Duration, buckets: usize) -> Self {
        self.window = window;
        self.buckets = buckets;
        self
    }

    /// How many requests are allowed for each that is accepted, from 1.1: the greater, the more is
    /// sent to a backend that fails. Each [mode](ThrottleMode) has its default.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().k(1.5).build()?;
    /// let refused = Breaker::throttle().k(1.0).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "k is 1; allowed are 1.1 to 1000000");
    /// # Ok(()) }
    /// ```
    pub fn k(mut self, k: f64) -> Self {
        self.k = Some(k);
        self
    }

    /// How many requests are let through whatever became of them. Each [mode](ThrottleMode) has its
    /// default.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, ThrottleMode};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let builder = Breaker::throttle().mode(ThrottleMode::Sre).protection(100);
    /// let breaker = builder.build()?;
    /// for _ in 0..100 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// assert!(breaker.rejection_probability() < 0.01);
    /// # Ok(()) }
    /// ```
    pub fn protection(mut self, requests: u64) -> Self {
        self.protection = Some(requests);
        self
    }

    /// In mode [`Adaptive`](ThrottleMode::Adaptive), how often one call goes through however bad
    /// things are: from 1 ms, 1 s by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().probe_interval(Duration::from_secs(10)).build()?;
    /// for _ in 0..30 {
    ///     breaker.try_acquire().unwrap().failure();
    /// }
    /// // The first probe is due after a tenth of it.
    /// let rejected = breaker.try_acquire().unwrap_err();
    /// assert!(rejected.retry_after().unwrap() <= Duration::from_secs(1));
    /// # Ok(()) }
    /// ```
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// What it is called in events and metrics; `breaker` by default.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// assert_eq!(Breaker::throttle().name("search").build()?.name(), "search");
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where it reads time from, the system's monotonic clock by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Breaker, ThrottleMode};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let builder = Breaker::throttle().mode(ThrottleMode::Sre);
    /// let breaker = builder.clock(clock.clone()).build()?;
    /// breaker.try_acquire().unwrap().success();
    /// clock.advance(Duration::from_secs(11));
    /// assert_eq!(breaker.stats().window.requests, 0);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl wheelhouse_wheel::Clock) -> Self {
        self.time = crate::clock::TimeSource::of(clock);
        self
    }

    /// Makes its chances the same in each run.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, ThrottleMode};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let decisions = || -> Result<Vec<bool>, wheelhouse_resilience::BuildError> {
    ///     let builder = Breaker::throttle().mode(ThrottleMode::Sre).clock(ManualClock::new());
    ///     let breaker = builder.seed(7).build()?;
    ///     let ran = || breaker.try_acquire().map(|permit| permit.failure()).is_ok();
    ///     Ok((0..100).map(|_| ran()).collect())
    /// };
    /// assert_eq!(decisions()?, decisions()?);
    /// # Ok(()) }
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets an option by its name, from text: for configuration files and command lines.
    ///
    /// The options are the methods `mode` ("adaptive", "sre", "go-zero" or "go-zero-2022"), `window`
    /// and `buckets`, each of which leaves the other as it is, `k`, `protection` and `probe_interval`.
    /// Durations have a unit ("10s", "200ms"); a bare number is refused.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::throttle().set("mode", "sre")?.set("window", "1m")?.build()?;
    /// let refused = Breaker::throttle().set("window", "60").unwrap_err();
    /// assert_eq!(refused.argument(), "window");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when there is no such option, or the text does not say a value of its kind.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self, BuildError> {
        let time = || text::duration(option, value);
        match option {
            "mode" => self.mode = ThrottleMode::named(value)?,
            "window" => self.window = time()?,
            "buckets" => self.buckets = number(option, value, "a whole number")?,
            "k" => self.k = Some(number(option, value, "a number")?),
            "protection" => self.protection = Some(number(option, value, "a whole number")?),
            "probe_interval" => self.probe_interval = time()?,
            _ => return Err(BuildError::new("option", option, OPTIONS)),
        }
        Ok(self)
    }

    /// The breaker.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when a setting is out of range.
    pub fn build(&self) -> Result<Breaker, BuildError> {
        let throttle = Throttle::new(&self.settings()?, self.time.start());
        Breaker::throttled(self.name.clone(), self.time.clone(), Box::new(throttle))
    }

    pub(crate) fn settings(&self) -> Result<Settings, BuildError> {
        let refused = |argument: &str, value: String, allowed: &str| {
            Err(BuildError::new(argument, value, allowed))
        };
        let (k, protection) = match self.mode {
            ThrottleMode::Sre => (2.0, 0),
            ThrottleMode::GoZero2022 | ThrottleMode::GoZero => (1.5, 5),
            ThrottleMode::Adaptive => (2.0, 5),
        };
        let k = self.k.unwrap_or(k);
        if !(1.1..=1e6).contains(&k) {
            return refused("k", k.to_string(), "1.1 to 1000000");
        }
        if !(1..=4096).contains(&self.buckets) {
            return refused("buckets", self.buckets.to_string(), "1 to 4096");
        }
        if self.window.as_nanos() < self.buckets as u128 {
            return refused(
                "window",
                format!("{:?}", self.window),
                "1ns and more for each bucket",
            );
        }
        if self.probe_interval < Duration::from_millis(1) {
            let value = format!("{:?}", self.probe_interval);
            return refused("probe_interval", value, "1ms and more");
        }
        Ok(Settings {
            mode: self.mode,
            window: self.window,
            buckets: self.buckets,
            k,
            protection: self.protection.unwrap_or(protection),
            probe_interval: self.probe_interval,
            seed: self.seed,
        })
    }
}

impl ThrottleMode {
    fn named(name: &str) -> Result<Self, BuildError> {
        match name {
            "adaptive" => Ok(ThrottleMode::Adaptive),
            "sre" => Ok(ThrottleMode::Sre),
            "go-zero" => Ok(ThrottleMode::GoZero),
            "go-zero-2022" => Ok(ThrottleMode::GoZero2022),
            _ => Err(BuildError::new("mode", name, MODES)),
        }
    }
}

const MODES: &str = "adaptive, sre, go-zero and go-zero-2022";

const OPTIONS: &str = "mode, window, buckets, k, protection and probe_interval";
