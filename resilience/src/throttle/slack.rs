//! When the next look at the whole window is needed.
//!
//! A ratio throttle rejects with probability max(0, excess / (requests + 1)). As long as the excess
//! is far below zero its exact value does not matter, and finding it out means to read what other
//! threads have just written. So a look that finds a slack of n (no n further bad events within this
//! bucket can make the excess positive) allows each of the four lanes to count a quarter of n
//! before anybody has to look again.
//!
//! Lanes count in the window anyway, and are told their share of the current bucket. A lane whose
//! share comes to a multiple of the step that the look allowed ends the slack: so each lane counts at
//! most a step without a look. The step is a power of two, which makes that a mask.
//!
//! The slack ends with the bucket, since good events leave the window then.
//!
//! Race considered: a lane ends the slack while another is looking. The look publishes by
//! compare-exchange from what it saw before it looked, so an end that came between is not lost.

use crate::sync::{AtomicU64, Ordering};

/// Threads with different lanes count side by side.
const LANES: u64 = 4;

const MASK_BITS: u32 = 24;

/// Time in the word is in units of 2²⁰ ns, about a millisecond.
const UNIT_BITS: u32 = 20;

/// | bits | meaning |
/// |---|---|
/// | 0..24 | step - 1, the step being a power of two |
/// | 24..64 | units of time at which the slack ends; 0 when there is none |
#[derive(Debug)]
pub(super) struct Slack(AtomicU64);

/// What the word was before a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before(u64);

impl Slack {
    pub(super) fn none() -> Self {
        Slack(AtomicU64::new(0))
    }

    /// Whether a caller at `now` may go without a look.
    #[inline]
    pub(super) fn covers(&self, now: u64) -> bool {
        // Relaxed, and all below: the word is all that is passed on.
        now >> UNIT_BITS < self.0.load(Ordering::Relaxed) >> MASK_BITS
    }

    /// Takes note of a bad event, the `share`-th of its lane in this bucket: ends the slack if the
    /// lane has used what it may.
    #[inline]
    pub(super) fn spend(&self, share: u64) {
        let word = self.0.load(Ordering::Relaxed);
        let mask = word & ((1 << MASK_BITS) - 1);
        if share & mask == 0 && word != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// To be called before a look.
    #[inline]
    pub(super) fn before(&self) -> Before {
        Before(self.0.load(Ordering::Relaxed))
    }

    /// Publishes that `slack` further bad events do no harm before `edge`, the end of the bucket.
    #[inline]
    pub(super) fn renew(&self, before: Before, slack: f64, edge: u64) {
        let steps = (slack / LANES as f64).clamp(0.0, (1_u64 << MASK_BITS) as f64) as u64;
        let word = match steps {
            0 => 0,
            _ => {
                let mask = (1_u64 << steps.ilog2()) - 1;
                edge >> UNIT_BITS << MASK_BITS | mask.min((1 << MASK_BITS) - 1)
            }
        };
        let _ended_meanwhile =
            self.0
                .compare_exchange(before.0, word, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    const EDGE: u64 = 250_000_000;

    /// Whatever the slack, four lanes together never count more than it without a look.
    #[test]
    fn lanes_together_stay_within_the_slack() {
        for slack in [
            0.0,
            0.9,
            3.9,
            4.0,
            7.0,
            12.5,
            100.0,
            12_345.0,
            1e9,
            f64::MAX,
        ] {
            for first in [0, 1, 7, 1000] {
                let word = Slack::none();
                word.renew(word.before(), slack, EDGE);
                // A lane counts alone; the others could have counted as much.
                let mut counted = 0;
                while word.covers(0) && counted < 1 << 25 {
                    counted += 1;
                    word.spend(first + counted);
                }
                assert!((4 * counted) as f64 <= slack, "{slack}: {counted}");
            }
        }
    }

    #[test]
    fn ends_with_the_bucket() {
        let word = Slack::none();
        assert!(!word.covers(0));
        word.renew(word.before(), 1e6, EDGE);
        assert!(word.covers(EDGE - (2 << UNIT_BITS)));
        assert!(!word.covers(EDGE));
    }

    #[test]
    fn an_end_during_a_look_is_kept() {
        let word = Slack::none();
        word.renew(word.before(), 8.0, EDGE);
        let before = word.before();
        word.spend(2);
        word.renew(before, 1e6, EDGE);
        assert!(!word.covers(0));
    }
}
