//! Starting the levels in order.

use tokio::time::{Instant, timeout_at};

use super::supervise::{Supervisor, supervise};
use super::{Run, after};
use crate::ServiceContext;
use crate::report::{Exit, Reason};

impl Run {
    /// Starts one level after the other, until all are up or there is a reason to stop.
    pub(super) async fn start(&mut self) {
        for level in 0..self.levels.len() {
            if self.shared().asked.is_set() {
                return;
            }
            let services = self.levels[level].clone();
            self.begun = level + 1;
            for service in services.clone() {
                self.spawn(service);
            }
            let began = Instant::now();
            // In the order of their deadlines, so that none is seen late.
            let mut waiting: Vec<_> = services
                .filter(|&service| !self.seats[service].line.up.is_set())
                .collect();
            waiting.sort_by_key(|&service| self.seats[service].start_timeout);
            for service in waiting {
                let seat = &self.seats[service];
                let deadline = after(began, seat.start_timeout);
                let up = tokio::select! {
                    biased;
                    () = self.asked() => return,
                    up = timeout_at(deadline, seat.line.up.wait()) => up,
                };
                if up.is_err() {
                    let exit = Exit::StartTimeout(seat.start_timeout);
                    self.shared().board.end(service, exit, false);
                    self.shared().ask(Reason::Service(seat.name.to_string()));
                    return;
                }
            }
        }
    }

    fn spawn(&mut self, service: usize) {
        let shared = self.end.shared.clone();
        let seat = &mut self.seats[service];
        let Some(member) = seat.member.get_mut().take() else {
            return;
        };
        let ctx = ServiceContext::new(
            seat.name.clone(),
            service,
            seat.line.clone(),
            shared.clone(),
        );
        let supervisor = Supervisor::new(shared, service, seat.line.clone());
        let task = tokio::spawn(
            self.inside
                .clone()
                .scope(supervise(supervisor, member, ctx)),
        );
        seat.task = Some(task.abort_handle());
    }
}
