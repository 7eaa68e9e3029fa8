//! The time of a cache: microseconds since it began, from a clock that is read as seldom as can be.
//!
//! Reading the system's clock costs as much as a lookup. Its coarse sibling, which the kernel moves on
//! at every tick of its own, costs a fifth. It is behind by a tick at most, so it settles for nearly
//! every entry that its deadline is ahead; only where a deadline is within [`CLOSE`] the exact clock
//! decides. Nothing expires early or late because of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wheelhouse_wheel::Clock;

use crate::shard::{Micros, NEVER};

/// A deadline so near asks for the exact time: the coarse clock is not behind by as much, unless the
/// whole machine stood still.
const CLOSE: Micros = 100_000;

#[derive(Clone)]
pub(crate) struct Time {
    source: Source,
    began: Instant,
}

#[derive(Clone)]
enum Source {
    System(system::Began),
    Given(Arc<dyn Clock>),
}

impl Time {
    /// The system's clock, from now on.
    pub(crate) fn system() -> Self {
        Time {
            source: Source::System(system::Began::now()),
            began: Instant::now(),
        }
    }

    /// The user's clock, from now on.
    pub(crate) fn of(clock: Arc<dyn Clock>) -> Self {
        let began = clock.now();
        Time {
            source: Source::Given(clock),
            began,
        }
    }

    pub(crate) fn clock(&self) -> Option<&Arc<dyn Clock>> {
        match &self.source {
            Source::System(_) => None,
            Source::Given(clock) => Some(clock),
        }
    }

    /// The exact time.
    #[inline(never)]
    pub(crate) fn now(&self) -> Micros {
        match &self.source {
            Source::System(began) => began.exact(),
            Source::Given(clock) => micros(clock.now().saturating_duration_since(self.began)),
        }
    }

    /// A time that is not later than [`now`](Self::now), and not much earlier.
    #[inline]
    pub(crate) fn about_now(&self) -> Micros {
        match &self.source {
            Source::System(began) => began.coarse(),
            Source::Given(_) => self.now(),
        }
    }

    /// No deadline from this time on has come, if it was about now a moment ago.
    #[inline]
    pub(crate) fn horizon(about: Micros) -> Micros {
        about + CLOSE
    }

    /// By how much [`about_now`](Self::about_now) may be behind.
    #[inline]
    pub(crate) fn lag(&self) -> Micros {
        match &self.source {
            Source::System(_) => CLOSE,
            Source::Given(_) => 0,
        }
    }

    /// Whether a deadline has come.
    #[inline(never)]
    pub(crate) fn is_past(&self, deadline: Micros) -> bool {
        if deadline == NEVER {
            return false;
        }
        deadline <= self.about_now().saturating_add(CLOSE) && deadline <= self.now()
    }

    /// The instant of a deadline.
    pub(crate) fn instant(&self, deadline: Micros) -> Option<Instant> {
        self.began.checked_add(Duration::from_micros(deadline))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Time").field("now", &self.now()).finish()
    }
}

/// Whole microseconds, rounded down: a deadline is never late.
#[inline]
pub(crate) fn micros(span: Duration) -> Micros {
    let whole = span
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(span.subsec_micros()));
    whole.min(NEVER)
}

#[cfg(target_os = "linux")]
mod system {
    use nix::time::{ClockId, clock_gettime};

    use crate::shard::{Micros, NEVER};

    /// When the cache began, on the clock that [`std::time::Instant`] has here too.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Began(Micros);

    impl Began {
        pub(super) fn now() -> Self {
            Began(read(ClockId::CLOCK_MONOTONIC))
        }

        #[inline]
        pub(super) fn exact(self) -> Micros {
            read(ClockId::CLOCK_MONOTONIC).saturating_sub(self.0)
        }

        #[inline]
        pub(super) fn coarse(self) -> Micros {
            read(ClockId::CLOCK_MONOTONIC_COARSE).saturating_sub(self.0)
        }
    }

    #[inline]
    fn read(clock: ClockId) -> Micros {
        // Linux has had both clocks for longer than Rust has supported it.
        clock_gettime(clock).map_or(0, |time| {
            let whole = (time.tv_sec() as u64).wrapping_mul(1_000_000);
            whole.wrapping_add(time.tv_nsec() as u64 / 1_000).min(NEVER)
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Instant;

    use crate::shard::Micros;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Began(Instant);

    impl Began {
        pub(super) fn now() -> Self {
            Began(Instant::now())
        }

        pub(super) fn exact(self) -> Micros {
            super::micros(self.0.elapsed())
        }

        pub(super) fn coarse(self) -> Micros {
            self.exact()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_time_is_behind_by_a_tick_at_most() {
        let time = Time::system();
        for _ in 0..1_000 {
            let (about, now) = (time.about_now(), time.now());
            assert!(about <= now, "{about} {now}");
            assert!(now - about < CLOSE, "{about} {now}");
        }
    }

    #[test]
    fn a_deadline_is_past_from_its_microsecond_on() {
        let clock = wheelhouse_wheel::ManualClock::new();
        let time = Time::of(Arc::new(clock.clone()));
        assert!(time.is_past(0));
        assert!(!time.is_past(1));
        clock.advance(Duration::from_nanos(1_999));
        assert!(time.is_past(1));
        assert!(!time.is_past(2));
        assert!(!time.is_past(NEVER));
        assert_eq!(micros(Duration::MAX), NEVER);
    }
}
