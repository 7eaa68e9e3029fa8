//! The pure timing wheel: ticks, no clock, no thread.
//!
//! # Ground rules
//! - `mod.rs` is the face, `timer.rs` does to one timer what it asks for.
//!   Only `fire.rs` moves the hand, only `compact.rs` moves nodes.
//! - User code (the callback, `Drop` of a value) runs only between two
//!   operations on a consistent wheel: a value is moved out of the wheel before
//!   it is handed to the caller or dropped.
//! - The **tick** is what the user sees. The **hand** is how far the wheel has
//!   turned: it lags behind the tick while a tick is being handed out.
//!
//! A timer's **node** holds its deadline and value. An **entry** (8 bytes: the
//! node's index and the tick it was filed under) in a **slot** makes the hand
//! come across it. An entry is never searched for: removing a timer or moving
//! it earlier leaves its entry dead, to be dropped when the hand gets there or
//! when a sweep does. An entry is dead when its node is vacant, loose, or filed
//! under another tick. It does no harm that an entry which died may come to
//! match again, once its node is filed under the same tick anew: what happens
//! at a match depends on the deadline alone. The entry of the timer inserted
//! last is not in its slot yet (`file_newest`).
//!
//! Invariants: I1–I3 in `node.rs`, I4–I5 in `chain.rs`, I6–I7 in `slots.rs`, I8
//! in `moved.rs`, I9–I11 in `fire.rs`, and here:
//! - I12: `garbage` is the number of entries, the newest's included, minus the
//!   number of filed nodes.
//! - I13: no two live nodes have the same stamp, none one above `stamp`.

mod chain;
mod compact;
mod fire;
mod iter;
mod levels;
mod moved;
mod node;
mod ranks;
mod raw;
mod segments;
mod slots;
mod timer;
mod validate;

use std::fmt;

use self::moved::Moved;
use self::node::Nodes;
use self::slots::Slots;

pub use self::iter::{Drain, Iter};

/// The index of no node.
const NONE: u32 = u32::MAX;

/// Slots of a ring that was not given a number.
const DEFAULT_SLOTS: usize = 256;

/// Slots that a ring may be given at most: [`Wheel::with_slots`].
pub const MAX_SLOTS: usize = 16_777_216;

/// Names one timer of one wheel, for as long as it is pending and never again.
///
/// A key whose timer has fired or was removed does nothing, ever: it carries 64
/// bits of generation. It is meaningful only on the wheel that gave it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey {
    era: u32,
    index: u32,
    generation: u32,
}

/// A timer that has left the wheel because it came due or was drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired<T> {
    /// The key that [`Wheel::insert`] returned.
    pub key: TimerKey,
    /// The tick it was due at, as counted by the wheel.
    pub deadline: u64,
    /// What was inserted.
    pub value: T,
}

/// A number of slots that no ring can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("slots must be in 1..={MAX_SLOTS}, got {slots}")]
#[non_exhaustive]
pub struct SlotsError {
    /// The number that was asked for.
    pub slots: usize,
}

/// What a wheel has done since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelStats {
    /// Timers filed again because a move to a later deadline had left them in
    /// an earlier slot.
    pub relocations: u64,
    /// References copied from a coarser level to a finer one.
    pub cascades: u64,
    /// References dropped because their timer was gone or filed elsewhere.
    pub stale: u64,
    /// Times that dead references were swept out of all slots.
    pub sweeps: u64,
    /// Times that timers were moved together.
    pub compactions: u64,
}

/// What a timer leaves behind when it comes due.
struct Taken<T> {
    index: u32,
    generation: u32,
    deadline: u64,
    value: T,
}

