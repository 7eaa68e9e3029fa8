//! What the handles, the driver and the workers of one wheel share.
//!
//! Ground rules
//! - A thread holds the lock of one shard at most; `drain` alone holds all of them, taken in their
//!   order.
//! - Whoever locks a shard to change it does so by `open` and `finish`. In between no user code runs
//!   but `Hash` and `Eq` of keys.
//! - `State::counted` belongs to the lock of its shard: it is what the ledger knows of the shard.
//! - Threads of the wheel unwind nowhere: user code on them runs inside `contain`.

use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;

use crate::clock::{Clock, Driven};
use crate::drive::alarm::Alarm;
use crate::drive::life::{Life, OnBehalf};
use crate::drive::ticks::{NEVER, Ticks};
use crate::sync::MutexGuard;

use super::driver::BATCH;
use super::ledger::Ledger;
use super::ready::Ready;
use super::shard::{Command, Pair, Shard, State, Trash};
use super::stats::Stats;

pub(crate) struct Shared<K, V> {
    pub(crate) name: Box<str>,
    pub(crate) shards: Box<[CachePadded<Shard<K, V>>]>,
    /// Due pairs; which lane a pair waits in is the executor's choice.
    pub(crate) lanes: Box<[Ready<K, V>]>,
    pub(crate) alarm: Alarm,
    pub(crate) ticks: Ticks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) life: Life,
    hasher: RandomState,
    pub(crate) ledger: Ledger,
}

/// What a [`Shared`] is made from.
pub(crate) struct Parts<K, V> {
    pub(crate) name: Box<str>,
    pub(crate) shards: Vec<Shard<K, V>>,
    pub(crate) channel: usize,
    pub(crate) lanes: usize,
    pub(crate) alarm: Alarm,
    pub(crate) interval: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) max_pending: usize,
}

impl<K, V> Shared<K, V> {
    pub(crate) fn new(parts: Parts<K, V>) -> Self {
        let slack = parts.shards.len().saturating_mul(parts.channel + BATCH);
        let ledger = Ledger::new(&parts.name, parts.max_pending, slack);
        Shared {
            name: parts.name,
            shards: parts.shards.into_iter().map(CachePadded::new).collect(),
            lanes: (0..parts.lanes).map(|_| Ready::new()).collect(),
            alarm: parts.alarm,
            ticks: Ticks::new(parts.clock.now(), parts.interval),
            clock: parts.clock,
            life: Life::new(),
            hasher: RandomState::default(),
            ledger,
        }
    }

    /// A pair's callback is about to begin: from here on it is not pending but fired.
    pub(crate) fn begun(&self, pair: &Pair<K, V>, now: Instant) {
        self.ledger.begun(self.lateness(pair, now));
    }

    /// How long after its tick a pair begins at `now`.
    #[inline]
    pub(crate) fn lateness(&self, pair: &Pair<K, V>, now: Instant) -> Duration {
        let due = self.ticks.instant(pair.tick).unwrap_or(now);
        now.saturating_duration_since(due)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.life.is_stopping()
    }

