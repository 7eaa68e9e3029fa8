//! What a `Shedder` tells the `metrics` facade.

use std::time::{Duration, Instant};

use wheelhouse_resilience::{Priority, Shedder};
use wheelhouse_wheel::ManualClock;

use crate::support::figures::Figures;

#[test]
fn every_outcome_has_its_figure() {
    let figures = Figures::default();
    let clock = ManualClock::new();
    let builder = Shedder::builder().name("api").clock(clock.clone());
    let builder = builder.cpu(|_: Instant| Some(1.0));
    let shedder = metrics::with_local_recorder(&figures, || builder.build().unwrap());

    let promise = shedder.try_acquire(Priority::High).unwrap();
    clock.advance(Duration::from_millis(100));
    promise.success();
    drop(shedder.try_acquire(Priority::High).unwrap());
    let held: Vec<_> = (0..20)
        .map(|_| shedder.try_acquire(Priority::Low).unwrap())
        .collect();
    clock.advance(Duration::from_secs(1));
    assert!(shedder.try_acquire(Priority::Low).is_err());

    let count = |name: &str| figures.count(&format!("wheelhouse_shedder_{name}"));
    assert_eq!(count("requests_total,shedder=api,outcome=passed"), 1);
    assert_eq!(count("requests_total,shedder=api,outcome=failed"), 1);
    assert_eq!(count("shed_total,shedder=api,priority=low"), 1);
    assert_eq!(count("shed_total,shedder=api,priority=critical"), 0);
    assert_eq!(
        figures.value("wheelhouse_shedder_latency_seconds,shedder=api"),
        0.1
    );
    assert_eq!(
        figures.value("wheelhouse_shedder_cpu_ratio,shedder=api"),
        1.0
    );
    assert_eq!(
        figures.value("wheelhouse_shedder_in_flight,shedder=api"),
        20.0
    );
    drop(held);
    assert_eq!(count("requests_total,shedder=api,outcome=failed"), 21);
}
