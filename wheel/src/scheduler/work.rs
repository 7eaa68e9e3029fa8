//! The kinds of work that a task can do, and what they return.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::context::Run;
use super::entry::flag;

/// What work may return: nothing, or a `Result`.
#[diagnostic::on_unimplemented(
    message = "the work of a task returns `()` or a `Result`, not `{Self}`",
    note = "a value is returned as `Ok::<_, String>(value)`; code that never returns needs a `Result<(), _>` or `()` as its type"
)]
pub trait Outcome: Send + 'static {
    /// What a run that went well leaves.
    type Value: Send + 'static;
    /// What one that failed leaves.
    type Error: Display + Send + 'static;

    /// Says which it was.
    ///
    /// # Errors
    /// The run failed.
    fn into_result(self) -> Result<Self::Value, Self::Error>;
}

impl Outcome for () {
    type Value = ();
    type Error = Infallible;

    fn into_result(self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<T, E> Outcome for Result<T, E>
where
    T: Send + 'static,
    E: Display + Send + 'static,
{
    type Value = T;
    type Error = E;

    fn into_result(self) -> Self {
        self
    }
}

/// Work, once or again and again.
pub(super) trait Work: Sized + Send + 'static {
    type Outcome: Outcome;
    type Attempt: Future<Output = Self::Outcome> + Send + 'static;
    /// What the caller handed in.
    type Given;

    /// Whether a run goes on when its future is dropped.
    const BLOCKING: bool = false;

    /// Whether there can be more than one attempt.
    const REPEATABLE: bool = true;

    /// Begins an attempt. Called where it may panic.
    fn begin(&mut self) -> Self::Attempt;

    /// Keeps an attempt that has begun, and has not ended, from going any further once it is dropped.
    /// False if that cannot be done.
    fn cut_off(_attempt: &Self::Attempt) -> bool {
        true
    }

    /// What the caller handed in, before the first attempt.
    fn give_back(self) -> Self::Given;

    /// A second handle to the work, where runs may overlap.
    fn share(&self) -> Option<Self> {
        None
    }
}

/// A closure that makes futures.
pub(super) struct Async<F>(pub(super) F);

impl<F, A> Work for Async<F>
where
    F: FnMut() -> A + Send + 'static,
    A: Future + Send + 'static,
    A::Output: Outcome,
{
    type Outcome = A::Output;
    type Attempt = A;
    type Given = F;

    fn begin(&mut self) -> A {
        (self.0)()
    }

    fn give_back(self) -> F {
        self.0
    }
}

/// One future.
pub(super) struct Once<A>(pub(super) Option<A>);

impl<A> Work for Once<A>
where
    A: Future + Send + 'static,
    A::Output: Outcome,
{
    type Outcome = A::Output;
    type Attempt = A;
    type Given = A;

    const REPEATABLE: bool = false;

    fn give_back(self) -> A {
        self.0.expect("it has not begun")
    }

    fn begin(&mut self) -> A {
        self.0
            .take()
            .expect("a future is begun once: it has no retry")
    }
}

/// A closure that blocks.
pub(super) struct Blocking<F>(pub(super) Arc<Mutex<F>>);

impl<F> Blocking<F> {
    pub(super) fn new(work: F) -> Self {
        Blocking(Arc::new(Mutex::new(work)))
    }
}

impl<F, O> Work for Blocking<F>
where
    F: FnMut() -> O + Send + 'static,
    O: Outcome,
{
    type Outcome = O;
    type Attempt = OnThread<O>;
    type Given = F;

    const BLOCKING: bool = true;

    fn begin(&mut self) -> OnThread<O> {
        let (work, run) = (self.0.clone(), Run::current());
        let claimed = Arc::new(AtomicBool::new(false));
        let claim = claimed.clone();
        let thread = tokio::task::spawn_blocking(move || {
            let cut_off = |run: &Run| run.entry.head().has(flag::ABORT);
            if claim.swap(true, Relaxed) || run.as_ref().is_some_and(cut_off) {
                return None;
            }
            // The lock is the work's own: no two of its attempts run at once.
            let mut work = work.lock();
            Some(Run::scope(run, || (*work)()))
        });
        OnThread {
            thread: Some(thread),
            claimed,
        }
    }

    fn cut_off(attempt: &OnThread<O>) -> bool {
        attempt.forestall() || attempt.is_finished()
    }

    fn give_back(self) -> F {
        match Arc::try_unwrap(self.0) {
            Ok(work) => work.into_inner(),
            Err(_) => unreachable!("no attempt has begun"),
        }
    }
}

/// Work on a blocking thread, whose panic becomes the waiter's.
pub(super) struct OnThread<O> {
    /// `None` when its work will not take place, of which the run is about to hear.
    thread: Option<JoinHandle<Option<O>>>,
    /// Set by the thread when it gets to the work, or by who does not want it any more: the first of
    /// them wins. Relaxed: nothing else is read through it.
    claimed: Arc<AtomicBool>,
}

impl<O> OnThread<O> {
    /// Whether the work has not begun, and now will not.
    fn forestall(&self) -> bool {
        let first = !self.claimed.swap(true, Relaxed);
        if first {
            // Gives its place in the queue for a thread back.
            self.thread.as_ref().inspect(|thread| thread.abort());
        }
        first
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<O> Drop for OnThread<O> {
    fn drop(&mut self) {
        self.forestall();
    }
}

impl<O> Future for OnThread<O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Some(thread) = &mut self.thread else {
            return Poll::Pending;
        };
        match ready!(Pin::new(thread).poll(cx)) {
            Ok(Some(outcome)) => return Poll::Ready(outcome),
            // It was cut off before it began.
            Ok(None) => {}
            Err(error) => {
                if let Ok(payload) = error.try_into_panic() {
                    resume_unwind(payload);
                }
                // The runtime ends, and is about to drop the run.
            }
        }
        self.thread = None;
        Poll::Pending
    }
}

/// Work whose runs may overlap. Its attempts are begun one after another.
pub(super) struct Shared<W>(Arc<tokio::sync::Mutex<W>>);

impl<W> Shared<W> {
    pub(super) fn new(work: W) -> Self {
        Shared(Arc::new(tokio::sync::Mutex::new(work)))
    }
}

impl<W: Work> Work for Shared<W> {
    type Outcome = W::Outcome;
    type Attempt = Pin<Box<dyn Future<Output = W::Outcome> + Send>>;
    type Given = W::Given;

    const BLOCKING: bool = W::BLOCKING;

    fn begin(&mut self) -> Self::Attempt {
        let work = self.0.clone();
        Box::pin(async move {
            let attempt = work.lock().await.begin();
            attempt.await
        })
    }

    fn give_back(self) -> W::Given {
        match Arc::try_unwrap(self.0) {
            Ok(work) => work.into_inner().give_back(),
            Err(_) => unreachable!("no attempt has begun"),
        }
    }

    fn share(&self) -> Option<Self> {
        Some(Shared(self.0.clone()))
    }
}
