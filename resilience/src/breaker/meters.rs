//! What breakers write to `tracing` and to the `metrics` facade; without those features nothing.
//!
//! Both are user code, so none of this is called under a lock.

use super::Transition;

/// A breaker has changed its state.
pub(super) fn transition(transition: &Transition) {
    #[cfg(feature = "tracing")]
    trace(transition);
    #[cfg(feature = "metrics")]
    meter(transition);
    #[cfg(not(any(feature = "tracing", feature = "metrics")))]
    let _ = transition;
}

#[cfg(feature = "tracing")]
fn trace(transition: &Transition) {
    let Transition {
        name,
        from,
        to,
        sequence,
        cause,
        ..
    } = transition;
    match to {
        super::State::Open => {
            tracing::warn!(
                breaker = &**name,
                ?from,
                sequence,
                ?cause,
                "the breaker has opened"
            );
        }
        _ => tracing::info!(
            breaker = &**name,
            ?from,
            ?to,
            sequence,
            ?cause,
            "the breaker has changed"
        ),
    }
}

#[cfg(feature = "metrics")]
fn meter(transition: &Transition) {
    use super::State;

    let name = transition.name.to_string();
    let (to, level) = match transition.to {
        State::Closed => ("closed", 0.0),
        State::HalfOpen => ("half_open", 1.0),
        State::Open => ("open", 2.0),
        State::ForcedOpen => ("forced_open", 2.0),
        State::ForcedClosed => ("forced_closed", 0.0),
        State::Disabled => ("disabled", 0.0),
        State::MetricsOnly => ("metrics_only", 0.0),
    };
    metrics::counter!(
        "wheelhouse_breaker_transitions_total", "breaker" => name.clone(), "to" => to
    )
    .increment(1);
    metrics::gauge!("wheelhouse_breaker_state", "breaker" => name).set(level);
}

/// All that have ended, or were rejected, so far.
#[cfg(feature = "metrics")]
pub(super) fn calls(name: &str, stats: &super::BreakerStats) {
    for (outcome, count) in [
        ("success", stats.successes),
        ("failure", stats.failures),
        ("ignored", stats.ignored),
        ("cancelled", stats.cancelled),
        ("rejected", stats.rejected),
        ("stale", stats.stale),
    ] {
        metrics::counter!(
            "wheelhouse_breaker_calls_total", "breaker" => name.to_owned(), "outcome" => outcome
        )
        .absolute(count);
    }
}
