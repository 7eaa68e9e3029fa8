//! Runtimes that end, are missing or lack something, while tasks wait, stand in queues and run.
#![cfg(feature = "tokio")]

mod support {
    pub(crate) mod threads;
    pub(crate) mod within;
}

use std::cell::RefCell;
use std::future::{pending, ready};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use wheelhouse_wheel::scheduler::{Grace, Refusal, Scheduler, TaskError, TaskHandle};
use wheelhouse_wheel::{ManualClock, SystemClock};

use support::threads::await_threads;
use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
}

/// Tasks in every state, of which only those that run have begun.
fn fill(runtime: &Runtime, name: &'static str) -> (Scheduler, Vec<TaskHandle>) {
    let mut builder = Scheduler::builder()
        .name(name)
        .runtime(runtime.handle().clone())
        .max_concurrent_runs(50);
    if name != "task" {
        builder = builder.clock(SystemClock);
    }
    let scheduler = builder.build().unwrap();
    let mut handles = Vec::new();
    for n in 0..100 {
        // Half of them in the queue for a place.
        handles.push(scheduler.after(MS, pending::<()>).unwrap());
        handles.push(scheduler.after(HOUR, || ready(())).unwrap());
        handles.push(scheduler.after(Duration::MAX, || ready(())).unwrap());
        let options = scheduler.task().key(format!("key {n}"));
        handles.push(options.every(HOUR, || ready(())).unwrap());
        let options = scheduler.task().max_concurrent(3);
        handles.push(options.every(MS, pending::<()>).unwrap());
    }
    handles[1].pause();
    runtime.block_on(async {
        while scheduler.stats().in_progress < 200 {
            tokio::time::sleep(MS).await;
        }
    });
    (scheduler, handles)
}

fn a_runtime_ends(runtime: fn() -> Runtime, name: &'static str) {
    within_a_minute(move || {
        let (runtime, elsewhere) = (runtime(), current_thread());
        let (scheduler, handles) = fill(&runtime, name);
        let waits = thread::spawn(move || {
            let mut outcomes = Vec::new();
            for handle in handles {
                outcomes.push(elsewhere.block_on(handle));
            }
            outcomes
        });
        thread::sleep(10 * MS);
        drop(runtime);
        let outcomes = waits.join().unwrap();
        let count = |error| outcomes.iter().filter(|o| **o == error).count();
        let cancelled = count(Err(TaskError::Cancelled));
        let aborted = count(Err(TaskError::Aborted));
        assert_eq!(cancelled + aborted, 500, "{outcomes:?}");
        // The fifty that had places, or more of those that overlap themselves heard of their runs.
        assert!(cancelled >= 300, "{cancelled} cancelled, {aborted} aborted");
        assert_eq!(scheduler.len(), 0);
        // A place is given back after the handle has heard.
        while scheduler.stats().in_progress > 0 {
            thread::sleep(MS);
        }
        let refused = scheduler.after(MS, || ready(())).unwrap_err();
        assert_eq!(refused.refusal(), &Refusal::Closed);
        // On a runtime that is gone this ends at once.
        let report = current_thread().block_on(scheduler.shutdown(Grace::run_pending()));
        assert_eq!(report.all.total(), 0);
        await_threads(name, 0);
    });
}

#[test]
fn the_end_of_a_runtime_of_several_threads_ends_every_task() {
    a_runtime_ends(two_threads, "task");
}

#[test]
fn the_end_of_a_runtime_of_one_thread_ends_every_task() {
    a_runtime_ends(current_thread, "task");
}

#[test]
fn the_end_of_the_runtime_ends_what_a_thread_drives() {
    a_runtime_ends(two_threads, "driver of two");
    a_runtime_ends(current_thread, "driver of one");
}

type Act = Box<dyn FnOnce() + Send>;

/// What a runtime of one thread does when it ends before it drops anything of a scheduler that is built
/// then.
#[derive(Clone, Default)]
struct DropsFirst(Arc<Mutex<Option<Act>>>);

impl DropsFirst {
    fn new(runtime: &Runtime) -> Self {
        let first = DropsFirst::default();
        // A runtime keeps its tasks in several lists, and empties one after another from its oldest: by
        // so many there is one in each.
        for _ in 0..64 {
            let first = first.clone();
            runtime.spawn(async move {
                pending::<()>().await;
                drop(first);
            });
        }
        first
    }

