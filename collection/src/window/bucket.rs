//! What a bucket of a [`RollingWindow`](crate::RollingWindow) counts: [`Bucket`], and those that
//! are ready to use.

use std::fmt;

/// The counters that one bucket of a [`RollingWindow`](crate::RollingWindow) keeps, at most four,
/// each of which values only add to.
///
/// The window does the counting; a bucket says what a value adds and what the counts mean.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse_collection::{Bucket, RollingWindow};
///
/// /// How many bytes were sent, in how many packets.
/// #[derive(Debug, PartialEq)]
/// struct Traffic { packets: u64, bytes: u64 }
///
/// impl Bucket for Traffic {
///     type Value = u64;
///     type Counters = [u64; 2];
///     const BITS: &'static [u32] = &[24, 40];
///
///     fn increments(bytes: u64) -> [u64; 2] { [1, bytes] }
///     fn from_counts([packets, bytes]: [u64; 2]) -> Self { Traffic { packets, bytes } }
/// }
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let start = Instant::now();
/// let minute = RollingWindow::<Traffic>::starting_at(start, 60, Duration::from_secs(1))?;
/// minute.add_at(start, 1500);
/// minute.add_at(start + Duration::from_secs(30), 500);
/// assert_eq!(
///     minute.snapshot_at(start + Duration::from_secs(59)),
///     Traffic { packets: 2, bytes: 2000 },
/// );
/// # Ok(()) }
/// ```
pub trait Bucket: Sized {
    /// What is added.
    type Value;

    /// How the counters of a finished bucket are kept: `[u32; N]` or `[u64; N]`, N from 1 to 4. The
    /// narrow ones stay at `u32::MAX` when that is reached within one bucket.
    type Counters: Counters;

    /// How many of 64 bits each counter has in the word that a thread counts in, each at least 13
    /// and all together at most 64; anything else does not compile. A counter of `n` bits takes
    /// increments up to 2ⁿ⁻¹³ at full speed, greater ones at the cost of a lock.
    const BITS: &'static [u32] = <Self::Counters as Counters>::EVEN_BITS;

    /// How much `value` adds to each counter.
    fn increments(value: Self::Value) -> Counts<Self>;

    /// The bucket, or the sum of several, that these counts describe.
    fn from_counts(counts: Counts<Self>) -> Self;
}

/// What lives beside a window's counters, on the same cache lines: see
/// [`RollingWindow::carrying`](crate::RollingWindow::carrying).
pub trait Carry<B: Bucket> {
    /// Takes note of the counts that are moved off its line: when a bucket ends, when a counter on the
    /// line is half full, or when the window is cleared. So what this has been told, and what is on the
    /// line, is all that its threads have added, but for values too great for the line.
    ///
    /// Runs under the window's lock, so it must not use the window.
    fn taken(&self, counts: &Counts<B>) {
        let _ = counts;
    }
}

impl<B: Bucket> Carry<B> for () {}

/// The counts of a [`Bucket`] at full width: `[u64; N]`.
pub type Counts<B> = <<B as Bucket>::Counters as Counters>::Counts;

/// How the counters of a bucket are kept: `[u32; N]` or `[u64; N]`.
pub trait Counters: fmt::Debug + Copy + Send + Sync + 'static + sealed::Cells {
    /// `[u64; N]`.
    type Counts: fmt::Debug + Copy + Default + Send + Sync + AsRef<[u64]> + AsMut<[u64]>;

    /// 64 bits in N equal parts.
    const EVEN_BITS: &'static [u32];
}

pub(crate) mod sealed {
    use crate::sync::AtomicU64;

    #[expect(unnameable_types, reason = "sealed: nobody else implements it")]
    pub trait Cells {
        /// `[AtomicU64; N]`.
        type Shared: std::fmt::Debug + Send + Sync + AsRef<[AtomicU64]>;

        const ZERO: Self;

        fn shared() -> Self::Shared;

        /// The count at `index`, below N.
        fn count(&self, index: usize) -> u64;

        /// Adds to the count at `index` as far as it goes, and says how far that was.
        fn raise(&mut self, index: usize, by: u64) -> u64;
    }
}

macro_rules! counters {
    ($cell:ty; $($n:literal: $bits:expr),*) => {$(
        impl Counters for [$cell; $n] {
            type Counts = [u64; $n];
            const EVEN_BITS: &'static [u32] = &$bits;
        }

        impl sealed::Cells for [$cell; $n] {
            type Shared = [crate::sync::AtomicU64; $n];
            const ZERO: Self = [0; $n];

            fn shared() -> Self::Shared {
                std::array::from_fn(|_| crate::sync::AtomicU64::new(0))
            }

            #[inline]
            fn count(&self, index: usize) -> u64 {
                u64::from(self[index])
            }

            #[inline]
            fn raise(&mut self, index: usize, by: u64) -> u64 {
                let old = self[index];
                self[index] = old.saturating_add(<$cell>::try_from(by).unwrap_or(<$cell>::MAX));
                u64::from(self[index] - old)
            }
        }
    )*};
}

