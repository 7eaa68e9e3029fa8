//! [`Jitter`]: durations that differ a little, so that what began together does not end together.

use std::time::Duration;

use crate::{BuildError, Probability};

/// Spreads durations uniformly around what they are: by 0.05, from 95 % to 105 %.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_collection::Jitter;
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let jitter = Jitter::new(0.05)?;
/// let lifetime = jitter.apply(Duration::from_secs(100));
/// assert!((95..=105).contains(&lifetime.as_secs()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Jitter {
    /// In units of 2⁻³², at most 2³².
    deviation: u64,
    random: Probability,
}

impl Jitter {
    /// Deviates by up to the share `deviation`, from 0 to 1, in either direction.
    ///
    /// ```
    /// use wheelhouse_collection::Jitter;
    ///
    /// let refused = Jitter::new(1.5).unwrap_err();
    /// assert_eq!(refused.to_string(), "deviation is 1.5; allowed are 0 to 1");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when `deviation` is outside its range or not a number.
    pub fn new(deviation: f64) -> Result<Self, BuildError> {
        Self::with(deviation, Probability::new())
    }

    /// The same with the sequence of a seed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::Jitter;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let second = Duration::from_secs(1);
    /// let (one, other) = (Jitter::seeded(0.1, 7)?, Jitter::seeded(0.1, 7)?);
    /// assert_eq!(one.apply(second), other.apply(second));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn seeded(deviation: f64, seed: u64) -> Result<Self, BuildError> {
        Self::with(deviation, Probability::seeded(seed))
    }

    fn with(deviation: f64, random: Probability) -> Result<Self, BuildError> {
        if !(0.0..=1.0).contains(&deviation) {
            let value = deviation.to_string();
            return Err(BuildError::new("deviation", value, "0 to 1"));
        }
        Ok(Jitter {
            // Rounded down: never further than was asked for.
            deviation: (deviation * (1_u64 << 32) as f64) as u64,
            random,
        })
    }

    /// A duration near `around`, to the nanosecond, and at most `Duration::MAX`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::Jitter;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let exact = Jitter::new(0.0)?;
    /// assert_eq!(exact.apply(Duration::MAX), Duration::MAX);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn apply(&self, around: Duration) -> Duration {
        // Less than 2⁹⁴ nanoseconds, so less than 2¹²⁷ on the way.
        let nanos = around.as_nanos();
        let spread = (nanos * u128::from(self.deviation)) >> 32;
        saturating(nanos - spread + self.up_to(2 * spread))
    }

    /// A number from 0 to `most`, which is less than 2⁹⁵.
    fn up_to(&self, most: u128) -> u128 {
        // The high part of the product of a 96-bit and a 64-bit number.
        let choices = most + 1;
        let random = u128::from(self.random.next_u64());
        let low = choices & u128::from(u64::MAX);
        (choices >> 64) * random + ((low * random) >> 64)
    }
}

fn saturating(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos / SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stays_within_its_share(
            nanos in prop_oneof![0..1000_u128, 0..=Duration::MAX.as_nanos()],
            deviation in 0.0..=1.0,
            seed: u64,
        ) {
            let jitter = Jitter::seeded(deviation, seed).unwrap();
            let around = saturating(nanos);
            let applied = jitter.apply(around).as_nanos();
            // In the arithmetic of floats, which is off in the sixteenth digit.
            let slack = nanos as f64 * 1e-15;
            prop_assert!(applied as f64 >= nanos as f64 * (1.0 - deviation) - slack);
            prop_assert!(applied as f64 <= nanos as f64 * (1.0 + deviation) + slack);
        }
    }

    #[test]
    fn is_uniform_up_to_both_ends() {
        let jitter = Jitter::seeded(0.5, 1).unwrap();
        let mut seen = [0_u32; 11];
        for _ in 0..110_000 {
            seen[jitter.apply(Duration::from_nanos(10)).as_nanos() as usize - 5] += 1;
        }
        // 10 000 each, with a deviation of 95: six of them.
        assert!(
            seen.iter().all(|count| (9_430..=10_570).contains(count)),
            "{seen:?}"
        );

        let mut eighths = [0_u32; 8];
        for _ in 0..80_000 {
            let nanos = jitter.apply(Duration::MAX / 2).as_nanos();
            eighths[(nanos * 8 / (Duration::MAX.as_nanos() + 1)) as usize] += 1;
        }
        // From a quarter to three quarters of the longest: the middle four.
        assert!(
            eighths[2..6]
                .iter()
                .all(|count| (19_100..=20_900).contains(count)),
            "{eighths:?}"
        );
    }

    #[test]
    fn saturates_at_the_longest() {
        let jitter = Jitter::seeded(1.0, 2).unwrap();
        assert!((0..100).any(|_| jitter.apply(Duration::MAX) == Duration::MAX));
        assert_eq!(jitter.apply(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn refuses_what_is_no_share() {
        for (deviation, value) in [(-0.1, "-0.1"), (1.5, "1.5"), (f64::NAN, "NaN")] {
            let refused = Jitter::new(deviation).unwrap_err();
            let message = format!("deviation is {value}; allowed are 0 to 1");
            assert_eq!(refused.to_string(), message);
        }
    }
}
