//! Async and blocking work at given times, on a tokio runtime, at the speed of a wheel.
//!
//! Unlike `tokio::spawn(async { sleep(d).await; work().await })`, a task that waits is no tokio task:
//! it is a closure in a wheel, and begins when it is due. Unlike a `tokio::time::interval` in a
//! loop, it has a handle, a policy for what it misses, retries, timeouts, limits, and a shutdown that
//! says what became of it.
//!
//! ```
//! use std::time::Duration;
//! use wheelhouse_wheel::scheduler::{Grace, Scheduler};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let scheduler = Scheduler::builder().build()?;
//!
//! let answer = scheduler.after(Duration::from_millis(10), || async { Ok::<_, String>(42) })?;
//! let ticks = scheduler.every(Duration::from_secs(60), || async { /* clean up */ })?;
//! assert_eq!(answer.await?, 42);
//!
//! let report = scheduler.shutdown(Grace::cancel_pending()).await;
//! assert_eq!(report.all.cancelled, 1);
//! # drop(ticks);
//! # Ok(()) }
//! ```
//!
//! # Which method
//!
//! | | a closure | blocking | first run | next run |
//! |---|---|---|---|---|
//! | once | [`after`](Scheduler::after), [`at`](Scheduler::at) | [`after_blocking`](Scheduler::after_blocking), [`at_blocking`](Scheduler::at_blocking) | then | |
//! | once, by the calendar | [`at_system`](Scheduler::at_system) | [`at_system_blocking`](Scheduler::at_system_blocking) | then | |
//! | a future, once | [`after_once`](Scheduler::after_once) | | then | |
//! | fixed rate | [`every`](Scheduler::every) | [`every_blocking`](Scheduler::every_blocking) | a period from now | a period after the last was due |
//! | fixed delay | [`every_after_completion`](Scheduler::every_after_completion) | [`every_after_completion_blocking`](Scheduler::every_after_completion_blocking) | a delay from now | a delay after the last ended |
//! | cron | `cron` | `cron_blocking` | its next time | its next time |
//!
//! All else that can be said of a task is said before, with [`Scheduler::task`]. An option that would
//! have no effect on the task is refused when it is scheduled; the same said of all tasks, at the
//! [builder](Scheduler::builder), is for those that can have it.
//!
//! | option | for |
//! |---|---|
//! | [`missed_tick`](TaskOptions::missed_tick) | `every` |
//! | [`coalesce`](TaskOptions::coalesce) | `cron` |
//! | [`run_limit`](TaskOptions::run_limit), [`immediately`](TaskOptions::immediately) | what recurs |
//! | [`on_duplicate`](TaskOptions::on_duplicate) | what has a [`key`](TaskOptions::key) |
//! | [`max_concurrent`](TaskOptions::max_concurrent) of 2 or more | what has a key, `every`, `cron`; blocking work that recurs only after completion |
//! | [`retry`](TaskOptions::retry) | all but `after_once` |
//! | all others | every task |
//!
//! # Guarantees
//!
//! - S1, never early: a run begins at or after the instant it is due.
//! - S2, a task that recurs goes on whatever its runs do: return errors, panic, take too long. Each
//!   is counted and reported with the task's name.
//! - S3, one run at a time: of a task and of a key, unless
//!   [`max_concurrent`](TaskOptions::max_concurrent) says more. A place is free again when its run
//!   has ended, however.
//! - S4, who won is in the return value: after [`Cancel::Cancelled`] no run begins.
//! - S5, nothing is forgotten: every task that was accepted runs, is cancelled, is reported as missed,
//!   or is in the report of the shutdown; its handle hears of it.
//! - S6, nothing is left: after [`shutdown`](Scheduler::shutdown) no run begins or goes on, but what
//!   the report calls abandoned. Dropping the last [`Scheduler`] cancels and cuts off everything.
//! - S7, order: tasks that one thread schedules for the same tick are started in the order of
//!   priority, then of scheduling. On a runtime of several threads they may then overtake.
//! - Work, outcomes and wakers run and are dropped outside every lock, and may use the scheduler.
//!
//! # Time
//!
//! Delays count on the scheduler's [`Clock`](crate::Clock), which steps of the wall clock do not
//! touch. Cron and [`at_system`](Scheduler::at_system) go by
//! [`Clock::system_now`](crate::Clock::system_now): the times of a cron task strictly increase, so a wall
//! clock that is set back repeats nothing, and one that is set ahead, or a machine that slept, makes what
//! goes by it late by a minute at most.
//!
//! # Trade-offs
//!
//! What is due waits for a free worker like any tokio task; code that blocks a worker makes others
//! late. A run that has to wait becomes a tokio task of its own; the first step of each, up to its
//! first wait, is taken by a task of the scheduler, so `tokio::task::id` changes after it. A task that
//! waits for its time costs its closure and at most 96 bytes. Times are on a grid, see
//! [`interval`](SchedulerBuilder::interval), and on tokio's clock, which knows milliseconds, up to 2 ms
//! later. A scheduler with nothing to do sleeps; one with a task that goes by the calendar looks at it
//! once a minute. Panics are contained only where they unwind, not under `panic = "abort"`. Nothing is
//! persistent: what is pending when the process ends is gone.

