//! What groups write to `tracing` and to the `metrics` facade; without those features nothing.
//!
//! Both are code of others: none of this is called under a lock, and its panics go no further.

use std::time::Duration;

use crate::Report;
use crate::board::State;

/// A service has changed its state, `figure` after it was started (ready) or told to end (the end).
pub(crate) fn changed(service: &str, state: State, figure: Option<Duration>) {
    #[cfg(feature = "tracing")]
    contained(|| match state {
        State::Failed | State::Abandoned | State::Restarting => {
            tracing::warn!(service, %state, "service changed state");
        }
        _ => tracing::info!(service, %state, "service changed state"),
    });
    #[cfg(feature = "metrics")]
    contained(|| {
        let service = service.to_owned();
        metrics::counter!(
            "wheelhouse_service_transitions_total",
            "service" => service.clone(), "state" => state.to_string()
        )
        .increment(1);
        let Some(figure) = figure else {
            return;
        };
        match state {
            State::Ready => {
                metrics::histogram!("wheelhouse_service_ready_seconds", "service" => service)
                    .record(figure);
            }
            _ => metrics::histogram!("wheelhouse_service_stop_seconds", "service" => service)
                .record(figure),
        }
    });
    #[cfg(not(feature = "metrics"))]
    let _ = figure;
    #[cfg(not(any(feature = "tracing", feature = "metrics")))]
    let _ = (service, state);
}

/// A service has cut so many connections or messages.
pub(crate) fn cut(service: &str, count: u64) {
    #[cfg(feature = "tracing")]
    contained(|| tracing::warn!(service, count, "service cut what was left at its deadline"));
    #[cfg(feature = "metrics")]
    contained(|| {
        metrics::counter!("wheelhouse_service_cut_total", "service" => service.to_owned())
            .increment(count);
    });
    #[cfg(not(any(feature = "tracing", feature = "metrics")))]
    let _ = (service, count);
}

/// A consumer has told its broker of so many messages what became of them.
pub(crate) fn messages(service: &str, outcome: &'static str, count: usize) {
    #[cfg(feature = "metrics")]
    contained(|| {
        metrics::counter!(
            "wheelhouse_consumer_messages_total",
            "service" => service.to_owned(), "outcome" => outcome
        )
        .increment(count as u64);
    });
    #[cfg(not(feature = "metrics"))]
    let _ = (service, outcome, count);
}

/// A run that is not nested has come to its end.
pub(crate) fn ended(report: &Report) {
    #[cfg(feature = "tracing")]
    contained(|| match report.exit_code() {
        0 => tracing::info!(%report, "the group has ended"),
        _ => tracing::error!(%report, "the group has ended"),
    });
    #[cfg(feature = "metrics")]
    contained(|| {
        let outcome = report.outcome().to_string();
        metrics::counter!("wheelhouse_group_stops_total", "outcome" => outcome).increment(1);
        metrics::histogram!("wheelhouse_group_stop_seconds").record(report.total());
    });
    #[cfg(not(any(feature = "tracing", feature = "metrics")))]
    let _ = report;
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
fn contained(code: impl FnOnce()) {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        crate::hooks::discard(payload);
    }
}
