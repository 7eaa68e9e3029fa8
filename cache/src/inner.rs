//! What the handles of a cache share: its shards, its budget, its time, its listener.
//!
//! # Ground rules
//! - One lock per shard; a thread holds one of them at a time. The lock of the tuner and the one for
//!   making room are never held together with a shard's by the same thread, but that whoever makes
//!   room takes shards one after the other.
//! - Of user code only `Hash` and `Eq` of keys, `Clone` of values and the clock run under a shard's lock.
//!   Weighers, listeners, loads, conditions and every drop run outside.
//! - What a shard loses goes into a `Gone`, which is told after the lock is released.
//!
//! # Races considered
//! - Two threads insert at capacity: each reserves, or takes out an entry and keeps its place, under
//!   the lock of its own shard (B1). Nobody sees more than the capacity.
//! - A set between the look of the reclaimer and its removal: both are under the shard's lock, and
//!   the entry's own deadline decides, not the timer.
//! - A close and a set: the flag is set before the shards are emptied, and read under their locks.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use crate::Cause;
use crate::budget::Budget;
use crate::driver::Sleep;
use crate::event::{Gone, Listener};
use crate::fence::Fences;
use crate::negative::Negatives;
use crate::refresh::Refresh;
use crate::shard::{Entry, Extra, Micros, NEVER, Removed, SETTINGS, Shard};
use crate::stats::{Counts, Stats};
use crate::time::{Time, micros};
use crate::tuner::Tuner;

/// Lifetimes that deviate by so many times what the coarse clock may be behind are drawn by it.
const ROUGH: u64 = 10;

type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;

pub(crate) struct Inner<K, V, S> {
    pub(crate) cells: Cells<K, V, S>,
    pub(crate) hasher: S,
    pub(crate) budget: Budget,
    pub(crate) time: Time,
    pub(crate) listener: Listener<K, V>,
    pub(crate) options: Options<K, V>,
    pub(crate) tuning: Option<Tuning>,
    pub(crate) sleep: Sleep,
    /// Set before the shards are emptied and read under their locks, which order it: Relaxed.
    pub(crate) closed: AtomicBool,
}

pub(crate) struct Options<K, V> {
    pub(crate) name: String,
    pub(crate) time_to_live: Micros,
    pub(crate) time_to_idle: Micros,
    /// The share by which a lifetime deviates, in 2⁻³².
    pub(crate) jitter: u64,
    pub(crate) weigher: Option<Weigher<K, V>>,
    /// Whether entries have deadlines as a rule.
    pub(crate) expires: bool,
    /// Whether operations reclaim what has expired.
    pub(crate) reclaims: bool,
    /// When values are loaded anew before their deadline, and where.
    pub(crate) refresh: Option<Refresh>,
    /// By how much a deadline is put off where that failed.
    pub(crate) stale_on_error: Micros,
    /// How long failures are remembered.
    pub(crate) negative_ttl: Micros,
}

pub(crate) struct Tuning {
    /// On cache lines of its own: the other fields are read in every operation.
    tuner: CachePadded<Mutex<Tuner>>,
    sample: u64,
    /// The number of the setting. It is a hint to the shards, nothing is read through it: Relaxed.
    setting: AtomicU8,
}

/// In the order of the fields: all that a hit reads and writes is on the cache line of the lock, what
/// an insertion writes on three others. Two threads pass these lines to and fro.
#[repr(C)]
pub(crate) struct Cell<K, V, S> {
    /// Lookups that found a value.
    hits: u64,
    pub(crate) shard: Shard<K, V, S>,
    /// The earliest time at which there may be something to reclaim.
    pub(crate) due: Micros,
    /// The number of the setting that the shard has.
    setting: u8,
    pub(crate) fences: Fences,
    pub(crate) negatives: Negatives<K>,
    random: fastrand::Rng,
    pub(crate) counts: Counts,
}

/// One lock per shard, on cache lines of its own.
type Cells<K, V, S> = Box<[CachePadded<Mutex<Cell<K, V, S>>>]>;

pub(crate) type Guard<'a, K, V, S> = MutexGuard<'a, Cell<K, V, S>>;

impl Tuning {
    pub(crate) fn new(capacity: usize) -> Self {
        let tuner = Tuner::new(capacity);
        Tuning {
            sample: tuner.mask_of(),
            tuner: CachePadded::new(Mutex::new(tuner)),
            setting: AtomicU8::new(0),
        }
    }