mod builder;
mod claim;
mod context;
mod control;
mod driver;
mod entry;
mod error;
mod events;
mod gate;
mod handle;
mod inner;
mod keys;
mod late;
#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;
mod meters;
mod options;
mod plan;
mod ready;
mod recur;
mod retry;
mod run;
mod shard;
mod shutdown;
mod stats;
mod task;
mod timeout;
mod watch;
mod work;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub use builder::SchedulerBuilder;
pub use context::Run;
pub use control::Cancel;
pub use error::{Refusal, ScheduleError, TaskError};
pub use events::{Event, EventError, EventKind, EventStream};
pub use handle::{Status, TaskHandle, TaskRef};
pub use options::Duplicate;
pub use plan::MissedTick;
pub use retry::{Failure, Retry};
pub use shutdown::{Endings, Grace, ShutdownReport};
pub use stats::SchedulerStats;
pub use task::TaskOptions;
pub use work::Outcome;

use crate::clock::ManualClock;
use inner::Inner;
use task::{First, Scheduled, schedule};
use work::{Async, Blocking, Once};

/// Runs async and blocking work at given times. See the [module](self).
///
/// A cheap handle; clones name the same scheduler, from any thread. Dropping the last one cancels
/// what is pending and cuts off what runs, without waiting for it.
#[derive(Clone)]
pub struct Scheduler {
    owner: Arc<Owner>,
}

/// Lives as long as anybody can schedule.
struct Owner {
    inner: Arc<Inner>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.abandon();
    }
}

impl Scheduler {
    /// Settings for a new scheduler.
    pub fn builder() -> SchedulerBuilder {
        SchedulerBuilder::new()
    }

    fn new(inner: Arc<Inner>) -> Self {
        Scheduler {
            owner: Arc::new(Owner { inner }),
        }
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.owner.inner
    }

    /// A task of which more is to be said than when it runs: its name, key, retries, limits.
    pub fn task(&self) -> TaskOptions {
        TaskOptions::new(self.inner())
    }

