//! A queue of positions, for the policies that keep an exact order: strict LRU, FIFO and SIEVE.
//!
//! # Invariants
//! - L1: every position of the table is in the queue once; `links` is as long as the table.
//! - L2: following `older` from `newest` and `newer` from `oldest` meets the same positions.

/// No position.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

#[derive(Debug)]
pub(super) struct List {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
    /// Where SIEVE goes on looking; `NONE`: at the oldest.
    hand: u32,
}

impl List {
    pub(super) fn new() -> Self {
        List {
            links: Vec::new(),
            newest: NONE,
            oldest: NONE,
            hand: NONE,
        }
    }

    /// Adds the position that follows the last one of the table.
    pub(super) fn push(&mut self) {
        let position = self.links.len() as u32;
        self.links.push(Link {
            newer: NONE,
            older: NONE,
        });
        self.link_newest(position);
    }

    /// Makes `position` the newest.
    pub(super) fn renew(&mut self, position: usize) {
        if self.newest != position as u32 {
            self.unlink(position as u32);
            self.link_newest(position as u32);
        }
    }

    /// Takes out `position`; the last one of the table takes its number.
    pub(super) fn swap_remove(&mut self, position: usize) {
        self.unlink(position as u32);
        let last = self.links.len() as u32 - 1;
        let moved = self.links[last as usize];
        self.links.swap_remove(position);
        let position = position as u32;
        if position == last {
            return;
        }
        if self.hand == last {
            self.hand = position;
        }
        match moved.newer {
            NONE => self.newest = position,
            newer => self.links[newer as usize].older = position,
        }
        match moved.older {
            NONE => self.oldest = position,
            older => self.links[older as usize].newer = position,
        }
    }

    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest as usize)
    }

    /// SIEVE (Zhang and others, 2024): from the hand towards the newest and round again, the first
    /// that `spare` does not spare.
    pub(super) fn sieve(&mut self, mut spare: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut at = match self.hand {
            NONE => self.oldest,
            hand => hand,
        };
        // Nobody is spared twice: within two rounds there is one.
        for _ in 0..=2 * self.links.len() {
            if at == NONE {
                return None;
            }
            let newer = self.links[at as usize].newer;
            if !spare(at as usize) {
                self.hand = at;
                return Some(at as usize);
            }
            at = if newer == NONE { self.oldest } else { newer };
        }
        None
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn link_newest(&mut self, position: u32) {
        self.links[position as usize] = Link {
            newer: NONE,
            older: self.newest,
        };
        match self.newest {
            NONE => self.oldest = position,
            newest => self.links[newest as usize].newer = position,
        }
        self.newest = position;
    }

    fn unlink(&mut self, position: u32) {
        let Link { newer, older } = self.links[position as usize];
        if self.hand == position {
            self.hand = newer;
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }

    /// The positions from the oldest to the newest, and L2.
    #[cfg(test)]
    pub(super) fn validate(&self) -> Vec<usize> {
        let mut seen = Vec::new();
        let (mut at, mut before) = (self.oldest, NONE);
        while at != NONE {
            assert_eq!(self.links[at as usize].older, before, "L2");
            seen.push(at as usize);
            (before, at) = (at, self.links[at as usize].newer);
        }
        assert_eq!(self.newest, before, "L2");
        assert_eq!(seen.len(), self.links.len(), "L1");
        seen
    }
}
