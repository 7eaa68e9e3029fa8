//! What a scheduler leaves behind: no task, thread, timer or byte. And how many bytes a task takes, by a
//! counting allocator.
#![cfg(feature = "tokio")]

mod support {
    pub(crate) mod heap;
    #[cfg(target_os = "linux")]
    pub(crate) mod threads;
    pub(crate) mod within;
}

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use wheelhouse_wheel::scheduler::{
    Cancel, Grace, Retry, Run, Scheduler, SchedulerBuilder, TaskHandle,
};
use wheelhouse_wheel::{ManualClock, SystemClock};

use support::heap::{alone, heap, since};
use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// What 16 empty shards and the map of keys may hold on to.
const SLACK: usize = 16 * 64 * 1024;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
}

/// Waits for what ends on other threads.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(MS);
    }
}

/// Tasks of every kind and in every state, all of which hold on to `held`.
fn fill(scheduler: &Scheduler, held: &Arc<()>) -> Vec<TaskHandle> {
    let mut handles = Vec::new();
    for delay in [MS, HOUR, Duration::MAX] {
        let work = || {
            let held = held.clone();
            move || {
                let (held, run) = (held.clone(), Run::current().unwrap());
                async move {
                    // Some hold on to more than that.
                    let _all = (held, run.stopping(), run);
                    pending::<()>().await
                }
            }
        };
        for n in 0..20 {
            handles.push(scheduler.after(delay, work()).unwrap());
            let options = scheduler.task().key(format!("{delay:?} {}", n / 2));
            handles.push(options.every(delay, work()).unwrap());
            let options = scheduler.task().timeout(HOUR).max_concurrent(3);
            handles.push(options.every(delay, work()).unwrap());
            let mine = held.clone();
            let options = scheduler.task().retry(Retry::fixed(delay));
            let retried = options.after_blocking(MS, move || {
                let _mine = &mine;
                Err::<(), _>("again")
            });
            drop(retried.unwrap());
        }
    }
    // One whose handle keeps an outcome, and one that waits for a task.
    let mine = held.clone();
    drop(scheduler.after(MS, move || ready(Ok::<_, String>(mine.clone()))));
    let waits = scheduler.after(HOUR, || ready(())).unwrap();
    handles[1].pause();
    let waits = async move { drop(waits.await) };
    drop(scheduler.after_once(MS, waits).unwrap());
    handles
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Drop,
    Shutdown,
    DropOfRuntime,
}

fn nothing_is_left(name: &'static str, vary: fn(SchedulerBuilder) -> SchedulerBuilder) {
    within_a_minute(move || {
        let _alone = alone();
        for end in [End::Drop, End::Shutdown, End::DropOfRuntime] {
            for keep_handles in [true, false] {
                let runtime = runtime();
                let (held, innermost) = (Arc::new(()), Arc::new(()));
                // Lives as long as the settings of the scheduler, in its innermost part.
                let settings = innermost.clone();
                let retry = Retry::fixed(MS).max_attempts(1);
                let builder = Scheduler::builder()
                    .name(name)
                    .runtime(runtime.handle().clone())
                    .retry(retry.only_if(move |_| Arc::strong_count(&settings) == 0))
                    .max_concurrent_runs(60);
                let scheduler = vary(builder).build().unwrap();
                let mut handles = fill(&scheduler, &held);
                soon("all places are taken", || scheduler.stats().started >= 60);
                if !keep_handles {
                    handles.clear();
                }
                let metrics = runtime.metrics();
                let mut runtime = Some(runtime);
                match end {
                    End::Drop => drop(scheduler),
                    End::Shutdown => {
                        let grace = Grace::cancel_pending().timeout(20 * MS);
                        let shutdown = scheduler.shutdown(grace);
                        let report = runtime.as_ref().unwrap().block_on(shutdown);
                        // On a busy machine some may not have come to their next step in time.
                        let left = scheduler.stats().in_progress;
                        assert!(left <= report.all.abandoned, "{left} left of {report:?}");
                        soon("runs go on", || scheduler.stats().in_progress == 0);
                        drop(scheduler);
                    }
                    End::DropOfRuntime => {
                        runtime.take();
                        drop(scheduler);
                    }
                }
                // Handles that are kept keep no work.
                soon("work is left", || Arc::strong_count(&held) == 1);
                soon("tasks are left", || metrics.num_alive_tasks() == 0);
                #[cfg(target_os = "linux")]
                support::threads::await_threads(name, 0);
                for handle in &handles {
                    assert_eq!(handle.cancel(), Cancel::Ended);
                }
                drop(handles);
                soon("the scheduler is left", || {
                    Arc::strong_count(&innermost) == 1
                });
            }
        }
    });
}

#[test]
fn nothing_is_left_when_a_task_drives() {
    nothing_is_left("a task", |builder| builder);
}

#[test]
fn nothing_is_left_when_a_thread_drives() {
    nothing_is_left("a thread", |builder| builder.clock(SystemClock));
}

#[test]
fn the_drop_of_a_handle_cancels_nothing() {
    let _alone = alone();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let scheduler = Scheduler::builder().build().unwrap();
        let runs = Arc::new(AtomicU64::new(0));
        let work = || {
            let runs = runs.clone();
            move || {
                runs.fetch_add(1, SeqCst);
                ready(())
            }
        };
        drop(scheduler.after(MS, work()).unwrap());
        drop(scheduler.task().key("key").after(MS, work()).unwrap());
        drop(scheduler.every(10 * MS, work()).unwrap());
        drop(scheduler.after_blocking(MS, {
            let work = work();
            move || drop(work())
        }));
        // Also while it is awaited.
        let awaited = scheduler.after(5 * MS, work()).unwrap();
        assert!(tokio::time::timeout(MS, awaited).await.is_err());
        tokio::time::sleep(95 * MS).await;
        while scheduler.stats().in_progress > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(runs.load(SeqCst), 4 + 9);
    });
}

