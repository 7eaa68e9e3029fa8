//! One attempt of a task, from the first poll of the spawned future to what comes after it.

use std::any::Any;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::drive::ticks::NEVER;

use super::claim::Claim;
use super::context::Run;
use super::entry::{Entry, Extra, Output, Phase, Task, flag};
use super::error::TaskError;
use super::events::EventKind;
use super::inner::{Inner, forget_payload, panic_message};
use super::meters::Meters;
use super::recur::Past;
use super::retry::{Failure, FailureKind};
use super::shutdown::Ending;
use super::stats::count;
use super::timeout::Sleep;
use super::work::{Outcome, Work};

type Error<W> = <<W as Work>::Outcome as Outcome>::Error;

/// What is to be done in a run that has begun.
struct Begun<W> {
    work: W,
    at: Instant,
    timeout: Option<Duration>,
    /// The work may be needed again.
    keep: bool,
}

pub(super) async fn run<W: Work>(task: Arc<Task<W>>, mut claim: Claim) {
    let Some(begun) = begin(&task, &mut claim) else {
        return;
    };
    let (at, mut work) = (begun.at, begun.work);
    let attempt = catch_unwind(AssertUnwindSafe(|| claim.scope(|| work.begin())));
    if begun.keep {
        task.cell.lock().work = Some(work);
    } else {
        claim
            .inner()
            .contain("drop of a task's work", || drop(work));
    }
    let result = match attempt {
        Ok(attempt) => {
            let timer = begun
                .timeout
                .map(|timeout| Sleep::new(claim.inner().clone(), task.head().shard(), timeout));
            let attempt = Attempt {
                task: &task,
                claim: &mut claim,
                attempt: Some(attempt),
                timer,
                timeout: begun.timeout.unwrap_or_default(),
                overdue: false,
                abandoned: false,
                last: !begun.keep,
                waker: None,
            };
            attempt.await
        }
        Err(payload) => Err(panicked(payload)),
    };
    finish(&task, &claim, at, result);
    // Only now: the clock is user code, and its panic must not leave a task that nobody moves on.
    claim.settled = true;
}

/// Decides whether a due task runs now.
fn begin<W: Work>(task: &Arc<Task<W>>, claim: &mut Claim) -> Option<Begun<W>> {
    let inner = claim.inner();
    let now = inner.clock.now();
    let due = inner.ticks.instant(claim.tick).unwrap_or(now);
    let late = now.saturating_duration_since(due);
    let mut cell = task.cell.lock();
    if task.head().phase() != Phase::Due {
        claim.settled = true;
        return None;
    }
    let extra = cell.extra.as_deref();
    let options = inner.options(extra);
    let failed = extra.map_or(0, |extra| extra.failed);
    let recurs = extra.is_some_and(Extra::recurs);
    if extra.is_some_and(|extra| extra.paused.is_some()) {
        drop(cell);
        let entry: Arc<dyn Entry> = task.clone();
        claim.settled = inner.file_again(&entry, claim.tick, true);
        return None;
    }
    if failed == 0 && options.grace.is_some_and(|grace| late > grace) {
        drop(cell);
        miss(inner, task, late, now);
        claim.settled = true;
        return None;
    }
    let timeout = options.timeout;
    let keep = W::REPEATABLE && (recurs || options.retry.is_some());
    let work = cell.work.take()?;
    task.head().set_phase(Phase::Running);
    let held = cell.extra.as_mut().and_then(|extra| {
        let holds = mem::take(&mut extra.holds_parent);
        extra.parent.clone().filter(|_| holds)
    });
    drop(cell);
    if let Some(parent) = held {
        inner.go_on_overlapping(&parent, late, || Past::Ran {
            began: now,
            ended: now,
            late,
        });
    }
    let counts = &inner.shards[task.head().shard()].counts;
    count(&counts.started);
    let mut lateness = counts.lateness.lock();
    lateness.get_or_insert_default().record(late);
    drop(lateness);
    inner.meter(|meters| meters.started(late));
    inner.event(&**task, || EventKind::Started {
        attempt: failed + 1,
    });
    #[cfg(feature = "tracing")]
    let span = tracing::debug_span!("run", task = %inner.name_of(&**task), attempt = failed + 1);
    let begins = |run: &mut Run| {
        run.attempt = failed + 1;
        run.due = due;
        #[cfg(feature = "tracing")]
        {
            run.span = span;
        }
    };
    claim.change_run(begins);
    Some(Begun {
        work,
        at: now,
        timeout,
        keep,
    })
}

/// A run that would be later than its grace does not take place.
fn miss<W: Work>(inner: &Arc<Inner>, task: &Arc<Task<W>>, late: Duration, now: Instant) {
    count(&inner.shards[task.head().shard()].counts.missed);
    inner.meter(Meters::missed);
    inner.event(&**task, || EventKind::Missed { late });
    let entry: Arc<dyn Entry> = task.clone();
    if !go_on(inner, &entry, &Past::Missed(now))
        && inner.end(&*entry, Phase::Due, Ending::NeverStarted)
    {
        entry.bury(inner, TaskError::Missed(late));
    }
}