    fn does(&self, act: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(act));
    }
}

impl Drop for DropsFirst {
    fn drop(&mut self) {
        let act = self.0.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
    }
}

#[test]
fn a_run_that_a_dying_runtime_refuses_is_the_end_of_its_scheduler() {
    within_a_minute(|| {
        let runtime = current_thread();
        let first = DropsFirst::new(&runtime);
        let builder = Scheduler::builder().runtime(runtime.handle().clone());
        let builder = builder.clock(SystemClock).max_concurrent_runs(1);
        let scheduler = builder.build().unwrap();
        // The driver's thread makes more and more of its runs.
        let options = scheduler.task().max_concurrent(2);
        let overlaps = options.every(MS, || ready(())).unwrap();
        let waits = scheduler.after(HOUR, || ready(())).unwrap();
        let dies = scheduler.clone();
        first.does(move || {
            // The scheduler's own tasks on the runtime are still there.
            while dies.after(HOUR, || ready(())).is_ok() {
                thread::sleep(MS);
            }
        });
        drop(runtime);
        assert!(current_thread().block_on(overlaps).is_err());
        let outcome = current_thread().block_on(waits);
        assert_eq!(outcome, Err(TaskError::Cancelled));
        assert_eq!(scheduler.len(), 0);
        while scheduler.stats().in_progress > 0 {
            thread::sleep(MS);
        }
    });
}

#[test]
fn a_runtime_that_ends_in_the_middle_of_a_shutdown_ends_that_too() {
    within_a_minute(|| {
        for name in ["task", "driver"] {
            let (runtime, elsewhere) = (two_threads(), current_thread());
            let (scheduler, handles) = fill(&runtime, name);
            let waits = thread::spawn(move || {
                let grace = Grace::run_pending().timeout(10 * HOUR);
                elsewhere.block_on(scheduler.shutdown(grace))
            });
            // What recurs has been cancelled by then.
            let status = handles[3].task();
            while status.next_run().is_some() {
                thread::sleep(MS);
            }
            drop(runtime);
            let report = waits.join().unwrap();
            // What waited has been cancelled; runs that the runtime drops later are not in it.
            assert!(report.all.cancelled >= 300, "{report:?}");
            for handle in handles {
                assert!(current_thread().block_on(handle).is_err());
            }
        }
    });
}

#[test]
fn a_runtime_that_ends_with_its_thread_ends_every_task() {
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    within_a_minute(|| {
        let thread = thread::spawn(|| {
            // Set before anything else uses the thread's storage, so dropped after all of that.
            RUNTIME.set(Some(current_thread()));
            RUNTIME.with_borrow(|runtime| {
                let runtime = runtime.as_ref().unwrap();
                let builder = Scheduler::builder().runtime(runtime.handle().clone());
                let scheduler = builder.max_concurrent_runs(1).build().unwrap();
                let handles: Vec<_> = (0..10_000)
                    .map(|_| scheduler.after(MS, pending::<()>).unwrap())
                    .collect();
                runtime.block_on(async {
                    while scheduler.stats().in_progress < 10_000 {
                        tokio::time::sleep(MS).await;
                    }
                });
                (scheduler, handles)
            })
        });
        let (scheduler, handles) = thread.join().unwrap();
        let elsewhere = current_thread();
        for (n, handle) in handles.into_iter().enumerate() {
            let outcome = elsewhere.block_on(handle);
            assert!(outcome.is_err(), "{n}");
        }
        assert_eq!((scheduler.len(), scheduler.stats().in_progress), (0, 0));
    });
}

/// Has the only place of a scheduler taken, so that what comes due stands in its queue.
fn take_the_place(runtime: &Runtime, scheduler: &Scheduler, clock: &ManualClock) -> TaskHandle {
    let holds = scheduler.after(MS, pending::<()>).unwrap();
    clock.advance(MS);
    runtime.block_on(async {
        while scheduler.stats().started == 0 {
            tokio::time::sleep(MS).await;
        }
    });
    holds
}

