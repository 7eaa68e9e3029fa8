//! How a scheduler ends under load, from inside of its runs, and in the middle of everything.
#![cfg(feature = "tokio")]

mod support {
    pub(crate) mod within;
}

use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::sleep;
use wheelhouse_wheel::ManualClock;
use wheelhouse_wheel::scheduler::{
    Cancel, Endings, EventError, Grace, Refusal, Retry, Run, Scheduler, ShutdownReport, Status,
    TaskError, TaskHandle,
};

use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn threads(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_time();
    builder.build().unwrap()
}

async fn running(scheduler: &Scheduler, runs: u64) {
    while scheduler.stats().started < runs {
        sleep(MS).await;
    }
}

/// Moves the clock once the shutdown has begun, which cancels the witness.
async fn reach(witness: &TaskHandle, clock: &ManualClock, by: Duration) {
    while witness.status() != Status::Ended {
        sleep(MS).await;
    }
    clock.advance(by);
}

/// The endings of each name sum up to those of all, and each task of the scheduler is there, but for
/// those that had ended well before.
fn check(report: &ShutdownReport, scheduler: &Scheduler) {
    let sum: u64 = report.by_name.values().map(Endings::total).sum();
    assert_eq!(report.all.total(), sum, "{report:?}");
    let stats = scheduler.stats();
    let before = stats.succeeded - report.all.completed;
    assert_eq!(stats.scheduled, before + sum, "{report:?} {stats:?}");
}

#[test]
fn a_hundred_thousand_pending_and_a_thousand_running_end_within_the_deadline() {
    within_a_minute(|| {
        let runtime = threads(2);
        let ran_late = Arc::new(AtomicU64::new(0));
        let scheduler = Scheduler::builder()
            .runtime(runtime.handle().clone())
            .build()
            .unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let options = scheduler.task().name("pending");
        for n in 0..100_000 {
            // A few come due while all of it ends.
            let delay = if n % 1000 == 0 { 20 * MS } else { HOUR };
            let (over, ran_late) = (over.clone(), ran_late.clone());
            let work = move || {
                ran_late.fetch_add(u64::from(over.load(SeqCst)), SeqCst);
                sleep(5 * MS)
            };
            drop(options.clone().after(delay, work).unwrap());
        }
        let begun = Arc::new(AtomicU64::new(0));
        // Of a thousand that run, half listen, and half have to be cut off.
        for n in 0..1000 {
            let (over, ran_late, begun) = (over.clone(), ran_late.clone(), begun.clone());
            let options = scheduler.task().name("running");
            let task = options.after(Duration::ZERO, move || {
                let (over, ran_late) = (over.clone(), ran_late.clone());
                let stopping = Run::current().unwrap().stopping();
                begun.fetch_add(1, SeqCst);
                async move {
                    if n % 2 == 0 {
                        stopping.cancelled().await;
                    }
                    if n % 2 == 1 {
                        loop {
                            sleep(MS).await;
                            ran_late.fetch_add(u64::from(over.load(SeqCst)), SeqCst);
                        }
                    }
                }
            });
            drop(task.unwrap());
        }
        let report = runtime.block_on(async {
            while begun.load(SeqCst) < 1000 {
                sleep(MS).await;
            }
            let began = Instant::now();
            let grace = Grace::cancel_pending().timeout(5 * S);
            let report = scheduler.shutdown(grace).await;
            over.store(true, SeqCst);
            let took = began.elapsed();
            // The deadline is a matter of the process's clock, the rest is what a busy machine may add.
            assert!(took < 7 * S, "{took:?}");
            sleep(50 * MS).await;
            report
        });
        check(&report, &scheduler);
        let running = report.by_name["running"];
        assert_eq!((running.completed, running.aborted), (500, 500));
        assert_eq!(running.total(), 1000);
        let pending = report.by_name["pending"];
        assert_eq!((pending.aborted, pending.abandoned), (0, 0), "{pending:?}");
        assert!(pending.cancelled >= 99_000, "{pending:?}");
        assert_eq!(ran_late.load(SeqCst), 0);
        assert!(scheduler.is_empty());
        assert_eq!(scheduler.stats().in_progress, 0);
        let refused = scheduler.after(MS, || ready(())).unwrap_err();
        assert_eq!(refused.refusal(), &Refusal::Closed);
    });
}

