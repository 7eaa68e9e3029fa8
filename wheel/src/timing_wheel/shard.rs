//! One shard: a channel of commands in front of an index and a wheel.
//!
//! Ground rules
//! - Anybody may put a command into the channel. Commands are taken out only under the lock, so
//!   they are applied in the order in which they went in.
//! - Whoever finds the channel full takes the lock and applies what is in it. Nobody waits for the
//!   driver.
//! - User code does not run under the lock, but for `Hash` and `Eq` of the keys, which leave the
//!   shard as it was when they panic. Replaced and removed pairs are put into `trash`, which the
//!   holder of the lock takes along and drops later.
//!
//! Invariants
//! - I1: a key is in the index exactly when its node is live in the wheel.
//! - I2: `next` is at most the earliest deadline in the wheel and among the late (it is exact after
//!   `fire` and `refresh`, and only lowered in between).
//! - I3: `queued` is at most the earliest deadline of a command in the channel whose sender has
//!   returned from `send`. A sender puts the command in first and lowers `queued` then; whoever
//!   empties the channel raises `queued` first and takes commands then. So a command that stays
//!   behind was sent after the raise, and its sender lowers `queued` after that.
//! - I4: once `closed` is set, the channel is full of [`Command::Closed`] for ever: every send
//!   fails, and its sender finds `closed` under the lock. So a command is in the wheel by the end
//!   of `close`, or its sender gets it back; and the fast path need not look at any flag.
//! - I5: the node of a late timer is in the wheel under `NEVER`, which never comes due there. When
//!   anything is late, it is due before all else that the wheel holds.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_utils::CachePadded;

use crate::drive::ticks::NEVER;
use crate::sync::{Channel, Mutex, MutexGuard, Word};
use crate::wheel::Wheel;

use super::index::Index;
use super::late::Late;

/// How many look-ups are under way at once while a batch is applied.
const STAGE: usize = 32;

/// What callers ask of a shard. `hash` is the half of the key's hash that the index looks at.
#[derive(Debug)]
pub(crate) enum Command<K, V> {
    Set {
        hash: u32,
        tick: u64,
        key: K,
        value: V,
    },
    Move {
        hash: u32,
        tick: u64,
        key: K,
    },
    Remove {
        hash: u32,
        key: K,
    },
    Closed,
}

impl<K, V> Command<K, V> {
    fn hash(&self) -> u32 {
        match self {
            Command::Set { hash, .. }
            | Command::Move { hash, .. }
            | Command::Remove { hash, .. } => *hash,
            Command::Closed => 0,
        }
    }

    /// The key of a move or a removal that comes back.
    pub(crate) fn into_key(self) -> K {
        match self {
            Command::Set { key, .. } | Command::Move { key, .. } | Command::Remove { key, .. } => {
                key
            }
            Command::Closed => unreachable!("only commands of callers come back"),
        }
    }
}

/// A pair that has come due, or was taken out before.
#[derive(Debug)]
pub(crate) struct Pair<K, V> {
    /// The tick at which it fires.
    pub(crate) tick: u64,
    pub(crate) key: K,
    pub(crate) value: V,
}

/// What was taken out of a shard and is to be dropped outside the lock.
#[derive(Debug)]
pub(crate) enum Trash<K, V> {
    Pair(K, V),
    Key(K),
    /// What the panic of a key carried.
    #[expect(dead_code, reason = "kept only to be dropped where user code may run")]
    Payload(Box<dyn Any + Send>),
}

/// How often each thing happened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) set: u64,
    pub(crate) moved: u64,
    pub(crate) removed: u64,
    pub(crate) replaced: u64,
    /// Values of sets whose key panicked.
    pub(crate) dropped: u64,
    /// Panics of keys while commands were applied.
    pub(crate) panicked: u64,
}

#[derive(Debug)]
pub(crate) struct Shard<K, V> {
    channel: Channel<Command<K, V>>,
    capacity: usize,
    /// Apart from what every send reads and nobody writes.
    earliest: CachePadded<Earliest>,
    state: CachePadded<Mutex<State<K, V>>>,
}

/// The deadlines that a driver about to sleep looks at.
#[derive(Debug)]
struct Earliest {
    /// I3.
    queued: Word,
    /// I2.
    next: Word,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct State<K, V> {
    pub(crate) wheel: Wheel<(K, V)>,
    pub(crate) index: Index,
    late: Late,
    /// Time is what the user says, so a tick that the wheel has passed will not come again: nothing is
    /// late, and what is set for such a tick counts for the next.
    pub(crate) turned_by_hand: bool,
    pub(crate) closed: bool,
    pub(crate) trash: Vec<Trash<K, V>>,
    pub(crate) counts: Counts,
    /// How many of the live timers the wheel-wide count knows of.
    pub(crate) counted: usize,
    batch: Vec<Command<K, V>>,
}

impl<K, V> Shard<K, V> {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock()
    }
}

