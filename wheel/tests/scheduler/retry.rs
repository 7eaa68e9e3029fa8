//! Which failed runs are tried again, when, and who sees what of it.

use std::future::{Ready, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use parking_lot::Mutex;
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{Cancel, Retry, Run, Scheduler, Status, TaskError};
use wheelhouse_wheel::{ManualClock, TokioClock};

/// A scheduler on a clock of its own.
fn manual() -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    (clock, scheduler, runs)
}

/// Work that fails so many times before it returns 7.
fn fails(times: u32, runs: &Runs) -> impl FnMut() -> Ready<Result<u32, String>> + use<> {
    let (runs, mut left) = (runs.clone(), times);
    move || {
        runs.note("a");
        if left == 0 {
            return ready(Ok(7));
        }
        left -= 1;
        ready(Err(format!("{left} to go")))
    }
}

#[tokio::test]
async fn delays_double_up_to_the_longest_and_end_with_the_attempts() {
    let (clock, scheduler, runs) = manual();
    let retry = Retry::exponential(100 * MS)
        .jitter(0.0)
        .max_attempts(6)
        .max_delay(500 * MS);
    let options = scheduler.task().retry(retry);
    let lucky = options.clone().after(10 * MS, fails(5, &runs)).unwrap();
    scheduler.run_for(&clock, 3000 * MS).await;
    assert_eq!(runs.taken(), "10 a, 110 a, 310 a, 710 a, 1210 a, 1710 a");
    assert_eq!(lucky.await, Ok(7));

    let hopeless = options.after(10 * MS, fails(9, &runs)).unwrap();
    scheduler.run_for(&clock, 3000 * MS).await;
    assert_eq!(hopeless.status(), Status::Ended);
    assert_eq!(hopeless.await, Err(TaskError::Failed("3 to go".to_owned())));
    let stats = scheduler.stats();
    assert_eq!((stats.started, stats.failed), (12, 11));
    assert_eq!((stats.retried, stats.succeeded), (10, 1));
}

#[tokio::test]
async fn fixed_and_steeper_delays() {
    for (retry, expected) in [
        (Retry::fixed(50 * MS).max_attempts(3), "10 a, 60 a, 110 a"),
        (
            Retry::fixed(Duration::ZERO).max_attempts(3),
            "10 a, 11 a, 12 a",
        ),
        (
            Retry::exponential(50 * MS)
                .jitter(0.0)
                .factor(3.0)
                .max_attempts(4),
            "10 a, 60 a, 210 a, 660 a",
        ),
        (Retry::fixed(MS).max_attempts(1), "10 a"),
    ] {
        let (clock, scheduler, runs) = manual();
        let options = scheduler.task().retry(retry);
        drop(options.after(10 * MS, fails(9, &runs)));
        scheduler.run_for(&clock, 3000 * MS).await;
        assert_eq!(runs.taken(), expected);
    }
}

/// When a task with half of each delay at random was tried.
async fn tried_with(seed: u64) -> String {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone()).seed(seed);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(clock.clone());
    let retry = Retry::exponential(1000 * MS).max_attempts(4);
    drop(scheduler.task().retry(retry).after(MS, fails(9, &runs)));
    scheduler.run_for(&clock, 10_000 * MS).await;
    runs.taken()
}

#[tokio::test]
async fn jitter_shortens_delays_and_is_the_same_for_the_same_seed() {
    let once = tried_with(1).await;
    assert_eq!(once, tried_with(1).await);
    assert_ne!(once, tried_with(2).await);
    for seed in 0..20 {
        let times = tried_with(seed).await;
        let times: Vec<u64> = times
            .split(", ")
            .map(|line| line.trim_end_matches(" a").parse().unwrap())
            .collect();
        for (pair, full) in times.windows(2).zip([1000, 2000, 4000]) {
            let delay = pair[1] - pair[0];
            assert!((full / 2..=full).contains(&delay), "{times:?}");
        }
    }
}

