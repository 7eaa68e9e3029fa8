//! Setting, moving and removing one timer: its key, its node and its entry.
//!
//! # Ground rules
//! Keys end here: what comes after `find` knows nodes by index alone, and the
//! keyed wheel (`raw.rs`) comes in at that point. The entry of the timer
//! inserted last is not in its slot yet: whoever is about to file another, or
//! to look at slots, calls `file_newest` first.

use super::node::Node;
use super::{Expired, NONE, Taken, TimerKey, Wheel};

impl<T> Wheel<T> {
    /// The index of a pending timer's node.
    #[inline]
    pub(super) fn find(&self, key: TimerKey) -> Option<u32> {
        if key.era != self.era {
            return self.find_moved(key);
        }
        let node = self.nodes.get(key.index)?;
        (node.is_live() && node.generation() == key.generation).then_some(key.index)
    }

    #[cold]
    #[inline(never)]
    fn find_moved(&self, key: TimerKey) -> Option<u32> {
        let place = self.moved.place(key)?;
        let node = self.nodes.get(place)?;
        (node.is_live() && node.generation() == 0).then_some(place)
    }

    /// The key that the timer of a node was inserted under.
    #[inline]
    pub(super) fn key_of(&self, index: u32, generation: u32) -> TimerKey {
        if generation == 0 && (index as usize) < self.moved.len() {
            return self.moved.key(index);
        }
        TimerKey {
            era: self.era,
            index,
            generation,
        }
    }

    #[inline]
    pub(super) fn expired(&self, taken: Taken<T>) -> Expired<T> {
        Expired {
            key: self.key_of(taken.index, taken.generation),
            deadline: taken.deadline,
            value: taken.value,
        }
    }

    #[inline(never)]
    pub(super) fn remove_moved(&mut self, key: TimerKey) -> Option<T> {
        let place = self.find_moved(key)?;
        let value = self.remove_raw(place);
        self.tidy();
        Some(value)
    }

    /// Accounts for the entry of a node that has become vacant.
    #[inline]
    pub(super) fn removed(&mut self, index: u32, node: Node<T>) -> T {
        match node {
            Node::Vacant { .. } => unreachable!("only live nodes are taken"),
            Node::Filed { value, .. } => {
                if index == self.newest {
                    self.newest = NONE;
                } else {
                    self.garbage += 1;
                    self.sweep_if_due();
                }
                value
            }
            Node::Loose { value, .. } => value,
        }
    }

    /// Moves a filed timer of the wanted generation to a later deadline, which
    /// is a matter of its node alone. `false` when it takes more than that.
    ///
    /// The common move of a keep-alive, so it must be part of its caller.
    #[inline(always)]
    pub(super) fn delay(
        &mut self,
        index: u32,
        to: u64,
        is_wanted: impl FnOnce(u32) -> bool,
    ) -> bool {
        if self.stamp != u32::MAX
            && to > self.tick
            && let Some(Node::Filed {
                generation,
                stamp,
                deadline,
                ..
            }) = self.nodes.get_mut(index)
            && is_wanted(*generation)
            && to >= *deadline
        {
            *deadline = to;
            self.stamp += 1;
            *stamp = self.stamp;
            return true;
        }
        false
    }

    /// Takes the parts of the key, so that they stay in registers on the path
    /// that does not come here.
    #[cold]
    #[inline(never)]
    pub(super) fn reschedule_slowly(
        &mut self,
        era: u32,
        index: u32,
        generation: u32,
        deadline: u64,
    ) -> bool {
        let index = self.find(TimerKey {
            era,
            index,
            generation,
        });
        if let Some(index) = index {
            self.reschedule_node(index, deadline);
        }
        index.is_some()
    }

    #[inline]
    fn counted(&self, deadline: u64) -> u64 {
        deadline.max(self.tick.saturating_add(1))
    }

    #[inline]
    pub(super) fn next_stamp(&mut self) -> u32 {
        if self.stamp == u32::MAX {
            self.renumber();
        }
        self.stamp += 1;
        self.stamp
    }

    #[inline]
    pub(super) fn insert_node(&mut self, deadline: u64, value: T) -> (u32, u32) {
        if self.tick == u64::MAX {
            return self.insert_never(value);
        }
        let deadline = self.counted(deadline);
        let stamp = self.next_stamp();
        let occupied = self.nodes.occupy(|generation| Node::Filed {
            generation,
            stamp,
            filed: deadline as u32,
            deadline,
            value,
        });
        self.file_newest();
        self.newest = occupied.0;
        self.newest_tick = deadline;
        occupied
    }

    /// Files the entry of the timer inserted last.
    ///
    /// It is put off until the next insertion, or until the slots are looked
    /// at: a timer removed before then never touches a slot, and that is the
    /// common life of a timeout.
    #[inline]
    pub(super) fn file_newest(&mut self) {
        if self.newest != NONE {
            self.slots.file(self.hand, self.newest_tick, self.newest);
            self.newest = NONE;
        }
    }

    #[cold]
    fn insert_never(&mut self, value: T) -> (u32, u32) {
        let stamp = self.next_stamp();
        self.nodes.occupy(|generation| Node::Loose {
            generation,
            stamp,
            deadline: u64::MAX,
            value,
        })
    }

    /// Files a live node under its deadline.
    #[inline]
    pub(super) fn file(&mut self, index: u32, deadline: u64) {
        self.nodes[index].set_filed(deadline);
        self.slots.file(self.hand, deadline, index);
    }

    /// Moves the timer of a live node.
    pub(super) fn reschedule_node(&mut self, index: u32, deadline: u64) {
        self.file_newest();
        let deadline = self.counted(deadline);
        let stamp_now = self.next_stamp();
        let near = self.hand >> 32;
        let never = self.tick == u64::MAX;
        let node = &mut self.nodes[index];
        match node {
            Node::Vacant { .. } => panic!("no timer at {index}"),
            Node::Filed {
                stamp,
                deadline: due,
                filed,
                ..
            } => {
                // The whole tick it is filed under is known only while it is
                // due within the hand's upper half: it is filed no later.
                let reached_in_time =
                    *due >> 32 == near && deadline >= near << 32 | u64::from(*filed);
                let stays = deadline >= *due || reached_in_time;
                *stamp = stamp_now;
                *due = deadline;
                if never {
                    node.set_loose();
                } else if stays {
                    return;
                } else {
                    self.file(index, deadline);
                }
                self.garbage += 1;
                self.sweep_if_due();
            }
            Node::Loose {
                stamp,
                deadline: due,
                ..
            } => {
                *stamp = stamp_now;
                *due = deadline;
                if !never {
                    self.file(index, deadline);
                }
            }
        }
    }
}