#[test]
fn blocking_work_is_abandoned_when_it_has_begun_and_does_not_begin_later() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let begun = Arc::new(AtomicU64::new(0));
        let (let_go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(parking_lot::Mutex::new(gate));
        let report = runtime.block_on(async {
            let clock = ManualClock::new();
            let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
            for _ in 0..3 {
                let (begun, gate) = (begun.clone(), gate.clone());
                let task = scheduler.after_blocking(MS, move || {
                    begun.fetch_add(1, SeqCst);
                    let _ = gate.lock().recv();
                });
                drop(task.unwrap());
            }
            clock.advance(MS);
            running(&scheduler, 3).await;
            while begun.load(SeqCst) == 0 {
                sleep(MS).await;
            }
            let witness = scheduler.after(HOUR, || ready(())).unwrap();
            let shutdown = scheduler.shutdown(Grace::cancel_pending().timeout(S));
            tokio::join!(shutdown, reach(&witness, &clock, 960 * MS)).0
        });
        // There is one thread, and one of them has it.
        assert_eq!((report.all.abandoned, report.all.aborted), (1, 2));
        assert_eq!((report.all.cancelled, report.all.total()), (1, 4));
        drop(let_go);
        // Waits for the threads, so whatever is still to begin has begun.
        drop(runtime);
        assert_eq!(begun.load(SeqCst), 1);
    });
}

#[test]
fn async_work_that_does_not_return_is_abandoned() {
    within_a_minute(|| {
        let runtime = threads(2);
        let (let_go, gate) = mpsc::channel::<()>();
        let mut gate = Some(gate);
        let scheduler = Scheduler::builder()
            .runtime(runtime.handle().clone())
            .build()
            .unwrap();
        let task = scheduler.after(MS, move || {
            let gate = gate.take();
            async move {
                let _ = gate.map(|gate| gate.recv());
            }
        });
        let task = task.unwrap();
        let reference = task.task();
        // Not by a timer of the runtime, which may be the held-up worker's to drive.
        while reference.status() != Status::Running {
            thread::sleep(MS);
        }
        let grace = Grace::cancel_pending().timeout(100 * MS);
        let report = runtime.block_on(scheduler.shutdown(grace));
        assert_eq!((report.all.abandoned, report.all.total()), (1, 1));
        assert_eq!(runtime.block_on(task), Err(TaskError::Abandoned));
        drop(let_go);
    });
}

