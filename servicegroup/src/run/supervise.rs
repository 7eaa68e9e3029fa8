//! The task of one service: it runs it, contains its panics, restarts it, and reports its end.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::board::State;
use crate::context::Line;
use crate::policy::{Intensity, Policies, Policy};
use crate::report::{Exit, Reason};
use crate::service::{Member, Start};
use crate::shared::Shared;
use crate::{ServiceContext, hooks, trace};

/// Reports the end of a service, also when its task is dropped.
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    service: usize,
    line: Arc<Line>,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, service: usize, line: Arc<Line>) -> Self {
        Supervisor {
            shared,
            service,
            line,
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Does nothing where the service has ended or was abandoned.
        if self.shared.board.end(self.service, Exit::Cancelled, false) {
            let name = self.shared.board.name(self.service);
            self.shared.ask(Reason::Service(name));
        }
        // The first end counts, and is set once: the driver sees it after the state.
        let _ = self.line.up.set(());
        let _ = self.line.done.set(());
    }
}

pub(super) async fn supervise(supervisor: Supervisor, member: Member, ctx: ServiceContext) {
    let Member {
        mut start,
        policies,
        ready_when_started,
        name,
        ..
    } = member;
    let Supervisor {
        shared, service, ..
    } = &supervisor;
    let service = *service;
    let mut intensity = Intensity::default();
    loop {
        shared.board.enter(service, State::Starting);
        if ready_when_started {
            ctx.ready();
        }
        let exit = {
            let ctx = ctx.clone();
            // Called inside, so that a panic before the first await is caught as well.
            let run = async {
                match &mut start {
                    Start::Again(make) => make(ctx).await,
                    Start::Once(make) => match make.take() {
                        Some(make) => make(ctx).await,
                        // Members that cannot be started again are refused a policy that would.
                        None => Err("this service can be started only once".into()),
                    },
                }
            };
            trace::service(&name, hooks::exit_of(run)).await
        };
        let policy = follow(&policies, &exit);
        let told = ctx.stopping_token().is_cancelled();
        let mut ignored = false;
        match policy {
            _ if told => ignored = policy == Policy::Ignore,
            Policy::Ignore => ignored = true,
            Policy::StopGroup => {}
            Policy::Restart(rule) => {
                if let Some(pause) = intensity.restart(Instant::now(), &rule)
                    && shared.board.enter(service, State::Restarting)
                {
                    let again = tokio::select! {
                        biased;
                        () = ctx.draining() => false,
                        () = sleep(pause) => true,
                    };
                    if again {
                        continue;
                    }
                }
            }
        }
        shared.board.end(service, exit, ignored);
        // Asked before the driver can see that the service is done: it knows why.
        if !told && !ignored {
            shared.ask(Reason::Service(name.clone()));
        }
        return;
    }
}

fn follow(policies: &Policies, exit: &Exit) -> Policy {
    match exit {
        Exit::Ended => policies.on_end,
        Exit::Panic(_) => policies.on_panic,
        _ => policies.on_error,
    }
}
