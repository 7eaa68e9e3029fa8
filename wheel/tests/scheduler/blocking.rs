//! Work that blocks: it runs on threads of its own, and cannot be cut off.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::support::runs::{MS, Runs};
use parking_lot::Mutex;
use wheelhouse_wheel::ManualClock;
use wheelhouse_wheel::scheduler::{Cancel, Grace, Retry, Run, Scheduler, Status, TaskError};

fn manual() -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    (clock, scheduler, runs)
}

/// Work that notes when it begins, on a thread that blocks.
fn note(runs: &Runs, name: &'static str) -> impl FnMut() + Send + use<> {
    let runs = runs.clone();
    move || runs.note(name)
}

/// Work that blocks each time until it is let go, and how often it has begun.
fn blocked() -> (Sender<()>, Arc<AtomicU32>, impl FnMut() + Send + 'static) {
    let (let_go, waits) = mpsc::channel();
    let waits: Mutex<Receiver<()>> = Mutex::new(waits);
    let begun = Arc::new(AtomicU32::new(0));
    let counter = begun.clone();
    let work = move || {
        counter.fetch_add(1, SeqCst);
        waits.lock().recv().unwrap();
    };
    (let_go, begun, work)
}

/// Lets tasks of the runtime go on until something has become true.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_way_to_schedule_has_a_form_that_blocks() {
    let (clock, scheduler, runs) = manual();
    let now = wheelhouse_wheel::Clock::now(&clock);
    let answer = scheduler.after_blocking(10 * MS, || Ok::<_, String>(42));
    drop(scheduler.at_blocking(now + 15 * MS, note(&runs, "at")));
    drop(scheduler.every_blocking(20 * MS, note(&runs, "rate")));
    let delay = note(&runs, "delay");
    drop(scheduler.every_after_completion_blocking(25 * MS, delay));
    scheduler.run_for(&clock, 65 * MS).await;
    assert_eq!(
        runs.taken(),
        "15 at, 20 rate, 25 delay, 40 rate, 50 delay, 60 rate"
    );
    assert_eq!(answer.unwrap().await, Ok(42));
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn cron_has_one_too() {
    let clock = ManualClock::starting_at(std::time::SystemTime::UNIX_EPOCH);
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    drop(scheduler.cron_blocking("*/2 * * * *", "UTC", note(&runs, "cron")));
    scheduler.run_for(&clock, 300_000 * MS).await;
    assert_eq!(runs.taken(), "120000 cron, 240000 cron");
}

#[tokio::test]
async fn errors_and_panics_are_counted_and_a_recurring_task_goes_on() {
    let (clock, scheduler, runs) = manual();
    let failed = scheduler.after_blocking(10 * MS, || Err::<(), _>("no"));
    let mut calls = 0;
    let work = {
        let runs = runs.clone();
        move || {
            runs.note("a");
            calls += 1;
            assert!(calls != 3, "the third");
        }
    };
    drop(scheduler.every_blocking(100 * MS, work));
    scheduler.run_for(&clock, 500 * MS).await;
    assert_eq!(runs.taken(), "100 a, 200 a, 300 a, 400 a, 500 a");
    let stats = scheduler.stats();
    assert_eq!((stats.panicked, stats.failed, stats.succeeded), (1, 1, 4));
    assert_eq!(failed.unwrap().await, Err(TaskError::Failed("no")));
}

#[tokio::test]
async fn a_panic_is_retried_and_the_attempts_are_known() {
    let (clock, scheduler, _) = manual();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let work = move || {
        let attempt = Run::current().expect("a run").attempt();
        seen.lock().push(attempt);
        assert!(attempt > 2, "attempt {attempt}");
        Ok::<_, String>(attempt)
    };
    let options = scheduler.task().retry(Retry::fixed(10 * MS));
    let task = options.after_blocking(10 * MS, work).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(*attempts.lock(), [1, 2, 3]);
    assert_eq!(task.await, Ok(3));
}

#[tokio::test]
async fn after_its_timeout_it_goes_on_and_keeps_its_place_until_it_ends() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.max_concurrent_runs(1).build().unwrap();
    let runs = Runs::new(clock.clone());
    let (let_go, begun, blocks) = blocked();
    let options = scheduler.task().timeout(50 * MS);
    let task = options.after_blocking(10 * MS, blocks).unwrap();
    let status = task.task();
    let next = scheduler.after(20 * MS, runs.work("next"));
    clock.advance(10 * MS);
    until(|| begun.load(SeqCst) == 1).await;
    clock.advance(50 * MS);
    // Whoever waits hears of it at once.
    assert_eq!(task.await, Err(TaskError::TimedOut(50 * MS)));
    clock.advance(50 * MS);
    assert_eq!(status.status(), Status::Running);
    assert_eq!(scheduler.stats().started, 1);
    let_go.send(()).unwrap();
    next.unwrap().await.unwrap();
    assert_eq!(runs.taken(), "110 next");
    assert_eq!(status.status(), Status::Ended);
    let stats = scheduler.stats();
    assert_eq!((stats.timed_out, stats.succeeded), (1, 1));
}