impl<K: Eq, V> Shard<K, V> {
    pub(crate) fn new(capacity: usize, wheel: Wheel<(K, V)>) -> Self {
        Shard {
            channel: Channel::bounded(capacity),
            capacity,
            earliest: CachePadded::new(Earliest {
                queued: Word::new(NEVER),
                next: Word::new(NEVER),
            }),
            state: CachePadded::new(Mutex::new(State {
                wheel,
                index: Index::default(),
                late: Late::default(),
                turned_by_hand: false,
                closed: false,
                trash: Vec::new(),
                counts: Counts::default(),
                counted: 0,
                batch: Vec::new(),
            })),
        }
    }

    /// Puts a command that makes something due at `tick` into the channel, or gives it back when
    /// the channel is full (perhaps because the shard is closed).
    #[inline]
    pub(crate) fn send(&self, command: Command<K, V>, tick: u64) -> Result<(), Command<K, V>> {
        self.channel.try_send(command)?;
        self.lower_queued(tick);
        Ok(())
    }

    /// The second half of I3.
    #[inline]
    pub(crate) fn lower_queued(&self, tick: u64) {
        // The other sides are the store in `apply_channel` (I3) and the driver's look at the shards
        // before it sleeps (alarm.rs).
        if tick < self.earliest.queued.load() {
            self.earliest.queued.fetch_min(tick);
        }
    }

