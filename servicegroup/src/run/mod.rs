//! A run: starting the levels, waiting for a reason to stop, stopping them.
//!
//! ```text
//!  start ──► serve ──► drain ──► wrap-up ──► levels, last first ──► after-stop ──► report
//!    └──── a start failed, or somebody asked ────►┘
//! ```
//!
//! Ground rules: the driver, one future, does all of this and waits for one service after the other,
//! each by its own completion. Services run as tasks that report by themselves.
//!
//! - I1: a level is started when each service of the level before is up, and stopped when each
//!   service of the level after has ended or was abandoned.
//! - I2: each service that was started gets its token cancelled once, in its turn.
//! - I3: nothing is awaited without a deadline once the stop was asked for.
//! - I4: whoever claims the end, and only that one, writes the last line.

mod start;
mod stop;
mod supervise;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::builder::Settings;
use crate::context::Line;
use crate::group::{End, ServiceGroup};
use crate::inside::Inside;
use crate::plan::Plan;
use crate::report::{Exit, Reason, Report};
use crate::service::Member;
use crate::shared::Shared;
use crate::signals::{Listening, SignalSink, SignalSource};
use crate::{ServiceContext, hooks, meters, trace, watchdog};

/// What the runtime's timers may be late by without anybody having missed a deadline.
const GRAIN: Duration = Duration::from_millis(2);

/// A far future that clocks can count to.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

pub(crate) struct Run {
    plan: Plan,
    levels: Vec<Range<usize>>,
    seats: Vec<Seat>,
    settings: Settings,
    /// Until somebody listens. The lock is only there to share the run between threads.
    source: Mutex<Option<Box<dyn SignalSource>>>,
    inside: Arc<Inside>,
    /// The service of the outer group that this one is.
    outer: Option<ServiceContext>,
    /// Levels that services have been started of.
    begun: usize,
    // Below `seats`: the tasks are dropped first, then the end is told.
    end: End,
}

/// One service, from the driver's side.
struct Seat {
    name: Arc<str>,
    cap: Option<Duration>,
    start_timeout: Duration,
    line: Arc<Line>,
    /// Until it is started. The lock is only there to share seats between threads.
    member: Mutex<Option<Member>>,
    task: Option<AbortHandle>,
}

/// What a supervisor of the process wants to know.
#[derive(Clone, Copy)]
enum Moment {
    Ready,
    Reloading,
    Stopping,
}

/// What listens and watches while services run.
struct Guards {
    signals: Option<Listening>,
    watchdog: Option<std::thread::JoinHandle<()>>,
}

impl Run {
    pub(crate) fn new(group: ServiceGroup, outer: Option<ServiceContext>) -> Self {
        let reserves: Vec<_> = group.levels.iter().map(|level| level.reserve).collect();
        let plan = Plan::new(
            &group.times,
            !group.settings.wrap_up.is_empty(),
            !group.settings.after_stop.is_empty(),
            &reserves,
        )
        .expect("each level was refused that does not fit");

        let mut levels = Vec::with_capacity(group.levels.len());
        let mut seats = Vec::new();
        for level in group.levels {
            let first = seats.len();
            seats.extend(level.members.into_iter().map(|member| Seat {
                name: member.name.as_str().into(),
                cap: member.cap,
                start_timeout: member.start_timeout.unwrap_or(group.start_timeout),
                line: Line::new(),
                member: Mutex::new(Some(member)),
                task: None,
            }));
            levels.push(first..seats.len());
        }
        Run {
            plan,
            levels,
            seats,
            settings: group.settings,
            source: Mutex::new(group.signals),
            inside: Inside::enter(group.end.shared.id),
            outer,
            begun: 0,
            end: group.end,
        }
    }

    pub(crate) async fn go(mut self) -> Report {
        if self.shared().asked.is_set() {
            return self.finish(None, true).await;
        }
        self.end.has_begun = true;
        let guards = match self.guard() {
            Ok(guards) => Some(guards),
            Err(error) => {
                *self.shared().problem.lock() = Some(format!("cannot listen or watch: {error}"));
                self.shared().ask(Reason::Service("group".into()));
                return self.finish(None, false).await;
            }
        };
        trace::phase("start", self.start()).await;
        let was_up = !self.shared().asked.is_set();
        if was_up {
            self.shared().set_up();
            if let Some(outer) = &self.outer {
                outer.ready();
            }
            self.tell(Moment::Ready);
            self.serve().await;
        }
        self.tell(Moment::Stopping);
        self.stop(was_up).await;
        self.finish(guards, false).await
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.end.shared
    }

