//! The last outcomes that threads have shared, in blocks of eight, with their sums.
//!
//! A block is 16 bits: bit `i` is set if outcome `i`, oldest first, is an error, and bit `8 + i` if it
//! is slow. Blocks are claimed one after the other around a circle.
//!
//! # Invariants
//!
//! - I8: `sums` is what the circle holds, but for what its writers are about to add: whoever exchanges
//!   a block adds the difference between the one that it put in and the one that it took out.
//!
//! # Races considered
//!
//! - A writer stops between claiming a place and filling it: the place holds its old block meanwhile,
//!   and the sums agree with it. If another comes round to the same place, each takes out what the
//!   other put in, or the other way round: either way I8 holds.
//! - A reader between the two steps of a writer: it is off by that block. It may then subtract more
//!   than there is, so it saturates.

use crate::striped::Line;
use crate::sync::{AtomicU16, AtomicU64, Ordering};

use super::bucket::Outcomes;

/// Outcomes of a block.
pub(super) const BLOCK: u64 = 8;

/// As many as fill the line of the sums.
const NEAR: usize = 24;

#[derive(Debug)]
pub(super) struct Blocks {
    near: Line<Near>,
    far: Box<[AtomicU16]>,
    /// The length of the circle.
    blocks: u32,
    /// Of which the window wants the newest so many outcomes.
    size: u32,
}

/// On one line, which is all that windows of up to 192 outcomes write to.
#[derive(Debug)]
struct Near {
    /// Places that have been claimed so far.
    claimed: AtomicU64,
    /// Errors in the low half, slow outcomes in the high one.
    sums: AtomicU64,
    first: [AtomicU16; NEAR],
}

impl Blocks {
    /// Room for at least `size` outcomes.
    pub(super) fn new(size: u32) -> Self {
        let blocks = size.div_ceil(BLOCK as u32);
        let far = (blocks as usize).saturating_sub(NEAR);
        Blocks {
            near: Line(Near {
                claimed: AtomicU64::new(0),
                sums: AtomicU64::new(0),
                first: std::array::from_fn(|_| AtomicU16::new(0)),
            }),
            far: (0..far).map(|_| AtomicU16::new(0)).collect(),
            blocks,
            size,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// How many blocks have been pushed.
    pub(super) fn claimed(&self) -> u64 {
        // Relaxed: as in `push`.
        self.near.0.claimed.load(Ordering::Relaxed)
    }

    /// Puts blocks in the places of the oldest ones, and returns how many had been pushed before.
    pub(super) fn push(&self, blocks: &[u16]) -> u64 {
        let near = &self.near.0;
        // Relaxed, all of them: a block is one word, and nothing else is read through it; readers do
        // not ask for the three to agree.
        let claimed = near
            .claimed
            .fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let mut difference = 0_u64;
        for (place, &block) in (claimed..).zip(blocks) {
            let old = self.place(place).swap(block, Ordering::Relaxed);
            difference = difference.wrapping_add(sums(block)).wrapping_sub(sums(old));
        }
        if difference != 0 {
            near.sums.fetch_add(difference, Ordering::Relaxed);
        }
        claimed
    }

    /// Whether the circle is full of plain successes, so that pushing some more changes nothing.
    #[inline]
    pub(super) fn is_clean(&self) -> bool {
        let near = &self.near.0;
        // Relaxed: see the second race in count.rs.
        near.sums.load(Ordering::Relaxed) == 0
            && near.claimed.load(Ordering::Relaxed) >= u64::from(self.blocks)
    }

    /// The sums of the newest `count` outcomes, or of all if there are less. The cost is in the number
    /// of blocks to leave out.
    pub(super) fn newest(&self, count: u64) -> Outcomes {
        let near = &self.near.0;
        // Relaxed: as in `push`.
        let claimed = near.claimed.load(Ordering::Relaxed);
        let sums = near.sums.load(Ordering::Relaxed);
        let held = claimed.min(u64::from(self.blocks));
        let mut sum = Outcomes {
            requests: (held * BLOCK).min(count),
            errors: sums & u64::from(u32::MAX),
            slow: sums >> 32,
        };
        let mut surplus = held * BLOCK - sum.requests;
        let mut oldest = claimed - held;
        while surplus > 0 {
            let leaving = surplus.min(BLOCK);
            let block = self.place(oldest).load(Ordering::Relaxed);
            let mask = 0xFF >> (BLOCK - leaving);
            sum.errors = sum.errors.saturating_sub(ones(block & mask));
            sum.slow = sum.slow.saturating_sub(ones(block >> BLOCK & mask));
            surplus -= leaving;
            oldest += 1;
        }
        sum
    }

    /// Empties every place. Blocks that are claimed meanwhile may survive.
    pub(super) fn clear(&self) {
        let near = &self.near.0;
        for index in 0..u64::from(self.blocks) {
            // Relaxed, and below: as in `push`, which keeps I8 in the same way.
            let old = self.place(index).swap(0, Ordering::Relaxed);
            near.sums.fetch_sub(sums(old), Ordering::Relaxed);
        }
        near.claimed.store(0, Ordering::Relaxed);
    }

    /// The place of the block that was claimed as this one.
    fn place(&self, claimed: u64) -> &AtomicU16 {
        let index = (claimed % u64::from(self.blocks)) as usize;
        match index.checked_sub(NEAR) {
            None => &self.near.0.first[index],
            Some(far) => &self.far[far],
        }
    }
}

fn ones(marks: u16) -> u64 {
    u64::from(marks.count_ones())
}

fn sums(block: u16) -> u64 {
    ones(block & 0xFF) | ones(block >> BLOCK) << 32
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    /// Circles near the ends of blocks and of the near line, against a plain list.
    #[test]
    fn agrees_with_a_plain_list() {
        for size in [1, 7, 8, 9, 16, 100, 191, 192, 193, 400] {
            let blocks = Blocks::new(size);
            let mut list: Vec<(bool, bool)> = Vec::new();
            let mut random = fastrand::Rng::with_seed(u64::from(size));
            for round in 0..300 {
                let block = random.u16(..) & random.u16(..);
                blocks.push(&[block]);
                list.extend((0..8).map(|bit| (block >> bit & 1 == 1, block >> (8 + bit) & 1 == 1)));
                let room = size.div_ceil(8) as usize * 8;
                list.drain(..list.len().saturating_sub(room));

                let count = random.usize(0..=room);
                let newest = &list[list.len().saturating_sub(count)..];
                let expected = Outcomes {
                    requests: newest.len() as u64,
                    errors: newest.iter().filter(|(error, _)| *error).count() as u64,
                    slow: newest.iter().filter(|(_, slow)| *slow).count() as u64,
                };
                assert_eq!(blocks.newest(count as u64), expected);
                assert!(!blocks.is_clean() || expected.errors == 0);
                if round == 150 {
                    blocks.clear();
                    list.clear();
                    assert_eq!(blocks.newest(u64::MAX), Outcomes::default());
                }
            }
        }
    }

    #[test]
    fn is_clean_when_full_of_successes() {
        let blocks = Blocks::new(16);
        blocks.push(&[0]);
        assert!(!blocks.is_clean());
        blocks.push(&[0]);
        assert!(blocks.is_clean());
        blocks.push(&[1 << 9]);
        assert!(!blocks.is_clean());
        // More than there are places.
        blocks.push(&[1, 0, 0]);
        assert!(blocks.is_clean());
    }
}
