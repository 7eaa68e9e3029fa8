//! Handles: where a task is, when it runs next, who won when it is cancelled, how it ended.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{Cancel, EventKind, Retry, Run, Scheduler, Status, TaskError};
use wheelhouse_wheel::{Clock, ManualClock, TokioClock};

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

#[tokio::test(start_paused = true)]
async fn status_and_next_run_in_each_state() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.build().unwrap();
    let start = TokioClock.now();
    let seen = |task: &wheelhouse_wheel::scheduler::TaskRef| {
        let next = task.next_run().map(|next| next.duration_since(start));
        (task.status(), next.map(|next| next.as_millis()))
    };
    let mut attempt = 0;
    let work = move || {
        attempt += 1;
        async move {
            sleep(20 * MS).await;
            if attempt == 1 { Err("once") } else { Ok(()) }
        }
    };
    let retry = Retry::fixed(30 * MS);
    let options = scheduler.task().retry(retry).run_limit(2);
    let task = options.every(100 * MS, work).unwrap();
    let other = scheduler.after_once(95 * MS, sleep(110 * MS)).unwrap();
    assert_eq!(seen(&task.task()), (Status::Scheduled, Some(100)));
    assert!(task.pause());
    assert_eq!(seen(&task.task()), (Status::Paused, None));
    assert!(task.resume());
    assert_eq!(seen(&task.task()), (Status::Scheduled, Some(100)));
    sleep(105 * MS).await;
    assert_eq!(seen(&other.task()), (Status::Running, None));
    assert_eq!(seen(&task.task()), (Status::Due, None));
    assert!(!task.reschedule(MS));
    other.await.unwrap();
    turn().await;
    // The other's sleep began when it was made, so its run has ended at 110.
    assert_eq!(seen(&task.task()), (Status::Running, None));
    assert!(!task.reschedule(MS));
    sleep(25 * MS).await;
    assert_eq!(seen(&task.task()), (Status::Retrying, Some(160)));
    sleep(30 * MS).await;
    assert_eq!(seen(&task.task()), (Status::Running, None));
    sleep(20 * MS).await;
    assert_eq!(seen(&task.task()), (Status::Scheduled, Some(200)));
    sleep(100 * MS).await;
    assert_eq!(seen(&task.task()), (Status::Ended, None));
    assert!(!task.reschedule(MS) && !task.pause() && !task.resume());
    assert_eq!(task.cancel(), Cancel::Ended);
    assert_eq!(task.abort(), Cancel::Ended);
    assert_eq!(task.await, Ok(()));
}

/// Lets other tasks of the runtime go on.
async fn turn() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_all_kinds() {
    let (scheduler, runs) = paused();
    let value = scheduler.after(MS, || ready(Ok::<_, String>(7))).unwrap();
    let unit = scheduler.after(MS, runs.work("unit")).unwrap();
    let error = scheduler.after(MS, || ready(Err::<(), _>("no luck")));
    let panic = scheduler.after(MS, || async {
        assert!(Run::current().is_none(), "boom {}", 1)
    });
    let future = scheduler.after_once(MS, ready(Ok::<_, String>("moved in")));
    let options = scheduler.task().run_limit(3);
    let mut count = 0;
    let last = options.every(MS, move || {
        count += 1;
        ready(Ok::<_, String>(count))
    });
    assert_eq!(value.await, Ok(7));
    assert_eq!(unit.await, Ok(()));
    assert_eq!(error.unwrap().await, Err(TaskError::Failed("no luck")));
    assert_eq!(
        panic.unwrap().await,
        Err(TaskError::Panicked("boom 1".to_owned()))
    );
    assert_eq!(future.unwrap().await, Ok("moved in"));
    assert_eq!(last.unwrap().await, Ok(3));
}

