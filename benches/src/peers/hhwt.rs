//! `hhwt`: the cancellable `QuadWheelWithOverflow` of hierarchical_hash_wheel_timer.
//!
//! Settings: its default hasher, FxHash, the fastest of the three it offers for small integers. The
//! entry is the value alone, which is its own identifier, and goes in through
//! `insert_ref_with_delay`: 24 bytes with its counts, where the ready-made `IdOnlyTimerEntry` also
//! carries the delay. It has no operation that moves a timer; to cancel and insert again is what
//! `churn` measures.

use std::rc::Rc;
use std::time::Duration;

use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};

use super::{Remove, TimerStructure};

/// The value, its own identifier.
#[derive(Debug)]
struct Entry(u64);

impl CancellableTimerEntry for Entry {
    type Id = u64;

    #[inline]
    fn id(&self) -> &u64 {
        &self.0
    }
}

/// The adapter.
pub struct Hhwt {
    wheel: QuadWheelWithOverflow<Entry>,
    /// The wheel tells nobody how many timers it holds.
    pending: usize,
}

impl std::fmt::Debug for Hhwt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hhwt")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl TimerStructure for Hhwt {
    type Deadline = Duration;
    type Key = u64;

    fn new() -> Self {
        Self {
            wheel: QuadWheelWithOverflow::new(),
            pending: 0,
        }
    }

    /// Its delays count from the tick at which they are inserted, which is 0 in every workload.
    #[inline]
    fn deadline(&self, tick: u64) -> Duration {
        Duration::from_millis(tick)
    }

    #[inline]
    fn insert(&mut self, delay: Duration, value: u64) -> u64 {
        if self
            .wheel
            .insert_ref_with_delay(Rc::new(Entry(value)), delay)
            .is_ok()
        {
            self.pending += 1;
        }
        value
    }

    fn pending(&self) -> usize {
        self.pending
    }

    #[inline]
    fn fire(&mut self, through: u64, mut fired: impl FnMut(u64, u64)) {
        for tick in 1..=through {
            for entry in self.wheel.tick() {
                self.pending -= 1;
                fired(tick, entry.0);
            }
        }
    }
}

impl Remove for Hhwt {
    #[inline]
    fn remove(&mut self, id: u64) -> Option<u64> {
        self.wheel.cancel(&id).ok()?;
        self.pending -= 1;
        Some(id)
    }
}
