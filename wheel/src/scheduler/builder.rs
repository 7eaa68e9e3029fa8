//! Settings of a scheduler.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::BuildError;
use crate::clock::{Clock, TokioClock};
use crate::drive::alarm::{Alarm, Bell};
use crate::drive::ticks::Ticks;
use crate::sync::Parker;

use super::Scheduler;
use super::driver::{self, ThreadDriver};
use super::error::Refusal;
use super::inner::{Inner, Parts};
use super::options::Options;
use super::plan::MissedTick;
use super::retry::Retry;

/// How many parts the tasks are divided among.
const SHARDS: usize = 16;

/// Settings for a [`Scheduler`], and what its tasks do unless they say otherwise: each of them that can
/// have the option.
#[must_use]
pub struct SchedulerBuilder {
    name: String,
    interval: Duration,
    max_pending: usize,
    max_running: Option<usize>,
    events: usize,
    seed: Option<u64>,
    clock: Option<Arc<dyn Clock>>,
    runtime: Option<Handle>,
    defaults: Options,
}

impl SchedulerBuilder {
    pub(super) fn new() -> Self {
        SchedulerBuilder {
            name: "scheduler".to_owned(),
            interval: Duration::from_millis(1),
            max_pending: 16_777_216,
            max_running: None,
            events: 1024,
            seed: None,
            clock: None,
            runtime: None,
            defaults: Options::new(),
        }
    }

    /// Its name in traces and metrics, and that of the driver's thread if it has one: "scheduler".
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The time between two ticks, more than 0: 1 ms. A task begins at the first tick that is not
    /// before it is due.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How many tasks may be pending or running, 1 or more: 16 777 216. More are refused, but for one
    /// that takes the place of another which carries its key and of which no run is in progress.
    pub fn max_pending(mut self, tasks: usize) -> Self {
        self.max_pending = tasks;
        self
    }

    /// No limit of pending tasks but memory.
    pub fn unbounded_pending(self) -> Self {
        self.max_pending(usize::MAX)
    }

    /// How many runs may be in progress at once, 1 or more; without it as many as are due. Those
    /// that are due and find no place wait for one, by priority.
    pub fn max_concurrent_runs(mut self, runs: usize) -> Self {
        self.max_running = Some(runs);
        self
    }

