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
use super::{Extent, Policy, Shard, Victim};

/// Entries of the window that get a second chance in one eviction, at most.
const SPARED: usize = 128;

/// Accesses before the first look at whether everything ages.
const FIRST_PAUSE: u32 = 64;

/// A cache is young until it was asked this often for each of its entries.
const YOUTH: f64 = 3.5;

/// Counters for each entry, where a table is known to stay within so many entries: where there are
/// few, precision is cheap, and decides about loops.
const COUNTERS: [(usize, usize); 2] = [(2_048, 64), (8_192, 32)];

/// The same for larger tables, and for those that share the entries of a cache. The counters of a key
/// share a cache line then.
const FEW: usize = 8;

/// What a hit reads and writes, whatever the policy.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Pulse {
    /// Accesses until it is time to see whether everything ages.
    until_ageing: u32,
    /// Ageings so far, modulo 16.
    pub(super) epoch: u8,
    pub(super) policy: Policy,
}

/// In the order of the fields: what a miss writes shares cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Adaptive {
    /// The hash that was missed last: a miss is counted, the insertion that follows it is not.
    last_missed: u64,
    window_hand: u32,
    setting: Setting,
    contest: Contest,
    sketch: Sketch,
    /// The count of accesses at which to see whether everything ages.
    ages_at: u64,
    /// The count of accesses when everything aged last.
    aged_at: u64,
    /// Counters of the sketch for each entry.
    counters: usize,
}

impl Pulse {
    pub(super) fn new(policy: Policy) -> Self {
        Pulse {
            until_ageing: FIRST_PAUSE,
            epoch: 0,
            policy,
        }
    }
}

impl Adaptive {
    pub(super) fn new(extent: Extent) -> Self {
        let precise = COUNTERS.iter().find(|(within, _)| extent.most <= *within);
        Adaptive {
            last_missed: 0,
            window_hand: 0,
            setting: STEADY,
            contest: Contest::default(),
            sketch: Sketch::new(precise.is_none()),
            ages_at: u64::from(FIRST_PAUSE),
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
    pub(super) fn accessed(&mut self, pulse: &mut Pulse, len: usize) {
        pulse.until_ageing -= 1;
        if pulse.until_ageing == 0 {
            self.grow_older(pulse, len);
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
    fn grow_older(&mut self, pulse: &mut Pulse, len: usize) {
        let accesses = self.ages_at;
        let pause = u64::from(self.setting.age) * len.max(16) as u64;
        // The table may have grown since this was due.
        if accesses >= self.aged_at + pause {
            self.sketch.age();
            pulse.epoch = pulse.epoch.wrapping_add(1) & 15;
            self.aged_at = accesses;
        }
        let left = self.aged_at + pause - accesses;
        pulse.until_ageing = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        self.ages_at = accesses + u64::from(pulse.until_ageing);
    }

    fn accesses(&self, pulse: &Pulse) -> u64 {
        self.ages_at - u64::from(pulse.until_ageing)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Shard<K, V, S> {
    /// Sets the default policy; nothing happens under another one.
    #[inline]
    pub(crate) fn set(&mut self, setting: Setting) {
        let policy = &mut self.adaptive;
        if policy.setting != setting {
            policy.setting = setting;
            policy.contest.restart();
            policy.ages_at = policy.accesses(&self.pulse) + 1;
            self.pulse.until_ageing = 1;
        }
    }

    /// Finds out who goes. The table is not empty.
    pub(super) fn choose(&mut self) -> Victim {
        let len = self.entries.len();
        let policy = &mut self.adaptive;
        let epoch = self.pulse.epoch;
        let setting = policy.setting;
        let window = setting.window_of(len).min(len);
        let mut at = policy.window_hand as usize;
        if at >= window {
            at = 0;
        }
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
        policy.window_hand = if at + 1 == window { 0 } else { at as u32 + 1 };
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

        let young = (policy.accesses(&self.pulse) as f64) < YOUTH * len as f64;
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
