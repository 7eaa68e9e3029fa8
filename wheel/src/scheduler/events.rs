//! What happens to tasks, as a stream that a slow listener cannot hold up.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::broadcast;

/// Something that happened to a task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The task's name; its key if it has no name; else "task".
    pub task: Arc<str>,
    /// The key that the task carries.
    pub key: Option<Arc<str>>,
    /// What happened.
    pub kind: EventKind,
    /// When, on the scheduler's clock.
    pub at: Instant,
}

/// What happened to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was accepted.
    Scheduled,
    /// An attempt, counted from 1, began.
    Started {
        /// Which one.
        attempt: u32,
    },
    /// An attempt went well.
    Finished {
        /// How long it took.
        took: Duration,
    },
    /// An attempt returned an error, panicked, took too long or was cut off.
    Failed {
        /// The error in words, in the form `{:#}`.
        error: Arc<str>,
    },
    /// A failed run will be tried again.
    Retried {
        /// After this.
        after: Duration,
    },
    /// A run did not begin: because it would have been later than its grace, or, of a task that
    /// overlaps itself, because as many tasks were live as are allowed.
    Missed {
        /// How late.
        late: Duration,
    },
    /// It was cancelled or replaced, perhaps while a run was in progress, which then goes on; or it
    /// was pending at a shutdown.
    Cancelled,
}

/// A listener's end, from [`Scheduler::events`](super::Scheduler::events).
///
/// Holds the last 1024 events by default; a listener that falls further behind loses the oldest and
/// is told how many.
#[derive(Debug)]
pub struct EventStream {
    receiver: broadcast::Receiver<Event>,
    listeners: Arc<AtomicUsize>,
}

/// Why there is no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The listener was too slow: this many events are lost. The next call goes on after them.
    #[error(
        "{0} events were lost to a slow listener; listen faster, or build with a larger `events`"
    )]
    Lagged(u64),
    /// The scheduler has shut down or was dropped: there will be none any more.
    #[error("the scheduler has ended")]
    Closed,
}

impl EventStream {
    /// The next event.
    ///
    /// # Errors
    /// See [`EventError`].
    pub async fn next(&mut self) -> Result<Event, EventError> {
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(lost) => EventError::Lagged(lost),
            broadcast::error::RecvError::Closed => EventError::Closed,
        })
    }

    /// The next event, if it has happened already.
    ///
    /// # Errors
    /// See [`EventError`].
    pub fn try_next(&mut self) -> Result<Option<Event>, EventError> {
        match self.receiver.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(broadcast::error::TryRecvError::Empty) => Ok(None),
            Err(broadcast::error::TryRecvError::Lagged(lost)) => Err(EventError::Lagged(lost)),
            Err(broadcast::error::TryRecvError::Closed) => Err(EventError::Closed),
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        // Relaxed: only an estimate of whether anybody listens.
        self.listeners.fetch_sub(1, Relaxed);
    }
}

/// The scheduler's end.
#[derive(Debug)]
pub(super) struct Events {
    /// `None` when the scheduler has ended. Handles of tasks, which outlive it, keep the rest of this.
    sender: Mutex<Option<broadcast::Sender<Event>>>,
    listeners: Arc<AtomicUsize>,
}

impl Events {
    pub(super) fn new(capacity: usize) -> Self {
        Events {
            sender: Mutex::new(Some(broadcast::Sender::new(capacity))),
            listeners: Arc::default(),
        }
    }

    pub(super) fn listen(&self) -> EventStream {
        self.listeners.fetch_add(1, Relaxed);
        let receiver = match &*self.sender.lock() {
            Some(sender) => sender.subscribe(),
            None => broadcast::channel(1).1,
        };
        EventStream {
            receiver,
            listeners: self.listeners.clone(),
        }
    }

    /// Whether anybody listens. Without a listener an event costs this look.
    pub(super) fn wanted(&self) -> bool {
        self.listeners.load(Relaxed) > 0
    }

    pub(super) fn send(&self, event: Event) {
        // Listeners' wakers are user code, so not under the lock.
        let sender = self.sender.lock().clone();
        if let Some(sender) = sender {
            // Nobody may be left to listen.
            let _ = sender.send(event);
        }
    }

    /// There will be no more.
    pub(super) fn close(&self) {
        let sender = self.sender.lock().take();
        drop(sender);
    }
}
