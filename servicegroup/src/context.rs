//! What a running service has of its group.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::GroupHandle;
use crate::board::State;
use crate::completion::Completion;
use crate::shared::Shared;

/// What one service and the driver of its group tell each other.
#[derive(Debug)]
pub(crate) struct Line {
    /// Ready, or ended.
    pub(crate) up: Completion<()>,
    /// Really ended: the future is gone.
    pub(crate) done: Completion<()>,
    pub(crate) stopping: CancellationToken,
    pub(crate) deadline: Mutex<Option<Instant>>,
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Line {
            up: Completion::new(),
            done: Completion::new(),
            stopping: CancellationToken::new(),
            deadline: Mutex::new(None),
        })
    }
}

/// A service's side of the group: it says that it is ready, and hears when to end.
///
/// Cheap to clone, to be given to tasks, connections and threads.
#[derive(Clone)]
pub struct ServiceContext {
    name: Arc<str>,
    service: usize,
    line: Arc<Line>,
    shared: Arc<Shared>,
    draining: CancellationToken,
}

impl ServiceContext {
    pub(crate) fn new(
        name: Arc<str>,
        service: usize,
        line: Arc<Line>,
        shared: Arc<Shared>,
    ) -> Self {
        let draining = shared.draining.lock().clone();
        ServiceContext {
            name,
            service,
            line,
            shared,
            draining,
        }
    }

    /// The name that the service was added with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says that the service is up: the next level may start when all of this one are. Only the first
    /// call of a start counts.
    pub fn ready(&self) {
        self.shared.board.enter(self.service, State::Ready);
        let _ = self.line.up.set(());
    }

    /// Resolves when the group has been asked to stop. New work still comes and is to be served;
    /// readiness is false from now on.
    pub fn draining(&self) -> WaitForCancellationFutureOwned {
        self.draining.clone().cancelled_owned()
    }

    /// The token behind [`draining`](Self::draining), for child tokens and checks.
    #[must_use]
    pub fn draining_token(&self) -> &CancellationToken {
        &self.draining
    }

    /// Resolves when it is this service's turn to end: all levels above it have.
    pub fn stopping(&self) -> WaitForCancellationFutureOwned {
        self.line.stopping.clone().cancelled_owned()
    }

    /// The token behind [`stopping`](Self::stopping), for child tokens and checks.
    #[must_use]
    pub fn stopping_token(&self) -> &CancellationToken {
        &self.line.stopping
    }

    /// When this service is going to be left behind; `None` until the group is asked to stop. It may
    /// become earlier when the service is told to end, by its own cap, and never later.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        *self.line.deadline.lock()
    }

    /// Says that something is being served for as long as the guard lives, which holds up a drain
    /// that [may end when idle](crate::GroupBuilder::drain_ends_when_idle). It delays nothing else.
    pub fn busy(&self) -> BusyGuard {
        BusyGuard {
            _token: self.shared.busy.token(),
        }
    }

    /// Adds to the connections, streams or messages that the service had to cut at its deadline; the
    /// report says how many.
    pub fn cut(&self, count: u64) {
        self.shared.board.cut(self.service, count);
    }

    /// The group that this service belongs to.
    #[must_use]
    pub fn group(&self) -> GroupHandle {
        GroupHandle::new(self.shared.clone())
    }

    /// Writes a line about the service on standard error, if lines are written there.
    pub(crate) fn log(&self, what: &str) {
        self.shared
            .board
            .write(&format!("service={} {what}", self.path()));
    }

    /// What names in lines of a group nested in this service begin with.
    pub(crate) fn path(&self) -> String {
        self.shared.board.path(&self.name)
    }
}

impl fmt::Debug for ServiceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceContext")
            .field("name", &self.name)
            .field("draining", &self.draining.is_cancelled())
            .field("stopping", &self.line.stopping.is_cancelled())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Something is being served. See [`ServiceContext::busy`].
#[derive(Debug)]
#[must_use = "dropped, it says that the work is done"]
pub struct BusyGuard {
    _token: TaskTrackerToken,
}