    fn guard(&mut self) -> std::io::Result<Guards> {
        let shared = self.end.shared.clone();
        let sink = SignalSink::new(shared.clone(), !self.settings.reload.is_empty());
        // The watchdog last: it ends only with a request to stop.
        let signals = match self.source.get_mut().take() {
            Some(source) => Some(source.listen(sink)?),
            None => None,
        };
        let watchdog = match self.settings.exit_at_deadline {
            true => Some(watchdog::spawn(shared, self.plan.total)?),
            false => None,
        };
        Ok(Guards { signals, watchdog })
    }

    /// Resolves once somebody has asked to stop. The outer group asks by this.
    async fn asked(&self) {
        let shared = self.shared();
        match &self.outer {
            None => _ = shared.asked.wait().await,
            Some(outer) => tokio::select! {
                biased;
                _ = shared.asked.wait() => {}
                () = outer.stopping() => { shared.ask(Reason::Handle); }
            },
        }
    }

    /// Runs until there is a reason to stop.
    async fn serve(&self) {
        let shared = self.shared();
        let reloads = async {
            loop {
                shared.reload.notified().await;
                self.tell(Moment::Reloading);
                for hook in &self.settings.reload {
                    let exit = hook.call().await;
                    if exit.is_failure() {
                        shared
                            .board
                            .write(&format!("reload hook={} error={exit:?}", hook.name()));
                    }
                }
                self.tell(Moment::Ready);
            }
        };
        let outer_drains = async {
            if let Some(outer) = &self.outer {
                outer.draining().await;
                self.enter_draining();
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = self.asked() => {}
            () = self.all_ended() => { shared.ask(Reason::AllEnded); }
            () = reloads => {}
            () = outer_drains => {}
            () = self.watchdog() => {}
        }
    }

    #[cfg(all(feature = "systemd", target_os = "linux"))]
    async fn watchdog(&self) {
        match self.settings.notify_systemd {
            true => crate::systemd::watchdog().await,
            false => std::future::pending().await,
        }
    }

    #[cfg(not(all(feature = "systemd", target_os = "linux")))]
    async fn watchdog(&self) {
        std::future::pending().await
    }

    /// Tells the supervisor of the process, if it is to be told.
    #[cfg(all(feature = "systemd", target_os = "linux"))]
    fn tell(&self, moment: Moment) {
        if !self.settings.notify_systemd {
            return;
        }
        match moment {
            Moment::Ready => crate::systemd::ready(),
            Moment::Reloading => crate::systemd::reloading(),
            Moment::Stopping => {
                let asked = self.shared().asked.value();
                let reason = asked.map_or_else(String::new, |it| it.reason.to_string());
                crate::systemd::stopping(&reason, self.plan.total);
            }
        }
    }

    #[cfg(not(all(feature = "systemd", target_os = "linux")))]
    fn tell(&self, _moment: Moment) {}

    async fn all_ended(&self) {
        for seat in &self.seats {
            seat.line.done.wait().await;
        }
    }

    /// Ends the run, unless the watchdog is about to end the process.
    async fn finish(&mut self, guards: Option<Guards>, before_start: bool) -> Report {
        let Guards { signals, watchdog } = guards.unwrap_or(Guards {
            signals: None,
            watchdog: None,
        });
        // Before anybody can hear of the end: from then on signals act by default.
        drop(signals);
        let shared = self.shared();
        if !shared.claim_end() {
            std::future::pending::<()>().await;
        }
        let missed = shared
            .begun()
            .is_some_and(|begun| begun.elapsed() > self.plan.total.saturating_add(GRAIN));
        let report = shared.report(missed, before_start);
        if self.outer.is_none() {
            shared.board.write(&report.to_string());
            meters::ended(&report);
        }
        // Only who has claimed the end sets it.
        let _ = shared.ended.set(report.clone());
        if let Some(watchdog) = watchdog {
            // It was woken by that, and has nothing left to wait for. It does not panic.
            let _ = watchdog.join();
        }
        report
    }
}

impl Drop for Run {
    /// What still runs when a run ends was abandoned. When it is dropped before, everything was.
    fn drop(&mut self) {
        let dropped = !self.shared().ended.is_set();
        for (service, seat) in self.seats.iter().enumerate() {
            if let Some(task) = &seat.task {
                task.abort();
                if dropped {
                    self.shared().board.end(service, Exit::Cancelled, false);
                }
            }
            // Those that were not started, whose destructors are code of others.
            hooks::let_go(seat.member.lock().take());
        }
        let Settings {
            wrap_up,
            after_stop,
            reload,
            ..
        } = &mut self.settings;
        wrap_up.drain(..).for_each(hooks::let_go);
        after_stop.drain(..).for_each(hooks::let_go);
        reload.drain(..).for_each(hooks::let_go);
        hooks::let_go(self.source.get_mut().take());
    }
}

/// `instant + time`, or a far future.
fn after(instant: Instant, time: Duration) -> Instant {
    instant
        .checked_add(time)
        .or_else(|| instant.checked_add(FAR))
        .unwrap_or(instant)
}
