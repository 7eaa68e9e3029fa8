//! Who of the entries in front of the main part's hand was hit the least.
//!
//! The hand goes on by one entry for most evictions, and what it looked at before is still there. So
//! the candidates are kept: a queue of positions in the order of the ring, each with more uses than the
//! one before it. The first is the answer; who comes into view drives out those at the end that have
//! more uses. An entry is looked at once, where it would be as often as it is in view.
//!
//! # Invariants
//! - Q1: candidates are among the `seen` entries from the hand on, in the order of the ring.
//! - Q2: an entry in view that is not a candidate had, when it was last looked at, as many uses as a
//!   candidate before it, or more than one behind it. Uses are read anew where it matters, since hits
//!   and ageing change them.

use std::ops::Range;

/// Entries in view, at most.
pub(super) const MOST: usize = 64;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Contest {
    /// The first entry of the main part, and the one after its last.
    start: u32,
    end: u32,
    hand: u32,
    seen: u8,
    first: u8,
    count: u8,
    /// Positions; a ring of its own.
    candidates: [u32; MOST],
}

impl Default for Contest {
    fn default() -> Self {
        Contest {
            start: 0,
            end: 0,
            hand: 0,
            seen: 0,
            first: 0,
            count: 0,
            candidates: [0; MOST],
        }
    }
}

impl Contest {
    /// Forgets the candidates.
    pub(super) fn restart(&mut self) {
        (self.seen, self.count) = (0, 0);
    }

    /// The first position with the fewest uses among the next `look` from the hand on, or up to the
    /// first that has none. `main` is not empty.
    #[inline]
    pub(super) fn fewest(
        &mut self,
        main: Range<usize>,
        look: usize,
        uses: impl Fn(usize) -> u8,
    ) -> (usize, u8) {
        let (start, end) = (main.start as u32, main.end as u32);
        if (self.start, self.end) != (start, end) {
            if !(start..end).contains(&self.hand) {
                self.hand = start;
            }
            (self.start, self.end) = (start, end);
            self.restart();
        }
        let mut fewest = if self.count > 0 {
            uses(self.candidate(0))
        } else {
            u8::MAX
        };
        while self.count > 1 {
            let next = uses(self.candidate(1));
            if next >= fewest {
                break;
            }
            self.drop_first();
            fewest = next;
        }
        let look = look.min(MOST).min(main.len()) as u8;
        while fewest > 0 && self.seen < look {
            let at = self.ahead(u32::from(self.seen)) as usize;
            let its = uses(at);
            while self.count > 0 && uses(self.candidate(self.count - 1)) > its {
                self.count -= 1;
            }
            if self.count == 0 {
                fewest = its;
            }
            let free = usize::from(self.first + self.count) % MOST;
            self.candidates[free] = at as u32;
            self.count += 1;
            self.seen += 1;
        }
        (self.candidate(0), fewest)
    }

    /// The hand goes on by one entry.
    #[inline]
    pub(super) fn advance(&mut self) {
        if self.count > 0 && self.candidate(0) == self.hand as usize {
            self.drop_first();
        }
        self.hand = self.ahead(1);
        self.seen -= 1;
    }

    /// The hand goes on beyond the first candidate, which is at `position`.
    #[inline]
    pub(super) fn advance_past(&mut self, position: usize) {
        let position = position as u32;
        let before = if position >= self.hand {
            position - self.hand
        } else {
            position - self.start + (self.end - self.hand)
        };
        self.drop_first();
        self.hand = self.ahead(before + 1);
        self.seen -= before as u8 + 1;
    }

    #[inline]
    fn candidate(&self, number: u8) -> usize {
        self.candidates[usize::from(self.first + number) % MOST] as usize
    }

    #[inline]
    fn drop_first(&mut self) {
        self.first = (self.first + 1) % MOST as u8;
        self.count -= 1;
    }

    /// The position `steps` after the hand, up to once round.
    #[inline]
    fn ahead(&self, steps: u32) -> u32 {
        // Less than 65 steps of at most as many as there are entries.
        match self.end - self.hand {
            left if steps < left => self.hand + steps,
            left => self.start + (steps - left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at every entry in view, each time.
    fn plainly(uses: &[u8], main: &Range<usize>, hand: usize, look: usize) -> (usize, u8) {
        let ring = (hand..main.end).chain(main.start..hand);
        let mut fewest = (hand, u8::MAX);
        for at in ring.take(look) {
            if uses[at] < fewest.1 {
                fewest = (at, uses[at]);
            }
            if uses[at] == 0 {
                break;
            }
        }
        fewest
    }

    #[test]
    fn as_if_all_were_looked_at() {
        let mut random = fastrand::Rng::with_seed(5);
        for look in [1, 2, 8, 64] {
            for len in [1, 2, 7, 63, 64, 65, 200] {
                let main = 3..3 + len;
                let mut uses: Vec<u8> = (0..main.end).map(|_| random.u8(0..8)).collect();
                let mut contest = Contest::default();
                let mut hand = main.start;
                for _ in 0..500 {
                    let found = contest.fewest(main.clone(), look, |at| uses[at]);
                    assert_eq!(found, plainly(&uses, &main, hand, look.min(len)));
                    let admitted = random.bool();
                    let from = if admitted { found.0 } else { hand };
                    hand = if from + 1 == main.end {
                        main.start
                    } else {
                        from + 1
                    };
                    if admitted {
                        contest.advance_past(found.0);
                        uses[found.0] = random.u8(0..8);
                    } else {
                        contest.advance();
                    }
                }
            }
        }
    }

    /// Hits while it is in view: the answer is in view and has the uses that it is said to have.
    #[test]
    fn hits_are_noticed() {
        let mut random = fastrand::Rng::with_seed(6);
        let main = 2..102;
        let mut uses = vec![0_u8; main.end];
        let mut contest = Contest::default();
        for _ in 0..2_000 {
            let hit = random.usize(main.clone());
            uses[hit] = (uses[hit] + 1).min(7);
            let (at, fewest) = contest.fewest(main.clone(), 16, |at| uses[at]);
            let hand = contest.hand as usize;
            let away = (at + main.len() - hand) % main.len();
            assert!(away < 16 && fewest == uses[at], "{at} from {hand}");
            if random.bool() {
                contest.advance_past(at);
                uses[at] = 0;
            } else {
                contest.advance();
            }
        }
    }
}
