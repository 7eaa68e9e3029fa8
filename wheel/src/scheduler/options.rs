//! What can be said of a task besides when it runs and what it does.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use super::error::Refusal;
use super::gate::Gate;
use super::plan::MissedTick;
use super::retry::Retry;

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

#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) name: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
    pub(super) duplicate: Duplicate,
    pub(super) retry: Option<Retry>,
    /// Said of the task itself, not of all.
    pub(super) own_retry: bool,
    pub(super) timeout: Option<Duration>,
    /// `None` is one run at a time.
    pub(super) max_concurrent: Option<usize>,
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
            own_retry: false,
            timeout: None,
            max_concurrent: None,
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
        if self.limit == Some(0) {
            return Err(Refusal::argument("run_limit", 0, "1 or more"));
        }
        Ok(())
    }

    /// Whether runs of a task may overlap.
    pub(super) fn overlaps(&self) -> bool {
        self.max_concurrent.is_some_and(|runs| runs > 1)
    }

    /// Refuses what makes sense for recurring tasks alone.
    pub(super) fn check_once(&self) -> Result<(), Refusal> {
        let only = "left out of a task that runs once";
        if self.immediately {
            return Err(Refusal::argument("immediately", true, only));
        }
        if let Some(limit) = self.limit {
            return Err(Refusal::argument("run_limit", limit, only));
        }
        Ok(())
    }

    /// What reports and events call the task.
    pub(super) fn name(&self) -> Arc<str> {
        match (&self.name, &self.key) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) => NAMELESS.clone(),
        }
    }
}
