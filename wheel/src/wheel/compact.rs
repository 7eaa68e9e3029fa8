//! Giving memory back: sweeping dead entries, moving nodes together,
//! numbering stamps anew.
//!
//! All of it rebuilds: fresh storage is filled from the old, which is then
//! freed. None of it runs user code or changes what the wheel does, so it may
//! run between any two operations, also inside a callback.

use std::mem;

use super::chain::{Buffer, Entry, entry, filed_of, index_of};
use super::moved::Moved;
use super::node::Node;
use super::{NONE, TimerKey, Wheel};

/// Dead entries that are not worth a sweep however few timers there are.
const FEW: usize = 1024;

/// Says in a map of old to new indices that there was no timer.
const GONE: u32 = u32::MAX;

/// What a sweep needs of the nodes, in a fraction of their cache lines.
struct Table {
    /// Which old indices have a filed timer. Small enough to stay in the cache,
    /// so that an entry of a vacant node costs no miss.
    filed: Vec<u64>,
    /// For each old index the tick its timer is filed under, and its new index.
    entries: Vec<Entry>,
}

impl Table {
    fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            filed: vec![0; nodes.div_ceil(64)],
            entries: vec![entry(0, GONE); nodes],
        }
    }

    /// Notes the new index of a live node, and the tick it is filed under.
    #[inline]
    fn note(&mut self, old: u32, filed: Option<u32>, new: u32) {
        self.entries[old as usize] = entry(filed.unwrap_or(0), new);
        if filed.is_some() {
            self.filed[old as usize / 64] |= 1 << (old % 64);
        }
    }

    /// Puts what becomes of `old` entries into `new`, without the dead ones
    /// and those claimed before; returns their number.
    ///
    /// Which entries are dead is beyond any branch predictor, so each is
    /// written and only the count depends on it.
    #[inline]
    fn claim(&mut self, old: &[Entry], new: &mut Buffer) -> usize {
        let mut filed = 0;
        for &old in old {
            let index = index_of(old) as usize;
            new[filed] = old;
            filed += (self.filed[index / 64] >> (index % 64) & 1) as usize;
        }
        // Loads the rows, all misses at once.
        let rows = new[..filed].iter();
        let rows = rows.map(|&old| self.entries[index_of(old) as usize]);
        std::hint::black_box(rows.fold(0, |sum, row| sum ^ row));
        let mut claimed = 0;
        for i in 0..filed {
            let old = new[i];
            let row = &mut self.entries[index_of(old) as usize];
            let (index, alive) = (index_of(*row), filed_of(*row) == filed_of(old));
            let alive = alive & (index != GONE);
            *row = if alive { entry(0, GONE) } else { *row };
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
    pub(super) fn sweep(&mut self) {
        self.stats.sweeps += 1;
        self.file_newest();
        let mut table = Table::new(self.nodes.used());
        for (index, node) in self.nodes.iter() {
            if node.filed().is_some() {
                table.note(index, node.filed(), index);
            }
        }
        self.rebuild_slots(table);
    }

    /// Sweeps, and moves nodes together under forwarded keys.
    #[cold]
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
        let mut old = mem::take(&mut self.nodes);
        let mut table = Table::new(old.used());
        // Timers that an earlier compaction moved come first: their keys are of
        // older eras, and their places are in the order of those keys (I8).
        for (place, key) in (0..).zip(before.iter()) {
            let node = &mut old[place];
            if node.generation() == 0 && node.is_live() {
                let node = mem::replace(node, Node::FRESH);
                moved.push(key);
                self.adopt(node, place, &mut table);
            }
        }
        drop(before);
        let era = self.era;
        old.consume(|index, node| {
            let generation = node.generation();
            moved.push(TimerKey {
                era,
                index,
                generation,
            });
            self.adopt(node, index, &mut table);
        });
        moved.finish();
        self.moved = moved;
        self.era += 1;
        self.remap_due(&table);
        self.rebuild_slots(table);
    }

    /// Sweeps, and moves nodes together. `moved` gets the new index for each
    /// old one, [`u32::MAX`] where there was no timer.
    pub(crate) fn compact_raw(&mut self, moved: impl FnOnce(&[u32])) {
        self.stats.compactions += 1;
        self.file_newest();
        let old = mem::take(&mut self.nodes);
        let mut table = Table::new(old.used());
        old.consume(|index, node| self.adopt(node, index, &mut table));
        let map: Vec<u32> = table.entries.iter().map(|&entry| index_of(entry)).collect();
        self.remap_due(&table);
        self.rebuild_slots(table);
        moved(&map);
    }

    /// Moves a live node to the next place and notes that in the table.
    fn adopt(&mut self, node: Node<T>, old: u32, table: &mut Table) {
        let filed = node.filed();
        let index = self.nodes.append(node);
        table.note(old, filed, index);
    }

    /// Fills fresh slots with the entries that the table knows, once each.
    fn rebuild_slots(&mut self, mut table: Table) {
        let fresh = self.slots.emptied();
        let old = mem::replace(&mut self.slots, fresh);
        let slots = &mut self.slots;
        let mut dropped = 0;
        old.for_each(|place, entries| {
            let mut new = [0; _];
            let claimed = table.claim(entries, &mut new);
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
    fn remap_due(&mut self, table: &Table) {
        let left = &self.due[self.due_next..];
        let due = left.iter().filter_map(|&due| {
            let new = index_of(table.entries[index_of(due) as usize]);
            (new != GONE).then(|| entry(filed_of(due), new))
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
