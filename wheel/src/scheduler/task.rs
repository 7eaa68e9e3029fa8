//! A task before it is scheduled: what is said of it, and the ways to say when it runs.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use crate::drive::ticks::NEVER;

use super::entry::{Entry, Extra, Head, Task, flag};
use super::error::{Refusal, ScheduleError};
use super::gate::Gate;
use super::handle::TaskHandle;
use super::inner::Inner;
use super::options::{Duplicate, Kind, Options, own};
use super::plan::{MissedTick, Plan};
use super::retry::Retry;
use super::work::{Async, Blocking, Once, Outcome, Shared, Work};

/// What [`TaskOptions`] and [`Scheduler`](super::Scheduler) answer.
pub(super) type Scheduled<O, F> =
    Result<TaskHandle<<O as Outcome>::Value, <O as Outcome>::Error>, ScheduleError<F>>;

/// What is to be said of a task besides its time and its work, from
/// [`Scheduler::task`](super::Scheduler::task). One of its last methods schedules it; a clone
/// schedules another like it.
///
/// ```
/// # use std::time::Duration;
/// # use wheelhouse_wheel::scheduler::{MissedTick, Retry, Scheduler};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scheduler = Scheduler::builder().build()?;
/// let pings = scheduler
///     .task()
///     .name("ping")
///     .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(3))
///     .timeout(Duration::from_secs(2))
///     .missed_tick(MissedTick::Skip)
///     .every(Duration::from_secs(30), || async { Ok::<(), String>(()) })?;
/// # let _ = pings.cancel();
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct TaskOptions {
    inner: Arc<Inner>,
    options: Arc<Options>,
}

