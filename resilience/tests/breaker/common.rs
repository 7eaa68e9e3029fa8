//! Breakers as most tests want them.

use std::time::Duration;

use wheelhouse_resilience::{Breaker, BreakerBuilder, Consecutive, Reason, State};
use wheelhouse_wheel::ManualClock;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Opens for a second, by the policy that is to be set.
pub(crate) fn for_a_second(clock: &ManualClock) -> BreakerBuilder {
    Breaker::consecutive()
        .clock(clock.clone())
        .cool_down(SECOND)
}

/// Opens at the first failure, for a second.
pub(crate) fn touchy(clock: &ManualClock) -> BreakerBuilder {
    for_a_second(clock).trip_on(Consecutive::failures(1))
}

/// A breaker that has just become half-open.
pub(crate) fn half_open(builder: BreakerBuilder, clock: &ManualClock) -> Breaker {
    let breaker = builder.build().unwrap();
    breaker.try_acquire().unwrap().failure();
    assert_eq!(breaker.state(), State::Open);
    clock.advance(SECOND);
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker
}

pub(crate) fn reason(breaker: &Breaker) -> Reason {
    breaker.try_acquire().unwrap_err().reason()
}
