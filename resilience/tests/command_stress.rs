//! Many tasks at one command, some of them given up: each call is counted once, and all permits come
//! back.
#![cfg(feature = "tokio")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::{CommandError, Event};

const LIMIT: usize = 4;

fn length() -> Duration {
    let seconds = std::env::var("WHEELHOUSE_STRESS_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.5))
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Counts how many of it there are at a time.
struct Inside;

impl Inside {
    fn enter() -> Self {
        MOST.fetch_max(RUNNING.fetch_add(1, SeqCst) + 1, SeqCst);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, SeqCst);
    }
}

async fn work(kind: usize) -> Result<(), usize> {
    let _inside = Inside::enter();
    match kind % 4 {
        0 => {}
        1 => return Err(kind),
        2 => tokio::task::yield_now().await,
        _ => tokio::time::sleep(Duration::from_millis(5)).await,
    }
    Ok(())
}

fn blocking(kind: usize) -> Result<(), usize> {
    let _inside = Inside::enter();
    if kind.is_multiple_of(5) {
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

#[test]
fn stress_each_call_is_counted_once_and_every_permit_comes_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .unwrap();
    let command = Command::builder("stress")
        .timeout(Duration::from_millis(2))
        .max_concurrent(LIMIT)
        .error_percent(None)
        .build()
        .unwrap();
    let begun = Arc::new(AtomicU64::new(0));
    let mut failed = 0;
    runtime.block_on(async {
        let end = Instant::now() + length();
        while Instant::now() < end {
            let tasks: Vec<_> = (0..12)
                .map(|kind| {
                    let (command, begun) = (command.clone(), begun.clone());
                    tokio::spawn(async move {
                        // The call begins in the same poll.
                        begun.fetch_add(1, SeqCst);
                        let result = match kind % 3 {
                            0 => command.run_blocking(move || blocking(kind)).await,
                            _ => command.run(work(kind)).await,
                        };
                        matches!(result, Err(CommandError::Failed(_)))
                    })
                })
                .collect();
            for (kind, task) in tasks.into_iter().enumerate() {
                if kind % 5 == 4 {
                    task.abort();
                }
                failed += u64::from(matches!(task.await, Ok(true)));
            }
        }
        while command.stats().in_flight > 0 || command.stats().abandoned_running > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let totals = command.stats().totals;
    assert!(MOST.load(SeqCst) <= LIMIT, "{MOST:?} at once");
    assert_eq!(RUNNING.load(SeqCst), 0);
    assert!(totals.of(Event::Success) > 0 && totals.of(Event::Rejected) > 0);
    assert_eq!(totals.requests(), begun.load(SeqCst));
    assert!(totals.of(Event::Failure) >= failed);
    let all: Vec<_> = (0..LIMIT)
        .map(|_| command.bulkhead().try_acquire())
        .collect();
    assert!(all.iter().all(Result::is_ok) && command.bulkhead().try_acquire().is_err());
}
