//! Where breakers read time from: a [`Clock`], as nanoseconds since a start; and [`CoarseClock`].

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use wheelhouse_wheel::{Clock, SystemClock};

/// No deadline: later than every time.
pub(crate) const NEVER: u64 = u64::MAX;

/// A clock that is as late as its last [`refresh`](Self::refresh), and costs a load to read.
///
/// Somebody who runs anyway refreshes it: a loop of the user's, a timer, or
/// [`Timers::coarse_clock`](crate::Timers::coarse_clock). Breakers on it decide as if time stood still
/// in between. Clones share the same time. It never steps back.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::{Breaker, CoarseClock};
/// use wheelhouse_wheel::{Clock, ManualClock};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let time = ManualClock::new();
/// let coarse = CoarseClock::over(time.clone());
/// let breaker = Breaker::error_rate().clock(coarse.clone()).build()?;
///
/// time.advance(Duration::from_secs(1));
/// assert!(coarse.now() < time.now());
/// coarse.refresh();
/// assert_eq!(coarse.now(), time.now());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CoarseClock {
    shared: Arc<Coarse>,
}

struct Coarse {
    start: Instant,
    /// Since the start.
    nanos: AtomicU64,
    of: Box<dyn Clock>,
}

impl CoarseClock {
    /// One that follows the system's monotonic clock.
    ///
    /// ```
    /// use wheelhouse_resilience::CoarseClock;
    /// use wheelhouse_wheel::Clock;
    ///
    /// let clock = CoarseClock::new();
    /// assert_eq!(clock.now(), clock.now());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::over(SystemClock)
    }

    /// One that follows `clock`.
    #[must_use]
    pub fn over(clock: impl Clock) -> Self {
        CoarseClock {
            shared: Arc::new(Coarse {
                start: clock.now(),
                nanos: AtomicU64::new(0),
                of: Box::new(clock),
            }),
        }
    }

    /// Reads the clock that it follows. When that has stepped back, nothing changes.
    ///
    /// ```
    /// use wheelhouse_resilience::CoarseClock;
    ///
    /// let clock = CoarseClock::new();
    /// let driver = clock.clone();
    /// std::thread::spawn(move || driver.refresh()).join().unwrap();
    /// ```
    pub fn refresh(&self) {
        let nanos = nanos_between(self.shared.start, self.shared.of.now());
        // Relaxed, and in `nanos`: nothing is read through it.
        self.shared.nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Since the start.
    #[inline]
    fn nanos(&self) -> u64 {
        self.shared.nanos.load(Ordering::Relaxed)
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Instant {
        self.shared.start + Duration::from_nanos(self.nanos())
    }
}

impl fmt::Debug for CoarseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoarseClock")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// The system's clock for breakers: the processor's time stamp counter where it is steady, which costs
/// half of what [`Instant`] does; the system's monotonic clock where it is not.
struct Ticks {
    clock: quanta::Clock,
    /// When time begins, on both clocks.
    start: Instant,
    raw: u64,
}

static TICKS: LazyLock<Ticks> = LazyLock::new(|| {
    let clock = quanta::Clock::new();
    Ticks {
        start: Instant::now(),
        raw: clock.raw(),
        clock,
    }
});

impl Ticks {
    #[inline]
    fn nanos(&self) -> u64 {
        self.clock.delta_as_nanos(self.raw, self.clock.raw())
    }
}

/// A clock that says nanoseconds since a start, without a virtual call where it is a known one.
#[derive(Clone)]
pub(crate) enum TimeSource {
    System,
    Coarse(CoarseClock),
    Other(Arc<(Instant, Box<dyn Clock>)>),
}

impl TimeSource {
    pub(crate) fn system() -> Self {
        TimeSource::System
    }

    pub(crate) fn of(clock: impl Clock) -> Self {
        let any: &dyn Any = &clock;
        if any.is::<SystemClock>() {
            return Self::system();
        }
        if let Some(coarse) = any.downcast_ref::<CoarseClock>() {
            return TimeSource::Coarse(coarse.clone());
        }
        TimeSource::Other(Arc::new((clock.now(), Box::new(clock))))
    }

    /// Since the start; 0 before it.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match self {
            TimeSource::System => TICKS.nanos(),
            TimeSource::Coarse(clock) => clock.nanos(),
            TimeSource::Other(other) => nanos_between(other.0, other.1.now()),
        }
    }

    pub(crate) fn start(&self) -> Instant {
        match self {
            TimeSource::System => TICKS.start,
            TimeSource::Coarse(clock) => clock.shared.start,
            TimeSource::Other(other) => other.0,
        }
    }

    /// The instant of this time, or the start if it cannot be expressed.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        let start = self.start();
        start
            .checked_add(Duration::from_nanos(nanos))
            .unwrap_or(start)
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeSource::System => "System",
            TimeSource::Coarse(_) => "Coarse",
            TimeSource::Other(_) => "Other",
        })
    }
}

/// At most [`NEVER`] - 1.
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
        .min(NEVER - 1)
}

#[inline]
fn nanos_between(start: Instant, now: Instant) -> u64 {
    nanos(now.saturating_duration_since(start))
}
