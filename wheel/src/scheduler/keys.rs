//! Which task carries which key, and the places for the runs of a key, which outlive its tasks.
//!
//! The keys are divided among several maps by their hash, each under a lock of its own, so that callers
//! with different keys seldom meet. The lock of a map is taken before those of shards, tasks and gates,
//! and no two of them at once. A key is in its map as long as a task carries it or a run of it holds or
//! waits for a place.

use std::hash::BuildHasher;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::sync::{Mutex, MutexGuard};

use super::claim::advance_all;
use super::entry::{Entry, Phase, flag};
use super::error::Refusal;
use super::gate::Gate;
use super::inner::{Inner, OPEN};
use super::options::{Duplicate, Options};

/// How many maps there are: a power of two.
const MAPS: usize = if cfg!(wheelhouse_loom) { 1 } else { 16 };

pub(super) struct Keys {
    /// Seeded at random, so that nobody can choose keys that meet in one place.
    hasher: RandomState,
    maps: Box<[CachePadded<Mutex<HashTable<Holder>>>]>,
}

struct Holder {
    key: Arc<str>,
    /// That of the key.
    hash: u64,
    /// The latest task of the key, unless it has ended.
    task: Option<Arc<dyn Entry>>,
    gate: Arc<Gate>,
    places: usize,
}

impl Default for Keys {
    fn default() -> Self {
        let map = || CachePadded::new(Mutex::new(HashTable::new()));
        Keys {
            hasher: RandomState::default(),
            maps: (0..MAPS).map(|_| map()).collect(),
        }
    }
}

/// The map in which a key is, or would be, and what is known of the key.
struct Locked<'a> {
    map: MutexGuard<'a, HashTable<Holder>>,
    key: &'a str,
    hash: u64,
}

impl Locked<'_> {
    fn holder(&mut self) -> Option<&mut Holder> {
        self.map
            .find_mut(self.hash, |holder| *holder.key == *self.key)
    }

    fn holder_or_new(&mut self, key: &Arc<str>, places: usize) -> &mut Holder {
        let hash = self.hash;
        let new = || Holder {
            key: key.clone(),
            hash,
            task: None,
            gate: Arc::new(Gate::new(places)),
            places,
        };
        let entry = self
            .map
            .entry(hash, |holder| holder.key == *key, |holder| holder.hash);
        entry.or_insert_with(new).into_mut()
    }

    /// Forgets a key that nobody needs any more.
    fn remove(&mut self) -> Option<Holder> {
        let found = self
            .map
            .find_entry(self.hash, |holder| *holder.key == *self.key);
        let removed = found.ok().map(|entry| entry.remove().0);
        // What many keys at a time have made it grow to is not kept for ever.
        let left = self.map.len();
        if left < self.map.capacity() / 8 {
            self.map.shrink_to(2 * left, |holder| holder.hash);
        }
        removed
    }
}

impl Keys {
    fn lock<'a>(&'a self, key: &'a str) -> Locked<'a> {
        let hash = self.hasher.hash_one(key);
        // Not the bits from which the table takes positions and tags.
        let map = &self.maps[(hash >> 32) as usize % MAPS];
        Locked {
            map: map.lock(),
            key,
            hash,
        }
    }

    /// Makes and files a task with a key. `file` gets the gate of the key. Where there is no room, it
    /// takes the place of the task that it replaces, if no run of that is in progress.
    pub(super) fn install(
        &self,
        inner: &Inner,
        key: &Arc<str>,
        options: &Options,
        has_room: bool,
        file: impl FnOnce(Arc<Gate>) -> Result<Arc<dyn Entry>, Refusal>,
    ) -> Result<(), Refusal> {
        let places = options.places();
        let mut map = self.lock(key);
        let old = map.holder().and_then(|holder| holder.task.clone());
        if options.duplicate == Duplicate::Refuse
            && old
                .as_ref()
                .is_some_and(|task| task.head().phase() != Phase::Ended)
        {
            return Err(Refusal::Duplicate { key: key.clone() });
        }
        let displaced = if has_room {
            None
        } else {
            // Nothing may be displaced for a task that is refused. One that a shutdown refuses only
            // from here on displaces what that shutdown would have found.
            if inner.closing().load() != OPEN {
                return Err(Refusal::Closed);
            }
            let displaced = old.and_then(|old| Some((inner.displace(&*old)?, old)));
            Some(displaced.ok_or(Refusal::Full)?)
        };
        let holder = map.holder_or_new(key, places);
        let gate = holder.gate.clone();
        let filed = match file(gate.clone()) {
            Ok(task) => {
                let replaced = holder.task.replace(task.clone());
                // Under the lock of the map, so that whoever cancels by the key from here on leaves none of
                // its tasks to run.
                let replaced = replaced.map(|replaced| (inner.take_back(&*replaced), replaced));
                // Under the lock of the map, so that the last word on the places is the holder's.
                let let_in = if holder.places == places {
                    Vec::new()
                } else {
                    gate.resize(places)
                };
                holder.places = places;
                drop(map);
                advance_all(let_in);
                inner.announce(&*task);
                if let Some((called_off, replaced)) = replaced {
                    // What it tells is of no interest: the new task waits for a run in progress. And
                    // if it had to make room it has ended.
                    let _ = inner.tell_called_off(&*replaced, called_off, false);
                }
                Ok(())
            }
            Err(refusal) => {
                let removed = if holder.task.is_none() && gate.is_idle() {
                    map.remove()
                } else {
                    None
                };
                drop(map);
                drop(removed);
                if displaced.is_some() {
                    inner.unadmit();
                }
                Err(refusal)
            }
        };
        if let Some((displaced, old)) = displaced {
            inner.bury_displaced(&*old, displaced);
        }
        filed
    }

    pub(super) fn task(&self, key: &str) -> Option<Arc<dyn Entry>> {
        let task = self.lock(key).holder()?.task.clone()?;
        (task.head().phase() != Phase::Ended).then_some(task)
    }

    /// A task has ended.
    pub(super) fn task_ended(&self, inner: &Inner, entry: &dyn Entry) {
        self.let_go(inner, entry, |holder| {
            let is_latest = |task: &mut Arc<dyn Entry>| std::ptr::addr_eq(Arc::as_ptr(task), entry);
            holder.task.take_if(is_latest)
        });
    }

    /// A run has given up its place.
    pub(super) fn run_ended(&self, inner: &Inner, entry: &dyn Entry) {
        self.let_go(inner, entry, |_| None);
    }

    fn let_go(
        &self,
        inner: &Inner,
        entry: &dyn Entry,
        take: impl FnOnce(&mut Holder) -> Option<Arc<dyn Entry>>,
    ) {
        if !entry.head().has(flag::GATED) {
            return;
        }
        let key = inner.options(entry.lock().as_deref()).key.clone();
        let Some(key) = key else {
            return;
        };
        let mut map = self.lock(&key);
        let Some(holder) = map.holder() else {
            return;
        };
        let taken = take(holder);
        let removed = if holder.task.is_none() && holder.gate.is_idle() {
            map.remove()
        } else {
            None
        };
        drop(map);
        drop((taken, removed));
    }
}
