//! Why work was not scheduled, and how a task failed.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Work that was not scheduled, and why. As large as a pointer, whatever the work is.
#[derive(Clone, thiserror::Error)]
#[error("{}", .refused.refusal)]
pub struct ScheduleError<F> {
    /// Its own allocation, which only an error costs: a result that holds the work would be as large as
    /// that on each way of its caller's.
    refused: Box<Refused<F>>,
}

#[derive(Clone)]
struct Refused<F> {
    refusal: Refusal,
    work: F,
}

impl<F> ScheduleError<F> {
    pub(super) fn new(refusal: Refusal, work: F) -> Self {
        ScheduleError {
            refused: Box::new(Refused { refusal, work }),
        }
    }

    /// Why it was refused.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refused.refusal
    }

    /// What was handed in.
    #[must_use]
    pub fn into_work(self) -> F {
        self.refused.work
    }
}

impl<F> fmt::Debug for ScheduleError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScheduleError")
            .field(self.refusal())
            .finish()
    }
}

impl<F> From<ScheduleError<F>> for Refusal {
    fn from(error: ScheduleError<F>) -> Self {
        error.refused.refusal
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

/// Why a task did not end with a value. `E` is the error that its work returns.
///
/// `E` need not be an [`Error`](std::error::Error) (a `String` is none, nor is an `anyhow::Error`), so that
/// [`source`](std::error::Error::source) cannot lead into it. [`failure`](Self::failure) does, and the
/// alternate form `{:#}` is passed on to it, in which `anyhow` tells all the causes. Events and traces
/// have them in that form.
///
/// ```
/// use std::fmt;
/// use wheelhouse_wheel::scheduler::TaskError;
///
/// struct Chain;
///
/// impl fmt::Display for Chain {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str(if f.alternate() { "no mail: connection refused" } else { "no mail" })
///     }
/// }
///
/// let error = TaskError::Failed(Chain);
/// assert_eq!(format!("{error}"), "no mail");
/// assert_eq!(format!("{error:#}"), "no mail: connection refused");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError<E = Infallible> {
    /// The work returned an error, and was not tried again.
    Failed(E),
    /// The work panicked; the message of the panic.
    Panicked(String),
    /// A run took longer than its timeout.
    TimedOut(Duration),
    /// The task was cancelled, replaced, or pending when the scheduler shut down.
    Cancelled,
    /// A run in progress was cut off, by an abort, by the deadline of a shutdown, or because the
    /// runtime ended.
    Aborted,
    /// A run in progress was given up likewise, and was not cut off in time: blocking work, work that
    /// does not return to its executor, or work for whose next step a shutdown had no time left. It may
    /// go on, and nobody hears of its outcome.
    Abandoned,
    /// The run would have begun this late, which is more than its grace.
    Missed(Duration),
}

impl<E> TaskError<E> {
    /// The error that the work returned, if it was that.
    #[must_use]
    pub fn failure(&self) -> Option<&E> {
        match self {
            TaskError::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The same, by value.
    #[must_use]
    pub fn into_failure(self) -> Option<E> {
        match self {
            TaskError::Failed(error) => Some(error),
            _ => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for TaskError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // With the flags that this is to be shown with.
            TaskError::Failed(error) => error.fmt(f),
            TaskError::Panicked(message) => write!(f, "panicked: {message}"),
            TaskError::TimedOut(timeout) => {
                write!(f, "took longer than its timeout of {timeout:?}")
            }
            TaskError::Cancelled => f.write_str("cancelled"),
            TaskError::Aborted => f.write_str("cut off while it ran"),
            TaskError::Abandoned => {
                f.write_str("given up while it ran; it was not cut off in time and may go on")
            }
            TaskError::Missed(late) => write!(f, "missed: {late:?} late"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for TaskError<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_whatever_it_gives_back() {
        assert_eq!(size_of::<ScheduleError<[u64; 100]>>(), size_of::<usize>());
    }
}
