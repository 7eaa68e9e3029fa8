//! Why work was not scheduled, and how a task failed.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::BuildError;

/// Work that was not scheduled, and why.
#[derive(Clone, thiserror::Error)]
#[error("{refusal}")]
pub struct ScheduleError<F> {
    refusal: Refusal,
    work: F,
}

impl<F> ScheduleError<F> {
    pub(super) fn new(refusal: Refusal, work: F) -> Self {
        ScheduleError { refusal, work }
    }

    /// Why it was refused.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// What was handed in.
    #[must_use]
    pub fn into_work(self) -> F {
        self.work
    }
}

impl<F> fmt::Debug for ScheduleError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScheduleError").field(&self.refusal).finish()
    }
}

impl<F> From<ScheduleError<F>> for Refusal {
    fn from(error: ScheduleError<F>) -> Self {
        error.refusal
    }
}

/// Why work was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many tasks are pending or running as the scheduler was built for.
    #[error(
        "the pending limit is reached; schedule again when tasks have ended, or build with a larger `max_pending`"
    )]
    Full,
    /// The scheduler is shutting down or has shut down.
    #[error("the scheduler is shut down; build a new one to go on")]
    Closed,
    /// A task with this key is there, and the new one was not to replace it.
    #[error(
        "a task with the key {key:?} is scheduled; cancel it, or replace it with `Duplicate::Replace`"
    )]
    Duplicate {
        /// The key that both tasks carry.
        key: Arc<str>,
    },
    /// An argument is out of range, or an option would have no effect on the task.
    #[error("{argument}: {value} is not allowed, it must be {allowed}")]
    Argument {
        /// Which one.
        argument: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The cron expression or its time zone is not understood.
    #[cfg(feature = "cron")]
    #[error(transparent)]
    Cron(#[from] crate::cron::CronError),
}

impl Refusal {
    pub(super) fn argument(argument: &'static str, value: impl fmt::Debug, allowed: &str) -> Self {
        Refusal::Argument {
            argument,
            value: format!("{value:?}"),
            allowed: allowed.to_owned(),
        }
    }
}

impl From<BuildError> for Refusal {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Argument {
                argument,
                value,
                allowed,
            } => Refusal::Argument {
                argument,
                value,
                allowed,
            },
            BuildError::Thread(error) => Refusal::argument("thread", error, "one that starts"),
        }
    }
}

/// Why a task did not end with a value. `E` is the error that its work returns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError<E = Infallible> {
    /// The work returned an error, and was not tried again.
    #[error("{0}")]
    Failed(E),
    /// The work panicked; the message of the panic.
    #[error("panicked: {0}")]
    Panicked(String),
    /// A run took longer than its timeout.
    #[error("took longer than its timeout of {0:?}")]
    TimedOut(Duration),
    /// The task was cancelled, replaced, or pending when the scheduler shut down.
    #[error("cancelled")]
    Cancelled,
    /// A run in progress was cut off, by an abort, by the deadline of a shutdown, or because the
    /// runtime ended.
    #[error("cut off while it ran")]
    Aborted,
    /// The run would have begun this late, which is more than its grace.
    #[error("missed: {0:?} late")]
    Missed(Duration),
}
