//! `btree`: `std::collections::BTreeMap` from (deadline, sequence number) to value.
//!
//! Settings: the sequence number makes keys of equal deadlines distinct and keeps them in order of
//! insertion; it is `u64` like everyone's payload. Firing takes the first entry through
//! `first_entry`, one descent, instead of looking first and removing afterwards. A map has no
//! operation that moves an entry to another key: to move is to remove and to insert, which is what
//! `churn` measures.

use std::collections::BTreeMap;

use super::{Remove, TimerStructure};

/// The adapter.
#[derive(Debug)]
pub struct BTree {
    entries: BTreeMap<(u64, u64), u64>,
    next_sequence: u64,
}

impl TimerStructure for BTree {
    type Deadline = u64;
    type Key = (u64, u64);

    fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            next_sequence: 0,
        }
    }

    #[inline]
    fn deadline(&self, tick: u64) -> u64 {
        tick
    }

    #[inline]
    fn insert(&mut self, deadline: u64, value: u64) -> (u64, u64) {
        let key = (deadline, self.next_sequence);
        self.next_sequence += 1;
        self.entries.insert(key, value);
        key
    }

    fn pending(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn fire(&mut self, through: u64, mut fired: impl FnMut(u64, u64)) {
        for tick in 1..=through {
            while let Some(first) = self.entries.first_entry() {
                if first.key().0 > tick {
                    break;
                }
                fired(tick, first.remove());
            }
        }
    }
}

impl Remove for BTree {
    #[inline]
    fn remove(&mut self, key: (u64, u64)) -> Option<u64> {
        self.entries.remove(&key)
    }
}
