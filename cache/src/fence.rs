//! Fences: how somebody who reads a key, works outside the lock and comes back finds out that the
//! key was stored or removed meanwhile.
//!
//! # Invariants
//! - N1: a fence is there while somebody watches its key, and no longer.
//! - N2: no number is given twice in one shard: who watched before a change and who watches after it
//!   have different numbers, also when the fence went away in between.
//!
//! Keys are told apart by their hash. Two keys of one hash pass each other's fences: a load that could
//! have been stored is not.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Fences for which there is always room once there were some.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// By the hash of the key. Few as a rule, but as many as keys that are loaded at once.
    fences: HashMap<u64, Fence, RandomState>,
    last: u64,
}

#[derive(Debug)]
struct Fence {
    number: u64,
    watchers: usize,
    /// The number at which somebody has begun to load the key anew.
    claimed: Option<u64>,
}

impl Fences {
    /// Begins to watch; the number to compare later.
    pub(crate) fn watch(&mut self, hash: u64) -> u64 {
        if let Some(fence) = self.find(hash) {
            fence.watchers += 1;
            return fence.number;
        }
        self.last += 1;
        let number = self.last;
        let fence = Fence {
            number,
            watchers: 1,
            claimed: None,
        };
        self.fences.insert(hash, fence);
        number
    }

    /// Begins to watch as the one who passes next, under this lock; the number there is then.
    pub(crate) fn watch_from_next(&mut self, hash: u64) -> u64 {
        self.watch(hash);
        self.last + 1
    }

    /// Begins to watch as the one who loads the key anew; `None` when there is one, and the key has
    /// not changed since.
    pub(crate) fn claim(&mut self, hash: u64) -> Option<u64> {
        let is_claimed = |fence: &mut Fence| fence.claimed == Some(fence.number);
        if self.find(hash).is_some_and(is_claimed) {
            return None;
        }
        let number = self.watch(hash);
        self.find(hash)?.claimed = Some(number);
        Some(number)
    }

    /// Ends to watch as that.
    pub(crate) fn give_up(&mut self, hash: u64, number: u64) {
        if let Some(fence) = self.find(hash)
            && fence.claimed == Some(number)
        {
            fence.claimed = None;
        }
        self.leave(hash);
    }

    /// Whether nothing has changed since [`watch`](Self::watch) gave `number`.
    pub(crate) fn is_unchanged(&mut self, hash: u64, number: u64) -> bool {
        self.find(hash).is_some_and(|fence| fence.number == number)
    }

    /// Ends to watch.
    pub(crate) fn leave(&mut self, hash: u64) {
        if let Some(fence) = self.find(hash) {
            fence.watchers -= 1;
            if fence.watchers == 0 {
                self.fences.remove(&hash);
                if self.fences.is_empty() {
                    // After a peak the memory goes too.
                    self.fences.shrink_to(FEW);
                }
            }
        }
    }

    /// The key is changed: whoever watches it will notice.
    #[inline]
    pub(crate) fn pass(&mut self, hash: u64) {
        if !self.fences.is_empty() {
            self.last += 1;
            let number = self.last;
            if let Some(fence) = self.find(hash) {
                fence.number = number;
            }
        }
    }

    /// All keys are changed.
    pub(crate) fn pass_all(&mut self) {
        for fence in self.fences.values_mut() {
            self.last += 1;
            fence.number = self.last;
        }
    }

    fn find(&mut self, hash: u64) -> Option<&mut Fence> {
        self.fences.get_mut(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_by_who_came_before_it_only() {
        let mut fences = Fences::default();
        let first = fences.watch(7);
        assert_eq!(fences.watch(7), first);
        let other = fences.watch(8);
        fences.pass(7);
        assert!(!fences.is_unchanged(7, first));
        assert!(fences.is_unchanged(8, other));
        let second = fences.watch(7);
        assert!(fences.is_unchanged(7, second));
        fences.pass_all();
        assert!(!fences.is_unchanged(7, second) && !fences.is_unchanged(8, other));
        for hash in [7, 7, 7, 8] {
            fences.leave(hash);
        }
        assert!(fences.fences.is_empty(), "N1");
        // N2: a fence that comes again is another one.
        assert!(![first, second].contains(&fences.watch(7)));
    }

    #[test]
    fn who_changes_a_key_notices_the_next_change() {
        let mut fences = Fences::default();
        let own = fences.watch_from_next(7);
        assert!(!fences.is_unchanged(7, own));
        fences.pass(7);
        assert!(fences.is_unchanged(7, own));
        fences.pass(8);
        assert!(fences.is_unchanged(7, own));
        fences.pass(7);
        assert!(!fences.is_unchanged(7, own));
    }

    #[test]
    fn one_loads_anew_until_the_key_changes() {
        let mut fences = Fences::default();
        let first = fences.claim(7).unwrap();
        assert_eq!(fences.claim(7), None);
        fences.pass(7);
        let second = fences.claim(7).unwrap();
        fences.give_up(7, first);
        assert_eq!(fences.claim(7), None, "the first gives up its own only");
        fences.give_up(7, second);
        assert!(fences.fences.is_empty(), "N1");
        assert!(fences.claim(7).is_some());
    }
}