/// A hierarchical timing wheel over ticks.
///
/// Unlike `tokio_util::time::DelayQueue` it knows no clock: time is the
/// argument of [`advance`](Wheel::advance). Any number of timers and any
/// deadline fit, and what happens does not depend on the number of slots.
///
/// ```
/// use wheelhouse_wheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// let tea = wheel.insert(3, "tea");
/// let eggs = wheel.insert(5, "eggs");
/// assert!(wheel.reschedule(tea, 7));
/// assert_eq!(wheel.next_deadline(), Some(5));
///
/// let mut fired = Vec::new();
/// wheel.advance(6, |_, expired| fired.push((expired.deadline, expired.value)));
/// assert_eq!(fired, [(5, "eggs")]);
///
/// assert_eq!(wheel.remove(eggs), None, "it has fired");
/// assert_eq!(wheel.remove(tea), Some("tea"));
/// ```
///
/// # Guarantees
///
/// - **G1** Never early: a timer is handed out by the first `advance(now)` with
///   `now ≥ deadline`, whatever moves came before. A deadline not after the
///   wheel's tick counts as the tick after it.
/// - **G2** Exactly once: a value leaves by exactly one of firing, removal,
///   drain, clear and drop.
/// - **G3** Order: by the tick in which it fires, then by the insertion or
///   reschedule that touched it last.
/// - **G4** [`next_deadline`](Wheel::next_deadline) is the true minimum.
/// - **G5** Any `u64` is a legal tick.
/// - **G6** Advancing over a gap costs by what expires and cascades, not by the
///   length of the gap.
/// - **G7** Once [`compact`](Wheel::compact) has run, heap bytes are at most
///   four times what the pending timers need, plus 64 KiB. It runs by itself
///   when less than a quarter of the nodes is live. A removed value is moved
///   out at once. It has two limits, below.
/// - **G8** A stale key does nothing.
///
/// # Limits of G7
///
/// Both are decisions:
///
/// - Values live in the wheel, in blocks of eight nodes, so that no node
///   straddles a cache line that it need not. With values of more than 16 KiB a
///   single block exceeds the bound; put such values in a `Box`.
/// - A key stays at 12 bytes, of which 32 bits tell eras apart; each compaction,
///   drain and clear begins one. After 2³² − 1 of them (one a millisecond lasts
///   49 days) timers no longer move. Keys stay exact (G8) and dead references
///   are still swept, but nodes, though used again, keep the memory of the most
///   timers that are pending at once from then on.
///
/// # Cost
///
/// Inserting, removing and moving are O(1), amortised over what grows, sweeps
/// and compacts: a timer moves to a *later* deadline by one store in its node,
/// and is filed again when the hand comes to its old slot. A timer is copied
/// once per level that it passes (at most four times in a ring of 256 slots or
/// more), 8 bytes each time. The key of a timer that a compaction has moved
/// takes a search for its era and one among about eight keys, O(log n) where
/// the survivors lie close together. Memory is about 40 bytes a timer for a
/// value of 8.
///
/// Do not use it where timers are few and never cancelled: a `BinaryHeap` of
/// deadlines is smaller and as fast.
///
/// # Panics
///
/// - [`insert`](Wheel::insert) at 2³² − 1 timers; the wheel is as before then.
/// - Whatever files a timer (`insert`, `reschedule`, `advance`, `pop_expired`,
///   `next_deadline`) when the references take more than 2³⁰ − 1 chunks of a
///   size, or heaps. That takes deadlines in hundreds of millions of different
///   circles of 2³² ticks, and more than 64 GiB. The wheel is not to be used
///   after that.
pub struct Wheel<T> {
    nodes: Nodes<T>,
    era: u32,
    stamp: u32,
    tick: u64,
    hand: u64,
    slots: Slots,
    /// The timer inserted last, while no slot has its entry, or `NONE`.
    newest: u32,
    /// The tick it is to be filed under.
    newest_tick: u64,
    garbage: usize,
    /// What the hand's tick has left to hand out: stamp above index, in order.
    due: Vec<u64>,
    due_next: usize,
    moved: Moved,
    stats: WheelStats,
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("tick", &self.tick)
            .field("len", &self.len())
            .field("slots", &self.slots.ring())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<T> Wheel<T> {
    /// An empty wheel at tick 0, with a ring of 256 slots.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let wheel: Wheel<&str> = Wheel::new();
    /// assert!(wheel.is_empty());
    /// assert_eq!(wheel.tick(), 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_ring(DEFAULT_SLOTS)
    }

    /// An empty wheel at tick 0, with a ring of `slots` slots, rounded up to a
    /// power of two.
    ///
    /// The ring holds one slot per tick; deadlines beyond it wait in coarser
    /// levels. The number changes only the cost: more slots mean fewer copies
    /// between levels and more cache misses. More than 4096 would only cost,
    /// so more are not allocated.
    ///
    /// ```
    /// # use wheelhouse_wheel::{MAX_SLOTS, Wheel};
    /// let mut wheel = Wheel::with_slots(1_000)?;
    /// wheel.insert(u64::MAX - 1, "any deadline fits");
    /// assert!(Wheel::<&str>::with_slots(0).is_err());
    /// assert!(Wheel::<&str>::with_slots(MAX_SLOTS + 1).is_err());
    /// # Ok::<(), wheelhouse_wheel::SlotsError>(())
    /// ```
    ///
    /// # Errors
    /// When `slots` is not in `1..=`[`MAX_SLOTS`].
    pub fn with_slots(slots: usize) -> Result<Self, SlotsError> {
        if !(1..=MAX_SLOTS).contains(&slots) {
            return Err(SlotsError { slots });
        }
        Ok(Self::with_ring(slots))
    }

