//! One entry of the table, and the word that holds all that is known of it besides key and value.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 11–63 | deadline | microseconds since the cache began; all ones: never |
//! | 8 | extended | a load of it failed, so that it lives longer |
//! | 7 | visited | SIEVE: used since the hand passed |
//! | 3–6 | epoch | the ageing, modulo 16, after which the uses were counted |
//! | 0–2 | uses | hits since the entry came, up to 7 |

/// A point in time, or a span, in microseconds since the cache began.
pub(crate) type Micros = u64;

/// The deadline of what never expires: 2⁵³ − 1 microseconds, 285 years.
pub(crate) const NEVER: Micros = (1 << 53) - 1;

/// Hits that an entry can count.
pub(super) const MOST_USES: u8 = 7;

const DEADLINE_SHIFT: u32 = 11;
const EXTENDED: u64 = 1 << 8;
const VISITED: u64 = 1 << 7;
const EPOCH_SHIFT: u32 = 3;
const EPOCH: u64 = 0b1111 << EPOCH_SHIFT;
const USES: u64 = 0b111;

#[derive(Debug)]
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    word: u64,
}

impl<K, V> Entry<K, V> {
    /// An entry that has not been hit.
    #[inline]
    pub(super) fn new(key: K, value: V, deadline: Micros) -> Self {
        let word = deadline.min(NEVER) << DEADLINE_SHIFT;
        Entry { key, value, word }
    }

    /// The instant from which the entry is no longer visible.
    #[inline]
    pub(crate) fn deadline(&self) -> Micros {
        self.word >> DEADLINE_SHIFT
    }

    #[inline]
    pub(super) fn set_deadline(&mut self, deadline: Micros) {
        let rest = self.word & ((1 << DEADLINE_SHIFT) - 1);
        self.word = deadline.min(NEVER) << DEADLINE_SHIFT | rest;
    }

    /// Hits, halved for each ageing since they were counted.
    ///
    /// What is halved is the number of accesses, one more than that of hits, so that an entry ages
    /// exactly as its count in the sketch would.
    #[inline]
    pub(super) fn uses(&self, epoch: u8) -> u8 {
        let uses = (self.word & USES) as u8;
        let counted = ((self.word & EPOCH) >> EPOCH_SHIFT) as u8;
        match epoch.wrapping_sub(counted) & 15 {
            0 => uses,
            ageings => ((uses + 1) >> ageings.min(7)).saturating_sub(1),
        }
    }

    #[inline]
    pub(super) fn set_uses(&mut self, uses: u8, epoch: u8) {
        let uses = u64::from(uses.min(MOST_USES));
        let epoch = u64::from(epoch & 15) << EPOCH_SHIFT;
        self.word = self.word & !(USES | EPOCH) | uses | epoch;
    }

    /// Counts a hit. Once the count is full nothing is written.
    #[inline]
    pub(super) fn touch(&mut self, epoch: u8) {
        let full = USES | u64::from(epoch & 15) << EPOCH_SHIFT;
        if self.word & (USES | EPOCH) != full {
            self.set_uses(self.uses(epoch) + 1, epoch);
        }
    }

    /// Whether its deadline was put off because a load of it failed.
    #[inline]
    pub(crate) fn is_extended(&self) -> bool {
        self.word & EXTENDED != 0
    }

    #[inline]
    pub(super) fn set_extended(&mut self, extended: bool) {
        self.word = self.word & !EXTENDED | if extended { EXTENDED } else { 0 };
    }

    #[inline]
    pub(super) fn is_visited(&self) -> bool {
        self.word & VISITED != 0
    }

    #[inline]
    pub(super) fn set_visited(&mut self, visited: bool) {
        self.word = self.word & !VISITED | if visited { VISITED } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_word_do_not_meet() {
        let mut entry = Entry::new((), (), 5);
        entry.set_uses(7, 15);
        entry.set_visited(true);
        entry.set_extended(true);
        entry.set_deadline(NEVER);
        assert_eq!((entry.deadline(), entry.uses(15)), (NEVER, 7));
        entry.set_deadline(u64::MAX);
        assert_eq!(entry.deadline(), NEVER);
        entry.set_visited(false);
        assert!(entry.is_extended());
        entry.set_extended(false);
        entry.set_deadline(9);
        assert!(!entry.is_visited() && !entry.is_extended());
        assert_eq!((entry.deadline(), entry.uses(15)), (9, 7));
    }

    #[test]
    fn uses_saturate_and_age_as_accesses_do() {
        let mut entry = Entry::new((), (), NEVER);
        for _ in 0..20 {
            entry.touch(14);
        }
        // Eight accesses, four, two, one, and it is never less than the one that brought it.
        let aged: Vec<u8> = (14..19).map(|epoch| entry.uses(epoch)).collect();
        assert_eq!(aged, [7, 3, 1, 0, 0]);
        entry.touch(16);
        assert_eq!(entry.uses(16), 2);
    }
}
