//! Run limits, ends, grace, jitter and the limit of pending tasks.

use std::future::ready;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use crate::support::told::told;
use wheelhouse_wheel::scheduler::{
    Cancel, Duplicate, MissedTick, Refusal, Run, Scheduler, SchedulerBuilder, Status, TaskError,
};
use wheelhouse_wheel::{Clock, ManualClock};

fn with(
    settings: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder,
) -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let builder = settings(Scheduler::builder().clock(clock.clone()));
    let runs = Runs::new(clock.clone());
    (clock, builder.build().unwrap(), runs)
}

fn manual() -> (ManualClock, Scheduler, Runs) {
    with(|builder| builder)
}

#[tokio::test]
async fn a_run_limit_ends_the_task_with_its_last_run() {
    let (clock, scheduler, runs) = manual();
    let options = scheduler.task().run_limit(3);
    let rate = options.clone().every(10 * MS, runs.work("rate")).unwrap();
    let delay = options
        .clone()
        .every_after_completion(15 * MS, runs.work("delay"))
        .unwrap();
    let one = scheduler.task().run_limit(1).immediately();
    let one = one.every(10 * MS, runs.work("one")).unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(
        runs.taken(),
        "0 one, 10 rate, 15 delay, 20 rate, 30 delay, 30 rate, 45 delay"
    );
    for task in [rate, delay, one] {
        assert_eq!(task.status(), Status::Ended);
        assert_eq!(task.await, Ok(()));
    }
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn runs_that_fail_count_and_runs_that_are_missed_do_not() {
    let (clock, scheduler, runs) = manual();
    let work = {
        let mut note = runs.work("a");
        move || {
            drop(note());
            ready(Err::<(), _>("no"))
        }
    };
    let options = scheduler.task().run_limit(3).grace(MS);
    let task = options.every(10 * MS, work).unwrap();
    scheduler.run_for(&clock, 10 * MS).await;
    // The ticks at 20 and 30 are too late, that of 40 is not.
    clock.advance(30 * MS);
    scheduler.settled().await;
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 a, 40 a, 50 a");
    assert_eq!(scheduler.stats().missed, 2);
    assert_eq!(task.await, Err(TaskError::Failed("no")));
}

#[tokio::test]
async fn no_run_is_due_after_the_end() {
    let (clock, scheduler, runs) = manual();
    let end = clock.now() + 30 * MS;
    let options = scheduler.task().until(end);
    let rate = options.clone().every(10 * MS, runs.work("rate"));
    let delay = options
        .clone()
        .every_after_completion(20 * MS, runs.work("delay"));
    let once = options.clone().after(30 * MS, runs.work("once"));
    let at = options.at(end, runs.work("at"));
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 rate, 20 delay, 20 rate, 30 once, 30 at, 30 rate"
    );
    for task in [rate, delay, once, at] {
        assert_eq!(task.unwrap().await, Ok(()));
    }
}

