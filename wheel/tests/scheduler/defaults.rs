//! What the builder says of all tasks: each option holds for those that can have it and say nothing
//! else. And what holds when nobody says anything.

use std::future::ready;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{EventError, Scheduler, SchedulerBuilder};
use wheelhouse_wheel::{Clock, ManualClock, TokioClock};

fn with(
    settings: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder,
) -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let builder = settings(Scheduler::builder().clock(clock.clone()));
    let runs = Runs::new(clock.clone());
    (clock, builder.build().unwrap(), runs)
}

#[tokio::test]
async fn a_run_limit_is_for_tasks_that_recur() {
    let (clock, scheduler, runs) = with(|builder| builder.run_limit(2));
    drop(scheduler.every(10 * MS, runs.work("default")).unwrap());
    let own = scheduler.task().run_limit(3);
    drop(own.every(10 * MS, runs.work("own")).unwrap());
    drop(scheduler.after(35 * MS, runs.work("once")).unwrap());
    drop(scheduler.after(35 * MS, runs.work("once more")).unwrap());
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 default, 10 own, 20 default, 20 own, 30 own, 35 once, 35 once more"
    );
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn an_end_is_for_all_tasks() {
    let clock = ManualClock::new();
    let start = clock.now();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.until(start + 25 * MS).build().unwrap();
    let runs = Runs::new(clock.clone());
    drop(scheduler.every(10 * MS, runs.work("default")).unwrap());
    let own = scheduler.task().until(start + 35 * MS);
    drop(own.clone().every(10 * MS, runs.work("own")).unwrap());
    let refusal = scheduler.after(30 * MS, runs.work("once")).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "until: now + 25ms is not allowed, it must be the time of the first run (now + 30ms) or later"
    );
    drop(own.after(30 * MS, refusal.into_work()).unwrap());
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 default, 10 own, 20 default, 20 own, 30 once, 30 own"
    );
}

#[tokio::test]
async fn a_priority_is_for_all_tasks() {
    let (clock, scheduler, runs) = with(|builder| builder.priority(5).max_concurrent_runs(1));
    let own = |priority| scheduler.task().priority(priority);
    drop(own(4).after(10 * MS, runs.work("below")).unwrap());
    drop(scheduler.after(10 * MS, runs.work("default")).unwrap());
    drop(
        scheduler
            .task()
            .after(10 * MS, runs.work("default too"))
            .unwrap(),
    );
    drop(own(6).after(10 * MS, runs.work("above")).unwrap());
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 above, 10 default, 10 default too, 10 below"
    );
}

#[tokio::test(start_paused = true)]
async fn places_per_key_are_for_tasks_with_a_key() {
    let builder = Scheduler::builder().max_concurrent_per_key(2);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let slow = |name: &'static str| {
        let runs = runs.clone();
        move || {
            runs.note(name);
            sleep(25 * MS)
        }
    };
    let task = || scheduler.task().run_limit(4);
    let keyed = task().key("k").every(10 * MS, slow("keyed")).unwrap();
    keyed.await.unwrap();
    assert_eq!(runs.taken(), "10 keyed, 20 keyed, 35 keyed, 45 keyed");
    let own = task().key("own").max_concurrent(1);
    own.every(10 * MS, slow("own")).unwrap().await.unwrap();
    let keyless = task().every(10 * MS, slow("keyless"));
    keyless.unwrap().await.unwrap();
    assert_eq!(
        runs.taken(),
        "80 own, 105 own, 130 own, 155 own, 190 keyless, 215 keyless, 240 keyless, 265 keyless"
    );
}

#[tokio::test]
async fn places_per_key_do_not_refuse_blocking_work() {
    let (clock, scheduler, runs) = with(|builder| builder.max_concurrent_per_key(2));
    let note = runs.clone();
    let options = scheduler.task().key("k").run_limit(3);
    let task = options.every_blocking(10 * MS, move || note.note("a"));
    let task = task.unwrap();
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a, 30 a");
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn what_nobody_says() {
    let builder = Scheduler::builder();
    let words = format!("{builder:?}");
    for default in ["interval: 1ms", "max_pending: 16777216", "events: 1024"] {
        assert!(words.contains(default), "{default} is not in {words}");
    }
    let clock = ManualClock::new();
    let scheduler = builder.clock(clock.clone()).build().unwrap();
    // Ticks of a millisecond.
    let task = scheduler.after(MS * 10 + MS / 10, || ready(())).unwrap();
    assert_eq!(task.next_run(), Some(clock.now() + 11 * MS));
    // A listener that lags behind by more than 1024 events loses the oldest.
    let mut events = scheduler.events();
    for _ in 0..1030 {
        drop(scheduler.after(MS, || ready(())).unwrap());
    }
    assert_eq!(events.try_next().unwrap_err(), EventError::Lagged(6));
}
