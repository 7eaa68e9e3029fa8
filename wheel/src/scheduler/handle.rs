//! What a caller can do to a task after it was scheduled.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::control::Cancel;
use super::entry::{Entry, Phase, flag};
use super::error::TaskError;
use super::inner::Inner;

/// A scheduled task. Dropping it changes nothing for the task.
///
/// Awaiting it gives the outcome of a one-shot, or of the last run of a task that recurs, when the
/// task has ended: [`Scheduler::len`](super::Scheduler::len) does not count it then, and its key is free.
/// The place of its run is given back right after that, so
/// [`in_progress`](super::SchedulerStats::in_progress) may count the run a moment longer, and the end of a
/// shutdown comes later. Only of blocking work that takes too long it tells when its
/// [time](super::TaskOptions::timeout) is up. Besides that it does what a [`TaskRef`] does.
pub struct TaskHandle<T = (), E = Infallible> {
    task: TaskRef,
    outcome: PhantomData<fn() -> Result<T, E>>,
}

/// A reference to a task, as often as wanted. It does not keep the task, and nothing else, going.
#[derive(Clone)]
pub struct TaskRef {
    pub(super) inner: Arc<Inner>,
    pub(super) entry: Arc<dyn Entry>,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Waits for its time.
    Scheduled,
    /// Is held back until it is resumed.
    Paused,
    /// A run has failed, and waits for its next attempt.
    Retrying,
    /// Is due, and waits for a place or a worker.
    Due,
    /// Runs.
    Running,
    /// Has ended, in whatever way.
    Ended,
}

impl TaskRef {
    /// Cancels the task: no further run will begin. Tells who won.
    pub fn cancel(&self) -> Cancel {
        self.inner.cancel(&*self.entry)
    }

    /// Cancels the task and cuts off the run in progress, if there is one, at its next `.await`.
    /// Blocking work that has begun cannot be cut off: the outcome of the task is
    /// [`TaskError::Abandoned`] at once, and the run keeps its places until the work has ended.
    pub fn abort(&self) -> Cancel {
        self.inner.abort(&*self.entry)
    }

    /// Moves the next run to `delay` from now. Those after it count from there. False if the task is
    /// not waiting, because it is due, runs, or has ended, or if it would be after its
    /// [end](super::TaskOptions::until).
    #[must_use = "only it tells whether the task was moved"]
    pub fn reschedule(&self, delay: Duration) -> bool {
        let at = self.inner.clock.now().checked_add(delay);
        self.inner.reschedule(&*self.entry, at)
    }

    /// Moves the next run to `at`, likewise.
    #[must_use = "only it tells whether the task was moved"]
    pub fn reschedule_at(&self, at: impl Into<Instant>) -> bool {
        self.inner.reschedule(&*self.entry, Some(at.into()))
    }

    /// Holds the task back: no run of it begins until it is resumed, nor an attempt. A run in progress
    /// goes on. False if the task has ended.
    pub fn pause(&self) -> bool {
        self.inner.set_paused(&*self.entry, true)
    }

    /// Lets a paused task go on: it runs when it is due, at once if that was in the meantime, unless it
    /// is too late by then for its [grace](super::TaskOptions::grace). False if the task has ended.
    pub fn resume(&self) -> bool {
        self.inner.set_paused(&*self.entry, false)
    }

    /// Where the task is.
    #[must_use]
    pub fn status(&self) -> Status {
        let guard = self.entry.lock();
        let extra = guard.as_ref();
        match self.entry.head().phase() {
            Phase::Waiting | Phase::Due if extra.is_some_and(|extra| extra.paused.is_some()) => {
                Status::Paused
            }
            Phase::Waiting if extra.is_some_and(|extra| extra.failed > 0) => Status::Retrying,
            Phase::Waiting => Status::Scheduled,
            Phase::Due => Status::Due,
            Phase::Running => Status::Running,
            Phase::Ended => Status::Ended,
        }
    }