    fn with_ring(slots: usize) -> Self {
        Self {
            nodes: Nodes::default(),
            era: 0,
            stamp: 0,
            tick: 0,
            hand: 0,
            slots: Slots::new(slots),
            newest: NONE,
            newest_tick: 0,
            garbage: 0,
            due: Vec::new(),
            due_next: 0,
            moved: Moved::default(),
            stats: WheelStats::default(),
        }
    }

    /// Adds a timer due at tick `deadline`, any `u64`, and returns its key.
    ///
    /// A deadline not after [`tick`](Wheel::tick) counts as the tick after it;
    /// at `u64::MAX` there is none, so the timer never fires.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let soon = wheel.insert(0, "not after tick 0");
    /// let late = wheel.insert(1_000_000, "late");
    /// assert_eq!(wheel.deadline(soon), Some(1));
    /// assert_eq!(wheel.deadline(late), Some(1_000_000));
    /// ```
    ///
    /// # Panics
    /// When 2³² − 1 timers are pending: the value is dropped, the wheel is as
    /// before. A place in memory serves 2³² timers between two compactions, and
    /// counts as taken from then on. Also at the limit of
    /// [chunks](Wheel#panics).
    #[inline]
    pub fn insert(&mut self, deadline: u64, value: T) -> TimerKey {
        let (index, generation) = self.insert_node(deadline, value);
        TimerKey {
            era: self.era,
            index,
            generation,
        }
    }

    /// Takes a timer out. `Some`: this call won, and the timer never fires.
    /// `None`: the key is stale, since it has fired, or was removed before.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(5, "lunch");
    /// assert_eq!(wheel.remove(key), Some("lunch"));
    /// assert_eq!(wheel.remove(key), None);
    /// assert_eq!(wheel.pop_expired(5), None);
    /// ```
    #[inline]
    pub fn remove(&mut self, key: TimerKey) -> Option<T> {
        if key.era != self.era {
            return self.remove_moved(key);
        }
        let removed = self.nodes.vacate_if(key.index, |node| {
            node.generation() == key.generation && node.is_live()
        });
        let value = self.removed(key.index, removed?);
        self.tidy();
        Some(value)
    }

    /// Moves a timer to tick `deadline`, counted as by [`insert`](Wheel::insert).
    /// `true`: this call won, and the timer does not fire at its old deadline.
    /// `false`: the key is stale, since it has fired, or was removed before.
    ///
    /// A move to a later deadline is one store. Any move makes the timer the
    /// last one of its tick, also when it leaves the deadline as it was.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let session = wheel.insert(30, "session");
    /// assert!(wheel.reschedule(session, 60));
    /// assert_eq!(wheel.pop_expired(59), None);
    /// assert!(wheel.pop_expired(60).is_some());
    /// assert!(!wheel.reschedule(session, 90), "it has fired");
    /// ```
    ///
    /// # Panics
    /// At the limit of [chunks](Wheel#panics).
    #[inline]
    pub fn reschedule(&mut self, key: TimerKey, deadline: u64) -> bool {
        if key.era == self.era
            && self.delay(key.index, deadline, |generation| {
                generation == key.generation
            })
        {
            return true;
        }
        self.reschedule_slowly(key.era, key.index, key.generation, deadline)
    }

    /// Makes `now` the wheel's tick and hands out every timer due by then, in
    /// order (G3). An earlier tick than the wheel's changes nothing.
    ///
    /// The callback gets the wheel back. What it inserts or moves takes part
    /// from the next `advance` on, even when already due; what it removes and
    /// has not been handed out does not fire. If it panics, what has not been
    /// handed out stays pending, and `advance` to the same tick hands it out.
    ///
    /// Costs O(1) per timer that fires or has to be filed again, and nothing
    /// for ticks without any. The k timers of a tick are sorted, O(k log k),
    /// when moves have put them out of order.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// wheel.insert(2, "beat");
    /// let mut fired = Vec::new();
    /// wheel.advance(7, |wheel, beat| {
    ///     fired.push(beat.deadline);
    ///     wheel.insert(beat.deadline + 2, beat.value); // counts as 8
    /// });
    /// assert_eq!(fired, [2]);
    /// assert_eq!(wheel.next_deadline(), Some(8));
    /// ```
    ///
    /// # Panics
    /// With the callback, and at the limit of [chunks](Wheel#panics).
    pub fn advance(&mut self, now: u64, mut expire: impl FnMut(&mut Self, Expired<T>)) {
        if !self.begin(now) {
            return;
        }
        while let Some(taken) = self.pop_due::<true>(now) {
            let expired = self.expired(taken);
            expire(self, expired);
        }
    }

