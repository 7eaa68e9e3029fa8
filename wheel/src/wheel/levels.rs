//! Which slot a tick belongs to, and which slots are occupied.
//!
//! Level 0 is the ring: one slot per tick. Each further level is 256 times as
//! coarse as the one before and has 256 slots. A tick belongs to the level of
//! the highest digit in which it differs from the hand, so a slot holds the
//! ticks of one span, all spans of a level lie ahead of the hand within one
//! turn, and the first occupied slot of the lowest occupied level is the next
//! thing to happen. Ticks whose upper halves differ belong to no level but to
//! the far store.

/// The ring that is allocated has at most this many slots: a larger one only
/// costs cache misses, since what lies beyond is one copy away in the levels.
const MAX_RING_BITS: u32 = 12;

/// Slots of each coarser level, as a power of two.
const LEVEL_BITS: u32 = 8;
const LEVEL: usize = 1 << LEVEL_BITS;

/// Ticks within reach of the levels, as a power of two.
pub(super) const NEAR_BITS: u32 = 32;

/// Levels at most: a ring of one slot and four coarser levels.
const MAX_LEVELS: usize = 5;

/// The first occupied slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    pub(super) slot: usize,
    /// The first tick of the slot's span.
    pub(super) start: u64,
    /// Whether the span is that one tick.
    pub(super) exact: bool,
}

/// The geometry of the levels and the bitmaps of occupied slots.
#[derive(Debug)]
pub(super) struct Levels {
    ring_bits: u32,
    /// Slots before the first coarser level: the ring, rounded up to a word.
    ring_slots: usize,
    levels: usize,
    words: Box<[u64]>,
    /// Bit w of a level: its word w is not zero.
    summary: [u64; MAX_LEVELS],
}

impl Levels {
    pub(super) fn new(slots: usize) -> Self {
        let ring_bits = slots.next_power_of_two().ilog2().min(MAX_RING_BITS);
        let ring_slots = (1usize << ring_bits).max(64);
        let coarse = (NEAR_BITS - ring_bits).div_ceil(LEVEL_BITS) as usize;
        let words = (ring_slots + coarse * LEVEL) / 64;
        Self {
            ring_bits,
            ring_slots,
            levels: 1 + coarse,
            words: vec![0; words].into_boxed_slice(),
            summary: [0; MAX_LEVELS],
        }
    }

    /// Number of slots of all levels.
    pub(super) fn slots(&self) -> usize {
        self.words.len() * 64
    }

    /// Slots of the ring.
    pub(super) fn ring(&self) -> usize {
        1 << self.ring_bits
    }

    /// Whether all that a slot holds belongs into the ring once its span begins.
    pub(super) fn is_next_to_ring(&self, slot: usize) -> bool {
        slot < self.ring_slots + LEVEL
    }

    /// The slot of a tick, seen from `hand`; both have the same upper half.
    #[inline]
    pub(super) fn slot_of(&self, hand: u64, tick: u64) -> usize {
        let apart = hand ^ tick;
        debug_assert_eq!(apart >> NEAR_BITS, 0);
        if apart >> self.ring_bits == 0 {
            return (tick & ((1 << self.ring_bits) - 1)) as usize;
        }
        let level = (apart.ilog2() - self.ring_bits) / LEVEL_BITS;
        let shift = self.ring_bits + level * LEVEL_BITS;
        let digit = (tick >> shift) as usize % LEVEL;
        self.ring_slots + level as usize * LEVEL + digit
    }

    /// Where a slot's word is in the summary: its level and its bit there.
    #[inline]
    fn word_in_level(&self, slot: usize) -> (usize, usize) {
        if slot < self.ring_slots {
            (0, slot / 64)
        } else {
            let beyond = slot - self.ring_slots;
            (1 + beyond / LEVEL, beyond % LEVEL / 64)
        }
    }

    pub(super) fn mark(&mut self, slot: usize) {
        let (level, word) = self.word_in_level(slot);
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary[level] |= 1 << word;
    }

    pub(super) fn unmark(&mut self, slot: usize) {
        self.words[slot / 64] &= !(1 << (slot % 64));
        if self.words[slot / 64] == 0 {
            let (level, word) = self.word_in_level(slot);
            self.summary[level] &= !(1 << word);
        }
    }

    pub(super) fn is_marked(&self, slot: usize) -> bool {
        self.words[slot / 64] & 1 << (slot % 64) != 0
    }

    /// The first occupied slot at or after the hand.
    #[inline]
    pub(super) fn first(&self, hand: u64) -> Option<First> {
        let ring_mask = self.ring() - 1;
        if let Some(digit) = self.find(0, 0, hand as usize & ring_mask) {
            return Some(First {
                slot: digit,
                start: hand & !(ring_mask as u64) | digit as u64,
                exact: true,
            });
        }
        (1..self.levels).find_map(|level| {
            let shift = self.ring_bits + (level as u32 - 1) * LEVEL_BITS;
            let base = self.ring_slots + (level - 1) * LEVEL;
            let digit = self.find(level, base, (hand >> shift) as usize % LEVEL)?;
            let turn = hand >> (shift + LEVEL_BITS) << (shift + LEVEL_BITS);
            Some(First {
                slot: base + digit,
                start: turn | (digit as u64) << shift,
                exact: false,
            })
        })
    }

    /// The first marked digit of a level from `from` on.
    #[inline]
    fn find(&self, level: usize, base: usize, from: usize) -> Option<usize> {
        let summary = self.summary[level];
        if summary == 0 {
            return None;
        }
        let word = from / 64;
        let bits = self.words[base / 64 + word] & u64::MAX << (from % 64);
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let later = summary & (u64::MAX << word << 1);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        let bits = self.words[base / 64 + word];
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_cover_every_tick_of_the_near_half() {
        for slots in [1, 2, 10, 64, 256, 4096, 65_536, 16_777_216] {
            let mut levels = Levels::new(slots);
            for hand in [0, 1, 255, 0x1234_5678, 7 << 32, u64::MAX - 5] {
                let top = hand | 0xffff_ffff;
                for tick in (0..32).map(|bit| hand.saturating_add(1 << bit).min(top)) {
                    if tick <= hand || tick >> NEAR_BITS != hand >> NEAR_BITS {
                        continue;
                    }
                    let slot = levels.slot_of(hand, tick);
                    levels.mark(slot);
                    let first = levels.first(hand).expect("a marked slot");
                    assert_eq!(first.slot, slot);
                    assert!(first.start <= tick, "{slots} {hand} {tick}");
                    assert!(!first.exact || first.start == tick);
                    assert!(first.exact || first.start > hand);
                    levels.unmark(slot);
                    assert_eq!(levels.first(hand), None);
                }
            }
        }
    }

    #[test]
    fn the_search_finds_the_nearest_slot_of_the_lowest_level() {
        let mut levels = Levels::new(4096);
        for tick in [70_000, 9_000, 4_000, 300] {
            let slot = levels.slot_of(5, tick);
            levels.mark(slot);
            let first = levels.first(5).expect("a marked slot");
            assert_eq!(first.slot, slot);
            assert!(first.start <= tick);
        }
    }
}
