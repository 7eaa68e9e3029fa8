//! [`Probability`]: cheap random decisions.

use crate::sync::{AtomicU64, Ordering};

/// Random numbers for decisions that are taken often and need no secrecy.
///
/// Without a seed each thread has a generator of its own, so threads do not meet. With a seed the
/// sequence is the same in each run; threads that share it get its numbers in the order in which they
/// ask.
///
/// ```
/// use wheelhouse_collection::Probability;
///
/// let dice = Probability::seeded(1);
/// let heads = (0..1000).filter(|_| dice.roll(0.5)).count();
/// assert!((450..550).contains(&heads));
///
/// let again = Probability::seeded(1);
/// assert_eq!((0..1000).filter(|_| again.roll(0.5)).count(), heads);
/// ```
#[derive(Debug, Default)]
pub struct Probability {
    /// The state of a seeded sequence.
    sequence: Option<AtomicU64>,
}

impl Probability {
    /// A different sequence in each thread and each run.
    ///
    /// ```
    /// use wheelhouse_collection::Probability;
    ///
    /// let dice = Probability::new();
    /// assert!((0..1000).any(|_| dice.roll(0.5)));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Probability { sequence: None }
    }

    /// The sequence of this seed.
    ///
    /// ```
    /// use wheelhouse_collection::Probability;
    ///
    /// let (one, other) = (Probability::seeded(7), Probability::seeded(7));
    /// assert_eq!(one.next_f64(), other.next_f64());
    /// ```
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Probability {
            sequence: Some(AtomicU64::new(seed)),
        }
    }

    /// `true` with this probability: never for 0, less, or not a number; always for 1 or more.
    ///
    /// ```
    /// use wheelhouse_collection::Probability;
    ///
    /// let dice = Probability::new();
    /// assert!(!dice.roll(0.0));
    /// assert!(!dice.roll(f64::NAN));
    /// assert!(dice.roll(1.0));
    /// ```
    #[inline]
    #[must_use]
    pub fn roll(&self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// A number from 0 to 1, less than 1, all multiples of 2⁻⁵³ equally likely.
    ///
    /// ```
    /// use wheelhouse_collection::Probability;
    ///
    /// assert!((0.0..1.0).contains(&Probability::new().next_f64()));
    /// ```
    #[inline]
    #[must_use]
    pub fn next_f64(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Any number.
    ///
    /// ```
    /// use wheelhouse_collection::Probability;
    ///
    /// assert_eq!(Probability::seeded(7).next_u64(), Probability::seeded(7).next_u64());
    /// ```
    #[inline]
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        match &self.sequence {
            None => fastrand::u64(..),
            Some(state) => {
                /// 2⁶⁴ divided by the golden ratio, which spreads successive seeds.
                const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
                // Relaxed: nothing is read through it.
                let seed = state.fetch_add(STEP, Ordering::Relaxed);
                fastrand::Rng::with_seed(seed).u64(..)
            }
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    /// Each decile gets its share, for successive seeds too, which step the same state.
    #[test]
    fn is_uniform() {
        for dice in [
            Probability::new(),
            Probability::seeded(0),
            Probability::seeded(1),
        ] {
            let mut deciles = [0_u32; 10];
            for _ in 0..100_000 {
                deciles[(dice.next_f64() * 10.0) as usize] += 1;
            }
            // 10 000 expected with a deviation of 95: six of them.
            for count in deciles {
                assert!((9_430..=10_570).contains(&count), "{deciles:?}");
            }
        }
    }

    #[test]
    fn rolls_as_often_as_it_says() {
        let dice = Probability::seeded(3);
        let count = (0..100_000).filter(|_| dice.roll(0.2)).count();
        assert!((19_200..=20_800).contains(&count), "{count}");
        assert!((0..1000).all(|_| dice.roll(1.5) && !dice.roll(-0.5)));
    }
}
