//! The pure cache: one table, one policy, time as an argument, no lock.
//!
//! # Ground rules
//! - Entries lie densely in an array; an entry's position is what the index, the policy and the
//!   columns know it by. Whoever is taken out leaves its position to the last entry.
//! - Nothing here calls user code but `Hash` and `Eq` of keys: what leaves the table is returned.
//! - Capacity is not known here: the caller decides when something has to go.
//!
//! # Invariants
//! - S1: positions in the index = positions in the queue of the policy = entries.
//! - S2: columns that are in use are as long as the table.
//! - X1, X2 in `index.rs`, D1, D2 in `deadlines.rs`, L1, L2 in `list.rs`.

mod adaptive;
mod contest;
mod deadlines;
mod entry;
mod index;
mod list;
#[cfg(test)]
mod model;
mod setting;
mod sketch;

use std::hash::{BuildHasher, Hash};

use adaptive::{Adaptive, Pulse};
use deadlines::{BLOCK, Deadlines};
use index::Index;
use list::List;

pub(crate) use entry::{Entry, Micros, NEVER};
pub(crate) use setting::{SETTINGS, Setting};

/// Who goes when there is no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Adapts to the traffic: admits by frequency, with a window for what came last whose size
    /// follows what would have served best lately.
    #[default]
    Adaptive,
    /// The least recently used, exactly. In one shard.
    Lru,
    /// SIEVE (Zhang and others, 2024): like FIFO, sparing what was used since the hand passed.
    Sieve,
    /// The one that came first, exactly. In one shard.
    Fifo,
}

/// What a table keeps besides keys, values and deadlines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Columns {
    pub(crate) weights: bool,
    /// Deadlines that hits do not move, where the entry's own is moved by them.
    pub(crate) hard: bool,
}

/// How many entries a table is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Never more than that.
    pub(crate) most: usize,
    /// As many as a rule: what is larger costs memory, what is smaller time while it grows.
    pub(crate) likely: usize,
}

impl Extent {
    /// What a table that is full makes room for.
    fn after(self, room: usize) -> usize {
        // A share of the entries of a cache is never even.
        let likely = self.likely.saturating_add(self.likely / 16).min(self.most);
        let more = if room < likely {
            room.saturating_mul(2).min(likely)
        } else {
            room.saturating_add(room / 16)
        };
        more.min(self.most).max(room + 1)
    }
}

/// Who goes, and who gets its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Victim {
    /// Where it is.
    pub(crate) position: usize,
    /// The hash of its key, where that is known.
    hash: Option<u64>,
    /// An entry of the window that is admitted in its place, and the hash of its key.
    heir: Option<(usize, u64)>,
}

impl Victim {
    /// One whose place nobody has been found for.
    fn at(position: usize) -> Self {
        Victim {
            position,
            hash: None,
            heir: None,
        }
    }
}

/// What is known of an entry in the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) weight: u32,
    pub(crate) hard: Micros,
}

/// An entry that has left the table.
#[derive(Debug)]
pub(crate) struct Removed<K, V> {
    pub(crate) entry: Entry<K, V>,
    pub(crate) weight: u32,
}

impl<K, V> Removed<K, V> {
    /// A value that has never been in the table, or has left it without its key.
    pub(crate) fn new(key: K, value: V, deadline: Micros, weight: u32) -> Self {
        let entry = Entry::new(key, value, deadline);
        Removed { entry, weight }
    }
}

/// In the order of the fields: what a lookup reads comes first and shares cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard<K, V, S> {
    index: Index,
    entries: Vec<Entry<K, V>>,
    pulse: Pulse,
    /// Of [`Policy::Adaptive`].
    adaptive: Adaptive,
    hasher: S,
    extent: Extent,
    /// Of the other policies.
    list: Option<Box<List>>,
    /// Once there was a finite deadline.
    deadlines: Option<Box<Deadlines>>,
    weights: Option<Vec<u32>>,
    hard: Option<Vec<Micros>>,
}

