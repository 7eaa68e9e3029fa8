//! How the time of a stop is shared out: pure arithmetic, in durations from the stop request on.
//!
//! ```text
//!  0 ──── drain ──── wrap-up ──── level 2 ─── level 1 ─── level 0 ──── after-stop ──── total
//!                                         ▲           ▲           ▲
//!                      reserves of 0 and 1 kept   that of 0   levels' deadline
//! ```
//!
//! Level k must be done by `total - after_stop - Σ reserves of the levels below k`. What a level does
//! not use goes to the next ones; what it overruns it takes from nobody.

use std::time::Duration;

use crate::BuildError;

const HOOK_CAP: Duration = Duration::from_secs(1);

/// What the builder has been told about time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) total: Duration,
    pub(crate) drain: Duration,
    pub(crate) wrap_up: Option<Duration>,
    pub(crate) after_stop: Option<Duration>,
}

/// When each phase of a stop has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) total: Duration,
    pub(crate) drain: Duration,
    pub(crate) wrap_up: Duration,
    pub(crate) after_stop: Duration,
    /// What is left for all levels together.
    left: Duration,
    /// When each level has to be done, by level.
    levels: Vec<Duration>,
}

impl Plan {
    /// `reserves` are those asked for, by level. The others share what is left alike.
    pub(crate) fn new(
        times: &Times,
        has_wrap_up: bool,
        has_after_stop: bool,
        reserves: &[Option<Duration>],
    ) -> Result<Plan, BuildError> {
        let total = times.total;
        if total.is_zero() {
            return Err(BuildError::new("total", "0ns", "more than 0ns"));
        }
        let cap = |asked: Option<Duration>, hooks, default| match hooks {
            true => asked.unwrap_or(default),
            false => Duration::ZERO,
        };
        let half = total.saturating_sub(times.drain) / 2;
        let wrap_up = cap(times.wrap_up, has_wrap_up, HOOK_CAP.min(half));
        let after_stop = cap(times.after_stop, has_after_stop, HOOK_CAP.min(total / 10));

        let mut left = total;
        for (argument, part) in [
            ("drain", times.drain),
            ("wrap_up_cap", wrap_up),
            ("after_stop_cap", after_stop),
        ] {
            if part >= left {
                let allowed =
                    format!("less than {left:?}, which is left of the total of {total:?}");
                return Err(BuildError::new(argument, format!("{part:?}"), allowed));
            }
            left -= part;
        }

        let asked = reserves
            .iter()
            .flatten()
            .fold(Duration::ZERO, |sum, reserve| sum.saturating_add(*reserve));
        let sharing = reserves.iter().filter(|it| it.is_none()).count();
        let mut plan = Plan {
            total,
            drain: times.drain,
            wrap_up,
            after_stop,
            left,
            levels: Vec::new(),
        };
        let share = plan.share(asked, sharing)?;

        let mut below = Duration::ZERO;
        for reserve in reserves {
            plan.levels.push((total - after_stop).saturating_sub(below));
            below += reserve.unwrap_or(share);
        }
        Ok(plan)
    }

    /// What each of `sharing` levels gets when others have asked for `asked` in all.
    pub(crate) fn share(&self, asked: Duration, sharing: usize) -> Result<Duration, BuildError> {
        let left = self.left;
        let parts = u32::try_from(sharing.max(1)).unwrap_or(u32::MAX);
        let share = left.saturating_sub(asked) / parts;
        if asked > left || (sharing > 0 && share.is_zero()) {
            let allowed = format!(
                "what leaves each level some of the {left:?} that levels have of the total of {:?}",
                self.total
            );
            let value = format!("{asked:?} in all levels");
            return Err(BuildError::new("reserve", value, allowed));
        }
        Ok(share)
    }

    /// When `level` must be done.
    pub(crate) fn level(&self, level: usize) -> Duration {
        self.levels[level]
    }

