//! Turning the wheel: cascading, collecting what a tick has, handing out.
//!
//! # Ground rules
//! A tick is collected as a whole into the due list before any of it is handed
//! out, and no user code runs in between, so all of this file works on a
//! consistent wheel. What is handed out is looked at again at that moment: it
//! may have been removed or moved since. All progress is in the wheel itself,
//! so a panic, a `pop_expired` or a nested `advance` leaves off where the next
//! one goes on.
//!
//! # Invariants
//! - I9: a filed node is due after the hand and not before the tick that it is
//!   filed under; some entry for it is in the slot of that tick.
//! - I10: a loose node is either in the due list with its stamp, and due at the
//!   hand, or was set at the last tick there is (`u64::MAX`) and never fires.
//! - I11: `hand ≤ tick`; they differ only between the beginning of an advance
//!   and the moment when nothing due was left.

use super::chain::{Entry, filed_of, index_of};
use super::node::{Node, Nodes};
use super::slots::Next;
use super::{Taken, Wheel};

/// How many entries of the due list are looked at before their turn.
const AHEAD: usize = 16;

/// How many chunks of a tick were looked at while the tick before was fired.
const AHEAD_CHUNKS: usize = 2;

impl<T> Wheel<T> {
    /// Makes `now` the wheel's tick; `false` when it is an earlier one.
    #[inline]
    pub(super) fn begin(&mut self, now: u64) -> bool {
        let forward = now >= self.tick;
        if forward {
            self.tick = now;
        }
        forward
    }

    /// Takes out the next timer due at `now` or before.
    #[inline]
    pub(super) fn pop_due<const TIDY: bool>(&mut self, now: u64) -> Option<Taken<T>> {
        loop {
            if self.hand > now {
                return None;
            }
            while let Some(&due) = self.due.get(self.due_next) {
                self.due_next += 1;
                if self.due_next.is_multiple_of(AHEAD) {
                    self.look_ahead();
                }
                if let Some(taken) = self.take_due(due) {
                    return Some(taken);
                }
            }
            self.due.clear();
            self.due_next = 0;
            if TIDY {
                self.tidy();
            }
            if !self.step(now) {
                return None;
            }
        }
    }

    /// Takes a timer out unless it was removed or moved after it was collected.
    #[inline]
    fn take_due(&mut self, due: u64) -> Option<Taken<T>> {
        let index = due as u32;
        let touched = (due >> 32) as u32;
        let wanted = |node: &Node<T>| match node {
            Node::Loose { stamp, .. } => *stamp == touched,
            _ => false,
        };
        let Some(Node::Loose {
            generation,
            deadline,
            value,
            ..
        }) = self.nodes.vacate_if(index, wanted)
        else {
            return None;
        };
        Some(Taken {
            index,
            generation,
            deadline,
            value,
        })
    }

    /// Loads the nodes that are handed out next, all misses at once.
    fn look_ahead(&self) {
        let next = self.due[self.due_next..].iter().take(AHEAD);
        touch(&self.nodes, next.copied());
    }

    /// Moves the hand to the next tick that has something due, not past
    /// `limit`. Returns whether there is one.
    fn step(&mut self, limit: u64) -> bool {
        self.file_newest();
        while let Some(next) = self.slots.next(self.hand) {
            match next {
                Next::Tick { slot, tick } if tick <= limit => {
                    self.hand = tick;
                    self.collect(slot);
                    if !self.due.is_empty() {
                        return true;
                    }
                }
                Next::Span { slot, start } if start <= limit => {
                    self.hand = start;
                    self.stats.cascades += self.slots.cascade(slot, start);
                }
                Next::Far { high, start } if start <= limit => {
                    self.hand = start;
                    self.stats.cascades += self.slots.cascade_far(high, start);
                }
                _ => break,
            }
        }
        self.hand = limit;
        false
    }

    /// Puts what is due at the hand into the due list, in order of touch; files
    /// what has moved on.
    #[inline(never)]
    fn collect(&mut self, slot: usize) {
        let mut chain = self.slots.take(slot);
        let mut buffer = [0; _];
        let mut chunks = 0;
        let mut in_order = true;
        let mut last = 0;
        loop {
            let range = self.slots.take_chunk(&mut chain, &mut buffer);
            if range.is_empty() {
                break;
            }
            let entries = &buffer[range];
            chunks += 1;
            if chunks > AHEAD_CHUNKS {
                touch(&self.nodes, entries.iter().copied());
            }
            for &entry in entries {
                if let Some(due) = self.settle(entry) {
                    in_order &= last <= due;
                    last = due;
                    self.due.push(due);
                }
            }
        }
        if !in_order {
            self.due.sort_unstable();
        }
        touch(&self.nodes, self.slots.upcoming(self.hand));
    }

    /// Looks at the node of an entry that the hand has reached.
    #[inline]
    fn settle(&mut self, entry: Entry) -> Option<u64> {
        let index = index_of(entry);
        if let Some(node) = self.nodes.get_mut(index)
            && let Node::Filed {
                stamp,
                filed,
                deadline,
                ..
            } = node
            && *filed == filed_of(entry)
        {
            let (stamp, deadline) = (*stamp, *deadline);
            if deadline == self.hand {
                node.set_loose();
                return Some(u64::from(stamp) << 32 | u64::from(index));
            }
            self.relocate(index, deadline);
        } else {
            self.drop_stale();
        }
        None
    }

    #[cold]
    fn relocate(&mut self, index: u32, deadline: u64) {
        self.stats.relocations += 1;
        self.file(index, deadline);
    }

    #[inline]
    fn drop_stale(&mut self) {
        self.garbage -= 1;
        self.stats.stale += 1;
    }

    /// The true minimum of the deadlines. Entries on the way to it that say an
    /// earlier tick than their timer are settled, each of them once.
    pub(super) fn least_deadline(&mut self) -> Option<u64> {
        while let Some(&due) = self.due.get(self.due_next) {
            match self.nodes.get(due as u32) {
                Some(Node::Loose { stamp, .. }) if *stamp == (due >> 32) as u32 => {
                    return Some(self.hand);
                }
                _ => self.due_next += 1,
            }
        }
        self.file_newest();
        while let Some(next) = self.slots.next(self.hand) {
            let Some(entry) = self.slots.least(next) else {
                break;
            };
            let index = index_of(entry);
            match self.nodes.get(index) {
                Some(Node::Filed {
                    filed, deadline, ..
                }) if *filed == filed_of(entry) => {
                    let deadline = *deadline;
                    let start = match next {
                        Next::Tick { tick, .. } => tick,
                        Next::Span { start, .. } | Next::Far { start, .. } => start,
                    };
                    if deadline == start >> 32 << 32 | u64::from(filed_of(entry)) {
                        return Some(deadline);
                    }
                    self.slots.pop_least(next);
                    self.relocate(index, deadline);
                }
                _ => {
                    self.slots.pop_least(next);
                    self.drop_stale();
                }
            }
        }
        (self.nodes.len() > 0).then_some(u64::MAX)
    }
}

/// Loads nodes that are about to be used, so that their cache misses overlap
/// instead of following one another.
#[inline]
fn touch<T>(nodes: &Nodes<T>, entries: impl Iterator<Item = Entry>) {
    let heads = entries.filter_map(|entry| nodes.get(index_of(entry)));
    let sum = heads.fold(0u32, |sum, node| sum.wrapping_add(node.generation()));
    std::hint::black_box(sum);
}
