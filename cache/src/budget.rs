//! How much the cache holds and may hold, over all its shards.
//!
//! # Invariant
//! - B1: `used` is the weight of all entries plus what is reserved for entries to come, and never
//!   more than `capacity`. A thread holds a reservation across two locks of a shard only while it
//!   makes room in other shards, under the lock of `making_room`: whoever holds that lock finds all
//!   other weight in entries.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Budget {
    /// Relaxed throughout: entries are published by the locks of their shards, and the number alone
    /// says whether there is room.
    used: AtomicU64,
    capacity: u64,
    making_room: Mutex<()>,
}

impl Budget {
    pub(crate) fn new(capacity: u64) -> Self {
        Budget {
            used: AtomicU64::new(0),
            capacity,
            making_room: Mutex::new(()),
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves `weight`, if there is room for it.
    #[inline]
    pub(crate) fn reserve(&self, weight: u64) -> bool {
        if weight == 0 {
            return true;
        }
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            match used.checked_add(weight) {
                Some(sum) if sum <= self.capacity => {
                    let swapped = self.used.compare_exchange_weak(
                        used,
                        sum,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    match swapped {
                        Ok(_) => return true,
                        Err(now) => used = now,
                    }
                }
                _ => return false,
            }
        }
    }

    #[inline]
    pub(crate) fn release(&self, weight: u64) {
        if weight != 0 {
            self.used.fetch_sub(weight, Ordering::Relaxed);
        }
    }

    /// Only who holds this makes room in shards that are not its own.
    pub(crate) fn make_room(&self) -> MutexGuard<'_, ()> {
        self.making_room.lock()
    }
}
