//! What a shedder tells of itself: [`ShedderStats`], and meters where the feature is on.

use super::Priority;

/// What a [`Shedder`](super::Shedder) has done and sees at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ShedderStats {
    /// The smoothed processor usage in thousandths of what may be used.
    pub cpu: f64,
    /// Whether that is at the threshold or was within the cool-off.
    pub is_hot: bool,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests in flight, smoothed.
    pub average_in_flight: f64,
    /// How many in flight would be too many if it is hot: best rate × best mean latency, one at
    /// least, × overload factor.
    pub max_in_flight: f64,
    /// Requests that were let in and have ended well.
    pub passed: u64,
    /// Requests that were let in and have failed or were dropped.
    pub failed: u64,
    /// Requests that were shed, by [`Priority`] from the lowest up.
    pub shed: [u64; Priority::COUNT],
    /// Samples of the processor usage that did not come about because the source panicked.
    pub failed_samples: u64,
    /// How often the metrics recorder or the tracing subscriber panicked. That ends there.
    pub observer_panics: u64,
}

impl ShedderStats {
    /// Requests that were shed.
    #[must_use]
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}

/// Where the `metrics` recorder that was installed when the shedder was built keeps its figures.
#[cfg(feature = "metrics")]
#[derive(Debug)]
pub(super) struct Meters {
    passed: metrics::Counter,
    failed: metrics::Counter,
    shed: [metrics::Counter; Priority::COUNT],
    latency: metrics::Histogram,
    cpu: metrics::Gauge,
    in_flight: metrics::Gauge,
}

#[cfg(feature = "metrics")]
impl Meters {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        let ended = |outcome: &'static str| {
            metrics::counter!(
                "wheelhouse_shedder_requests_total",
                "shedder" => name.clone(), "outcome" => outcome,
            )
        };
        let shed = |priority: Priority| {
            metrics::counter!(
                "wheelhouse_shedder_shed_total",
                "shedder" => name.clone(), "priority" => priority.name(),
            )
        };
        Meters {
            passed: ended("passed"),
            failed: ended("failed"),
            shed: Priority::ALL.map(shed),
            latency: metrics::histogram!(
                "wheelhouse_shedder_latency_seconds", "shedder" => name.clone()
            ),
            cpu: metrics::gauge!("wheelhouse_shedder_cpu_ratio", "shedder" => name.clone()),
            in_flight: metrics::gauge!("wheelhouse_shedder_in_flight", "shedder" => name),
        }
    }

    pub(super) fn passed(&self, latency_nanos: u64) {
        self.passed.increment(1);
        self.latency.record(latency_nanos as f64 / 1e9);
    }

    pub(super) fn failed(&self) {
        self.failed.increment(1);
    }

    pub(super) fn shed(&self, priority: Priority) {
        self.shed[priority as usize].increment(1);
    }

    /// With each sample of the processor usage.
    pub(super) fn sampled(&self, cpu: f64, in_flight: u64) {
        self.cpu.set(cpu / super::heat::WHOLE);
        self.in_flight.set(in_flight as f64);
    }
}
