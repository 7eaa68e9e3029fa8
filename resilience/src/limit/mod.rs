//! A limit on calls in flight that finds itself: [`AdaptiveLimit`].
//!
//! How many calls a server takes at once before they queue depends on its size, its load and its own
//! dependencies, and changes. An adaptive limit follows the round-trip times and drops that its calls
//! report, and refuses what goes beyond.
//!
//! ```
//! use wheelhouse_resilience::AdaptiveLimit;
//! use wheelhouse_resilience::limit::Vegas;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limit = AdaptiveLimit::builder(Vegas::default()).initial(10).max(100).build()?;
//! let permit = limit.try_acquire()?;
//! // … the call …
//! permit.success();
//! assert_eq!(limit.in_flight(), 0);
//! # Ok(()) }
//! ```
//!
//! | limiter | goes by | suits |
//! |---|---|---|
//! | [`Aimd`] | drops | servers that say when they have too much to do |
//! | [`Vegas`] | the least round-trip time | calls of one kind that take about the same time |
//! | [`Gradient2`] | the mean of the long run | calls that differ |
//!
//! # Guarantees
//!
//! - L1, good samples only: a round-trip time comes from a call that ended well, and from no other. A
//!   call that was refused, ignored or cancelled teaches nothing; one that was dropped lowers the limit
//!   without a time.
//! - L2, within bounds: the limit is never below the least nor above the most that it was built with,
//!   whatever the limiter says.
//! - L3, one at a time: a limiter sees each sample once, in no particular order, never two at the same
//!   time, outside every lock. If it panics it is counted, and the limit stays where it was.
//! - L4, bounded: the call that runs the limiter runs it at most twice, the second time for all that
//!   ended meanwhile, together. What ends during that waits for the next call that ends.

mod aimd;
mod gathered;
mod gradient;
mod limiter;
mod permit;
mod vegas;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse_wheel::{Clock, SystemClock};

use crate::contain::Contained;
use crate::sync::Mutex;
use crate::{BuildError, Bulkhead};

pub use aimd::Aimd;
pub use gradient::Gradient2;
pub use limiter::{Limiter, Sample};
pub use permit::{OwnedPermit, Permit};
pub use vegas::Vegas;

use gathered::Gathered;

/// At most as many calls at a time as they bear. Clones share the limit.
///
/// Acquiring reads the clock and exchanges one word; a sample takes a lock for as long as it is added
/// up. See the [module](self) for how it is used and what it guarantees.
#[derive(Clone)]
pub struct AdaptiveLimit {
    shared: Arc<Shared>,
}

impl AdaptiveLimit {
    /// A limit that `limiter` moves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Gradient2;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let limit = AdaptiveLimit::builder(Gradient2::default())
    ///     .window(Duration::from_millis(100))
    ///     .build()?;
    /// assert_eq!(limit.limit(), 20);
    /// # Ok(()) }
    /// ```
    pub fn builder(limiter: impl Limiter) -> AdaptiveLimitBuilder {
        AdaptiveLimitBuilder {
            limiter: Box::new(limiter),
            name: None,
            initial: 20,
            min: 1,
            max: 1000,
            window: Duration::ZERO,
            clock: Box::new(SystemClock),
        }
    }