    /// The earliest tick at which the shard may have something to do.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        // Step 4 of alarm.rs.
        self.earliest.queued.load().min(self.earliest.next.load())
    }

    /// Whether commands wait in the channel.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        !self.channel.is_empty()
    }

    /// How many commands wait in the channel. While the lock is held it only grows.
    pub(crate) fn commands(&self) -> usize {
        self.channel.len()
    }

    /// Applies every command sent before this call. At most a channel full: those that come
    /// meanwhile are somebody else's.
    pub(crate) fn apply_channel(&self, state: &mut State<K, V>) {
        if state.closed || (self.earliest.queued.load() == NEVER && !self.has_commands()) {
            return;
        }
        // I3: raised before the first command is taken. Also when the channel is empty: a sender
        // whose command was taken before it lowered `queued` leaves a deadline without a command.
        self.earliest.queued.store(NEVER);
        self.apply_first(state, self.capacity);
    }

    /// Applies the first commands of the channel, `left` at most. I3 holds whether `queued` was
    /// raised before or not: then it is lower than it need be.
    pub(crate) fn apply_first(&self, state: &mut State<K, V>, mut left: usize) {
        let mut batch = mem::take(&mut state.batch);
        while left > 0 {
            while batch.len() < STAGE.min(left)
                && let Some(command) = self.channel.try_recv()
            {
                batch.push(command);
            }
            let taken = batch.len();
            if taken == 0 {
                break;
            }
            left -= taken;
            state.overlap_misses(&batch);
            let mut commands = batch.drain(..);
            while commands.len() > 0 {
                self.apply_contained(state, &mut commands);
            }
            drop(commands);
            if taken < STAGE {
                break;
            }
        }
        state.batch = batch;
    }

    /// Applies commands to the last, or to the first whose key panics: that one is dropped, and its
    /// value counted if it had one.
    fn apply_contained(
        &self,
        state: &mut State<K, V>,
        commands: &mut impl Iterator<Item = Command<K, V>>,
    ) {
        let mut sets = false;
        let applied = catch_unwind(AssertUnwindSafe(|| {
            for command in commands {
                sets = matches!(command, Command::Set { .. });
                self.apply(state, command);
            }
        }));
        if let Err(payload) = applied {
            state.counts.set += u64::from(sets);
            state.counts.dropped += u64::from(sets);
            state.counts.panicked += 1;
            state.trash.push(Trash::Payload(payload));
        }
    }

    /// Applies one command; the caller has applied the channel before and holds the lock.
    pub(crate) fn apply(&self, state: &mut State<K, V>, command: Command<K, V>) {
        let tick = match command {
            Command::Set {
                hash,
                tick,
                key,
                value,
            } => {
                state.set(hash, tick, key, value);
                tick
            }
            Command::Move { hash, tick, key } => {
                let tick = if state.reschedule(hash, &key, tick) {
                    tick
                } else {
                    NEVER
                };
                state.discard(Trash::Key(key));
                tick
            }
            Command::Remove { hash, key } => {
                if let Some((old_key, value)) = state.take(hash, |k| *k == key) {
                    state.discard(Trash::Pair(old_key, value));
                }
                state.discard(Trash::Key(key));
                NEVER
            }
            Command::Closed => NEVER,
        };
        self.lower_next(tick);
    }

    /// Keeps I2 after something was made due at `tick`. Under the lock.
    #[inline]
    pub(crate) fn lower_next(&self, tick: u64) {
        // Step 1 of alarm.rs. Written only under the lock, so load and store are one step.
        if tick < self.earliest.next.load() {
            self.earliest.next.store(tick);
        }
    }

    /// Makes I2 exact. Under the lock, so it hides no deadline that somebody else has just lowered
    /// `next` to: that deadline is in the wheel.
    pub(crate) fn refresh(&self, state: &mut State<K, V>) -> u64 {
        let next = state.wheel.next_due().unwrap_or(NEVER);
        let next = state.late.first().map_or(next, |late| late.min(next));
        self.earliest.next.store(next);
        next
    }

    /// Takes at most `limit` pairs that are due at `tick`, in order, and says whether that was all.
    pub(crate) fn fire(
        &self,
        state: &mut State<K, V>,
        tick: u64,
        limit: usize,
        hash: impl Fn(&K) -> Option<u32>,
        due: &mut Vec<Pair<K, V>>,
    ) -> bool {
        let first = due.len();
        if !state.late.is_empty() {
            state.take_late(tick, limit, &hash, due);
        }
        let mut fired = [(None, 0); STAGE];
        let mut all = false;
        while !all && due.len() - first < limit {
            let start = due.len();
            let stage = STAGE.min(limit - (start - first));
            while due.len() - start < stage {
                let Some((node, deadline, (key, value))) = state.wheel.pop_raw(tick) else {
                    all = true;
                    break;
                };
                fired[due.len() - start] = (hash(&key), node);
                due.push(Pair {
                    tick: deadline,
                    key,
                    value,
                });
            }
            let fired = &fired[..due.len() - start];
            // Every bucket is looked at first, so that their misses overlap.
            let mut loaded = 0;
            for hash in fired.iter().filter_map(|(hash, _)| *hash) {
                loaded ^= state.index.candidate(hash).unwrap_or(0);
            }
            std::hint::black_box(loaded);
            for (hash, node) in fired {
                // I1; the node is free by now, its number names the bucket.
                state.index.forget(*hash, *node);
            }
        }
        if all {
            self.refresh(state);
        }
        all
    }

    /// Refuses everything from now on, see I4. What was sent before is in the wheel afterwards.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        // The ring is full at the start of each round. A round that takes out nothing but fillers
        // and puts each of them back has seen every place, and no sender got in between. A sender
        // spoils two rounds at most: when its next send fails it waits for the lock, or finds the
        // wheel stopping.
        let mut clean = false;
        while !clean {
            while self.channel.try_send(Command::Closed).is_ok() {}
            clean = true;
            for _ in 0..self.capacity {
                match self.channel.try_recv() {
                    Some(Command::Closed) => {}
                    Some(command) => {
                        clean = false;
                        self.apply(&mut state, command);
                    }
                    None => clean = false,
                }
                clean &= self.channel.try_send(Command::Closed).is_ok();
            }
        }
        state.closed = true;
    }
}

impl<K: Eq, V> State<K, V> {
    /// Loads what the batch will touch, so that the cache misses of its commands overlap instead
    /// of following one another: first the buckets, then the nodes, and the slots of new timers.
    fn overlap_misses(&self, batch: &[Command<K, V>]) {
        let mut nodes = [None; STAGE];
        for (node, command) in nodes.iter_mut().zip(batch) {
            *node = self.index.candidate(command.hash());
        }
        let mut loaded = 0;
        for (node, command) in nodes.iter().zip(batch) {
            loaded ^= match (node, command) {
                (Some(node), _) => self.wheel.touch_raw(*node),
                (None, Command::Set { tick, .. }) => self.wheel.touch_slot_raw(*tick),
                (None, _) => 0,
            };
        }
        std::hint::black_box(loaded);
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, is_key: impl Fn(&K) -> bool) -> Option<u32> {
        self.index
            .find(hash, |node| is_key(&self.wheel.value_raw(node).0))
    }

    fn set(&mut self, hash: u32, tick: u64, key: K, value: V) {
        let node = self.find(hash, |k| *k == key);
        self.counts.set += 1;
        match node {
            Some(node) => {
                let value = self.replace(node, tick, value);
                self.discard(Trash::Pair(key, value));
            }
            None => self.insert(hash, tick, key, value),
        }
    }

