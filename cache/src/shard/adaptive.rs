//! The default policy: who goes when the table is full.
//!
//! An entry's position is its place in the queue. Positions below the window's size are the window,
//! the others the main part; each is a ring with a hand. A newcomer takes the place at the window's
//! hand. Whoever was there competes for a place in the main part and goes, or the other one does.
//! Nothing is linked: a hit is a count in the entry, an eviction reads neighbours in the table, and
//! the window is resized by saying so.

use std::hash::{BuildHasher, Hash};

use super::Shard;
use super::setting::{STEADY, Setting};
use super::sketch::Sketch;

/// Entries of the window that get a second chance in one eviction, at most.
const SPARED: usize = 128;

/// A cache is young until it was asked this often for each of its entries.
const YOUTH: f64 = 3.5;

/// Counters for each entry, where a table is known to stay within so many entries: where there are
/// few, precision is cheap, and decides about loops.
const COUNTERS: [(usize, usize); 2] = [(2_048, 64), (8_192, 32)];

/// The same for larger tables, and for those that share the entries of a cache. The counters of a key
/// share a cache line then.
const FEW: usize = 8;

#[derive(Debug)]
pub(super) struct Adaptive {
    setting: Setting,
    window_hand: usize,
    main_hand: usize,
    sketch: Sketch,
    /// The hash that was missed last: a miss is counted, the insertion that follows it is not.
    last_missed: u64,
    /// Ageings so far, modulo 16.
    pub(super) epoch: u8,
    accesses: u64,
    /// The count of accesses when everything aged last.
    aged_at: u64,
    /// The count of accesses at which to see whether everything ages.
    ages_at: u64,
}

impl Adaptive {
    pub(super) fn new() -> Self {
        Adaptive {
            setting: STEADY,
            window_hand: 0,
            main_hand: 0,
            sketch: Sketch::new(128, 128),
            last_missed: 0,
            epoch: 0,
            accesses: 0,
            aged_at: 0,
            ages_at: 64,
        }
    }

    /// Makes the sketch large enough for `len` entries of a table that never has more than `most`.
    pub(super) fn fit(&mut self, len: usize, most: usize) {
        let precise = COUNTERS.iter().find(|(within, _)| most <= *within);
        let each = precise.map_or(FEW, |&(_, each)| each);
        let within = if precise.is_some() { usize::MAX } else { 0 };
        while self.sketch.counters() < len * each {
            self.sketch.grow(within);
        }
    }

    /// Counts an access of a table with `len` entries.
    #[inline]
    pub(super) fn accessed(&mut self, len: usize) {
        self.accesses += 1;
        if self.accesses >= self.ages_at {
            self.grow_older(len);
        }
    }

    /// Counts an access that found nothing.
    #[inline]
    pub(super) fn missed(&mut self, hash: u64) {
        self.sketch.add(hash, 1);
        self.last_missed = hash;
    }

    /// Counts an insertion, unless the miss before it was.
    #[inline]
    pub(super) fn inserted(&mut self, hash: u64) {
        if self.last_missed != hash && self.sketch.estimate(hash) == 0 {
            self.sketch.add(hash, 1);
        }
    }

    #[cold]
    fn grow_older(&mut self, len: usize) {
        let pause = u64::from(self.setting.age) * len.max(16) as u64;
        // The table may have grown since this was due.
        if self.accesses >= self.aged_at + pause {
            self.sketch.age();
            self.epoch = self.epoch.wrapping_add(1) & 15;
            self.aged_at = self.accesses;
        }
        self.ages_at = self.aged_at + pause;
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Shard<K, V, S> {
    /// Sets the default policy; nothing happens under another one.
    #[inline]
    pub(crate) fn set(&mut self, setting: Setting) {
        if let Some(policy) = self.adaptive.as_deref_mut()
            && policy.setting != setting
        {
            policy.setting = setting;
            policy.ages_at = policy.accesses;
        }
    }

    /// Finds out who goes and moves it to the window's hand. The table is not empty.
    pub(super) fn choose(&mut self) -> usize {
        let len = self.entries.len();
        let Some(policy) = self.adaptive.as_deref_mut() else {
            return 0;
        };
        let epoch = policy.epoch;
        let setting = policy.setting;
        let window = setting.window_of(len).min(len);
        let mut at = if policy.window_hand < window {
            policy.window_hand
        } else {
            0
        };
        let spared = if setting.spares {
            SPARED.min(2 * window)
        } else {
            0
        };
        for _ in 0..spared {
            let entry = &mut self.entries[at];
            let uses = entry.uses(epoch);
            if uses == 0 {
                break;
            }
            entry.set_uses(uses - 1, epoch);
            at = if at + 1 == window { 0 } else { at + 1 };
        }
        policy.window_hand = if at + 1 == window { 0 } else { at + 1 };
        if window == len {
            return at;
        }

        let newcomer_hash = self.hasher.hash_one(&self.entries[at].key);
        let newcomer_uses = self.entries[at].uses(epoch);
        let newcomer = policy.sketch.estimate(newcomer_hash).max(1) + newcomer_uses;
        let hand = if (window..len).contains(&policy.main_hand) {
            policy.main_hand
        } else {
            window
        };
        let next = |at: usize| if at + 1 == len { window } else { at + 1 };
        let (mut other, mut fewest, mut looked_at) = (hand, u8::MAX, hand);
        for _ in 0..usize::from(setting.look).min(len - window) {
            let uses = self.entries[looked_at].uses(epoch);
            if uses < fewest {
                (other, fewest) = (looked_at, uses);
            }
            if uses == 0 {
                break;
            }
            looked_at = next(looked_at);
        }

        let young = (policy.accesses as f64) < YOUTH * len as f64;
        if setting.admission.admits(newcomer, fewest + 1, young) {
            policy.main_hand = next(other);
            if fewest > 0 {
                let hash = self.hasher.hash_one(&self.entries[other].key);
                policy.sketch.add(hash, fewest);
            }
            self.entries[at].set_uses(newcomer - 1, epoch);
            self.swap(at, other);
        } else {
            policy.main_hand = next(hand);
            if newcomer_uses > 0 {
                policy.sketch.add(newcomer_hash, newcomer_uses);
            }
        }
        at
    }
}
