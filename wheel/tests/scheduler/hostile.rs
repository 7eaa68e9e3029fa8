//! User code that panics, blocks or calls back at the worst place, and arguments at the ends of their
//! ranges.

use std::fmt;
use std::future::{Future, pending, ready};
use std::panic::panic_any;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::sleep;
use wheelhouse_wheel::scheduler::{
    Cancel, Grace, MissedTick, Outcome, Retry, Scheduler, Status, TaskError,
};
use wheelhouse_wheel::{Clock, ManualClock};

use crate::support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn scheduler() -> Scheduler {
    Scheduler::builder().build().unwrap()
}

/// Panics when it is dropped, and so does what it panics with.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Arc::new(Fuse));
    }
}

struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("the payload too");
    }
}

/// An outcome that does not say what it is.
struct Riddle;

impl Outcome for Riddle {
    type Value = ();
    type Error = Illegible;

    fn into_result(self) -> Result<(), Illegible> {
        panic!("a riddle")
    }
}

#[derive(Debug, PartialEq)]
struct Illegible;

impl fmt::Display for Illegible {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("illegible")
    }
}

#[tokio::test(start_paused = true)]
async fn panics_in_every_place_end_no_recurring_task() {
    let scheduler = scheduler();
    // So that errors are displayed.
    let _events = scheduler.events();
    let options = scheduler.task().run_limit(3);
    let riddle = options.clone().every(MS, || ready(Riddle)).unwrap();
    let illegible = options.clone().every(MS, || ready(Err::<(), _>(Illegible)));
    let bomb = options.clone().every(MS, || ready(Ok::<_, String>(Bomb)));
    let payload = options.clone().every(MS, || async {
        if true {
            panic_any(Bomb)
        }
    });
    let at_once = options.clone().every(MS, || {
        if true {
            panic!("in the closure itself")
        }
        ready(())
    });
    let captured = options.every(MS, {
        let bomb = Bomb;
        move || {
            let _ = &bomb;
            ready(())
        }
    });
    let wanted = Retry::fixed(MS).only_if(|_| panic_any(Bomb));
    let options = scheduler.task().run_limit(3).retry(wanted);
    let retried = options.every(MS, || ready(Err::<(), _>("no")));
    assert_eq!(
        riddle.await,
        Err(TaskError::Panicked("a riddle".to_owned()))
    );
    assert_eq!(illegible.unwrap().await, Err(TaskError::Failed(Illegible)));
    // The last one's value is the caller's.
    std::mem::forget(bomb.unwrap().await.ok());
    let not_a_string = TaskError::Panicked("(not a string)".to_owned());
    assert_eq!(payload.unwrap().await, Err(not_a_string));
    let words = TaskError::Panicked("in the closure itself".to_owned());
    assert_eq!(at_once.unwrap().await, Err(words));
    assert_eq!(captured.unwrap().await, Ok(()));
    assert_eq!(retried.unwrap().await, Err(TaskError::Failed("no")));
    let stats = scheduler.stats();
    assert_eq!((stats.started, stats.live, stats.in_progress), (21, 0, 0));
    // Three words of an error, three choices of a retry, two outcomes and one closure that were
    // dropped.
    assert_eq!(stats.contained, 9, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_may_use_the_scheduler() {
    struct Meddler(Scheduler);
    impl Drop for Meddler {
        fn drop(&mut self) {
            let Meddler(scheduler) = self;
            assert!(scheduler.len() < 100);
            assert!(scheduler.stats().live < 100);
            for key in ["a", "b"] {
                if let Some(task) = scheduler.get(key) {
                    let _ = (task.pause(), task.resume(), task.reschedule(MS));
                    let _ = (task.status(), task.next_run(), task.cancel());
                }
                let options = scheduler.task().key(key);
                if let Ok(task) = options.after(HOUR, || ready(())) {
                    let _ = task.status();
                }
            }
            let _ = scheduler.cancel("a");
        }
    }
    let scheduler = scheduler();
    let meddler = || Meddler(scheduler.clone());
    let keyed = |key: &str, delay| {
        let meddler = meddler();
        let options = scheduler.task().key(key);
        options.after(delay, move || {
            let Meddler(scheduler) = &meddler;
            ready(Ok::<_, Illegible>(Meddler(scheduler.clone())))
        })
    };
    // Cancelled, replaced, run, and pending when all ends: the work is dropped each time.
    assert_eq!(keyed("a", HOUR).unwrap().cancel(), Cancel::Cancelled);
    drop(keyed("a", HOUR).unwrap());
    let ran = keyed("c", MS).unwrap();
    assert!(ran.await.is_ok());
    let outcome = {
        let mut meddler = Some(meddler());
        scheduler.after(MS, move || ready(meddler.take().ok_or(Illegible)))
    };
    // Nobody wants the outcome.
    drop(outcome.unwrap());
    sleep(10 * MS).await;
    let unheard = {
        let mut meddler = Some(meddler());
        scheduler.after(MS, move || ready(meddler.take().ok_or(Illegible)))
    };
    let unheard = unheard.unwrap();
    sleep(10 * MS).await;
    assert_eq!(unheard.status(), Status::Ended);
    // The handle holds the outcome, and drops it.
    drop(unheard);
    drop(keyed("a", HOUR).unwrap());
    let report = scheduler.shutdown(Grace::cancel_pending()).await;
    assert!(report.all.total() > 0);
    assert_eq!(scheduler.stats().contained, 0);
}

/// A waker that uses the scheduler when it wakes and when it is dropped, and panics then.
struct Caller {
    scheduler: Scheduler,
    calls: AtomicU64,
}

impl Caller {
    fn call(&self) {
        self.calls.fetch_add(1, SeqCst);
        if let Some(task) = self.scheduler.get("key") {
            let _ = task.status();
        }
        let options = self.scheduler.task().key("other");
        drop(options.after(HOUR, || ready(())));
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.call();
        panic!("a waker");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.call();
    }
}

#[tokio::test(start_paused = true)]
async fn wakers_may_use_the_scheduler_and_panic() {
    let scheduler = scheduler();
    let caller = || {
        Arc::new(Caller {
            scheduler: scheduler.clone(),
            calls: AtomicU64::new(0),
        })
    };
    let task = scheduler.task().key("key").after(MS, || ready(())).unwrap();
    let mut task = pin!(task);
    // The first is dropped by the second, the second wakes.
    for caller in [caller(), caller()] {
        let waker = Waker::from(caller.clone());
        let mut context = Context::from_waker(&waker);
        assert!(task.as_mut().poll(&mut context).is_pending());
        drop((waker, caller));
    }
    sleep(10 * MS).await;
    assert_eq!(scheduler.stats().contained, 1);
    assert_eq!(task.await, Ok(()));
    // A listener is woken by a keyed task.
    let mut events = scheduler.events();
    let listener = caller();
    {
        let waker = Waker::from(listener.clone());
        let mut next = pin!(events.next());
        assert!(
            next.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let options = scheduler.task().key("key");
        let scheduled = std::panic::AssertUnwindSafe(|| options.after(HOUR, || ready(())));
        drop(std::panic::catch_unwind(scheduled));
    }
    assert_eq!(listener.calls.load(SeqCst), 1);
    assert!(scheduler.get("key").is_some());
}

/// A clock that panics when it is told to.
#[derive(Clone)]
struct Moody {
    clock: ManualClock,
    moody: Arc<AtomicBool>,
}

impl Clock for Moody {
    fn now(&self) -> Instant {
        assert!(!self.moody.load(SeqCst), "a clock");
        self.clock.now()
    }
}

#[test]
fn a_clock_that_panics_leaves_no_task_behind() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let moody = Moody {
                clock: ManualClock::new(),
                moody: Arc::default(),
            };
            let scheduler = Scheduler::builder().clock(moody.clone()).build().unwrap();
            let mut handles = Vec::new();
            for n in 0..200 {
                let runs = if n % 2 == 0 { 1 } else { 3 };
                let options = scheduler.task().max_concurrent(runs);
                let task = options.every(MS, || sleep(MS)).unwrap();
                let task = std::panic::AssertUnwindSafe(task);
                handles.push(task);
            }
            for _ in 0..20 {
                moody.moody.store(true, SeqCst);
                sleep(MS).await;
                moody.moody.store(false, SeqCst);
                moody.clock.advance(MS);
                sleep(MS).await;
            }
            for handle in &handles {
                let _ = handle.cancel();
            }
            for handle in handles {
                let _ = handle.0.await;
            }
            while scheduler.stats().in_progress > 0 {
                sleep(MS).await;
            }
            assert_eq!(scheduler.len(), 0);
        });
    });
}

