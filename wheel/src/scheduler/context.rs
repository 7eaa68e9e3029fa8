//! What a run knows of itself.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::inner::Inner;

crate::sync::local! {
    static CURRENT: RefCell<Option<Run>> = RefCell::new(None);
}

/// The run that the current code is part of.
///
/// ```
/// # use std::time::Duration;
/// # use wheelhouse_wheel::scheduler::{Run, Scheduler};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scheduler = Scheduler::builder().build()?;
/// let handle = scheduler.after(Duration::ZERO, || async {
///     let run = Run::current().expect("a task's work runs in a run");
///     if run.attempt() > 1 { /* be gentle */ }
///     let stopping = run.stopping();
///     tokio::select! {
///         () = stopping.cancelled() => { /* save what is done so far */ }
///         () = tokio::time::sleep(Duration::from_millis(1)) => {}
///     }
/// })?;
/// handle.await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Run {
    pub(super) entry: Arc<dyn Entry>,
    pub(super) inner: Arc<Inner>,
    pub(super) attempt: u32,
    pub(super) due: Instant,
    /// Entered while its work runs.
    #[cfg(feature = "tracing")]
    pub(super) span: tracing::Span,
}

impl Run {
    /// The run that the caller is part of: in the work's own future or blocking closure, not in what
    /// it spawns.
    #[must_use]
    pub fn current() -> Option<Run> {
        CURRENT.try_with(|run| run.borrow().clone()).ok().flatten()
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When it was due, on the scheduler's clock.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The name of its task.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.inner.name_of(&*self.entry)
    }

    /// Cancelled as soon as the scheduler begins to shut down or the task is cancelled: what is left
    /// to do should then be brought to an end. The token is that of this run: when the run has ended
    /// nobody cancels it any more.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.inner.token_of(&*self.entry)
    }

    /// Runs `code` as part of `run`.
    pub(super) fn scope<R>(run: Option<Run>, code: impl FnOnce() -> R) -> R {
        let mut run = run;
        Run::scope_of(&mut run, code)
    }

    /// The same, for a caller who keeps the run. It is back when `code` returns or panics.
    pub(super) fn scope_of<R>(run: &mut Option<Run>, code: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a mut Option<Run>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                swap(self.0);
            }
        }
        #[cfg(feature = "tracing")]
        let span = run
            .as_ref()
            .map_or_else(tracing::Span::none, |run| run.span.clone());
        #[cfg(feature = "tracing")]
        let _inside = span.enter();
        swap(run);
        let _restore = Restore(run);
        code()
    }

    /// The task whose run the caller is part of, if it is one of this scheduler.
    pub(super) fn current_of(inner: &Inner) -> Option<Arc<dyn Entry>> {
        let current = CURRENT.try_with(|run| {
            let run = run.borrow();
            let run = run.as_ref();
            run.filter(|run| std::ptr::eq(&raw const *run.inner, inner))
                .map(|run| run.entry.clone())
        });
        current.ok().flatten()
    }
}

/// A thread that is about to end has no current run.
fn swap(run: &mut Option<Run>) {
    let _ = CURRENT.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), run));
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.name())
            .field("attempt", &self.attempt)
            .field("due", &self.due)
            .finish()
    }
}
