//! Circuit breakers, throttles, bulkheads, adaptive limits and load shedding.
#![warn(missing_docs)]

mod breaker;
mod clock;
mod error;
mod sync;
mod throttle;

pub use breaker::{
    Breaker, BreakerBuilder, BreakerStats, CallError, Cause, Closing, Consecutive, Cusum, Decision,
    ErrorRate, Events, Fallback, HalfOpenEnd, OwnedPermit, Permit, Probes, Reason, Rejected,
    Settled, SlowRate, State, Timers, Transition, Trip, TripPolicy, Verdict,
};
pub use clock::CoarseClock;
pub use error::BuildError;
pub use throttle::{ThrottleBuilder, ThrottleMode};
pub use wheelhouse_collection::Outcome;
