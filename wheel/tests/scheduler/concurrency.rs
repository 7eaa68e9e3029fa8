//! How many runs are in progress at once, who goes first, and runs of one task that overlap.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{Cancel, MissedTick, Retry, Run, Scheduler, Status, TaskError};
use wheelhouse_wheel::{ManualClock, TokioClock};

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

/// Runs that note when they begin, and then take some time.
fn takes(
    time: Duration,
    runs: &Runs,
    name: &'static str,
) -> impl FnMut() -> tokio::time::Sleep + Send + use<> {
    let runs = runs.clone();
    move || {
        runs.note(name);
        sleep(time)
    }
}

#[tokio::test(start_paused = true)]
async fn w71_ten_thousand_jobs_at_one_instant_all_run() {
    for limit in [usize::MAX, 1, 100] {
        let builder = Scheduler::builder().max_concurrent_runs(limit);
        let scheduler = builder.build().unwrap();
        let [ran, at_once, most] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        for _ in 0..10_000 {
            let (ran, at_once, most) = (ran.clone(), at_once.clone(), most.clone());
            let work = async move {
                most.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::task::yield_now().await;
                at_once.fetch_sub(1, SeqCst);
                ran.fetch_add(1, SeqCst);
            };
            drop(scheduler.after_once(10 * MS, work).unwrap());
        }
        sleep(10 * MS).await;
        scheduler.settled().await;
        assert_eq!(ran.load(SeqCst), 10_000);
        assert!(most.load(SeqCst) as usize <= limit);
        assert!(scheduler.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn w77_places_are_freed_however_a_run_ends() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let fails = scheduler.after(10 * MS, || ready(Err::<(), _>("no")));
    let panics = scheduler.after(10 * MS, || async {
        sleep(10 * MS).await;
        assert!(Run::current().is_none(), "with the place");
    });
    let closure_panics = scheduler.after(10 * MS, || {
        assert!(Run::current().is_none(), "before there is a future");
        ready(())
    });
    let hangs = scheduler
        .task()
        .timeout(10 * MS)
        .after(10 * MS, pending::<()>);
    let aborted = scheduler.after(10 * MS, pending::<()>).unwrap();
    let cancelled = scheduler.after(10 * MS, takes(10 * MS, &runs, "cancelled"));
    let cancelled = cancelled.unwrap();
    let in_queue = scheduler.after(10 * MS, runs.work("in the queue")).unwrap();
    let last = scheduler.after(10 * MS, runs.work("last")).unwrap();
    sleep(35 * MS).await;
    assert_eq!(in_queue.cancel(), Cancel::Cancelled);
    assert_eq!(aborted.status(), Status::Running);
    assert_eq!(aborted.abort(), Cancel::Running);
    sleep(MS).await;
    assert_eq!(cancelled.cancel(), Cancel::Running);
    last.await.unwrap();
    assert_eq!(runs.taken(), "35 cancelled, 45 last");
    assert_eq!(fails.unwrap().await, Err(TaskError::Failed("no")));
    for panicked in [panics.unwrap().await, closure_panics.unwrap().await] {
        assert!(matches!(panicked, Err(TaskError::Panicked(_))));
    }
    assert_eq!(hangs.unwrap().await, Err(TaskError::TimedOut(10 * MS)));
    assert_eq!(aborted.await, Err(TaskError::Aborted));
    assert_eq!(cancelled.await, Ok(()));
    assert_eq!(in_queue.await, Err(TaskError::Cancelled));
    assert_eq!(scheduler.stats().in_progress, 0);
}

#[tokio::test(start_paused = true)]
async fn the_more_important_goes_first_at_one_tick_and_in_the_queue() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let schedule = |priority, delay, name| {
        let options = scheduler.task().priority(priority);
        drop(options.after(delay, takes(10 * MS, &runs, name)).unwrap());
    };
    schedule(-128, 10 * MS, "least");
    schedule(0, 10 * MS, "first of 0");
    schedule(5, 10 * MS, "5");
    schedule(0, 10 * MS, "second of 0");
    schedule(127, 10 * MS, "most");
    // Comes later, to a queue in which others wait.
    schedule(5, 15 * MS, "5 at 15");
    schedule(127, 35 * MS, "most at 35");
    sleep(200 * MS).await;
    assert_eq!(
        runs.taken(),
        "10 most, 20 5, 30 5 at 15, 40 most at 35, 50 first of 0, 60 second of 0, 70 least"
    );
}

#[tokio::test]
async fn without_a_limit_the_priority_decides_within_a_tick_alone() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    for (priority, delay, name) in [
        (0, 10 * MS, "a"),
        (1, 10 * MS, "b"),
        (-1, 10 * MS, "c"),
        (1, 10 * MS, "d"),
        (9, 11 * MS, "e"),
    ] {
        let options = scheduler.task().priority(priority);
        drop(options.after(delay, runs.work(name)));
    }
    clock.advance(20 * MS);
    scheduler.settled().await;
    assert_eq!(runs.taken(), "20 b, 20 d, 20 a, 20 c, 20 e");
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_task_overlap_up_to_its_places() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().max_concurrent(2);
    let task = options.every(10 * MS, takes(25 * MS, &runs, "a")).unwrap();
    sleep(65 * MS).await;
    // Due at 10, 20, 30 …; the third finds no place until the first has ended.
    assert_eq!(runs.taken(), "10 a, 20 a, 35 a, 45 a, 60 a");
    assert_eq!(task.status(), Status::Due);
    // Two run, and that which was due at 60 waits.
    assert_eq!(scheduler.stats().in_progress, 3);
}

