//! Circuit breakers, throttles, bulkheads, adaptive limits and load shedding.
#![warn(missing_docs)]

mod breaker;
pub mod bulkhead;
mod clock;
#[cfg(feature = "tokio")]
pub mod command;
mod cpu;
mod error;
pub mod limit;
mod registry;
mod shedder;
mod sync;
mod throttle;
#[cfg(feature = "tower")]
pub mod tower;

pub use breaker::{
    Breaker, BreakerBuilder, BreakerStats, CallError, Cause, Closing, Consecutive, Cusum, Decision,
    ErrorRate, Events, Fallback, HalfOpenEnd, OwnedPermit, Permit, Probes, Reason, Rejected,
    Settled, SlowRate, State, Timers, Transition, Trip, TripPolicy, Verdict,
};
pub use bulkhead::Bulkhead;
pub use clock::CoarseClock;
#[cfg(feature = "tokio")]
pub use command::Command;
pub use cpu::{CpuMeter, CpuSource};
pub use error::BuildError;
pub use limit::AdaptiveLimit;
pub use registry::{Recipe, Registry, RegistryBuilder, RegistryStats};
pub use shedder::{Priority, Promise, Sampler, Shed, Shedder, ShedderBuilder, ShedderStats};
pub use throttle::{ThrottleBuilder, ThrottleMode};
pub use wheelhouse_collection::Outcome;
