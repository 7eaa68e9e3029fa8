//! Looking at all pending timers, and taking them all out.

use std::fmt;
use std::iter::FusedIterator;
use std::vec;

use super::node::Node;
use super::{Expired, TimerKey, Wheel};

/// The pending timers of a wheel, in no order: [`Wheel::iter`].
pub struct Iter<'a, T> {
    wheel: &'a Wheel<T>,
    next: u32,
    left: usize,
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("left", &self.left).finish()
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (TimerKey, u64, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let index = self.next;
            self.next += 1;
            let node = self.wheel.nodes.get(index)?;
            if let (Some(deadline), Some(value)) = (node.deadline(), node.value()) {
                self.left -= 1;
                let key = self.wheel.key_of(index, node.generation());
                return Some((key, deadline, value));
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> FusedIterator for Iter<'_, T> {}

/// Timers taken out of a wheel, in firing order: [`Wheel::drain`].
///
/// Dropping it drops those that are left.
pub struct Drain<T> {
    timers: vec::IntoIter<(u32, Expired<T>)>,
}

impl<T> fmt::Debug for Drain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.timers.len();
        f.debug_struct("Drain").field("left", &left).finish()
    }
}

impl<T> Iterator for Drain<T> {
    type Item = Expired<T>;

    fn next(&mut self) -> Option<Expired<T>> {
        self.timers.next().map(|(_, expired)| expired)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.timers.size_hint()
    }
}

impl<T> ExactSizeIterator for Drain<T> {}
impl<T> FusedIterator for Drain<T> {}

impl<T> Wheel<T> {
    /// All pending timers as key, deadline in ticks and value, in no particular
    /// order. O(n) in the most timers pending at once since the last compaction.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(4, "tea");
    /// assert!(wheel.iter().eq([(key, 4, &"tea")]));
    /// assert_eq!(wheel.iter().len(), 1);
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter {
            wheel: self,
            next: 0,
            left: self.len(),
        }
    }

    /// Takes all timers out at once and returns them in the order in which they
    /// would have fired. The tick stays, and the wheel is free for use at once.
    ///
    /// O(n log n) in pending timers, before it returns; and O(m) in the most
    /// timers pending at once since the last compaction.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// wheel.insert(9, "second");
    /// wheel.insert(4, "first");
    /// let values: Vec<_> = wheel.drain().map(|timer| timer.value).collect();
    /// assert_eq!(values, ["first", "second"]);
    /// assert!(wheel.is_empty());
    /// ```
    pub fn drain(&mut self) -> Drain<T> {
        let mut timers = Vec::with_capacity(self.len());
        for index in 0..self.nodes.used() {
            let Some(
                Node::Filed {
                    generation,
                    stamp,
                    deadline,
                    value,
                    ..
                }
                | Node::Loose {
                    generation,
                    stamp,
                    deadline,
                    value,
                },
            ) = self.nodes.vacate_if(index, Node::is_live)
            else {
                continue;
            };
            let expired = Expired {
                key: self.key_of(index, generation),
                deadline,
                value,
            };
            timers.push((stamp, expired));
        }
        timers.sort_unstable_by_key(|(stamp, expired)| (expired.deadline, *stamp));
        self.reset_slots();
        if self.begin_empty_era() {
            self.nodes = Default::default();
        }
        Drain {
            timers: timers.into_iter(),
        }
    }

    /// Drops all timers. The tick stays, every key is stale from now on. O(n) in
    /// the most timers pending at once since the last compaction.
    ///
    /// ```
    /// # use wheelhouse_wheel::Wheel;
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(4, "tea");
    /// wheel.clear();
    /// assert_eq!((wheel.len(), wheel.remove(key)), (0, None));
    /// ```
    pub fn clear(&mut self) {
        if self.begin_empty_era() {
            self.reset_slots();
            drop(std::mem::take(&mut self.nodes));
        } else {
            drop(self.drain());
        }
    }
}

impl<'a, T> IntoIterator for &'a Wheel<T> {
    type Item = (TimerKey, u64, &'a T);
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}
