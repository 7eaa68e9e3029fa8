//! Timing wheel: millions of delayed values, each fired at its tick.
//!
//! Unlike a task that awaits `tokio::time::sleep`, a timer here is a few dozen bytes in an array,
//! and setting, moving or removing it is a store or two, whatever the number of timers. Unlike
//! `tokio_util::time::DelayQueue`, it needs no task of its own to be polled, it is fed from any
//! thread, and refreshing a keep-alive does not file it again.
//!
//! ```
//! use std::time::Duration;
//! use wheelhouse_wheel::TimingWheel;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (fired, on_time) = std::sync::mpsc::channel();
//! let wheel = TimingWheel::builder().build(move |key: &str, value: u32| {
//!     fired.send((key, value)).unwrap();
//! })?;
//!
//! wheel.set_timer("retry", 1, Duration::from_millis(20))?;
//! wheel.set_timer("lease", 2, Duration::from_millis(10))?;
//! wheel.move_timer("lease", Duration::from_secs(60))?; // heard of: later
//!
//! assert_eq!(on_time.recv()?, ("retry", 1));
//! assert_eq!(wheel.stop(), [("lease", 2)]); // what has not fired comes back
//! # Ok(()) }
//! ```
//!
//! # Layers
//!
//! | type | what it is | time |
//! |---|---|---|
//! | [`Wheel`] | the pure structure: no clock, no thread, no lock | ticks, as arguments |
//! | [`TimingWheel`] | keyed, fed from any thread, fired by a driver | [`Clock`] |
//! | [`ManualTimingWheel`] | the same code without a thread | [`turn`](ManualTimingWheel::turn) |
//! | `scheduler::Scheduler` (feature `tokio`) | async and blocking work, once or again and again | [`Clock`] |
//!
//! # Guarantees
//!
//! - G1, never early: a timer fires at the first tick that is not before it is due.
//! - G2, exactly once: each value leaves by exactly one of firing, removal, replacement, drain,
//!   stop and drop, and [`Stats`] adds up.
//! - G3, order: by tick, and within a tick by the last set or move ([`Wheel`],
//!   [`ManualTimingWheel`], and a [`TimingWheel`] of one shard; one of several keeps the order of
//!   ticks).
//! - G4, nothing is forgotten: after a stall every tick is caught up with, in order.
//! - G5, any delay: a [`Duration`](std::time::Duration) of any length, a clock that jumps or steps
//!   back. What lies beyond the last tick never fires, and can be moved and removed.
//! - G6, no waiting: no call waits for the driver, but for stop, the drop of the last handle, and the
//!   moves of a [`ManualClock`]; and a driver with nothing to do sleeps until the next deadline.
//! - G7, memory in proportion: what is removed is freed, also when its deadline is far.
//! - G8, keys and handles that are stale do nothing.
//! - Who won is in the return value: a removal that says it removed has kept the value from firing.
//! - Callbacks and `Drop` of values run outside every lock and may use the wheel; their panics are
//!   counted and end nothing.
//!
//! # Trade-offs
//!
//! Timers fire on a grid of ticks, 1 ms apart by default: up to one interval late by design. For
//! microseconds use a thread that spins. A [`TimingWheel`] batches: a set is a message until the
//! driver ticks or a caller finds the channel full, which costs nothing but shows in
//! [`remove_timer`](TimingWheel::remove_timer) dropping its value a little later. The answering
//! forms ([`take_timer`](TimingWheel::take_timer) and its like) act at once and cost a lock. For a
//! few dozen timers a `BinaryHeap` is as good as any wheel.
//!
//! # How it works
//!
//! A [`Wheel`] is a hashed hierarchical timing wheel (Varghese and Lauck, 1987): a ring of slots for
//! the near ticks, coarser rings for later circles, and a store of its own for what is more than
//! 2³² ticks away. Slots are chains of small entries, nodes hold the values, and an entry is stale
//! when its node says so: removing or delaying a timer touches its node alone.
//!
//! A [`TimingWheel`] divides its keys among shards. Each is a bounded channel in front of an index
//! and a wheel under one lock. Whoever finds a channel full applies it, in stages that let cache
//! misses overlap. One driver publishes the tick until which it sleeps; a caller with an earlier
//! deadline wakes it.
//!
//! ```text
//!  callers ──► channel ──► index + wheel ──► due pairs ──► callback, pool, tokio, stream
//!               (16 shards)            driver
//! ```
//!
//! # Features
//!
//! - `tokio`: the `scheduler`, and [`Executor`]s that run callbacks on a tokio runtime.
//! - `cron`: `cron::Cron`, expressions in time zones; the zones are built in.
//! - `tracing`: events at level debug when a wheel starts and stops, at level error when user code
//!   panics, with the wheel's name; of a scheduler a span at level debug for every attempt, and an
//!   event at level warn for every failure, with the task's name.
//! - `metrics`: the counters `wheelhouse_timers_fired_total` and `wheelhouse_timer_panics_total`, the
//!   gauge `wheelhouse_timers_pending` and the histogram `wheelhouse_timer_lateness_seconds`, all with
//!   the label `wheel`, its name. The gauge follows batches of sets and of firings. Of a scheduler, with
//!   the label `scheduler`: the counters `wheelhouse_scheduler_runs_total` (with the label `outcome`),
//!   `wheelhouse_scheduler_retries_total` and `wheelhouse_scheduler_missed_total`, the gauge
//!   `wheelhouse_scheduler_tasks` and the histogram `wheelhouse_scheduler_lateness_seconds`. Install
//!   the recorder before the wheel or the scheduler is built.
#![warn(missing_docs)]

mod clock;
#[cfg(feature = "cron")]
pub mod cron;
mod drive;
#[cfg(feature = "tokio")]
pub mod scheduler;
mod sync;
mod timing_wheel;
mod wheel;

#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use clock::{Clock, Driven, ManualClock, SystemClock};
#[cfg(feature = "tokio")]
pub use scheduler::Scheduler;
pub use timing_wheel::{
    BuildError, Builder, Closed, Executor, ExpiredStream, Lateness, ManualTimingWheel, SetError,
    Stats, TimingWheel, TryError, TrySetError, WeakTimingWheel,
};
pub use wheel::{Drain, Expired, Iter, MAX_SLOTS, SlotsError, TimerKey, Wheel, WheelStats};
