//! The default policy: who goes when the table is full.
//!
//! An entry's position is its place in the queue. Positions below the window's size are the window,
//! the others the main part; each is a ring with a hand. A newcomer takes the place at the window's
//! hand. Whoever was there competes for a place in the main part and goes, or the other one does.
//! Nothing is linked: a hit is a count in the entry, an eviction reads neighbours in the table, and
//! the window is resized by saying so.

use std::hash::{BuildHasher, Hash};

use super::contest::Contest;
use super::setting::{STEADY, Setting};
use super::sketch::Sketch;
use super::{Extent, Shard, Victim};

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

/// What a hit reads comes first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Adaptive {
    accesses: u64,
    /// The count of accesses at which to see whether everything ages.
    ages_at: u64,
    /// Ageings so far, modulo 16.
    pub(super) epoch: u8,
    setting: Setting,
    /// The hash that was missed last: a miss is counted, the insertion that follows it is not.
    last_missed: u64,
    sketch: Sketch,
    window_hand: usize,
    contest: Contest,
    /// The count of accesses when everything aged last.
    aged_at: u64,
    /// Counters of the sketch for each entry.
    counters: usize,
}

impl Adaptive {
    pub(super) fn new(extent: Extent) -> Self {
        let precise = COUNTERS.iter().find(|(within, _)| extent.most <= *within);
        Adaptive {
            accesses: 0,
            ages_at: 64,
            epoch: 0,
            setting: STEADY,
            last_missed: 0,
            sketch: Sketch::new(precise.is_none()),
            window_hand: 0,
            contest: Contest::default(),
            aged_at: 0,
            counters: precise.map_or(FEW, |&(_, each)| each),
        }
    }

    /// Makes the sketch large enough for `len` entries.
    pub(super) fn fit(&mut self, len: usize) {
        self.sketch.fit(len * self.counters);
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
        if let Some(policy) = &mut self.adaptive
            && policy.setting != setting
        {
            policy.setting = setting;
            policy.contest.restart();
            policy.ages_at = policy.accesses;
        }
    }

    /// Finds out who goes. The table is not empty.
    pub(super) fn choose(&mut self) -> Victim {
        let len = self.entries.len();
        let Some(policy) = &mut self.adaptive else {
            return Victim::at(0);
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
            return Victim::at(at);
        }

        let entries = &mut self.entries;
        let newcomer_hash = self.hasher.hash_one(&entries[at].key);
        let newcomer_uses = entries[at].uses(epoch);
        let newcomer = policy.sketch.estimate(newcomer_hash).max(1) + newcomer_uses;
        let look = usize::from(setting.look);
        let (other, fewest) = policy
            .contest
            .fewest(window..len, look, |at| entries[at].uses(epoch));

        let young = (policy.accesses as f64) < YOUTH * len as f64;
        if setting.admission.admits(newcomer, fewest + 1, young) {
            policy.contest.advance_past(other);
            let hash = (fewest > 0).then(|| self.hasher.hash_one(&entries[other].key));
            if let Some(hash) = hash {
                policy.sketch.add(hash, fewest);
            }
            entries[at].set_uses(newcomer - 1, epoch);
            Victim {
                position: other,
                hash,
                heir: Some((at, newcomer_hash)),
            }
        } else {
            policy.contest.advance();
            if newcomer_uses > 0 {
                policy.sketch.add(newcomer_hash, newcomer_uses);
            }
            Victim {
                position: at,
                hash: Some(newcomer_hash),
                heir: None,
            }
        }
    }
}
