//! The face of the keyed wheel, which keeps the indices of nodes itself.
//!
//! An index is valid from `insert_raw` until the timer leaves or `compact_raw`
//! gives it a new one. A wheel is used by indices or by keys, not by both.

use super::Wheel;
use super::node::Node;

impl<T> Wheel<T> {
    #[inline]
    pub(crate) fn insert_raw(&mut self, deadline: u64, value: T) -> u32 {
        self.insert_node(deadline, value).0
    }

    /// # Panics
    /// When no timer is at `index`.
    #[inline]
    pub(crate) fn remove_raw(&mut self, index: u32) -> T {
        match self.nodes.vacate_if(index, Node::is_live) {
            Some(node) => self.removed(index, node),
            None => panic!("no timer at {index}"),
        }
    }

    /// # Panics
    /// When no timer is at `index`.
    #[inline]
    pub(crate) fn reschedule_raw(&mut self, index: u32, deadline: u64) {
        if !self.delay(index, deadline, |_| true) {
            self.reschedule_node(index, deadline);
        }
    }

    /// # Panics
    /// When no timer is at `index`.
    #[inline]
    pub(crate) fn value_raw(&self, index: u32) -> &T {
        self.nodes[index].value().expect("a timer at the index")
    }

    /// # Panics
    /// When no timer is at `index`.
    #[inline]
    pub(crate) fn value_raw_mut(&mut self, index: u32) -> &mut T {
        self.nodes[index].value_mut().expect("a timer at the index")
    }

    /// # Panics
    /// When no timer is at `index`.
    #[inline]
    pub(crate) fn deadline_raw(&self, index: u32) -> u64 {
        self.nodes[index].deadline().expect("a timer at the index")
    }

    /// Loads a node, so that its cache miss overlaps others. Any index will do.
    #[inline]
    pub(crate) fn touch_raw(&self, index: u32) -> u32 {
        self.nodes.get(index).map_or(0, Node::generation)
    }

    /// Loads the end of the slot that a new timer of this deadline would go to, likewise.
    #[inline]
    pub(crate) fn touch_slot_raw(&self, deadline: u64) -> u32 {
        self.slots.touch_end(self.tick, deadline)
    }

    /// As [`Wheel::pop_expired`]; the index is free from then on.
    #[inline]
    pub(crate) fn pop_raw(&mut self, now: u64) -> Option<(u32, u64, T)> {
        if !self.begin(now) {
            return None;
        }
        let taken = self.pop_due::<false>(now)?;
        Some((taken.index, taken.deadline, taken.value))
    }

    /// As [`Wheel::next_deadline`].
    #[inline]
    pub(crate) fn next_due(&mut self) -> Option<u64> {
        self.least_deadline()
    }

    /// Whether `compact_raw` is due: less than a quarter of the nodes is live.
    #[inline]
    pub(crate) fn wants_compact(&self) -> bool {
        self.nodes.is_sparse()
    }
}