#[tokio::test]
async fn only_the_failures_that_are_wanted_are_tried_again() {
    let (clock, scheduler, runs) = manual();
    let retry = Retry::fixed(10 * MS).only_if(|failure| failure.error::<u32>() == Some(&503));
    let answer = |codes: &'static [u32]| {
        let (runs, mut codes) = (runs.clone(), codes.iter());
        move || {
            runs.note("a");
            ready(Err::<(), u32>(*codes.next().unwrap()))
        }
    };
    let options = scheduler.task().retry(retry);
    let task = options.after(10 * MS, answer(&[503, 503, 404])).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a, 30 a");
    assert_eq!(task.await, Err(TaskError::Failed(404)));
}

#[tokio::test]
async fn a_panic_in_the_choice_is_a_no() {
    let (clock, scheduler, runs) = manual();
    let retry = Retry::fixed(10 * MS).only_if(|_| panic!("no opinion"));
    let options = scheduler.task().retry(retry);
    let task = options.after(10 * MS, fails(1, &runs)).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 a");
    assert_eq!(task.await, Err(TaskError::Failed("0 to go".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_are_failures_too() {
    let scheduler = Scheduler::builder().build().unwrap();
    let runs = Runs::new(TokioClock);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let retry = Retry::fixed(10 * MS).only_if({
        let seen = seen.clone();
        move |failure| {
            let panic = failure.panic().map(str::to_owned);
            assert_eq!(panic.is_some(), failure.is_panic());
            assert_eq!(failure.error::<String>(), None);
            seen.lock().push((panic, failure.timeout()));
            true
        }
    });
    let mut attempt = 0;
    let work = {
        let runs = runs.clone();
        move || {
            runs.note("a");
            attempt += 1;
            async move {
                match attempt {
                    1 => panic!("the first"),
                    2 => pending().await,
                    _ => Ok::<u32, String>(attempt),
                }
            }
        }
    };
    let options = scheduler.task().retry(retry).timeout(50 * MS);
    let task = options.after(10 * MS, work).unwrap();
    assert_eq!(task.await, Ok(3));
    assert_eq!(runs.taken(), "10 a, 20 a, 80 a");
    let expected = [(Some("the first".to_owned()), None), (None, Some(50 * MS))];
    assert_eq!(*seen.lock(), expected);
    let stats = scheduler.stats();
    assert_eq!((stats.panicked, stats.timed_out, stats.retried), (1, 1, 2));
}

#[tokio::test]
async fn a_closure_that_panics_itself_is_tried_again() {
    let (clock, scheduler, runs) = manual();
    let (mut note, mut calls) = (runs.work("a"), 0);
    let work = move || {
        let noted = note();
        calls += 1;
        assert!(calls > 2, "call {calls}");
        noted
    };
    let options = scheduler.task().retry(Retry::fixed(10 * MS));
    let task = options.after(10 * MS, work).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a, 30 a");
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn a_run_knows_which_attempt_it_is_and_when_it_was_due() {
    let (clock, scheduler, runs) = manual();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let start = wheelhouse_wheel::Clock::now(&clock);
    let mut work = fails(2, &runs);
    let work = {
        let seen = seen.clone();
        move || {
            let run = Run::current().expect("a closure is called in its run");
            let due = run.due().duration_since(start);
            seen.lock().push((run.name(), run.attempt(), due));
            let result = work();
            async move {
                assert_eq!(
                    Run::current().expect("in the future too").attempt(),
                    run.attempt()
                );
                result.await
            }
        }
    };
    let options = scheduler.task().name("mail").retry(Retry::fixed(10 * MS));
    drop(options.run_limit(2).every(100 * MS, work));
    scheduler.run_for(&clock, 300 * MS).await;
    let expected = [(1, 100), (2, 110), (3, 120), (1, 200)];
    let expected = expected.map(|(attempt, at)| ("mail".into(), attempt, at * MS));
    assert_eq!(*seen.lock(), expected);
    assert!(Run::current().is_none());
}

#[tokio::test]
async fn retries_neither_move_the_schedule_nor_count_as_runs() {
    let (clock, scheduler, runs) = manual();
    let retry = Retry::fixed(30 * MS).max_attempts(3);
    let options = scheduler.task().retry(retry).run_limit(3);
    drop(options.every(100 * MS, fails(4, &runs)));
    scheduler.run_for(&clock, 1000 * MS).await;
    // The first run fails with its three attempts; the second succeeds with its second.
    assert_eq!(runs.taken(), "100 a, 130 a, 160 a, 200 a, 230 a, 300 a");
}

#[tokio::test]
async fn ticks_that_pass_while_a_run_is_retried_are_missed_ticks() {
    let (clock, scheduler, runs) = manual();
    let options = scheduler.task().retry(Retry::fixed(150 * MS));
    drop(options.every(100 * MS, fails(2, &runs)));
    scheduler.run_for(&clock, 620 * MS).await;
    // Due at 100, done at 400: those of 200 and 300 burst, and that of 400 is on time.
    assert_eq!(
        runs.taken(),
        "100 a, 250 a, 400 a, 400 a, 400 a, 400 a, 500 a, 600 a"
    );
}

#[tokio::test]
async fn a_retry_can_be_seen_moved_and_cancelled() {
    let (clock, scheduler, runs) = manual();
    let start = wheelhouse_wheel::Clock::now(&clock);
    let options = scheduler.task().retry(Retry::fixed(100 * MS));
    let task = options.after(10 * MS, fails(9, &runs)).unwrap();
    assert_eq!(task.status(), Status::Scheduled);
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(task.status(), Status::Retrying);
    assert_eq!(task.next_run(), Some(start + 110 * MS));
    assert!(task.reschedule(20 * MS));
    scheduler.run_for(&clock, 20 * MS).await;
    assert_eq!(task.next_run(), Some(start + 130 * MS));
    assert_eq!(task.cancel(), Cancel::Cancelled);
    scheduler.run_for(&clock, 500 * MS).await;
    assert_eq!(runs.taken(), "10 a, 30 a");
    assert_eq!(task.await, Err(TaskError::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_not_tried_again() {
    let scheduler = Scheduler::builder().build().unwrap();
    let work = || async {
        sleep(50 * MS).await;
        Err::<(), _>("too bad")
    };
    let options = scheduler.task().retry(Retry::fixed(10 * MS));
    let task = options.after(10 * MS, work).unwrap();
    sleep(20 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::Failed("too bad")));
    assert_eq!(scheduler.stats().retried, 0);
}

#[tokio::test]
async fn the_builders_retry_is_for_all_but_single_futures() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let retry = Retry::fixed(10 * MS).max_attempts(2);
    let scheduler = builder.retry(retry).build().unwrap();
    let runs = Runs::new(clock.clone());
    let all = scheduler.after(10 * MS, fails(9, &runs)).unwrap();
    let own = scheduler
        .task()
        .retry(Retry::fixed(50 * MS).max_attempts(2));
    let own = own.after(10 * MS, fails(9, &runs)).unwrap();
    let once = scheduler
        .after_once(5 * MS, ready(Err::<(), _>("once")))
        .unwrap();
    scheduler.run_for(&clock, 200 * MS).await;
    assert_eq!(runs.taken(), "10 a, 10 a, 20 a, 60 a");
    assert!(all.await.is_err() && own.await.is_err());
    assert_eq!(once.await, Err(TaskError::Failed("once")));
}

#[tokio::test]
async fn a_delay_without_end_is_never_over() {
    let (clock, scheduler, runs) = manual();
    let retry = Retry::exponential(Duration::MAX).max_delay(Duration::MAX);
    let options = scheduler.task().retry(retry.jitter(0.0));
    let task = options.after(10 * MS, fails(1, &runs)).unwrap();
    scheduler
        .run_for(&clock, Duration::from_secs(1 << 40))
        .await;
    assert_eq!(task.status(), Status::Retrying);
    assert_eq!(task.next_run(), None);
    assert!(task.reschedule(MS));
    scheduler.run_for(&clock, MS).await;
    assert_eq!(task.await, Ok(7));
}
