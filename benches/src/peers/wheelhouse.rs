//! `wheelhouse`: `wheelhouse_wheel::Wheel<u64>`.
//!
//! Settings: none; `Wheel::new()` has no parameters.

use wheelhouse_wheel::{TimerKey, Wheel};

use super::{Remove, Reschedule, TimerStructure};

/// The adapter.
#[derive(Debug)]
pub struct Wheelhouse(Wheel<u64>);

impl TimerStructure for Wheelhouse {
    type Deadline = u64;
    type Key = TimerKey;

    fn new() -> Self {
        Self(Wheel::new())
    }

    #[inline]
    fn deadline(&self, tick: u64) -> u64 {
        tick
    }

    #[inline]
    fn insert(&mut self, deadline: u64, value: u64) -> TimerKey {
        self.0.insert(deadline, value)
    }

    fn pending(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn fire(&mut self, through: u64, mut fired: impl FnMut(u64, u64)) {
        for tick in 1..=through {
            self.0
                .advance(tick, |_, expired| fired(tick, expired.value));
        }
    }
}

impl Remove for Wheelhouse {
    #[inline]
    fn remove(&mut self, key: TimerKey) -> Option<u64> {
        self.0.remove(key)
    }
}

impl Reschedule for Wheelhouse {
    #[inline]
    fn reschedule(&mut self, key: TimerKey, deadline: u64) -> bool {
        self.0.reschedule(key, deadline)
    }
}
