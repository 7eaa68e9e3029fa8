//! How a group ended, as a whole and service by service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::GroupFailed;
use crate::board::State;

/// How a group ended. A cheap clone; everybody who waits for one run gets the same.
///
/// Displayed, it is the line that the group writes last, without the line's end:
///
/// ```
/// use wheelhouse_servicegroup::{Outcome, Preset, ServiceGroup};
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let report = ServiceGroup::builder().preset(Preset::Test).build()?.run_blocking();
/// assert_eq!(report.outcome(), Outcome::Stopped);
/// assert!(report.to_string().starts_with(
///     "report exit_code=0 outcome=stopped reason=all_ended failed=- abandoned=- total_ms="
/// ));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Report {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    outcome: Outcome,
    reason: Reason,
    exit_code: i32,
    services: Vec<ServiceReport>,
    hooks: Vec<HookReport>,
    problem: Option<String>,
    total: Duration,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Everything that was started has exited in time and without failure. Exit code 0.
    Stopped,
    /// It was stopped before the start, and nothing was started. Exit code 0.
    StoppedBeforeStart,
    /// A service or a hook failed, panicked or could not start. Exit code 1.
    Failed,
    /// A service or a hook was left behind, or the total is used up. Exit code 75.
    DeadlineMissed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Stopped => "stopped",
            Outcome::StoppedBeforeStart => "stopped_before_start",
            Outcome::Failed => "failed",
            Outcome::DeadlineMissed => "deadline_missed",
        })
    }
}

/// Why a group stopped: the first reason counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A signal, by its number.
    Signal(i32),
    /// [`GroupHandle::stop`](crate::GroupHandle::stop), or the group that this one is nested in.
    Handle,
    /// The named service ended, and its policy is to stop the group; or it could not start.
    Service(String),
    /// All services had ended.
    AllEnded,
    /// The future of the run was dropped, or the group was never run.
    Dropped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Signal(1) => f.write_str("sighup"),
            Reason::Signal(2) => f.write_str("sigint"),
            Reason::Signal(3) => f.write_str("sigquit"),
            Reason::Signal(15) => f.write_str("sigterm"),
            Reason::Signal(number) => write!(f, "signal:{number}"),
            Reason::Handle => f.write_str("handle"),
            Reason::Service(name) => write!(f, "service:{name}"),
            Reason::AllEnded => f.write_str("all_ended"),
            Reason::Dropped => f.write_str("dropped"),
        }
    }
}

/// How a service or a hook ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Exit {
    /// It returned `Ok`.
    Ended,
    /// It returned this error.
    Error(Arc<dyn std::error::Error + Send + Sync>),
    /// It panicked with this message.
    Panic(String),
    /// Its task was cancelled before it ended: the runtime or the run was dropped.
    Cancelled,
    /// It did not say that it is ready within the start timeout.
    StartTimeout(Duration),
}

impl Exit {
    /// Whether it is anything but [`Ended`](Exit::Ended).
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self, Exit::Ended)
    }

    /// The report of the nested group that failed, if it was one.
    #[must_use]
    pub fn nested(&self) -> Option<&Report> {
        match self {
            Exit::Error(error) => error.downcast_ref().map(GroupFailed::report),
            _ => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Ended => f.write_str("ended"),
            Exit::Error(error) => error.fmt(f),
            Exit::Panic(message) => write!(f, "panicked: {message}"),
            Exit::Cancelled => f.write_str("cancelled"),
            Exit::StartTimeout(limit) => write!(
                f,
                "not ready within {limit:?}; call `ready()`, or give it a longer `start_timeout`"
            ),
        }
    }
}

/// How one service ended, or where it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServiceReport {
    /// The name that it was added with.
    pub name: String,
    /// Its level: 0 is started first and stopped last.
    pub level: usize,
    /// Its last state; `None` when it was never started.
    pub state: Option<State>,
    /// From its first start until it said that it is ready.
    pub ready_after: Option<Duration>,
    /// From the stop request until it ended; `None` when it ended before, or never.
    pub stopped_after: Option<Duration>,
    /// How it ended; `None` when it was not started or is left behind.
    pub exit: Option<Exit>,
    /// How often it was restarted.
    pub restarts: u32,
    /// Connections, or messages in hand, that it cut at its deadline.
    pub cut: u64,
    /// The error was one that the policy ignores.
    pub(crate) ignored: bool,
}

/// How a hook ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HookReport {
    /// The name that it was added with.
    pub name: String,
    /// How it ended; `None` when its time was up before.
    pub exit: Option<Exit>,
}