    #[inline]
    fn accessed(&self, hash: u64) {
        if hash & self.sample == 0 {
            self.sampled(hash);
        }
    }

    #[cold]
    fn sampled(&self, hash: u64) {
        if let Some(setting) = self.tuner.lock().access(hash) {
            self.setting.store(setting as u8, Ordering::Relaxed);
        }
    }
}

impl<K, V, S> Cell<K, V, S> {
    pub(crate) fn new(shard: Shard<K, V, S>, seed: u64) -> Self {
        Cell {
            hits: 0,
            shard,
            due: NEVER,
            setting: 0,
            fences: Fences::default(),
            negatives: Negatives::default(),
            random: fastrand::Rng::with_seed(seed),
            counts: Counts::default(),
        }
    }
}

impl<K: Eq, V, S> Cell<K, V, S> {
    /// A key is changed: loads of it that are under way are not stored, and failures are forgotten.
    #[inline]
    fn pass(&mut self, hash: u64) {
        self.fences.pass(hash);
        self.negatives.forget(hash);
    }
}

/// A watch over one key that ends with it, also when the future that holds it is dropped. To be
/// dropped outside the shard's lock.
pub(crate) struct Watch<'a, K: Hash + Eq, V, S: BuildHasher> {
    inner: &'a Inner<K, V, S>,
    pub(crate) hash: u64,
    number: u64,
}

