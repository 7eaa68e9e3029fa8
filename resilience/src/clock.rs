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
///
/// # How far the two drift apart
///
/// The counter's frequency is measured once, when the first breaker is built, and the system goes on
/// correcting its own clock afterwards, by up to 500 parts per million where it follows a time server. So
/// the counter's nanoseconds drift from the system's by up to 2 s an hour at the very worst, and by some
/// milliseconds usually. What keeps that from mattering:
///
/// - Breakers compare times of the counter with one another only, and those lie a window or a cool-down
///   apart: a minute is right to 30 ms at the worst.
/// - A timer is set for what is left, not for an instant, and one that fires early is set again for the
///   rest: see timers.rs.
/// - Where an instant of the system's is told, it is counted back from now ([`Ticks::instant`]).
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

    /// The instant of this time on the system's clock, which `system` reads: by what it is from now, so
    /// that it is off by the drift of that while, and not of all the time since the start. The clocks
    /// cannot be read at once; of some attempts the quickest counts, and it is off by that at most too.
    fn instant(&self, nanos: u64, system: impl Fn() -> Instant) -> Instant {
        let attempt = || {
            let before = self.nanos();
            let now = system();
            (self.nanos().saturating_sub(before), before, now)
        };
        let attempts = [attempt(), attempt(), attempt()];
        let [first, others @ ..] = attempts;
        let quickest = |one: (u64, u64, Instant), other: (u64, u64, Instant)| match other.0 < one.0
        {
            true => other,
            false => one,
        };
        let (_, ticks, now) = others.into_iter().fold(first, quickest);
        let instant = match nanos.checked_sub(ticks) {
            Some(ahead) => now.checked_add(Duration::from_nanos(ahead)),
            None => now.checked_sub(Duration::from_nanos(ticks - nanos)),
        };
        instant.unwrap_or(self.start)
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

    /// The present instant, as others read it from the same clock.
    pub(crate) fn now(&self) -> Instant {
        match self {
            TimeSource::System => Instant::now(),
            TimeSource::Coarse(_) | TimeSource::Other(_) => self.instant(self.nanos()),
        }
    }

    /// The instant of this time, or the start if it cannot be expressed.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        if let TimeSource::System = self {
            return TICKS.instant(nanos, Instant::now);
        }
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

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use wheelhouse_wheel::ManualClock;

    use super::*;

    /// The counter runs too fast, or too slowly, by 500 parts per million for a month: what it says of the
    /// last minute is right to 30 ms, and the present to nothing.
    #[test]
    fn instants_do_not_drift_with_the_time_since_the_start() {
        let hour = Duration::from_secs(3600);
        for counted in [hour.mul_f64(1.0005), hour, hour.mul_f64(0.9995)] {
            let (clock, counter) = quanta::Clock::mock();
            let system = ManualClock::new();
            let ticks = Ticks {
                raw: clock.raw(),
                clock,
                start: system.now(),
            };
            for _ in 0..30 * 24 {
                counter.increment(counted);
                system.advance(hour);
                let now = ticks.nanos();
                let told = |nanos| ticks.instant(nanos, || system.now());
                assert_eq!(told(now), system.now());
                let minute = Duration::from_secs(60);
                for (nanos, right) in [
                    (now - nanos(minute), system.now() - minute),
                    (now + nanos(minute), system.now() + minute),
                ] {
                    let off = told(nanos).max(right) - told(nanos).min(right);
                    assert!(off <= Duration::from_millis(30), "{off:?}");
                }
            }
        }
    }

    /// The counter steps back, as between two processors: time does not go on, and does not go back.
    #[test]
    fn a_counter_that_steps_back_is_at_the_start() {
        let (clock, counter) = quanta::Clock::mock();
        counter.increment(1_000_u64);
        let ticks = Ticks {
            raw: clock.raw(),
            clock,
            start: Instant::now(),
        };
        counter.decrement(500_u64);
        assert_eq!(ticks.nanos(), 0);
        assert_eq!(ticks.instant(0, || ticks.start), ticks.start);
    }

    #[test]
    fn the_systems_time_is_that_of_the_process() {
        let source = TimeSource::system();
        let (before, now, after) = (Instant::now(), source.nanos(), Instant::now());
        // Off by how long it takes to read a clock, for which a busy machine is given much.
        let told = source.instant(now);
        let slack = Duration::from_millis(500);
        assert!(before - slack <= told && told <= after + slack);
    }
}