/// A scheduler on a clock that nobody moves.
fn still(runtime: &Runtime) -> Scheduler {
    let builder = Scheduler::builder().runtime(runtime.handle().clone());
    builder.clock(ManualClock::new()).build().unwrap()
}

#[test]
fn a_pending_task_takes_its_closure_and_at_most_96_bytes_and_a_handle_64() {
    let tasks = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let _alone = alone();
    let runtime = runtime();
    let counter = Arc::new(AtomicU64::new(0));
    for keep in [false, true] {
        let scheduler = still(&runtime);
        let before = heap();
        let mut handles = Vec::with_capacity(if keep { tasks } else { 0 });
        let mut closure = 0;
        for n in 0..tasks {
            let delay = Duration::from_millis(60_000 + n as u64 * 7919 % 60_000);
            let counter = counter.clone();
            let work = move || {
                counter.fetch_add(n as u64, SeqCst);
                ready(())
            };
            closure = size_of_val(&work);
            let handle = scheduler.after(delay, work).unwrap();
            if keep {
                handles.push(handle);
            }
        }
        let each = since(before) as f64 / tasks as f64;
        let at_most = (closure + 96 + if keep { 64 } else { 0 }) as f64;
        println!("{each:.1} bytes per task with a closure of {closure}, handle kept: {keep}");
        assert_eq!((scheduler.len(), closure), (tasks, 16));
        assert!(each <= at_most, "{each} bytes per task, {at_most} at most");
        drop(handles);
        drop(scheduler);
    }
}

#[test]
fn endless_tasks_that_are_cancelled_long_before_they_are_due_stay_bounded() {
    let rounds = if cfg!(debug_assertions) { 100 } else { 1000 };
    let _alone = alone();
    let runtime = runtime();
    let scheduler = still(&runtime);
    let before = heap();
    let (mut most, mut kept) = (0, std::collections::VecDeque::new());
    for round in 0..rounds {
        for n in 0..1000 {
            let delay = HOUR + (round * 1000 + n) % 1000 * MS;
            let options = scheduler.task().name("of a name");
            let work = || ready(());
            let task = match n % 4 {
                0 => options.key(n.to_string()).after(delay, work),
                1 => options.every(delay, work),
                2 => options.max_concurrent(2).every(delay, work),
                _ => scheduler.after(delay, work),
            };
            let task = task.unwrap();
            if n % 2 == 0 {
                assert_eq!(task.cancel(), Cancel::Cancelled);
            } else {
                // Others live on for a while, so that it is not always the newest that goes.
                kept.push_back(task.task());
            }
            if kept.len() > 1000 {
                let oldest = kept.pop_front().unwrap();
                assert!(oldest.pause() && oldest.resume() && oldest.reschedule(2 * HOUR));
                assert_eq!(oldest.cancel(), Cancel::Cancelled);
            }
        }
        most = most.max(since(before));
    }
    println!("{most} bytes at most, {} tasks", scheduler.len());
    assert_eq!(scheduler.len(), 1000);
    // Tasks with options of their own take some hundred bytes.
    let bound = 4 * 1000 * 800 + SLACK;
    assert!(most <= bound, "{most} bytes, {bound} at most");
}

#[test]
fn all_that_was_cancelled_is_given_back_at_once() {
    let tasks = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let _alone = alone();
    let runtime = runtime();
    let scheduler = still(&runtime);
    let before = heap();
    let handles: Vec<_> = (0..tasks)
        .map(|_| scheduler.after(HOUR, || ready(())).unwrap())
        .collect();
    let full = since(before);
    for handle in handles {
        assert_eq!(handle.cancel(), Cancel::Cancelled);
    }
    let empty = since(before);
    println!("{full} bytes full, {empty} empty");
    assert!(full > 10 * SLACK);
    assert!(empty <= SLACK, "{empty} bytes, {SLACK} at most");
}

#[test]
fn runs_leave_nothing_behind() {
    let _alone = alone();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let builder = Scheduler::builder().max_concurrent_runs(10);
        let scheduler = builder.build().unwrap();
        let mut most = 0;
        let mut before = 0;
        for round in 0..20 {
            for n in 0..1000 {
                let options = scheduler.task().timeout(HOUR);
                let work = move || async move {
                    match n % 3 {
                        0 => {}
                        1 => tokio::time::sleep(MS).await,
                        _ => tokio::task::yield_now().await,
                    }
                };
                let handle = match n % 4 {
                    0 => options.key(format!("{round} {n}")).after(MS, work),
                    1 => options.after(MS, work),
                    2 => options.run_limit(2).max_concurrent(2).every(MS, work),
                    _ => options.run_limit(2).every(MS, work),
                };
                drop(handle.unwrap());
            }
            while !scheduler.is_empty() {
                tokio::time::sleep(10 * MS).await;
            }
            // What the first rounds leave is room for the next.
            if round == 4 {
                before = heap();
            }
            if round > 4 {
                most = most.max(since(before));
            }
        }
        println!("{most} bytes more after 15 more rounds");
        assert!(most < 64 * 1024, "{most} bytes");
    });
}
