//! When a task that recurs runs next, by the scheduler's clock or by the calendar.
//!
//! The calendar may step while a task waits that goes by it: a cron task, or a one-shot at a time of the
//! wall clock. So the task is filed for its time as it looks now, but for no later than a minute from now,
//! and looks again then: the step of a wall clock, or the sleep of a machine, makes it late by no more.

use std::time::{Duration, Instant, SystemTime};

use crate::clock::add_saturating;

use super::entry::{Entry, flag};
use super::inner::Inner;
use super::plan::Plan;

/// How often a task looks at the calendar by which it goes.
const RECHECK: Duration = Duration::from_secs(60);

/// What both clocks show. They are user code: they are read before any lock is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    now: Instant,
    wall: SystemTime,
}

impl Moment {
    #[cfg(feature = "cron")]
    pub(super) fn wall(&self) -> SystemTime {
        self.wall
    }

    /// What the wall clock showed at an instant that has passed.
    #[cfg(feature = "cron")]
    fn wall_of(&self, at: Instant) -> SystemTime {
        let ago = self.now.saturating_duration_since(at);
        self.wall.checked_sub(ago).unwrap_or(self.wall)
    }

    /// When the wall clock shows this time, as far as can be told now.
    pub(super) fn instant_of(&self, wall: SystemTime) -> Instant {
        match wall.duration_since(self.wall) {
            Ok(left) => add_saturating(self.now, left),
            Err(error) => self.now.checked_sub(error.duration()).unwrap_or(self.now),
        }
    }

    /// What the wall clock shows at an instant that is not past, as far as can be told now.
    pub(super) fn wall_at(&self, at: Instant) -> Option<SystemTime> {
        self.wall
            .checked_add(at.saturating_duration_since(self.now))
    }
}

/// What became of the run at hand.
pub(super) enum Past {
    /// It took place, so long after the tick that it was filed for.
    Ran {
        began: Instant,
        ended: Instant,
        late: Duration,
    },
    /// It did not, as was found out then.
    Missed(Instant),
}

impl Inner {
    /// The tick of a recurring task's next run; `None` when there is none.
    pub(super) fn next_of(&self, entry: &dyn Entry, past: &Past) -> Option<u64> {
        #[cfg(feature = "cron")]
        let moment = self.moment_for(entry);
        let mut guard = entry.lock();
        let extra = guard.as_mut()?;
        let options = self.options(Some(extra));
        let (until, jitter) = (options.until, options.jitter);
        #[cfg(feature = "cron")]
        let grace = options.grace;
        let (began, ended) = match *past {
            Past::Ran { began, ended, .. } => (began, ended),
            Past::Missed(now) => (now, now),
        };
        if let (Past::Ran { .. }, Some(left)) = (past, &mut extra.runs_left) {
            *left -= 1;
            if *left == 0 {
                return None;
            }
        }
        let plan = extra.plan.as_mut()?;
        #[cfg(feature = "cron")]
        if let (
            Plan::Cron {
                cron,
                due,
                coalesce,
            },
            Some(moment),
        ) = (&mut *plan, moment)
        {
            let after = match (past, grace) {
                _ if !*coalesce => *due,
                // One of those that were missed may be within its grace, and stands for all.
                (Past::Missed(now), Some(grace)) => moment
                    .wall_of(*now)
                    .checked_sub(grace.saturating_add(Duration::from_nanos(1)))
                    .unwrap_or(*due),
                _ => moment.wall_of(began),
            };
            *due = cron.next_after_system(after.max(*due))?;
            let next = moment.instant_of(*due);
            let ends = until.is_some_and(|until| next > until);
            return (!ends).then(|| self.tick_by_calendar(&moment, next, jitter));
        }
        let began = match (past, &*plan) {
            // What the run was put off by at random is no lateness.
            (Past::Ran { late, .. }, Plan::Every { due, .. }) if !jitter.is_zero() => {
                due.checked_add(*late).unwrap_or(began)
            }
            _ => began,
        };
        let next = plan.advance(began, ended)?;
        let ends = until.is_some_and(|until| next > until);
        (!ends).then(|| self.tick_of(next, jitter))
    }

    /// How long after a tick something began.
    pub(super) fn late_at(&self, tick: u64, began: Instant) -> Duration {
        let due = self.ticks.instant(tick).unwrap_or(began);
        began.saturating_duration_since(due)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            wall: self.clock.system_now(),
        }
    }

    /// For a task that goes by the calendar.
    pub(super) fn moment_for(&self, entry: &dyn Entry) -> Option<Moment> {
        entry.head().has(flag::CALENDAR).then(|| self.moment())
    }

    /// Where a task is filed that goes by the calendar and is due at this instant, as far as can be told
    /// now.
    pub(super) fn tick_by_calendar(&self, moment: &Moment, at: Instant, jitter: Duration) -> u64 {
        match moment.now.checked_add(RECHECK) {
            // Only a look at the calendar.
            Some(latest) if latest < at => self.tick_of(latest, Duration::ZERO),
            _ => self.tick_of(at, jitter),
        }
    }

    /// The tick since which a task is due that has been taken out of the wheel, where it was filed for
    /// `tick`.
    ///
    /// # Errors
    /// It is not due by the wall clock; the tick at which it is to look again.
    pub(super) fn due_by_calendar(&self, entry: &dyn Entry, tick: u64) -> Result<u64, u64> {
        let Some(moment) = self.moment_for(entry) else {
            return Ok(tick);
        };
        let guard = entry.lock();
        let Some(extra) = guard.as_ref().filter(|extra| extra.failed == 0) else {
            return Ok(tick);
        };
        let Some(due) = extra.plan.as_ref().and_then(Plan::wall) else {
            return Ok(tick);
        };
        let at = moment.instant_of(due);
        if due > moment.wall {
            let jitter = self.options(Some(extra)).jitter;
            return Err(self.tick_by_calendar(&moment, at, jitter));
        }
        // It was filed to look again, perhaps long before it was due.
        let now = self.ticks.at(moment.now);
        Ok(tick.max(self.ticks.at_or_after(at).min(now)))
    }
}