    /// A permit for a call, if fewer than the limit are in flight.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Vegas;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = AdaptiveLimit::builder(Vegas::default()).initial(1).build()?;
    /// let permit = limit.try_acquire()?;
    /// assert_eq!(limit.try_acquire().unwrap_err().limit, 1);
    /// permit.success();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`] otherwise.
    pub fn try_acquire(&self) -> Result<Permit<'_>, LimitExceeded> {
        match self.shared.places.try_acquire() {
            Ok(place) => Ok(Permit::new(&self.shared, place)),
            Err(full) => Err(LimitExceeded {
                limit: full.permits,
            }),
        }
    }

    /// [`try_acquire`](Self::try_acquire) for a permit that outlives the borrow.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = AdaptiveLimit::builder(Aimd::default()).build()?;
    /// let permit = limit.try_acquire_owned()?;
    /// let worker = std::thread::spawn(move || permit.success());
    /// worker.join().unwrap();
    /// assert_eq!(limit.stats().good, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`] if as many calls as the limit are in flight.
    pub fn try_acquire_owned(&self) -> Result<OwnedPermit, LimitExceeded> {
        match self.shared.places.try_acquire_owned() {
            Ok(place) => Ok(OwnedPermit::new(self.shared.clone(), place)),
            Err(full) => Err(LimitExceeded {
                limit: full.permits,
            }),
        }
    }

    /// The name it was given, `"limit"` without one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.places.name()
    }

    /// The present limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.places.permits()
    }

    /// How many calls are in flight. More than the limit when that has come down.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.places.in_use()
    }

    /// The present figures and totals. Each is right by itself; together they are no snapshot of one
    /// instant.
    #[must_use]
    pub fn stats(&self) -> LimitStats {
        let totals = &self.shared.totals;
        // Relaxed: nothing else is read through these counters.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LimitStats {
            limit: self.limit(),
            in_flight: self.in_flight(),
            good: read(&totals.good),
            dropped: read(&totals.dropped),
            rejected: self.shared.places.stats().rejected,
            limiter_panics: totals.limiter.panics(),
            observer_panics: totals.observers.panics(),
        }
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit")
            .field("name", &self.name())
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .field("min", &self.shared.min)
            .field("max", &self.shared.max)
            .finish_non_exhaustive()
    }
}

/// As many calls as the limit were in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {limit} calls in flight is reached; try again later")]
#[non_exhaustive]
pub struct LimitExceeded {
    /// The limit at that moment.
    pub limit: usize,
}

/// What an adaptive limit has seen: [`AdaptiveLimit::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LimitStats {
    /// The present limit.
    pub limit: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls whose round-trip time was a sample.
    pub good: u64,
    /// Calls that were dropped: signs of overload.
    pub dropped: u64,
    /// Calls refused because of the limit.
    pub rejected: u64,
    /// How often the limiter panicked.
    pub limiter_panics: u64,
    /// How often the metrics recorder or the tracing subscriber panicked. That ends there.
    pub observer_panics: u64,
}

/// The choices of an [`AdaptiveLimit`].
///
/// ```
/// use wheelhouse_resilience::AdaptiveLimit;
/// use wheelhouse_resilience::limit::Aimd;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let aimd = Aimd::default().backoff(0.8)?;
/// let limit = AdaptiveLimit::builder(aimd).initial(10).min(2).max(50).name("search").build()?;
/// assert_eq!((limit.limit(), limit.name()), (10, "search"));
/// let refused = AdaptiveLimit::builder(Aimd::default()).min(0).build().unwrap_err();
/// assert_eq!(refused.argument(), "min");
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct AdaptiveLimitBuilder {
    limiter: Box<dyn Limiter>,
    name: Option<String>,
    initial: usize,
    min: usize,
    max: usize,
    window: Duration,
    clock: Box<dyn Clock>,
}

impl AdaptiveLimitBuilder {
    /// The limit to begin with, from the least to the most; 20 unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// assert_eq!(AdaptiveLimit::builder(Aimd::default()).initial(50).build()?.limit(), 50);
    /// # Ok(()) }
    /// ```
    pub fn initial(mut self, limit: usize) -> Self {
        self.initial = limit;
        self
    }

    /// The least that the limit goes down to, from 1 up; 1 unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let limit = AdaptiveLimit::builder(Aimd::default()).min(20).build()?;
    /// limit.try_acquire().unwrap().dropped();
    /// assert_eq!(limit.limit(), 20);
    /// # Ok(()) }
    /// ```
    pub fn min(mut self, limit: usize) -> Self {
        self.min = limit;
        self
    }

    /// The most that the limit goes up to, at most 2 147 483 647; 1000 unless set.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let limit = AdaptiveLimit::builder(Aimd::default()).initial(1).max(1).build()?;
    /// limit.try_acquire().unwrap().success();
    /// assert_eq!(limit.limit(), 1);
    /// # Ok(()) }
    /// ```
    pub fn max(mut self, limit: usize) -> Self {
        self.max = limit;
        self
    }

