//! Runs that take too long: what becomes of them, their place, and what comes after them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{Cancel, Scheduler, Status, TaskError};
use wheelhouse_wheel::{ManualClock, TokioClock};

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

/// Sets a flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_is_dropped_when_its_time_is_up() {
    let (scheduler, runs) = paused();
    let gone = Arc::new(AtomicBool::new(false));
    let guard = Dropped(gone.clone());
    let hangs = async move {
        let _guard = guard;
        pending::<()>().await;
    };
    let options = scheduler.task().timeout(50 * MS);
    let task = options.after_once(10 * MS, hangs).unwrap();
    drop(scheduler.after(59 * MS, runs.work("before")));
    sleep(59 * MS).await;
    assert_eq!(task.status(), Status::Running);
    assert!(!gone.load(SeqCst));
    assert_eq!(task.await, Err(TaskError::TimedOut(50 * MS)));
    runs.note("timed out");
    assert!(gone.load(SeqCst));
    assert_eq!(runs.taken(), "59 before, 60 timed out");
    let stats = scheduler.stats();
    assert_eq!((stats.started, stats.timed_out), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_within_its_time_is_left_alone() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().timeout(50 * MS);
    let task = options.after_once(10 * MS, sleep(55 * MS)).unwrap();
    assert_eq!(task.await, Ok(()));
    runs.note("ended");
    assert_eq!(runs.taken(), "55 ended");
    sleep(100 * MS).await;
    assert_eq!(scheduler.stats().timed_out, 0);
}

#[tokio::test(start_paused = true)]
async fn a_recurring_task_that_hangs_goes_on_after_each_timeout() {
    let (scheduler, runs) = paused();
    let work = {
        let mut note = runs.work("a");
        move || {
            drop(note());
            pending::<()>()
        }
    };
    let options = scheduler.task().timeout(30 * MS).run_limit(3);
    let task = options.every(100 * MS, work).unwrap();
    assert_eq!(task.await, Err(TaskError::TimedOut(30 * MS)));
    assert_eq!(runs.taken(), "100 a, 200 a, 300 a");
    assert_eq!(scheduler.stats().timed_out, 3);
}

#[tokio::test(start_paused = true)]
async fn fixed_delay_counts_from_the_timeout() {
    let (scheduler, runs) = paused();
    let work = {
        let mut note = runs.work("a");
        move || {
            drop(note());
            pending::<()>()
        }
    };
    let options = scheduler.task().timeout(30 * MS).run_limit(3);
    let task = options.every_after_completion(100 * MS, work).unwrap();
    assert!(task.await.is_err());
    assert_eq!(runs.taken(), "100 a, 230 a, 360 a");
}

#[tokio::test(start_paused = true)]
async fn w77_a_timeout_frees_the_place() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.timeout(30 * MS).build().unwrap();
    let runs = Runs::new(TokioClock);
    let hangs = scheduler.task().key("one").after(10 * MS, pending::<()>);
    drop(scheduler.after(20 * MS, runs.work("next")));
    let hangs = hangs.unwrap();
    assert_eq!(hangs.await, Err(TaskError::TimedOut(30 * MS)));
    scheduler.settled().await;
    // The place of the key is free as well.
    drop(scheduler.task().key("one").after(10 * MS, runs.work("key")));
    sleep(20 * MS).await;
    assert_eq!(runs.taken(), "40 next, 50 key");
}

#[tokio::test(start_paused = true)]
async fn the_builders_timeout_is_for_tasks_that_say_nothing_else() {
    let scheduler = Scheduler::builder().timeout(30 * MS).build().unwrap();
    let runs = Runs::new(TokioClock);
    let default = scheduler.after(10 * MS, pending::<()>).unwrap();
    let own = scheduler.task().timeout(60 * MS);
    let own = own.after(10 * MS, pending::<()>).unwrap();
    assert_eq!(default.await, Err(TaskError::TimedOut(30 * MS)));
    runs.note("default");
    assert_eq!(own.await, Err(TaskError::TimedOut(60 * MS)));
    runs.note("own");
    assert_eq!(runs.taken(), "40 default, 70 own");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_still_has_its_timeout() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().timeout(50 * MS);
    let task = options.every(10 * MS, pending::<()>).unwrap();
    drop(scheduler.after(30 * MS, runs.work("other")));
    sleep(20 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::TimedOut(50 * MS)));
    runs.note("ended");
    assert_eq!(runs.taken(), "30 other, 60 ended");
}

#[tokio::test]
async fn on_a_manual_clock_the_time_is_that_of_the_clock() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    let options = scheduler.task().timeout(Duration::from_secs(3600));
    let task = options.after(10 * MS, pending::<()>).unwrap();
    drop(scheduler.after(10 * MS, runs.work("other")));
    clock.advance(10 * MS);
    // Both run; that which hangs is still in progress.
    while runs.taken() != "10 other" || task.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(3599));
    assert_eq!(task.status(), Status::Running);
    clock.advance(Duration::from_secs(1));
    scheduler.settled().await;
    let timeout = Duration::from_secs(3600);
    assert_eq!(task.await, Err(TaskError::TimedOut(timeout)));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_without_end_is_none() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().timeout(Duration::MAX);
    let task = options.after(10 * MS, || sleep(Duration::from_secs(1 << 20)));
    drop(scheduler.after(5 * MS, runs.work("other")));
    assert_eq!(task.unwrap().await, Ok(()));
    assert_eq!(runs.taken(), "5 other");
}

#[tokio::test(start_paused = true)]
async fn many_timeouts_at_one_instant_and_none_lost() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().timeout(30 * MS);
    let tasks: Vec<_> = (0..1000)
        .map(|n| {
            let work = move || async move {
                if n % 2 == 0 {
                    pending::<()>().await;
                }
            };
            options.clone().after(10 * MS, work).unwrap()
        })
        .collect();
    drop(scheduler.after(MS, runs.work("other")));
    sleep(100 * MS).await;
    let stats = scheduler.stats();
    assert_eq!((stats.timed_out, stats.succeeded), (500, 501));
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.is_err(), n % 2 == 0);
    }
    assert_eq!(runs.taken(), "1 other");
}