    /// The clock's instant, or that of the wheel's start if the clock panics.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let mut now = self.ticks.start();
        self.contain("clock", || now = self.clock.now());
        now
    }

    /// Runs user code; a panic in it is counted and goes no further. Returns whether it ended well.
    pub(crate) fn contain(&self, what: &str, user_code: impl FnOnce()) -> bool {
        let Err(payload) = catch_unwind(AssertUnwindSafe(user_code)) else {
            return true;
        };
        self.ledger.panicked();
        #[cfg(feature = "tracing")]
        {
            let message = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("(not a string)");
            tracing::error!(wheel = %self.name, what, message, "panic contained");
        }
        #[cfg(not(feature = "tracing"))]
        let _ = what;
        // The payload is user code too, and its own panic would be the end of the thread.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(payload);
        }
        false
    }

    /// Wakes the reader of a stream, if it waits.
    pub(crate) fn wake(&self, reader: Option<Waker>) {
        if let Some(reader) = reader {
            self.contain("waker", || reader.wake());
        }
    }

    /// Drops what was taken out of a shard. Not under a lock.
    fn dispose(&self, trash: Vec<Trash<K, V>>) {
        for item in trash {
            self.contain("drop of a key or value", || drop(item));
        }
    }

    /// Marks this thread as one of the wheel's.
    pub(crate) fn enter(&self) -> OnBehalf {
        OnBehalf::of(self.id())
    }

    /// Whether this thread is one of the wheel's.
    pub(crate) fn on_wheel_thread(&self) -> bool {
        OnBehalf::is(self.id())
    }

    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<K: Eq, V> Shared<K, V> {
    /// Locks a shard and applies its commands; `None` when it is closed.
    pub(crate) fn open<'a>(&self, shard: &'a Shard<K, V>) -> Option<MutexGuard<'a, State<K, V>>> {
        let mut state = shard.lock();
        if state.closed {
            return None;
        }
        shard.apply_channel(&mut state);
        Some(state)
    }

    /// Ends what [`open`](Self::open) began: accounts for it, unlocks, drops what was taken out,
    /// and wakes the driver if something is due before it would wake.
    pub(crate) fn finish(&self, shard: &Shard<K, V>, mut state: MutexGuard<'_, State<K, V>>) {
        let trash = self.settle(&mut state);
        drop(state);
        self.alarm.ring(shard.earliest());
        self.dispose(trash);
    }

    /// Accounts for what was done under the lock, and takes along what is to be dropped after it.
    fn settle(&self, state: &mut State<K, V>) -> Vec<Trash<K, V>> {
        state.compact();
        self.account(state);
        mem::take(&mut state.trash)
    }

    /// Brings the ledger up to date with the shard.
    pub(crate) fn account(&self, state: &mut State<K, V>) {
        let live = state.index.len();
        let counted = mem::replace(&mut state.counted, live);
        self.ledger.account(counted, live);
    }

    /// Applies every command sent before. Each lock is taken, also where the channel is empty:
    /// somebody may be applying what was in it.
    pub(crate) fn flush(&self) {
        for shard in &self.shards {
            if let Some(state) = self.open(shard) {
                self.finish(shard, state);
            }
        }
    }

    /// A lower bound of the earliest deadline, commands in the channels included.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        let earliest = self.shards.iter().map(|shard| shard.earliest());
        earliest.min().unwrap_or(NEVER)
    }

    /// The tick of the earliest deadline, exactly, or [`NEVER`], also when stopped. Applies the
    /// commands of the shards that may have it.
    pub(crate) fn next_tick(&self) -> u64 {
        let mut bound = self.earliest();
        loop {
            let mut exact = NEVER;
            for shard in self.shards.iter().filter(|shard| shard.earliest() <= bound) {
                if let Some(mut state) = self.open(shard) {
                    exact = exact.min(shard.refresh(&mut state));
                    self.finish(shard, state);
                }
            }
            let lowest = self.earliest();
            if self.is_stopping() {
                return NEVER;
            }
            if exact <= lowest || lowest == NEVER {
                return exact.min(lowest);
            }
            bound = lowest;
        }
    }

    /// Ticks: applies what is in the channels and takes the pairs due at `tick`, at most `batch` of
    /// each shard and `room` of all.
    pub(crate) fn fire(&self, tick: u64, batch: usize, room: usize, due: &mut Vec<Pair<K, V>>)
    where
        K: Hash,
    {
        for shard in &self.shards {
            if shard.earliest() > tick && !shard.has_commands() {
                continue;
            }
            let before = due.len();
            let limit = batch.min(room.saturating_sub(before));
            if limit == 0 {
                return;
            }
            if let Some(mut state) = self.open(shard) {
                self.account(&mut state);
                shard.fire(&mut state, tick, limit, |key| self.hash_contained(key), due);
                // They go on being pending until their callbacks begin.
                state.counted -= due.len() - before;
                self.finish(shard, state);
            }
        }
    }

    /// Refuses everything from now on. Whoever calls it finds every shard closed afterwards, also
    /// when another call has begun and is not through yet.
    pub(crate) fn close(&self) {
        let first = self.life.stop();
        for lane in &self.lanes {
            self.wake(lane.close());
        }
        for shard in &self.shards {
            shard.close();
            let trash = self.settle(&mut shard.lock());
            self.dispose(trash);
        }
        self.alarm.wake();
        if first {
            #[cfg(feature = "tracing")]
            tracing::debug!(wheel = %self.name, "timing wheel stops");
        }
    }

    /// Everything whose callback has not begun, in firing order, for the first caller, who ends the
    /// collection when the threads have ended; later ones wait for that and get `None`. Closed
    /// before; not on a thread of the wheel.
    pub(crate) fn collect(&self) -> Option<Vec<(K, V)>> {
        if !self.life.begin_collection() {
            return None;
        }
        self.life.wait_for_driver();
        let left = self.take_rest();
        self.ledger.returned(left.len());
        let left = left.into_iter().map(|pair| (pair.key, pair.value));
        Some(left.collect())
    }

    /// Hands every pending pair to `f`; `None` when closed.
    pub(crate) fn drain(&self, mut f: impl FnMut(K, V)) -> Option<usize> {
        let mut pairs = Vec::new();
        let mut trash = Vec::new();
        // Every shard is locked before the first is emptied. Nobody else holds two.
        let mut states = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let state = shard.lock();
            if state.closed {
                return None;
            }
            states.push(state);
        }
        let sent = self.sent_at_one_instant();
        for ((shard, state), sent) in self.shards.iter().zip(&mut states).zip(sent) {
            shard.apply_first(state, sent);
            state.drain(&mut pairs);
            shard.refresh(state);
            trash.extend(self.settle(state));
        }
        drop(states);
        self.dispose(trash);
        pairs.sort_by_key(|pair| pair.tick);
        let count = pairs.len();
        let mut rest = Rest {
            shared: self,
            pairs: pairs.into_iter(),
        };
        for pair in rest.pairs.by_ref() {
            self.ledger.drained();
            f(pair.key, pair.value);
        }
        Some(count)
    }

    /// How many commands each channel held at one instant. All shards are locked, so that the
    /// channels only grow, to their capacity at most: when none has grown between two looks at all
    /// of them, what they held at the end of the first was there at once.
    fn sent_at_one_instant(&self) -> Vec<usize> {
        let look = || -> Vec<usize> { self.shards.iter().map(|shard| shard.commands()).collect() };
        let mut seen = look();
        loop {
            let again = look();
            if again == seen {
                return seen;
            }
            seen = again;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .filter_map(|shard| self.open(shard).map(|state| (shard, state)))
            .fold(0, |sum, (shard, state)| {
                let len = state.index.len();
                self.finish(shard, state);
                sum + len
            })
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::new();
        for shard in &self.shards {
            let mut state = shard.lock();
            shard.apply_channel(&mut state);
            let (counts, wheel) = (state.counts, state.wheel.stats());
            stats.set += counts.set;
            stats.dropped += counts.dropped;
            stats.panicked += counts.panicked;
            stats.removed += counts.removed;
            stats.moved += counts.moved;
            stats.replaced += counts.replaced;
            stats.relocations += wheel.relocations;
            stats.cascades += wheel.cascades;
            stats.stale += wheel.stale;
            stats.compactions += wheel.compactions;
            if !state.closed {
                self.finish(shard, state);
            }
        }
        self.ledger.fill(&mut stats);
        stats
    }
}