    /// When the next run begins, on the scheduler's clock, to the tick. `None` if that is not known:
    /// the task is paused, due, runs, has ended, or lies beyond the end of time. By how much
    /// [jitter](super::TaskOptions::jitter) puts off a task that goes by the calendar is known in the last
    /// minute only.
    #[must_use]
    pub fn next_run(&self) -> Option<Instant> {
        self.inner.next_run(&*self.entry)
    }

    /// Its name; its key if it has no name; else "task".
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.inner.name_of(&*self.entry)
    }
}

impl<T, E> TaskHandle<T, E> {
    pub(super) fn new(inner: Arc<Inner>, entry: Arc<dyn Entry>) -> Self {
        TaskHandle {
            task: TaskRef { inner, entry },
            outcome: PhantomData,
        }
    }

    /// A reference to the task that can be cloned and kept.
    #[must_use]
    pub fn task(&self) -> TaskRef {
        self.task.clone()
    }

    /// Cancels the task, see [`TaskRef::cancel`].
    pub fn cancel(&self) -> Cancel {
        self.task.cancel()
    }

    /// Cancels the task and cuts off the run in progress, see [`TaskRef::abort`].
    pub fn abort(&self) -> Cancel {
        self.task.abort()
    }

    /// Moves the next run to `delay` from now, see [`TaskRef::reschedule`].
    #[must_use = "only it tells whether the task was moved"]
    pub fn reschedule(&self, delay: Duration) -> bool {
        self.task.reschedule(delay)
    }

    /// Moves the next run to `at`, see [`TaskRef::reschedule_at`].
    #[must_use = "only it tells whether the task was moved"]
    pub fn reschedule_at(&self, at: impl Into<Instant>) -> bool {
        self.task.reschedule_at(at)
    }

    /// Holds the task back, see [`TaskRef::pause`].
    pub fn pause(&self) -> bool {
        self.task.pause()
    }

    /// Lets a paused task go on, see [`TaskRef::resume`].
    pub fn resume(&self) -> bool {
        self.task.resume()
    }

    /// Where the task is, see [`TaskRef::status`].
    #[must_use]
    pub fn status(&self) -> Status {
        self.task.status()
    }

    /// When the next run begins, see [`TaskRef::next_run`].
    #[must_use]
    pub fn next_run(&self) -> Option<Instant> {
        self.task.next_run()
    }

    /// The task's name, see [`TaskRef::name`].
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.task.name()
    }
}

impl<T: 'static, E: 'static> Future for TaskHandle<T, E> {
    type Output = Result<T, TaskError<E>>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are user code: cloned before the lock is taken, dropped after it is released.
        let waker = cx.waker().clone();
        let mut guard = self.task.entry.lock();
        let extra = guard.get_or_insert_default();
        if extra.delivered {
            let output = extra.output.take();
            drop(guard);
            let output: Box<dyn Any> = output.expect("a task's handle is not polled after its end");
            return match output.downcast() {
                Ok(output) => Poll::Ready(*output),
                Err(_) => unreachable!("a task's handle has the types of its work"),
            };
        }
        let old = extra.waker.replace(waker);
        drop(guard);
        drop(old);
        Poll::Pending
    }
}

impl<T, E> Drop for TaskHandle<T, E> {
    fn drop(&mut self) {
        let entry = &self.task.entry;
        let mut guard = entry.lock();
        entry.head().lower(flag::HANDLE);
        let (output, waker) = match guard.as_mut() {
            Some(extra) => (extra.output.take(), extra.waker.take()),
            None => (None, None),
        };
        drop(guard);
        if output.is_some() || waker.is_some() {
            let inner = &self.task.inner;
            inner.contain("drop of an outcome", || drop((output, waker)));
        }
    }
}

impl fmt::Debug for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRef")
            .field("name", &self.name())
            .field("status", &self.status())
            .finish()
    }
}

impl<T, E> fmt::Debug for TaskHandle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("name", &self.name())
            .field("status", &self.status())
            .finish()
    }
}