/// What a report is made of.
pub(crate) struct Parts {
    pub(crate) reason: Reason,
    pub(crate) services: Vec<ServiceReport>,
    pub(crate) hooks: Vec<HookReport>,
    /// Why the group itself could not go on.
    pub(crate) problem: Option<String>,
    pub(crate) total: Duration,
    pub(crate) missed: bool,
    pub(crate) before_start: bool,
    pub(crate) deadline_exit_code: i32,
}

impl Report {
    pub(crate) fn new(parts: Parts) -> Report {
        let Parts {
            reason,
            services,
            hooks,
            problem,
            total,
            ..
        } = parts;
        let abandoned = services.iter().any(|it| it.state == Some(State::Abandoned))
            || hooks.iter().any(|it| it.exit.is_none());
        let failed = problem.is_some()
            || services
                .iter()
                .any(|it| it.state == Some(State::Failed) && !it.ignored)
            || hooks
                .iter()
                .any(|it| it.exit.as_ref().is_some_and(Exit::is_failure));
        let (outcome, exit_code) = match () {
            () if abandoned || parts.missed => (Outcome::DeadlineMissed, parts.deadline_exit_code),
            () if failed => (Outcome::Failed, 1),
            () if parts.before_start => (Outcome::StoppedBeforeStart, 0),
            () => (Outcome::Stopped, 0),
        };
        Report {
            inner: Arc::new(Inner {
                outcome,
                reason,
                exit_code,
                services,
                hooks,
                problem,
                total,
            }),
        }
    }

    /// What the run came to.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// Why the group stopped.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.inner.reason
    }

    /// What the process should exit with: 0, 1, or 75 (or what
    /// [`deadline_exit_code`](crate::GroupBuilder::deadline_exit_code) says), by the
    /// [`outcome`](Self::outcome).
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        self.inner.exit_code
    }

    /// The services in the order in which they were added.
    #[must_use]
    pub fn services(&self) -> &[ServiceReport] {
        &self.inner.services
    }

    /// The named service.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&ServiceReport> {
        self.inner.services.iter().find(|it| it.name == name)
    }

    /// The hooks that ran, wrap-up first.
    #[must_use]
    pub fn hooks(&self) -> &[HookReport] {
        &self.inner.hooks
    }

    /// Why the group itself could not go on: no thread for signals, the run was dropped.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.inner.problem.as_deref()
    }

    /// From the stop request to the end.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.inner.total
    }

    /// The names of what failed, with how it did. Services of nested groups are `group/service`,
    /// hooks are `hook:name`.
    #[must_use]
    pub fn failed(&self) -> Vec<(String, Exit)> {
        let mut all = Vec::new();
        for service in &self.inner.services {
            let Some(exit) = service.exit.as_ref().filter(|it| it.is_failure()) else {
                continue;
            };
            match exit.nested() {
                Some(nested) => all.extend(
                    nested
                        .failed()
                        .into_iter()
                        .map(|(name, exit)| (format!("{}/{name}", service.name), exit)),
                ),
                None => all.push((service.name.clone(), exit.clone())),
            }
        }
        let hooks = self.inner.hooks.iter().filter_map(|it| {
            let exit = it.exit.as_ref().filter(|it| it.is_failure())?;
            Some((format!("hook:{}", it.name), exit.clone()))
        });
        all.extend(hooks);
        all
    }

    /// The names of what was left behind, written as in [`failed`](Self::failed).
    #[must_use]
    pub fn abandoned(&self) -> Vec<String> {
        let mut all = Vec::new();
        for service in &self.inner.services {
            if service.state != Some(State::Abandoned) {
                continue;
            }
            match service.exit.as_ref().and_then(Exit::nested) {
                Some(nested) if !nested.abandoned().is_empty() => all.extend(
                    nested
                        .abandoned()
                        .iter()
                        .map(|name| format!("{}/{name}", service.name)),
                ),
                _ => all.push(service.name.clone()),
            }
        }
        let hooks = self.inner.hooks.iter().filter(|it| it.exit.is_none());
        all.extend(hooks.map(|it| format!("hook:{}", it.name)));
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<String>| match names.is_empty() {
            true => "-".to_owned(),
            false => names.join(","),
        };
        let failed = self.failed().into_iter().map(|(name, _)| name).collect();
        write!(
            f,
            "report exit_code={} outcome={} reason={} failed={} abandoned={} total_ms={}",
            self.inner.exit_code,
            self.inner.outcome,
            self.inner.reason,
            list(failed),
            list(self.abandoned()),
            self.inner.total.as_millis()
        )
    }
}
