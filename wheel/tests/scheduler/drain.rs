//! What a shutdown does with each kind of task, and how its report adds up by name.

use std::future::{pending, ready};
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::TokioClock;
use wheelhouse_wheel::scheduler::{
    Cancel, Duplicate, Endings, Grace, Refusal, Retry, Run, Scheduler, ShutdownReport, Status,
    TaskError, TaskHandle,
};

const S: Duration = Duration::from_secs(1);

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

/// Completed, cancelled, aborted, never started, abandoned.
fn counts(endings: &Endings) -> [u64; 5] {
    let all = [
        endings.completed,
        endings.cancelled,
        endings.aborted,
        endings.never_started,
        endings.abandoned,
    ];
    assert_eq!(endings.total(), all.iter().sum::<u64>());
    all
}

/// The report by name, after a look at whether it adds up.
fn by_name(report: &ShutdownReport) -> Vec<(&str, [u64; 5])> {
    let names: Vec<_> = report
        .by_name
        .iter()
        .map(|(name, endings)| (&**name, counts(endings)))
        .collect();
    let mut sum = [0; 5];
    for (_, counts) in &names {
        sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    assert_eq!(sum, counts(&report.all));
    names
}

/// Tasks of every kind, 15 ms after the beginning: some wait, two run, one is in the queue.
async fn a_bit_of_everything(runs: &Runs, scheduler: &Scheduler) -> Vec<TaskHandle> {
    let named = |name: &'static str| scheduler.task().name(name);
    let slow = |name: &'static str, ends: &'static str| {
        let runs = runs.clone();
        let work = async move {
            sleep(50 * MS).await;
            runs.note(ends);
        };
        named(name).after_once(10 * MS, work).unwrap()
    };
    let handles = vec![
        slow("runs", "first ends"),
        slow("runs", "second ends"),
        named("queue").after(12 * MS, runs.work("queue")).unwrap(),
        named("soon").after(100 * MS, runs.work("soon")).unwrap(),
        named("soon").after(200 * MS, runs.work("soon")).unwrap(),
        named("later").after(5 * S, runs.work("later")).unwrap(),
        named("recurs").every(20 * MS, runs.work("recurs")).unwrap(),
        named("recurs")
            .every_after_completion(S, runs.work("recurs"))
            .unwrap(),
        named("held back")
            .after(30 * MS, runs.work("held back"))
            .unwrap(),
    ];
    assert!(handles[8].pause());
    sleep(15 * MS).await;
    handles
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_pending_waits_for_what_runs_and_nothing_else() {
    let builder = Scheduler::builder().max_concurrent_runs(2);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let handles = a_bit_of_everything(&runs, &scheduler).await;
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(report.took, 45 * MS);
    assert_eq!(runs.taken(), "60 first ends, 60 second ends");
    assert_eq!(
        by_name(&report),
        [
            ("held back", [0, 1, 0, 0, 0]),
            ("later", [0, 1, 0, 0, 0]),
            ("queue", [0, 0, 0, 1, 0]),
            ("recurs", [0, 2, 0, 0, 0]),
            ("runs", [2, 0, 0, 0, 0]),
            ("soon", [0, 2, 0, 0, 0]),
        ]
    );
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.status(), Status::Ended);
        let expected = if n < 2 {
            Ok(())
        } else {
            Err(TaskError::Cancelled)
        };
        assert_eq!(handle.await, expected, "task {n}");
    }
    let refused = scheduler.after(MS, || ready(())).unwrap_err();
    assert_eq!(*refused.refusal(), Refusal::Closed);
    sleep(10 * S).await;
    assert_eq!(runs.taken(), "");
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn draining_runs_the_pending_that_come_due_in_time_and_cancels_what_recurs() {
    let builder = Scheduler::builder().max_concurrent_runs(2);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let handles = a_bit_of_everything(&runs, &scheduler).await;
    let report = scheduler.drain_until(S).await;
    // Until the last that was in time, not until the deadline.
    assert_eq!(report.took, 185 * MS);
    assert_eq!(
        runs.taken(),
        "60 first ends, 60 second ends, 60 queue, 100 soon, 200 soon"
    );
    assert_eq!(
        by_name(&report),
        [
            ("held back", [0, 1, 0, 0, 0]),
            ("later", [0, 1, 0, 0, 0]),
            ("queue", [1, 0, 0, 0, 0]),
            ("recurs", [0, 2, 0, 0, 0]),
            ("runs", [2, 0, 0, 0, 0]),
            ("soon", [2, 0, 0, 0, 0]),
        ]
    );
    for (n, handle) in handles.into_iter().enumerate() {
        let expected = if n < 5 {
            Ok(())
        } else {
            Err(TaskError::Cancelled)
        };
        assert_eq!(handle.await, expected, "task {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn during_a_drain_new_tasks_are_refused_and_failed_runs_tried_again() {
    let (scheduler, runs) = paused();
    let refused = scheduler.clone();
    let mut note = runs.work("attempt");
    let mut attempts = 0;
    let work = move || {
        drop(note());
        attempts += 1;
        let new = refused.after(MS, || ready(()));
        assert!(matches!(new.unwrap_err().refusal(), Refusal::Closed));
        ready(if attempts < 3 { Err("not yet") } else { Ok(()) })
    };
    let retry = Retry::fixed(100 * MS);
    let task = scheduler.task().retry(retry).after(10 * MS, work).unwrap();
    let report = scheduler.drain_until(S).await;
    assert_eq!(runs.taken(), "10 attempt, 110 attempt, 210 attempt");
    assert_eq!(task.await, Ok(()));
    assert_eq!(by_name(&report), [("task", [1, 0, 0, 0, 0])]);
    assert_eq!(report.took, 210 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_a_drain_refuses_leaves_the_old_task_though_there_is_no_room() {
    let runs = Runs::new(TokioClock);
    let scheduler = Scheduler::builder().max_pending(1).build().unwrap();
    let keyed = || scheduler.task().key("key").on_duplicate(Duplicate::Replace);
    let old = keyed().after(100 * MS, runs.work("old")).unwrap();
    let shutdown = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.shutdown(Grace::run_pending()).await }
    });
    sleep(10 * MS).await;
    let refused = keyed().after(MS, runs.work("new")).unwrap_err();
    assert_eq!(refused.refusal(), &Refusal::Closed);
    assert_eq!(old.await, Ok(()));
    assert_eq!(shutdown.await.unwrap().all.completed, 1);
    assert_eq!(runs.taken(), "100 old");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_would_come_after_the_deadline_is_cancelled() {
    let (scheduler, runs) = paused();
    let mut note = runs.work("attempt");
    let work = move || {
        drop(note());
        ready(Err::<(), _>("no"))
    };
    let retry = Retry::fixed(700 * MS);
    let task = scheduler.task().retry(retry).after(10 * MS, work).unwrap();
    let report = scheduler.drain_until(S).await;
    assert_eq!(runs.taken(), "10 attempt, 710 attempt");
    assert_eq!(by_name(&report), [("task", [0, 1, 0, 0, 0])]);
    assert_eq!(task.await, Err(TaskError::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_missed_during_a_drain_is_in_the_report() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let slow = scheduler.task().name("slow");
    drop(slow.after(10 * MS, || sleep(100 * MS)).unwrap());
    let options = scheduler.task().name("late").grace(50 * MS);
    let late = options.after(20 * MS, runs.work("late")).unwrap();
    let report = scheduler.drain_until(S).await;
    assert_eq!(
        by_name(&report),
        [("late", [0, 0, 0, 1, 0]), ("slow", [1, 0, 0, 0, 0])]
    );
    assert_eq!(late.await, Err(TaskError::Missed(90 * MS)));
    assert_eq!(runs.taken(), "");
}

#[tokio::test(start_paused = true)]
async fn what_recurs_and_runs_when_a_shutdown_begins_ends_with_that_run() {
    for drain in [false, true] {
        let (scheduler, runs) = paused();
        let work = {
            let runs = runs.clone();
            move || {
                runs.note("begins");
                sleep(50 * MS)
            }
        };
        let task = scheduler.every(10 * MS, work).unwrap();
        let options = scheduler.task().name("overlaps").max_concurrent(2);
        let overlaps = options.every(10 * MS, || sleep(50 * MS)).unwrap();
        sleep(25 * MS).await;
        let grace = if drain {
            Grace::run_pending()
        } else {
            Grace::cancel_pending()
        };
        let report = scheduler.shutdown(grace.timeout(S)).await;
        assert_eq!(report.took, 45 * MS, "drain: {drain}");
        assert_eq!(runs.taken(), "10 begins");
        assert_eq!((task.await, overlaps.await), (Ok(()), Ok(())));
        let names = by_name(&report);
        assert_eq!(names[1], ("task", [1, 0, 0, 0, 0]));
        // One task, however many of its runs went on.
        assert_eq!(names[0], ("overlaps", [1, 0, 0, 0, 0]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_the_deadline_is_cut_off() {
    let (scheduler, _) = paused();
    let hangs = scheduler.task().name("hangs").after(10 * MS, pending::<()>);
    let cancelled = scheduler.task().name("cancelled");
    let cancelled = cancelled.after(10 * MS, pending::<()>).unwrap();
    drop(
        scheduler
            .task()
            .name("ends")
            .after(10 * MS, || sleep(900 * MS)),
    );
    sleep(20 * MS).await;
    assert_eq!(cancelled.cancel(), Cancel::Running);
    let report = scheduler.shutdown(Grace::cancel_pending().timeout(S)).await;
    assert!(report.took >= 900 * MS && report.took <= S, "{report:?}");
    assert_eq!(
        by_name(&report),
        [
            ("cancelled", [0, 0, 1, 0, 0]),
            ("ends", [1, 0, 0, 0, 0]),
            ("hangs", [0, 0, 1, 0, 0])
        ]
    );
    assert_eq!(hangs.unwrap().await, Err(TaskError::Aborted));
    assert_eq!(cancelled.await, Err(TaskError::Aborted));
}

#[tokio::test(start_paused = true)]
async fn a_run_learns_that_a_shutdown_began_and_may_end_early() {
    for drain in [false, true] {
        let (scheduler, runs) = paused();
        let work = {
            let runs = runs.clone();
            move || {
                let runs = runs.clone();
                async move {
                    let stopping = Run::current().expect("a run").stopping();
                    assert!(!stopping.is_cancelled());
                    stopping.cancelled().await;
                    runs.note("told");
                }
            }
        };
        let task = scheduler.after(10 * MS, work).unwrap();
        sleep(20 * MS).await;
        let grace = if drain {
            Grace::run_pending()
        } else {
            Grace::cancel_pending()
        };
        let report = scheduler.shutdown(grace).await;
        assert_eq!(runs.taken(), "20 told");
        assert_eq!(task.await, Ok(()));
        assert_eq!((report.all.completed, report.took), (1, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_runs_until_it_is_stopped() {
    let (scheduler, runs) = paused();
    drop(
        scheduler
            .task()
            .name("tick")
            .every(100 * MS, runs.work("tick")),
    );
    let service = scheduler.run_until(sleep(250 * MS), Grace::cancel_pending());
    let report = service.await;
    assert_eq!(runs.taken(), "100 tick, 200 tick");
    assert_eq!(by_name(&report), [("tick", [0, 1, 0, 0, 0])]);
    // Whoever asks later gets the same report.
    assert_eq!(scheduler.shutdown(Grace::run_pending()).await, report);
    assert_eq!(
        scheduler.run_until(ready(()), Grace::run_pending()).await,
        report
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_in_the_report_of_a_scheduler_that_has_done_its_work() {
    let (scheduler, runs) = paused();
    drop(scheduler.after(10 * MS, runs.work("a")));
    sleep(20 * MS).await;
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(report, ShutdownReport::default());
    assert_eq!(runs.taken(), "10 a");
}