#[test]
fn errors_say_what_happened() {
    for (error, words) in [
        (TaskError::Failed("no luck"), "no luck"),
        (TaskError::Panicked("boom".into()), "panicked: boom"),
        (
            TaskError::TimedOut(50 * MS),
            "took longer than its timeout of 50ms",
        ),
        (TaskError::Cancelled, "cancelled"),
        (TaskError::Aborted, "cut off while it ran"),
        (
            TaskError::Abandoned,
            "given up while it ran; it was not cut off in time and may go on",
        ),
        (TaskError::Missed(3 * MS), "missed: 3ms late"),
    ] {
        assert_eq!(error.to_string(), words);
    }
}

/// As `anyhow::Error`: no `Error` itself, and all of its causes in the alternate form.
#[derive(Debug, PartialEq)]
struct Chain(&'static str, &'static str);

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Chain(what, cause) = self;
        match f.alternate() {
            true => write!(f, "{what}: {cause}"),
            false => write!(f, "{what}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_causes_of_a_failure_are_not_lost() {
    let (scheduler, _) = paused();
    let mut events = scheduler.events();
    let options = scheduler.task().name("mail").key("mail 17");
    let work = || ready(Err::<(), _>(Chain("no mail", "connection refused")));
    let error = options.after(MS, work).unwrap().await.unwrap_err();
    assert_eq!(error.to_string(), "no mail");
    assert_eq!(format!("{error:#}"), "no mail: connection refused");
    assert_eq!(
        error.failure(),
        Some(&Chain("no mail", "connection refused"))
    );
    assert_eq!(
        error.into_failure().map(|chain| chain.1),
        Some("connection refused")
    );
    let mut told = Vec::new();
    while let Ok(Some(event)) = events.try_next() {
        assert_eq!(
            (&*event.task, event.key.as_deref()),
            ("mail", Some("mail 17"))
        );
        if let EventKind::Failed { error } = event.kind {
            told.push(error);
        }
    }
    assert_eq!(told, ["no mail: connection refused".into()]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_task_that_waits_wins() {
    let (scheduler, runs) = paused();
    let value = Arc::new(());
    let held = value.clone();
    let mut note = runs.work("a");
    let task = scheduler.after(10 * MS, move || {
        let _ = &held;
        note()
    });
    let task = task.unwrap();
    assert_eq!(task.cancel(), Cancel::Cancelled);
    // Nothing is left of the work, at once.
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!((task.status(), scheduler.len()), (Status::Ended, 0));
    assert_eq!(task.cancel(), Cancel::Ended);
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "");
    assert_eq!(task.await, Err(TaskError::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_lets_it_go_on_and_tells_it() {
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
                sleep(5 * MS).await;
                Ok::<_, String>("saved")
            }
        }
    };
    let task = scheduler.every(10 * MS, work).unwrap();
    sleep(15 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(task.status(), Status::Running);
    assert_eq!(task.await, Ok("saved"));
    runs.note("ended");
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "15 told, 20 ended");
    assert_eq!(scheduler.stats().started, 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_asked_for_after_the_cancellation_is_cancelled_and_the_next_run_has_a_new_one() {
    let (scheduler, runs) = paused();
    let work = {
        let runs = runs.clone();
        move || {
            let runs = runs.clone();
            async move {
                sleep(10 * MS).await;
                let stopping = Run::current().expect("a run").stopping();
                runs.note(if stopping.is_cancelled() {
                    "told"
                } else {
                    "not told"
                });
            }
        }
    };
    let task = scheduler.every(20 * MS, work).unwrap();
    sleep(45 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    task.await.unwrap();
    assert_eq!(runs.taken(), "30 not told, 50 told");
}

#[tokio::test(start_paused = true)]
async fn an_abort_cuts_a_run_off_at_its_next_await() {
    let (scheduler, runs) = paused();
    let value = Arc::new(());
    let held = value.clone();
    let hangs = async move {
        let _held = held;
        pending::<()>().await;
    };
    let task = scheduler.after_once(10 * MS, hangs).unwrap();
    drop(scheduler.after(12 * MS, runs.work("other")));
    sleep(15 * MS).await;
    assert_eq!(task.abort(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::Aborted));
    assert_eq!(Arc::strong_count(&value), 1);
    let waits = scheduler.after(10 * MS, runs.work("aborted")).unwrap();
    assert_eq!(waits.abort(), Cancel::Cancelled);
    sleep(20 * MS).await;
    assert_eq!(runs.taken(), "12 other");
    assert_eq!(scheduler.stats().aborted, 1);
}

#[tokio::test(start_paused = true)]
async fn many_runs_at_once_are_each_cut_off_by_their_own_handle() {
    let (scheduler, runs) = paused();
    let tasks: Vec<_> = (0..100)
        .map(|n| scheduler.after((1 + n % 7) * MS, pending::<()>).unwrap())
        .collect();
    drop(scheduler.after(10 * MS, runs.work("other")));
    sleep(20 * MS).await;
    for (n, task) in tasks.iter().enumerate() {
        if n % 3 == 0 {
            assert_eq!(task.abort(), Cancel::Running);
        }
    }
    sleep(MS).await;
    for (n, task) in tasks.iter().enumerate() {
        let expected = [Status::Ended, Status::Running, Status::Running][n % 3];
        assert_eq!(task.status(), expected, "task {n}");
    }
    assert_eq!(runs.taken(), "10 other");
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_dropped_changes_nothing() {
    let (scheduler, runs) = paused();
    drop(scheduler.after(10 * MS, runs.work("once")));
    let every = scheduler.every(20 * MS, runs.work("every")).unwrap();
    let task = every.task();
    drop(every);
    sleep(45 * MS).await;
    assert_eq!(task.cancel(), Cancel::Cancelled);
    sleep(45 * MS).await;
    assert_eq!(runs.taken(), "10 once, 20 every, 40 every");
}

#[tokio::test(start_paused = true)]
async fn a_handle_can_wait_in_a_select_and_be_asked_again() {
    let (scheduler, runs) = paused();
    let mut task = scheduler
        .after(50 * MS, || ready(Ok::<_, String>(7)))
        .unwrap();
    drop(scheduler.after(15 * MS, runs.work("other")));
    let early = tokio::time::timeout(20 * MS, &mut task).await;
    assert!(early.is_err());
    assert_eq!(task.await, Ok(7));
    assert_eq!(runs.taken(), "15 other");
}

#[tokio::test]
async fn another_runtime_may_wait() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    let task = scheduler.after(10 * MS, runs.work("a")).unwrap();
    let waiter = std::thread::spawn(|| futures_util::FutureExt::now_or_never(task));
    assert_eq!(waiter.join().unwrap(), None);
    let task = scheduler.after(10 * MS, runs.work("b")).unwrap();
    let waiter = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(task)
    });
    scheduler.run_for(&clock, 10 * MS).await;
    assert_eq!(waiter.join().unwrap(), Ok(()));
    assert_eq!(runs.taken(), "10 a, 10 b");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a task's handle is not polled after its end")]
async fn a_handle_that_was_ready_is_not_polled_again() {
    let (scheduler, runs) = paused();
    let mut task = scheduler.after(MS, runs.work("a")).unwrap();
    (&mut task).await.unwrap();
    let _ = futures_util::FutureExt::now_or_never(&mut task);
}

#[tokio::test(start_paused = true)]
async fn a_task_reference_outlives_scheduler_and_handle() {
    let (scheduler, runs) = paused();
    let handle = scheduler
        .after(Duration::from_secs(60), runs.work("a"))
        .unwrap();
    let (task, clone) = (handle.task(), handle.task());
    drop((handle, scheduler));
    assert_eq!(
        (task.status(), clone.cancel()),
        (Status::Ended, Cancel::Ended)
    );
    assert_eq!(runs.taken(), "");
}
