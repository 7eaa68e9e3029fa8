//! Failed loads that are remembered for a while.
//!
//! # Invariants
//! - F1: one failure for each hash, and at most [`MOST`] in a shard. Another key of the same hash does
//!   not get it: the key is kept.
//! - F2: nothing of the user's is dropped here, since the shard is locked: what is void stays until
//!   somebody who stores a failure takes it out.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::shard::Micros;

/// Failures that a shard remembers.
const MOST: usize = 1024;

pub(crate) type Failure = Arc<dyn Any + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Negatives<K>(HashMap<u64, Negative<K>, RandomState>);

/// A failure of a key. To be dropped outside the lock.
#[derive(Debug)]
pub(crate) struct Negative<K> {
    key: K,
    failure: Failure,
    /// Zero when the key has been changed since.
    until: Micros,
}

impl<K> Default for Negatives<K> {
    fn default() -> Self {
        Negatives(HashMap::default())
    }
}

impl<K: Eq> Negatives<K> {
    /// How the last load of the key failed, if that still counts at `now`.
    pub(crate) fn find(&self, hash: u64, key: &K, now: impl FnOnce() -> Micros) -> Option<Failure> {
        if self.0.is_empty() {
            return None;
        }
        let negative = self.0.get(&hash)?;
        (negative.key == *key && now() < negative.until).then(|| negative.failure.clone())
    }

    /// Remembers a failure until `until`; returns what has to be dropped.
    #[must_use]
    pub(crate) fn add(
        &mut self,
        hash: u64,
        key: K,
        failure: Failure,
        until: Micros,
        now: Micros,
    ) -> Vec<Negative<K>> {
        let mut out = Vec::new();
        if self.0.len() >= MOST {
            let over = self.0.iter().filter(|(_, negative)| negative.until <= now);
            let mut over: Vec<u64> = over.map(|(hash, _)| *hash).collect();
            if over.is_empty() {
                // As good as any other: their order is random.
                over.extend(self.0.keys().next());
            }
            out.extend(over.iter().filter_map(|hash| self.0.remove(hash)));
        }
        let negative = Negative {
            key,
            failure,
            until,
        };
        out.extend(self.0.insert(hash, negative));
        out
    }

    /// The key is changed.
    #[inline]
    pub(crate) fn forget(&mut self, hash: u64) {
        if !self.0.is_empty()
            && let Some(negative) = self.0.get_mut(&hash)
        {
            negative.until = 0;
        }
    }

    /// Forgets all; returns what has to be dropped.
    #[must_use]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_allowed_and_those_over_go_first() {
        let mut negatives = Negatives::default();
        let failure: Failure = Arc::new("no");
        let mut dropped = 0;
        for hash in 0..MOST as u64 + 10 {
            let until = if hash < 5 { 1 } else { 9 };
            dropped += negatives.add(hash, hash, failure.clone(), until, 3).len();
        }
        assert_eq!((negatives.0.len(), dropped), (MOST, 10));
        assert!((0..5).all(|hash| negatives.find(hash, &hash, || 0).is_none()));
        let last = MOST as u64 + 9;
        assert!(negatives.find(last, &last, || 8).is_some());
        assert!(negatives.find(last, &last, || 9).is_none(), "over");
        assert!(negatives.find(last, &7, || 8).is_none(), "another key");
        negatives.forget(last);
        assert!(negatives.find(last, &last, || 0).is_none());
        drop(negatives.take());
        assert!(negatives.0.is_empty());
    }
}
