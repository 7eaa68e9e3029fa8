//! Faults that the scheduler once had, each by what it showed.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use wheelhouse_wheel::scheduler::{Cancel, Grace, MissedTick, Retry, Scheduler, TaskError};
use wheelhouse_wheel::{Clock, ManualClock};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a listener's waker");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_whose_waker_panics_loses_no_task() {
    let scheduler = Scheduler::builder().build().unwrap();
    let mut events = scheduler.events();
    let bomb = Waker::from(Arc::new(Bomb));
    let mut listen = || {
        let next = pin!(events.next());
        let _ = next.poll(&mut Context::from_waker(&bomb));
    };
    listen();
    let runs = scheduler.after(MS, || ready(Ok::<_, String>(7))).unwrap();
    listen();
    assert_eq!(runs.await, Ok(7));
    let cancelled = scheduler.after(S, || ready(())).unwrap();
    listen();
    assert_eq!(cancelled.cancel(), Cancel::Cancelled);
    assert_eq!(cancelled.await, Err(TaskError::Cancelled));
    let handles: Vec<_> = (0..5)
        .map(|_| scheduler.after(S, || ready(())).unwrap())
        .collect();
    listen();
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(report.all.cancelled, 5);
    for handle in handles {
        assert_eq!(handle.await, Err(TaskError::Cancelled));
    }
    assert!(scheduler.is_empty());
}

/// Counts runs of a task on a clock that is moved by hand.
struct Counted {
    clock: ManualClock,
    scheduler: Scheduler,
    runs: Arc<AtomicU64>,
}

impl Counted {
    fn new() -> Self {
        let clock = ManualClock::new();
        let builder = Scheduler::builder().seed(1).clock(clock.clone());
        Counted {
            scheduler: builder.build().unwrap(),
            clock,
            runs: Arc::default(),
        }
    }

    fn work(&self) -> impl FnMut() -> std::future::Ready<()> + Send + 'static {
        let runs = self.runs.clone();
        move || {
            runs.fetch_add(1, SeqCst);
            ready(())
        }
    }

    async fn run_for(&self, by: Duration) -> u64 {
        self.scheduler.run_for(&self.clock, by).await;
        self.runs.load(SeqCst)
    }
}

#[tokio::test]
async fn jitter_is_no_lateness_to_the_policy_delay() {
    let counted = Counted::new();
    let options = counted.scheduler.task().missed_tick(MissedTick::Delay);
    let options = options.jitter(50 * MS);
    let task = options.every(100 * MS, counted.work()).unwrap();
    assert!(matches!(counted.run_for(10 * S).await, 99 | 100));
    drop(task);
}

#[tokio::test]
async fn a_move_into_the_past_is_one_run_now() {
    let counted = Counted::new();
    let task = counted.scheduler.every(S, counted.work()).unwrap();
    let hour = 3600 * S;
    counted.scheduler.run_for(&counted.clock, hour).await;
    let before = counted.runs.load(SeqCst);
    assert!(task.reschedule_at(counted.clock.now() - hour));
    let after = counted.run_for(S).await;
    assert_eq!(after - before, 2, "now, and a second later");
}

#[tokio::test]
async fn a_move_beyond_the_end_is_refused() {
    let counted = Counted::new();
    let options = counted.scheduler.task().until(counted.clock.now() + 5 * S);
    let task = options.every(S, counted.work()).unwrap();
    assert!(!task.reschedule(60 * S));
    assert!(task.reschedule(2 * S));
    assert_eq!(counted.run_for(60 * S).await, 4);
}

#[tokio::test]
async fn retries_without_a_delay_stay_so() {
    let counted = Counted::new();
    let retry = Retry::exponential(Duration::ZERO).max_attempts(u32::MAX);
    let runs = counted.runs.clone();
    let options = counted.scheduler.task().retry(retry);
    let task = options.after(MS, move || {
        runs.fetch_add(1, SeqCst);
        ready(Err::<(), _>("no"))
    });
    // One each tick.
    assert!(counted.run_for(2 * S).await >= 1999);
    assert_eq!(task.unwrap().cancel(), Cancel::Cancelled);
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("an outcome");
    }
}

impl std::fmt::Display for Grenade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("grenade")
    }
}

#[tokio::test]
async fn an_outcome_that_panics_when_dropped_ends_nothing() {
    let scheduler = Scheduler::builder().build().unwrap();
    let (slow, tried) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = slow.clone();
    let options = scheduler.task().timeout(5 * MS).run_limit(3);
    let overdue = options.every_blocking(10 * MS, move || {
        count.fetch_add(1, SeqCst);
        std::thread::sleep(10 * MS);
        Ok::<_, String>(Grenade)
    });
    let count = tried.clone();
    let retry = Retry::fixed(MS).max_attempts(3);
    let options = scheduler.task().retry(retry).run_limit(2);
    let retried = options.every(20 * MS, move || {
        count.fetch_add(1, SeqCst);
        ready(Err::<(), _>(Grenade))
    });
    assert!(matches!(
        overdue.unwrap().await,
        Err(TaskError::TimedOut(_))
    ));
    std::mem::forget(retried.unwrap().await);
    assert_eq!((slow.load(SeqCst), tried.load(SeqCst)), (3, 6));
}
