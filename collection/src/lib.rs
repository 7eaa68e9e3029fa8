//! Data structures in time: windows over the recent past, one computation at a time, averages that
//! forget.
//!
//! They are what breakers, throttles, load shedders and caches decide on. Unlike a histogram or a
//! metrics counter, a window here is read as often as it is written: whether to let a call through is
//! asked on each call, on every thread.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use wheelhouse_collection::{ErrorCount, Outcome, RollingWindow};
//!
//! # fn main() -> Result<(), wheelhouse_collection::BuildError> {
//! let ten_seconds = RollingWindow::<ErrorCount>::new(40, Duration::from_millis(250))?;
//! let now = Instant::now();
//! for call in 0..100 {
//!     ten_seconds.add_at(now, Outcome::new(call % 4 == 0, false));
//! }
//! assert_eq!(ten_seconds.snapshot_at(now).error_rate(), 0.25);
//! assert_eq!(ten_seconds.snapshot_at(now + Duration::from_secs(10)).requests, 0);
//! # Ok(()) }
//! ```
//!
//! | type | what it is | threads |
//! |---|---|---|
//! | [`RollingWindow`] | counts over the last `n` buckets of time | any number, without a lock |
//! | [`CountWindow`] | the last `n` outcomes | any number, without a lock |
//! | [`SingleFlight`] | callers for one key share one computation, sync and async | any number |
//! | [`Ewma`] | moving average, weighted by elapsed time | `&mut` |
//! | [`Ring`] | the last `n` items | `&mut` |
//! | [`Striped`] | one value for each of a few groups of threads, on lines of their own | any number |
//! | [`Jitter`] | durations that differ by up to ±x | any number |
//! | [`Probability`] | decisions by chance, seedable | any number |
//!
//! # Guarantees
//!
//! - G1, exact: what was added before a read, by any thread, is counted in it once. The errors in a
//!   [`CountWindow`] with several writers may be off by eight for each.
//! - G2, in agreement: no sum has more errors than requests, whatever runs at the same time.
//! - G3, in time: a value is counted for exactly the `n` buckets that begin with its own. A clock that
//!   steps back changes nothing; durations and instants of any size are legal.
//! - G4, bounded work: adding and reading a sum cost the same for any number of calls and buckets. A
//!   new bucket costs a lock and time in the number of buckets skipped, once.
//! - G5, no false success: callers of a [`SingleFlight`] get what a computation returned, or compute
//!   it themselves, or an error. Nobody waits for a leader that has panicked or was dropped.
//! - Time is an argument; the one-liners without it read [`Instant::now`](std::time::Instant::now).
//!   What is built with an argument out of range is refused, with its name, its value and what is
//!   allowed. Nothing starts a thread.
//!
//! # Trade-offs
//!
//! A [`RollingWindow`] forgets a bucket at a time: with few buckets the sum jumps, and its span is
//! `n - 1` to `n` bucket lengths. Buckets only add up: minima and percentiles need another structure
//! (hdrhistogram, say). It takes some 400 bytes besides its buckets, so that threads do not meet; for
//! one thread, or thousands of windows that are seldom used, a `VecDeque` in a lock is smaller.
//!
//! # How it works
//!
//! Several counters share a word, so that one atomic addition counts a request and its error, and one
//! load sees both. Each window has four such words on cache lines of their own; a thread adds to one
//! of them. They hold what belongs to the current bucket. Whoever comes first in the next bucket takes
//! the lock, moves the words into a row of finished buckets and publishes its new sum. Readers add the
//! words to that sum and look at a sequence number to see whether anything was moved meanwhile
//! (Lamport's sequence lock).
//!
//! ```text
//!  thread ──► word ─┐            ┌ finished buckets ┐
//!  thread ──► word ─┼──► row:    │ 3 │ 0 │ 5 │ 1 │ 2│ ──► sum ─┐
//!  thread ──► word ─┘  at edges  └──────────────────┘          ├──► snapshot
//!     └───────────────────────────────────────────────────────┘
//! ```
#![warn(missing_docs)]

mod error;
mod ewma;
mod flight;
mod jitter;
mod probability;
mod ring;
mod striped;
mod sync;
mod window;

pub use error::BuildError;
pub use ewma::Ewma;
pub use flight::{FlightError, FlightStats, SingleFlight};
pub use jitter::Jitter;
pub use probability::Probability;
pub use ring::Ring;
pub use striped::Striped;
pub use window::{
    Bucket, Carry, CountWindow, Counters, Counts, ErrorCount, Outcome, Outcomes, RollingWindow,
    Sum, Window,
};