/// Of each of twenty keys a run that has been called off, and stands in the queue of the scheduler with
/// the place of its key, and one that waits for that place. Once those have been cancelled that are
/// returned, which stand in the queue too, most of it is of no use, and it is cleared.
fn behind_the_ended(scheduler: &Scheduler, clock: &ManualClock) -> Vec<TaskHandle> {
    static GROUPS: AtomicU64 = AtomicU64::new(0);
    let group = GROUPS.fetch_add(1, SeqCst);
    let come_due = |count| {
        let due = scheduler.stats().in_progress + count;
        clock.advance(MS);
        while scheduler.stats().in_progress < due {
            thread::sleep(MS);
        }
    };
    let of_keys = || {
        for n in 0..20 {
            let options = scheduler.task().key(format!("{group}: {n}"));
            drop(options.after(MS, || ready(())).unwrap());
        }
    };
    let others = (0..25).map(|_| scheduler.after(MS, || ready(())).unwrap());
    let others = others.collect();
    of_keys();
    come_due(45);
    // These replace the first.
    of_keys();
    come_due(20);
    others
}

/// Cancels what stands before others on a thread of its own, and again when all else in the storage of
/// that is gone.
fn cancel_at_the_end_of_a_thread(scheduler: Scheduler, clock: ManualClock) {
    /// Cancels what it holds when the storage of its thread is dropped.
    struct Guard(Vec<TaskHandle>);
    impl Drop for Guard {
        fn drop(&mut self) {
            for handle in &self.0 {
                let _ = handle.cancel();
            }
        }
    }
    thread_local! {
        static GUARD: RefCell<Guard> = const { RefCell::new(Guard(Vec::new())) };
    }
    let thread = thread::spawn(move || {
        // Comes first into the storage of the thread, so it leaves last.
        GUARD.with_borrow(|guard| assert!(guard.0.is_empty()));
        for early in behind_the_ended(&scheduler, &clock) {
            let _ = early.cancel();
        }
        let late = behind_the_ended(&scheduler, &clock);
        GUARD.with_borrow_mut(|guard| guard.0 = late);
    });
    thread.join().unwrap();
}

#[test]
fn a_thread_that_cancels_with_its_last_breath_passes_places_on() {
    within_a_minute(|| {
        let runtime = two_threads();
        let clock = ManualClock::new();
        let builder = Scheduler::builder().runtime(runtime.handle().clone());
        let builder = builder.clock(clock.clone()).max_concurrent_runs(1);
        let scheduler = builder.build().unwrap();
        let holds = take_the_place(&runtime, &scheduler, &clock);
        cancel_at_the_end_of_a_thread(scheduler.clone(), clock.clone());
        let _ = holds.abort();
        let next = scheduler.after(MS, || ready(()));
        clock.advance(MS);
        assert_eq!(runtime.block_on(next.unwrap()), Ok(()));
        while scheduler.stats().in_progress > 0 {
            thread::sleep(MS);
        }
        // The first of each key and those that were cancelled have not run, the second of each have.
        assert_eq!(scheduler.stats().succeeded, 2 * 20 + 1);
        assert!(scheduler.is_empty());
    });
}

#[test]
fn a_place_that_a_dying_runtime_does_not_pass_on_is_the_end_of_its_scheduler() {
    within_a_minute(|| {
        let runtime = current_thread();
        let first = DropsFirst::new(&runtime);
        let clock = ManualClock::new();
        let builder = Scheduler::builder().runtime(runtime.handle().clone());
        let builder = builder.clock(clock.clone()).max_concurrent_runs(1);
        let scheduler = builder.build().unwrap();
        let holds = take_the_place(&runtime, &scheduler, &clock);
        let waits = scheduler.after(HOUR, || ready(())).unwrap();
        let dies = scheduler.clone();
        let (tell, was_open) = mpsc::channel();
        first.does(move || {
            cancel_at_the_end_of_a_thread(dies.clone(), clock);
            // Told outside: a runtime contains the panics of what it drops.
            tell.send(dies.after(HOUR, || ready(())).is_ok()).unwrap();
        });
        drop(runtime);
        assert_eq!(was_open.try_recv(), Ok(false));
        let elsewhere = current_thread();
        assert_eq!(elsewhere.block_on(holds), Err(TaskError::Aborted));
        assert_eq!(elsewhere.block_on(waits), Err(TaskError::Cancelled));
        assert_eq!(scheduler.len(), 0);
        while scheduler.stats().in_progress > 0 {
            thread::sleep(MS);
        }
    });
}

