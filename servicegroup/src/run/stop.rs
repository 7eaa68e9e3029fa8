//! The phases of a stop, in order, each within its time.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Run, after};
use crate::board::State;
use crate::plan::Plan;
use crate::report::Reason;
use crate::{hooks, trace};

/// What an inner group leaves of its outer deadline, so that it can say itself what it missed:
/// a twentieth, at most this.
const NESTED_MARGIN: Duration = Duration::from_millis(50);

impl Run {
    /// Stops what has been started, after somebody has asked for that.
    pub(super) async fn stop(&mut self, was_up: bool) {
        let begun = self.shared().begun().unwrap_or_else(Instant::now);
        let plan = self.plan_from(begun);
        for level in 0..self.begun {
            let deadline = after(begun, plan.level(level));
            for seat in &self.seats[self.levels[level].clone()] {
                *seat.line.deadline.lock() = Some(deadline);
            }
        }
        if was_up && !plan.drain.is_zero() && !self.ended_by_itself() {
            trace::phase("drain", self.drain(after(begun, plan.drain))).await;
        }
        let wrap_up = std::mem::take(&mut self.settings.wrap_up);
        if !wrap_up.is_empty() {
            let deadline = after(Instant::now(), plan.wrap_up);
            let reports = trace::phase("wrap_up", hooks::run(wrap_up, deadline)).await;
            self.shared().hooks.lock().extend(reports);
        }
        trace::phase("stop", self.stop_levels(begun, &plan)).await;
        let after_stop = std::mem::take(&mut self.settings.after_stop);
        if !after_stop.is_empty() {
            let cap = after(Instant::now(), plan.after_stop);
            let deadline = cap.min(after(begun, plan.total));
            let reports = trace::phase("after_stop", hooks::run(after_stop, deadline)).await;
            self.shared().hooks.lock().extend(reports);
        }
    }

    /// The plan, within what the outer group has left for this one.
    fn plan_from(&self, begun: Instant) -> Plan {
        match self.outer.as_ref().and_then(|outer| outer.deadline()) {
            None => self.plan.clone(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(begun);
                self.plan.within(left - (left / 20).min(NESTED_MARGIN))
            }
        }
    }

    fn ended_by_itself(&self) -> bool {
        let asked = self.shared().asked.value();
        asked.is_some_and(|it| it.reason == Reason::AllEnded)
    }

    pub(super) fn enter_draining(&self) {
        for service in self.started() {
            self.shared().board.enter(service, State::Draining);
        }
    }

    fn started(&self) -> std::ops::Range<usize> {
        0..self.levels[..self.begun].last().map_or(0, |it| it.end)
    }

    async fn drain(&self, until: Instant) {
        self.enter_draining();
        let idle = async {
            if !self.settings.drain_ends_when_idle {
                std::future::pending::<()>().await;
            }
            self.shared().busy.wait().await;
        };
        tokio::select! {
            biased;
            () = self.all_ended() => {}
            () = sleep_until(until) => {}
            () = idle => {}
        }
    }

    /// Stops the levels, the last first (I1, I2).
    async fn stop_levels(&self, begun: Instant, plan: &Plan) {
        for level in (0..self.begun).rev() {
            let now = Instant::now();
            let deadline = after(begun, plan.level(level));
            let mut waiting: Vec<_> = self.levels[level]
                .clone()
                .map(|service| {
                    let cap = self.seats[service].cap.map(|cap| after(now, cap));
                    (cap.map_or(deadline, |cap| cap.min(deadline)), service)
                })
                .collect();
            for &(deadline, service) in &waiting {
                let line = &self.seats[service].line;
                *line.deadline.lock() = Some(deadline);
                self.shared().board.enter(service, State::Stopping);
                line.stopping.cancel();
            }
            // In the order of their deadlines, so that none is abandoned late.
            waiting.sort();
            for (deadline, service) in waiting {
                let seat = &self.seats[service];
                if timeout_at(deadline, seat.line.done.wait()).await.is_ok() {
                    continue;
                }
                // It may have ended at this moment: then the board says so, and it has.
                self.shared().board.enter(service, State::Abandoned);
                if let Some(task) = &seat.task {
                    task.abort();
                }
            }
        }
    }
}