#[tokio::test]
async fn a_recurring_one_that_was_too_slow_goes_on_when_it_has_ended() {
    let (clock, scheduler, runs) = manual();
    let (let_go, begun, mut blocks) = blocked();
    let work = {
        let runs = runs.clone();
        move || {
            runs.note("a");
            blocks();
        }
    };
    let options = scheduler.task().timeout(30 * MS).run_limit(2);
    let task = options
        .every_after_completion_blocking(100 * MS, work)
        .unwrap();
    clock.advance(100 * MS);
    until(|| begun.load(SeqCst) == 1).await;
    clock.advance(150 * MS);
    // The run has been woken, and sees that its time is up before it sees its end.
    tokio::task::yield_now().await;
    let_go.send(()).unwrap();
    scheduler.settled().await;
    assert_eq!(scheduler.stats().timed_out, 1);
    let_go.send(()).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "100 a, 350 a");
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn it_is_told_of_a_cancellation_and_of_a_shutdown() {
    for shutdown in [false, true] {
        let (clock, scheduler, _) = manual();
        let told = Arc::new(AtomicU32::new(0));
        let counter = told.clone();
        let work = move || {
            let stopping = Run::current().expect("a run").stopping();
            let runtime = tokio::runtime::Handle::current();
            runtime.block_on(stopping.cancelled());
            counter.fetch_add(1, SeqCst);
        };
        let task = scheduler.every_blocking(10 * MS, work).unwrap();
        clock.advance(10 * MS);
        until(|| task.status() == Status::Running).await;
        if shutdown {
            let report = scheduler.shutdown(Grace::cancel_pending()).await;
            assert_eq!((report.all.completed, report.all.total()), (1, 1));
        } else {
            assert_eq!(task.cancel(), Cancel::Running);
        }
        assert_eq!(task.await, Ok(()));
        assert_eq!(told.load(SeqCst), 1);
    }
}

#[tokio::test]
async fn an_abort_loses_the_outcome_and_keeps_the_place_until_the_work_has_ended() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.max_concurrent_runs(1).build().unwrap();
    let runs = Runs::new(clock.clone());
    let (let_go, begun, blocks) = blocked();
    let task = scheduler.after_blocking(10 * MS, blocks).unwrap();
    clock.advance(10 * MS);
    until(|| begun.load(SeqCst) == 1).await;
    assert_eq!(task.abort(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::Abandoned));
    let next = scheduler.after_blocking(10 * MS, note(&runs, "next"));
    let next = next.unwrap();
    clock.advance(10 * MS);
    until(|| next.status() == Status::Due).await;
    assert_eq!(scheduler.stats().in_progress, 2);
    let_go.send(()).unwrap();
    assert_eq!(next.await, Ok(()));
    assert_eq!(runs.taken(), "20 next");
    assert_eq!(begun.load(SeqCst), 1);
}

#[tokio::test]
async fn a_key_whose_work_was_aborted_has_no_second_run_until_the_work_has_ended() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    let (let_go, begun, blocks) = blocked();
    let options = scheduler.task().key("k");
    let task = options.clone().after_blocking(10 * MS, blocks).unwrap();
    clock.advance(10 * MS);
    until(|| begun.load(SeqCst) == 1).await;
    assert_eq!(task.abort(), Cancel::Running);
    let next = options.after_blocking(10 * MS, note(&runs, "next"));
    let next = next.unwrap();
    clock.advance(10 * MS);
    until(|| next.status() == Status::Due).await;
    assert_eq!(runs.taken(), "");
    let_go.send(()).unwrap();
    assert_eq!(next.await, Ok(()));
}

#[test]
fn work_that_found_no_thread_in_time_does_not_begin_later() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (clock, scheduler, runs) = manual();
        let (let_go, waits) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || waits.recv());
        let options = scheduler.task().timeout(100 * MS);
        let task = options
            .after_blocking(10 * MS, note(&runs, "late"))
            .unwrap();
        clock.advance(10 * MS);
        until(|| task.status() == Status::Running).await;
        // Its time counts from the first look at it.
        tokio::task::yield_now().await;
        while task.status() != Status::Ended {
            clock.advance(100 * MS);
            tokio::task::yield_now().await;
        }
        assert_eq!(task.await, Err(TaskError::TimedOut(100 * MS)));
        let_go.send(()).unwrap();
        let _ = busy.await.unwrap();
        // The thread takes up what comes after it.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(runs.taken(), "");
    });
}
