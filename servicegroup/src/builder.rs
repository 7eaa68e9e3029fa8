//! What a group is built with: presets, times, hooks, signals.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::group::ServiceGroup;
use crate::hooks::{Hook, ReloadHook};
use crate::plan::{Plan, Times};
use crate::service::check_name;
use crate::signals::{SignalSource, system};
use crate::{BuildError, Error};

/// Times that suit a surrounding. What the builder is told besides counts more, in any order.
///
/// | preset | drain | total | lines on standard error, exit at the deadline |
/// |---|---|---|---|
/// | `Kubernetes` | 5 s | 25 s | yes |
/// | `Systemd` | 0 | 80 s | yes |
/// | `GoZero` | 0, wrap-up 1 s | 5.5 s | yes |
/// | `Test` | 0 | 1 s | no |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Preset {
    /// The default: pods leave the endpoints while they drain, and have 30 s by default.
    #[default]
    Kubernetes,
    /// `systemd` sends SIGKILL after 90 s by default.
    Systemd,
    /// What go-zero's `proc` package does by default.
    GoZero,
    /// For tests inside one process.
    Test,
}

/// Builds a [`ServiceGroup`].
#[must_use = "a builder does nothing until it is built"]
pub struct GroupBuilder {
    preset: Preset,
    total: Option<Duration>,
    drain: Option<Duration>,
    wrap_up: Option<Duration>,
    after_stop: Option<Duration>,
    start_timeout: Duration,
    exit_at_deadline: Option<bool>,
    log_to_stderr: Option<bool>,
    signals: Option<Box<dyn SignalSource>>,
    #[cfg(feature = "systemd")]
    notify_systemd: Option<bool>,
    settings: Settings,
}

/// What a run needs of it.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) drain_ends_when_idle: bool,
    pub(crate) exit_at_deadline: bool,
    pub(crate) deadline_exit_code: i32,
    #[cfg(feature = "systemd")]
    pub(crate) notify_systemd: bool,
    pub(crate) wrap_up: Vec<Hook>,
    pub(crate) after_stop: Vec<Hook>,
    pub(crate) reload: Vec<ReloadHook>,
}

impl GroupBuilder {
    pub(crate) fn new() -> Self {
        GroupBuilder {
            preset: Preset::default(),
            total: None,
            drain: None,
            wrap_up: None,
            after_stop: None,
            start_timeout: Duration::from_secs(30),
            exit_at_deadline: None,
            log_to_stderr: None,
            signals: Some(system()),
            #[cfg(feature = "systemd")]
            notify_systemd: None,
            settings: Settings {
                drain_ends_when_idle: false,
                exit_at_deadline: false,
                deadline_exit_code: 75,
                #[cfg(feature = "systemd")]
                notify_systemd: false,
                wrap_up: Vec::new(),
                after_stop: Vec::new(),
                reload: Vec::new(),
            },
        }
    }

    /// Where the group runs.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// The hard deadline, from the stop request to the end of everything: more than 0.
    pub fn total(mut self, total: Duration) -> Self {
        self.total = Some(total);
        self
    }

    /// How long everything goes on serving after the stop request, with readiness false: the time
    /// that a load balancer takes to look elsewhere. It is waited for in full, unless all services
    /// have ended.
    pub fn drain(mut self, delay: Duration) -> Self {
        self.drain = Some(delay);
        self
    }

    /// Lets the drain end as soon as no service is [busy](crate::ServiceContext::busy). Off by
    /// default: who is idle for a moment may still be sent work.
    pub fn drain_ends_when_idle(mut self, yes: bool) -> Self {
        self.settings.drain_ends_when_idle = yes;
        self
    }

    /// How long the wrap-up hooks may take. By default 1 s, at most half of what the drain leaves of
    /// the total; 0 where there are none.
    pub fn wrap_up_cap(mut self, cap: Duration) -> Self {
        self.wrap_up = Some(cap);
        self
    }

    /// How long the after-stop hooks may take. By default 1 s, at most a tenth of the total; 0 where
    /// there are none.
    pub fn after_stop_cap(mut self, cap: Duration) -> Self {
        self.after_stop = Some(cap);
        self
    }