#[test]
fn steps_that_block_in_place_let_other_runs_begin() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let scheduler = scheduler();
            let (done, wait) = std::sync::mpsc::channel::<()>();
            let wait = Arc::new(Mutex::new(wait));
            // More than the runtime has workers, all in their first step until the last has run.
            let blocked: Vec<_> = (0..4)
                .map(|_| {
                    let wait = wait.clone();
                    let work = move || {
                        let wait = wait.clone();
                        let received = tokio::task::block_in_place(|| wait.lock().recv());
                        assert!(received.is_err());
                        ready(())
                    };
                    scheduler.after(MS, work).unwrap()
                })
                .collect();
            while scheduler.stats().started < 4 {
                sleep(MS).await;
            }
            let mut done = Some(done);
            let last = scheduler.after(MS, move || {
                drop(done.take());
                ready(())
            });
            assert_eq!(last.unwrap().await, Ok(()));
            for blocked in blocked {
                assert_eq!(blocked.await, Ok(()));
            }
        });
    });
}

#[test]
fn a_task_that_never_catches_up_lets_others_run() {
    within_a_minute(|| {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let scheduler = scheduler();
            let options = scheduler.task().max_concurrent(2);
            let busy = options.missed_tick(MissedTick::Burst);
            let busy = busy.every(Duration::from_nanos(1), || ready(())).unwrap();
            let lone = scheduler.after(20 * MS, || ready(())).unwrap();
            assert_eq!(lone.await, Ok(()));
            let _ = busy.cancel();
            drop(busy);
        });
    });
}

