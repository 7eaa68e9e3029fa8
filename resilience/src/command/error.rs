//! Why a command has no result, and why its fallback had none either.

use std::time::Duration;

use crate::Rejected;
use crate::bulkhead::Full;

/// Why a command has no result. A fallback is given it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError<E> {
    /// As many of its calls were running as may. It did not run.
    #[error("as many calls run as the command allows, {}; try again later", .0.permits)]
    Rejected(#[from] Full),
    /// Its breaker was open. It did not run.
    #[error(transparent)]
    ShortCircuited(#[from] Rejected),
    /// It ran, and this is its error.
    #[error("{0}")]
    Failed(E),
    /// It took longer than the command's timeout.
    #[error("the command took longer than its timeout of {0:?}")]
    TimedOut(Duration),
    /// Its caller cancelled it, or the runtime shut down before blocking work began.
    #[error("the call was cancelled")]
    Cancelled,
    /// Its caller's deadline passed, earlier than the command's timeout.
    #[error("the deadline of the call has passed")]
    DeadlineExceeded,
}

/// A command has no result, and neither has its fallback.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackError<E, F> {
    /// The fallback failed too.
    #[error("{cause}; and its fallback failed: {error}")]
    Failed {
        /// Why there was a fallback.
        cause: CommandError<E>,
        /// Its error.
        error: F,
    },
    /// As many fallbacks of the command were running as may.
    #[error("{cause}; and as many fallbacks run as the command allows, {}", .full.permits)]
    Rejected {
        /// Why there was to be a fallback.
        cause: CommandError<E>,
        /// What it was refused with.
        full: Full,
    },
}

impl<E, F> FallbackError<E, F> {
    /// Why the command itself has no result.
    pub fn cause(&self) -> &CommandError<E> {
        match self {
            FallbackError::Failed { cause, .. } | FallbackError::Rejected { cause, .. } => cause,
        }
    }

    /// The error of the fallback, if it ran.
    pub fn fallback_error(&self) -> Option<&F> {
        match self {
            FallbackError::Failed { error, .. } => Some(error),
            FallbackError::Rejected { .. } => None,
        }
    }
}