counters!(u32; 1: [64], 2: [32, 32], 3: [21, 21, 21], 4: [16, 16, 16, 16]);
counters!(u64; 1: [64], 2: [32, 32], 3: [21, 21, 21], 4: [16, 16, 16, 16]);

/// How a call ended, and whether it was slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// In time and well.
    Success,
    /// In time, with an error.
    Failure,
    /// Well, but slowly.
    SlowSuccess,
    /// Slowly, and with an error.
    SlowFailure,
}

impl Outcome {
    /// The outcome with these two properties.
    ///
    /// ```
    /// use wheelhouse_collection::Outcome;
    ///
    /// assert_eq!(Outcome::new(true, false), Outcome::Failure);
    /// assert_eq!(Outcome::new(false, true), Outcome::SlowSuccess);
    /// ```
    #[inline]
    #[must_use]
    pub fn new(error: bool, slow: bool) -> Self {
        match (error, slow) {
            (false, false) => Outcome::Success,
            (true, false) => Outcome::Failure,
            (false, true) => Outcome::SlowSuccess,
            (true, true) => Outcome::SlowFailure,
        }
    }

    /// Whether the call failed.
    ///
    /// ```
    /// use wheelhouse_collection::Outcome;
    ///
    /// assert!(Outcome::SlowFailure.is_error());
    /// assert!(!Outcome::SlowSuccess.is_error());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_error(self) -> bool {
        matches!(self, Outcome::Failure | Outcome::SlowFailure)
    }

    /// Whether the call was slow.
    ///
    /// ```
    /// use wheelhouse_collection::Outcome;
    ///
    /// assert!(Outcome::SlowFailure.is_slow());
    /// assert!(!Outcome::Failure.is_slow());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_slow(self) -> bool {
        matches!(self, Outcome::SlowSuccess | Outcome::SlowFailure)
    }
}

/// Requests, errors and slow requests: what breakers decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// All that ended.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
    /// Those that were slow, failed or not.
    pub slow: u64,
}

impl Outcomes {
    /// Errors among the requests, from 0 to 1; 0 without requests.
    ///
    /// ```
    /// use wheelhouse_collection::Outcomes;
    ///
    /// assert_eq!(Outcomes { requests: 8, errors: 2, slow: 0 }.error_rate(), 0.25);
    /// assert_eq!(Outcomes::default().error_rate(), 0.0);
    /// ```
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        share(self.errors, self.requests)
    }

    /// Slow requests among all, from 0 to 1; 0 without requests.
    ///
    /// ```
    /// use wheelhouse_collection::Outcomes;
    ///
    /// assert_eq!(Outcomes { requests: 8, errors: 0, slow: 4 }.slow_rate(), 0.5);
    /// ```
    #[must_use]
    pub fn slow_rate(&self) -> f64 {
        share(self.slow, self.requests)
    }
}

impl Bucket for Outcomes {
    type Value = Outcome;
    type Counters = [u32; 3];

    #[inline]
    fn increments(outcome: Outcome) -> [u64; 3] {
        [
            1,
            u64::from(outcome.is_error()),
            u64::from(outcome.is_slow()),
        ]
    }

    #[inline]
    fn from_counts([requests, errors, slow]: [u64; 3]) -> Self {
        Outcomes {
            requests,
            errors,
            slow,
        }
    }
}

/// Requests and errors, in two thirds of the memory of [`Outcomes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorCount {
    /// All that ended.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
}

impl ErrorCount {
    /// Errors among the requests, from 0 to 1; 0 without requests.
    ///
    /// ```
    /// use wheelhouse_collection::ErrorCount;
    ///
    /// assert_eq!(ErrorCount { requests: 8, errors: 2 }.error_rate(), 0.25);
    /// ```
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        share(self.errors, self.requests)
    }
}

impl From<ErrorCount> for Outcomes {
    fn from(count: ErrorCount) -> Self {
        Outcomes {
            requests: count.requests,
            errors: count.errors,
            slow: 0,
        }
    }
}

impl Bucket for ErrorCount {
    type Value = Outcome;
    type Counters = [u32; 2];

    #[inline]
    fn increments(outcome: Outcome) -> [u64; 2] {
        [1, u64::from(outcome.is_error())]
    }

    #[inline]
    fn from_counts([requests, errors]: [u64; 2]) -> Self {
        ErrorCount { requests, errors }
    }
}

/// How many values, and their sum: for rates and means. Values up to 2²⁷ (134 ms in nanoseconds)
/// are added at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// How many values.
    pub count: u64,
    /// Their sum, at most `u64::MAX`.
    pub sum: u64,
}

impl Sum {
    /// The mean, or `None` of nothing.
    ///
    /// ```
    /// use wheelhouse_collection::Sum;
    ///
    /// assert_eq!(Sum { count: 4, sum: 10 }.mean(), Some(2.5));
    /// assert_eq!(Sum::default().mean(), None);
    /// ```
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

impl Bucket for Sum {
    type Value = u64;
    type Counters = [u64; 2];
    const BITS: &'static [u32] = &[24, 40];

    #[inline]
    fn increments(value: u64) -> [u64; 2] {
        [1, value]
    }

    #[inline]
    fn from_counts([count, sum]: [u64; 2]) -> Self {
        Sum { count, sum }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}
