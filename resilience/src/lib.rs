//! Circuit breakers, throttles, bulkheads, adaptive limits and load shedding.
//!
//! They stand between a caller and what it calls, or between a server and its clients, and decide call
//! by call who goes on. Unlike most breakers, one that is closed is nearly free: no lock, nothing
//! allocated, and no cache line that threads share is written to.
//!
//! ```
//! use wheelhouse_resilience::{Breaker, CallError};
//!
//! # fn fetch() -> Result<String, std::io::Error> { Ok("hello".to_owned()) }
//! # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
//! let breaker = Breaker::builder().name("greetings").build()?;
//! match breaker.call(fetch) {
//!     Ok(greeting) => println!("{greeting}"),
//!     Err(CallError::Rejected(rejected)) => println!("not now: {rejected}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok(()) }
//! ```
//!
//! | type | what it does |
//! |---|---|
//! | [`Breaker`] | rejects calls while what they call does not work |
//! | [`Breaker::throttle`] | rejects a part of them, by chance |
//! | [`Bulkhead`] | lets `n` calls run at once, and some wait |
//! | [`AdaptiveLimit`] | finds out what `n` should be |
//! | `Command` (feature `tokio`) | a call with a time-out, a bulkhead, a breaker and a fallback |
//! | [`Shedder`] | on a server: rejects what it has no room for |
//! | [`Registry`] | breakers by name, made when they are asked for |
//! | `tower` (feature `tower`) | all of them as layers |
//!
//! # Guarantees of breakers
//!
//! - G1, once: a [`Permit`] settles exactly once: by a verdict, by its drop, or by a panic.
//! - G2, in time: a verdict from before a transition changes nothing, and is told so
//!   ([`Settled::Stale`]). (The one exception is a call that settles at the very moment of a
//!   transition: it may count in the next closed time.)
//! - G3, probes: never more in flight than allowed, however many threads come at once; one that is
//!   lost frees its place.
//! - G4, by time: deadlines are monotonic and looked at on each call. [`Timers`] only make transitions
//!   and their events happen when no call comes.
//! - G5, exact: on one thread every policy trips at the call that exceeds it. Between threads a rate
//!   over a number of calls is off by at most 16 for each, and [`Consecutive`] and [`Cusum`] may trip a
//!   few failures late; neither counts failures that a success has outweighed.
//! - G6, in order: transitions are numbered and told of in their order, outside every lock. Hooks may
//!   use the breaker; a panic in one is counted and goes no further.
//! - Nothing starts a thread but [`Timers::new`] and what is named for it. What is built with an
//!   argument out of range is refused, with its name, its value and what is allowed.
//!
//! # Trade-offs
//!
//! A breaker takes up to a kibibyte, most of it cache lines of which each group of threads has its own.
//! Rates over time look at the clock when a call ends: a [`CoarseClock`] makes that a load. On the
//! system's clock breakers read the processor's time stamp counter, whose rate is measured once: a
//! cool-down or window is off by what the two drift apart over its own length, up to 500 parts per million
//! while the system's clock is being corrected (30 ms in a minute) and far less otherwise. It does not add
//! up over hours, and instants that are told ([`Transition::at`]) are the system's.
//! [`try_acquire_owned`](Breaker::try_acquire_owned) shares a reference count, which
//! [`try_acquire`](Breaker::try_acquire) does not. A backend that hangs gets all calls that begin
//! before the first fails: where that matters, set
//! [`max_in_flight`](BreakerBuilder::max_in_flight), or use a [`Bulkhead`].
//!
//! # How breakers work
//!
//! One word holds the mode and the generation, which is the number of transitions so far. A call loads
//! it, and its permit keeps it. When the call ends and the word is the same, the outcome is added to a
//! line of the thread's own; if not, the permit is stale, or a matter for the gate. Policies look at the
//! lines of other threads only when a trip is near: a rate says how many failures it takes at least to
//! get there, and evidence below a quarter of the limit on every line is below it in sum.
//!
//! ```text
//!            ┌ closed: go
//!  word ─────┼ open: look at the deadline ──► reject
//!            └ else: the gate's lock ──► lease a probe, or reject
//!  verdict ──┬ same word: own line ──► policies ──► trip, under the lock
//!            └ another: stale, or give the lease back
//! ```
//!
//! Cusum is Page's test (1954). The ramp after closing is there because a backend that has just
//! recovered has cold caches and the queues of everybody.
//!
//! # Features
//!
//! - `tower`: layers and services. `http`, `grpc`: classification of their answers.
//! - `tokio`: commands, and time limits of asynchronous waits.
//! - `tracing`: an event at each transition, at level warn when a breaker opens and info otherwise.
//! - `metrics`: the counter `wheelhouse_breaker_transitions_total` (labels `breaker` and `to`), the
//!   gauge `wheelhouse_breaker_state` (0 closed, 1 half-open, 2 open), and the counter
//!   `wheelhouse_breaker_calls_total` (labels `breaker` and `outcome`), which
//!   `Breaker::publish_metrics` brings up to date.
#![warn(missing_docs)]

mod breaker;
pub mod bulkhead;
mod clock;
#[cfg(feature = "tokio")]
pub mod command;
mod contain;
mod cpu;
mod error;
pub mod limit;
mod registry;
mod shedder;
mod sync;
mod text;
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