impl<K: Hash + Eq, V, S: BuildHasher> Shard<K, V, S> {
    pub(crate) fn new(policy: Policy, columns: Columns, extent: Extent, hasher: S) -> Self {
        let is_adaptive = policy == Policy::Adaptive;
        Shard {
            index: Index::new(),
            entries: Vec::new(),
            hasher,
            pulse: Pulse::new(policy),
            extent,
            adaptive: Adaptive::new(extent),
            list: (!is_adaptive).then(|| Box::new(List::new())),
            deadlines: None,
            weights: columns.weights.then(Vec::new),
            hard: columns.hard.then(Vec::new),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The position of a key, whatever its deadline.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<usize> {
        self.index.find_position(hash, |position| {
            let entry = self.entries.get(position);
            entry.is_some_and(|entry| is_it(&entry.key))
        })
    }

    #[inline]
    pub(crate) fn entry(&self, position: usize) -> &Entry<K, V> {
        &self.entries[position]
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Entry<K, V>] {
        &self.entries
    }

    /// Counts a hit of the entry at `position`.
    #[inline(always)]
    pub(crate) fn hit(&mut self, position: usize) {
        if self.pulse.policy == Policy::Adaptive {
            self.adaptive.accessed(&mut self.pulse, self.entries.len());
            self.entries[position].touch(self.pulse.epoch);
            return;
        }
        self.hit_in_list(position);
    }

    fn hit_in_list(&mut self, position: usize) {
        match (self.pulse.policy, self.list.as_deref_mut()) {
            (Policy::Lru, Some(list)) => list.renew(position),
            (Policy::Sieve, _) => self.entries[position].set_visited(true),
            _ => {}
        }
    }

    /// Counts a miss.
    #[inline(never)]
    pub(crate) fn miss(&mut self, hash: u64) {
        if self.pulse.policy == Policy::Adaptive {
            self.adaptive.accessed(&mut self.pulse, self.entries.len());
            self.adaptive.missed(hash);
        }
    }

    /// Whether nothing more fits, since positions are 32 bits wide.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.entries.len() >= u32::MAX as usize - 1
    }

    /// Adds a key that is not in the table.
    pub(crate) fn push(
        &mut self,
        hash: u64,
        key: K,
        value: V,
        deadline: Micros,
        extra: Extra,
    ) -> usize {
        let position = self.entries.len();
        if self.index.is_full(position) {
            self.grow();
        }
        if position == self.entries.capacity() {
            let room = self.extent.after(position.max(2));
            self.entries
                .reserve_exact(room.saturating_sub(position).max(1));
        }
        self.index.insert(hash, position);
        self.entries.push(Entry::new(key, value, deadline));
        self.set_columns(position, extra);
        if let Some(list) = &mut self.list {
            list.push();
        }
        self.begin(position, hash, deadline);
        position
    }

    /// Puts a key that is not in the table in the place of a victim, or of its heir.
    pub(crate) fn replace(
        &mut self,
        victim: Victim,
        hash: u64,
        key: K,
        value: V,
        deadline: Micros,
        extra: Extra,
    ) -> Removed<K, V> {
        let weight = self.weight(victim.position);
        self.unindex(victim.position, victim.hash);
        let mut position = victim.position;
        if let Some((heir, hash_of_heir)) = victim.heir {
            if let Some((_, lane)) = self.index.find(hash_of_heir, |at| at == heir) {
                self.index.set_position(lane, position);
            }
            self.swap_entries(heir, position);
            let deadline = self.entries[position].deadline();
            self.note_deadline(position, deadline);
            position = heir;
        }
        self.index.insert(hash, position);
        let entry = Entry::new(key, value, deadline);
        let entry = std::mem::replace(&mut self.entries[position], entry);
        self.set_columns(position, extra);
        if let Some(list) = &mut self.list {
            // As if it had been taken out: the hand goes on.
            list.renew(position);
        }
        self.begin(position, hash, deadline);
        Removed { entry, weight }
    }

    /// Gives the entry at `position` another value and deadline; the key stays, and so does its
    /// history.
    pub(crate) fn update(
        &mut self,
        position: usize,
        value: V,
        deadline: Micros,
        extra: Extra,
    ) -> (V, u32) {
        let weight = self.weight(position);
        let value = std::mem::replace(&mut self.entries[position].value, value);
        self.entries[position].set_extended(false);
        self.set_columns(position, extra);
        self.set_deadline(position, deadline);
        (value, weight)
    }

    /// Takes out a victim; its heir gets its place.
    pub(crate) fn evict(&mut self, victim: Victim) -> Removed<K, V> {
        match victim.heir {
            Some((heir, _)) => {
                self.swap(heir, victim.position);
                self.remove(heir)
            }
            None => self.remove(victim.position),
        }
    }

    /// Takes out the entry at `position`.
    pub(crate) fn remove(&mut self, position: usize) -> Removed<K, V> {
        let weight = self.weight(position);
        self.unindex(position, None);
        let last = self.entries.len() - 1;
        if position != last {
            // Not a loop over the bucket: the last entry's lane is found by its hash.
            let hash = self.hasher.hash_one(&self.entries[last].key);
            if let Some((_, lane)) = self.index.find(hash, |at| at == last) {
                self.index.set_position(lane, position);
            }
        }
        let entry = self.entries.swap_remove(position);
        if let Some(hard) = &mut self.hard {
            hard.swap_remove(position);
        }
        if let Some(weights) = &mut self.weights {
            weights.swap_remove(position);
        }
        if let Some(list) = &mut self.list {
            list.swap_remove(position);
        }
        if let Some(deadlines) = &mut self.deadlines {
            if let Some(moved) = self.entries.get(position) {
                deadlines.note(position, moved.deadline());
            }
            if last.is_multiple_of(BLOCK) {
                deadlines.truncate(last / BLOCK);
            }
        }
        Removed { entry, weight }
    }

    /// Who goes, by the policy. Entries without weight do not go; `None` when there are no others.
    pub(crate) fn victim(&mut self) -> Option<Victim> {
        if self.entries.is_empty() {
            return None;
        }
        let chosen = match (self.pulse.policy, self.list.as_deref_mut()) {
            (_, None) => self.choose(),
            (Policy::Sieve, Some(list)) => Victim::at(list.sieve(|position| {
                let entry = &mut self.entries[position];
                let spared = entry.is_visited();
                entry.set_visited(false);
                spared
            })?),
            (_, Some(list)) => Victim::at(list.oldest()?),
        };
        let position = chosen.position;
        match &self.weights {
            Some(weights) if weights[position] == 0 => {
                let (before, after) = (0..position, position + 1..weights.len());
                let other = after.chain(before).find(|&at| weights[at] > 0);
                other.map(Victim::at)
            }
            _ => Some(chosen),
        }
    }

    /// Takes out up to `most` entries that have expired by `now`, each handed to `out`. `true` when
    /// there may be more. A block in which all are due costs 64 looks.
    pub(crate) fn reap(
        &mut self,
        now: Micros,
        most: usize,
        mut out: impl FnMut(Removed<K, V>),
    ) -> bool {
        let mut left = most;
        while let Some(block) = self
            .deadlines
            .as_deref_mut()
            .and_then(|deadlines| deadlines.next_due(now))
        {
            let mut minimum = NEVER;
            let mut position = block * BLOCK;
            while position < ((block + 1) * BLOCK).min(self.entries.len()) {
                let deadline = self.entries[position].deadline();
                if deadline > now {
                    minimum = minimum.min(deadline);
                    position += 1;
                } else if left == 0 {
                    return true;
                } else {
                    left -= 1;
                    out(self.remove(position));
                }
            }
            if let Some(deadlines) = &mut self.deadlines {
                deadlines.finish(minimum);
            }
        }
        false
    }

    /// The earliest instant at which there may be something to reap.
    pub(crate) fn next_deadline(&mut self) -> Option<Micros> {
        self.deadlines.as_mut()?.earliest()
    }

    /// Timers on the wheel: at most one per 64 entries.
    pub(crate) fn timers(&self) -> usize {
        self.deadlines.as_ref().map_or(0, |one| one.timers())
    }

    /// Moves the deadline of the entry at `position`.
    #[inline]
    pub(crate) fn set_deadline(&mut self, position: usize, deadline: Micros) {
        self.entries[position].set_deadline(deadline);
        self.note_deadline(position, deadline);
    }

    #[inline]
    pub(crate) fn weight(&self, position: usize) -> u32 {
        self.weights.as_ref().map_or(1, |weights| weights[position])
    }

    /// The deadline that hits do not move.
    #[inline]
    pub(crate) fn hard(&self, position: usize) -> Micros {
        let deadline = || self.entries[position].deadline();
        self.hard
            .as_ref()
            .map_or_else(deadline, |hard| hard[position])
    }

    /// Puts the deadline of the entry at `position` off by `more`, once for each value, but not beyond
    /// `idle`, which hits move.
    pub(crate) fn extend(&mut self, position: usize, more: Micros, idle: Micros) {
        let entry = &self.entries[position];
        let (hard, deadline) = (self.hard(position), entry.deadline());
        if entry.is_extended() || hard == NEVER {
            return;
        }
        let later = hard.saturating_add(more).min(NEVER);
        self.entries[position].set_extended(true);
        if let Some(column) = &mut self.hard {
            column[position] = later;
        }
        // An earlier one is that of an idle entry, which hits move.
        if deadline == hard {
            self.set_deadline(position, later.min(idle).max(deadline));
        }
    }

    /// Takes out everything, and gives the memory back.
    pub(crate) fn drain(&mut self) -> Vec<Removed<K, V>> {
        let weights = self.weights.as_mut().map(std::mem::take);
        let entries = std::mem::take(&mut self.entries);
        self.index.clear();
        if let Some(list) = &mut self.list {
            list.clear();
        }
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.truncate(0);
        }
        if let Some(hard) = &mut self.hard {
            *hard = Vec::new();
        }
        let weight = |position: usize| weights.as_ref().map_or(1, |weights| weights[position]);
        let removed = entries.into_iter().enumerate();
        removed
            .map(|(position, entry)| Removed {
                entry,
                weight: weight(position),
            })
            .collect()
    }