    /// Sets a key that is not there.
    pub(crate) fn insert(&mut self, hash: u32, tick: u64, key: K, value: V) {
        if self.has_passed(tick) {
            return self.insert_late(hash, tick, key, value);
        }
        let node = self.wheel.insert_raw(tick, (key, value));
        self.index.insert(hash, node);
    }

    #[cold]
    fn insert_late(&mut self, hash: u32, tick: u64, key: K, value: V) {
        let node = self.wheel.insert_raw(NEVER, (key, value));
        self.index.insert(hash, node);
        self.late.insert(tick, node);
    }

    /// Sets the value of a key that is there, and moves it.
    pub(crate) fn replace(&mut self, node: u32, tick: u64, value: V) -> V {
        self.counts.replaced += 1;
        self.file_again(node, tick);
        mem::replace(&mut self.wheel.value_raw_mut(node).1, value)
    }

    fn reschedule(&mut self, hash: u32, key: &K, tick: u64) -> bool {
        let node = self.find(hash, |k| k == key);
        if let Some(node) = node {
            self.move_node(node, tick);
        }
        node.is_some()
    }

    pub(crate) fn move_node(&mut self, node: u32, tick: u64) {
        self.counts.moved += 1;
        self.file_again(node, tick);
    }

    #[inline]
    fn file_again(&mut self, node: u32, tick: u64) {
        if !self.late.is_empty() || self.has_passed(tick) {
            self.file_late(node, tick);
        } else {
            self.wheel.reschedule_raw(node, tick);
        }
    }

    /// The same where the timer is late, or was, or others are.
    #[cold]
    fn file_late(&mut self, node: u32, tick: u64) {
        self.late.remove(node);
        if self.has_passed(tick) {
            self.wheel.reschedule_raw(node, NEVER);
            self.late.insert(tick, node);
        } else {
            self.wheel.reschedule_raw(node, tick);
        }
    }

    /// Whether what is due at `tick` has to be kept apart, since the wheel would put it off. By one tick
    /// it may: of the wheel's own tick some may be left to fire, and they come first.
    #[inline]
    fn has_passed(&self, tick: u64) -> bool {
        tick < self.wheel.tick() && !self.turned_by_hand
    }

    /// Takes the first of those that are late at `tick` out, `limit` at most.
    #[cold]
    fn take_late(
        &mut self,
        tick: u64,
        limit: usize,
        hash: impl Fn(&K) -> Option<u32>,
        due: &mut Vec<Pair<K, V>>,
    ) {
        for (tick, node) in std::iter::from_fn(|| self.late.pop(tick)).take(limit) {
            let (key, value) = self.wheel.remove_raw(node);
            self.index.forget(hash(&key), node);
            due.push(Pair { tick, key, value });
        }
    }

    /// When a timer is due.
    pub(crate) fn deadline(&self, node: u32) -> u64 {
        let late = self.late.tick(node);
        late.unwrap_or_else(|| self.wheel.deadline_raw(node))
    }

    /// Takes a timer out.
    pub(crate) fn take(&mut self, hash: u32, is_key: impl Fn(&K) -> bool) -> Option<(K, V)> {
        let wheel = &self.wheel;
        let node = self
            .index
            .remove(hash, |node| is_key(&wheel.value_raw(node).0))?;
        self.counts.removed += 1;
        if !self.late.is_empty() {
            self.late.remove(node);
        }
        Some(self.wheel.remove_raw(node))
    }

    /// Keeps what has to be dropped for a place where user code may run.
    #[inline]
    pub(crate) fn discard(&mut self, trash: Trash<K, V>) {
        if mem::needs_drop::<Trash<K, V>>() {
            self.trash.push(trash);
        }
    }

    /// Gives memory back after most timers have gone.
    pub(crate) fn compact(&mut self) {
        if self.wheel.wants_compact() {
            let (index, late) = (&mut self.index, &mut self.late);
            self.wheel.compact_raw(|new_node| {
                index.renumber(new_node);
                late.renumber(new_node);
            });
        }
    }
}

impl<K, V> State<K, V> {
    /// Takes everything out in firing order.
    pub(crate) fn drain(&mut self, into: &mut Vec<Pair<K, V>>) {
        self.index.clear();
        for (tick, node) in std::iter::from_fn(|| self.late.pop(NEVER)) {
            let (key, value) = self.wheel.remove_raw(node);
            into.push(Pair { tick, key, value });
        }
        into.extend(self.wheel.drain().map(|expired| {
            let (key, value) = expired.value;
            Pair {
                tick: expired.deadline,
                key,
                value,
            }
        }));
    }
}
