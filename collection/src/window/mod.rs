//! Counts of the recent past: by time or by number.

mod blocks;
mod bucket;
mod count;
#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;
mod rolling;
mod row;
mod shared;
mod word;

pub use bucket::{Bucket, Carry, Counters, Counts, ErrorCount, Outcome, Outcomes, Sum};
pub use count::CountWindow;
pub use rolling::RollingWindow;

use std::time::Instant;

/// What is common to windows over time and over the number of values.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse_collection::{CountWindow, Outcome, Outcomes, RollingWindow, Window};
///
/// fn one_failure(window: &impl Window<Value = Outcome, Total = Outcomes>) -> f64 {
///     let now = Instant::now();
///     window.add_at(now, Outcome::Success);
///     window.add_at(now, Outcome::Failure);
///     window.snapshot_at(now).error_rate()
/// }
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// assert_eq!(one_failure(&RollingWindow::new(10, Duration::from_secs(1))?), 0.5);
/// assert_eq!(one_failure(&CountWindow::new(100)?), 0.5);
/// # Ok(()) }
/// ```
pub trait Window {
    /// What is added.
    type Value;

    /// What the window says about all values in it.
    type Total;

    /// Adds `value`. A window over the number of values does not look at `now`.
    fn add_at(&self, now: Instant, value: Self::Value);

    /// What is in the window at `now`.
    fn snapshot_at(&self, now: Instant) -> Self::Total;

    /// Forgets everything that was added.
    fn clear(&self);
}
