//! The pure timing wheel: ticks, no clock, no thread.

use std::collections::BTreeSet;

/// Names one timer of one wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey {
    era: u32,
    index: u32,
    generation: u32,
}

/// A timer that has come due, as handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired<T> {
    /// The key that `insert` returned.
    pub key: TimerKey,
    /// The tick it was due at, as counted.
    pub deadline: u64,
    /// What was inserted.
    pub value: T,
}

/// A number of slots that no wheel can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("slots must be in 1..=16777216, got {slots}")]
#[non_exhaustive]
pub struct SlotsError {
    /// The number that was asked for.
    pub slots: usize,
}

/// Counters of a wheel since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelStats {
    /// Timers filed again because a move had left them in an earlier slot.
    pub relocations: u64,
    /// References copied from a coarser level to a finer one.
    pub cascades: u64,
    /// References dropped because their timer was gone or filed elsewhere.
    pub stale: u64,
    /// Times that storage was compacted.
    pub compactions: u64,
}

#[derive(Debug)]
struct Node<T> {
    generation: u32,
    live: Option<(u64, u64, T)>,
}

/// The pure structure.
#[derive(Debug)]
pub struct Wheel<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    order: BTreeSet<(u64, u64, u32)>,
    stamp: u64,
    tick: u64,
    stats: WheelStats,
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Wheel<T> {
    /// An empty wheel at tick 0.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            order: BTreeSet::new(),
            stamp: 0,
            tick: 0,
            stats: WheelStats::default(),
        }
    }

    /// An empty wheel with a ring of `slots` slots.
    ///
    /// # Errors
    /// When `slots` is not in `1..=16_777_216`.
    pub fn with_slots(slots: usize) -> Result<Self, SlotsError> {
        if (1..=16_777_216).contains(&slots) {
            Ok(Self::new())
        } else {
            Err(SlotsError { slots })
        }
    }

    /// Number of pending timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no timer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The tick last advanced to.
    #[must_use]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Counters since the wheel was built.
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        self.stats
    }

    fn counted(&self, deadline: u64) -> u64 {
        deadline.max(self.tick.saturating_add(1))
    }

    pub(crate) fn insert_raw(&mut self, deadline: u64, value: T) -> u32 {
        let deadline = self.counted(deadline);
        self.stamp += 1;
        let live = Some((deadline, self.stamp, value));
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize].live = live;
                index
            }
            None => {
                self.nodes.push(Node {
                    generation: 0,
                    live,
                });
                (self.nodes.len() - 1) as u32
            }
        };
        self.order.insert((deadline, self.stamp, index));
        index
    }

    pub(crate) fn remove_raw(&mut self, index: u32) -> T {
        let node = &mut self.nodes[index as usize];
        let (deadline, stamp, value) = node.live.take().expect("a live timer");
        node.generation += 1;
        self.free.push(index);
        self.order.remove(&(deadline, stamp, index));
        value
    }

    pub(crate) fn reschedule_raw(&mut self, index: u32, deadline: u64) {
        let deadline = self.counted(deadline);
        self.stamp += 1;
        let stamp = self.stamp;
        let live = self.nodes[index as usize].live.as_mut();
        let live = live.expect("a live timer");
        self.order.remove(&(live.0, live.1, index));
        (live.0, live.1) = (deadline, stamp);
        self.order.insert((deadline, stamp, index));
    }

    pub(crate) fn value_raw(&self, index: u32) -> &T {
        &self.nodes[index as usize].live.as_ref().expect("live").2
    }

    pub(crate) fn value_raw_mut(&mut self, index: u32) -> &mut T {
        &mut self.nodes[index as usize].live.as_mut().expect("live").2
    }

    pub(crate) fn deadline_raw(&self, index: u32) -> u64 {
        self.nodes[index as usize].live.as_ref().expect("live").0
    }

    pub(crate) fn touch_raw(&self, index: u32) -> u32 {
        self.nodes.get(index as usize).map_or(0, |n| n.generation)
    }

    pub(crate) fn pop_raw(&mut self, now: u64) -> Option<(u32, u64, T)> {
        if now < self.tick {
            return None;
        }
        self.tick = now;
        let &(deadline, _, index) = self.order.first()?;
        if deadline > now {
            return None;
        }
        Some((index, deadline, self.remove_raw(index)))
    }

    pub(crate) fn next_due(&mut self) -> Option<u64> {
        self.order.first().map(|first| first.0)
    }

    pub(crate) fn wants_compact(&self) -> bool {
        false
    }

    /// Moves what is pending together. `moved` gets, for each old index, the
    /// new one (`u32::MAX` where nothing was pending).
    pub(crate) fn compact_raw(&mut self, moved: impl FnOnce(&[u32])) {
        let map: Vec<u32> = (0..self.nodes.len() as u32).collect();
        moved(&map);
    }

    /// Takes everything out, in firing order.
    pub fn drain(&mut self) -> std::vec::IntoIter<Expired<T>> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(&(deadline, _, index)) = self.order.first() {
            let key = TimerKey {
                era: 0,
                index,
                generation: self.nodes[index as usize].generation,
            };
            let value = self.remove_raw(index);
            all.push(Expired {
                key,
                deadline,
                value,
            });
        }
        all.into_iter()
    }
}