impl TaskOptions {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        TaskOptions {
            inner: inner.clone(),
            options: inner.defaults.clone(),
        }
    }

    fn set(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    /// Notes that this option is the task's own.
    fn set_own(&mut self, option: u8) -> &mut Options {
        let options = self.set();
        options.own |= option;
        options
    }

    /// What reports and events call it. Without a name that is its key, or "task".
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.set().name = Some(name.into());
        self
    }

    /// The key that it carries. No two tasks of a scheduler carry the same at a time, see
    /// [`on_duplicate`](Self::on_duplicate); their runs share
    /// [`max_concurrent`](Self::max_concurrent) places.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.set().key = Some(key.into());
        self
    }

    /// What becomes of a task that carries the same key: it is replaced by default. Only with a
    /// [`key`](Self::key).
    pub fn on_duplicate(mut self, duplicate: Duplicate) -> Self {
        self.set_own(own::DUPLICATE).duplicate = duplicate;
        self
    }

    /// Tries failed runs again. Not for [`after_once`](Self::after_once), whose future can run but
    /// once; one that the [builder](super::SchedulerBuilder::retry) gives to all tasks leaves it out.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.set_own(own::RETRY).retry = Some(retry);
        self
    }

    /// How long an attempt may take, more than 0. Then its future is dropped. Blocking work goes on
    /// and keeps its place until it ends, but its outcome is that it took too long.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.set().timeout = Some(timeout);
        self
    }

    /// How many runs of the key may be in progress at once, or of the task if it has no key: 1 or
    /// more. With more than 1 (by default it is 1) a task that recurs does not wait for the end of
    /// one run before it begins the next, unless it counts from that end; each of its runs counts
    /// against [`max_pending`](super::SchedulerBuilder::max_pending). Runs that find no place wait for
    /// one, by priority. More than 1 needs a key or a task that may overlap itself, which are those of
    /// [`every`](Self::every) and `cron`.
    pub fn max_concurrent(mut self, runs: usize) -> Self {
        self.set().max_concurrent = Some(runs);
        self
    }

    /// What becomes of ticks that [`every`](Self::every) missed. Only for that.
    pub fn missed_tick(mut self, missed: MissedTick) -> Self {
        self.set_own(own::MISSED).missed = missed;
        self
    }

    /// A run that would begin more than this late does not take place, and is reported as missed.
    /// Without it every run takes place, however late.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.set().grace = Some(grace);
        self
    }

    /// Whether a cron task runs once for all the times that it missed (the default), or once for
    /// each. Only for that.
    pub fn coalesce(mut self, coalesce: bool) -> Self {
        self.set_own(own::COALESCE).coalesce = coalesce;
        self
    }

    /// Puts each run off by a random time up to this, so that tasks that are due at the same instant
    /// spread out. The runs after it are not shifted by it.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.set().jitter = jitter;
        self
    }

    /// How many times a task that recurs runs, 1 or more. Attempts of one run count once, and runs
    /// that were missed do not count.
    pub fn run_limit(mut self, runs: u64) -> Self {
        self.set_own(own::LIMIT).limit = Some(runs);
        self
    }

    /// No run is due after this instant; jitter and further attempts may put one off past it. A task
    /// whose first run would be after it is refused.
    pub fn until(mut self, end: impl Into<Instant>) -> Self {
        self.set().until = Some(end.into());
        self
    }

    /// Of the tasks that are due at one tick, or wait for a place, those with the higher priority go
    /// first: -128 to 127, by default 0.
    pub fn priority(mut self, priority: i8) -> Self {
        self.set().priority = priority;
        self
    }

    /// The first run of a task that recurs is at once, and the others count from it.
    pub fn immediately(mut self) -> Self {
        self.set().immediately = true;
        self
    }

    /// Runs `work` once, `delay` from now. A closure, so that it can be tried again.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn after<F, A>(self, delay: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.once(First::After(delay), Async(work))
    }

    /// Runs `work` once, at an instant of the scheduler's clock (tokio's or std's). One in the past
    /// is due at once.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at<F, A>(self, at: impl Into<Instant>, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.once(First::At(at.into()), Async(work))
    }

    /// Runs `work` once, when the calendar shows `time`. One in the past is due at once.
    ///
    /// It follows the calendar, as a cron task does: a wall clock that is set ahead, or a machine that
    /// slept, makes it late by a minute at most, and one that is set back lets it wait for its time.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use wheelhouse_wheel::scheduler::Scheduler;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scheduler = Scheduler::builder().build()?;
    /// let time = SystemTime::now() + Duration::from_millis(5);
    /// let reminder = scheduler.task().name("reminder").at_system(time, || async {})?;
    /// reminder.await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_system<F, A>(self, time: impl Into<SystemTime>, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.once_by_calendar(time.into(), Async(work))
    }

    /// Runs a future once, `delay` from now.
    ///
    /// # Errors
    /// See [`Refusal`]; also when there is a [`retry`](Self::retry), which a future cannot have.
    /// The error gives the future back.
    pub fn after_once<A>(self, delay: Duration, work: A) -> Scheduled<A::Output, A>
    where
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        if let (true, Some(retry)) = (self.options.said(own::RETRY), &self.options.retry) {
            let allowed = "left out for a future, which runs but once: give `after` a closure";
            let refusal = Refusal::argument("retry", retry, allowed);
            return Err(ScheduleError::new(refusal, work));
        }
        self.once(First::After(delay), Once(Some(work)))
    }

    /// Runs `work` every `period`, the first time a period from now: at a fixed rate, in whatever
    /// time runs end. One that takes longer than the period makes the next late, see
    /// [`missed_tick`](Self::missed_tick).
    ///
    /// # Errors
    /// See [`Refusal`]; a period of 0 is not allowed. The error gives the closure back.
    pub fn every<F, A>(self, period: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.recurring("every", Kind::FixedRate, period, Async(work))
    }

    /// Runs `work` again and again, each time `delay` after the end of the run before; the first
    /// time `delay` from now.
    ///
    /// # Errors
    /// See [`Refusal`]; a delay of 0 is not allowed. The error gives the closure back.
    pub fn every_after_completion<F, A>(self, delay: Duration, work: F) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.recurring(
            "every_after_completion",
            Kind::AfterCompletion,
            delay,
            Async(work),
        )
    }

    /// Runs `work` at the times of a cron expression in a time zone, see [`Cron`](crate::cron::Cron).
    ///
    /// # Errors
    /// See [`Refusal`]; also when the expression or the zone is not understood, or there is no such
    /// time within 100 years. The error gives the closure back.
    #[cfg(feature = "cron")]
    pub fn cron<F, A>(
        self,
        expression: &str,
        zone: impl crate::cron::IntoZone,
        work: F,
    ) -> Scheduled<A::Output, F>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        self.by_cron(crate::cron::Cron::new(expression, zone), Async(work))
    }

    /// [`after`](Self::after) for work that blocks, on tokio's threads for that.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn after_blocking<F, O>(self, delay: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.once(First::After(delay), Blocking::new(work))
    }

    /// [`at`](Self::at) for work that blocks, on tokio's threads for that.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_blocking<F, O>(self, at: impl Into<Instant>, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.once(First::At(at.into()), Blocking::new(work))
    }

    /// [`at_system`](Self::at_system) for work that blocks, on tokio's threads for that.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn at_system_blocking<F, O>(self, time: impl Into<SystemTime>, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.once_by_calendar(time.into(), Blocking::new(work))
    }

    /// [`every`](Self::every) for work that blocks, on tokio's threads for that. Its runs cannot
    /// overlap.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every_blocking<F, O>(self, period: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.recurring(
            "every_blocking",
            Kind::FixedRate,
            period,
            Blocking::new(work),
        )
    }

    /// [`every_after_completion`](Self::every_after_completion) for work that blocks, on tokio's
    /// threads for that.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    pub fn every_after_completion_blocking<F, O>(self, delay: Duration, work: F) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.recurring(
            "every_after_completion_blocking",
            Kind::AfterCompletion,
            delay,
            Blocking::new(work),
        )
    }

    /// [`cron`](Self::cron) for work that blocks, on tokio's threads for that.
    ///
    /// # Errors
    /// See [`Refusal`]; the error gives the closure back.
    #[cfg(feature = "cron")]
    pub fn cron_blocking<F, O>(
        self,
        expression: &str,
        zone: impl crate::cron::IntoZone,
        work: F,
    ) -> Scheduled<O, F>
    where
        F: FnMut() -> O + Send + 'static,
        O: Outcome,
    {
        self.by_cron(
            crate::cron::Cron::new(expression, zone),
            Blocking::new(work),
        )
    }

    fn once<W: Work>(self, first: First, work: W) -> Scheduled<W::Outcome, W::Given> {
        if let Err(refusal) = self.options.check_for(Kind::Once) {
            return Err(ScheduleError::new(refusal, work.give_back()));
        }
        schedule(&self.inner, Some(self.options), first, None, work)
    }

    fn once_by_calendar<W: Work>(
        self,
        due: SystemTime,
        work: W,
    ) -> Scheduled<W::Outcome, W::Given> {
        if let Err(refusal) = self.options.check_for(Kind::Once) {
            return Err(ScheduleError::new(refusal, work.give_back()));
        }
        let first = First::ByCalendar(self.inner.moment().instant_of(due));
        let plan = Some(Plan::At { due });
        schedule(&self.inner, Some(self.options), first, plan, work)
    }

    fn recurring<W: Work>(
        self,
        method: &'static str,
        kind: Kind,
        period: Duration,
        work: W,
    ) -> Scheduled<W::Outcome, W::Given> {
        let checked = if period.is_zero() {
            Err(Refusal::argument(method, period, "more than 0"))
        } else if kind == Kind::AfterCompletion {
            self.options.check_for(kind)
        } else {
            self.check_overlap::<W>(kind)
        };
        if let Err(refusal) = checked {
            return Err(ScheduleError::new(refusal, work.give_back()));
        }
        let now = self.inner.clock.now();
        let first = if self.options.immediately {
            Some(now)
        } else {
            now.checked_add(period)
        };
        let plan = match kind {
            Kind::AfterCompletion => Plan::AfterCompletion { delay: period },
            _ => Plan::Every {
                period,
                missed: self.options.missed,
                // What lies beyond the end of time never comes.
                due: first.unwrap_or(now),
            },
        };
        let first = first.map_or(First::Never, First::At);
        self.with_plan(first, plan, work)
    }

    fn check_overlap<W: Work>(&self, kind: Kind) -> Result<(), Refusal> {
        self.options.check_for(kind)?;
        match self.options.max_concurrent {
            Some(runs) if runs > 1 && W::BLOCKING => Err(Refusal::argument(
                "max_concurrent",
                runs,
                "1 for blocking work that recurs: its closure runs on one thread at a time",
            )),
            _ => Ok(()),
        }
    }

    #[cfg(feature = "cron")]
    fn by_cron<W: Work>(
        self,
        cron: Result<crate::cron::Cron, crate::cron::CronError>,
        work: W,
    ) -> Scheduled<W::Outcome, W::Given> {
        let planned = self.check_overlap::<W>(Kind::Cron).and_then(|()| {
            let cron = cron?;
            let moment = self.inner.moment();
            let due = if self.options.immediately {
                moment.wall()
            } else {
                cron.next_after_system(moment.wall()).ok_or_else(|| {
                    let allowed = "an expression with a time in the next 100 years";
                    Refusal::argument("cron", cron.expression(), allowed)
                })?
            };
            let first = First::ByCalendar(moment.instant_of(due));
            let plan = Plan::Cron {
                cron: Box::new(cron),
                due,
                coalesce: self.options.coalesce,
            };
            Ok((first, plan))
        });
        match planned {
            Ok((first, plan)) => self.with_plan(first, plan, work),
            Err(refusal) => Err(ScheduleError::new(refusal, work.give_back())),
        }
    }

    fn with_plan<W: Work>(
        self,
        first: First,
        plan: Plan,
        work: W,
    ) -> Scheduled<W::Outcome, W::Given> {
        if self.options.overlaps::<W>(&plan) {
            let work = Shared::new(work);
            schedule(&self.inner, Some(self.options), first, Some(plan), work)
        } else {
            schedule(&self.inner, Some(self.options), first, Some(plan), work)
        }
    }
}

