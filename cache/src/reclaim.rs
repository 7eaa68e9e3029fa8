//! Reclaiming: what has expired is taken out in steps.
//!
//! Nothing that is seen depends on it: an entry's own deadline decides. A step takes one shard's lock
//! for 128 entries at most, and whoever stores does one step at most.

use std::hash::{BuildHasher, Hash};

use crate::Cause;
use crate::event::Gone;
use crate::inner::{Cell, Inner};
use crate::shard::{Micros, NEVER};

/// Entries that one operation reclaims, at most.
pub(crate) const STEP: usize = 128;

impl<K: Hash + Eq, V, S: BuildHasher> Inner<K, V, S> {
    /// Reclaims up to `most` expired entries in steps; how many, and whether there may be more.
    pub(crate) fn reclaim_all(&self, mut most: usize) -> (usize, bool) {
        let now = self.time.now();
        let mut reclaimed = 0;
        for cell in &self.cells {
            loop {
                if most == 0 {
                    return (reclaimed, true);
                }
                let mut gone = Gone::new();
                let mut cell = cell.lock();
                if cell.due > now {
                    break;
                }
                let (count, more) = self.reclaim_up_to(&mut cell, now, most.min(STEP), &mut gone);
                drop(cell);
                self.tell(gone);
                reclaimed += count;
                most -= count;
                if !more {
                    break;
                }
            }
        }
        (reclaimed, false)
    }

    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        let dues = self.cells.iter().map(|cell| {
            let mut cell = cell.lock();
            cell.shard.next_deadline().unwrap_or(NEVER)
        });
        dues.min().filter(|due| *due != NEVER)
    }

    /// What follows a store: the count, the time for reclaiming, and a step of it where operations
    /// reclaim. `about` is about now, or 0 where nothing had a deadline before.
    #[inline]
    pub(crate) fn has_stored(
        &self,
        cell: &mut Cell<K, V, S>,
        about: Micros,
        deadline: Micros,
        gone: &mut Gone<K, V>,
    ) {
        cell.counts.stored = cell.counts.stored.wrapping_add(1);
        cell.due = cell.due.min(deadline);
        self.sleep.wake_before(deadline);
        if self.options.reclaims && cell.due <= about {
            self.reclaim(cell, gone);
        }
    }

    pub(crate) fn reclaim(&self, cell: &mut Cell<K, V, S>, gone: &mut Gone<K, V>) {
        // One step per operation, whatever else it does.
        if gone.len() < STEP {
            self.reclaim_up_to(cell, self.time.now(), STEP - gone.len(), gone);
        }
    }

    /// One step: how many went, and whether there may be more.
    fn reclaim_up_to(
        &self,
        cell: &mut Cell<K, V, S>,
        now: Micros,
        most: usize,
        gone: &mut Gone<K, V>,
    ) -> (usize, bool) {
        let mut weight = 0;
        let mut count = 0;
        let Cell { shard, counts, .. } = cell;
        let more = shard.reap(now, most, |removed| {
            weight += u64::from(removed.weight);
            count += 1;
            counts.left(Cause::Expired);
            gone.add(removed, Cause::Expired);
        });
        cell.due = cell.shard.next_deadline().unwrap_or(NEVER);
        self.budget.release(weight);
        (count, more)
    }
}
