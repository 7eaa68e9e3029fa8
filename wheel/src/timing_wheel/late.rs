//! Timers that were set for a tick which the wheel of their shard has passed.
//!
//! A wheel knows no past, and would put them off to its next tick. That is the tick after where a clock
//! goes on, but where one has shown a time far ahead and come back it is only reached with that time.
//! So such a timer is filed in the wheel for [`NEVER`](crate::drive::ticks::NEVER), and here under its
//! tick. They are few, and mostly none: whoever asks looks at [`is_empty`](Late::is_empty) first.

use std::collections::BTreeMap;

/// Nodes of the wheel. One word while it is empty, so that its shard, which looks at it with every
/// command, stays as small as it was.
#[derive(Debug, Default)]
pub(super) struct Late(Option<Box<Nodes>>);

/// Ordered by tick, and by arrival within one.
#[derive(Debug, Default)]
struct Nodes {
    order: BTreeMap<(u64, u64), u32>,
    /// Where each node is in the order.
    places: BTreeMap<u32, (u64, u64)>,
    arrived: u64,
}

impl Late {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a node that is not there.
    #[cold]
    pub(super) fn insert(&mut self, tick: u64, node: u32) {
        let nodes = self.0.get_or_insert_default();
        let place = (tick, nodes.arrived);
        nodes.arrived += 1;
        nodes.order.insert(place, node);
        nodes.places.insert(node, place);
    }

    /// Takes a node out, if it is there.
    #[cold]
    pub(super) fn remove(&mut self, node: u32) {
        if let Some(nodes) = &mut self.0
            && let Some(place) = nodes.places.remove(&node)
        {
            nodes.order.remove(&place);
            self.tidy();
        }
    }

    /// The tick of a node, if it is there.
    pub(super) fn tick(&self, node: u32) -> Option<u64> {
        let (tick, _) = self.0.as_ref()?.places.get(&node)?;
        Some(*tick)
    }

    /// The earliest tick.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        let ((tick, _), _) = self.0.as_ref()?.order.first_key_value()?;
        Some(*tick)
    }

    /// Takes the first out, if its tick is not after `tick`.
    pub(super) fn pop(&mut self, tick: u64) -> Option<(u64, u32)> {
        let nodes = self.0.as_mut()?;
        let first = nodes.order.first_entry()?;
        let (due, _) = *first.key();
        if due > tick {
            return None;
        }
        let node = first.remove();
        nodes.places.remove(&node);
        self.tidy();
        Some((due, node))
    }

    /// Follows nodes that were moved.
    pub(super) fn renumber(&mut self, new_node: &dyn Fn(u32) -> u32) {
        let Some(nodes) = &mut self.0 else {
            return;
        };
        nodes.places.clear();
        for (place, node) in &mut nodes.order {
            *node = new_node(*node);
            nodes.places.insert(*node, *place);
        }
    }

    /// Gives the memory back when the last has gone.
    fn tidy(&mut self) {
        self.0.take_if(|nodes| nodes.order.is_empty());
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_leaves_first_and_then_who_came_first() {
        let mut late = Late::default();
        for (tick, node) in [(7, 30), (5, 10), (7, 40), (5, 20), (6, 50)] {
            late.insert(tick, node);
        }
        late.remove(50);
        late.remove(60);
        assert_eq!((late.tick(40), late.tick(50)), (Some(7), None));
        assert_eq!(late.pop(4), None);
        late.renumber(&|node| node + 1);
        assert_eq!((late.tick(41), late.tick(40)), (Some(7), None));
        let order: Vec<_> = std::iter::from_fn(|| late.pop(6)).collect();
        assert_eq!(order, [(5, 11), (5, 21)]);
        assert_eq!(late.first(), Some(7));
        let order: Vec<_> = std::iter::from_fn(|| late.pop(u64::MAX)).collect();
        assert_eq!(order, [(7, 31), (7, 41)]);
        assert!(late.is_empty());
        assert_eq!(size_of::<Late>(), size_of::<usize>());
    }
}
