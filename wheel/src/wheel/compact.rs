//! Giving memory back: sweeping dead entries, moving nodes together,
//! numbering stamps anew.
//!
//! Nodes move within their storage, slots are rebuilt: fresh ones are filled
//! from the old, which are then freed. None of it runs user code or changes
//! what the wheel does, so it may run between any two operations, also inside a
//! callback.

use std::mem;

use super::chain::{BIG_ENTRIES, Buffer, Entry, entry, filed_of, index_of};
use super::moved::Moved;
use super::node::{Gathered, Nodes};
use super::{NONE, TimerKey, Wheel};

/// Dead entries that are not worth a sweep however few timers there are.
const FEW: usize = 1024;

/// Decides which entries live on, and under which index.
struct Survivors<'a, T, F> {
    nodes: &'a Nodes<T>,
    /// Old indices whose entry has not been found yet. Small enough to stay in
    /// the cache, so that an entry of a vacant node costs no miss.
    awaited: Vec<u64>,
    /// The new index of a live node.
    index: F,
    /// There is no dead entry, so nothing has to be looked up.
    all_alive: bool,
}

impl<T, F: Fn(u32) -> u32> Survivors<'_, T, F> {
    /// Puts what becomes of `old` entries into `new`, without the dead ones
    /// and those found before; returns their number.
    ///
    /// Which entries are dead is beyond any branch predictor, so each is
    /// written and only the count depends on it.
    #[inline]
    fn claim(&mut self, old: &[Entry], new: &mut Buffer) -> usize {
        if self.all_alive {
            for (new, &old) in new.iter_mut().zip(old) {
                *new = entry(filed_of(old), (self.index)(index_of(old)));
            }
            return old.len();
        }
        let mut awaited = 0;
        for &old in old {
            let index = index_of(old);
            new[awaited] = old;
            awaited += (self.awaited[index as usize / 64] >> (index % 64) & 1) as usize;
        }
        let mut indices = [0; BIG_ENTRIES];
        for (new, index) in new[..awaited].iter().zip(&mut indices) {
            *index = (self.index)(index_of(*new));
        }
        // Loads the nodes, all misses at once.
        let heads = indices[..awaited].iter().map(|&index| &self.nodes[index]);
        std::hint::black_box(heads.fold(0, |sum, node| sum ^ node.generation()));
        let mut claimed = 0;
        for i in 0..awaited {
            let (old, index) = (new[i], indices[i]);
            let alive = self.nodes[index].filed() == Some(filed_of(old));
            let word = &mut self.awaited[index_of(old) as usize / 64];
            let bit = 1 << (index_of(old) % 64);
            // Checked once more: the same entry may be there twice.
            let alive = alive & (*word & bit != 0);
            *word &= if alive { !bit } else { u64::MAX };
            new[claimed] = entry(filed_of(old), index);
            claimed += usize::from(alive);
        }
        claimed
    }
}

impl<T> Wheel<T> {
    /// Sweeps when dead entries outnumber live timers three to one.
    #[inline]
    pub(super) fn sweep_if_due(&mut self) {
        if self.garbage > 3 * self.nodes.len() + FEW {
            self.sweep();
        }
    }

