//! Clocks: one moved by hand, the system's, and intervals other than a millisecond.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::support::runs::{MS, Runs};
use wheelhouse_wheel::scheduler::{Run, Scheduler, Status};
use wheelhouse_wheel::{Clock, ManualClock, SystemClock};

fn manual() -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    (clock, scheduler, runs)
}

#[tokio::test]
async fn nothing_runs_before_the_clock_has_moved_that_far() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.after(10 * MS, runs.work("a")).unwrap();
    clock.advance(10 * MS - Duration::from_nanos(1));
    scheduler.settled().await;
    assert_eq!(runs.taken(), "");
    assert_eq!(task.status(), Status::Scheduled);
    clock.advance(Duration::from_nanos(1));
    scheduler.settled().await;
    assert_eq!(runs.taken(), "10 a");
}

#[tokio::test]
async fn work_may_schedule_more_within_the_time_that_passes() {
    let (clock, scheduler, runs) = manual();
    fn chain(scheduler: Scheduler, runs: Runs, left: u32) {
        if left > 0 {
            let next = (scheduler.clone(), runs.clone());
            let work = move || {
                next.1.note("a");
                chain(next.0.clone(), next.1.clone(), left - 1);
                ready(())
            };
            drop(scheduler.after(10 * MS, work).unwrap());
        }
    }
    chain(scheduler.clone(), runs.clone(), 5);
    drop(scheduler.after(35 * MS, runs.work("b")));
    scheduler.run_for(&clock, 45 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a, 30 a, 35 b, 40 a");
    scheduler.run_for(&clock, 45 * MS).await;
    assert_eq!(runs.taken(), "50 a");
}

#[tokio::test]
async fn a_run_that_moves_the_clock_makes_others_late_and_not_lost() {
    let (clock, scheduler, runs) = manual();
    let stalls = {
        let (clock, runs) = (clock.clone(), runs.clone());
        move || {
            runs.note("stalls");
            clock.advance(50 * MS);
            ready(())
        }
    };
    drop(scheduler.after(10 * MS, stalls));
    drop(scheduler.after(20 * MS, runs.work("a")));
    drop(scheduler.every(30 * MS, runs.work("b")));
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 stalls, 60 a, 60 b, 60 b, 90 b");
    // It ends where it should have, not later by what the run has added.
    let end = runs.clone();
    end.note("end");
    assert_eq!(runs.taken(), "100 end");
}

#[tokio::test]
async fn several_schedulers_share_a_clock() {
    let clock = ManualClock::new();
    let runs = Runs::new(clock.clone());
    let build = || Scheduler::builder().clock(clock.clone()).build().unwrap();
    let (one, two) = (build(), build());
    drop(one.every(20 * MS, runs.work("one")));
    drop(two.every(30 * MS, runs.work("two")));
    for _ in 0..6 {
        clock.advance(10 * MS);
        one.settled().await;
        two.settled().await;
    }
    assert_eq!(runs.taken(), "20 one, 30 two, 40 one, 60 one, 60 two");
}

#[tokio::test]
async fn delays_end_at_the_first_tick_of_the_interval_that_is_not_before_them() {
    for (interval, expected) in [
        (Duration::from_micros(100), [Some(10_000), Some(10_100)]),
        (Duration::from_micros(1500), [Some(10_500), Some(10_500)]),
        (7 * MS, [Some(14_000), Some(14_000)]),
        (Duration::from_secs(3600), [Some(3_600_000_000), None]),
        (Duration::from_nanos(1), [Some(10_000), Some(10_050)]),
    ] {
        let clock = ManualClock::new();
        let builder = Scheduler::builder().clock(clock.clone());
        let scheduler = builder.interval(interval).build().unwrap();
        let start = clock.now();
        let micros = |at: Instant| at.duration_since(start).as_micros();
        let delays = [Duration::from_micros(10_000), Duration::from_micros(10_050)];
        for (delay, expected) in delays.into_iter().zip(expected) {
            let task = scheduler.after(delay, || ready(())).unwrap();
            let next = task.next_run().map(micros);
            assert_eq!(next, expected.or(Some(3_600_000_000)), "{interval:?}");
        }
    }
}

#[tokio::test]
async fn a_jump_to_the_end_of_time_runs_all_that_is_due_by_then() {
    let (clock, scheduler, runs) = manual();
    drop(scheduler.after(Duration::from_secs(1 << 32), || ready(())));
    let never = scheduler.after(Duration::MAX, runs.work("never")).unwrap();
    clock.advance(Duration::MAX);
    scheduler.settled().await;
    assert_eq!(scheduler.stats().succeeded, 1);
    assert_eq!(runs.taken(), "");
    assert_eq!(
        (never.status(), never.next_run()),
        (Status::Scheduled, None)
    );
}

#[tokio::test]
async fn stats_add_up_and_lateness_is_measured() {
    let (clock, scheduler, runs) = manual();
    for n in 1..=10 {
        drop(scheduler.after(n * MS, || ready(())));
    }
    drop(scheduler.every(100 * MS, runs.work("a")));
    clock.advance(20 * MS);
    scheduler.settled().await;
    let stats = scheduler.stats();
    assert_eq!((stats.scheduled, stats.live), (11, 1));
    assert_eq!((stats.started, stats.succeeded), (10, 10));
    assert_eq!((stats.in_progress, stats.contained), (0, 0));
    let lateness = &stats.lateness;
    assert_eq!(lateness.count(), 10);
    assert!(lateness.max() >= 19 * MS && lateness.max() < 21 * MS);
    assert!(lateness.quantile(0.5) >= 13 * MS && lateness.quantile(0.5) < 17 * MS);
    assert_eq!(scheduler.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_systems_clock_nothing_is_early() {
    let builder = Scheduler::builder().clock(SystemClock);
    let scheduler = builder.build().unwrap();
    let early = Arc::new(AtomicU32::new(0));
    let ran = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let (early, ran) = (early.clone(), ran.clone());
            let due = Instant::now() + n % 97 * MS;
            let work = async move {
                let run = Run::current().expect("a run");
                let now = Instant::now();
                early.fetch_add(u32::from(now < due || now < run.due()), SeqCst);
                ran.fetch_add(1, SeqCst);
            };
            scheduler.after_once(n % 97 * MS, work).unwrap()
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((early.load(SeqCst), ran.load(SeqCst)), (0, 500));
}
