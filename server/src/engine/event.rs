//! What happens to tasks, as it happens.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use wheelhouse_wheel::cron::Timestamp;

use crate::task::Key;

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The task's key.
    pub key: Key,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was taken in under a key that had no task.
    Created,
    /// It was taken in instead of another.
    Replaced,
    /// It is due at this time instead.
    Moved(Timestamp),
    /// It was cancelled.
    Cancelled,
    /// This attempt, from 1, begins.
    Firing(u32),
    /// This attempt delivered it.
    Delivered(u32),
    /// This attempt failed, and another will follow at this time.
    Retrying(u32, Timestamp, Arc<str>),
    /// It is given up: see [`DeadLetter`](super::DeadLetter).
    Dead(Arc<str>),
}

/// So many events were missed by a reader that was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were missed; read faster, or list the tasks anew")]
pub struct Lagged(
    /// How many.
    pub u64,
);

/// Reads the events of an engine from where it was made; from [`Engine::watch`](super::Engine::watch).
#[derive(Debug)]
#[must_use]
pub struct Watch {
    pub(super) events: broadcast::Receiver<Event>,
}

impl Watch {
    /// The next event; `None` when the engine is gone. A reader never slows the engine.
    ///
    /// # Errors
    /// [`Lagged`], once, when events were missed; the next call goes on after them.
    pub async fn next(&mut self) -> Result<Option<Event>, Lagged> {
        match self.events.recv().await {
            Ok(event) => Ok(Some(event)),
            Err(RecvError::Closed) => Ok(None),
            Err(RecvError::Lagged(missed)) => Err(Lagged(missed)),
        }
    }
}
