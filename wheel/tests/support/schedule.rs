//! A naive model of tasks that do not know each other: when each run begins, in milliseconds.

/// How a task repeats, in milliseconds; `Cron` in seconds that divide a minute, or minutes that
/// divide an hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    After(u64),
    Every(u64),
    AfterCompletion(u64),
    Cron(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Missed {
    Burst,
    Delay,
    Skip,
}

/// What a task is scheduled with.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) missed: Missed,
    pub(crate) grace: Option<u64>,
    pub(crate) coalesce: bool,
    pub(crate) immediately: bool,
    pub(crate) limit: Option<u64>,
    /// How long after the first run the last may be due.
    pub(crate) lasts: Option<u64>,
    /// How long its runs take, in turn.
    pub(crate) takes: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Phase {
    Waits { due: u64 },
    Runs { due: u64, began: u64, ends: u64 },
    Ended,
}

/// A run: when it began, which task it was of, and when it was due.
pub(crate) type Start = (u64, usize, u64);

#[derive(Debug)]
pub(crate) struct Task {
    plan: Plan,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    cancelled: bool,
    until: u64,
    /// Runs so far, and those that were too late.
    runs: u64,
    pub(crate) missed: u64,
}

impl Task {
    pub(crate) fn new(plan: Plan, now: u64) -> Self {
        let due = match plan.kind {
            _ if plan.immediately => now,
            // A delay of nothing ends at the next tick.
            Kind::After(delay) => now + delay.max(1),
            Kind::Every(period) | Kind::AfterCompletion(period) => now + period,
            Kind::Cron(seconds) => next_multiple(seconds, now),
        };
        Task {
            until: plan.lasts.map_or(u64::MAX, |lasts| due + lasts),
            plan,
            phase: Phase::Waits { due },
            paused: false,
            cancelled: false,
            runs: 0,
            missed: 0,
        }
    }

    /// The end of its last run that is allowed, in time.
    pub(crate) fn until(&self) -> Option<u64> {
        self.plan.lasts.map(|_| self.until)
    }

    /// When something happens next, if nobody interferes.
    pub(crate) fn next_event(&self) -> Option<u64> {
        match self.phase {
            Phase::Waits { due } if !self.paused => Some(due),
            Phase::Runs { ends, .. } => Some(ends),
            _ => None,
        }
    }

    /// The clock shows `now`: all that happens at that instant.
    pub(crate) fn settle(&mut self, number: usize, now: u64, starts: &mut Vec<Start>) {
        loop {
            match self.phase {
                Phase::Waits { due } if due <= now && !self.paused => {
                    let late = now - due;
                    if self.plan.grace.is_some_and(|grace| late > grace) {
                        self.missed += 1;
                        self.go_on(due, now, now, true);
                        continue;
                    }
                    starts.push((now, number, due));
                    let takes = &self.plan.takes;
                    let takes = takes[self.runs as usize % takes.len()];
                    self.runs += 1;
                    self.phase = Phase::Runs {
                        due,
                        began: now,
                        ends: now + takes,
                    };
                }
                Phase::Runs { due, began, ends } if ends <= now => {
                    self.go_on(due, began, now, false);
                }
                _ => return,
            }
        }
    }

    fn go_on(&mut self, due: u64, began: u64, ended: u64, missed: bool) {
        let late = began - due;
        let next = match self.plan.kind {
            Kind::After(_) => u64::MAX,
            Kind::AfterCompletion(delay) => ended + delay,
            Kind::Every(period) => match self.plan.missed {
                Missed::Delay if late > 5 => began + period,
                // The first of due + period, due + 2 periods … that is after the beginning.
                Missed::Skip if late > 5 => due + (late / period + 1) * period,
                _ => due + period,
            },
            Kind::Cron(seconds) => {
                let mut next = next_multiple(seconds, due);
                // Those that were missed too are left out, but for one that is within its grace.
                let needless = |next: u64| {
                    if missed {
                        self.plan.grace.is_none_or(|grace| began - next > grace)
                    } else {
                        true
                    }
                };
                while self.plan.coalesce && next <= began && needless(next) {
                    next = next_multiple(seconds, next);
                }
                next
            }
        };
        let over = self.plan.limit == Some(self.runs) && !missed;
        self.phase = if over || self.cancelled || next > self.until || next == u64::MAX {
            Phase::Ended
        } else {
            Phase::Waits { due: next }
        };
    }

    /// Whether it waits and has not ended by then, and so is moved.
    pub(crate) fn reschedule(&mut self, at: u64) -> bool {
        match &mut self.phase {
            Phase::Waits { due } if at <= self.until => {
                *due = at;
                true
            }
            _ => false,
        }
    }

    /// Whether it has not ended.
    pub(crate) fn set_paused(&mut self, paused: bool) -> bool {
        let lives = self.phase != Phase::Ended;
        self.paused = paused && lives;
        lives
    }

    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
        if let Phase::Waits { .. } = self.phase {
            self.phase = Phase::Ended;
        }
    }
}

/// The next whole multiple of so many seconds, strictly after `now`.
fn next_multiple(seconds: u64, now: u64) -> u64 {
    let period = seconds * 1000;
    (now / period + 1) * period
}
