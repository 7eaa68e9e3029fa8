//! Between instants and ticks.

use std::time::{Duration, Instant};

/// The tick that is never reached, however far a clock jumps: what overflows ends here and never
/// fires.
pub(crate) const NEVER: u64 = u64::MAX;

/// A grid of ticks: tick `n` is the instant `start + n × interval`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    start: Instant,
    interval: Duration,
    /// The interval in nanoseconds, 0 when it does not fit.
    interval_nanos: u64,
}

impl Ticks {
    /// `interval` is not zero.
    pub(crate) fn new(start: Instant, interval: Duration) -> Self {
        debug_assert!(!interval.is_zero());
        Ticks {
            start,
            interval,
            interval_nanos: nanos(interval).unwrap_or(0),
        }
    }

    /// The instant of tick 0.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// The first tick that is after `now` and not before `now + delay`; [`NEVER`] on overflow.
    #[inline]
    pub(crate) fn deadline(&self, now: Instant, delay: Duration) -> u64 {
        let elapsed = now.saturating_duration_since(self.start);
        if let (Some(elapsed), Some(delay)) = (nanos(elapsed), nanos(delay))
            && let Some(due) = elapsed.checked_add(delay.max(1))
            && self.interval_nanos != 0
        {
            // A zero delay is one of a nanosecond: the first tick after `now` either way.
            return due.div_ceil(self.interval_nanos);
        }
        self.deadline_wide(elapsed, delay)
    }

    #[cold]
    fn deadline_wide(&self, elapsed: Duration, delay: Duration) -> u64 {
        let due = elapsed.as_nanos() + delay.as_nanos().max(1);
        u64::try_from(due.div_ceil(self.interval.as_nanos())).unwrap_or(NEVER)
    }

    /// The first tick that is not before `at`; [`NEVER`] on overflow.
    #[cfg(feature = "tokio")]
    pub(crate) fn at_or_after(&self, at: Instant) -> u64 {
        let elapsed = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(elapsed.div_ceil(self.interval.as_nanos())).unwrap_or(NEVER)
    }

    /// The last tick that is not after `now`, before [`NEVER`].
    #[inline]
    pub(crate) fn at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start);
        let tick = match nanos(elapsed) {
            Some(elapsed) if self.interval_nanos != 0 => elapsed / self.interval_nanos,
            _ => {
                let tick = elapsed.as_nanos() / self.interval.as_nanos();
                u64::try_from(tick).unwrap_or(NEVER)
            }
        };
        tick.min(NEVER - 1)
    }

    /// The instant of `tick`, if an [`Instant`] can express it.
    #[inline]
    pub(crate) fn instant(&self, tick: u64) -> Option<Instant> {
        if let Some(nanos) = tick.checked_mul(self.interval_nanos)
            && self.interval_nanos != 0
        {
            return self.start.checked_add(Duration::from_nanos(nanos));
        }
        let nanos = self.interval.as_nanos().checked_mul(u128::from(tick))?;
        let secs = u64::try_from(nanos / 1_000_000_000).ok()?;
        self.start
            .checked_add(Duration::new(secs, (nanos % 1_000_000_000) as u32))
    }
}

#[inline]
fn nanos(duration: Duration) -> Option<u64> {
    duration
        .as_secs()
        .checked_mul(1_000_000_000)?
        .checked_add(u64::from(duration.subsec_nanos()))
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ticks(interval: Duration) -> (Instant, Ticks) {
        let start = Instant::now();
        (start, Ticks::new(start, interval))
    }

    #[test]
    fn a_delay_ends_at_the_first_tick_not_before_it() {
        let (start, ticks) = ticks(100 * MS);
        for (delay_ms, tick) in [(110, 2), (230, 3), (149, 2), (151, 2), (100, 1), (200, 2)] {
            assert_eq!(
                ticks.deadline(start, delay_ms * MS),
                tick,
                "W34: {delay_ms} ms"
            );
        }
    }

    #[test]
    fn a_zero_delay_is_the_next_tick() {
        let (start, ticks) = ticks(10 * MS);
        assert_eq!(ticks.deadline(start, Duration::ZERO), 1);
        assert_eq!(ticks.deadline(start + 9 * MS, Duration::ZERO), 1);
        assert_eq!(ticks.deadline(start + 10 * MS, Duration::ZERO), 2);
    }

    #[test]
    fn w11_the_fraction_of_now_counts() {
        let (start, ticks) = ticks(MS);
        let now = start + Duration::from_micros(10_990);
        assert_eq!(ticks.deadline(now, MS), 12);
    }

    #[test]
    fn w20_intervals_of_fractions_of_a_millisecond() {
        let (start, fine) = ticks(Duration::from_micros(100));
        assert_eq!(
            fine.instant(fine.deadline(start, 10 * MS)),
            Some(start + 10 * MS)
        );
        let (start, coarse) = ticks(Duration::from_micros(1500));
        let due = coarse.deadline(start, 10 * MS);
        assert_eq!(
            coarse.instant(due),
            Some(start + Duration::from_micros(10_500))
        );
    }

    #[test]
    fn what_overflows_is_never() {
        let (start, ticks) = ticks(MS);
        assert_eq!(ticks.deadline(start, Duration::MAX), NEVER);
        assert_eq!(
            ticks.deadline(start, Duration::from_nanos(u64::MAX)),
            18_446_744_073_710
        );
        assert_eq!(
            ticks.instant(NEVER),
            Some(start + Duration::from_millis(u64::MAX))
        );
    }

    #[test]
    fn an_interval_wider_than_u64_nanoseconds() {
        let interval = Duration::from_millis(u64::MAX);
        let (start, ticks) = ticks(interval);
        assert_eq!(ticks.deadline(start, MS), 1);
        assert_eq!(ticks.deadline(start + interval, Duration::ZERO), 2);
        assert_eq!(ticks.at(start + interval), 1);
        assert_eq!(ticks.at(start + (interval - MS)), 0);
        assert_eq!(ticks.instant(1), start.checked_add(interval));
    }

    #[test]
    fn before_the_start_is_the_start() {
        let (start, ticks) = ticks(MS);
        let Some(before) = start.checked_sub(5 * MS) else {
            return;
        };
        assert_eq!(ticks.at(before), 0);
        assert_eq!(ticks.deadline(before, 3 * MS), 3);
    }
}
