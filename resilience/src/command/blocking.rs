//! Blocking work of a command, on the runtime's pool, as a future.
//!
//! Nobody can stop a thread, so work that has begun keeps its permit until it ends, and counts as
//! abandoned when nobody waits for it any longer.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | `WAITING` | no thread of the pool has come to it | the thread that does: to `RUNNING`; who gives it up: to `OVER` |
//! | `RUNNING` | a thread is at it and somebody waits | its end: to `OVER`; who gives it up: to `ABANDONED` |
//! | `ABANDONED` | a thread is at it and nobody waits | its end: to `OVER` |
//! | `OVER` | it has ended, or will not begin | nobody |

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

use crate::bulkhead;

use super::race::Outcome;

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ABANDONED: u8 = 2;
const OVER: u8 = 3;

/// How much work was abandoned. Relaxed throughout: they are only read as figures.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    pub(super) total: AtomicU64,
    pub(super) running: AtomicU64,
}

/// Blocking work, to be awaited. Dropped before it has ended it is abandoned.
pub(super) struct Blocking<T, E> {
    handle: JoinHandle<Option<Result<T, E>>>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    word: AtomicU8,
    abandoned: Arc<Abandoned>,
}

/// What the thread holds until it is done.
struct Work {
    /// Given back first, so that whoever sees the work over finds the permit free.
    place: Option<bulkhead::OwnedPermit>,
    state: Arc<State>,
}

impl<T: Send + 'static, E: Send + 'static> Blocking<T, E> {
    /// Hands `work` to the pool of the present runtime.
    pub(super) fn spawn(
        place: bulkhead::OwnedPermit,
        abandoned: &Arc<Abandoned>,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Self {
        let state = Arc::new(State {
            word: AtomicU8::new(WAITING),
            abandoned: abandoned.clone(),
        });
        let guard = Work {
            place: Some(place),
            state: state.clone(),
        };
        let handle = tokio::task::spawn_blocking(move || guard.begin().then(work));
        Blocking { handle, state }
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
        let State { word, abandoned } = &*self.state;
        // Release: publishes the count below to the end that takes it off again, with the Acquire of
        // its swap. Relaxed on failure, and everywhere else on the word: the result travels by the
        // handle.
        let exchange = |from, to| {
            word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        };
        if exchange(WAITING, OVER) {
            return;
        }
        // Before the exchange, so that there is something to take off.
        abandoned.running.fetch_add(1, Ordering::Relaxed);
        if exchange(RUNNING, ABANDONED) {
            abandoned.total.fetch_add(1, Ordering::Relaxed);
        } else {
            abandoned.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    /// Whether somebody still waits for it.
    fn begin(&self) -> bool {
        self.state
            .word
            .compare_exchange(WAITING, RUNNING, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        drop(self.place.take());
        // Acquire: see above.
        if self.state.word.swap(OVER, Ordering::Acquire) == ABANDONED {
            self.state.abandoned.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
