//! Blocking work of a command, on the runtime's pool, as a future.
//!
//! Nobody can stop a thread, so work that has begun keeps its permit until it ends, and counts as
//! abandoned when nobody waits for it any longer: see [`progress`](super::progress).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

use crate::bulkhead;

use super::progress::{Abandoned, Progress, Work};
use super::race::Outcome;

/// Blocking work, to be awaited. Dropped before it has ended it is abandoned.
pub(super) struct Blocking<T, E> {
    handle: JoinHandle<Option<Result<T, E>>>,
    progress: Arc<Progress>,
}

impl<T: Send + 'static, E: Send + 'static> Blocking<T, E> {
    /// Hands `work` to the pool of the present runtime.
    pub(super) fn spawn(
        place: bulkhead::OwnedPermit,
        abandoned: &Arc<Abandoned>,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Self {
        let progress = Progress::new(abandoned);
        let guard = Work::new(place, &progress);
        let handle = tokio::task::spawn_blocking(move || guard.begin().then(work));
        Blocking { handle, progress }
    }
}

impl<T, E> Future for Blocking<T, E> {
    type Output = Outcome<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.handle).poll(context)) {
            Ok(Some(result)) => Outcome::Done(result),
            // Given up before it began, or dropped by a runtime that shuts down.
            Ok(None) => Outcome::Cancelled,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(_) => Outcome::Cancelled,
            },
        })
    }
}

impl<T, E> Drop for Blocking<T, E> {
    fn drop(&mut self) {
        self.progress.give_up();
    }
}