    /// Makes `now` the wheel's tick and takes out the next timer due by then,
    /// in the order of [`advance`](Wheel::advance) and at its cost. `None` when
    /// there is none, or when `now` is before the wheel's tick.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(4, "due");
    /// assert_eq!(wheel.pop_expired(3), None);
    /// let expired = wheel.pop_expired(9).unwrap();
    /// assert_eq!((expired.key, expired.deadline, expired.value), (key, 4, "due"));
    /// assert_eq!(wheel.tick(), 9);
    /// ```
    ///
    /// # Panics
    /// At the limit of [chunks](Wheel#panics).
    pub fn pop_expired(&mut self, now: u64) -> Option<Expired<T>> {
        if !self.begin(now) {
            return None;
        }
        let taken = self.pop_due::<true>(now)?;
        Some(self.expired(taken))
    }

    /// The least deadline of all pending timers in ticks, exactly; `None` when
    /// there is no timer.
    ///
    /// Timers that were moved to later deadlines may have to be filed again to
    /// find it, which is why it takes `&mut self`: that is work that firing
    /// would have to do otherwise. Finding the least of a span of many ticks
    /// orders it once; so the cost is O(log n) amortised over the insertions,
    /// moves and removals since, and O(1) when there were none.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// assert_eq!(wheel.next_deadline(), None);
    /// let first = wheel.insert(5_000, 'a');
    /// wheel.insert(6_000, 'b');
    /// wheel.reschedule(first, 7_000);
    /// assert_eq!(wheel.next_deadline(), Some(6_000));
    /// ```
    ///
    /// # Panics
    /// At the limit of [chunks](Wheel#panics).
    pub fn next_deadline(&mut self) -> Option<u64> {
        self.least_deadline()
    }

    /// The value of a pending timer; `None` when the key is stale.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(8, "value");
    /// assert_eq!(wheel.get(key), Some(&"value"));
    /// wheel.clear();
    /// assert_eq!(wheel.get(key), None);
    /// ```
    #[must_use]
    pub fn get(&self, key: TimerKey) -> Option<&T> {
        self.nodes.get(self.find(key)?)?.value()
    }

    /// The value of a pending timer, to change in place; `None` when the key is
    /// stale. Deadline and order stay.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(8, 1);
    /// *wheel.get_mut(key).unwrap() += 1;
    /// assert_eq!(wheel.remove(key), Some(2));
    /// ```
    #[must_use]
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        let index = self.find(key)?;
        self.nodes.get_mut(index)?.value_mut()
    }

    /// The tick at which a pending timer is due, as counted by
    /// [`insert`](Wheel::insert); `None` when the key is stale.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// wheel.advance(10, |_, _: wheelhouse_wheel::Expired<()>| {});
    /// let key = wheel.insert(3, ());
    /// assert_eq!(wheel.deadline(key), Some(11));
    /// ```
    #[must_use]
    pub fn deadline(&self, key: TimerKey) -> Option<u64> {
        self.nodes.get(self.find(key)?)?.deadline()
    }

    /// Number of pending timers.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// wheel.insert(1, 'a');
    /// wheel.insert(2, 'b');
    /// wheel.pop_expired(1);
    /// assert_eq!(wheel.len(), 1);
    /// ```
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no timer is pending.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(1, ());
    /// wheel.remove(key);
    /// assert!(wheel.is_empty());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tick that the wheel was last advanced to; 0 at first.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::<()>::new();
    /// wheel.advance(7, |_, _| {});
    /// wheel.advance(5, |_, _| {}); // earlier: changes nothing
    /// assert_eq!(wheel.tick(), 7);
    /// ```
    #[must_use]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// What the wheel has done since it was built.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(3, ());
    /// wheel.reschedule(key, 9);
    /// wheel.advance(3, |_, _| {});
    /// assert_eq!(wheel.stats().relocations, 1);
    /// ```
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        self.stats
    }

    /// Gives back memory that the pending timers do not need (G7). Keys stay
    /// valid, and what fires when does not change.
    ///
    /// O(n) in the nodes, that is the most timers pending at once since the last
    /// compaction, and in dead references. Worth a call after a peak; an
    /// ordinary life needs none, since removing and firing compact when less
    /// than a quarter of the nodes is live.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let keys: Vec<_> = (0..500).map(|i| wheel.insert(1_000, i)).collect();
    /// keys[..200].iter().for_each(|&key| drop(wheel.remove(key)));
    /// wheel.compact();
    /// assert_eq!(wheel.get(keys[321]), Some(&321));
    /// ```
    pub fn compact(&mut self) {
        self.compact_keyed();
    }
}