    /// Calls `hook` between the drain and the stop of the first level. Hooks run side by side, once
    /// for each run that has begun to start services.
    pub fn on_wrap_up<R>(
        mut self,
        name: impl Into<String>,
        hook: impl FnOnce() -> R + Send + 'static,
    ) -> Self
    where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.settings.wrap_up.push(Hook::new(name.into(), hook));
        self
    }

    /// Calls `hook` when all levels have been stopped, as [`on_wrap_up`](Self::on_wrap_up) does.
    pub fn on_after_stop<R>(
        mut self,
        name: impl Into<String>,
        hook: impl FnOnce() -> R + Send + 'static,
    ) -> Self
    where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.settings.after_stop.push(Hook::new(name.into(), hook));
        self
    }

    /// Calls `hook` on SIGHUP and on [`GroupHandle::reload`](crate::GroupHandle::reload), one hook
    /// after the other. What fails or panics is written down and stops nothing. Without such a hook
    /// SIGHUP is left alone.
    pub fn on_reload<R>(
        mut self,
        name: impl Into<String>,
        hook: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self
    where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.settings
            .reload
            .push(ReloadHook::new(name.into(), hook));
        self
    }

    /// How long a service may take until it says that it is ready, 30 s by default: more than 0.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Where signals come from: [`OsSignals`](crate::OsSignals) by default on Unix,
    /// [`CtrlC`](crate::CtrlC) elsewhere.
    pub fn signals(mut self, source: impl SignalSource) -> Self {
        self.signals = Some(Box::new(source));
        self
    }

    /// Listens to no signals.
    pub fn without_signals(mut self) -> Self {
        self.signals = None;
        self
    }

    /// Whether the process is ended at the hard deadline, by a thread that nothing can hold up. If
    /// not, the run returns at the deadline, as soon as the runtime lets it.
    pub fn exit_at_deadline(mut self, yes: bool) -> Self {
        self.exit_at_deadline = Some(yes);
        self
    }

    /// The exit code for a missed deadline, 75 by default (`EX_TEMPFAIL`): 1 to 255.
    pub fn deadline_exit_code(mut self, code: i32) -> Self {
        self.settings.deadline_exit_code = code;
        self
    }

    /// Whether a line is written on standard error for each change of a service's state, and for the
    /// report.
    pub fn log_to_stderr(mut self, yes: bool) -> Self {
        self.log_to_stderr = Some(yes);
        self
    }

    /// Whether systemd is told of readiness, reloads and the stop, where `NOTIFY_SOCKET` says how:
    /// by default with [`Preset::Systemd`].
    #[cfg(feature = "systemd")]
    pub fn notify_systemd(mut self, yes: bool) -> Self {
        self.notify_systemd = Some(yes);
        self
    }

    /// A group without services.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range or the phases do not fit into the total.
    pub fn build(self) -> Result<ServiceGroup, BuildError> {
        let (total, drain) = match self.preset {
            Preset::Kubernetes => (Duration::from_secs(25), Duration::from_secs(5)),
            Preset::Systemd => (Duration::from_secs(80), Duration::ZERO),
            Preset::GoZero => (Duration::from_millis(5500), Duration::ZERO),
            Preset::Test => (Duration::from_secs(1), Duration::ZERO),
        };
        let times = Times {
            total: self.total.unwrap_or(total),
            drain: self.drain.unwrap_or(drain),
            wrap_up: self.wrap_up,
            after_stop: self.after_stop,
        };
        let mut settings = self.settings;
        let plan = Plan::new(
            &times,
            !settings.wrap_up.is_empty(),
            !settings.after_stop.is_empty(),
            &[],
        )?;
        if self.start_timeout.is_zero() {
            return Err(BuildError::new("start_timeout", "0ns", "more than 0ns"));
        }
        if !(1..=255).contains(&settings.deadline_exit_code) {
            let value = settings.deadline_exit_code.to_string();
            return Err(BuildError::new("deadline_exit_code", value, "1 to 255"));
        }
        let once = settings.wrap_up.iter().chain(&settings.after_stop);
        let names = once
            .map(Hook::name)
            .chain(settings.reload.iter().map(ReloadHook::name));
        for name in names {
            check_name(name)?;
        }
        let lasting = self.preset != Preset::Test;
        settings.exit_at_deadline = self.exit_at_deadline.unwrap_or(lasting);
        #[cfg(feature = "systemd")]
        {
            let by_preset = self.preset == Preset::Systemd;
            settings.notify_systemd = self.notify_systemd.unwrap_or(by_preset);
        }
        let log_to_stderr = self.log_to_stderr.unwrap_or(lasting);
        Ok(ServiceGroup::new(
            times,
            plan,
            self.start_timeout,
            self.signals,
            log_to_stderr,
            settings,
        ))
    }
}

impl fmt::Debug for GroupBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBuilder")
            .field("preset", &self.preset)
            .field("total", &self.total)
            .field("drain", &self.drain)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
