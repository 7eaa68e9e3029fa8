//! Several counters in one word, so that one addition counts all of them and one load sees them in
//! agreement.
//!
//! Ground rules: a word is only ever added to, read whole, and exchanged for 0.
//!
//! I1: no counter overflows into its neighbour. Its top bit is a guard: whoever finds one set by an
//! addition of its own empties the word before it adds again. So past the guard each thread adds at
//! most once, and with increments of at most 2⁻¹² of what is left there, 4 096 threads would have to
//! stop between the addition and the emptying, in one stripe, to reach the end.

use std::marker::PhantomData;

use super::bucket::{Bucket, Counters, Counts};

/// log₂ of the threads that may be between an addition and the emptying.
const MARGIN_BITS: u32 = 12;

/// How the counters of `B` lie in a word: the first in the lowest bits.
pub(super) struct Word<B>(PhantomData<B>);

impl<B: Bucket> Word<B> {
    const LAYOUT: Layout = Layout::new(B::BITS, <B::Counters as Counters>::EVEN_BITS.len());

    /// The word that adds these increments, unless one of them is too great.
    #[inline]
    pub(super) fn pack(increments: &Counts<B>) -> Option<u64> {
        let mut word = 0;
        for (index, &increment) in increments.as_ref().iter().enumerate() {
            if increment > Self::LAYOUT.largest[index] {
                return None;
            }
            word |= increment << Self::LAYOUT.shift[index];
        }
        Some(word)
    }

    #[inline]
    pub(super) fn unpack(word: u64) -> Counts<B> {
        let mut counts = Counts::<B>::default();
        for (index, count) in counts.as_mut().iter_mut().enumerate() {
            *count = word >> Self::LAYOUT.shift[index] & Self::LAYOUT.mask[index];
        }
        counts
    }

    /// Whether a counter has come to its guard.
    #[inline]
    pub(super) fn is_heavy(word: u64) -> bool {
        word & Self::LAYOUT.guards != 0
    }
}

/// The places of at most four counters.
struct Layout {
    shift: [u32; 4],
    mask: [u64; 4],
    /// The greatest increment.
    largest: [u64; 4],
    guards: u64,
}

impl Layout {
    const fn new(bits: &[u32], counters: usize) -> Self {
        assert!(
            bits.len() == counters && 1 <= counters && counters <= 4,
            "Bucket::BITS names each of the counters, of which there are 1 to 4"
        );
        let mut layout = Layout {
            shift: [0; 4],
            mask: [0; 4],
            largest: [0; 4],
            guards: 0,
        };
        let (mut used, mut index) = (0, 0);
        while index < counters {
            let width = bits[index];
            assert!(
                width > MARGIN_BITS && used + width <= 64,
                "Bucket::BITS are at least 13 each and at most 64 together"
            );
            layout.shift[index] = used;
            layout.mask[index] = u64::MAX >> (64 - width);
            layout.largest[index] = 1 << (width - 1 - MARGIN_BITS);
            layout.guards |= 1 << (used + width - 1);
            used += width;
            index += 1;
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCount, Outcome, Outcomes, Sum};

    #[test]
    fn what_is_packed_is_unpacked() {
        let increments = Outcomes::increments(Outcome::SlowFailure);
        let word = Word::<Outcomes>::pack(&increments).expect("ones are small");
        assert_eq!(Word::<Outcomes>::unpack(word), [1, 1, 1]);
        assert_eq!(Word::<Outcomes>::unpack(3 * word), [3, 3, 3]);

        let word = Word::<Sum>::pack(&[1, 1 << 27]).expect("the greatest");
        assert_eq!(Word::<Sum>::unpack(word), [1, 1 << 27]);
        assert_eq!(Word::<Sum>::pack(&[1, (1 << 27) + 1]), None);
    }

    #[test]
    fn a_counter_is_heavy_at_half_of_its_room() {
        let half = 1 << 31;
        assert!(!Word::<ErrorCount>::is_heavy(half - 1));
        assert!(Word::<ErrorCount>::is_heavy(half));
        assert!(!Word::<ErrorCount>::is_heavy((half - 1) << 32));
        assert!(Word::<ErrorCount>::is_heavy(half << 32));
    }

    /// I1: 4 096 threads that add the greatest increment to a word just below its guard.
    #[test]
    fn the_margin_holds_4096_late_additions() {
        let increments = [0, 1 << 27];
        let delta = Word::<Sum>::pack(&increments).expect("the greatest");
        let below = ((1_u64 << 39) - 1) << 24;
        let word = below + 4096 * delta;
        assert_eq!(Word::<Sum>::unpack(word), [0, (1 << 40) - 1]);
    }
}
