//! `heap`: `std::collections::BinaryHeap` of (deadline, value), smallest first.
//!
//! Settings: the 16-byte entry is the least that orders by deadline and carries the value; ties go
//! by value, which needs no sequence number. A heap names no entry, so it can neither remove nor
//! move one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::TimerStructure;

/// The adapter.
#[derive(Debug)]
pub struct Heap(BinaryHeap<Reverse<(u64, u64)>>);

impl TimerStructure for Heap {
    type Deadline = u64;
    type Key = ();

    fn new() -> Self {
        Self(BinaryHeap::new())
    }

    #[inline]
    fn deadline(&self, tick: u64) -> u64 {
        tick
    }

    #[inline]
    fn insert(&mut self, deadline: u64, value: u64) {
        self.0.push(Reverse((deadline, value)));
    }

    fn pending(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn fire(&mut self, through: u64, mut fired: impl FnMut(u64, u64)) {
        for tick in 1..=through {
            while self.0.peek().is_some_and(|first| first.0.0 <= tick) {
                let Some(Reverse((_, value))) = self.0.pop() else {
                    break;
                };
                fired(tick, value);
            }
        }
    }
}
