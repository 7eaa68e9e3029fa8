//! What the tasks are scheduled on: a wheel and its executor, or a scheduler and its runtime.

use std::{
    fmt,
    future::ready,
    panic, process as this_process,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};
use wheelhouse_wheel::{
    Executor, Scheduler, TimingWheel,
    scheduler::{Grace, Refusal},
};

use super::{LoadArgs, Workers, nanos, tally::Tally};
use crate::failure::Failure;

/// Longer than any run (its delays are at most two months): a blocking thread of tokio is not
/// given back, so that there always is one.
const KEEP_ALIVE: Duration = Duration::from_secs(100 * 86_400);

/// A running wheel or scheduler.
pub(super) enum Subject {
    Wheel {
        wheel: TimingWheel<u64, u64>,
        /// Dropped after the wheel has stopped.
        _runtime: Option<Runtime>,
    },
    Scheduler {
        scheduler: Scheduler,
        runtime: Runtime,
        noted: Arc<Noted>,
    },
}

/// Where tasks note that they run, and since when time is counted.
pub(super) struct Noted {
    pub(super) tally: Tally,
    pub(super) start: Instant,
}

impl Noted {
    /// Notes that `task`, due at `due_ns` since the start, begins now.
    fn note(&self, task: u64, due_ns: u64) {
        self.tally.note(task, due_ns, nanos(self.start.elapsed()));
    }
}

impl Subject {
    /// Starts what `args` asks for.
    pub(super) fn start(args: &LoadArgs, noted: &Arc<Noted>) -> Result<Self, Failure> {
        let noted = Arc::clone(noted);
        if args.scheduler {
            let runtime = runtime(Builder::new_multi_thread().enable_time(), false)?;
            let scheduler = Scheduler::builder()
                .runtime(runtime.handle().clone())
                .interval(args.interval)
                .unbounded_pending()
                .build()
                .map_err(system)?;
            return Ok(Self::Scheduler {
                scheduler,
                runtime,
                noted,
            });
        }
        let runtime = match args.executor {
            Workers::Inline | Workers::Threads(_) => None,
            Workers::Tokio => Some(runtime(&mut Builder::new_multi_thread(), false)?),
            Workers::TokioBlocking => Some(runtime(
                Builder::new_multi_thread().thread_keep_alive(KEEP_ALIVE),
                true,
            )?),
        };
        let executor = match (args.executor, &runtime) {
            (Workers::Threads(threads), _) => Executor::Threads(threads),
            (Workers::Tokio, Some(runtime)) => Executor::Tokio(runtime.handle().clone()),
            (Workers::TokioBlocking, Some(runtime)) => {
                Executor::TokioBlocking(runtime.handle().clone())
            }
            _ => Executor::Inline,
        };
        let wheel = TimingWheel::builder()
            .interval(args.interval)
            .unbounded_pending()
            .executor(executor)
            .build(move |task, due_ns| noted.note(task, due_ns))
            .map_err(system)?;
        Ok(Self::Wheel {
            wheel,
            _runtime: runtime,
        })
    }

    /// Schedules `task` for `delay` from now, which is `due_ns` since the start.
    pub(super) fn schedule(&self, task: u64, due_ns: u64, delay: Duration) -> Result<(), Failure> {
        match self {
            Self::Wheel { wheel, .. } => wheel.set_timer(task, due_ns, delay).map_err(system),
            Self::Scheduler {
                scheduler, noted, ..
            } => {
                let noted = Arc::clone(noted);
                let work = move || {
                    noted.note(task, due_ns);
                    ready(())
                };
                let scheduled = scheduler.after(delay, work).map_err(Refusal::from);
                scheduled.map(drop).map_err(system)
            }
        }
    }

    /// Returns when everything that was scheduled has been filed.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Wheel { wheel, .. } => wheel.flush().map_err(system),
            // A task is filed when `after` returns.
            Self::Scheduler { .. } => Ok(()),
        }
    }

    /// Returns of the driver from its sleep.
    pub(super) fn wakeups(&self) -> u64 {
        match self {
            Self::Wheel { wheel, .. } => wheel.stats().wakeups,
            Self::Scheduler { scheduler, .. } => scheduler.stats().wakeups,
        }
    }

    /// Returns when no task runs any more; none that is pending will.
    pub(super) fn stop(self) {
        match self {
            Self::Wheel { wheel, .. } => drop(wheel.stop()),
            Self::Scheduler {
                scheduler, runtime, ..
            } => drop(runtime.block_on(scheduler.shutdown(Grace::cancel_pending()))),
        }
    }
}

/// Builds a runtime with its threads, also one for blocking tasks if there will be such: ends the
/// process with exit code 1 when the system refuses them.
fn runtime(builder: &mut Builder, blocking: bool) -> Result<Runtime, Failure> {
    // Tokio panics when it gets no thread, and then waits for ever for those that it got, so
    // the panic may not unwind.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|panic| {
        let cause = panic.payload_as_str().unwrap_or("unknown cause");
        system(format_args!("tokio could not be started: {cause}")).report();
        this_process::exit(1);
    }));
    let runtime = builder.build();
    if let (true, Ok(runtime)) = (blocking, &runtime) {
        // With one thread for blocking tasks they all get their turn; it stays to the end.
        drop(runtime.spawn_blocking(|| ()));
    }
    panic::set_hook(hook);
    runtime.map_err(system)
}

pub(super) fn system(error: impl fmt::Display) -> Failure {
    Failure::System(error.to_string())
}
