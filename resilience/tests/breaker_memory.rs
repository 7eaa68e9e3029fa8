//! What breakers take on the heap, and that calls take nothing.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wheelhouse_resilience::{Breaker, BreakerBuilder, Cusum, ErrorRate, ThrottleMode};

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

fn kinds() -> [(&'static str, BreakerBuilder); 5] {
    [
        ("default", Breaker::builder()),
        ("error rate", Breaker::error_rate()),
        ("consecutive", Breaker::consecutive()),
        ("cusum", Breaker::builder().trip_on(Cusum::new())),
        (
            "count",
            Breaker::builder().trip_on(ErrorRate::above(0.5).last(100)),
        ),
    ]
}

#[test]
fn breakers_are_small() {
    let mut kept = Vec::with_capacity(1000);
    for (name, builder) in kinds() {
        kept.push(builder.build().unwrap());
        let bytes = least(
            || kept.push(builder.build().unwrap()),
            |change| change.bytes_allocated - change.bytes_deallocated,
        );
        println!("{name}: {bytes} bytes");
        assert!(bytes <= 1024, "{name}: {bytes} bytes");
    }
}

/// The ratio modes keep a window besides the counters.
#[test]
fn throttles_are_small() {
    let mut kept = Vec::with_capacity(1000);
    for (mode, most) in [
        (ThrottleMode::Adaptive, 1024),
        (ThrottleMode::Sre, 1536),
        (ThrottleMode::GoZero2022, 1536),
        (ThrottleMode::GoZero, 1600),
    ] {
        let builder = Breaker::throttle().mode(mode);
        kept.push(builder.build().unwrap());
        let bytes = least(
            || kept.push(builder.build().unwrap()),
            |change| change.bytes_allocated - change.bytes_deallocated,
        );
        println!("{mode:?}: {bytes} bytes");
        assert!(bytes <= most, "{mode:?}: {bytes} bytes");
    }
}

#[test]
fn calls_allocate_nothing() {
    for (name, builder) in kinds() {
        let breaker = builder.build().unwrap();
        let mut call = 0;
        let round = || {
            for _ in 0..1000 {
                call += 1;
                let _ = breaker.call(|| if call % 10 == 0 { Err(()) } else { Ok(()) });
            }
        };
        assert_eq!(least(round, |change| change.allocations), 0, "{name}");
        breaker.force_open();
        let round = || assert!((0..1000).all(|_| breaker.try_acquire().is_err()));
        assert_eq!(
            least(round, |change| change.allocations),
            0,
            "{name}, rejecting"
        );
    }
}
