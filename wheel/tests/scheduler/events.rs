//! What listeners are told, in which order, and what becomes of those that do not listen.

use std::future::{pending, ready};
use std::time::Duration;

use crate::support::told::told;
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{
    Cancel, EventError, EventKind, Grace, Retry, Scheduler, TaskError,
};
use wheelhouse_wheel::{Clock, ManualClock};

const MS: Duration = Duration::from_millis(1);
const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_well() {
    let scheduler = Scheduler::builder().build().unwrap();
    let mut events = scheduler.events();
    let options = scheduler.task().name("mail");
    let task = options.after(10 * MS, || sleep(20 * MS)).unwrap();
    assert_eq!(told(&mut events), ["mail: scheduled"]);
    sleep(15 * MS).await;
    assert_eq!(told(&mut events), ["mail: started 1"]);
    task.await.unwrap();
    assert_eq!(told(&mut events), ["mail: finished in 20ms"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_tried_until_it_fails_for_good() {
    let scheduler = Scheduler::builder().build().unwrap();
    let mut events = scheduler.events();
    let mut attempt = 0;
    let work = move || {
        attempt += 1;
        async move {
            match attempt {
                1 => Err("no luck"),
                2 => pending().await,
                3 => panic!("enough"),
                _ => Ok(()),
            }
        }
    };
    let retry = Retry::exponential(10 * MS).jitter(0.0).max_attempts(3);
    let options = scheduler.task().key("k").retry(retry).timeout(50 * MS);
    let task = options.after(10 * MS, work).unwrap();
    assert_eq!(task.await, Err(TaskError::Panicked("enough".to_owned())));
    assert_eq!(
        told(&mut events),
        [
            "k: scheduled",
            "k: started 1",
            "k: failed, no luck",
            "k: retried after 10ms",
            "k: started 2",
            "k: failed, took longer than its timeout of 50ms",
            "k: retried after 20ms",
            "k: started 3",
            "k: failed, panicked: enough"
        ]
    );
}

#[tokio::test]
async fn missed_and_cancelled_tasks() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let mut events = scheduler.events();
    let options = scheduler.task().name("late").grace(5 * MS);
    let late = options.after(10 * MS, || ready(())).unwrap();
    clock.advance(16 * MS);
    scheduler.settled().await;
    assert_eq!(late.await, Err(TaskError::Missed(6 * MS)));
    assert_eq!(
        told(&mut events),
        ["late: scheduled", "late: missed by 6ms"]
    );

    let one = scheduler.task().key("k").after(10 * MS, || ready(()));
    let two = scheduler.task().key("k").every(10 * MS, || ready(()));
    assert_eq!(one.unwrap().await, Err(TaskError::Cancelled));
    let mut replaced = told(&mut events);
    replaced.sort();
    assert_eq!(replaced, ["k: cancelled", "k: scheduled", "k: scheduled"]);
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(two.unwrap().cancel(), Cancel::Cancelled);
    assert_eq!(
        told(&mut events),
        ["k: started 1", "k: finished in 0ns", "k: cancelled"]
    );
    assert_eq!(scheduler.cancel("k"), Cancel::Ended);
    assert_eq!(told(&mut events), NONE);

    drop(scheduler.after(10 * MS, || ready(())));
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(report.all.cancelled, 1);
    assert_eq!(
        told(&mut events)[..2],
        ["task: scheduled", "task: cancelled"]
    );
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_task_during_its_run_is_told_at_once() {
    let scheduler = Scheduler::builder().build().unwrap();
    let mut events = scheduler.events();
    let task = scheduler.every(10 * MS, || sleep(20 * MS)).unwrap();
    sleep(15 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(
        told(&mut events),
        ["task: scheduled", "task: started 1", "task: cancelled"]
    );
    task.await.unwrap();
    assert_eq!(told(&mut events), ["task: finished in 20ms"]);
    assert_eq!(scheduler.stats().cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cut_off_has_failed() {
    let scheduler = Scheduler::builder().build().unwrap();
    let task = scheduler.after(10 * MS, pending::<()>).unwrap();
    sleep(15 * MS).await;
    let mut events = scheduler.events();
    assert_eq!(task.abort(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::Aborted));
    assert_eq!(
        told(&mut events),
        ["task: cancelled", "task: failed, cut off while it ran"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_a_run_before_its_task_or_of_an_attempt_before_its_failure() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone()).events(1 << 16);
    let scheduler = builder.build().unwrap();
    let mut events = scheduler.events();
    let retry = Retry::fixed(Duration::ZERO).max_attempts(2);
    for n in 0..10_000 {
        // Due at once, on other threads.
        let options = scheduler.task().name(format!("{n}")).retry(retry.clone());
        drop(options.at(clock.now(), || ready(Err::<(), _>("no"))));
    }
    scheduler.run_for(&clock, 10 * MS).await;
    let mut lines = told(&mut events);
    assert_eq!(lines.len(), 60_000);
    // Stable: the order within each task remains.
    lines.sort_by_key(|line| {
        line.split_once(':')
            .expect("a name")
            .0
            .parse::<u32>()
            .unwrap()
    });
    for (n, lines) in lines.chunks(6).enumerate() {
        let expected = [
            "scheduled",
            "started 1",
            "failed, no",
            "retried after 0ns",
            "started 2",
            "failed, no",
        ];
        assert_eq!(lines, expected.map(|what| format!("{n}: {what}")));
    }
}

#[tokio::test]
async fn events_tell_when_they_happened_and_in_the_order_of_the_clock() {
    let clock = ManualClock::new();
    let start = clock.now();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    drop(scheduler.every(10 * MS, || ready(())));
    let mut events = scheduler.events();
    scheduler.run_for(&clock, 30 * MS).await;
    let mut times = Vec::new();
    while let Ok(Some(event)) = events.try_next() {
        times.push((event.kind, event.at.duration_since(start)));
    }
    let started = EventKind::Started { attempt: 1 };
    let finished = EventKind::Finished {
        took: Duration::ZERO,
    };
    let expected = [10, 20, 30].map(|at| [(started.clone(), at * MS), (finished.clone(), at * MS)]);
    assert_eq!(times, expected.concat());
}

#[tokio::test]
async fn a_listener_that_lags_loses_the_oldest_and_holds_up_nothing() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone()).events(4);
    let scheduler = builder.build().unwrap();
    let mut lags = scheduler.events();
    let mut keeps_up = scheduler.events();
    for n in 0..6 {
        let options = scheduler.task().name(format!("{n}"));
        drop(options.after(10 * MS, || ready(())));
        assert_eq!(told(&mut keeps_up), [format!("{n}: scheduled")]);
    }
    assert!(matches!(lags.try_next(), Err(EventError::Lagged(2))));
    assert_eq!(told(&mut lags)[..2], ["2: scheduled", "3: scheduled"]);
    // All run, though nobody takes note.
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(scheduler.stats().succeeded, 6);
    assert!(matches!(lags.next().await, Err(EventError::Lagged(8))));
    let next = lags.next().await.unwrap();
    assert!(matches!(next.kind, EventKind::Started { .. }), "{next:?}");
}

#[tokio::test]
async fn a_listener_may_be_1024_events_behind_by_default() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock).build().unwrap();
    let (mut in_time, mut late) = (scheduler.events(), scheduler.events());
    for _ in 0..1024 {
        drop(scheduler.after(10 * MS, || ready(())));
    }
    assert_eq!(told(&mut in_time).len(), 1024);
    drop(scheduler.after(10 * MS, || ready(())));
    assert!(matches!(late.try_next(), Err(EventError::Lagged(1))));
    assert_eq!(told(&mut late).len(), 1024);
}

#[tokio::test]
async fn listening_begins_with_what_comes_next_and_ends_with_the_scheduler() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let task = scheduler.every(10 * MS, || ready(())).unwrap();
    let mut events = scheduler.events();
    assert_eq!(told(&mut events), NONE);
    drop(scheduler);
    let last = events.next().await.unwrap();
    assert_eq!(last.kind, EventKind::Cancelled);
    assert!(matches!(events.next().await, Err(EventError::Closed)));
    assert_eq!(task.await, Err(TaskError::Cancelled));
}