    /// Puts the samples of so long a time together, and of 10 calls at least, before the limiter sees
    /// them as one. Zero, the default, shows it each call by itself, except those that end while it is
    /// at work.
    ///
    /// With many calls a second a window of some round-trip times steadies [`Vegas`] and
    /// [`Gradient2`], and takes the cost off the calls.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let window = Duration::from_secs(3600);
    /// let limit = AdaptiveLimit::builder(Aimd::default()).window(window).build()?;
    /// limit.try_acquire().unwrap().dropped();
    /// assert_eq!(limit.limit(), 20);
    /// # Ok(()) }
    /// ```
    pub fn window(mut self, length: Duration) -> Self {
        self.window = length;
        self
    }

    /// Where the time of calls is read; the system's clock unless set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let aimd = Aimd::default().timeout(Duration::from_secs(1))?;
    /// let limit = AdaptiveLimit::builder(aimd).clock(clock.clone()).build()?;
    /// let permit = limit.try_acquire().unwrap();
    /// clock.advance(Duration::from_secs(2));
    /// permit.success();
    /// assert_eq!(limit.limit(), 18);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// What it is called in `tracing` events and metrics, where its permits are those of a bulkhead of
    /// that name.
    ///
    /// ```
    /// use wheelhouse_resilience::AdaptiveLimit;
    /// use wheelhouse_resilience::limit::Aimd;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let limit = AdaptiveLimit::builder(Aimd::default()).name("search").build()?;
    /// assert_eq!(limit.name(), "search");
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The limit.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range.
    pub fn build(self) -> Result<AdaptiveLimit, BuildError> {
        let most = crate::bulkhead::MAX_PERMITS;
        if !(1..=most).contains(&self.min) {
            let value = self.min.to_string();
            return Err(BuildError::new("min", value, "1 to 2147483647"));
        }
        if !(self.min..=most).contains(&self.max) {
            let value = self.max.to_string();
            return Err(BuildError::new("max", value, "`min` to 2147483647"));
        }
        if !(self.min..=self.max).contains(&self.initial) {
            let value = self.initial.to_string();
            return Err(BuildError::new("initial", value, "`min` to `max`"));
        }
        let name = self.name.unwrap_or_else(|| "limit".into());
        let shared = Shared {
            places: Bulkhead::builder(self.initial).name(name).build()?,
            min: self.min as f64,
            max: self.max as f64,
            clock: self.clock,
            learning: Mutex::new(Learning {
                rule: Some(Rule {
                    limiter: self.limiter,
                    limit: self.initial as f64,
                }),
                gathered: Gathered::new(self.window),
            }),
            totals: Totals::default(),
        };
        Ok(AdaptiveLimit {
            shared: Arc::new(shared),
        })
    }
}

impl fmt::Debug for AdaptiveLimitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimitBuilder")
            .field("name", &self.name)
            .field("initial", &self.initial)
            .field("min", &self.min)
            .field("max", &self.max)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// What clones and permits share.
struct Shared {
    /// Resized by whoever has the rule, and by nobody else.
    places: Bulkhead,
    min: f64,
    max: f64,
    clock: Box<dyn Clock>,
    learning: Mutex<Learning>,
    totals: Totals,
}

struct Learning {
    /// Taken out by whoever runs it, so that it runs outside the lock and one at a time (L3); the
    /// others leave their samples for that one.
    rule: Option<Rule>,
    gathered: Gathered,
}

struct Rule {
    limiter: Box<dyn Limiter>,
    limit: f64,
}

/// How often one call runs the limiter at most.
const RUNS: usize = 2;

/// Relaxed throughout: they are only read as figures.
#[derive(Debug, Default)]
struct Totals {
    good: AtomicU64,
    dropped: AtomicU64,
    limiter: Contained,
    observers: Contained,
}