    /// How many events a listener may lag behind, 1 to 2²⁴: 1024.
    pub fn events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Seeds the random parts of jitter and backoff, so that they are the same in every run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The clock: [`TokioClock`] by default, which tokio's tests can pause. Any other has a thread
    /// of its own that drives the scheduler.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The runtime that tasks run on; by default the one that [`build`](Self::build) is called in.
    /// The default clock needs its time driver (`enable_time`).
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// [`TaskOptions::retry`](super::TaskOptions::retry) of tasks that do not say otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.defaults.retry = Some(retry);
        self
    }

    /// [`TaskOptions::timeout`](super::TaskOptions::timeout) of tasks that do not say otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.defaults.timeout = Some(timeout);
        self
    }

    /// [`TaskOptions::missed_tick`](super::TaskOptions::missed_tick) of tasks that do not say
    /// otherwise.
    pub fn missed_tick(mut self, missed: MissedTick) -> Self {
        self.defaults.missed = missed;
        self
    }

    /// [`TaskOptions::grace`](super::TaskOptions::grace) of tasks that do not say otherwise.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.defaults.grace = Some(grace);
        self
    }

    /// [`TaskOptions::coalesce`](super::TaskOptions::coalesce) of tasks that do not say otherwise.
    pub fn coalesce(mut self, coalesce: bool) -> Self {
        self.defaults.coalesce = coalesce;
        self
    }

    /// [`TaskOptions::jitter`](super::TaskOptions::jitter) of tasks that do not say otherwise.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.defaults.jitter = jitter;
        self
    }

    /// How many runs of each key may be in progress at once, 1 or more: 1. It is the
    /// [`TaskOptions::max_concurrent`](super::TaskOptions::max_concurrent) of tasks that carry a key and
    /// do not say otherwise; those of them that recur may then overlap themselves, unless their work
    /// blocks.
    pub fn max_concurrent_per_key(mut self, runs: usize) -> Self {
        self.defaults.max_concurrent_per_key = Some(runs);
        self
    }

    /// [`TaskOptions::run_limit`](super::TaskOptions::run_limit) of tasks that recur and do not say
    /// otherwise.
    pub fn run_limit(mut self, runs: u64) -> Self {
        self.defaults.limit = Some(runs);
        self
    }

    /// [`TaskOptions::until`](super::TaskOptions::until) of tasks that do not say otherwise, one-shots
    /// among them.
    pub fn until(mut self, end: impl Into<Instant>) -> Self {
        self.defaults.until = Some(end.into());
        self
    }

    /// [`TaskOptions::priority`](super::TaskOptions::priority) of tasks that do not say otherwise.
    pub fn priority(mut self, priority: i8) -> Self {
        self.defaults.priority = priority;
        self
    }

    /// Builds the scheduler and starts its driver.
    ///
    /// # Errors
    /// A setting is out of range, there is no runtime, or the driver's thread could not be started.
    pub fn build(self) -> Result<Scheduler, BuildError> {
        self.check()?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| BuildError::Argument {
                argument: "runtime",
                value: "none".to_owned(),
                allowed: "a tokio runtime: build inside of one, or name one".to_owned(),
            })?,
        };
        let parker = Parker::new();
        let bell = Arc::new(Notify::new());
        let by_task = self.clock.is_none();
        let alarm = Alarm::new(if by_task {
            Bell::Task(bell.clone())
        } else {
            Bell::Thread(parker.unparker().clone())
        });
        let clock = self.clock.unwrap_or_else(|| Arc::new(TokioClock));
        let start = {
            // tokio's clock is that of the runtime, also when it is paused.
            let _inside = runtime.enter();
            if by_task {
                check_time_driver()?;
            }
            clock.now()
        };
        #[cfg(feature = "tracing")]
        tracing::debug!(scheduler = %self.name, interval = ?self.interval, "scheduler starts");
        let inner = Arc::new(Inner::new(Parts {
            name: self.name.clone(),
            ticks: Ticks::new(start, self.interval),
            clock,
            runtime,
            shards: SHARDS,
            alarm,
            defaults: self.defaults,
            max_running: self.max_running,
            max_pending: self.max_pending,
            events: self.events,
            seed: self.seed,
        }));
        inner.life.driver_starts();
        if by_task {
            drop(inner.runtime.spawn(driver::drive(inner.clone(), bell)));
        } else {
            let virtual_time = inner.clock.register(driver::driven(&inner));
            let driver = ThreadDriver {
                inner: inner.clone(),
                parker,
                virtual_time,
            };
            let watch = driver::watch(inner.clone(), bell.clone());
            let thread = thread::Builder::new().name(self.name);
            let thread = thread.spawn(move || {
                driver.run();
                bell.notify_one();
            })?;
            *inner.thread.lock() = Some(thread);
            drop(inner.runtime.spawn(watch));
        }
        Ok(Scheduler::new(inner))
    }

    fn check(&self) -> Result<(), BuildError> {
        let refuse = |argument, value: String, allowed: &str| {
            Err(BuildError::Argument {
                argument,
                value,
                allowed: allowed.to_owned(),
            })
        };
        if self.name.contains('\0') {
            let name = format!("{:?}", self.name);
            return refuse("name", name, "without NUL characters");
        }
        if self.interval.is_zero() {
            let interval = format!("{:?}", self.interval);
            return refuse("interval", interval, "more than 0");
        }
        if self.max_pending == 0 {
            return refuse("max_pending", "0".to_owned(), "1 or more");
        }
        if self.max_running == Some(0) {
            return refuse("max_concurrent_runs", "0".to_owned(), "1 or more");
        }
        if !(1..=1 << 24).contains(&self.events) {
            return refuse("events", self.events.to_string(), "1 to 16777216");
        }
        match self.defaults.check() {
            Err(Refusal::Argument {
                argument,
                value,
                allowed,
            }) => refuse(argument, value, &allowed),
            _ => Ok(()),
        }
    }
}

/// Refuses a runtime on which the driver could not sleep. To be called inside of it.
fn check_time_driver() -> Result<(), BuildError> {
    // tokio answers this by a panic alone, here or later in the driver.
    let sleep = || drop(tokio::time::sleep(Duration::ZERO));
    catch_unwind(sleep).map_err(|_| BuildError::Argument {
        argument: "runtime",
        value: "one without a time driver".to_owned(),
        allowed: "a tokio runtime with `enable_time`, or another clock".to_owned(),
    })
}

impl std::fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchedulerBuilder")
            .field("name", &self.name)
            .field("interval", &self.interval)
            .field("max_pending", &self.max_pending)
            .field("max_concurrent_runs", &self.max_running)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
