//! Checking every invariant, for tests and fuzzers.

use std::collections::{HashMap, HashSet};

use super::chain::{entry, filed_of, index_of};
use super::node::Node;
use super::{NONE, Wheel};

impl<T> Wheel<T> {
    /// Checks every internal invariant. For tests and fuzzers; O(n), slowly.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// wheel.insert(1 << 40, ());
    /// wheel.validate();
    /// wheel.advance(1 << 39, |_, _| {});
    /// wheel.validate();
    /// ```
    ///
    /// # Panics
    /// When one does not hold, saying which.
    pub fn validate(&self) {
        self.nodes.validate();
        self.moved.validate(self.era);
        assert!(self.hand <= self.tick, "I11: the hand is ahead of the tick");
        let entries = self.validate_entries();
        let mut stamps = HashSet::new();
        for (index, node) in self.nodes.iter() {
            let Some(stamp) = node.stamp() else {
                continue;
            };
            assert!(stamp <= self.stamp, "I13: node {index} has a future stamp");
            assert!(stamps.insert(stamp), "I13: two nodes have stamp {stamp}");
            self.validate_node(index, node, &entries);
        }
        let left = &self.due[self.due_next..];
        assert!(left.is_sorted(), "I10: the due list is out of order");
    }

    /// Checks I4 to I7 and I12; returns the ticks of all entries by entry.
    fn validate_entries(&self) -> HashMap<u64, Vec<u64>> {
        let mut entries: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut count = 0;
        self.slots.validate(self.hand, |tick, entry| {
            count += 1;
            entries.entry(entry).or_default().push(tick);
        });
        if self.newest != NONE {
            assert!(self.newest_tick > self.hand, "I7: the newest is overdue");
            count += 1;
            let newest = entry(self.newest_tick as u32, self.newest);
            entries.entry(newest).or_default().push(self.newest_tick);
        }
        let filed = self.nodes.iter().filter(|(_, node)| node.filed().is_some());
        assert_eq!(
            count,
            filed.count() + self.garbage,
            "I12: entries are filed nodes and garbage"
        );
        entries
    }

    /// Checks I9 and I10.
    fn validate_node(&self, index: u32, node: &Node<T>, entries: &HashMap<u64, Vec<u64>>) {
        match node {
            Node::Vacant { .. } => {}
            Node::Filed {
                filed, deadline, ..
            } => {
                assert!(
                    *deadline > self.hand,
                    "I9: node {index} is due at {deadline}, the hand at {}",
                    self.hand
                );
                let ticks = entries.get(&entry(*filed, index));
                let ticks = ticks.map_or(&[][..], Vec::as_slice);
                assert!(
                    ticks.iter().any(|tick| tick <= deadline),
                    "I9: node {index}, due at {deadline}, has entries at {ticks:?}"
                );
            }
            Node::Loose {
                stamp, deadline, ..
            } => {
                let mut left = self.due[self.due_next..].iter();
                let is_due = left.any(|&due| (filed_of(due), index_of(due)) == (*stamp, index));
                if is_due {
                    assert_eq!(*deadline, self.hand, "I10: node {index} is due");
                } else {
                    assert_eq!(
                        (*deadline, self.tick),
                        (u64::MAX, u64::MAX),
                        "I10: node {index} is nowhere"
                    );
                }
            }
        }
    }
}
