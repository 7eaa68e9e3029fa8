//! The group: what it consists of, and running it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::{GroupBuilder, Settings};
use crate::error::GroupFailed;
use crate::plan::{Plan, Times};
use crate::run::Run;
use crate::service::{Level, Member};
use crate::shared::Shared;
use crate::signals::SignalSource;
use crate::{BuildError, Error, GroupHandle, Outcome, Report, Service, ServiceContext};

/// The services of a process, in levels. See the [crate's documentation](crate).
///
/// Dropped without being run it starts nothing, and whoever waits for its end is told so. A run that
/// is dropped drops its services, and is reported as failed.
#[must_use = "a group does nothing until it runs"]
pub struct ServiceGroup {
    pub(crate) times: Times,
    pub(crate) plan: Plan,
    pub(crate) start_timeout: Duration,
    pub(crate) signals: Option<Box<dyn SignalSource>>,
    pub(crate) settings: Settings,
    pub(crate) levels: Vec<Level>,
    names: HashSet<String>,
    /// What the levels with a reserve of their own have asked for, and how many have none.
    reserved: (Duration, usize),
    pub(crate) end: End,
}

impl ServiceGroup {
    /// The builder of a group.
    pub fn builder() -> GroupBuilder {
        GroupBuilder::new()
    }

    pub(crate) fn new(
        times: Times,
        plan: Plan,
        start_timeout: Duration,
        signals: Option<Box<dyn SignalSource>>,
        log_to_stderr: bool,
        settings: Settings,
    ) -> Self {
        let shared = Shared::new(log_to_stderr, settings.deadline_exit_code);
        ServiceGroup {
            times,
            plan,
            start_timeout,
            signals,
            settings,
            levels: Vec::new(),
            names: HashSet::new(),
            reserved: (Duration::ZERO, 0),
            end: End {
                shared,
                has_begun: false,
            },
        }
    }

    /// Adds a service as a level of its own, started after all that were added before and stopped
    /// before them.
    ///
    /// # Errors
    ///
    /// As [`add_level`](Self::add_level).
    pub fn add(
        &mut self,
        name: impl Into<String>,
        service: impl Service,
    ) -> Result<&mut Self, BuildError> {
        self.add_level(Member::new(name, service))
    }

    /// Adds a level: a [`Level`], a [`Member`], an array or a `Vec` of members. It is started when
    /// all services of the level before have said that they are ready, and stopped when all of the
    /// level after it have exited or used up their time.
    ///
    /// # Errors
    ///
    /// [`BuildError`], and nothing is added: for a name that is taken or not allowed, options out of
    /// range, and reserves that do not fit into the total.
    pub fn add_level(&mut self, level: impl Into<Level>) -> Result<&mut Self, BuildError> {
        let level = level.into();
        let mut new = HashSet::new();
        for member in &level.members {
            member.check()?;
            if self.names.contains(&member.name) || !new.insert(member.name.clone()) {
                let allowed = "names that no other service of the group has";
                return Err(BuildError::new("name", &member.name, allowed));
            }
        }
        let (asked, sharing) = self.reserved;
        let reserved = match level.reserve {
            Some(reserve) => (asked.saturating_add(reserve), sharing),
            None => (asked, sharing + 1),
        };
        self.plan.share(reserved.0, reserved.1)?;
        self.reserved = reserved;
        self.names.extend(new);
        let number = self.levels.len();
        for member in &level.members {
            self.end.shared.board.add(member.name.clone(), number);
        }
        self.levels.push(level);
        Ok(self)
    }

    /// A handle to stop the group with, and to wait for its end.
    #[must_use]
    pub fn handle(&self) -> GroupHandle {
        GroupHandle::new(self.end.shared.clone())
    }

    /// Starts the services in order, and returns when all have ended after something asked the group
    /// to stop. It needs a tokio runtime with time enabled.
    ///
    /// Dropping the future drops the services.
    pub async fn run(self) -> Report {
        Run::new(self, None).go().await
    }

    /// [`run`](Self::run), on a multi-threaded runtime made for it. Blocking tasks that are left
    /// behind do not hold it up.
    ///
    /// # Panics
    ///
    /// Panics within a runtime, and when the system gives no threads for one.
    pub fn run_blocking(self) -> Report {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("the system gives threads to a runtime");
        let report = runtime.block_on(self.run());
        runtime.shutdown_background();
        report
    }
}

/// Groups nest: the outer group's signals, deadline and drain hold for the inner one, whose services
/// are stopped in their own order when it is the inner group's turn.
///
/// In lines, its services are `name of the inner group/name of the service`. When it does not end
/// with exit code 0, it fails with [`GroupFailed`].
impl Service for ServiceGroup {
    async fn run(mut self, ctx: ServiceContext) -> Result<(), Error> {
        self.signals = None;
        self.settings.exit_at_deadline = false;
        #[cfg(feature = "systemd")]
        {
            self.settings.notify_systemd = false;
        }
        let shared = &self.end.shared;
        shared.board.nest_in(format!("{}/", ctx.path()));
        *shared.draining.lock() = ctx.draining_token().child_token();
        let report = Run::new(self, Some(ctx)).go().await;
        match report.outcome() {
            Outcome::Stopped | Outcome::StoppedBeforeStart => Ok(()),
            _ => Err(GroupFailed::new(report).into()),
        }
    }
}

impl fmt::Debug for ServiceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceGroup")
            .field("plan", &self.plan)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

/// Sees to it that whoever waits for the group's end is told of one.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) shared: Arc<Shared>,
    /// Whether services may have been started.
    pub(crate) has_begun: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.shared.claim_end() {
            return;
        }
        self.shared.ask(crate::Reason::Dropped);
        if self.has_begun {
            *self.shared.problem.lock() = Some("the run was dropped before its end".into());
        }
        let report = self.shared.report(false, !self.has_begun);
        // Only who has claimed the end sets it.
        let _ = self.shared.ended.set(report);
    }
}