#[test]
fn the_last_scheduler_may_be_dropped_in_a_run_of_its_own() {
    within_a_minute(|| {
        for runtime in [current_thread(), two_threads()] {
            let scheduler = Scheduler::builder()
                .runtime(runtime.handle().clone())
                .build()
                .unwrap();
            let after_drop = Arc::new(AtomicU64::new(0));
            let other = scheduler.after(HOUR, || ready(())).unwrap();
            let mut last = Some(scheduler.clone());
            let counter = after_drop.clone();
            let task = scheduler.after(10 * MS, move || {
                let (last, counter) = (last.take(), counter.clone());
                async move {
                    drop(last);
                    counter.fetch_add(1, SeqCst);
                    tokio::time::sleep(MS).await;
                    counter.fetch_add(1, SeqCst);
                }
            });
            drop(scheduler);
            // It goes on until it has to wait.
            let outcome = runtime.block_on(task.unwrap());
            assert_eq!(outcome, Err(TaskError::Aborted));
            assert_eq!(after_drop.load(SeqCst), 1);
            assert_eq!(runtime.block_on(other), Err(TaskError::Cancelled));
        }
    });
}

#[test]
fn a_scheduler_is_not_built_without_what_it_needs() {
    let refused = Scheduler::builder().build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "runtime: none is not allowed, it must be a tokio runtime: build inside of one, or name one"
    );
    let timeless = Builder::new_current_thread().build().unwrap();
    let builder = Scheduler::builder().runtime(timeless.handle().clone());
    let refused = builder.build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "runtime: one without a time driver is not allowed, it must be a tokio runtime with \
         `enable_time`, or another clock"
    );
    // Any other clock will do.
    let clock = ManualClock::new();
    let builder = Scheduler::builder()
        .runtime(timeless.handle().clone())
        .clock(clock.clone());
    let scheduler = builder.build().unwrap();
    let task = scheduler.task().timeout(HOUR).after(MS, || ready(()));
    clock.advance(MS);
    assert_eq!(timeless.block_on(task.unwrap()), Ok(()));
}

#[test]
fn on_a_runtime_that_has_ended_nothing_is_accepted() {
    within_a_minute(|| {
        let runtime = two_threads();
        let handle = runtime.handle().clone();
        drop(runtime);
        for builder in [
            Scheduler::builder(),
            Scheduler::builder().clock(SystemClock),
        ] {
            let scheduler = builder.runtime(handle.clone()).build().unwrap();
            let refused = scheduler.after(MS, || ready(())).unwrap_err();
            assert_eq!(refused.refusal(), &Refusal::Closed);
            let report = current_thread().block_on(scheduler.drain_until(HOUR));
            assert_eq!(report.all.total(), 0);
        }
    });
}

/// For how long a worker computes, and how late that may make others while a second one is idle.
const BUSY: Duration = Duration::from_millis(1500);
const SOON: Duration = Duration::from_millis(1000);

#[test]
fn a_worker_that_computes_after_it_has_scheduled_something_holds_up_nothing() {
    let runtime = two_threads();
    runtime.block_on(async {
        let scheduler = Scheduler::builder().build().unwrap();
        // The driver sleeps.
        let far = scheduler.after(HOUR, || ready(())).unwrap();
        tokio::time::sleep(20 * MS).await;
        let of_worker = scheduler.clone();
        let busy = tokio::spawn(async move {
            let scheduled = Instant::now();
            let began = move || ready(Ok::<_, String>(scheduled.elapsed()));
            let task = of_worker.after(10 * MS, began).unwrap();
            thread::sleep(BUSY);
            task.await.unwrap()
        });
        let took = busy.await.unwrap();
        assert!(took < SOON, "10 ms took {took:?}");
        let _ = far.cancel();
    });
}

#[test]
fn a_run_that_computes_holds_up_no_other_of_the_same_tick() {
    let runtime = two_threads();
    runtime.block_on(async {
        let scheduler = Scheduler::builder().build().unwrap();
        let due = Instant::now() + 50 * MS;
        let waits = scheduler
            .at(due, || async {
                let began = Instant::now();
                tokio::time::sleep(10 * MS).await;
                Ok::<_, String>(began.elapsed())
            })
            .unwrap();
        let computes = scheduler.at(due, || {
            thread::sleep(BUSY);
            ready(())
        });
        let took = waits.await.unwrap();
        assert!(took < SOON, "10 ms took {took:?}");
        assert_eq!(computes.unwrap().await, Ok(()));
    });
}