/// When the first run is due.
pub(super) enum First {
    After(Duration),
    At(Instant),
    /// As far as can be told now.
    ByCalendar(Instant),
    /// Beyond the end of time.
    Never,
}

/// Makes a task and files it.
pub(super) fn schedule<W: Work>(
    inner: &Arc<Inner>,
    options: Option<Arc<Options>>,
    first: First,
    plan: Option<Plan>,
    work: W,
) -> Scheduled<W::Outcome, W::Given> {
    let given = options.as_deref().unwrap_or(&inner.defaults);
    let tick = first.tick(inner, given.jitter);
    if let Err(refusal) = given.check_first(&first, inner) {
        return Err(ScheduleError::new(refusal, work.give_back()));
    }
    let has_room = inner.admit();
    if !has_room && !given.may_replace() {
        return Err(ScheduleError::new(Refusal::Full, work.give_back()));
    }
    let overlaps = plan.as_ref().is_some_and(|plan| given.overlaps::<W>(plan));
    let mut flags = flag::HANDLE;
    flags |= if overlaps { flag::OVERLAP } else { 0 };
    flags |= if given.key.is_some() { flag::GATED } else { 0 };
    if plan.as_ref().is_some_and(|plan| plan.wall().is_some()) {
        flags |= flag::CALENDAR;
    }
    let head = Head::new(shard(inner.shards.len()), given.priority, flags);
    let key = given.key.clone();
    let limit = given
        .limit
        .filter(|_| plan.as_ref().is_some_and(Plan::recurs));
    let options = options.map(|mut options| {
        if overlaps && key.is_none() {
            let gate = Arc::new(Gate::new(options.places()));
            Arc::make_mut(&mut options).gate = Some(gate);
        }
        options
    });
    let extra = (options.is_some() || plan.is_some()).then(|| {
        Box::new(Extra {
            options,
            plan,
            runs_left: limit,
            ..Extra::default()
        })
    });
    let task = Task::new(head, extra, work);
    // It is not let go before listeners have been told of it, so that they hear of its run later.
    let told = inner.events.wanted();
    let at_first = if told { NEVER } else { tick };
    let filed = match key {
        None => inner
            .file(task.clone(), at_first)
            .map(|()| inner.announce(&*task)),
        Some(key) => keyed(inner, &key, has_room, task.clone(), at_first),
    };
    if told && filed.is_ok() {
        inner.release(&*task, tick);
    }
    match filed {
        Ok(()) => Ok(TaskHandle::new(inner.clone(), task)),
        Err(refusal) => {
            if has_room {
                inner.unadmit();
            }
            let work = task.cell.lock().work.take();
            let work = work.expect("a task that was not filed has not run");
            Err(ScheduleError::new(refusal, work.give_back()))
        }
    }
}