/// Files a recurring task for its next run. False if there is none.
fn go_on(inner: &Arc<Inner>, entry: &Arc<dyn Entry>, past: &Past) -> bool {
    inner
        .next_of(&**entry, past)
        .is_some_and(|tick| inner.file_again(entry, tick, false))
}

/// What comes after an attempt: another, the next run, or the end.
fn finish<W: Work>(
    task: &Arc<Task<W>>,
    claim: &Claim,
    began: Instant,
    result: Result<W::Outcome, TaskError<Error<W>>>,
) {
    let output = result.and_then(said::<W>);
    let inner = claim.inner();
    tell(inner, task, began, &output);
    let ending = match output {
        Err(TaskError::Aborted) => Ending::Aborted,
        Err(TaskError::Abandoned) => Ending::Abandoned,
        _ => Ending::Completed,
    };
    let cut_off = !matches!(ending, Ending::Completed);
    if let Err(error) = &output
        && W::REPEATABLE
        && !cut_off
        && retry(inner, task, error)
    {
        inner.contain("drop of an outcome", || drop(output));
        return;
    }
    let mut recurs = false;
    let mut cell = task.cell.lock();
    if let Some(extra) = &mut cell.extra {
        extra.failed = 0;
        recurs = extra.recurs();
        extra.token = None;
    }
    if recurs && !cut_off {
        drop(cell);
        let ended = inner.clock.now();
        let entry: Arc<dyn Entry> = task.clone();
        let late = inner.late_at(claim.tick, began);
        let past = Past::Ran { began, ended, late };
        if go_on(inner, &entry, &past) {
            inner.contain("drop of an outcome", || drop(output));
            return;
        }
        cell = task.cell.lock();
    }
    if task.head().phase() == Phase::Running {
        task.head().set_phase(Phase::Ended);
        let work = cell.work.take();
        drop(cell);
        if work.is_some() {
            inner.contain("drop of a task's work", || drop(work));
        }
        inner.count_ending(&**task, ending);
        inner.ended(&**task);
        task.deliver(inner, output);
    }
}

/// What an outcome says, which is user code too.
fn said<W: Work>(outcome: W::Outcome) -> Output<W> {
    match catch_unwind(AssertUnwindSafe(|| outcome.into_result())) {
        Ok(output) => output.map_err(TaskError::Failed),
        Err(payload) => Err(panicked(payload)),
    }
}

/// Counts and reports how an attempt ended.
fn tell<W: Work>(inner: &Inner, task: &Arc<Task<W>>, began: Instant, output: &Output<W>) {
    let counts = &inner.shards[task.head().shard()].counts;
    let (counter, outcome) = match output {
        Ok(_) => (&counts.succeeded, "succeeded"),
        Err(TaskError::Panicked(_)) => (&counts.panicked, "panicked"),
        Err(TaskError::TimedOut(_)) => (&counts.timed_out, "timed_out"),
        Err(TaskError::Aborted | TaskError::Abandoned) => (&counts.aborted, "aborted"),
        Err(_) => (&counts.failed, "failed"),
    };
    count(counter);
    inner.meter(|meters| meters.ended(outcome));
    if output.is_ok() {
        inner.event(&**task, || EventKind::Finished {
            took: inner.clock.now().saturating_duration_since(began),
        });
        return;
    }
    if !inner.events.wanted() && !cfg!(feature = "tracing") {
        return;
    }
    let mut words = String::new();
    inner.contain("display of an error", || {
        if let Err(error) = output {
            // With the causes, where the error tells them in this form.
            words = format!("{error:#}");
        }
    });
    #[cfg(feature = "tracing")]
    tracing::warn!(task = %inner.name_of(&**task), error = words, "run failed");
    inner.event(&**task, || EventKind::Failed {
        error: words.into(),
    });
}

/// Files a failed run to be tried again. False if it is not to be.
fn retry<W: Work>(inner: &Inner, task: &Arc<Task<W>>, error: &TaskError<Error<W>>) -> bool {
    let entry: Arc<dyn Entry> = task.clone();
    let (retry, failed) = {
        let mut guard = entry.lock();
        let Some(retry) = inner.options(guard.as_deref()).retry.clone() else {
            return false;
        };
        let extra = guard.get_or_insert_default();
        extra.failed = extra.failed.saturating_add(1);
        (retry, extra.failed)
    };
    let kind = match error {
        TaskError::Failed(error) => FailureKind::Error(error),
        TaskError::Panicked(message) => FailureKind::Panic(message),
        TaskError::TimedOut(timeout) => FailureKind::Timeout(*timeout),
        _ => return false,
    };
    let (random, mut after) = (inner.random(), None);
    inner.contain("retry", || {
        after = retry.delay(failed, &Failure { kind }, random);
    });
    let Some(after) = after else {
        return false;
    };
    let tick = inner.ticks.deadline(inner.clock.now(), after);
    let told = inner.events.wanted();
    if !inner.file_again(&entry, if told { NEVER } else { tick }, true) {
        return false;
    }
    count(&inner.shards[entry.head().shard()].counts.retried);
    inner.meter(Meters::retried);
    if told {
        inner.event(&*entry, || EventKind::Retried { after });
        inner.release(&*entry, tick);
    }
    true
}

