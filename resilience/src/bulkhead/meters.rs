//! A bulkhead's figures for the `metrics` facade; without that feature nothing.
//!
//! The recorder is code of others, so none of this is called under a lock.

/// Where the recorder that was installed when the bulkhead was built keeps its figures.
#[derive(Debug)]
pub(super) struct Meters {
    #[cfg(feature = "metrics")]
    recorded: Recorded,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Recorded {
    permits: metrics::Gauge,
    waited: metrics::Counter,
    /// By what stood in the way.
    refused: [(&'static str, metrics::Counter); 3],
}

#[cfg(feature = "metrics")]
impl Meters {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        let reasons = ["full", "timed_out", "cancelled"];
        let recorded = Recorded {
            permits: metrics::gauge!("wheelhouse_bulkhead_permits", "bulkhead" => name.clone()),
            waited: metrics::counter!(
                "wheelhouse_bulkhead_waited_total", "bulkhead" => name.clone()
            ),
            refused: reasons.map(|reason| {
                let counter = metrics::counter!(
                    "wheelhouse_bulkhead_refused_total",
                    "bulkhead" => name.clone(), "reason" => reason
                );
                (reason, counter)
            }),
        };
        Meters { recorded }
    }

    pub(super) fn permits(&self, permits: usize) {
        self.recorded.permits.set(permits as f64);
    }

    /// Somebody got a permit after a wait.
    pub(super) fn waited(&self) {
        self.recorded.waited.increment(1);
    }

    pub(super) fn refused(&self, reason: &'static str) {
        for (_, counter) in self
            .recorded
            .refused
            .iter()
            .filter(|(name, _)| *name == reason)
        {
            counter.increment(1);
        }
    }
}

#[cfg(not(feature = "metrics"))]
impl Meters {
    pub(super) fn new(_name: &str) -> Self {
        Meters {}
    }

    pub(super) fn permits(&self, _permits: usize) {}

    pub(super) fn waited(&self) {}

    pub(super) fn refused(&self, _reason: &'static str) {}
}
