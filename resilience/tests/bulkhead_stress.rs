//! Many threads at one bulkhead: never more than there are permits, and everything comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_resilience::Bulkhead;

/// How long each test goes on.
fn length() -> Duration {
    let seconds = std::env::var("WHEELHOUSE_STRESS_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.5))
}

/// Every way to take a permit, on four threads, with as many permits as before at all times.
#[test]
fn stress_no_more_than_the_permits_run() {
    const PERMITS: usize = 2;
    let bulkhead = Bulkhead::builder(PERMITS).queue(3).build().unwrap();
    let running = AtomicUsize::new(0);
    let end = Instant::now() + length();
    let inside = || {
        let now = running.fetch_add(1, SeqCst) + 1;
        assert!(now <= PERMITS, "{now} at once");
        thread::yield_now();
        running.fetch_sub(1, SeqCst);
    };
    let held: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..4usize)
            .map(|worker| {
                let (bulkhead, inside) = (&bulkhead, &inside);
                scope.spawn(move || {
                    let mut held = 0;
                    let mut round = worker;
                    while Instant::now() < end {
                        round += 1;
                        let permit = match round % 3 {
                            0 => bulkhead.try_acquire().ok(),
                            1 => bulkhead.acquire_timeout(Duration::MAX).ok(),
                            _ => bulkhead.acquire_timeout(Duration::from_micros(5)).ok(),
                        };
                        if let Some(permit) = permit {
                            inside();
                            held += 1;
                            drop(permit);
                        }
                    }
                    held
                })
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.sum()
    });
    assert!(held > 0);
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
    assert!(bulkhead.try_acquire().is_ok());
}

/// Waiters, resizing to 0 and back, and tasks that are aborted while they wait or hold. In the end
/// nothing is lost: as many permits as were set can be taken at once.
#[test]
fn stress_nothing_is_lost_when_tasks_are_aborted() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let bulkhead = Bulkhead::builder(2).queue(64).build().unwrap();
    let over = AtomicBool::new(false);
    let mut ran = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for permits in [0, 1, 3, 2].into_iter().cycle() {
                bulkhead.resize(permits).unwrap();
                thread::yield_now();
                if over.load(SeqCst) {
                    break;
                }
            }
        });
        let end = Instant::now() + length();
        runtime.block_on(async {
            while Instant::now() < end {
                let tasks: Vec<_> = (0..16)
                    .map(|_| {
                        let acquire = bulkhead.acquire_owned();
                        tokio::spawn(async move {
                            let permit = acquire.await.expect("64 places for 16");
                            tokio::task::yield_now().await;
                            drop(permit);
                        })
                    })
                    .collect();
                for (index, task) in tasks.into_iter().enumerate() {
                    if index % 3 == 0 {
                        task.abort();
                    }
                    ran += usize::from(task.await.is_ok());
                }
            }
        });
        over.store(true, SeqCst);
    });
    assert!(ran > 0);
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
    bulkhead.resize(3).unwrap();
    let all: Vec<_> = (0..3).map(|_| bulkhead.try_acquire()).collect();
    assert!(all.iter().all(Result::is_ok));
}