impl<K: Hash + Eq, V, S: BuildHasher> Watch<'_, K, V, S> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Drop for Watch<'_, K, V, S> {
    fn drop(&mut self) {
        self.inner.cell(self.hash).fences.leave(self.hash);
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Inner<K, V, S> {
    #[inline]
    pub(crate) fn cell(&self, hash: u64) -> Guard<'_, K, V, S> {
        self.cells[self.number(hash)].lock()
    }

    #[inline]
    fn number(&self, hash: u64) -> usize {
        // The number of shards is a power of two of up to 2¹⁰; the top bits choose.
        (hash >> 54) as usize & (self.cells.len() - 1)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// No deadline from there on has come. Where there are none as a rule it is the end of time, which
    /// costs no look at a clock.
    #[inline]
    fn horizon(&self) -> Micros {
        if self.options.expires {
            Time::horizon(self.time.about_now())
        } else {
            NEVER
        }
    }

    /// Looks a key up as a caller that wants its value: counts it, and moves what hits move.
    #[inline]
    pub(crate) fn lookup<T>(
        &self,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        found: impl FnOnce(&V) -> T,
    ) -> Option<T> {
        // Before the lock: whoever waits for it finds a value that was visible during its call.
        let horizon = self.horizon();
        let mut cell = self.cell(hash);
        let result = self.lookup_by(horizon, &mut cell, hash, is_it, found);
        drop(cell);
        self.accessed(hash);
        result
    }

    /// Tells the tuner of an access. No lock is held.
    #[inline]
    pub(crate) fn accessed(&self, hash: u64) {
        if let Some(tuning) = &self.tuning {
            tuning.accessed(hash);
        }
    }

    /// The same in a shard that is locked already.
    #[inline]
    pub(crate) fn lookup_in<T>(
        &self,
        cell: &mut Cell<K, V, S>,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        found: impl FnOnce(&V) -> T,
    ) -> Option<T> {
        self.lookup_by(self.horizon(), cell, hash, is_it, found)
    }

    /// The same with a horizon that was looked at before.
    #[inline]
    fn lookup_by<T>(
        &self,
        horizon: Micros,
        cell: &mut Cell<K, V, S>,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        found: impl FnOnce(&V) -> T,
    ) -> Option<T> {
        if let Some(position) = cell.shard.find(hash, is_it) {
            let entry = cell.shard.entry(position);
            if entry.deadline() >= horizon || !self.time.is_past(entry.deadline()) {
                let result = found(&entry.value);
                cell.hits = cell.hits.wrapping_add(1);
                cell.shard.hit(position);
                if self.options.time_to_idle != NEVER {
                    self.is_not_idle(cell, position);
                }
                return Some(result);
            }
        }
        cell.counts.misses = cell.counts.misses.wrapping_add(1);
        cell.shard.miss(hash);
        None
    }

    #[inline(never)]
    fn is_not_idle(&self, cell: &mut Cell<K, V, S>, position: usize) {
        let idle = self.time.now().saturating_add(self.options.time_to_idle);
        let deadline = cell.shard.hard(position).min(idle);
        cell.shard.set_deadline(position, deadline);
    }

    /// Looks at a visible entry without counting it.
    pub(crate) fn look<T>(
        &self,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        found: impl FnOnce(&Entry<K, V>) -> T,
    ) -> Option<T> {
        let cell = self.cell(hash);
        let position = cell.shard.find(hash, is_it)?;
        let entry = cell.shard.entry(position);
        (!self.time.is_past(entry.deadline())).then(|| found(entry))
    }

    /// Stores a value. The value comes back when the cache is closed.
    pub(crate) fn store(
        &self,
        hash: u64,
        key: K,
        value: V,
        life: Option<Duration>,
    ) -> Result<(), V> {
        let weight = self.weigh(&key, &value);
        let cell = self.cell(hash);
        let mut gone = Gone::new();
        let stored = self.store_in(cell, hash, key, value, weight, life, &mut gone);
        self.tell(gone);
        stored
    }

    /// The same, with a watch over the key from this change on.
    pub(crate) fn store_watched(
        &self,
        hash: u64,
        key: K,
        value: V,
        life: Option<Duration>,
    ) -> (Result<(), V>, Watch<'_, K, V, S>) {
        let weight = self.weigh(&key, &value);
        let mut cell = self.cell(hash);
        let watch = Watch {
            inner: self,
            hash,
            number: cell.fences.watch_from_next(hash),
        };
        let mut gone = Gone::new();
        let stored = self.store_in(cell, hash, key, value, weight, life, &mut gone);
        self.tell(gone);
        (stored, watch)
    }

    pub(crate) fn weigh(&self, key: &K, value: &V) -> u32 {
        let weigher = self.options.weigher.as_ref();
        weigher.map_or(1, |weigh| weigh(key, value))
    }

    /// Stores a value in a shard that is locked; whatever that takes out goes into `gone`.
    #[expect(clippy::too_many_arguments, reason = "the parts of an entry")]
    pub(crate) fn store_in<'a>(
        &'a self,
        mut cell: Guard<'a, K, V, S>,
        hash: u64,
        key: K,
        value: V,
        weight: u32,
        life: Option<Duration>,
        gone: &mut Gone<K, V>,
    ) -> Result<(), V> {
        if self.is_closed() {
            return Err(value);
        }
        cell.pass(hash);
        let about = if self.options.expires || cell.due != NEVER {
            self.time.about_now()
        } else {
            0
        };
        let (deadline, extra) = self.lifetime(&mut cell, about, weight, life);
        if let Some(position) = cell.shard.find(hash, |other| *other == key) {
            let cause = if self.time.is_past(cell.shard.entry(position).deadline()) {
                Cause::Expired
            } else {
                Cause::Replaced
            };
            // The old value goes with the key that has just come: they are equal.
            let old_weight = cell.shard.weight(position);
            let fits = weight <= old_weight
                || self
                    .budget
                    .reserve(u64::from(weight) - u64::from(old_weight));
            if !fits || life == Some(Duration::ZERO) {
                let removed = cell.shard.remove(position);
                self.budget.release(u64::from(removed.weight));
                self.leaves(&mut cell, removed, cause, gone);
            } else {
                self.budget
                    .release(u64::from(old_weight).saturating_sub(u64::from(weight)));
                let old_deadline = cell.shard.entry(position).deadline();
                let (value, weight) = cell.shard.update(position, value, deadline, extra);
                cell.shard.hit(position);
                let removed = Removed::new(key, value, old_deadline, weight);
                self.leaves(&mut cell, removed, cause, gone);
                self.has_stored(&mut cell, about, deadline, gone);
                return Ok(());
            }
        }
        let removed = |key, value| Removed::new(key, value, deadline, weight);
        if life == Some(Duration::ZERO) {
            self.leaves(&mut cell, removed(key, value), Cause::Expired, gone);
            return Ok(());
        }
        let needed = u64::from(weight);
        if needed > self.budget.capacity() {
            self.leaves(&mut cell, removed(key, value), Cause::Evicted, gone);
            return Ok(());
        }
        self.insert(cell, about, hash, key, value, deadline, extra, gone);
        Ok(())
    }

    /// Finds room for a key that is not in its shard, and puts it there.
    #[expect(clippy::too_many_arguments, reason = "the parts of an entry")]
    fn insert<'a>(
        &'a self,
        mut cell: Guard<'a, K, V, S>,
        about: Micros,
        hash: u64,
        key: K,
        value: V,
        deadline: Micros,
        extra: Extra,
        gone: &mut Gone<K, V>,
    ) {
        let needed = u64::from(extra.weight);
        let horizon = Time::horizon(about);
        let mut credit = 0;
        if self.budget.reserve(needed) {
            credit = needed;
        } else if cell.due <= about {
            // What has expired goes first.
            self.reclaim(&mut cell, gone);
        }
        if let Some(tuning) = &self.tuning {
            let setting = tuning.setting.load(Ordering::Relaxed);
            if cell.setting != setting {
                cell.setting = setting;
                cell.shard.set(SETTINGS[usize::from(setting)]);
            }
        }
        loop {
            if credit < needed && self.budget.reserve(needed - credit) {
                credit = needed;
            }
            if credit >= needed && !cell.shard.is_exhausted() {
                cell.shard.push(hash, key, value, deadline, extra);
                break;
            }
            let Some(victim) = cell.shard.victim() else {
                let number = self.number(hash);
                drop(cell);
                credit = self.room_elsewhere(number, credit, needed, gone);
                cell = self.cells[number].lock();
                // Whoever has looked at the key meanwhile comes before this value too.
                cell.pass(hash);
                if self.is_closed() {
                    self.budget.release(credit);
                    let removed = Removed::new(key, value, deadline, extra.weight);
                    self.leaves(&mut cell, removed, Cause::Cleared, gone);
                    return;
                }
                if let Some(position) = cell.shard.find(hash, |other| *other == key) {
                    // Another thread stored the key meanwhile: this one comes after it.
                    let removed = cell.shard.remove(position);
                    credit += u64::from(removed.weight);
                    self.leaves(&mut cell, removed, Cause::Replaced, gone);
                }
                continue;
            };
            credit += u64::from(cell.shard.weight(victim.position));
            if credit < needed {
                let removed = cell.shard.evict(victim);
                self.is_evicted(&mut cell, horizon, removed, gone);
                continue;
            }
            let removed = cell
                .shard
                .replace(victim, hash, key, value, deadline, extra);
            self.is_evicted(&mut cell, horizon, removed, gone);
            break;
        }
        if credit > needed {
            self.budget.release(credit - needed);
        }
        self.has_stored(&mut cell, about, deadline, gone);
    }