/// Files a task that carries a key.
fn keyed(
    inner: &Inner,
    key: &Arc<str>,
    has_room: bool,
    entry: Arc<dyn Entry>,
    tick: u64,
) -> Result<(), Refusal> {
    let options = entry
        .lock()
        .as_ref()
        .and_then(|extra| extra.options.clone());
    let options = options.unwrap_or_else(|| inner.defaults.clone());
    inner.keys.install(inner, key, &options, has_room, |gate| {
        let mut options = (*options).clone();
        options.gate = Some(gate);
        if let Some(extra) = &mut *entry.lock() {
            extra.options = Some(Arc::new(options));
        }
        inner.file(entry.clone(), tick)?;
        Ok(entry)
    })
}

impl First {
    fn tick(&self, inner: &Inner, jitter: Duration) -> u64 {
        match self {
            First::After(delay) if jitter.is_zero() => {
                inner.ticks.deadline(inner.clock.now(), *delay)
            }
            First::After(delay) => match inner.clock.now().checked_add(*delay) {
                Some(at) => inner.tick_of(at, jitter),
                None => NEVER,
            },
            // What was due in the past is due now, and not late.
            First::At(at) => inner
                .tick_of(*at, jitter)
                .max(inner.ticks.at(inner.clock.now())),
            First::ByCalendar(at) => inner
                .tick_by_calendar(&inner.moment(), *at, jitter)
                .max(inner.ticks.at(inner.clock.now())),
            First::Never => NEVER,
        }
    }
}