#[test]
fn a_hundred_thousand_at_one_instant_and_one_place() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let builder = Scheduler::builder().max_concurrent_runs(1);
            let scheduler = builder.build().unwrap();
            let (at_once, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let at = Instant::now() + 50 * MS;
            let handles: Vec<_> = (0..100_000)
                .map(|n| {
                    let (at_once, most) = (at_once.clone(), most.clone());
                    let work = move || {
                        let (at_once, most) = (at_once.clone(), most.clone());
                        async move {
                            most.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
                            if n % 1000 == 0 {
                                tokio::task::yield_now().await;
                            }
                            at_once.fetch_sub(1, SeqCst);
                        }
                    };
                    scheduler.at(at, work)
                })
                .collect();
            for handle in handles {
                assert_eq!(handle.unwrap().await, Ok(()));
            }
            assert_eq!(most.load(SeqCst), 1);
            assert_eq!(scheduler.stats().succeeded, 100_000);
            while scheduler.stats().in_progress > 0 {
                sleep(MS).await;
            }
        });
    });
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_a_hundred_thousand_is_cancelled_without_a_word() {
    let builder = Scheduler::builder().max_concurrent_runs(1);
    let scheduler = builder.build().unwrap();
    let holds = scheduler.after(MS, pending::<()>).unwrap();
    let queued: Vec<_> = (0..100_000)
        .map(|_| scheduler.after(2 * MS, || ready(())).unwrap())
        .collect();
    sleep(10 * MS).await;
    assert_eq!(queued[99_999].status(), Status::Due);
    for task in queued {
        assert_eq!(task.cancel(), Cancel::Cancelled);
        assert_eq!(task.await, Err(TaskError::Cancelled));
    }
    // Those who will not run do not pile up in the queue.
    assert!(scheduler.stats().in_progress < 100);
    assert_eq!(holds.abort(), Cancel::Running);
    assert_eq!(holds.await, Err(TaskError::Aborted));
    scheduler.settled().await;
    assert_eq!(scheduler.stats().in_progress, 0);
}

