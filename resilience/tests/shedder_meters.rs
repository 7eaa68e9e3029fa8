//! What a `Shedder` tells the `metrics` facade.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use wheelhouse_resilience::{Priority, Shedder};
use wheelhouse_wheel::ManualClock;

/// Every figure by its name and labels.
#[derive(Default)]
struct Figures(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

/// Keeps the bits of the last value.
struct Last(Arc<AtomicU64>);

impl HistogramFn for Last {
    fn record(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Figures {
    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key
            .labels()
            .map(|label| format!(",{}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    #[track_caller]
    fn count(&self, name: &str) -> u64 {
        let figures = self.0.lock().unwrap();
        let figure = figures
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in {figures:?}"));
        figure.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn value(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }
}

impl metrics::Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Last(self.of(key))))
    }
}

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