impl Options {
    /// Refuses a task whose first run is after its end.
    fn check_first(&self, first: &First, inner: &Inner) -> Result<(), Refusal> {
        let Some(until) = self.until else {
            return Ok(());
        };
        let now = inner.clock.now();
        let first = match first {
            First::After(delay) => now.checked_add(*delay),
            First::At(at) | First::ByCalendar(at) => Some((*at).max(now)),
            First::Never => None,
        };
        if first.is_some_and(|first| first <= until) {
            return Ok(());
        }
        let first = first.map_or_else(|| "never".to_owned(), |first| from_now(first, now));
        Err(Refusal::Argument {
            argument: "until",
            value: from_now(until, now),
            allowed: format!("the time of the first run ({first}) or later"),
        })
    }
}

/// An instant in words.
fn from_now(at: Instant, now: Instant) -> String {
    match at.checked_duration_since(now) {
        Some(ahead) => format!("now + {ahead:?}"),
        None => format!("now - {:?}", now - at),
    }
}

/// The shard of the calling thread: tasks that one thread schedules keep their order.
fn shard(shards: usize) -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let thread = THREAD.try_with(|thread| {
        let number = thread
            .get()
            // Relaxed: only to tell threads apart.
            .unwrap_or_else(|| THREADS.fetch_add(1, Relaxed));
        thread.set(Some(number));
        number
    });
    thread.unwrap_or(0) % shards
}

impl std::fmt::Debug for TaskOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskOptions")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