#[tokio::test(start_paused = true)]
async fn a_run_that_shuts_down_gets_the_report_and_goes_on() {
    let scheduler = Scheduler::builder().build().unwrap();
    let inside = scheduler.clone();
    let asks = scheduler.after(MS, move || {
        let scheduler = inside.clone();
        async move {
            let report = scheduler.shutdown(Grace::cancel_pending()).await;
            sleep(10 * MS).await;
            Ok::<_, String>(report)
        }
    });
    let others: Vec<_> = (0..3)
        .map(|_| scheduler.after(MS, || sleep(100 * MS)).unwrap())
        .collect();
    drop(scheduler.after(HOUR, || ready(())).unwrap());
    let report = asks.unwrap().await.unwrap();
    assert_eq!((report.all.completed, report.all.cancelled), (3, 1));
    assert_eq!(report.all.total(), 4);
    for other in others {
        assert_eq!(other.await, Ok(()));
    }
    assert_eq!(scheduler.shutdown(Grace::cancel_pending()).await, report);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_shuts_down_survives_the_deadline_of_others() {
    let scheduler = Scheduler::builder().build().unwrap();
    let inside = scheduler.clone();
    let asks = scheduler.after(MS, move || {
        let scheduler = inside.clone();
        async move {
            let grace = Grace::cancel_pending().timeout(S);
            // Twice at once is one run all the same.
            let (a, b) = tokio::join!(scheduler.shutdown(grace), scheduler.shutdown(grace));
            assert_eq!(a, b);
            Ok::<_, String>(a)
        }
    });
    let hangs = scheduler.after(MS, pending::<()>).unwrap();
    let report = asks.unwrap().await.unwrap();
    assert_eq!((report.all.aborted, report.all.total()), (1, 1));
    assert_eq!(hangs.await, Err(TaskError::Aborted));
}

#[tokio::test(start_paused = true)]
async fn several_runs_at_once_may_shut_down_also_of_a_task_that_overlaps_itself() {
    for grace in [Grace::cancel_pending(), Grace::run_pending()] {
        let scheduler = Scheduler::builder().build().unwrap();
        let reports = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (inside, seen) = (scheduler.clone(), reports.clone());
        let options = scheduler.task().max_concurrent(5);
        let task = options.every(MS, move || {
            let (scheduler, seen) = (inside.clone(), seen.clone());
            async move {
                // All of them are there by then.
                sleep(10 * MS).await;
                let report = scheduler.shutdown(grace.timeout(HOUR)).await;
                seen.lock().push(report);
            }
        });
        let began = tokio::time::Instant::now();
        assert_eq!(task.unwrap().await, Ok(()));
        assert!(began.elapsed() < S, "{:?}", began.elapsed());
        let reports = reports.lock();
        assert!(reports.len() >= 5, "{reports:?}");
        assert!(reports.iter().all(|report| *report == reports[0]));
        assert!(scheduler.is_empty());
    }
}

#[test]
fn blocking_runs_may_shut_down_too() {
    within_a_minute(|| {
        let runtime = threads(1);
        runtime.block_on(async {
            let scheduler = Scheduler::builder().build().unwrap();
            let inside = scheduler.clone();
            let task = scheduler.after_blocking(MS, move || {
                let grace = Grace::cancel_pending().timeout(HOUR);
                let report = Handle::current().block_on(inside.shutdown(grace));
                Ok::<_, String>(report.all.total())
            });
            assert_eq!(task.unwrap().await, Ok(0));
        });
    });
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_goes_on_when_its_caller_stops_waiting() {
    let scheduler = Scheduler::builder().build().unwrap();
    let runs = scheduler.after(MS, || sleep(100 * MS)).unwrap();
    let pending = scheduler.after(HOUR, || ready(())).unwrap();
    sleep(10 * MS).await;
    let shutdown = scheduler.shutdown(Grace::cancel_pending());
    assert!(
        tokio::time::timeout(10 * MS, shutdown).await.is_err(),
        "it waits for the run"
    );
    assert_eq!(pending.await, Err(TaskError::Cancelled));
    assert_eq!(runs.await, Ok(()));
    let report = scheduler.shutdown(Grace::run_pending()).await;
    assert_eq!((report.all.completed, report.all.cancelled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_drop_of_the_scheduler_ends_a_shutdown_in_the_middle() {
    for grace in [Grace::cancel_pending(), Grace::run_pending()] {
        let scheduler = Scheduler::builder().build().unwrap();
        let hangs = scheduler.after(MS, pending::<()>).unwrap();
        let waits = scheduler.after(HOUR, || ready(())).unwrap();
        sleep(10 * MS).await;
        let shutdown = scheduler.shutdown(grace.timeout(2 * HOUR));
        assert!(tokio::time::timeout(MS, shutdown).await.is_err());
        drop(scheduler);
        assert_eq!(hangs.await, Err(TaskError::Aborted));
        assert_eq!(waits.await, Err(TaskError::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn runs_are_told_when_a_drain_begins() {
    let scheduler = Scheduler::builder().build().unwrap();
    let told = scheduler.after(MS, || {
        let stopping = Run::current().unwrap().stopping();
        async move { stopping.cancelled().await }
    });
    let begins_later = scheduler.after(S, || {
        let stopping = Run::current().unwrap().stopping();
        ready(stopping.is_cancelled().then_some(()).ok_or("not told"))
    });
    sleep(10 * MS).await;
    let began = tokio::time::Instant::now();
    let report = scheduler.drain_until(HOUR).await;
    assert!(began.elapsed() <= 2 * S, "{:?}", began.elapsed());
    assert_eq!((report.all.completed, report.all.total()), (2, 2));
    assert_eq!(told.unwrap().await, Ok(()));
    assert_eq!(begins_later.unwrap().await, Ok(()));
}

#[test]
fn a_drain_is_not_held_up_by_tasks_that_it_refuses() {
    within_a_minute(|| {
        let runtime = threads(2);
        for _ in 0..20 {
            let scheduler = Scheduler::builder()
                .runtime(runtime.handle().clone())
                .build()
                .unwrap();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !over.load(SeqCst) {
                            drop(scheduler.after(MS, || ready(())));
                        }
                    });
                }
                let report = runtime.block_on(async {
                    sleep(5 * MS).await;
                    scheduler.drain_until(HOUR).await
                });
                over.store(true, SeqCst);
                assert_eq!(report.all.total(), report.all.completed);
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_in_the_middle_of_a_drain_does_not_hold_it_up() {
    let scheduler = Scheduler::builder().max_concurrent_runs(1).build().unwrap();
    drop(scheduler.after(MS, || sleep(100 * MS)).unwrap());
    // Due, and in the queue for the place.
    let queued = scheduler.after(2 * MS, || ready(())).unwrap();
    sleep(10 * MS).await;
    assert_eq!(queued.status(), Status::Due);
    assert!(queued.pause());
    let began = tokio::time::Instant::now();
    let report = scheduler.drain_until(HOUR).await;
    assert!(began.elapsed() < S, "{:?}", began.elapsed());
    assert_eq!((report.all.completed, report.all.never_started), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn event_streams_close_while_handles_are_kept() {
    let scheduler = Scheduler::builder().build().unwrap();
    let mut events = scheduler.events();
    let handle = scheduler.after(HOUR, || ready(())).unwrap();
    scheduler.shutdown(Grace::cancel_pending()).await;
    let mut seen = Vec::new();
    let end = loop {
        match events.next().await {
            Ok(event) => seen.push(event.kind),
            Err(error) => break error,
        }
    };
    assert_eq!((seen.len(), end), (2, EventError::Closed), "{seen:?}");
    assert_eq!(
        scheduler.events().next().await.unwrap_err(),
        EventError::Closed
    );
    assert_eq!(handle.cancel(), Cancel::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_time_or_with_all_the_time_there_is() {
    for (timeout, ended) in [
        (Duration::ZERO, Err(TaskError::Abandoned)),
        (Duration::from_nanos(1), Err(TaskError::Abandoned)),
        (Duration::MAX, Ok(())),
    ] {
        let scheduler = Scheduler::builder().build().unwrap();
        let run = scheduler.after(MS, || sleep(HOUR)).unwrap();
        let waits = scheduler.after(HOUR, || ready(())).unwrap();
        sleep(10 * MS).await;
        let grace = Grace::run_pending().timeout(timeout);
        let report = scheduler.shutdown(grace).await;
        assert_eq!(report.all.total(), 2, "{timeout:?}");
        assert_eq!(run.await, ended, "{timeout:?}");
        let waited = waits.await;
        assert_eq!(waited.is_ok(), ended.is_ok(), "{timeout:?}");
    }
}

#[tokio::test]
async fn on_a_manual_clock_the_deadline_is_a_matter_of_that_clock() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let hangs = scheduler.after(MS, pending::<()>).unwrap();
    clock.advance(MS);
    running(&scheduler, 1).await;
    let witness = scheduler.after(HOUR, || ready(())).unwrap();
    let shutdown = scheduler.shutdown(Grace::cancel_pending().timeout(S));
    let early = async {
        reach(&witness, &clock, 949 * MS).await;
        assert_eq!(hangs.status(), Status::Running);
        clock.advance(2 * MS);
    };
    let (report, ()) = tokio::join!(shutdown, early);
    assert_eq!((report.all.aborted, report.took), (1, 951 * MS));
    assert_eq!(hangs.await, Err(TaskError::Aborted));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_one_attempt_began_and_another_drops() {
    let scheduler = Scheduler::builder().build().unwrap();
    type Shutdown = Pin<Box<dyn Future<Output = ShutdownReport> + Send>>;
    let left: Arc<Mutex<Option<Shutdown>>> = Arc::default();
    let attempts = Arc::new(AtomicU64::new(0));
    let (inside, keeps, counter) = (scheduler.clone(), left.clone(), attempts.clone());
    let options = scheduler
        .task()
        .retry(Retry::fixed(10 * MS).max_attempts(2));
    let task = options.after(MS, move || {
        let (scheduler, keeps) = (inside.clone(), keeps.clone());
        let first = counter.fetch_add(1, SeqCst) == 0;
        async move {
            if first {
                let grace = Grace::run_pending().timeout(10 * S);
                let mut shutdown: Shutdown =
                    Box::pin(async move { scheduler.shutdown(grace).await });
                tokio::select! { _ = &mut shutdown => {} () = sleep(MS) => {} }
                *keeps.lock().unwrap() = Some(shutdown);
                return Err("again");
            }
            sleep(S).await;
            Ok(())
        }
    });
    let other = scheduler.after(20 * MS, || sleep(2 * S)).unwrap();
    sleep(100 * MS).await;
    assert_eq!(attempts.load(SeqCst), 2);
    // The attempt that waited for it is over; the second does not.
    drop(left.lock().unwrap().take());
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!((report.all.completed, report.all.total()), (2, 2));
    assert_eq!(task.unwrap().await, Ok(()));
    assert_eq!(other.await, Ok(()));
}
