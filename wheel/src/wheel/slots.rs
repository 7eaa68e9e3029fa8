//! All entries of a wheel: the levels' slots, and the far store behind them.
//!
//! # Invariants
//! - I6: a slot is marked as occupied exactly when it is not empty, and a slot
//!   of the far store is never empty.
//! - I7: an entry is in the slot of its tick as seen from the hand; its tick is
//!   after the hand and, in the levels, has the hand's upper half; in the far
//!   store it has a greater one, which is the key.

use std::collections::BTreeMap;
use std::ops::Range;

use super::chain::{Buffer, Chains, Entry, Slot, entry, filed_of};
use super::levels::{First, Levels, NEAR_BITS};

/// Where the next thing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A slot of one tick.
    Tick { slot: usize, tick: u64 },
    /// A slot of a coarser level, and the first tick of its span.
    Span { slot: usize, start: u64 },
    /// A part of the far store, and the first tick of its span.
    Far { high: u32, start: u64 },
}

#[derive(Debug)]
pub(super) struct Slots {
    levels: Levels,
    slots: Box<[Slot]>,
    chains: Chains,
    /// By the upper half of the tick.
    far: BTreeMap<u32, Slot>,
    /// What comes next, if it was looked for since a slot was last emptied or
    /// filled.
    known: Option<Next>,
}

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        let levels = Levels::new(slots);
        Self {
            slots: vec![Slot::default(); levels.slots()].into_boxed_slice(),
            levels,
            chains: Chains::new(),
            far: BTreeMap::new(),
            known: None,
        }
    }

    /// The same slots without an entry.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.levels.ring())
    }

    pub(super) fn ring(&self) -> usize {
        self.levels.ring()
    }

    /// Files a node under a tick that is not before the hand.
    #[inline]
    pub(super) fn file(&mut self, hand: u64, tick: u64, index: u32) {
        let entry = entry(tick as u32, index);
        if (hand ^ tick) >> NEAR_BITS == 0 {
            self.push(self.levels.slot_of(hand, tick), entry);
        } else {
            self.push_far((tick >> NEAR_BITS) as u32, entry);
        }
    }

    /// Loads where `file` would write, so that its cache miss overlaps others.
    #[inline]
    pub(super) fn touch_end(&self, hand: u64, tick: u64) -> u32 {
        if (hand ^ tick) >> NEAR_BITS == 0 {
            self.chains
                .touch_end(self.slots[self.levels.slot_of(hand, tick)])
        } else {
            0
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, slot: usize, entry: Entry) {
        if self.chains.push(&mut self.slots[slot], entry) {
            self.mark(slot);
        }
    }

    #[inline(never)]
    fn mark(&mut self, slot: usize) {
        self.known = None;
        self.levels.mark(slot);
    }

    #[inline(never)]
    pub(super) fn push_far(&mut self, high: u32, entry: Entry) {
        self.known = None;
        let slot = self.far.entry(high).or_default();
        self.chains.push(slot, entry);
    }

    /// What comes first after the hand.
    #[inline]
    pub(super) fn next(&mut self, hand: u64) -> Option<Next> {
        if self.known.is_none() {
            self.known = self.search(hand);
        }
        self.known
    }

    fn search(&self, hand: u64) -> Option<Next> {
        match self.levels.first(hand) {
            Some(First {
                slot,
                start,
                exact: true,
            }) => Some(Next::Tick { slot, tick: start }),
            Some(First { slot, start, .. }) => Some(Next::Span { slot, start }),
            None => self.far.first_key_value().map(|(&high, _)| Next::Far {
                high,
                start: u64::from(high) << NEAR_BITS,
            }),
        }
    }

    /// Detaches the chain of a slot; its entries come by [`Slots::take_chunk`].
    #[inline]
    pub(super) fn take(&mut self, slot: usize) -> Slot {
        self.known = None;
        self.levels.unmark(slot);
        std::mem::take(&mut self.slots[slot])
    }

    /// Copies the entries of a span that has begun to the slots of finer levels;
    /// returns their number.
    #[inline(never)]
    pub(super) fn cascade(&mut self, slot: usize, hand: u64) -> u64 {
        let chain = self.take(slot);
        if self.levels.is_next_to_ring(slot) {
            let ring = self.levels.ring() - 1;
            return self.distribute(chain, |_, filed| filed as usize & ring);
        }
        let upper = hand >> NEAR_BITS << NEAR_BITS;
        self.distribute(chain, |levels, filed| {
            levels.slot_of(hand, upper | u64::from(filed))
        })
    }

    /// As [`Slots::cascade`] for a part of the far store.
    #[inline(never)]
    pub(super) fn cascade_far(&mut self, high: u32, hand: u64) -> u64 {
        self.known = None;
        let chain = self.far.remove(&high).unwrap_or_default();
        self.distribute(chain, |levels, filed| {
            levels.slot_of(hand, hand | u64::from(filed))
        })
    }

    #[inline]
    fn distribute(&mut self, mut chain: Slot, slot: impl Fn(&Levels, u32) -> usize) -> u64 {
        let mut buffer = [0; _];
        let mut copied = 0;
        loop {
            let range = self.chains.take_chunk(&mut chain, &mut buffer);
            if range.is_empty() {
                return copied;
            }
            copied += range.len() as u64;
            for &entry in &buffer[range] {
                let slot = slot(&self.levels, filed_of(entry));
                self.push(slot, entry);
            }
        }
    }

    /// Copies a chunk of a detached chain to `buffer` and returns where in it the
    /// entries are; nowhere at the end of the chain.
    #[inline]
    pub(super) fn take_chunk(&mut self, chain: &mut Slot, buffer: &mut Buffer) -> Range<usize> {
        self.chains.take_chunk(chain, buffer)
    }

    /// The entry with the least tick of what [`Slots::next`] gave, made cheap
    /// to find from then on.
    pub(super) fn least(&mut self, next: Next) -> Option<Entry> {
        let slot = match next {
            Next::Tick { slot, .. } => return self.chains.front(self.slots[slot]),
            Next::Span { slot, .. } => &mut self.slots[slot],
            Next::Far { high, .. } => self.far.get_mut(&high)?,
        };
        self.chains.make_heap(slot);
        self.chains.front(*slot)
    }

    /// Takes out the entry that [`Slots::least`] gave.
    pub(super) fn pop_least(&mut self, next: Next) {
        match next {
            Next::Tick { slot, .. } | Next::Span { slot, .. } => {
                self.chains.pop_front(&mut self.slots[slot]);
                if self.slots[slot].is_empty() {
                    self.known = None;
                    self.levels.unmark(slot);
                }
            }
            Next::Far { high, .. } => {
                if let Some(slot) = self.far.get_mut(&high) {
                    self.chains.pop_front(slot);
                    if slot.is_empty() {
                        self.known = None;
                        self.far.remove(&high);
                    }
                }
            }
        }
    }

    /// The first entries of what comes next, if that is a single tick.
    #[inline]
    pub(super) fn upcoming(&mut self, hand: u64) -> impl Iterator<Item = Entry> {
        let slot = match self.next(hand) {
            Some(Next::Tick { slot, .. }) => self.slots[slot],
            _ => Slot::default(),
        };
        self.chains.first_entries(slot)
    }

    /// Calls `f` with all entries, some at a time, and their place: the slot, or
    /// the upper half of the tick.
    pub(super) fn for_each(&self, mut f: impl FnMut(Result<usize, u32>, &[Entry])) {
        for (number, &slot) in self.slots.iter().enumerate() {
            self.chains.for_each(slot, |entries| f(Ok(number), entries));
        }
        for (&high, &slot) in &self.far {
            self.chains.for_each(slot, |entries| f(Err(high), entries));
        }
    }

    /// Checks I4 to I7, calling `f` with the tick of every entry.
    pub(super) fn validate(&self, hand: u64, mut f: impl FnMut(u64, Entry)) {
        let all = self.slots.iter().chain(self.far.values()).copied();
        self.chains.validate(all);
        assert!(
            self.known.is_none() || self.known == self.search(hand),
            "I6: {:?} is not what comes next",
            self.known
        );
        for (number, slot) in self.slots.iter().enumerate() {
            assert_eq!(
                self.levels.is_marked(number),
                !slot.is_empty(),
                "I6: slot {number}"
            );
        }
        assert!(
            self.far.values().all(|slot| !slot.is_empty()),
            "I6: an empty far slot"
        );
        let mut check = |place, entry| {
            let low = entry >> 32;
            let tick = match place {
                Ok(number) => {
                    let tick = hand >> NEAR_BITS << NEAR_BITS | low;
                    assert!(tick > hand, "I7: an entry at {tick}, the hand at {hand}");
                    assert_eq!(
                        self.levels.slot_of(hand, tick),
                        number,
                        "I7: the slot of {tick} seen from {hand}"
                    );
                    tick
                }
                Err(high) => {
                    assert!(
                        u64::from(high) > hand >> NEAR_BITS,
                        "I7: {high} is near, the hand at {hand}"
                    );
                    u64::from(high) << NEAR_BITS | low
                }
            };
            f(tick, entry);
        };
        self.for_each(|place, entries| {
            for &entry in entries {
                check(place, entry);
            }
        });
    }
}
