//! What follows when a service ends by itself: per service, and how often it may be restarted.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::BuildError;

/// What the group does when a service ends while nobody asked it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The group stops; its report names the service.
    StopGroup,
    /// The others go on. An error is in the report and does not decide the exit code.
    Ignore,
    /// The service is started again, after a pause. Only what was added as
    /// [`Member::restartable`](crate::Member::restartable) can be.
    Restart(Restart),
}

/// Pauses between restarts, and how many there may be before the group is stopped instead.
///
/// The pause before the n-th restart within the last [`within`](Self::within) is
/// `min_pause · 2ⁿ⁻¹`, at most `max_pause`. The default: 100 ms doubling to 30 s, at most 5 in 60 s.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_servicegroup::{Policy, Restart};
///
/// let patient = Policy::Restart(Restart::default().limit(100).within(Duration::from_secs(3600)));
/// # assert_ne!(patient, Policy::Restart(Restart::default()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    min_pause: Duration,
    max_pause: Duration,
    limit: u32,
    within: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Restart {
            min_pause: Duration::from_millis(100),
            max_pause: Duration::from_secs(30),
            limit: 5,
            within: Duration::from_secs(60),
        }
    }
}

impl Restart {
    /// The pause before the first restart: any duration, at most `max_pause` counts.
    #[must_use]
    pub fn min_pause(mut self, pause: Duration) -> Self {
        self.min_pause = pause;
        self
    }

    /// The longest pause: any duration.
    #[must_use]
    pub fn max_pause(mut self, pause: Duration) -> Self {
        self.max_pause = pause;
        self
    }

    /// How many restarts there may be [`within`](Self::within) some time: 1 and more. The next
    /// failure stops the group.
    #[must_use]
    pub fn limit(mut self, restarts: u32) -> Self {
        self.limit = restarts;
        self
    }

    /// The time that the [`limit`](Self::limit) is for: more than 0.
    #[must_use]
    pub fn within(mut self, span: Duration) -> Self {
        self.within = span;
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.limit == 0 {
            return Err(BuildError::new("limit", "0", "1 and more"));
        }
        if self.within.is_zero() {
            return Err(BuildError::new("within", "0ns", "more than 0ns"));
        }
        Ok(())
    }

    fn pause(&self, nth: usize) -> Duration {
        let doublings = u32::try_from(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 2u32.checked_pow(doublings).unwrap_or(u32::MAX);
        self.min_pause.saturating_mul(factor).min(self.max_pause)
    }
}

/// What a service does on each kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) on_end: Policy,
    pub(crate) on_error: Policy,
    pub(crate) on_panic: Policy,
}

impl Default for Policies {
    fn default() -> Self {
        Policies {
            on_end: Policy::Ignore,
            on_error: Policy::StopGroup,
            on_panic: Policy::StopGroup,
        }
    }
}

impl Policies {
    pub(crate) fn all(&self) -> [(&'static str, Policy); 3] {
        [
            ("on_end", self.on_end),
            ("on_error", self.on_error),
            ("on_panic", self.on_panic),
        ]
    }
}

/// The restarts of one service that still count.
#[derive(Debug, Default)]
pub(crate) struct Intensity {
    recent: VecDeque<Instant>,
}

impl Intensity {
    /// Counts a restart at `now`: the pause before it, or `None` when the limit is reached.
    pub(crate) fn restart(&mut self, now: Instant, rule: &Restart) -> Option<Duration> {
        while self
            .recent
            .front()
            .is_some_and(|&then| now.saturating_duration_since(then) >= rule.within)
        {
            self.recent.pop_front();
        }
        if self.recent.len() >= rule.limit as usize {
            return None;
        }
        self.recent.push_back(now);
        Some(rule.pause(self.recent.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let rule = Restart::default().limit(u32::MAX);
        let pauses: Vec<_> = (1..=11).map(|n| rule.pause(n).as_millis()).collect();
        let expected = [
            100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
        ];
        assert_eq!(pauses, expected);
        assert_eq!(rule.pause(usize::MAX), Duration::from_secs(30));
    }

    #[test]
    fn the_sixth_restart_within_a_minute_is_one_too_many() {
        let rule = Restart::default();
        let mut intensity = Intensity::default();
        let start = Instant::now();
        for second in 0..5 {
            let now = start + Duration::from_secs(second);
            assert!(intensity.restart(now, &rule).is_some());
        }
        let just_before = start + Duration::from_millis(59_999);
        assert_eq!(intensity.restart(just_before, &rule), None);
        // The first one has been forgotten by now, the other four count.
        let minute = start + Duration::from_secs(60);
        assert_eq!(
            intensity.restart(minute, &rule),
            Some(Duration::from_millis(1600))
        );
        assert_eq!(intensity.restart(minute, &rule), None);
    }
}
