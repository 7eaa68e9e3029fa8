//! How often keys that are not in the table have been asked for lately: a count-min sketch of four-bit
//! counters that are halved now and then.
//!
//! Cormode and Muthukrishnan (2005), with conservative update (only the smallest counters grow) and
//! the ageing of TinyLFU (Einziger and Friedman, 2015). An entry counts its own hits while it is in
//! the table; the sketch learns of an access when it misses, and of an entry's hits when it leaves.

/// Counters stop at eight accesses, as the hits of an entry do: both age alike.
pub(super) const MOST: u8 = 8;

/// Rows: how many counters a key has.
const ROWS: usize = 4;

/// A cache line of counters: sixteen in each word.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

const COUNTERS: usize = 128;

#[derive(Debug)]
pub(super) struct Sketch {
    lines: Vec<Line>,
    /// Whether the counters of a key share a line; otherwise they are spread over all, which are a
    /// power of two then.
    by_line: bool,
}

/// Where the counters of a key are: of each row, the line, the word and the place in it.
type Places = [(usize, usize, u32); ROWS];

impl Sketch {
    /// A sketch of 128 counters. Where the counters of a key share a cache line it costs one miss to
    /// look at them; where they do not, fewer keys are taken for others.
    pub(super) fn new(by_line: bool) -> Self {
        Sketch {
            lines: vec![Line([0; 8])],
            by_line,
        }
    }

    /// Makes room for `counters`. No estimate gets smaller; where a key's counters are spread over all
    /// they stay what they are.
    pub(super) fn fit(&mut self, counters: usize) {
        let lines = counters.div_ceil(COUNTERS);
        if !self.by_line {
            while self.lines.len() < lines {
                self.lines.extend_from_within(..);
            }
        } else if self.lines.len() < lines {
            let old = &self.lines;
            // A line takes over from the one or two whose keys it gets.
            let grown = (0..lines).map(|line| {
                let first = line * old.len() / lines;
                let last = ((line + 1) * old.len() - 1) / lines;
                (first + 1..=last).fold(old[first], |one, other| one.max(old[other]))
            });
            self.lines = grown.collect();
        }
    }

    /// How often `hash` was asked for, up to [`MOST`]; rather too often than too rarely.
    #[inline]
    pub(super) fn estimate(&self, hash: u64) -> u8 {
        self.least(&self.places(hash)) as u8
    }

    /// Adds accesses of `hash`.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, accesses: u8) {
        let places = self.places(hash);
        let sum = (self.least(&places) + u64::from(accesses)).min(u64::from(MOST));
        for (line, word, shift) in places {
            let word = &mut self.lines[line].0[word];
            if *word >> shift & 15 < sum {
                *word = *word & !(15 << shift) | sum << shift;
            }
        }
    }

    /// Halves every counter.
    pub(super) fn age(&mut self) {
        for word in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
    }

    #[inline]
    fn least(&self, places: &Places) -> u64 {
        places.iter().fold(u64::from(MOST), |least, place| {
            let &(line, word, shift) = place;
            least.min(self.lines[line].0[word] >> shift & 15)
        })
    }

    #[inline]
    fn places(&self, hash: u64) -> Places {
        let mixed = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32);
        if self.by_line {
            // Two words of the line are a row's.
            let line = (((mixed >> 32) * self.lines.len() as u64) >> 32) as usize;
            return [0, 1, 2, 3].map(|row| {
                let bits = mixed >> (row * 5);
                (
                    line,
                    row * 2 + (bits >> 4 & 1) as usize,
                    (bits & 15) as u32 * 4,
                )
            });
        }
        let all = (self.lines.len() * COUNTERS) as u64 - 1;
        [0, 1, 2, 3].map(|row| {
            let spread = (mixed ^ hash).rotate_left(row * 16);
            let counter = (spread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 & all) as usize;
            let word = counter / 16;
            (word / 8, word % 8, (counter % 16 * 4) as u32)
        })
    }
}

impl Line {
    /// The larger one of each two counters.
    fn max(self, other: Self) -> Self {
        let mut larger = [0; 8];
        for (word, larger) in larger.iter_mut().enumerate() {
            for shift in (0..64).step_by(4) {
                let counter = |line: &Line| line.0[word] >> shift & 15;
                *larger |= counter(&self).max(counter(&other)) << shift;
            }
        }
        Line(larger)
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
        for by_line in [true, false] {
            let mut sketch = Sketch::new(by_line);
            sketch.fit(1_024);
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
            for counters in [1_100, 1_900, 2_048, 5_000, 16_384] {
                let before = counts(&sketch);
                sketch.fit(counters);
                let grown = counts(&sketch);
                let less = (0..100).filter(|&key| grown[key] < before[key]).count();
                assert_eq!(less, 0, "growing makes no estimate smaller");
                assert!(by_line || grown == before);
            }
        }
    }

    #[test]
    fn stops_at_its_most() {
        let mut sketch = Sketch::new(true);
        for _ in 0..100 {
            sketch.add(7, 8);
        }
        assert_eq!(sketch.estimate(7), MOST);
    }
}