#[tokio::test(start_paused = true)]
async fn a_task_with_a_key_shares_its_places_with_who_replaces_it() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().key("k").max_concurrent(2);
    drop(options.clone().every(10 * MS, takes(50 * MS, &runs, "old")));
    sleep(25 * MS).await;
    drop(options.every(10 * MS, takes(50 * MS, &runs, "new")));
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "10 old, 20 old, 60 new, 70 new");
}

#[tokio::test(start_paused = true)]
async fn the_handle_of_overlapping_runs_waits_for_the_last_that_ends() {
    let (scheduler, runs) = paused();
    let mut number = 0;
    let work = {
        let runs = runs.clone();
        move || {
            number += 1;
            let (runs, number) = (runs.clone(), number);
            async move {
                sleep([0, 50, 5, 20][number] * MS).await;
                runs.note(["", "first ends", "second ends", "third ends"][number]);
                Ok::<_, String>(number)
            }
        }
    };
    let options = scheduler.task().max_concurrent(3).run_limit(3);
    let task = options.every(10 * MS, work).unwrap();
    let status = task.task();
    sleep(40 * MS).await;
    assert_eq!(status.status(), Status::Running);
    assert_eq!(status.next_run(), None);
    assert_eq!(task.await, Ok(1));
    assert_eq!(runs.taken(), "25 second ends, 50 third ends, 60 first ends");
    assert_eq!(status.status(), Status::Ended);
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelling_lets_overlapping_runs_end_and_takes_those_in_the_queue() {
    let (scheduler, runs) = paused();
    let told = Arc::new(AtomicU32::new(0));
    let work = {
        let (runs, told) = (runs.clone(), told.clone());
        move || {
            runs.note("begins");
            let (runs, told) = (runs.clone(), told.clone());
            async move {
                let stopping = Run::current().expect("a run").stopping();
                sleep(50 * MS).await;
                told.fetch_add(u32::from(stopping.is_cancelled()), SeqCst);
                runs.note("ends");
            }
        }
    };
    let options = scheduler.task().max_concurrent(2);
    let task = options.every(10 * MS, work).unwrap();
    sleep(35 * MS).await;
    assert_eq!(task.cancel(), Cancel::Running);
    assert_eq!(task.status(), Status::Running);
    assert_eq!(task.await, Ok(()));
    runs.note("known");
    assert_eq!(
        runs.taken(),
        "10 begins, 20 begins, 60 ends, 70 ends, 70 known"
    );
    assert_eq!(told.load(SeqCst), 2);
    sleep(100 * MS).await;
    assert_eq!(runs.taken(), "");
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelling_between_overlapping_runs_wins() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().max_concurrent(2);
    let task = options.every(10 * MS, runs.work("a")).unwrap();
    sleep(25 * MS).await;
    assert_eq!(task.cancel(), Cancel::Cancelled);
    assert_eq!(task.cancel(), Cancel::Ended);
    // Not the outcome of one of its runs, as if it had ended by itself.
    assert_eq!(task.await, Err(TaskError::Cancelled));
    sleep(50 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a");
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_abort_cuts_off_all_runs_that_overlap() {
    let (scheduler, runs) = paused();
    let work = {
        let mut note = runs.work("a");
        move || {
            drop(note());
            pending::<()>()
        }
    };
    let options = scheduler.task().max_concurrent(3);
    let task = options.every(10 * MS, work).unwrap();
    sleep(55 * MS).await;
    assert_eq!(runs.taken(), "10 a, 20 a, 30 a");
    assert_eq!(task.abort(), Cancel::Running);
    assert_eq!(task.await, Err(TaskError::Aborted));
    assert!(scheduler.is_empty());
    assert_eq!(scheduler.stats().aborted, 3);
}

#[tokio::test(start_paused = true)]
async fn each_overlapping_run_has_its_own_attempts_and_timeout() {
    let (scheduler, runs) = paused();
    let work = {
        let runs = runs.clone();
        move || {
            let runs = runs.clone();
            async move {
                let attempt = Run::current().expect("a run").attempt();
                runs.note(["", "one", "two"][attempt as usize]);
                match attempt {
                    1 => pending().await,
                    _ => Ok::<_, String>(()),
                }
            }
        }
    };
    let options = scheduler.task().max_concurrent(2).run_limit(2);
    let options = options.timeout(15 * MS).retry(Retry::fixed(5 * MS));
    let task = options.every(10 * MS, work).unwrap();
    assert_eq!(task.await, Ok(()));
    assert_eq!(runs.taken(), "10 one, 20 one, 30 two, 40 two");
}

#[tokio::test(start_paused = true)]
async fn what_counts_from_the_end_of_a_run_does_not_overlap_it() {
    let (scheduler, runs) = paused();
    let options = scheduler.task().key("k").max_concurrent(2);
    let work = takes(30 * MS, &runs, "a");
    drop(options.every_after_completion(100 * MS, work));
    sleep(400 * MS).await;
    assert_eq!(runs.taken(), "100 a, 230 a, 360 a");
}

#[tokio::test]
async fn ticks_that_were_missed_overlap_in_a_burst_and_not_when_skipping() {
    for (missed, expected) in [(MissedTick::Burst, 5), (MissedTick::Skip, 1)] {
        let clock = ManualClock::new();
        let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
        let options = scheduler.task().max_concurrent(10).missed_tick(missed);
        let task = options.every(10 * MS, pending::<()>).unwrap();
        clock.advance(50 * MS);
        while scheduler.stats().started < expected {
            tokio::task::yield_now().await;
        }
        assert_eq!(scheduler.stats().in_progress, expected);
        assert_eq!(task.abort(), Cancel::Running);
        scheduler.settled().await;
        assert_eq!(scheduler.stats().aborted, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_for_which_there_is_no_room_is_missed() {
    let builder = Scheduler::builder().max_pending(2);
    let scheduler = builder.build().unwrap();
    let runs = Runs::new(TokioClock);
    let options = scheduler.task().max_concurrent(5).run_limit(2);
    let task = options.every(10 * MS, takes(25 * MS, &runs, "a")).unwrap();
    assert_eq!(task.await, Ok(()));
    // The task and a run are two; the runs due at 20 and 30 found no room.
    assert_eq!(runs.taken(), "10 a, 40 a");
    assert_eq!(scheduler.stats().missed, 2);
}