fn panicked<E>(payload: Box<dyn Any + Send>) -> TaskError<E> {
    let message = panic_message(&*payload).to_owned();
    forget_payload(payload);
    TaskError::Panicked(message)
}

pin_project_lite::pin_project! {
    /// An attempt under way: knows its run while it is polled, keeps its panics to itself, and ends
    /// early when it is cut off or its time is up.
    #[project = AttemptProjection]
    struct Attempt<'a, W: Work> {
        task: &'a Arc<Task<W>>,
        claim: &'a mut Claim,
        // `None` when it is over.
        #[pin]
        attempt: Option<W::Attempt>,
        timer: Option<Sleep>,
        timeout: Duration,
        // Blocking work cannot be stopped: its time is up, but it goes on.
        overdue: bool,
        // Likewise: it was to be cut off.
        abandoned: bool,
        // Nobody will ask for this task's work again.
        last: bool,
        // Whom the list of runs knows to wake.
        waker: Option<Waker>,
    }
}

impl<W: Work> Future for Attempt<'_, W> {
    type Output = Result<W::Outcome, TaskError<Error<W>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let head = this.task.head();
        if head.has(flag::ABORT) && !*this.abandoned {
            *this.abandoned = !this.cut_off();
            if *this.abandoned {
                // Known at once, though the run keeps its places as long as its code goes on.
                let abandoned = Err(TaskError::Abandoned);
                this.task.deliver(this.claim.inner(), abandoned);
            }
        }
        let result = if *this.abandoned && this.claim.inner().is_closed() {
            Err(TaskError::Abandoned)
        } else if head.has(flag::ABORT) && !*this.abandoned {
            Err(TaskError::Aborted)
        } else {
            let attempt = this.attempt.as_mut();
            let polled = catch_unwind(AssertUnwindSafe(|| {
                this.claim.scope(|| match attempt.as_pin_mut() {
                    Some(attempt) => attempt.poll(cx),
                    None => unreachable!("tokio polls no task after its end"),
                })
            }));
            let result = match polled {
                Ok(Poll::Pending) if this.wait(cx) => return Poll::Pending,
                Ok(Poll::Pending) => Err(TaskError::TimedOut(*this.timeout)),
                Ok(Poll::Ready(outcome)) => Ok(outcome),
                Err(payload) => Err(panicked(payload)),
            };
            this.in_time(result)
        };
        let inner = this.claim.inner();
        inner.contain("drop of a task's future", || this.attempt.set(None));
        Poll::Ready(result)
    }
}

impl<W: Work> AttemptProjection<'_, '_, W> {
    /// The attempt has to wait. False if its time is up.
    fn wait(&mut self, cx: &mut Context<'_>) -> bool {
        let known = self.waker.as_ref().unwrap_or(Waker::noop());
        if !known.will_wake(cx.waker()) {
            *self.waker = Some(cx.waker().clone());
            self.claim.wait(cx.waker());
        }
        let elapsed = self
            .timer
            .as_mut()
            .is_some_and(|timer| Pin::new(timer).poll(cx).is_ready());
        if !elapsed {
            return true;
        }
        *self.timer = None;
        *self.overdue = !self.cut_off();
        if *self.overdue && *self.last {
            let timed_out = TaskError::TimedOut(*self.timeout);
            self.task.deliver(self.claim.inner(), Err(timed_out));
        }
        *self.overdue
    }

    /// What came of the attempt, unless that came too late.
    fn in_time(
        &self,
        result: Result<W::Outcome, TaskError<Error<W>>>,
    ) -> Result<W::Outcome, TaskError<Error<W>>> {
        let instead = match (*self.abandoned, *self.overdue) {
            (true, _) => TaskError::Abandoned,
            (false, true) => TaskError::TimedOut(*self.timeout),
            (false, false) => return result,
        };
        let inner = self.claim.inner();
        inner.contain("drop of an outcome", || drop(result));
        Err(instead)
    }

    /// Keeps the attempt from going any further. False if that cannot be done.
    fn cut_off(&self) -> bool {
        let attempt = self.attempt.as_ref().as_pin_ref();
        attempt.is_none_or(|attempt| W::cut_off(&attempt))
    }
}
