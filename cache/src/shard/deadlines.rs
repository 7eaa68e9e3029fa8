//! Which blocks of the table have something to reclaim: a timing wheel with one timer per block.
//!
//! # Invariants
//! - D1: the minimum of a block is at most the earliest deadline in it. It may be too early, since
//!   nothing is searched when an entry leaves; looking at the block puts it right.
//! - D2: a block whose minimum is finite has a timer at the first tick after it, or is in work.

use wheelhouse_wheel::{TimerKey, Wheel};

use super::entry::{Micros, NEVER};

/// Entries per timer. One each would cost several times its memory and a third of the inserts.
pub(super) const BLOCK: usize = 64;

/// A tick of the wheel is 1 024 microseconds.
const TICK_BITS: u32 = 10;

#[derive(Debug)]
pub(super) struct Deadlines {
    blocks: Vec<Block>,
    wheel: Wheel<u32>,
    /// The block that the last step came to and did not finish.
    in_work: Option<u32>,
}

#[derive(Debug)]
struct Block {
    minimum: Micros,
    timer: Option<TimerKey>,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Deadlines {
            blocks: Vec::new(),
            wheel: Wheel::new(),
            in_work: None,
        }
    }

    /// Takes note that the entry at `position` has this deadline now.
    #[inline]
    pub(super) fn note(&mut self, position: usize, deadline: Micros) {
        let block = position / BLOCK;
        match self.blocks.get(block) {
            Some(known) if known.minimum <= deadline => {}
            None if deadline == NEVER => {}
            _ => self.lower(block, deadline),
        }
    }

    #[cold]
    fn lower(&mut self, block: usize, deadline: Micros) {
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || Block {
                minimum: NEVER,
                timer: None,
            });
        }
        self.set_minimum(block, deadline);
    }

    /// Writes down the true minimum of a block and arms its timer.
    pub(super) fn set_minimum(&mut self, block: usize, minimum: Micros) {
        let Some(known) = self.blocks.get_mut(block) else {
            return;
        };
        known.minimum = minimum;
        if self.in_work == Some(block as u32) {
            return;
        }
        if minimum == NEVER {
            if let Some(timer) = known.timer.take() {
                self.wheel.remove(timer);
            }
            return;
        }
        let tick = (minimum >> TICK_BITS) + 1;
        let is_moved = known
            .timer
            .is_some_and(|timer| self.wheel.reschedule(timer, tick));
        if !is_moved {
            known.timer = Some(self.wheel.insert(tick, block as u32));
        }
    }

    /// A block whose minimum has passed, if there is one; it is in work from then on.
    pub(super) fn next_due(&mut self, now: Micros) -> Option<usize> {
        if self.in_work.is_none() {
            let due = self.wheel.pop_expired(now >> TICK_BITS)?;
            self.blocks[due.value as usize].timer = None;
            self.in_work = Some(due.value);
        }
        self.in_work.map(|block| block as usize)
    }

    /// Ends the work on the block that is in work; `minimum` is its earliest deadline.
    pub(super) fn finish(&mut self, minimum: Micros) {
        if let Some(block) = self.in_work.take() {
            self.set_minimum(block as usize, minimum);
        }
    }

    /// The earliest time at which there may be something to reclaim.
    pub(super) fn earliest(&mut self) -> Option<Micros> {
        if let Some(block) = self.in_work {
            return Some(self.blocks[block as usize].minimum);
        }
        let tick = self.wheel.next_deadline()?;
        Some((tick << TICK_BITS).min(NEVER))
    }

    /// Timers on the wheel, the block in work included.
    pub(super) fn timers(&self) -> usize {
        self.wheel.len() + usize::from(self.in_work.is_some())
    }

    /// Forgets what was known of blocks from `first` on: no entry is there any more.
    pub(super) fn truncate(&mut self, first: usize) {
        while self.blocks.len() > first {
            if let Some(timer) = self.blocks.pop().and_then(|block| block.timer) {
                self.wheel.remove(timer);
            }
        }
        if self.in_work.is_some_and(|block| block as usize >= first) {
            self.in_work = None;
        }
    }

    /// D1 and D2, given the true earliest deadline of every block.
    #[cfg(test)]
    pub(super) fn validate(&self, earliest: &[Micros]) {
        for (block, &earliest) in earliest.iter().enumerate() {
            let Some(known) = self.blocks.get(block) else {
                assert_eq!(earliest, NEVER, "D1");
                continue;
            };
            assert!(known.minimum <= earliest, "D1");
            if known.minimum != NEVER && self.in_work != Some(block as u32) {
                let armed = known.timer.and_then(|timer| self.wheel.deadline(timer));
                let armed = armed.expect("D2");
                let due = ((known.minimum >> TICK_BITS) + 1).max(self.wheel.tick() + 1);
                assert!(armed <= due, "D2");
            }
        }
        assert!(self.wheel.len() <= self.blocks.len());
    }
}