    /// Moves timers together when less than a quarter of the nodes is live.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.nodes.is_sparse() && self.era < u32::MAX {
            self.compact_keyed();
        }
    }

    /// Drops every dead entry.
    #[cold]
    #[inline(never)]
    pub(super) fn sweep(&mut self) {
        self.stats.sweeps += 1;
        self.file_newest();
        let awaited = self.nodes.live_words();
        self.rebuild_slots(awaited, |old| old);
    }

    /// Sweeps, and moves nodes together under forwarded keys.
    #[cold]
    #[inline(never)]
    pub(super) fn compact_keyed(&mut self) {
        self.stats.compactions += 1;
        if self.era == u32::MAX {
            self.sweep();
            self.due.shrink_to_fit();
            return;
        }
        self.file_newest();
        let mut moved = Moved::with_capacity(self.nodes.len());
        let before = mem::take(&mut self.moved);
        let era = self.era;
        // Timers that an earlier compaction moved are the early ones: their
        // keys are of older eras, their places in the order of those keys (I8).
        let early = before.len() as u32;
        let gathered = self.nodes.gather(early, |index, generation| {
            moved.push(if generation == 0 && index < early {
                before.key(index)
            } else {
                TimerKey {
                    era,
                    index,
                    generation,
                }
            });
        });
        drop(before);
        moved.finish();
        self.moved = moved;
        self.era += 1;
        self.remap_due(&gathered);
        self.rebuild_slots(gathered.live_words(), |old| gathered.index(old));
    }

    /// Sweeps, and moves nodes together: the timers have the indices below
    /// their number then, in the same order. `moved` gets a function from the
    /// old index of a timer to the new one.
    pub(crate) fn compact_raw(&mut self, moved: impl FnOnce(&dyn Fn(u32) -> u32)) {
        self.stats.compactions += 1;
        self.file_newest();
        let gathered = self.nodes.gather(0, |_, _| {});
        self.remap_due(&gathered);
        self.rebuild_slots(gathered.live_words(), |old| gathered.index(old));
        moved(&|old| gathered.index(old));
    }

    /// Fills fresh slots with the entries of filed nodes, once each. `awaited`
    /// has the old indices of live nodes, `index` gives the new ones.
    fn rebuild_slots(&mut self, awaited: Vec<u64>, index: impl Fn(u32) -> u32) {
        let fresh = self.slots.emptied();
        let old = mem::replace(&mut self.slots, fresh);
        let slots = &mut self.slots;
        let mut survivors = Survivors {
            nodes: &self.nodes,
            awaited,
            index,
            all_alive: self.garbage == 0,
        };
        let mut dropped = 0;
        old.for_each(|place, entries| {
            let mut new = [0; _];
            let claimed = survivors.claim(entries, &mut new);
            dropped += entries.len() - claimed;
            for &new in &new[..claimed] {
                match place {
                    Ok(slot) => slots.push(slot, new),
                    Err(high) => slots.push_far(high, new),
                }
            }
        });
        self.stats.stale += dropped as u64;
        self.garbage -= dropped;
        debug_assert_eq!(self.garbage, 0, "dead entries counted");
    }

    /// Points what is left in the due list at new indices.
    fn remap_due(&mut self, gathered: &Gathered) {
        let left = &self.due[self.due_next..];
        let due = left.iter().filter_map(|&due| {
            let old = index_of(due);
            let live = gathered.contains(old);
            live.then(|| entry(filed_of(due), gathered.index(old)))
        });
        self.due = due.collect();
        self.due_next = 0;
    }

    /// Numbers the touch stamps anew from 1, in their order, when they are used
    /// up.
    #[cold]
    pub(super) fn renumber(&mut self) {
        let live = self.nodes.iter();
        let mut order: Vec<u64> = live
            .filter_map(|(index, node)| {
                let stamp = node.stamp()?;
                Some(u64::from(stamp) << 32 | u64::from(index))
            })
            .collect();
        order.sort_unstable();
        let left = self.due.split_off(self.due_next);
        self.due.clear();
        self.due_next = 0;
        let mut left = left.into_iter().peekable();
        let mut stamp = 0;
        for &old in &order {
            stamp += 1;
            self.nodes[old as u32].set_stamp(stamp);
            // The due list is in order of stamps as well; those of timers that
            // are gone or were touched since are skipped.
            while left.next_if(|&due| due < old).is_some() {}
            if left.next_if_eq(&old).is_some() {
                self.due
                    .push(u64::from(stamp) << 32 | old & u64::from(u32::MAX));
            }
        }
        self.stamp = stamp;
    }

    /// Forgets every entry; the nodes have been taken out.
    pub(super) fn reset_slots(&mut self) {
        self.slots = self.slots.emptied();
        self.newest = NONE;
        self.due = Vec::new();
        self.due_next = 0;
        self.garbage = 0;
    }

    /// Begins an era in which no key that was ever given out is valid; `false`
    /// when eras are used up. The nodes have been taken out.
    pub(super) fn begin_empty_era(&mut self) -> bool {
        if self.era == u32::MAX {
            return false;
        }
        self.era += 1;
        self.moved = Moved::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two wheels that are to do the same, whatever they start with.
    struct Twins {
        wheels: [Wheel<u64>; 2],
        keys: Vec<[TimerKey; 2]>,
        random: u64,
    }

    impl Twins {
        fn new(special: Wheel<u64>) -> Self {
            Self {
                wheels: [special, Wheel::new()],
                keys: Vec::new(),
                random: 1,
            }
        }

        fn below(&mut self, limit: u64) -> u64 {
            self.random = self
                .random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(1);
            (self.random >> 32) % limit
        }

        /// Does the same to both and compares the results.
        fn both<R: PartialEq + std::fmt::Debug>(
            &mut self,
            mut f: impl FnMut(&mut Wheel<u64>, usize, &[[TimerKey; 2]]) -> R,
        ) -> R {
            let [a, b] = &mut self.wheels;
            let results = [f(a, 0, &self.keys), f(b, 1, &self.keys)];
            a.validate();
            b.validate();
            let [a, b] = results;
            assert_eq!(a, b);
            b
        }

        fn insert(&mut self) {
            let value = self.keys.len() as u64;
            let tick = self.wheels[0].tick() + self.below(60);
            let keys = self
                .wheels
                .each_mut()
                .map(|wheel| wheel.insert(tick, value));
            self.keys.push(keys);
        }

        fn step(&mut self) {
            let chosen = self.below(self.keys.len() as u64 + 1) as usize;
            let now = self.wheels[0].tick();
            match self.below(12) {
                0..4 => self.insert(),
                4..7 => {
                    let tick = now + self.below(60);
                    self.both(|wheel, twin, keys| {
                        let key = keys.get(chosen)?;
                        Some(wheel.reschedule(key[twin], tick))
                    });
                }
                7 => {
                    self.both(|wheel, twin, keys| wheel.remove(keys.get(chosen)?[twin]));
                }
                8 => {
                    self.both(|wheel, _, _| wheel.next_deadline());
                }
                9 => {
                    let to = now + self.below(9);
                    self.both(|wheel, _, _| {
                        let expired = wheel.pop_expired(to)?;
                        Some((expired.deadline, expired.value))
                    });
                }
                10 => {
                    let to = now + self.below(9);
                    self.both(|wheel, _, _| {
                        let mut fired = Vec::new();
                        wheel.advance(to, |_, e| fired.push((e.deadline, e.value)));
                        fired
                    });
                }
                _ if self.below(4) == 0 => self.both(|wheel, _, _| wheel.compact()),
                _ => {}
            }
        }
    }

    #[test]
    fn g3_the_order_of_touches_outlives_the_stamps() {
        for left in (0..150).step_by(5) {
            let mut special = Wheel::new();
            special.stamp = u32::MAX - left;
            let mut twins = Twins::new(special);
            twins.random = u64::from(left);
            (0..900).for_each(|_| twins.step());
            assert!(twins.wheels[0].stamp < 1_000, "numbered anew");
        }
    }

    #[test]
    fn g8_keys_outlive_the_eras() {
        for left in 0..6 {
            let mut special = Wheel::new();
            special.era = u32::MAX - left;
            let mut twins = Twins::new(special);
            (0..2_000).for_each(|_| twins.step());
            assert_eq!(twins.wheels[0].era, u32::MAX);
            twins.both(|wheel, _, _| wheel.clear());
            (0..500).for_each(|_| twins.step());
            twins.both(|wheel, _, _| wheel.drain().map(|e| e.value).collect::<Vec<_>>());
            (0..500).for_each(|_| twins.step());
        }
    }

    #[test]
    fn g7_without_eras_left_nothing_moves_but_dead_entries_go() {
        let mut wheel = Wheel::new();
        wheel.era = u32::MAX;
        let keys: Vec<_> = (0..5_000).map(|i| wheel.insert(1_000 + i, i)).collect();
        for &key in &keys[1..] {
            assert!(wheel.remove(key).is_some());
        }
        wheel.compact();
        wheel.validate();
        assert_eq!((wheel.garbage, wheel.get(keys[0])), (0, Some(&0)));
    }

    #[test]
    fn indices_are_mapped_when_nodes_move() {
        let mut wheel = Wheel::new();
        let mut indices: Vec<_> = (0..3_000)
            .map(|i| (wheel.insert_raw(1 + i % 50, i), i))
            .collect();
        indices
            .retain(|&(index, value)| value.is_multiple_of(7) || wheel.remove_raw(index) != value);
        // In the middle of a tick: the due list holds indices too.
        let (first, ..) = wheel.pop_raw(3).expect("something is due");
        indices.retain(|&(index, _)| index != first);
        assert!(wheel.wants_compact());
        wheel.compact_raw(|new_index| {
            for (index, _) in &mut indices {
                *index = new_index(*index);
            }
        });
        let together = (0..).zip(&indices).all(|(new, &(index, _))| index == new);
        assert!(together, "{indices:?}");
        wheel.validate();
        assert!(!wheel.wants_compact());
        for &(index, value) in &indices {
            assert_eq!(*wheel.value_raw(index), value);
            assert_eq!(wheel.deadline_raw(index), 1 + value % 50);
        }
        let mut fired = 0;
        while let Some((_, deadline, value)) = wheel.pop_raw(100) {
            assert_eq!(deadline, 1 + value % 50);
            fired += 1;
        }
        assert_eq!(fired, indices.len());
    }
}
