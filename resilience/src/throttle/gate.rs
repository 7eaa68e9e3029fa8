//! The gate word of an adaptive throttle: all that an admission looks at.

use std::fmt;

use crate::sync::{AtomicU64, Ordering};

/// What is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Mode {
    /// What the ratio leaves.
    Open = 0,
    /// Probes.
    GivenUp = 1,
    /// A growing share.
    Ramp = 2,
}

const SHARE_BITS: u32 = 24;
const SHARE: u64 = (1 << SHARE_BITS) - 1;
const MODE_SHIFT: u32 = SHARE_BITS;
const MODE: u64 = 3 << MODE_SHIFT;
const DOUBT: u64 = 1 << (MODE_SHIFT + 2);
const EPOCH_SHIFT: u32 = MODE_SHIFT + 3;

/// | bits | meaning | who changes it, all under the book's lock |
/// |---|---|---|
/// | 0..24 | the share that the ratio rejects, of 2²⁴ | who turns the window |
/// | 24..26 | [`Mode`]: `Open` | a failure or who turns the window, to `GivenUp` |
/// | | `GivenUp` | a success, to `Ramp` |
/// | | `Ramp` | a failure, to `GivenUp`; an admission after its end, to `Open` |
/// | 26 | doubt: the book's run counts, successes are to end it | the failure or success |
/// | 27..64 | the epoch: how often the backend was given up | who gives it up |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

#[derive(Debug)]
pub(super) struct Gate(AtomicU64);

impl Gate {
    pub(super) fn open() -> Self {
        Gate(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn load(&self) -> Word {
        // Acquire: pairs with the Release in `store`, and publishes the beginning of a ramp.
        Word(self.0.load(Ordering::Acquire))
    }

    /// Under the book's lock, or the change of another would be lost.
    pub(super) fn store(&self, word: Word) {
        // Relaxed: only written under the lock.
        if self.0.load(Ordering::Relaxed) != word.0 {
            // Release: pairs with the Acquire in `load`.
            self.0.store(word.0, Ordering::Release);
        }
    }
}

impl Word {
    #[inline]
    pub(super) fn admits_all(self) -> bool {
        self.0 & (SHARE | MODE) == 0
    }

    /// Whether a success changes anything.
    #[inline]
    pub(super) fn wants_successes(self) -> bool {
        self.0 & (DOUBT | MODE) != 0
    }

    #[inline]
    pub(super) fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    #[inline]
    pub(super) fn doubts(self) -> bool {
        self.0 & DOUBT != 0
    }

    #[inline]
    pub(super) fn mode(self) -> Mode {
        match (self.0 & MODE) >> MODE_SHIFT {
            0 => Mode::Open,
            1 => Mode::GivenUp,
            _ => Mode::Ramp,
        }
    }

    /// The probability with which the ratio rejects.
    #[inline]
    pub(super) fn rejected(self) -> f64 {
        (self.0 & SHARE) as f64 / (1_u64 << SHARE_BITS) as f64
    }

    pub(super) fn with_rejected(self, probability: f64) -> Self {
        let share = (probability * (1_u64 << SHARE_BITS) as f64) as u64;
        Word(self.0 & !SHARE | share.min(SHARE))
    }

    pub(super) fn with_doubt(self, doubt: bool) -> Self {
        Word(self.0 & !DOUBT | if doubt { DOUBT } else { 0 })
    }

    /// In another mode, without a doubt.
    pub(super) fn with_mode(self, mode: Mode) -> Self {
        Word(self.0 & !(MODE | DOUBT) | (mode as u64) << MODE_SHIFT)
    }

    /// In the next epoch.
    pub(super) fn given_up(self) -> Self {
        Word(
            self.with_mode(Mode::GivenUp)
                .0
                .wrapping_add(1 << EPOCH_SHIFT),
        )
    }

    /// With nothing rejected.
    pub(super) fn opened(self) -> Self {
        self.with_mode(Mode::Open).with_rejected(0.0)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("mode", &self.mode())
            .field("rejected", &self.rejected())
            .field("doubts", &self.doubts())
            .field("epoch", &self.epoch())
            .finish()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_touch_one_another() {
        let word = Gate::open().load().with_rejected(0.25).with_doubt(true);
        assert_eq!(
            (word.mode(), word.doubts(), word.epoch()),
            (Mode::Open, true, 0)
        );
        assert!(!word.admits_all() && word.wants_successes());

        let word = word.given_up();
        assert_eq!(
            (word.mode(), word.doubts(), word.epoch()),
            (Mode::GivenUp, false, 1)
        );
        assert_eq!(word.rejected(), 0.25);

        let word = word.with_mode(Mode::Ramp).with_rejected(1.0);
        assert_eq!((word.mode(), word.epoch()), (Mode::Ramp, 1));
        assert!(word.rejected() > 0.999_999);

        let word = word.opened();
        assert!(word.admits_all() && !word.wants_successes());
        assert_eq!(word.epoch(), 1);
    }

    #[test]
    fn the_epoch_wraps() {
        let word = Word(u64::MAX << EPOCH_SHIFT).given_up();
        assert_eq!((word.mode(), word.epoch()), (Mode::GivenUp, 0));
    }
}