impl<K, V> Shared<K, V> {
    /// Takes out what waits in the lanes and the shards, in firing order, when no callback runs any
    /// more. Closed before.
    fn take_rest(&self) -> Vec<Pair<K, V>> {
        let lanes = self.lanes.iter().flat_map(|lane| lane.take_rest());
        let mut rest: Vec<_> = lanes.collect();
        for shard in &self.shards {
            let mut state = shard.lock();
            state.drain(&mut rest);
            state.counted = 0;
        }
        // Stable: pairs of one tick stay in the order in which they were touched.
        rest.sort_by_key(|pair| pair.tick);
        rest
    }

    /// The two halves of a key's hash choose its shard and its bucket.
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The half of a key's hash that the index looks at; `None` if it panics.
    #[inline]
    fn hash_contained<Q: Hash>(&self, key: &Q) -> Option<u32> {
        let mut hash = None;
        self.contain("hash of a key", || hash = Some(self.hash(key) as u32));
        hash
    }

    /// The shard of a key, and the half of its hash that the index looks at.
    #[inline]
    pub(crate) fn place<Q: Hash + ?Sized>(&self, key: &Q) -> (&Shard<K, V>, u32) {
        let hash = self.hash(key);
        // The upper half as a fraction of 1, times the number of shards: no division.
        let shard = ((hash >> 32) * self.shards.len() as u64) >> 32;
        (&self.shards[shard as usize], hash as u32)
    }

