//! Tasks that are held back, let go and moved.

use std::future::ready;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use wheelhouse_wheel::scheduler::{Cancel, MissedTick, Retry, Scheduler, Status, TaskError};
use wheelhouse_wheel::{Clock, ManualClock};

fn manual() -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    (clock, scheduler, runs)
}

#[tokio::test]
async fn w78_what_came_due_while_it_was_held_back_runs_at_resume() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.after(Duration::ZERO, runs.work("a")).unwrap();
    assert!(task.pause());
    // Another that is due at the same instant as the resume.
    drop(scheduler.after(100 * MS, runs.work("b")));
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "100 b");
    assert_eq!(task.status(), Status::Paused);
    assert!(task.resume());
    scheduler.settled().await;
    assert_eq!(runs.taken(), "100 a");
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn what_is_resumed_in_time_runs_in_time() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.after(100 * MS, runs.work("a")).unwrap();
    assert!(task.pause());
    scheduler.run_for(&clock, 50 * MS).await;
    assert!(task.resume());
    scheduler.run_for(&clock, 100 * MS).await;
    assert_eq!(runs.taken(), "100 a");
}

#[tokio::test]
async fn pausing_and_resuming_twice_is_doing_it_once() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.every(20 * MS, runs.work("a")).unwrap();
    assert!(task.pause() && task.pause());
    scheduler.run_for(&clock, 30 * MS).await;
    assert!(task.resume() && task.resume());
    scheduler.run_for(&clock, 30 * MS).await;
    assert_eq!(runs.taken(), "30 a, 40 a, 60 a");
}

#[tokio::test]
async fn a_recurring_task_goes_on_by_its_policy() {
    for (missed, expected) in [
        // The default.
        (None, "10 a, 35 a, 35 a, 40 a, 50 a"),
        (Some(MissedTick::Burst), "10 a, 35 a, 35 a, 40 a, 50 a"),
        (Some(MissedTick::Skip), "10 a, 35 a, 40 a, 50 a"),
        (Some(MissedTick::Delay), "10 a, 35 a, 45 a"),
    ] {
        let (clock, scheduler, runs) = manual();
        let options = match missed {
            Some(missed) => scheduler.task().missed_tick(missed),
            None => scheduler.task(),
        };
        let task = options.every(10 * MS, runs.work("a")).unwrap();
        scheduler.run_for(&clock, 15 * MS).await;
        assert!(task.pause());
        scheduler.run_for(&clock, 20 * MS).await;
        assert!(task.resume());
        scheduler.settled().await;
        scheduler.run_for(&clock, 15 * MS).await;
        assert_eq!(runs.taken(), expected, "{missed:?}");
    }
}

#[tokio::test]
async fn a_run_in_progress_goes_on_and_the_next_is_held_back() {
    let (clock, scheduler, runs) = manual();
    let (let_go, gate) = tokio::sync::watch::channel(0);
    let work = {
        let runs = runs.clone();
        let mut number = 0;
        move || {
            number += 1;
            let (mut gate, runs) = (gate.clone(), runs.clone());
            async move {
                runs.note("begins");
                gate.wait_for(|open| *open >= number).await.unwrap();
                runs.note("ends");
            }
        }
    };
    let task = scheduler.every(20 * MS, work).unwrap();
    clock.advance(20 * MS);
    while task.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    assert!(task.pause());
    assert_eq!(task.status(), Status::Running);
    let_go.send_replace(1);
    scheduler.settled().await;
    assert_eq!(task.status(), Status::Paused);
    clock.advance(50 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "20 begins, 20 ends");
    let_go.send_replace(9);
    assert!(task.resume());
    scheduler.settled().await;
    assert_eq!(runs.taken(), "70 begins, 70 ends, 70 begins, 70 ends");
}

#[tokio::test]
async fn a_task_in_the_queue_for_a_place_is_held_back_too() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.max_concurrent_runs(1).build().unwrap();
    let runs = Runs::new(clock.clone());
    let (let_go, gate) = tokio::sync::oneshot::channel::<()>();
    let first = scheduler
        .after_once(10 * MS, async { drop(gate.await) })
        .unwrap();
    let second = scheduler.after(10 * MS, runs.work("second")).unwrap();
    let third = scheduler.after(10 * MS, runs.work("third")).unwrap();
    clock.advance(10 * MS);
    while first.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    assert!(second.pause());
    assert_eq!(second.status(), Status::Paused);
    let_go.send(()).unwrap();
    scheduler.settled().await;
    assert_eq!(second.status(), Status::Paused);
    assert_eq!(runs.taken(), "10 third");
    assert!(second.resume());
    scheduler.settled().await;
    assert_eq!(runs.taken(), "10 second");
    assert_eq!(third.await, Ok(()));
}

