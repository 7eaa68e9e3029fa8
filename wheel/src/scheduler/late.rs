//! What was filed for a tick that the wheel of its shard has passed: a wheel knows no past, and would
//! put it off to its next tick, which a clock that stands still, or has gone back, does not reach.

use std::collections::BTreeMap;

use slab::Slab;

/// Set in the numbers of what is kept here, which so differ from the indices of the wheel.
const LATE: u32 = 1 << 31;

/// Whether what has this number is kept here. The wheel holds fewer than 2³¹.
pub(super) fn is_late(number: u32) -> bool {
    number & LATE != 0
}

/// Ordered by tick, and by arrival within one.
pub(super) struct Late<T> {
    kept: Slab<Kept<T>>,
    order: BTreeMap<(u64, u64), u32>,
    arrived: u64,
}

struct Kept<T> {
    tick: u64,
    arrival: u64,
    value: T,
}

impl<T> Late<T> {
    pub(super) fn new() -> Self {
        Late {
            kept: Slab::new(),
            order: BTreeMap::new(),
            arrived: 0,
        }
    }

    pub(super) fn insert(&mut self, tick: u64, value: T) -> u32 {
        let arrival = self.arrived;
        self.arrived += 1;
        let key = self.kept.insert(Kept {
            tick,
            arrival,
            value,
        });
        let number = u32::try_from(key).expect("fewer than 2³¹ are late") | LATE;
        self.order.insert((tick, arrival), number);
        number
    }

    /// # Panics
    /// When nothing of this number is kept.
    pub(super) fn remove(&mut self, number: u32) -> T {
        let kept = self.kept.remove((number & !LATE) as usize);
        self.order.remove(&(kept.tick, kept.arrival));
        if self.kept.is_empty() {
            *self = Late::new();
        }
        kept.value
    }

    /// # Panics
    /// When nothing of this number is kept.
    pub(super) fn tick(&self, number: u32) -> u64 {
        self.kept[(number & !LATE) as usize].tick
    }

    /// The earliest tick.
    pub(super) fn first(&self) -> Option<u64> {
        self.order.keys().next().map(|(tick, _)| *tick)
    }

    /// Takes out the first, if its tick is not after `tick`.
    pub(super) fn pop(&mut self, tick: u64) -> Option<(u64, T)> {
        let (&(due, _), &number) = self.order.first_key_value()?;
        (due <= tick).then(|| (due, self.remove(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_leaves_first_and_then_who_came_first() {
        let mut late = Late::new();
        for (tick, value) in [(7, "c"), (5, "a"), (7, "d"), (5, "b")] {
            assert!(is_late(late.insert(tick, value)));
        }
        assert_eq!(late.pop(4), None);
        let order: Vec<_> = std::iter::from_fn(|| late.pop(6)).collect();
        assert_eq!(order, [(5, "a"), (5, "b")]);
        assert_eq!(late.first(), Some(7));
        let number = late.insert(6, "e");
        assert_eq!(late.tick(number), 6);
        assert_eq!(late.remove(number), "e");
        let order: Vec<_> = std::iter::from_fn(|| late.pop(u64::MAX)).collect();
        assert_eq!(order, [(7, "c"), (7, "d")]);
        assert_eq!(late.first(), None);
    }
}