    /// Runs `work` once, `delay` from now, see [`TaskOptions::after`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::scheduler::Scheduler;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scheduler = Scheduler::builder().build()?;
    /// let reminder = scheduler.after(Duration::from_millis(5), || async { println!("now") })?;
    /// reminder.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn after<F, A>(&self, delay: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        schedule(self.inner(), None, First::After(delay), None, Async(work))
    }

    /// Runs `work` once, at an instant of the scheduler's clock, see [`TaskOptions::at`].
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at<F, A>(&self, at: impl Into<Instant>, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        schedule(self.inner(), None, First::At(at.into()), None, Async(work))
    }

    /// Runs `work` once, when the calendar shows `time`, see [`TaskOptions::at_system`].
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_system<F, A>(&self, time: impl Into<SystemTime>, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.task().at_system(time, work)
    }

    /// Runs a future once, `delay` from now, see [`TaskOptions::after_once`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::scheduler::Scheduler;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scheduler = Scheduler::builder().build()?;
    /// let text = String::from("moved into the future");
    /// let task = scheduler.after_once(Duration::from_millis(5), async move { drop(text) })?;
    /// task.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the future back.
    pub fn after_once<A>(&self, delay: Duration, work: A) -> Scheduled<A::Output, A>
    where
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        schedule(
            self.inner(),
            None,
            First::After(delay),
            None,
            Once(Some(work)),
        )
    }

    /// Runs `work` every `period`, at a fixed rate, see [`TaskOptions::every`].
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every<F, A>(&self, period: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.task().every(period, work)
    }

    /// Runs `work` again and again, `delay` after it has ended, see
    /// [`TaskOptions::every_after_completion`].
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every_after_completion<F, A>(&self, delay: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.task().every_after_completion(delay, work)
    }

    /// Runs `work` at the times of a cron expression in a time zone, see [`TaskOptions::cron`].
    ///
    /// ```
    /// # use wheelhouse_wheel::scheduler::Scheduler;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scheduler = Scheduler::builder().build()?;
    /// let report = scheduler.cron("0 9 * * MON-FRI", "Europe/Berlin", || async { /* send */ })?;
    /// assert!(report.next_run().is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    #[cfg(feature = "cron")]
    pub fn cron<F, A>(
        &self,
        expression: &str,
        zone: impl crate::cron::IntoZone,
        work: F,
    ) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.task().cron(expression, zone, work)
    }

    /// [`after`](Self::after) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn after_blocking<F, O>(&self, delay: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        schedule(
            self.inner(),
            None,
            First::After(delay),
            None,
            Blocking::new(work),
        )
    }

    /// [`at`](Self::at) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_blocking<F, O>(&self, at: impl Into<Instant>, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        schedule(
            self.inner(),
            None,
            First::At(at.into()),
            None,
            Blocking::new(work),
        )
    }

    /// [`at_system`](Self::at_system) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_system_blocking<F, O>(&self, time: impl Into<SystemTime>, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.task().at_system_blocking(time, work)
    }

    /// [`every`](Self::every) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every_blocking<F, O>(&self, period: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.task().every_blocking(period, work)
    }

    /// [`every_after_completion`](Self::every_after_completion) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every_after_completion_blocking<F, O>(&self, delay: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.task().every_after_completion_blocking(delay, work)
    }

    /// [`cron`](Self::cron) for work that blocks.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    #[cfg(feature = "cron")]
    pub fn cron_blocking<F, O>(
        &self,
        expression: &str,
        zone: impl crate::cron::IntoZone,
        work: F,
    ) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.task().cron_blocking(expression, zone, work)
    }

    /// The task that carries this key, unless it has ended.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<TaskRef> {
        let entry = self.inner().keys.task(key)?;
        let inner = self.inner().clone();
        Some(TaskRef { inner, entry })
    }

    /// Cancels the task that carries this key. [`Cancel::Ended`] if there is none.
    pub fn cancel(&self, key: &str) -> Cancel {
        self.get(key).map_or(Cancel::Ended, |task| task.cancel())
    }

    /// How many tasks are pending or running.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner().live()
    }

    /// Whether no task is pending or running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happens to tasks from now on. A listener that does not listen loses the oldest events,
    /// and holds up nothing.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.inner().events.listen()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        self.inner().stats()
    }

    /// Waits until nothing is due or runs: for tests on a [`ManualClock`], after
    /// the clock was moved. Not to be called in a run, which would wait for itself.
    pub async fn settled(&self) {
        let inner = self.inner();
        inner.until(|| inner.is_settled()).await;
    }

    /// Moves `clock`, which must be the scheduler's, ahead by `by` from deadline to deadline, and
    /// lets all that is due at each run to its end before it goes on to the next. An hour of schedule
    /// takes as long as its work does. Not to be called in a run, which would wait for itself; and a
    /// run that waits for time to pass on that clock (for its timeout, say) holds it up for ever.
    ///
    /// # Panics
    /// When `clock` is not the scheduler's.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    /// # use std::sync::Arc;
    /// use std::time::Duration;
    /// use wheelhouse_wheel::{ManualClock, scheduler::Scheduler};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let scheduler = Scheduler::builder().clock(clock.clone()).build()?;
    /// let runs = Arc::new(AtomicU32::new(0));
    /// # let counter = runs.clone();
    /// let task = scheduler.every(Duration::from_secs(60), move || {
    ///     # let counter = counter.clone();
    ///     async move { counter.fetch_add(1, SeqCst); }
    /// })?;
    /// scheduler.run_for(&clock, Duration::from_secs(3600)).await;
    /// assert_eq!(runs.load(SeqCst), 60);
    /// # drop(task);
    /// # Ok(()) }
    /// ```
    pub async fn run_for(&self, clock: &ManualClock, by: Duration) {
        use crate::clock::{Clock, Driven, add_saturating};
        let inner = self.inner();
        let end = add_saturating(clock.now(), by);
        self.settled().await;
        while let Some(next) = inner.next_deadline()
            && next <= end
        {
            clock.reach(next);
            assert!(
                inner.clock.now() >= next,
                "the clock to be moved must be the scheduler's own"
            );
            self.settled().await;
        }
        clock.reach(end);
        self.settled().await;
    }

    /// Shuts down: refuses new tasks, cancels or runs the pending, waits for the runs in progress,
    /// cuts off what is left shortly before the deadline. Returns what became of all of them.
    ///
    /// Called inside a run it does not wait for that run. A second call waits for the end of the
    /// first and returns the same report. A caller that stops waiting does not stop the shutdown.
    pub async fn shutdown(&self, grace: Grace) -> ShutdownReport {
        self.inner().shutdown(grace).await
    }

    /// [`shutdown`](Self::shutdown) that lets pending one-shots run which come due within `timeout`.
    pub async fn drain_until(&self, timeout: Duration) -> ShutdownReport {
        self.shutdown(Grace::run_pending().timeout(timeout)).await
    }

    /// Waits for `stopping` and shuts down then: a scheduler as a service of any lifecycle manager.
    pub async fn run_until(&self, stopping: impl Future, grace: Grace) -> ShutdownReport {
        stopping.await;
        self.shutdown(grace).await
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