    /// Takes entries out of other shards until `credit` and what they weigh are `needed`.
    #[cold]
    fn room_elsewhere(
        &self,
        own: usize,
        mut credit: u64,
        needed: u64,
        gone: &mut Gone<K, V>,
    ) -> u64 {
        let making_room = self.budget.make_room();
        for step in 1..=self.cells.len() {
            let mut cell = self.cells[(own + step) & (self.cells.len() - 1)].lock();
            while credit < needed {
                if self.budget.reserve(needed - credit) {
                    credit = needed;
                    break;
                }
                let Some(victim) = cell.shard.victim() else {
                    break;
                };
                let removed = cell.shard.evict(victim);
                credit += u64::from(removed.weight);
                self.is_evicted(&mut cell, NEVER, removed, gone);
            }
            if credit >= needed {
                break;
            }
        }
        drop(making_room);
        credit
    }

    /// Removes a key, and gives what `take` makes of its value, if that was visible.
    pub(crate) fn remove<T>(
        &self,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        take: impl FnOnce(&V) -> T,
    ) -> Option<T> {
        let mut gone = Gone::new();
        let mut cell = self.cell(hash);
        let visible = self.remove_in(&mut cell, hash, is_it, &mut gone);
        drop(cell);
        // The value waits outside the lock for its listener: it is cloned there.
        let taken = gone.first_value().filter(|_| visible).map(take);
        self.tell(gone);
        taken
    }

    /// The same in a shard that is locked: whether there was a visible entry.
    pub(crate) fn remove_in(
        &self,
        cell: &mut Cell<K, V, S>,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
        gone: &mut Gone<K, V>,
    ) -> bool {
        cell.pass(hash);
        let Some(position) = cell.shard.find(hash, is_it) else {
            return false;
        };
        let removed = cell.shard.remove(position);
        self.budget.release(u64::from(removed.weight));
        let visible = !self.time.is_past(removed.entry.deadline());
        let cause = if visible {
            Cause::Removed
        } else {
            Cause::Expired
        };
        self.leaves(cell, removed, cause, gone);
        visible
    }