impl Shared {
    /// Adds a sample, and moves the limit if it is time.
    fn learn(&self, sample: &Sample, now: Instant) {
        let counter = match sample.dropped {
            true => &self.totals.dropped,
            false => &self.totals.good,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut learning = self.learning.lock();
        learning.gathered.add(sample, now);
        // Once more after a run, for what came meanwhile; not for ever, since a call waits (L4).
        for _ in 0..RUNS {
            let Some(running) = Running::begin(self, &mut learning, now) else {
                return;
            };
            drop(learning);
            running.run();
            learning = self.learning.lock();
        }
    }

    /// Shows `sample` to the limiter, and moves the limit as it says.
    fn apply(&self, rule: &mut Rule, sample: &Sample) {
        let Rule { limiter, limit } = rule;
        let before = *limit;
        // The limiter is not looked into: what it makes of its own state after a panic is up to it.
        match self.totals.limiter.run(|| limiter.update(before, sample)) {
            Some(next) if next.is_nan() => {}
            Some(next) => *limit = next.clamp(self.min, self.max),
            None => self.tell(|| {
                #[cfg(feature = "tracing")]
                tracing::error!(limit = self.places.name(), "limiter panicked");
            }),
        }
        if limit.floor() != before.floor() {
            self.places.resize_to(*limit as usize);
            self.tell(|| {
                #[cfg(feature = "tracing")]
                tracing::debug!(
                    limit = self.places.name(),
                    before,
                    now = *limit,
                    "limit moved"
                );
            });
        }
    }

    /// Runs what tells others.
    fn tell(&self, what: impl FnOnce()) {
        self.totals.observers.run(what);
    }
}

/// The rule, taken out to be run. It is put back whatever happens meanwhile.
struct Running<'a> {
    shared: &'a Shared,
    rule: Option<Rule>,
    sample: Sample,
}

impl<'a> Running<'a> {
    /// If nobody else runs it, and there is something to show it.
    fn begin(shared: &'a Shared, learning: &mut Learning, now: Instant) -> Option<Self> {
        learning.rule.as_ref()?;
        let sample = learning.gathered.take_ripe(now)?;
        Some(Running {
            shared,
            rule: learning.rule.take(),
            sample,
        })
    }

    fn run(mut self) {
        if let Some(rule) = &mut self.rule {
            self.shared.apply(rule, &self.sample);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.shared.learning.lock().rule = self.rule.take();
    }
}

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use loom::thread;

    use super::{AdaptiveLimit, Limiter, Sample};

    /// Counts its runs, and those that are told of a drop.
    #[derive(Clone, Default)]
    struct Counts(Arc<(AtomicU32, AtomicU32)>);

    impl Limiter for Counts {
        fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
            thread::yield_now();
            self.0.0.fetch_add(1, Relaxed);
            self.0.1.fetch_add(u32::from(sample.dropped), Relaxed);
            limit - 1.0
        }
    }

    /// L3: a sample that comes while the limiter runs is shown to it afterwards, by somebody, and the
    /// limit follows each run. Fails when `learn` does not look again after a run.
    #[test]
    fn no_sample_is_left_behind() {
        loom::model(|| {
            let counts = Counts::default();
            let limit = AdaptiveLimit::builder(counts.clone()).initial(10).build();
            let limit = limit.expect("the arguments are in range");
            let others = limit.clone();
            let drops = |limit: &AdaptiveLimit| limit.try_acquire().map(|permit| permit.dropped());
            let other = thread::spawn(move || drops(&others).is_ok());
            assert!(drops(&limit).is_ok());
            assert!(other.join().expect("no panic"));
            let (runs, dropped) = (counts.0.0.load(Relaxed), counts.0.1.load(Relaxed));
            assert!(
                runs == dropped && (1..=2).contains(&runs),
                "{runs} {dropped}"
            );
            assert_eq!(limit.limit(), 10 - runs as usize);
            assert_eq!(
                limit
                    .shared
                    .learning
                    .lock()
                    .gathered
                    .take_ripe(limit.shared.clock.now()),
                None
            );
        });
    }
}
