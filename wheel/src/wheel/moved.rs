//! Old keys of timers that compaction has moved.
//!
//! Each compaction begins a new era and lays the surviving timers out in the
//! order of the keys they were inserted under: older eras first, within an era
//! by index. So the sorted array of those keys is at the same time the map from
//! a timer's place to its key, and the place of a key is its rank. A rank is
//! found by a search within one block, a span of indices that holds about eight
//! survivors.
//!
//! # Invariants
//! - I8: `keys` is sorted within each era, `eras` by era, and the eras' ranges
//!   cover `keys` without a gap. A place holds a moved timer exactly when its
//!   node is live and of generation 0; other entries are dead and go at the
//!   next compaction.

use super::TimerKey;

/// Survivors per block, about.
const PER_BLOCK: usize = 8;

/// Index above generation within an era: ordered by index.
type Old = u64;

#[derive(Debug, Clone, Copy)]
struct Era {
    era: u32,
    /// The places of its survivors begin here and end where the next begin.
    start: u32,
    end: u32,
    /// An index shifted right by this is the number of its block.
    shift: u32,
    /// Where its blocks begin in `blocks`; one more than it has, for the end.
    first_block: u32,
    blocks: u32,
}

/// The keys of moved timers by place, and the way back.
#[derive(Debug, Default)]
pub(super) struct Moved {
    keys: Vec<Old>,
    eras: Vec<Era>,
    blocks: Vec<u32>,
    last_era: Option<u32>,
}

impl Moved {
    pub(super) fn with_capacity(timers: usize) -> Self {
        Self {
            keys: Vec::with_capacity(timers),
            ..Self::default()
        }
    }

    /// Number of places that hold or held a moved timer.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Adds the key of the timer at the next place. Keys come in their order.
    #[inline]
    pub(super) fn push(&mut self, key: TimerKey) {
        if self.last_era != Some(key.era) {
            self.begin_era(key.era);
        }
        self.keys
            .push(u64::from(key.index) << 32 | u64::from(key.generation));
    }

    fn begin_era(&mut self, era: u32) {
        self.end_era();
        self.last_era = Some(era);
        let start = self.keys.len() as u32;
        self.eras.push(Era {
            era,
            start,
            end: start,
            shift: 0,
            first_block: 0,
            blocks: 0,
        });
    }

    fn end_era(&mut self) {
        if let Some(last) = self.eras.last_mut() {
            last.end = self.keys.len() as u32;
        }
    }

    /// Builds the blocks once all keys are there.
    pub(super) fn finish(&mut self) {
        self.end_era();
        for era in &mut self.eras {
            let keys = &self.keys[era.start as usize..era.end as usize];
            let greatest = keys.last().map_or(0, |key| key >> 32);
            let wanted = (keys.len() / PER_BLOCK).max(1) as u64;
            while greatest >> era.shift >= wanted {
                era.shift += 1;
            }
            era.first_block = self.blocks.len() as u32;
            era.blocks = (greatest >> era.shift) as u32 + 1;
            let mut place = 0;
            for block in 0..u64::from(era.blocks) {
                while keys[place] >> 32 >> era.shift < block {
                    place += 1;
                }
                self.blocks.push(era.start + place as u32);
            }
            self.blocks.push(era.end);
        }
        self.blocks.shrink_to_fit();
    }

    /// The place of a moved timer, by the key it was inserted under.
    pub(super) fn place(&self, key: TimerKey) -> Option<u32> {
        let era = match self.eras.as_slice() {
            [only] => only,
            eras => {
                &eras[eras
                    .partition_point(|era| era.era < key.era)
                    .min(eras.len().checked_sub(1)?)]
            }
        };
        let block = key.index >> era.shift;
        if era.era != key.era || block >= era.blocks {
            return None;
        }
        let block = (era.first_block + block) as usize;
        let (start, end) = (self.blocks[block], self.blocks[block + 1]);
        let keys = &self.keys[start as usize..end as usize];
        let old = u64::from(key.index) << 32 | u64::from(key.generation);
        // In a block of the usual length, all comparisons at once take less
        // time than one after the other.
        let rank = if keys.len() <= 2 * PER_BLOCK {
            keys.iter().map(|&key| usize::from(key < old)).sum()
        } else {
            keys.partition_point(|&key| key < old)
        };
        (keys.get(rank) == Some(&old)).then(|| start + rank as u32)
    }

    /// The key of the timer at a place.
    ///
    /// # Panics
    /// When no timer was moved there.
    pub(super) fn key(&self, place: u32) -> TimerKey {
        let old = self.keys[place as usize];
        let era = self.eras.partition_point(|era| era.end <= place);
        TimerKey {
            era: self.eras[era].era,
            index: (old >> 32) as u32,
            generation: old as u32,
        }
    }

    /// Checks I8.
    pub(super) fn validate(&self, era: u32) {
        let mut end = 0;
        for pair in self.eras.windows(2) {
            assert!(pair[0].era < pair[1].era, "I8: eras in order");
        }
        for range in &self.eras {
            assert!(range.era < era, "I8: keys of the era that is running");
            assert_eq!(range.start, end, "I8: eras without a gap");
            end = range.end;
            let keys = &self.keys[range.start as usize..end as usize];
            assert!(
                keys.is_sorted_by(|a, b| a >> 32 < b >> 32),
                "I8: keys sorted"
            );
        }
        assert_eq!(end as usize, self.keys.len(), "I8: every key has an era");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_finds_its_place_and_no_other_key_does() {
        let mut moved = Moved::default();
        let mut all = Vec::new();
        for (era, step, count) in [(0, 1, 3), (2, 97, 1_000), (3, 1, 500), (9, 1_000_000, 20)] {
            for i in 0..count {
                let jitter = (i * i) % step;
                let key = TimerKey {
                    era,
                    index: i * step + jitter,
                    generation: i % 5,
                };
                moved.push(key);
                all.push(key);
            }
        }
        moved.finish();
        moved.validate(10);
        for (place, &key) in all.iter().enumerate() {
            assert_eq!(moved.place(key), Some(place as u32));
            assert_eq!(moved.key(place as u32), key);
            let generation = key.generation + 1;
            assert_eq!(moved.place(TimerKey { generation, ..key }), None);
            assert_eq!(moved.place(TimerKey { era: 1, ..key }), None);
            let era = 10;
            assert_eq!(moved.place(TimerKey { era, ..key }), None);
            let index = u32::MAX;
            assert_eq!(moved.place(TimerKey { index, ..key }), None);
        }
        assert_eq!(Moved::default().place(all[0]), None);
    }

    #[test]
    fn blocks_take_a_fraction_of_the_keys() {
        let mut moved = Moved::default();
        for i in 0..10_000 {
            moved.push(TimerKey {
                era: 0,
                index: i * 4,
                generation: 0,
            });
        }
        moved.finish();
        assert!(moved.blocks.len() <= 10_000 / PER_BLOCK + 2);
    }
}
