//! A task that overlaps itself: what its runs that wait, are missed or are cut off mean for it.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{Cancel, Grace, MissedTick, Scheduler, Status, TaskError};
use wheelhouse_wheel::{ManualClock, TokioClock};

const SECOND: Duration = Duration::from_secs(1);

/// What the task does with one place it does with two.
const PLACES: [usize; 2] = [1, 2];

#[tokio::test(start_paused = true)]
async fn a_run_that_a_shutdown_cuts_off_is_reported_as_that() {
    for places in PLACES {
        let scheduler = Scheduler::builder().build().unwrap();
        let options = scheduler.task().max_concurrent(places);
        let task = options.every(10 * MS, pending::<()>).unwrap();
        sleep(15 * MS).await;
        let report = scheduler
            .shutdown(Grace::cancel_pending().timeout(100 * MS))
            .await;
        assert_eq!((report.all.aborted, report.all.total()), (1, 1), "{places}");
        assert_eq!(task.await, Err(TaskError::Aborted), "{places}");
    }
}

#[tokio::test]
async fn missed_runs_do_not_count_against_the_limit() {
    for places in PLACES {
        let clock = ManualClock::new();
        let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
        let runs = Runs::new(clock.clone());
        let options = scheduler.task().max_concurrent(places).grace(10 * MS);
        let task = options.run_limit(3).every(SECOND, runs.work("a")).unwrap();
        clock.advance(3 * SECOND + 500 * MS);
        scheduler.settled().await;
        assert_eq!(scheduler.stats().missed, 3, "{places}");
        scheduler.run_for(&clock, 10 * SECOND).await;
        assert_eq!(runs.taken(), "4000 a, 5000 a, 6000 a", "{places}");
        assert_eq!(task.await, Ok(()), "{places}");
    }
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn a_cron_run_within_its_grace_stands_for_all_that_were_missed() {
    use std::time::SystemTime;
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_699_963_200);
    for places in PLACES {
        let clock = ManualClock::starting_at(noon);
        let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
        let began = Arc::new(AtomicU32::new(0));
        let counter = began.clone();
        let work = move || {
            counter.fetch_add(1, SeqCst);
            ready(())
        };
        let options = scheduler.task().max_concurrent(places).grace(10 * SECOND);
        let task = options.cron("* * * * *", "UTC", work).unwrap();
        // That of 12:05 is five seconds late, those before are too late.
        clock.advance(5 * 60 * SECOND + 5 * SECOND);
        scheduler.settled().await;
        assert_eq!(began.load(SeqCst), 1, "{places}");
        assert_eq!(task.status(), Status::Scheduled, "{places}");
    }
}

#[tokio::test(start_paused = true)]
async fn however_long_runs_hang_no_more_than_one_waits() {
    let policies = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];
    for missed in policies {
        let scheduler = Scheduler::builder().max_pending(100).build().unwrap();
        let options = scheduler.task().max_concurrent(2).missed_tick(missed);
        let task = options.every(10 * MS, pending::<()>).unwrap();
        sleep(60 * SECOND).await;
        // The task, its two runs, and the one that waits.
        assert_eq!((scheduler.len(), task.status()), (4, Status::Due));
        assert!(scheduler.after(SECOND, || ready(())).is_ok(), "{missed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_for_a_place_is_made_up_for_by_policy() {
    let policies = [
        // Places are free from 200 on, and 30 … 190 have been missed.
        (MissedTick::Burst, "10 a, 20 a, 200 a, 200 a, 200 a"),
        (MissedTick::Delay, "10 a, 20 a, 200 a, 210 a, 220 a"),
        (MissedTick::Skip, "10 a, 20 a, 200 a, 210 a, 220 a"),
    ];
    for (missed, expected) in policies {
        let scheduler = Scheduler::builder().build().unwrap();
        let runs = Runs::new(TokioClock);
        let (note, began) = (runs.clone(), Arc::new(AtomicU32::new(0)));
        let work = move || {
            note.note("a");
            // The first two hang until 200.
            let takes = match began.fetch_add(1, SeqCst) {
                0 => 190 * MS,
                1 => 180 * MS,
                _ => Duration::ZERO,
            };
            sleep(takes)
        };
        let options = scheduler.task().max_concurrent(2).missed_tick(missed);
        let task = options.run_limit(5).every(10 * MS, work).unwrap();
        assert_eq!(task.await, Ok(()), "{missed:?}");
        assert_eq!(runs.taken(), expected, "{missed:?}");
    }
}

#[tokio::test]
async fn a_task_whose_only_run_waits_can_be_cancelled() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.max_concurrent_runs(1).build().unwrap();
    let holds = scheduler.after_once(10 * MS, pending::<()>()).unwrap();
    let options = scheduler.task().max_concurrent(2);
    let task = options.every(20 * MS, || ready(())).unwrap();
    clock.advance(10 * MS);
    while holds.status() != Status::Running {
        tokio::task::yield_now().await;
    }
    clock.advance(10 * MS);
    while scheduler.stats().in_progress < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(task.cancel(), Cancel::Cancelled);
    assert_eq!(task.await, Err(TaskError::Cancelled));
    assert_eq!(scheduler.len(), 1);
}
