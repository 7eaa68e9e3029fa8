//! What can be said of a task besides when it runs and what it does.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use super::error::Refusal;
use super::gate::Gate;
use super::plan::{MissedTick, Plan};
use super::retry::Retry;
use super::work::Work;

/// What a task does to one that carries the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Duplicate {
    /// The old task is cancelled. A run of it that is in progress goes on, and the new task waits
    /// for its place.
    #[default]
    Replace,
    /// The new task is refused.
    Refuse,
}

/// The name of a task that has none.
static NAMELESS: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("task"));

/// What was said of a task itself and not of all: one bit for each option that not every kind of task
/// can have.
pub(super) mod own {
    pub(in crate::scheduler) const DUPLICATE: u8 = 1;
    pub(in crate::scheduler) const RETRY: u8 = 2;
    pub(in crate::scheduler) const MISSED: u8 = 4;
    pub(in crate::scheduler) const COALESCE: u8 = 8;
    pub(in crate::scheduler) const LIMIT: u8 = 16;
}

/// When a task runs, as far as options depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Once,
    FixedRate,
    AfterCompletion,
    #[cfg(feature = "cron")]
    Cron,
}

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) name: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
    pub(super) duplicate: Duplicate,
    pub(super) retry: Option<Retry>,
    /// Bits of [`own`].
    pub(super) own: u8,
    pub(super) timeout: Option<Duration>,
    pub(super) max_concurrent: Option<usize>,
    /// The same for those that carry a key and do not say it.
    pub(super) max_concurrent_per_key: Option<usize>,
    pub(super) missed: MissedTick,
    pub(super) grace: Option<Duration>,
    pub(super) coalesce: bool,
    pub(super) jitter: Duration,
    pub(super) limit: Option<u64>,
    pub(super) until: Option<Instant>,
    pub(super) priority: i8,
    pub(super) immediately: bool,
    /// Places for the runs of a key, or for those of a task that may overlap itself.
    pub(super) gate: Option<Arc<Gate>>,
}

impl Options {
    pub(super) fn new() -> Self {
        Options {
            name: None,
            key: None,
            duplicate: Duplicate::Replace,
            retry: None,
            own: 0,
            timeout: None,
            max_concurrent: None,
            max_concurrent_per_key: None,
            missed: MissedTick::Burst,
            grace: None,
            coalesce: true,
            jitter: Duration::ZERO,
            limit: None,
            until: None,
            priority: 0,
            immediately: false,
            gate: None,
        }
    }

    /// Refuses what no task could do.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if let Some(retry) = &self.retry {
            retry.check()?;
        }
        if self.timeout == Some(Duration::ZERO) {
            return Err(Refusal::argument("timeout", Duration::ZERO, "more than 0"));
        }
        if self.max_concurrent == Some(0) {
            return Err(Refusal::argument("max_concurrent", 0, "1 or more"));
        }
        if self.max_concurrent_per_key == Some(0) {
            let argument = "max_concurrent_per_key";
            return Err(Refusal::argument(argument, 0, "1 or more"));
        }
        if self.limit == Some(0) {
            return Err(Refusal::argument("run_limit", 0, "1 or more"));
        }
        Ok(())
    }

    /// How many runs of the task's key, or of the task, may be in progress at once.
    pub(super) fn places(&self) -> usize {
        let of_key = self.max_concurrent_per_key.filter(|_| self.key.is_some());
        self.max_concurrent.or(of_key).unwrap_or(1)
    }

    /// Whether runs of a task that does this work by this plan may overlap. Those of blocking work do
    /// not: its closure runs on one thread at a time.
    pub(super) fn overlaps<W: Work>(&self, plan: &Plan) -> bool {
        self.places() > 1 && plan.may_overlap() && !W::BLOCKING
    }

    /// Whether the task may take the place of one that carries its key.
    pub(super) fn may_replace(&self) -> bool {
        self.key.is_some() && self.duplicate == Duplicate::Replace
    }

    /// Whether this was said of the task itself.
    pub(super) fn said(&self, option: u8) -> bool {
        self.own & option != 0
    }

    /// Refuses what was said of the task itself and would have no effect on one of this kind. What was
    /// said of all tasks is for those that can have it.
    pub(super) fn check_for(&self, kind: Kind) -> Result<(), Refusal> {
        self.check()?;
        let refuse = |argument, value: &dyn std::fmt::Debug, allowed| {
            Err(Refusal::argument(argument, value, allowed))
        };
        if kind == Kind::Once {
            let only = "left out of a task that runs once";
            if self.immediately {
                return refuse("immediately", &true, only);
            }
            if let Some(limit) = self.limit.filter(|_| self.said(own::LIMIT)) {
                return refuse("run_limit", &limit, only);
            }
        }
        if self.said(own::MISSED) && kind != Kind::FixedRate {
            let only = "left out of all but `every`; for `cron` there is `coalesce`";
            return refuse("missed_tick", &self.missed, only);
        }
        #[cfg(feature = "cron")]
        let is_cron = kind == Kind::Cron;
        #[cfg(not(feature = "cron"))]
        let is_cron = false;
        if self.said(own::COALESCE) && !is_cron {
            let only = "left out of all but `cron`; for `every` there is `missed_tick`";
            return refuse("coalesce", &self.coalesce, only);
        }
        if self.key.is_some() {
            return Ok(());
        }
        if self.said(own::DUPLICATE) {
            let only = "left out of a task without a key";
            return refuse("on_duplicate", &self.duplicate, only);
        }
        match self.max_concurrent {
            Some(runs) if runs > 1 && matches!(kind, Kind::Once | Kind::AfterCompletion) => {
                let only = "1 for a task without a key, unless it is for `every` or `cron`";
                refuse("max_concurrent", &runs, only)
            }
            _ => Ok(()),
        }
    }

    /// What reports and events call the task.
    pub(super) fn name(&self) -> Arc<str> {
        match (&self.name, &self.key) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) => NAMELESS.clone(),
        }
    }
}