    /// The tick by which a removal is to be applied: the next one, so that a value with something
    /// to drop does not wait for a driver that sleeps for an hour.
    #[inline]
    pub(crate) fn removal_tick(&self) -> u64 {
        if mem::needs_drop::<(K, V)>() {
            self.deadline(Duration::ZERO)
        } else {
            NEVER
        }
    }

    /// The tick of a timer that is set now.
    #[inline]
    pub(crate) fn deadline(&self, delay: Duration) -> u64 {
        self.ticks.deadline(self.clock.now(), delay)
    }
}

impl<K: Hash + Eq, V> Shared<K, V> {
    /// Sends a command, or applies the full channel and then the command; gives it back when the
    /// wheel is stopped.
    #[inline]
    pub(crate) fn submit(
        &self,
        shard: &Shard<K, V>,
        command: Command<K, V>,
        tick: u64,
    ) -> Result<(), Command<K, V>> {
        match shard.send(command, tick) {
            Ok(()) => {
                self.alarm.ring(tick);
                Ok(())
            }
            Err(command) => self.help(shard, command),
        }
    }

    /// [`submit`](Self::submit) that does not help; the flag says whether the wheel is stopped.
    pub(crate) fn try_submit(
        &self,
        shard: &Shard<K, V>,
        command: Command<K, V>,
        tick: u64,
    ) -> Result<(), (Command<K, V>, bool)> {
        // Looked at first, so that a caller who tries again and again cannot hold up `Shard::close`.
        if self.is_stopping() {
            return Err((command, true));
        }
        match shard.send(command, tick) {
            Ok(()) => {
                self.alarm.ring(tick);
                Ok(())
            }
            Err(command) => Err((command, self.is_stopping())),
        }
    }

    #[inline(never)]
    fn help(&self, shard: &Shard<K, V>, command: Command<K, V>) -> Result<(), Command<K, V>> {
        let Some(mut state) = self.open(shard) else {
            return Err(command);
        };
        shard.apply(&mut state, command);
        self.finish(shard, state);
        #[cfg(feature = "metrics")]
        self.ledger.show_pending();
        Ok(())
    }
}

impl<K: Eq + Send, V: Send> Driven for Shared<K, V> {
    fn catch_up(&self) {
        let request = self.life.request();
        self.alarm.wake();
        if !OnBehalf::any() {
            self.life.wait_until_settled(request);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.flush();
        match self.next_tick() {
            NEVER => None,
            tick => self.ticks.instant(tick),
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    /// Drops what nobody collected, because the last handle went on a thread of the wheel.
    fn drop(&mut self) {
        for pair in self.take_rest() {
            self.contain("drop of a pending pair", || drop(pair));
        }
    }
}

/// Pairs of a drain that `f` has not seen; a panic in `f` drops them.
struct Rest<'a, K, V> {
    shared: &'a Shared<K, V>,
    pairs: std::vec::IntoIter<Pair<K, V>>,
}

impl<K, V> Drop for Rest<'_, K, V> {
    fn drop(&mut self) {
        for pair in self.pairs.by_ref() {
            self.shared.ledger.dropped();
            self.shared.contain("drop of a drained pair", || drop(pair));
        }
    }
}
