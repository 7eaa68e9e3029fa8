//! Finds the setting of the default policy that suits the traffic: each one runs a small cache of
//! hashes beside the real one, on a sample of the keys, and the real one is set as the best of them.
//!
//! A shadow cache is the table itself, with hashes for keys and nothing for values. One that is in
//! the lead gets its way when it has been ahead for long enough: loops that turn round favour one
//! setting and then the other, and following each turn would get the worst of both.

use std::hash::{BuildHasher, Hasher};

use crate::shard::{Columns, Extent, Extra, NEVER, Policy, SETTINGS, Setting, Shard};

/// Entries of a shadow cache, at most: caches that hold more are sampled.
const MOST: usize = 1_024;

/// Hits that the leader must be ahead, in shares of a shadow's entries.
const AHEAD: f64 = 0.2;

/// Accesses for which it must have been ahead without a break, per entry of a shadow.
const SUSTAINED: f64 = 2.2;

/// Accesses per entry of a shadow after which a hit counts for a third.
const MEMORY: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct Tuner {
    shadows: [Shadow; SETTINGS.len()],
    current: usize,
    /// The keys whose hash has these bits clear take part.
    sample: u64,
    capacity: usize,
    ahead_for: u32,
    decay: f64,
}

#[derive(Debug)]
struct Shadow {
    table: Shard<u32, (), Mixer>,
    score: f64,
}

impl Tuner {
    /// A tuner of a cache of `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let rate = capacity.div_ceil(MOST).next_power_of_two();
        let capacity = (capacity / rate).max(1);
        let shadow = |setting: Setting| {
            let extent = Extent {
                most: capacity,
                likely: capacity,
            };
            let mut table = Shard::new(Policy::Adaptive, Columns::default(), extent, Mixer);
            table.set(setting);
            Shadow { table, score: 0.0 }
        };
        Tuner {
            shadows: SETTINGS.map(shadow),
            current: 0,
            sample: Self::mask(rate),
            capacity,
            ahead_for: 0,
            decay: 1.0 - 1.0 / (capacity as f64 * MEMORY),
        }
    }

    /// The bits of a hash that are clear in those that take part.
    pub(crate) fn mask_of(&self) -> u64 {
        self.sample
    }

    /// Tells of an access of a key that takes part. The number of the setting, when it changes.
    pub(crate) fn access(&mut self, hash: u64) -> Option<usize> {
        for shadow in &mut self.shadows {
            shadow.score *= self.decay;
            if shadow.access(hash, self.capacity) {
                shadow.score += 1.0;
            }
        }
        let mut best = self.current;
        for (number, shadow) in self.shadows.iter().enumerate() {
            if shadow.score > self.shadows[best].score {
                best = number;
            }
        }
        let ahead = self.shadows[best].score - self.shadows[self.current].score;
        if ahead <= AHEAD * self.capacity as f64 {
            self.ahead_for = 0;
            return None;
        }
        self.ahead_for += 1;
        if f64::from(self.ahead_for) < SUSTAINED * self.capacity as f64 {
            return None;
        }
        self.ahead_for = 0;
        self.current = best;
        Some(best)
    }

    fn mask(rate: usize) -> u64 {
        // Neither the bits of the tag and the bucket nor those of the shard.
        (rate as u64 - 1) << 40
    }
}

impl Shadow {
    /// Whether the key is in the table; it is from then on.
    fn access(&mut self, hash: u64, capacity: usize) -> bool {
        let key = (hash >> 8) as u32;
        let hash = Mixer.hash_one(key);
        if let Some(position) = self.table.find(hash, |other| *other == key) {
            self.table.hit(position);
            return true;
        }
        self.table.miss(hash);
        let extra = Extra {
            weight: 1,
            hard: NEVER,
        };
        if self.table.len() < capacity {
            self.table.push(hash, key, (), NEVER, extra);
        } else if let Some(victim) = self.table.victim() {
            self.table.replace(victim, hash, key, (), NEVER, extra);
        }
        false
    }
}

/// Hashes what is a hash already: spreads its bits over the word.
#[derive(Debug, Clone, Copy)]
struct Mixer;

impl BuildHasher for Mixer {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn write_u32(&mut self, key: u32) {
        let mixed = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
