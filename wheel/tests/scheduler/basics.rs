//! What a scheduler does with each kind of task, under tokio's paused clock.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};
use wheelhouse_wheel::scheduler::{Cancel, Grace, Scheduler, Status, TaskError};

const MS: Duration = Duration::from_millis(1);

/// Notes when it was called, in milliseconds from its making.
#[derive(Clone)]
struct Log {
    start: Instant,
    times: Arc<Mutex<Vec<u64>>>,
}

impl Log {
    fn new() -> Self {
        Log {
            start: Instant::now(),
            times: Arc::default(),
        }
    }

    fn note(&self) {
        let now = self.start.elapsed().as_millis() as u64;
        self.times.lock().push(now);
    }

    fn taken(&self) -> Vec<u64> {
        self.times.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_runs_once_when_it_is_due() {
    let scheduler = Scheduler::builder().build().unwrap();
    let log = Log::new();
    let task = scheduler
        .after(30 * MS, {
            let log = log.clone();
            move || {
                log.note();
                ready(())
            }
        })
        .unwrap();
    assert_eq!(task.status(), Status::Scheduled);
    task.await.unwrap();
    sleep(100 * MS).await;
    let times = log.taken();
    assert!(
        times.len() == 1 && (30..=32).contains(&times[0]),
        "{times:?}"
    );
    assert!(scheduler.is_empty());
}

#[tokio::test(start_paused = true)]
async fn outcomes_errors_and_panics_reach_the_handle() {
    let scheduler = Scheduler::builder().build().unwrap();
    let ok = scheduler.after(MS, || ready(Ok::<_, String>(7))).unwrap();
    let err = scheduler
        .after(MS, || ready(Err::<(), _>("no luck".to_owned())))
        .unwrap();
    let panic = scheduler
        .after(MS, || async {
            if true {
                panic!("boom")
            }
        })
        .unwrap();
    assert_eq!(ok.await, Ok(7));
    assert_eq!(err.await, Err(TaskError::Failed("no luck".to_owned())));
    assert_eq!(panic.await, Err(TaskError::Panicked("boom".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn w84_fixed_rate_and_fixed_delay_of_100_with_runs_of_30() {
    let scheduler = Scheduler::builder().build().unwrap();
    let (rate, delay) = (Log::new(), Log::new());
    let run = |log: &Log| {
        let log = log.clone();
        move || {
            log.note();
            sleep(30 * MS)
        }
    };
    let a = scheduler.every(100 * MS, run(&rate)).unwrap();
    let b = scheduler
        .every_after_completion(100 * MS, run(&delay))
        .unwrap();
    sleep(420 * MS).await;
    let round = |times: Vec<u64>| -> Vec<u64> { times.iter().map(|t| t / 10 * 10).collect() };
    assert_eq!(round(rate.taken()), [100, 200, 300, 400]);
    assert_eq!(round(delay.taken()), [100, 230, 360]);
    assert_eq!(a.cancel(), Cancel::Running);
    assert_eq!(b.cancel(), Cancel::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn w52_pending_one_shots_are_in_the_report_and_cancelled() {
    let scheduler = Scheduler::builder().build().unwrap();
    let handles: Vec<_> = (0..3)
        .map(|_| {
            scheduler
                .after(Duration::from_secs(60), || ready(()))
                .unwrap()
        })
        .collect();
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(report.all.cancelled, 3);
    assert_eq!(report.all.total(), 3);
    for handle in handles {
        assert_eq!(handle.await, Err(TaskError::Cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn w66_a_recurring_task_that_panics_on_its_third_run_goes_on() {
    let scheduler = Scheduler::builder().build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let task = scheduler
        .task()
        .run_limit(6)
        .every(MS, {
            let runs = runs.clone();
            move || {
                let run = runs.fetch_add(1, SeqCst) + 1;
                async move { assert!(run != 3, "the third") }
            }
        })
        .unwrap();
    task.await.unwrap();
    assert_eq!(runs.load(SeqCst), 6);
    assert_eq!(scheduler.stats().panicked, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_handle_does_not_cancel() {
    let scheduler = Scheduler::builder().build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let counter = runs.clone();
    drop(scheduler.after(5 * MS, move || {
        counter.fetch_add(1, SeqCst);
        ready(())
    }));
    advance(6 * MS).await;
    sleep(2 * MS).await;
    assert_eq!(runs.load(SeqCst), 1);
}