    /// The same proportions within `total`, where that is less; without a drain, which is over.
    pub(crate) fn within(&self, total: Duration) -> Plan {
        let ratio = (total.as_secs_f64() / self.total.as_secs_f64()).min(1.0);
        let scaled = |part: Duration| part.mul_f64(ratio);
        Plan {
            total: self.total.min(total),
            drain: Duration::ZERO,
            wrap_up: scaled(self.wrap_up),
            after_stop: scaled(self.after_stop),
            left: scaled(self.left),
            levels: self.levels.iter().map(|&done| scaled(done)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn times(total: u64, drain: u64) -> Times {
        Times {
            total: seconds(total),
            drain: seconds(drain),
            wrap_up: None,
            after_stop: None,
        }
    }

    #[test]
    fn levels_share_what_the_other_phases_leave() {
        let plan = Plan::new(&times(26, 4), true, true, &[None; 4]).unwrap();
        assert_eq!(
            (plan.wrap_up, plan.after_stop),
            (HOOK_CAP, Duration::from_secs(1))
        );
        let done: Vec<_> = (0..4).map(|level| plan.level(level)).collect();
        assert_eq!(done, [25, 20, 15, 10].map(seconds));
    }

    #[test]
    fn without_hooks_there_is_no_time_for_them() {
        let mut given = times(10, 0);
        given.wrap_up = Some(seconds(3));
        let plan = Plan::new(&given, false, false, &[None, None]).unwrap();
        assert_eq!((plan.wrap_up, plan.after_stop), Default::default());
        assert_eq!([plan.level(0), plan.level(1)], [10, 5].map(seconds));
    }

    #[test]
    fn after_stop_takes_at_most_a_tenth() {
        let plan = Plan::new(&times(4, 0), false, true, &[]).unwrap();
        assert_eq!(plan.after_stop, Duration::from_millis(400));
    }

    #[test]
    fn by_default_wrap_up_takes_at_most_half_of_what_the_drain_leaves() {
        let plan = Plan::new(&times(6, 5), true, false, &[None]).unwrap();
        assert_eq!(plan.wrap_up, Duration::from_millis(500));
    }

    #[test]
    fn what_one_level_asks_for_the_others_share_no_more() {
        let plan = Plan::new(&times(10, 0), false, false, &[None, Some(seconds(6)), None]).unwrap();
        let done: Vec<_> = (0..3).map(|level| plan.level(level)).collect();
        assert_eq!(done, [10, 8, 2].map(seconds));
    }

    #[test]
    fn plans_that_do_not_fit_are_refused() {
        let refused = |times: &Times, reserves: &[Option<Duration>]| {
            Plan::new(times, true, true, reserves)
                .unwrap_err()
                .argument()
        };
        assert_eq!(refused(&times(0, 0), &[]), "total");
        assert_eq!(refused(&times(5, 5), &[]), "drain");
        let mut greedy = times(6, 5);
        greedy.wrap_up = Some(seconds(1));
        assert_eq!(refused(&greedy, &[]), "wrap_up_cap");
        let mut greedy = times(6, 0);
        greedy.after_stop = Some(seconds(5));
        assert_eq!(refused(&greedy, &[]), "after_stop_cap");
        assert_eq!(refused(&times(9, 0), &[Some(seconds(9))]), "reserve");
        assert_eq!(refused(&times(9, 0), &[Some(Duration::MAX); 2]), "reserve");
        let mut exact = times(9, 0);
        exact.after_stop = Some(seconds(1));
        assert_eq!(refused(&exact, &[Some(seconds(7)), None]), "reserve");
    }

    #[test]
    fn any_total_is_legal() {
        let mut longest = times(0, 0);
        longest.total = Duration::MAX;
        let plan = Plan::new(&longest, true, true, &[None; 3]).unwrap();
        assert!(plan.level(2) > seconds(1 << 40));
    }

    #[test]
    fn a_nested_plan_keeps_its_proportions() {
        let plan = Plan::new(&times(26, 4), true, true, &[None; 4]).unwrap();
        let scaled = plan.within(seconds(13));
        assert_eq!((scaled.total, scaled.drain), (seconds(13), Duration::ZERO));
        assert_eq!(scaled.level(1), seconds(10));
        assert_eq!(plan.within(seconds(100)).level(1), plan.level(1));
    }
}
