//! Where the fronts read time from: [`Clock`], the system's own and one that is moved by hand.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::sync::Mutex;

/// A source of monotonic time.
///
/// The pure structures of this package never read a clock; the fronts ask this trait. A clock that
/// steps back is tolerated: nothing fires early, twice, or not at all because of it.
pub trait Clock: Send + Sync + 'static {
    /// The present instant. Called once per operation, so it should cost no more than
    /// [`Instant::now`].
    fn now(&self) -> Instant;

    /// The present time of the calendar, which may step in either direction. Only what goes by
    /// it asks for it: cron tasks, and one-shots at a time of the wall clock. A virtual clock has to say it
    /// too, or these go by the real calendar.
    fn system_now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Takes note of a driver that lives on this clock, and says whether time stands still unless
    /// somebody moves it. On such a virtual clock drivers sleep without a time-out and rely on the
    /// clock to call [`Driven::catch_up`] whenever time has moved.
    ///
    /// The default is a clock in real time: it forgets the driver and returns `false`.
    fn register(&self, driver: Weak<dyn Driven>) -> bool {
        drop(driver);
        false
    }
}

/// A driver as its clock sees it. Only a virtual clock calls this.
pub trait Driven: Send + Sync {
    /// Wakes the driver and returns once it has handed out everything due by the clock's present
    /// instant that its reader has room for (callbacks that run inline have returned by then). On a
    /// thread that works for any wheel it returns at once: two wheels that wait for each other would
    /// wait for ever.
    fn catch_up(&self);

    /// The instant of the next tick at which something is due, if there is one.
    fn next_deadline(&self) -> Option<Instant>;
}

/// The operating system's monotonic clock, [`Instant::now`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// tokio's clock, which tests can pause and advance (`tokio::time::pause`). To be read inside a
/// runtime; outside it is the system's.
#[cfg(feature = "tokio")]
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioClock;

#[cfg(feature = "tokio")]
impl Clock for TokioClock {
    #[inline]
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// The system's, moved by as much as tokio's clock was.
    fn system_now(&self) -> SystemTime {
        let (now, real) = (self.now(), Instant::now());
        let wall = SystemTime::now();
        let moved = wall.checked_add(now.saturating_duration_since(real));
        let moved = moved.and_then(|wall| wall.checked_sub(real.saturating_duration_since(now)));
        moved.unwrap_or(wall)
    }
}

/// A clock that stands still until it is moved, so that tests need no sleeping.
///
/// Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_wheel::{Clock, ManualClock, TimingWheel};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let (fired, on_time) = std::sync::mpsc::channel();
/// let wheel = TimingWheel::builder()
///     .clock(clock.clone())
///     .build(move |key: &str, ()| fired.send(key).unwrap())?;
/// wheel.set_timer("an hour", (), Duration::from_secs(3600))?;
///
/// clock.advance(Duration::from_secs(3599));
/// assert!(on_time.try_recv().is_err());
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(on_time.try_recv()?, "an hour");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

struct Shared {
    now: Mutex<Instant>,
    /// An instant and the time of the calendar then.
    epoch: (Instant, SystemTime),
    drivers: Mutex<Vec<Weak<dyn Driven>>>,
}

impl ManualClock {
    /// A clock that starts at the system's present instant.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// A clock that starts at the system's present instant, with this time of the calendar, which
    /// moves along with it.
    #[must_use]
    pub fn starting_at(time: SystemTime) -> Self {
        let now = Instant::now();
        ManualClock {
            shared: Arc::new(Shared {
                now: Mutex::new(now),
                epoch: (now, time),
                drivers: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Jumps ahead by `by` at once, as after a stall, and returns when every driver on this clock
    /// has handed out what became due and inline callbacks have returned; callbacks on a pool or a
    /// runtime may still be waiting for their turn. On a thread of any wheel (in a callback, say) it
    /// does not wait. What a full stream has no room for stays in its wheel. A timer that a callback
    /// sets again counts from the new instant: to see each of its rounds use
    /// [`run_for`](Self::run_for).
    ///
    /// A jump past the end of what [`Instant`] can express goes as far as that.
    pub fn advance(&self, by: Duration) {
        {
            let mut now = self.shared.now.lock();
            *now = add_saturating(*now, by);
        }
        self.catch_up();
    }

    /// Moves ahead by `by` from deadline to deadline, so that every inline callback sees its own
    /// tick as the present instant; what callbacks schedule within the span takes part. It never
    /// moves the clock back when a callback or another thread moves it further ahead meanwhile.
    pub fn run_for(&self, by: Duration) {
        let end = add_saturating(self.now(), by);
        self.catch_up();
        while let Some(next) = self.next_deadline()
            && next <= end
        {
            self.reach(next);
        }
        self.reach(end);
    }

    /// Sets the time to `to`, also backwards, and waits like [`advance`](Self::advance).
    pub fn set(&self, to: Instant) {
        *self.shared.now.lock() = to;
        self.catch_up();
    }

    /// Moves ahead to `at`, unless the clock is past it.
    pub(crate) fn reach(&self, at: Instant) {
        {
            let mut now = self.shared.now.lock();
            *now = at.max(*now);
        }
        self.catch_up();
    }

    fn drivers(&self) -> Vec<Arc<dyn Driven>> {
        let mut drivers = self.shared.drivers.lock();
        drivers.retain(|driver| driver.strong_count() > 0);
        drivers.iter().filter_map(Weak::upgrade).collect()
    }

    fn catch_up(&self) {
        for driver in self.drivers() {
            driver.catch_up();
        }
    }

    /// The earliest deadline ahead. One that is not ahead was not taken when its time came (the
    /// reader of a full stream is to blame, or this is a callback): waiting for it would be for
    /// ever.
    fn next_deadline(&self) -> Option<Instant> {
        let now = self.now();
        self.drivers()
            .iter()
            .filter_map(|driver| driver.next_deadline())
            .filter(|next| *next > now)
            .min()
    }
}

/// The latest instant that can be expressed, when `base + by` cannot.
pub(crate) fn add_saturating(base: Instant, by: Duration) -> Instant {
    let (mut at, mut step) = (base, by);
    loop {
        match at.checked_add(step) {
            Some(sum) if step == by => return sum,
            Some(sum) => at = sum,
            None => {}
        }
        step /= 2;
        if step.is_zero() {
            return at;
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.shared.now.lock()
    }

    /// As far from the time at the start as the instant is from that of the start.
    fn system_now(&self) -> SystemTime {
        let (start, time) = self.shared.epoch;
        let now = self.now();
        let moved = time.checked_add(now.saturating_duration_since(start));
        let moved = moved.and_then(|time| time.checked_sub(start.saturating_duration_since(now)));
        moved.unwrap_or(time)
    }

    fn register(&self, driver: Weak<dyn Driven>) -> bool {
        let mut drivers = self.shared.drivers.lock();
        // Those that are gone are let go when the list would grow.
        if drivers.len() == drivers.capacity() {
            drivers.retain(|driver| driver.strong_count() > 0);
        }
        drivers.push(driver);
        true
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn adding_saturates_at_the_last_instant() {
        let now = Instant::now();
        assert_eq!(
            add_saturating(now, Duration::from_secs(5)),
            now + Duration::from_secs(5)
        );
        let last = add_saturating(now, Duration::MAX);
        assert!(last > now + Duration::from_secs(1 << 40));
        // Halving loses the last fractions of the steps.
        assert_eq!(last.checked_add(Duration::from_micros(1)), None);
    }
}
