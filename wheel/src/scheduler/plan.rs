//! When a recurring task runs next: arithmetic of instants, without a clock.
//!
//! | plan | next run after the run that was due at `due`, began at `began`, ended at `ended` |
//! |---|---|
//! | every, on time | `due + period` |
//! | every, late, burst | `due + period` |
//! | every, late, delay | `began + period` |
//! | every, late, skip | the first `due + k × period` after `began` |
//! | after completion | `ended + delay` |
//! | cron | its next time after `due`; when coalescing, after `began` |
//!
//! Late is more than [`TOLERANCE`] after `due`, as for tokio's interval, whose policies these are.

use std::time::{Duration, Instant, SystemTime};

/// A run that begins this much after it is due, or less, is on time.
const TOLERANCE: Duration = Duration::from_millis(5);

/// What becomes of ticks that were missed, because a run took longer than the period or the process
/// stood still. The late run itself takes place in any case, unless a
/// [grace](super::TaskOptions::grace) forbids it; the policy chooses the runs after it, just as
/// `tokio::time::MissedTickBehavior` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MissedTick {
    /// Runs once for every tick missed, one right after the other, until it has caught up.
    #[default]
    Burst,
    /// Goes on from the late run: the next is one period after it began.
    Delay,
    /// Leaves out what was missed: the next is at the next multiple of the period.
    Skip,
}

/// What repeats a task, or makes it go by the calendar.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Every {
        period: Duration,
        missed: MissedTick,
        /// When the run at hand is due, jitter left out.
        due: Instant,
    },
    AfterCompletion {
        delay: Duration,
    },
    /// Once, when the wall clock shows this.
    At {
        due: SystemTime,
    },
    #[cfg(feature = "cron")]
    Cron {
        cron: Box<crate::cron::Cron>,
        /// When the run at hand is due.
        due: SystemTime,
        coalesce: bool,
    },
}

impl Plan {
    /// Whether there may be more than one run.
    pub(super) fn recurs(&self) -> bool {
        !matches!(self, Plan::At { .. })
    }

    /// Whether a run may begin before the one before has ended.
    pub(super) fn may_overlap(&self) -> bool {
        !matches!(self, Plan::AfterCompletion { .. } | Plan::At { .. })
    }

    /// What the wall clock shows when the run at hand is due, if it goes by that.
    pub(super) fn wall(&self) -> Option<SystemTime> {
        match self {
            Plan::At { due } => Some(*due),
            #[cfg(feature = "cron")]
            Plan::Cron { due, .. } => Some(*due),
            _ => None,
        }
    }

    /// Moves the run at hand, which is due at `at`, and at `wall` by the wall clock if it goes by that.
    pub(super) fn move_to(&mut self, at: Instant, wall: Option<SystemTime>) {
        match self {
            Plan::Every { due, .. } => *due = at,
            Plan::AfterCompletion { .. } => {}
            Plan::At { due } => *due = wall.unwrap_or(*due),
            #[cfg(feature = "cron")]
            Plan::Cron { due, .. } => *due = wall.unwrap_or(*due),
        }
    }

    /// The instant of the next run after one that ran on time, late, or not at all.
    pub(super) fn advance(&mut self, began: Instant, ended: Instant) -> Option<Instant> {
        match self {
            Plan::Every {
                period,
                missed,
                due,
            } => {
                let late = began.saturating_duration_since(*due);
                let next = match missed {
                    MissedTick::Delay if late > TOLERANCE => began.checked_add(*period),
                    MissedTick::Skip if late > TOLERANCE => {
                        let into = late.as_nanos() % period.as_nanos();
                        let left = period.as_nanos() - into;
                        began.checked_add(nanos(left))
                    }
                    _ => due.checked_add(*period),
                }?;
                *due = next;
                Some(next)
            }
            Plan::AfterCompletion { delay } => ended.checked_add(*delay),
            Plan::At { .. } => None,
            #[cfg(feature = "cron")]
            Plan::Cron { .. } => None,
        }
    }
}

fn nanos(nanos: u128) -> Duration {
    let secs = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(secs, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn every(missed: MissedTick, start: Instant) -> Plan {
        Plan::Every {
            period: 100 * MS,
            missed,
            due: start + 100 * MS,
        }
    }

    /// Due at 100; began 250, so that 200 was missed.
    fn after_a_late_run(missed: MissedTick) -> u128 {
        let start = Instant::now();
        let began = start + 250 * MS;
        let next = every(missed, start).advance(began, began);
        (next.expect("far from the end of time") - start).as_millis()
    }

    #[test]
    fn w68_a_late_run_is_followed_by_policy() {
        assert_eq!(after_a_late_run(MissedTick::Burst), 200);
        assert_eq!(after_a_late_run(MissedTick::Delay), 350);
        assert_eq!(after_a_late_run(MissedTick::Skip), 300);
    }

    #[test]
    fn five_milliseconds_are_on_time() {
        for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
            let start = Instant::now();
            let began = start + 105 * MS;
            let next = every(missed, start).advance(began, began);
            assert_eq!(next, Some(start + 200 * MS), "{missed:?}");
        }
    }

    #[test]
    fn w84_fixed_rate_and_fixed_delay() {
        let start = Instant::now();
        let run = |plan: &mut Plan, due: Instant| plan.advance(due, due + 30 * MS);
        let mut rate = every(MissedTick::Burst, start);
        let second = run(&mut rate, start + 100 * MS).expect("is finite");
        assert_eq!(second, start + 200 * MS);
        assert_eq!(run(&mut rate, second), Some(start + 300 * MS));
        let mut delay = Plan::AfterCompletion { delay: 100 * MS };
        let second = run(&mut delay, start + 100 * MS).expect("is finite");
        assert_eq!(second, start + 230 * MS);
        assert_eq!(run(&mut delay, second), Some(start + 360 * MS));
    }

    #[test]
    fn what_lies_beyond_time_does_not_come() {
        let now = Instant::now();
        let mut plan = Plan::Every {
            period: Duration::MAX,
            missed: MissedTick::Skip,
            due: now,
        };
        assert_eq!(plan.advance(now, now), None);
        let mut plan = Plan::AfterCompletion {
            delay: Duration::MAX,
        };
        assert_eq!(plan.advance(now, now), None);
    }
}
