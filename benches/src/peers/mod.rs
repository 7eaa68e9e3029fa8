//! The subjects: one adapter file each, with its settings and why they are its best.
//!
//! Ground rules: an adapter adds nothing that its subject does not need; a structure gets its
//! arguments in its own types before the clock starts; and an operation that a structure does not
//! have is not imitated.

pub mod breakers;
pub mod breakers_wheelhouse;
mod btree;
pub mod caches;
mod caches_moka;
mod caches_quick;
mod caches_rust_zero;
pub mod caches_wheelhouse;
mod delayqueue;
pub mod delayqueue_task;
mod failsafe;
mod heap;
mod hhwt;
pub mod lifecycles;
pub mod lifecycles_graceful;
pub mod lifecycles_tracker;
pub mod lifecycles_wheelhouse;
pub mod oneshots;
pub mod oneshots_delayqueue;
pub mod oneshots_tokio_sleep;
pub mod oneshots_wheelhouse;
mod recloser;
mod recorder;
mod rust_zero;
pub mod tokio_sleep;
mod wheelhouse;
pub mod wheelhouse_keyed;

use std::thread;
use std::time::{Duration, Instant};

pub use breakers::{CallBreaker, Opens};
pub use btree::BTree;
pub use caches_moka::{MiniMoka, Moka};
pub use caches_quick::QuickCache;
pub use caches_rust_zero::RustZeroCache;
pub use caches_wheelhouse::OurCache;
pub use delayqueue::DelayQueue;
pub use delayqueue_task::DelayQueueTask;
pub use failsafe::{FailsafeConsecutive, FailsafeRate};
pub use heap::Heap;
pub use hhwt::Hhwt;
pub use oneshots::{Ledger, OneShotCaller, OneShots};
pub use oneshots_delayqueue::OneShotsDelayQueue;
pub use oneshots_tokio_sleep::OneShotsTokioSleep;
pub use oneshots_wheelhouse::OneShotsWheelhouse;
pub use recloser::Recloser;
pub use recorder::{Fired, Recorder};
pub use rust_zero::RustZero;
pub use tokio_sleep::TokioSleep;
pub use wheelhouse::Wheelhouse;
pub use wheelhouse_keyed::WheelhouseKeyed;

/// A timer structure that one thread drives by hand, at tick 0 when new; its values are `u64`.
pub trait TimerStructure: Sized {
    /// What its `insert` takes for a deadline.
    type Deadline: Copy;
    /// What names one of its timers.
    type Key: Copy;

    /// Runs `work` in whatever surroundings the structure needs.
    fn within<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    /// An empty one, nothing reserved.
    fn new() -> Self;

    /// The deadline at `tick`, at least 1.
    fn deadline(&self, tick: u64) -> Self::Deadline;

    /// Adds a timer.
    fn insert(&mut self, deadline: Self::Deadline, value: u64) -> Self::Key;

    /// Timers pending.
    fn pending(&self) -> usize;

    /// Gets ready for `fire`; never timed.
    fn before_fire(&mut self, _through: u64) {}

    /// Advances tick by tick to `through` and hands out the tick and value of each timer.
    fn fire(&mut self, through: u64, fired: impl FnMut(u64, u64));
}

/// A structure that can take a timer out before it fires.
pub trait Remove: TimerStructure {
    /// Takes the timer out and gives its value back, `None` when there is no such timer.
    fn remove(&mut self, key: Self::Key) -> Option<u64>;
}

/// A structure with an operation that moves a timer.
pub trait Reschedule: TimerStructure {
    /// Moves the timer to `deadline`; false when there is no such timer.
    fn reschedule(&mut self, key: Self::Key, deadline: Self::Deadline) -> bool;
}

/// Timers of a running process, named by `u64` keys, whose callback is [`Recorder::fired`].
pub trait KeyedTimers: Sized {
    /// What one calling thread holds.
    type Caller: Caller + Send + 'static;

    /// Starts whatever threads it needs.
    fn start(recorder: &'static Recorder) -> Self;

    /// A handle for one calling thread.
    fn caller(&self) -> Self::Caller;

    /// Runs `step` with the numbers 0..count on each of the callers, a thread each, and returns
    /// when all are done; `step` gets the caller, its place among them and the number.
    fn drive<S>(&self, callers: Vec<Self::Caller>, count: u64, step: S)
    where
        S: Fn(&mut Self::Caller, u64, u64) + Clone + Send + 'static,
    {
        thread::scope(|scope| {
            for (place, mut caller) in (0..).zip(callers) {
                let step = step.clone();
                scope.spawn(move || {
                    for number in 0..count {
                        step(&mut caller, place, number);
                    }
                });
            }
        });
    }

    /// Returns when every operation that the callers have published has been applied.
    fn flush(&self);

    /// Stops it and its threads, and tells what had not fired.
    fn stop(self) -> Left;
}

/// The operations of one calling thread; dropping it publishes them.
pub trait Caller {
    /// Tells `flush` of the operations so far, where it does not know them anyway.
    fn publish(&mut self) {}

    /// Sets a timer that is due `delay` from now.
    fn set(&mut self, key: u64, value: u64, delay: Duration);

    /// Sets a timer that is due at `due`, which is `delay` from now.
    fn set_due(&mut self, key: u64, value: u64, due: Instant, delay: Duration);

    /// Moves a timer of this caller to `delay` from now.
    fn move_to(&mut self, key: u64, delay: Duration);

    /// Removes a timer of this caller.
    fn remove(&mut self, key: u64);
}

/// What had not fired when the timers stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Timers.
    pub count: u64,
    /// Sum of their values.
    pub sum: u64,
}

impl Left {
    /// Adds one timer.
    pub fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum += value;
    }
}
