//! A recorder of metrics that keeps the last of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// Every figure by its name and labels.
#[derive(Default)]
pub(crate) struct Figures(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

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
    pub(crate) fn count(&self, name: &str) -> u64 {
        let figures = self.0.lock().unwrap();
        let figure = figures
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in {figures:?}"));
        figure.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> f64 {
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
