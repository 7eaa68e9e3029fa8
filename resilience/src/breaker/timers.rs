//! [`Timers`]: transitions that are due by time, on time when no call comes.
//!
//! The deadline that a breaker keeps is the truth, and each call looks at it. A timer only looks
//! for it: a late one, or one that is lost, changes no decision.
//!
//! # Clocks that drift apart
//!
//! The wheel goes by its clock and a breaker by its own, which may run faster or slower: that of the
//! processor, say, beside the system's (see clock.rs). A timer is set for what is left on the breaker's
//! clock. If that runs faster, the timer comes late by the drift over the cool-down; if it runs slower, the
//! timer comes early, finds nothing due, and is set again for the rest, which is a drift's share of the
//! share. How long the process has run does not come into it.
//!
//! # Windows do not turn by timers
//!
//! A bucket is cleared by the first call that writes to it after its time, and left out by whoever reads
//! before that, so a decision never depends on a timer, and figures are right without one. A timer for each
//! breaker's bucket would wake the process four times a second for breakers that nobody calls, to do what
//! costs a call one exchange.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use wheelhouse_wheel::{Clock, TimingWheel};

use super::arming::Arming;
use super::core::Core;
use crate::BuildError;
use crate::clock::{CoarseClock, TimeSource};

/// A timing wheel that any number of breakers share, for
/// [`BreakerBuilder::timers`](super::BreakerBuilder::timers).
///
/// Has a thread of its own, which sleeps unless a breaker is open or half-open, and ends with the last
/// handle. A breaker on it changes its state, and tells of it, at most a tick after the deadline; later by
/// what the breaker's clock and this one drift apart meanwhile (see the [trade-offs](crate#trade-offs)).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::{Breaker, State, Timers};
/// use wheelhouse_wheel::ManualClock;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let timers = Timers::new(clock.clone())?;
/// let breaker = Breaker::consecutive().timers(&timers).build()?;
/// let events = breaker.subscribe();
/// for _ in 0..6 {
///     breaker.try_acquire()?.failure();
/// }
/// assert_eq!(events.try_next().unwrap().to, State::Open);
///
/// clock.advance(Duration::from_millis(60_001));
/// assert_eq!(events.try_next().unwrap().to, State::HalfOpen);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Timers {
    shared: Arc<Shared>,
}

struct Shared {
    wheel: TimingWheel<u64, Due>,
    clock: TimeSource,
    /// The next key.
    key: AtomicU64,
}

/// What a timer does.
#[derive(Clone)]
enum Due {
    Breaker(Weak<Core>),
    /// Refreshes a coarse clock every so often.
    Clock(CoarseClock, Duration),
}

impl Timers {
    /// Starts a wheel with ticks of a millisecond on this clock.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when its thread could not be started.
    pub fn new<C: Clock + Clone>(clock: C) -> Result<Self, BuildError> {
        let wheel = TimingWheel::builder()
            .name("breakers")
            .shards(1)
            .clock(clock.clone())
            .build_cyclic(|wheel| {
                move |key: u64, due: Due| match due {
                    Due::Breaker(core) => {
                        if let Some(core) = core.upgrade() {
                            core.tick();
                        }
                    }
                    Due::Clock(clock, every) => {
                        clock.refresh();
                        if let Some(wheel) = wheel.upgrade() {
                            let _ = wheel.set_timer(key, Due::Clock(clock, every), every);
                        }
                    }
                }
            })
            .map_err(|error| BuildError::new("timers", error.to_string(), "a thread to start"))?;
        Ok(Timers {
            shared: Arc::new(Shared {
                wheel,
                clock: TimeSource::of(clock),
                key: AtomicU64::new(0),
            }),
        })
    }

    /// A clock that these timers refresh every so often, from a millisecond up, for as long as they
    /// live. Their thread wakes as often.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Timers;
    /// use wheelhouse_wheel::{Clock, ManualClock};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let time = ManualClock::new();
    /// let timers = Timers::new(time.clone())?;
    /// let coarse = timers.coarse_clock(Duration::from_millis(1));
    /// time.run_for(Duration::from_secs(1));
    /// assert_eq!(coarse.now(), time.now());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn coarse_clock(&self, every: Duration) -> CoarseClock {
        let clock = CoarseClock::over(Following(self.shared.clock.clone()));
        let due = Due::Clock(clock.clone(), every);
        // Nothing else is set in the wheel but what breakers need: it is not full, nor stopped.
        let _ = self.shared.wheel.set_timer(self.next_key(), due, every);
        clock
    }

    fn next_key(&self) -> u64 {
        // Relaxed: keys only have to differ.
        self.shared.key.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn time_source(&self) -> TimeSource {
        self.shared.clock.clone()
    }
}

/// The clock of a time source.
struct Following(TimeSource);

impl Clock for Following {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("pending", &self.shared.wheel.len())
            .finish_non_exhaustive()
    }
}

/// A breaker's place among the timers.
pub(super) struct Armed {
    timers: Timers,
    key: u64,
    core: Weak<Core>,
    arming: Arming,
}

impl Armed {
    pub(super) fn new(timers: Timers, core: Weak<Core>) -> Self {
        let key = timers.next_key();
        Armed {
            timers,
            key,
            core,
            arming: Arming::idle(),
        }
    }

    /// The timer is no longer set.
    pub(super) fn fired(&self) {
        self.arming.fired();
    }

    /// Sets the breaker's timer for what is due next, unless it is.
    pub(super) fn arm(&self, core: &Core) {
        self.arming.arm(
            || core.due(),
            |due| {
                let delay = Duration::from_nanos(due.saturating_sub(core.clock.nanos()));
                let timer = Due::Breaker(self.core.clone());
                // Refused when millions of breakers are open at once, or the wheel has stopped:
                // calls see to it then.
                let _ = self.timers.shared.wheel.set_timer(self.key, timer, delay);
            },
        );
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let _ = self.timers.shared.wheel.remove_timer(self.key);
    }
}