    /// Watches a key from now on.
    pub(crate) fn watch(&self, cell: &mut Cell<K, V, S>, hash: u64) -> Watch<'_, K, V, S> {
        Watch {
            inner: self,
            hash,
            number: cell.fences.watch(hash),
        }
    }

    /// Empties one shard after the other.
    pub(crate) fn clear(&self) {
        for cell in &self.cells {
            let mut gone = Gone::new();
            let mut cell = cell.lock();
            cell.fences.pass_all();
            let forgotten = cell.negatives.take();
            for removed in cell.shard.drain() {
                self.budget.release(u64::from(removed.weight));
                let cause = if self.time.is_past(removed.entry.deadline()) {
                    Cause::Expired
                } else {
                    Cause::Cleared
                };
                self.leaves(&mut cell, removed, cause, &mut gone);
            }
            cell.due = NEVER;
            drop(cell);
            drop(forgotten);
            self.tell(gone);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats {
            listener_panics: self.listener.panics(),
            ..Stats::default()
        };
        for cell in &self.cells {
            let cell = cell.lock();
            stats.hits = stats.hits.wrapping_add(cell.hits);
            cell.counts.add_to(&mut stats);
            stats.timers += cell.shard.timers() as u64;
        }
        stats.len = self.len();
        stats.weight = self.budget.used();
        stats
    }

    /// Entries. Where each weighs one, the budget knows their number at one instant.
    pub(crate) fn len(&self) -> u64 {
        if self.options.weigher.is_none() {
            return self.budget.used();
        }
        let lens = self.cells.iter().map(|cell| cell.lock().shard.len());
        lens.sum::<usize>() as u64
    }

    /// Tells the listener of what has left. No lock is held.
    #[inline]
    pub(crate) fn tell(&self, gone: Gone<K, V>) {
        // Most entries are dropped without anybody noticing.
        if self.listener.is_there() || std::mem::needs_drop::<(K, V)>() {
            self.listener.tell(gone, || self.time.now());
        }
    }

    pub(crate) fn leaves(
        &self,
        cell: &mut Cell<K, V, S>,
        removed: Removed<K, V>,
        cause: Cause,
        gone: &mut Gone<K, V>,
    ) {
        cell.counts.left(cause);
        gone.add(removed, cause);
    }

    #[inline]
    fn is_evicted(
        &self,
        cell: &mut Cell<K, V, S>,
        horizon: Micros,
        removed: Removed<K, V>,
        gone: &mut Gone<K, V>,
    ) {
        let deadline = removed.entry.deadline();
        let cause = if deadline < horizon && self.time.is_past(deadline) {
            Cause::Expired
        } else {
            Cause::Evicted
        };
        self.leaves(cell, removed, cause, gone);
    }

    /// When a value that is stored now expires, and what else is known of it.
    fn lifetime(
        &self,
        cell: &mut Cell<K, V, S>,
        about: Micros,
        weight: u32,
        life: Option<Duration>,
    ) -> (Micros, Extra) {
        let options = &self.options;
        let life = life.map_or(options.time_to_live, micros);
        let mut extra = Extra {
            weight,
            hard: NEVER,
        };
        if life == NEVER && options.time_to_idle == NEVER {
            return (NEVER, extra);
        }
        // The exact time, where that makes a difference.
        let mut now = None;
        let mut now = || *now.get_or_insert_with(|| self.time.now());
        if life != NEVER {
            let spread = ((u128::from(life) * u128::from(options.jitter)) >> 32) as u64;
            // A value is not to be old when it comes.
            let most = options.refresh.as_ref().map_or(spread, |one| one.age / 2);
            let spread = spread.min(most);
            let lag = self.time.lag();
            extra.hard = if self.options.expires && spread > ROUGH * lag {
                // The coarse time is enough for a deadline that is drawn from where all that it may be
                // behind makes no difference to the bounds.
                let random = lag + random(&mut cell.random, 2 * spread - lag);
                about.saturating_add(life - spread + random).min(NEVER)
            } else {
                let random = random(&mut cell.random, 2 * spread);
                now().saturating_add(life - spread + random).min(NEVER)
            };
        }
        let idle = if options.time_to_idle == NEVER {
            NEVER
        } else {
            now().saturating_add(options.time_to_idle)
        };
        (extra.hard.min(idle), extra)
    }
}

/// A number up to `most`, less than 2⁶⁴ − 1. Not quite uniform: some are more likely by a share of
/// `most` in 2⁶⁴.
#[inline]
fn random(random: &mut fastrand::Rng, most: u64) -> u64 {
    ((u128::from(random.u64(..)) * (u128::from(most) + 1)) >> 64) as u64
}
