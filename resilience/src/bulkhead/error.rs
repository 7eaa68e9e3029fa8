//! Why somebody did not get a permit.

use std::time::Duration;

/// Every permit was in use, or others were waiting for one, and the queue had no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bulkhead is full: {permits} permits in use, {queue} places to wait; try again later")]
#[non_exhaustive]
pub struct Full {
    /// How many permits the bulkhead had.
    pub permits: usize,
    /// How many may wait, none if the caller did not want to.
    pub queue: usize,
}

/// Somebody who was ready to wait did not get a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// There was not even a place to wait.
    #[error(transparent)]
    Full(#[from] Full),
    /// No permit came within the time that the caller or the bulkhead allows for waiting.
    #[error("no permit of the bulkhead was free within {0:?}; try again later")]
    TimedOut(Duration),
}