#[tokio::test(start_paused = true)]
async fn all_the_time_there_is_may_be_given_for_everything() {
    let scheduler = scheduler();
    let retry = Retry::exponential(Duration::MAX)
        .max_delay(Duration::MAX)
        .jitter(0.0);
    let options = scheduler
        .task()
        .retry(retry)
        .timeout(Duration::MAX)
        .grace(Duration::MAX);
    let failing = options.clone().after(MS, || ready(Err::<(), _>("no")));
    let failing = failing.unwrap();
    let good = options.after(MS, || ready(())).unwrap();
    assert_eq!(good.await, Ok(()));
    assert_eq!(
        (failing.status(), failing.next_run()),
        (Status::Retrying, None)
    );
    let never = [
        scheduler.after(Duration::MAX, || ready(())).unwrap(),
        scheduler.every(Duration::MAX, || ready(())).unwrap(),
        scheduler
            .every_after_completion(Duration::MAX, || ready(()))
            .unwrap(),
        scheduler
            .task()
            .jitter(Duration::MAX)
            .after(Duration::MAX, || ready(()))
            .unwrap(),
        scheduler.after_blocking(Duration::MAX, || ()).unwrap(),
    ];
    // With a jitter of half of all time, it may come soon or not at all.
    let jittered = scheduler.task().jitter(Duration::MAX / 2);
    let jittered = jittered.every(S, || ready(())).unwrap();
    sleep(100 * YEAR).await;
    for task in &never {
        assert_eq!((task.status(), task.next_run()), (Status::Scheduled, None));
        assert!(task.reschedule(Duration::MAX) && task.pause() && task.resume());
    }
    assert!(never[0].reschedule(MS));
    sleep(10 * MS).await;
    assert_eq!(never[0].status(), Status::Ended);
    assert_eq!(jittered.cancel(), Cancel::Cancelled);
    let immediately = scheduler.task().immediately();
    let once = immediately.every(Duration::MAX, || ready(())).unwrap();
    // No other run will come, so this was the last.
    assert_eq!(once.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn instants_far_in_the_past_and_in_the_future() {
    let scheduler = scheduler();
    let now = tokio::time::Instant::now().into_std();
    let past = [1, 1000, 1_000_000_000].map(|secs| now.checked_sub(Duration::from_secs(secs)));
    for at in past.into_iter().flatten() {
        assert_eq!(scheduler.at(at, || ready(())).unwrap().await, Ok(()));
    }
    let mut far = now;
    for power in (0..63).rev() {
        far = far
            .checked_add(Duration::from_secs(1 << power))
            .unwrap_or(far);
    }
    let end = scheduler.at(far, || ready(())).unwrap();
    sleep(1000 * YEAR).await;
    assert_eq!(end.status(), Status::Scheduled);
    assert!(end.reschedule_at(now));
    assert_eq!(end.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn intervals_of_a_nanosecond_and_of_a_year() {
    let fine = Scheduler::builder().interval(Duration::from_nanos(1));
    let fine = fine.build().unwrap();
    let task = fine.after(S, || ready(())).unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(task.await, Ok(()));
    assert!((S..S + 3 * MS).contains(&began.elapsed()));
    for interval in [YEAR, Duration::MAX] {
        let coarse = Scheduler::builder().interval(interval);
        let coarse = coarse.build().unwrap();
        let task = coarse.after(MS, || ready(())).unwrap();
        if interval == YEAR {
            assert_eq!(task.await, Ok(()));
        } else {
            sleep(YEAR).await;
            assert_eq!(task.cancel(), Cancel::Cancelled);
        }
    }
}

#[test]
fn limits_hold_for_many_threads_at_once() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        let scheduler = Scheduler::builder()
            .runtime(runtime.handle().clone())
            .max_pending(100)
            .build()
            .unwrap();
        let accepted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let task = scheduler.after(HOUR, || ready(()));
                        accepted.fetch_add(u64::from(task.is_ok()), SeqCst);
                    }
                });
            }
        });
        assert_eq!((accepted.load(SeqCst), scheduler.len()), (100, 100));
        assert_eq!(scheduler.stats().scheduled, 100);
    });
}