#[tokio::test]
async fn ticks_before_the_end_burst_after_it() {
    let (clock, scheduler, runs) = manual();
    let options = scheduler.task().until(clock.now() + 30 * MS);
    drop(options.clone().every(10 * MS, runs.work("burst")));
    let options = options.missed_tick(MissedTick::Delay);
    drop(options.every(10 * MS, runs.work("delay")));
    clock.advance(50 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "50 burst, 50 delay, 50 burst, 50 burst");
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn w75_a_one_shot_runs_after_a_stall_unless_that_exceeds_its_grace() {
    let (clock, scheduler, runs) = manual();
    let plain = scheduler.after(500 * MS, runs.work("plain")).unwrap();
    let task = scheduler.task();
    let within = task.clone().grace(1000 * MS);
    let within = within.after(500 * MS, runs.work("within")).unwrap();
    let beyond = task.grace(999 * MS);
    let beyond = beyond.after(500 * MS, runs.work("beyond")).unwrap();
    clock.advance(1500 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "1500 plain, 1500 within");
    assert_eq!((plain.await, within.await), (Ok(()), Ok(())));
    let late = TaskError::Missed(1000 * MS);
    assert_eq!(late.to_string(), "missed: 1s late");
    assert_eq!(beyond.await, Err(late));
    assert_eq!(scheduler.stats().missed, 1);
}

#[tokio::test]
async fn with_a_grace_each_missed_tick_is_judged_by_its_own_lateness() {
    for (missed, expected, too_late) in [
        (MissedTick::Burst, "55 a, 55 a, 60 a", 3),
        (MissedTick::Skip, "60 a", 1),
        (MissedTick::Delay, "65 a", 1),
    ] {
        let (clock, scheduler, runs) = manual();
        // Another whose tick the wheel has passed when the ticks before it are filed.
        drop(scheduler.after(55 * MS, || ready(())));
        let options = scheduler.task().missed_tick(missed).grace(15 * MS);
        drop(options.every(10 * MS, runs.work("a")));
        clock.advance(55 * MS);
        scheduler.settled().await;
        scheduler.run_for(&clock, 10 * MS).await;
        assert_eq!(runs.taken(), expected, "{missed:?}");
        assert_eq!(scheduler.stats().missed, too_late, "{missed:?}");
    }
}

#[tokio::test]
async fn the_time_in_a_queue_counts_as_lateness() {
    let (clock, scheduler, runs) = with(|builder| builder.max_concurrent_runs(1));
    let stalls = {
        let clock = clock.clone();
        move || {
            clock.advance(30 * MS);
            ready(())
        }
    };
    drop(scheduler.after(10 * MS, stalls));
    let options = scheduler.task().grace(20 * MS);
    drop(options.clone().after(10 * MS, runs.work("too late")));
    drop(options.after(20 * MS, runs.work("in time")));
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "40 in time");
    assert_eq!(scheduler.stats().missed, 1);
}

#[tokio::test]
async fn the_builders_grace_is_for_tasks_that_say_nothing_else() {
    let (clock, scheduler, runs) = with(|builder| builder.grace(10 * MS));
    drop(scheduler.after(10 * MS, runs.work("default")));
    let options = scheduler.task().grace(Duration::MAX);
    drop(options.after(10 * MS, runs.work("own")));
    clock.advance(100 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "100 own");
}

/// When ten runs of 100 ms began, in milliseconds.
async fn jittered(jitter: Duration, seed: u64) -> Vec<u64> {
    let (clock, scheduler, runs) = with(|builder| builder.seed(seed).jitter(jitter));
    drop(
        scheduler
            .task()
            .run_limit(10)
            .every(100 * MS, runs.work("a")),
    );
    scheduler.run_for(&clock, 2000 * MS).await;
    let lines = runs.taken();
    let times = lines.split(", ").map(|line| line.trim_end_matches(" a"));
    times.map(|at| at.parse().unwrap()).collect()
}

#[tokio::test]
async fn jitter_puts_runs_off_but_not_those_after_them() {
    let times = jittered(50 * MS, 1).await;
    assert_eq!(times, jittered(50 * MS, 1).await);
    assert_ne!(times, jittered(50 * MS, 2).await);
    let exact: Vec<_> = (1..=10).map(|k| k * 100).collect();
    assert_eq!(jittered(Duration::ZERO, 1).await, exact);
    for seed in 0..20 {
        let times = jittered(50 * MS, seed).await;
        for (at, exact) in times.iter().zip(&exact) {
            assert!((*exact..=exact + 50).contains(at), "{times:?}");
        }
    }
}