    /// What follows when an entry has come to `position`.
    #[inline]
    fn begin(&mut self, position: usize, hash: u64, deadline: Micros) {
        if self.pulse.policy == Policy::Adaptive {
            self.adaptive.inserted(hash);
            self.entries[position].set_uses(0, self.pulse.epoch);
        }
        self.note_deadline(position, deadline);
    }

    #[inline]
    fn note_deadline(&mut self, position: usize, deadline: Micros) {
        match &mut self.deadlines {
            Some(deadlines) => deadlines.note(position, deadline),
            None if deadline == NEVER => {}
            none => none
                .insert(Box::new(Deadlines::new()))
                .note(position, deadline),
        }
    }

    #[inline]
    fn set_columns(&mut self, position: usize, extra: Extra) {
        fn set<T>(column: &mut Option<Vec<T>>, position: usize, item: T) {
            match column {
                Some(column) if position < column.len() => column[position] = item,
                Some(column) => column.push(item),
                None => {}
            }
        }
        set(&mut self.weights, position, extra.weight);
        set(&mut self.hard, position, extra.hard);
    }

    #[inline]
    fn unindex(&mut self, position: usize, hash: Option<u64>) {
        let hash = hash.unwrap_or_else(|| self.hash_at(position));
        if let Some((_, lane)) = self.index.find(hash, |at| at == position) {
            self.index.remove(hash, lane);
        }
    }

    #[inline]
    fn hash_at(&self, position: usize) -> u64 {
        self.hasher.hash_one(&self.entries[position].key)
    }

    /// Exchanges two entries with all that is known of them; only [`Policy::Adaptive`] does that.
    fn swap(&mut self, one: usize, other: usize) {
        let lane = |at: usize| self.index.find(self.hash_at(at), |position| position == at);
        let lanes = (lane(one), lane(other));
        if let (Some((_, first)), Some((_, second))) = lanes {
            self.index.set_position(first, other);
            self.index.set_position(second, one);
        }
        self.swap_entries(one, other);
        self.note_deadline(one, self.entries[one].deadline());
        self.note_deadline(other, self.entries[other].deadline());
    }

    #[inline]
    fn swap_entries(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
        if let Some(hard) = &mut self.hard {
            hard.swap(one, other);
        }
        if let Some(weights) = &mut self.weights {
            weights.swap(one, other);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.index.grow(self.extent.after(self.index.room()));
        for (position, entry) in self.entries.iter().enumerate() {
            self.index
                .insert(self.hasher.hash_one(&entry.key), position);
        }
        if self.pulse.policy == Policy::Adaptive {
            self.adaptive.fit(self.index.room().min(self.extent.most));
        }
    }
}
