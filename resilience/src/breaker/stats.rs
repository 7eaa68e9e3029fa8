//! [`BreakerStats`]: a breaker's figures.

use wheelhouse_collection::Outcomes;

use super::State;

/// The figures of a breaker at one moment. Counters are since it was built, and exact when nothing
/// runs; while calls end they may be a few apart from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStats {
    /// As [`Breaker::state`](crate::Breaker::state).
    pub state: State,
    /// Calls that ended well, probes included.
    pub successes: u64,
    /// Calls that failed, probes included, and probes whose lease expired, if that is a failure.
    pub failures: u64,
    /// Those of either that were slow.
    pub slow: u64,
    /// Calls that were settled as ignored, and probes whose lease expired, if that is to be ignored.
    pub ignored: u64,
    /// Calls whose permit was dropped without a verdict, while the breaker was not disabled.
    pub cancelled: u64,
    /// Calls that were not let through.
    pub rejected: u64,
    /// Verdicts from before a transition, or after the lease of the probe had expired.
    pub stale: u64,
    /// Calls under way; `None` when they are not counted.
    pub in_flight: Option<u32>,
    /// Calls let through while half-open, or by the probe budget of a throttle.
    pub probes: u64,
    /// Transitions of the state; the sequence of the latest.
    pub transitions: u64,
    /// Panics of hooks, and of the metrics recorder or the tracing subscriber that hears of a
    /// transition.
    pub hook_panics: u64,
    /// Panics of a [`TripPolicy`](crate::TripPolicy), which does not trip then, and of a closing rule
    /// of the user's, which opens then.
    pub policy_panics: u64,
    /// Transitions that no hook or subscriber heard of, since 1 024 others waited for a hook that took
    /// its time.
    pub lost_transitions: u64,
    /// What is in the window of the first rate, if there is one, since the breaker last closed.
    ///
    /// Of a throttle, what it goes by: the admitted calls that ended, and those of them that failed.
    /// In mode [`Sre`](crate::ThrottleMode::Sre), which does not count failures, all requests, those
    /// rejected and those under way included, and the ones that were not accepted so far. In mode
    /// [`Adaptive`](crate::ThrottleMode::Adaptive) more than 2 048 calls in a bucket are off by up to
    /// one in 2 048, and what ended since a call last looked at the clock (a failure does, and one start
    /// in 16) counts as if it had just ended.
    pub window: Outcomes,
}
