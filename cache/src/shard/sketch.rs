//! How often keys that are not in the table have been asked for lately: a count-min sketch of four-bit
//! counters that are halved now and then.
//!
//! Cormode and Muthukrishnan (2005), with conservative update (only the smallest counters grow) and
//! the ageing of TinyLFU (Einziger and Friedman, 2015). An entry counts its own hits while it is in
//! the table; the sketch learns of an access when it misses, and of an entry's hits when it leaves.

/// Counters stop at eight accesses, as the hits of an entry do: both age alike.
pub(super) const MOST: u8 = 8;

/// Rows: how many counters a key has.
const ROWS: u32 = 4;

#[derive(Debug)]
pub(super) struct Sketch {
    /// Sixteen counters each.
    words: Vec<u64>,
    /// The number of counters is a power of two; those of a key are spread over as many as this
    /// says, less one.
    spread: u64,
}

impl Sketch {
    /// A sketch of `counters`, a power of two from 128. Where there are more than `within`, the
    /// counters of a key share a cache line.
    pub(super) fn new(counters: usize, within: usize) -> Self {
        debug_assert!(counters.is_power_of_two() && counters >= 128);
        let spread = if counters > within { 128 } else { counters };
        Sketch {
            words: vec![0; counters / 16],
            spread: spread as u64 - 1,
        }
    }

    /// Doubles the counters. Where a key's share a line, every estimate stays what it is.
    pub(super) fn grow(&mut self, within: usize) {
        let counters = self.words.len() * 32;
        if counters > within && self.spread == counters as u64 / 2 - 1 {
            *self = Self::new(counters, within);
            return;
        }
        if self.spread == counters as u64 / 2 - 1 {
            self.spread = counters as u64 - 1;
        }
        self.words.extend_from_within(..);
    }

    pub(super) fn counters(&self) -> usize {
        self.words.len() * 16
    }

    /// How often `hash` was asked for, up to [`MOST`]; rather too often than too rarely.
    #[inline]
    pub(super) fn estimate(&self, hash: u64) -> u8 {
        let mut least = u64::from(MOST);
        for row in 0..ROWS {
            let (word, shift) = self.counter(hash, row);
            least = least.min(self.words[word] >> shift & 15);
        }
        least as u8
    }

    /// Adds accesses of `hash`.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, accesses: u8) {
        let sum = (self.estimate(hash) + accesses).min(MOST);
        let sum = u64::from(sum);
        for row in 0..ROWS {
            let (word, shift) = self.counter(hash, row);
            let word = &mut self.words[word];
            if *word >> shift & 15 < sum {
                *word = *word & !(15 << shift) | sum << shift;
            }
        }
    }

    /// Halves every counter.
    pub(super) fn age(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
    }

    /// The word of a counter and its place there.
    #[inline]
    fn counter(&self, hash: u64, row: u32) -> (usize, u32) {
        let line = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32);
        let offset = (line ^ hash)
            .rotate_left(row * 16)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            >> 20;
        let all = self.counters() as u64 - 1;
        let counter = line & all & !self.spread | offset & self.spread;
        ((counter / 16) as usize, (counter % 16 * 4) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        (key + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    }

    #[test]
    fn never_less_than_it_was() {
        for within in [0, 1 << 20] {
            let mut sketch = Sketch::new(1024, within);
            for key in 0..100 {
                for _ in 0..key % 5 {
                    sketch.add(hash(key), 1);
                }
            }
            let counts = |sketch: &Sketch| -> Vec<u8> {
                (0..100).map(|key| sketch.estimate(hash(key))).collect()
            };
            let before = counts(&sketch);
            for (key, &count) in before.iter().enumerate() {
                assert!(u64::from(count) >= key as u64 % 5, "{key}: {count}");
            }
            let exact = (0..100).filter(|&key| before[key] == key as u8 % 5).count();
            assert!(exact > 85, "{exact} of 100 are exact");
            sketch.age();
            let halved: Vec<u8> = before.iter().map(|count| count / 2).collect();
            assert_eq!(counts(&sketch), halved);
            if within == 0 {
                sketch.grow(within);
                assert_eq!(counts(&sketch), halved, "growing changes no estimate");
            }
        }
    }

    #[test]
    fn stops_at_its_most() {
        let mut sketch = Sketch::new(128, 0);
        for _ in 0..100 {
            sketch.add(7, 8);
        }
        assert_eq!(sketch.estimate(7), MOST);
    }
}
