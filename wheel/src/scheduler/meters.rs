//! A scheduler's figures for the `metrics` facade; without that feature nothing.
//!
//! The recorder is user code, so none of this is called under a lock.

use std::time::Duration;

/// Where the recorder that was installed when the scheduler was built keeps its figures.
#[derive(Debug)]
pub(super) struct Meters {
    #[cfg(feature = "metrics")]
    recorded: Recorded,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Recorded {
    /// By how attempts ended.
    runs: [(&'static str, metrics::Counter); 5],
    lateness: metrics::Histogram,
    tasks: metrics::Gauge,
    retries: metrics::Counter,
    missed: metrics::Counter,
}

#[cfg(feature = "metrics")]
impl Meters {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        let outcomes = ["succeeded", "failed", "panicked", "timed_out", "aborted"];
        let recorded = Recorded {
            runs: outcomes.map(|outcome| {
                let counter = metrics::counter!(
                    "wheelhouse_scheduler_runs_total",
                    "scheduler" => name.clone(), "outcome" => outcome
                );
                (outcome, counter)
            }),
            lateness: metrics::histogram!(
                "wheelhouse_scheduler_lateness_seconds", "scheduler" => name.clone()
            ),
            tasks: metrics::gauge!("wheelhouse_scheduler_tasks", "scheduler" => name.clone()),
            retries: metrics::counter!(
                "wheelhouse_scheduler_retries_total", "scheduler" => name.clone()
            ),
            missed: metrics::counter!(
                "wheelhouse_scheduler_missed_total", "scheduler" => name
            ),
        };
        Meters { recorded }
    }

    /// An attempt has begun.
    pub(super) fn started(&self, late: Duration) {
        self.recorded.lateness.record(late);
    }

    /// An attempt has ended.
    pub(super) fn ended(&self, outcome: &'static str) {
        for (_, counter) in self
            .recorded
            .runs
            .iter()
            .filter(|(name, _)| *name == outcome)
        {
            counter.increment(1);
        }
    }

    pub(super) fn retried(&self) {
        self.recorded.retries.increment(1);
    }

    pub(super) fn missed(&self) {
        self.recorded.missed.increment(1);
    }

    /// A task has been accepted.
    pub(super) fn one_more(&self) {
        self.recorded.tasks.increment(1.0);
    }

    /// A task has ended.
    pub(super) fn one_less(&self) {
        self.recorded.tasks.decrement(1.0);
    }
}

#[cfg(not(feature = "metrics"))]
impl Meters {
    pub(super) fn new(_name: &str) -> Self {
        Meters {}
    }

    pub(super) fn started(&self, _late: Duration) {}

    pub(super) fn ended(&self, _outcome: &'static str) {}

    pub(super) fn retried(&self) {}

    pub(super) fn missed(&self) {}

    pub(super) fn one_more(&self) {}

    pub(super) fn one_less(&self) {}
}