#[tokio::test]
async fn runs_that_are_due_of_a_task_that_overlaps_itself_are_held_back_too() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.max_concurrent_runs(1).build().unwrap();
    let runs = Runs::new(clock.clone());
    let (let_go, gate) = tokio::sync::oneshot::channel::<()>();
    let holds = scheduler
        .after_once(10 * MS, async { drop(gate.await) })
        .unwrap();
    let options = scheduler.task().max_concurrent(2);
    let task = options.every(10 * MS, runs.work("a")).unwrap();
    clock.advance(10 * MS);
    while holds.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    clock.advance(20 * MS);
    while scheduler.stats().in_progress < 2 {
        tokio::task::yield_now().await;
    }
    // Three runs of it are due, of which the first waits for a place of the scheduler.
    assert!(task.pause());
    let_go.send(()).unwrap();
    assert_eq!(holds.await, Ok(()));
    scheduler.settled().await;
    scheduler.run_for(&clock, 20 * MS).await;
    assert_eq!((runs.taken().as_str(), task.status()), ("", Status::Paused));
    assert!(task.resume());
    scheduler.settled().await;
    // Those three, and the ticks at 40 and 50.
    assert_eq!(runs.taken(), "50 a, 50 a, 50 a, 50 a, 50 a");
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(runs.taken(), "60 a");
    assert_eq!(task.cancel(), Cancel::Cancelled);
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn runs_that_are_held_back_end_with_their_task() {
    for shutdown in [false, true] {
        let (clock, scheduler, runs) = manual();
        let options = scheduler
            .task()
            .max_concurrent(2)
            .retry(Retry::fixed(10 * MS));
        let mut note = runs.work("a");
        let fails = move || {
            drop(note());
            ready(Err::<(), _>("no"))
        };
        let task = options.every(10 * MS, fails).unwrap();
        scheduler.run_for(&clock, 15 * MS).await;
        assert!(task.pause());
        scheduler.run_for(&clock, 100 * MS).await;
        // Its run waits for an attempt, and does not begin it.
        assert_eq!((runs.taken().as_str(), scheduler.stats().live), ("10 a", 2));
        if shutdown {
            let report = scheduler.drain_until(Duration::from_secs(5)).await;
            assert_eq!((report.all.cancelled, report.all.total()), (1, 1));
        } else {
            assert_eq!(task.cancel(), Cancel::Cancelled);
        }
        assert_eq!(task.await, Err(TaskError::Cancelled));
        assert!(scheduler.is_empty());
    }
}

#[tokio::test]
async fn a_task_that_is_held_back_can_be_moved_and_cancelled() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.after(10 * MS, runs.work("a")).unwrap();
    let other = scheduler.after(10 * MS, runs.work("b")).unwrap();
    assert!(task.pause() && other.pause());
    assert!(task.reschedule(50 * MS));
    assert_eq!((task.status(), task.next_run()), (Status::Paused, None));
    assert_eq!(other.cancel(), Cancel::Cancelled);
    scheduler.run_for(&clock, 20 * MS).await;
    assert!(task.resume());
    assert!(!other.resume());
    scheduler.run_for(&clock, 50 * MS).await;
    assert_eq!(runs.taken(), "50 a");
    assert_eq!(other.await, Err(TaskError::Cancelled));
}

#[tokio::test]
async fn held_back_past_its_grace_it_is_missed() {
    let (clock, scheduler, runs) = manual();
    let options = scheduler.task().grace(20 * MS);
    for (name, pause) in [("in time", 20), ("too late", 21)] {
        let task = options.clone().after(10 * MS, runs.work(name)).unwrap();
        assert!(task.pause());
        scheduler.run_for(&clock, (10 + pause) * MS).await;
        assert!(task.resume());
        scheduler.settled().await;
        let missed = task.await == Err(TaskError::Missed(21 * MS));
        assert_eq!(missed, pause == 21);
    }
    assert_eq!(runs.taken(), "30 in time");
}

#[tokio::test]
async fn moving_a_task_moves_those_after_it() {
    let (clock, scheduler, runs) = manual();
    let start = clock.now();
    let rate = scheduler.every(100 * MS, runs.work("rate")).unwrap();
    let delay = scheduler
        .every_after_completion(100 * MS, runs.work("delay"))
        .unwrap();
    let once = scheduler.after(100 * MS, runs.work("once")).unwrap();
    scheduler.run_for(&clock, 10 * MS).await;
    assert!(rate.reschedule(20 * MS));
    assert!(delay.reschedule(240 * MS));
    assert!(once.reschedule_at(start + 400 * MS));
    assert_eq!(rate.next_run(), Some(start + 30 * MS));
    assert_eq!(delay.next_run(), Some(start + 250 * MS));
    assert_eq!(once.next_run(), Some(start + 400 * MS));
    scheduler.run_for(&clock, 400 * MS).await;
    assert_eq!(
        runs.taken(),
        "30 rate, 130 rate, 230 rate, 250 delay, 330 rate, 350 delay, 400 once"
    );
}

#[tokio::test]
async fn moved_to_now_or_into_the_past_it_runs_at_once_and_is_not_late() {
    let (clock, scheduler, runs) = manual();
    let start = clock.now();
    let options = scheduler.task().grace(MS);
    scheduler.run_for(&clock, 100 * MS).await;
    for (name, at) in [("now", 100), ("past", 20), ("before", 0)] {
        let task = options.clone().after(50 * MS, runs.work(name)).unwrap();
        assert!(task.reschedule_at(start + at * MS));
        scheduler.settled().await;
        assert_eq!(task.await, Ok(()));
    }
    drop(options.at(start, runs.work("at")).unwrap());
    scheduler.settled().await;
    assert_eq!(runs.taken(), "100 now, 100 past, 100 before, 100 at");
}

#[tokio::test]
async fn to_the_end_of_time_and_back() {
    let (clock, scheduler, runs) = manual();
    let task = scheduler.every(10 * MS, runs.work("a")).unwrap();
    assert!(task.reschedule(Duration::MAX));
    assert_eq!((task.status(), task.next_run()), (Status::Scheduled, None));
    scheduler
        .run_for(&clock, Duration::from_secs(1 << 40))
        .await;
    assert_eq!(runs.taken(), "");
    assert!(task.reschedule(Duration::ZERO));
    scheduler.settled().await;
    scheduler.run_for(&clock, 10 * MS).await;
    let lines = runs.taken();
    assert_eq!(lines.matches(" a").count(), 2, "{lines}");
    assert_eq!(task.cancel(), Cancel::Cancelled);
}
