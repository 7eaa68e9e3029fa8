//! What windows take on the heap, and that using them takes nothing.

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wheelhouse_collection::{CountWindow, ErrorCount, Outcome, Outcomes, RollingWindow};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test, so that nothing else allocates meanwhile.
#[test]
fn windows_are_small_and_using_them_allocates_nothing() {
    let start = Instant::now();
    let length = Duration::from_millis(250);

    let before = Region::new(ALLOCATOR);
    let two = Box::new(RollingWindow::<ErrorCount>::starting_at(start, 40, length).unwrap());
    let bytes = before.change().bytes_allocated;
    assert!(bytes <= 768, "{bytes} bytes for requests and errors");

    let before = Region::new(ALLOCATOR);
    let three = Box::new(RollingWindow::<Outcomes>::starting_at(start, 40, length).unwrap());
    let bytes = before.change().bytes_allocated;
    assert!(
        bytes <= 928,
        "{bytes} bytes for requests, errors and slow ones"
    );

    let before = Region::new(ALLOCATOR);
    let count = Box::new(CountWindow::new(100).unwrap());
    let bytes = before.change().bytes_allocated;
    assert!(bytes <= 384, "{bytes} bytes for 100 outcomes");

    let using = Region::new(ALLOCATOR);
    for call in 0..10_000 {
        let now = start + Duration::from_millis(call * 10);
        let outcome = Outcome::new(call % 3 == 0, call % 5 == 0);
        two.add_at(now, outcome);
        three.add_at(now, outcome);
        count.add(outcome);
        let (two, three) = (two.snapshot_at(now), three.snapshot_at(now));
        assert_eq!((two.requests, two.errors), (three.requests, three.errors));
        assert!(count.snapshot().requests <= 100);
    }
    assert_eq!(using.change().allocations, 0);
}
