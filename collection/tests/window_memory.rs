//! What windows take on the heap, and that using them takes nothing.

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wheelhouse_collection::{CountWindow, ErrorCount, Outcome, Outcomes, RollingWindow};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Of ten rounds, the one that took least: what the test harness allocates meanwhile is not counted.
fn least(mut round: impl FnMut(), measure: impl Fn(stats_alloc::Stats) -> usize) -> usize {
    let rounds = (0..10).map(|_| {
        let region = Region::new(ALLOCATOR);
        round();
        measure(region.change())
    });
    rounds.min().expect("there are rounds")
}

fn bytes<T>(make: impl Fn() -> T) -> usize {
    let mut kept = Vec::with_capacity(10);
    least(
        || kept.push(Box::new(make())),
        |change| change.bytes_allocated,
    )
}

const LENGTH: Duration = Duration::from_millis(250);

#[test]
fn windows_are_small() {
    let two = bytes(|| RollingWindow::<ErrorCount>::new(40, LENGTH).unwrap());
    assert!(two <= 768, "{two} bytes for requests and errors");
    let three = bytes(|| RollingWindow::<Outcomes>::new(40, LENGTH).unwrap());
    assert!(
        three <= 928,
        "{three} bytes for requests, errors and slow ones"
    );
    let count = bytes(|| CountWindow::new(100).unwrap());
    assert!(count <= 384, "{count} bytes for 100 outcomes");
}

#[test]
fn using_windows_allocates_nothing() {
    let start = Instant::now();
    let two = RollingWindow::<ErrorCount>::starting_at(start, 40, LENGTH).unwrap();
    let three = RollingWindow::<Outcomes>::starting_at(start, 40, LENGTH).unwrap();
    let count = CountWindow::new(100).unwrap();
    let mut now = start;
    let round = || {
        for call in 0..1000 {
            now += Duration::from_millis(10);
            let outcome = Outcome::new(call % 3 == 0, call % 5 == 0);
            two.add_at(now, outcome);
            three.add_at(now, outcome);
            count.add(outcome);
            let (two, three) = (two.snapshot_at(now), three.snapshot_at(now));
            assert_eq!((two.requests, two.errors), (three.requests, three.errors));
            assert!(count.snapshot().requests <= 100);
        }
    };
    assert_eq!(least(round, |change| change.allocations), 0);
}
