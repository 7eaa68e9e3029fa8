//! That a layer takes nothing from the heap on the way to a service and back.
#![cfg(feature = "tower")]

use std::alloc::System;
use std::borrow::Cow;
use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::{Layer, Service, service_fn};
use wheelhouse_resilience::tower::{
    BreakerLayer, BulkheadLayer, GuardLayer, KeyedLayer, LimitLayer,
};
use wheelhouse_resilience::{AdaptiveLimit, Breaker, Bulkhead, Registry, ThrottleMode, limit};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations of a thousand calls, of ten rounds the one with fewest: what the test harness
/// allocates meanwhile is not counted.
fn allocations<S: Service<u32, Response = u32>>(mut service: S) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    let mut round = || {
        for request in 0..1000 {
            assert!(service.poll_ready(&mut context).is_ready());
            let call = pin!(service.call(request));
            let Poll::Ready(Ok(response)) = call.poll(&mut context) else {
                panic!("the service answers at once");
            };
            assert_eq!(response, request);
        }
    };
    let rounds = (0..10).map(|_| {
        let region = Region::new(ALLOCATOR);
        round();
        region.change().allocations
    });
    rounds.min().expect("there are rounds")
}

fn key(_request: &u32) -> Cow<'_, str> {
    Cow::Borrowed("example.org")
}

#[test]
fn layers_allocate_nothing_for_a_call() {
    let inner = service_fn(|request: u32| ready(Ok::<_, ()>(request)));
    let counted = |name: &str, allocations: usize| assert_eq!(allocations, 0, "{name}");

    let breaker = Breaker::builder().build().unwrap();
    counted(
        "breaker",
        allocations(BreakerLayer::new(breaker).layer(inner)),
    );
    for mode in [
        ThrottleMode::Sre,
        ThrottleMode::GoZero2022,
        ThrottleMode::GoZero,
        ThrottleMode::Adaptive,
    ] {
        let throttle = Breaker::throttle().mode(mode).build().unwrap();
        let service = BreakerLayer::new(throttle).layer(inner);
        counted("throttle", allocations(service));
    }
    let registry = Registry::builder().build().unwrap();
    counted(
        "keyed",
        allocations(KeyedLayer::by(registry, key).layer(inner)),
    );
    counted(
        "bulkhead",
        allocations(BulkheadLayer::new(Bulkhead::new(1)).layer(inner)),
    );
    let limit = AdaptiveLimit::builder(limit::Aimd::default())
        .build()
        .unwrap();
    counted("limit", allocations(LimitLayer::new(limit).layer(inner)));
    counted(
        "none",
        allocations(GuardLayer::new(None::<Breaker>).layer(inner)),
    );
}
