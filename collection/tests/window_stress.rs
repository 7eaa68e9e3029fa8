//! Threads use windows in parallel, for as many seconds as `WHEELHOUSE_STRESS_SECONDS` says (2
//! without it); the ledger adds up. Time is a counter that the threads move, so that windows turn all
//! the time.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_collection::{CountWindow, Outcome, Outcomes, RollingWindow};

const WRITERS: u64 = 4;

/// Nanoseconds of a bucket.
const LENGTH: u64 = 1000;

fn seconds() -> u64 {
    let seconds = std::env::var("WHEELHOUSE_STRESS_SECONDS").ok();
    seconds.map_or(2, |text| text.parse().expect("a number of seconds"))
}

/// What writers have added before and after it was added.
#[derive(Default)]
struct Ledger {
    begun: AtomicU64,
    ended: AtomicU64,
    errors: AtomicU64,
}

/// Nothing expires: every read has at least what had been added before it and at most what had been
/// begun after it, and the end is exact.
#[test]
fn stress_rolling_window_loses_nothing() {
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until {
        rolling_round(1 << 20, |seen, least, most| {
            assert!(least <= seen && seen <= most, "{least} <= {seen} <= {most}");
        });
    }
}

/// Everything expires: reads agree in themselves, and at the end the window is empty.
#[test]
fn stress_rolling_window_turns() {
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until {
        rolling_round(5, |seen, _, most| assert!(seen <= most, "{seen} <= {most}"));
    }
}

fn rolling_round(buckets: usize, check: impl Fn(u64, u64, u64) + Sync) {
    let start = Instant::now();
    let length = Duration::from_nanos(LENGTH);
    let window = RollingWindow::<Outcomes>::starting_at(start, buckets, length).unwrap();
    let (time, over, ledger) = (AtomicU64::new(0), AtomicBool::new(false), Ledger::default());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (window, time, ledger) = (&window, &time, &ledger);
                scope.spawn(move || {
                    for call in 0..50_000 {
                        let error = (call + writer) % 3 == 0;
                        let outcome = Outcome::new(error, call % 2 == 0);
                        ledger.begun.fetch_add(1, Relaxed);
                        ledger.errors.fetch_add(u64::from(error), Relaxed);
                        let now = time.fetch_add(call % 7, Relaxed);
                        // Whoever sees the outcome sees that it had begun: with the Acquire fence that
                        // ends a snapshot.
                        fence(Release);
                        window.add_at_nanos(now, outcome);
                        ledger.ended.fetch_add(1, Release);
                    }
                })
            })
            .collect();
        let readers = (0..2).map(|ahead| {
            let (window, time, ledger) = (&window, &time, &ledger);
            let (check, over) = (&check, &over);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let least = ledger.ended.load(Acquire);
                    let now = time.load(Relaxed) + ahead * LENGTH;
                    let seen = window.snapshot_at_nanos(now);
                    let most = ledger.begun.load(Relaxed);
                    assert!(seen.errors <= seen.requests && seen.slow <= seen.requests);
                    check(seen.requests, least, most);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });

    let now = time.into_inner();
    let all = window.snapshot_at_nanos(now);
    let folded = window.reduce_at_nanos(now, 0, |sum, bucket| sum + bucket.requests);
    assert_eq!(folded, all.requests);
    if buckets as u64 * LENGTH > now {
        assert_eq!(all.requests, WRITERS * 50_000);
        assert_eq!(all.errors, ledger.errors.into_inner());
    }
    let later = now + buckets as u64 * LENGTH;
    assert_eq!(window.snapshot_at_nanos(later), Outcomes::default());
}

/// Blocks are shared and leave: reads agree in themselves, and plain successes at the end leave
/// nothing of the errors before.
#[test]
fn stress_count_window_agrees() {
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until {
        for size in [1, 10, 100, 1000] {
            count_round(size);
        }
    }
}

/// More threads than words: what a window has room for is all there in the end.
#[test]
fn stress_count_window_loses_nothing() {
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until {
        let window = CountWindow::new(1 << 20).unwrap();
        thread::scope(|scope| {
            for writer in 0..8_u64 {
                let window = &window;
                scope.spawn(move || {
                    for call in 0..30_000 {
                        window.add(Outcome::new((call + writer) % 3 == 0, call % 5 == 0));
                    }
                });
            }
        });
        let seen = window.snapshot();
        let (requests, errors, slow) = (8 * 30_000, 8 * 10_000, 8 * 6_000);
        assert_eq!(
            (seen.requests, seen.errors, seen.slow),
            (requests, errors, slow)
        );
    }
}

fn count_round(size: usize) {
    let window = CountWindow::new(size).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Relaxed) {
                let seen = window.snapshot();
                assert!(seen.errors <= seen.requests && seen.slow <= seen.requests);
                assert!(seen.requests <= size as u64);
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let window = &window;
                scope.spawn(move || {
                    for call in 0..20_000 {
                        window.add(Outcome::new((call + writer) % 3 == 0, call % 5 == 0));
                    }
                    // Its own errors leave its word.
                    for _ in 0..24 {
                        window.add(Outcome::Success);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Relaxed);
        reader.join().unwrap();
    });
    for _ in 0..size + 24 * 8 {
        window.add(Outcome::Success);
    }
    let seen = window.snapshot();
    assert_eq!((seen.requests, seen.errors, seen.slow), (size as u64, 0, 0));
}