#[tokio::test]
async fn jitter_spreads_tasks_of_one_instant() {
    let (clock, scheduler, _) = with(|builder| builder.seed(3));
    let start = clock.now();
    let options = scheduler.task().jitter(1000 * MS);
    let tasks: Vec<_> = (0..1000)
        .map(|_| options.clone().after(100 * MS, || ready(())).unwrap())
        .collect();
    let mut buckets = [0; 10];
    for task in &tasks {
        let next = task.next_run().unwrap().duration_since(start);
        buckets[(next.as_millis() as usize - 100).min(999) / 100] += 1;
    }
    assert!(buckets.iter().all(|n| (60..140).contains(n)), "{buckets:?}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_until_there_is_room() {
    let (clock, scheduler, runs) = with(|builder| builder.max_pending(3));
    let first = scheduler.after(10 * MS, runs.work("first")).unwrap();
    drop(scheduler.every(20 * MS, runs.work("second")));
    let third = scheduler.after(30 * MS, runs.work("third")).unwrap();
    let error = scheduler.after(30 * MS, runs.work("fourth")).unwrap_err();
    assert_eq!(*error.refusal(), Refusal::Full);
    // The work comes back, and can be handed in again.
    let fourth = error.into_work();
    assert_eq!(third.cancel(), Cancel::Cancelled);
    let fourth = scheduler.after(30 * MS, fourth).unwrap();
    assert_eq!(scheduler.len(), 3);
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(first.await, Ok(()));
    drop(scheduler.after_once(5 * MS, ready(())).unwrap());
    assert!(scheduler.after_once(5 * MS, ready(())).is_err());
    scheduler.run_for(&clock, 25 * MS).await;
    assert_eq!(runs.taken(), "10 first, 20 second, 30 fourth");
    assert_eq!(fourth.await, Ok(()));
}

#[tokio::test]
async fn at_the_limit_a_task_can_take_the_place_of_the_one_it_replaces() {
    let (clock, scheduler, runs) = with(|builder| builder.max_pending(2));
    let keyed = |key: &'static str| scheduler.task().key(key);
    let old = keyed("a").every(10 * MS, runs.work("old")).unwrap();
    let mut events = scheduler.events();
    drop(keyed("b").after(40 * MS, runs.work("b")).unwrap());
    let new = keyed("a").after(20 * MS, runs.work("new")).unwrap();
    assert_eq!(old.await, Err(TaskError::Cancelled));
    assert_eq!((scheduler.len(), scheduler.stats().cancelled), (2, 1));
    assert_eq!(
        told(&mut events),
        ["b: scheduled", "a: scheduled", "a: cancelled"]
    );
    // Neither another key, nor one that is not to replace, nor none.
    for options in [
        keyed("c"),
        keyed("a").on_duplicate(Duplicate::Refuse),
        scheduler.task(),
    ] {
        let error = options.after(MS, runs.work("more")).unwrap_err();
        assert_eq!(*error.refusal(), Refusal::Full);
    }
    scheduler.run_for(&clock, 40 * MS).await;
    assert_eq!(runs.taken(), "20 new, 40 b");
    assert_eq!(new.await, Ok(()));
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn at_the_limit_a_run_in_progress_gives_its_place_to_nobody() {
    let (clock, scheduler, runs) = with(|builder| builder.max_pending(1));
    let (let_go, gate) = tokio::sync::oneshot::channel::<()>();
    let old = scheduler.task().key("a");
    let old = old.after_once(10 * MS, async { drop(gate.await) }).unwrap();
    clock.advance(10 * MS);
    while old.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    let new = || scheduler.task().key("a").after(MS, runs.work("new"));
    assert_eq!(*new().unwrap_err().refusal(), Refusal::Full);
    // The old task has not heard of it.
    assert_eq!(
        (old.status(), scheduler.stats().cancelled),
        (Status::Running, 0)
    );
    let_go.send(()).unwrap();
    assert_eq!(old.await, Ok(()));
    scheduler.settled().await;
    drop(new().unwrap());
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(runs.taken(), "11 new");
}

#[tokio::test]
async fn a_burst_knows_when_each_of_its_runs_was_due() {
    let (clock, scheduler, runs) = manual();
    let start = clock.now();
    let due = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = due.clone();
    let mut note = runs.work("a");
    drop(scheduler.after(45 * MS, || ready(())));
    drop(scheduler.every(10 * MS, move || {
        let run = Run::current().expect("a run");
        seen.lock()
            .push(run.due().duration_since(start).as_millis());
        note()
    }));
    clock.advance(45 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "45 a, 45 a, 45 a, 45 a");
    assert_eq!(*due.lock(), [10, 20, 30, 40]);
}
