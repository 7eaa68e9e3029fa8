//! [`RollingWindow`]: counts of the last while, bucket by bucket.

use std::fmt;
use std::time::{Duration, Instant};

use crate::BuildError;
use crate::sync::stripe;

use super::Window;
use super::bucket::{Bucket, Carry};
use super::shared::Shared;

/// The most buckets that a window has.
const MAX_BUCKETS: usize = 1 << 20;

/// Counts over the last `n` buckets of equal length, for any number of threads.
///
/// Time is divided from the window's start into buckets. The window at an instant is the bucket of
/// that instant, unfinished, and the `n - 1` before it. Values are counted in the bucket of the
/// instant at which they are added. An instant before the latest bucket that anything was added to
/// is taken for that bucket: a clock that steps back changes nothing.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse_collection::{ErrorCount, Outcome, RollingWindow};
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let start = Instant::now();
/// let second = |s| start + Duration::from_secs(s);
/// let window = RollingWindow::<ErrorCount>::starting_at(start, 10, Duration::from_secs(1))?;
///
/// window.add_at(second(0), Outcome::Failure);
/// window.add_at(second(5), Outcome::Success);
/// let count = window.snapshot_at(second(9));
/// assert_eq!((count.requests, count.errors), (2, 1));
///
/// // The failure was in the first of the buckets, which has left.
/// let count = window.snapshot_at(second(10));
/// assert_eq!((count.requests, count.errors), (1, 0));
/// # Ok(()) }
/// ```
///
/// Adding is one atomic addition to a cache line that few other threads write to, and reading the
/// sum is a few loads; once per bucket somebody takes a lock to start the next one. Neither depends
/// on the number of calls or buckets. A sum never has more errors than requests, and what was added
/// before a read, by any thread, is in it.
///
/// The one-liners without an instant read [`Instant::now`]. Callers that keep time as a number of
/// nanoseconds use the forms `…_nanos`, which count it from the window's start.
///
/// A window keeps a cache line for each of a few groups of threads, of which it needs an eighth. What
/// else threads write to beside it can live in the rest: see [`carrying`](Self::carrying).
pub struct RollingWindow<B: Bucket, S = ()> {
    shared: Shared<B, S>,
}

impl<B: Bucket> RollingWindow<B> {
    /// A window of `buckets` buckets, each `bucket_length` long, that starts now.
    ///
    /// `buckets` is 1 to 1 048 576, `bucket_length` from a nanosecond up; more than 292 years are
    /// taken for that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{ErrorCount, RollingWindow};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let ten_seconds = RollingWindow::<ErrorCount>::new(40, Duration::from_millis(250))?;
    /// assert_eq!(ten_seconds.snapshot().requests, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range.
    pub fn new(buckets: usize, bucket_length: Duration) -> Result<Self, BuildError> {
        Self::starting_at(Instant::now(), buckets, bucket_length)
    }

    /// The same for a clock of the caller's: bucket 0 starts at `start`, and earlier instants belong
    /// to it.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at(start - Duration::from_secs(3), 7);
    /// assert_eq!(window.snapshot_at(start).sum, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range.
    pub fn starting_at(
        start: Instant,
        buckets: usize,
        bucket_length: Duration,
    ) -> Result<Self, BuildError> {
        Self::carrying(start, buckets, bucket_length, || ())
    }
}

impl<B: Bucket, S: Carry<B>> RollingWindow<B, S> {
    /// The same, with what `each` makes on the line of each group of threads, as in a
    /// [`Striped`](crate::Striped). Up to 56 bytes cost nothing.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{Carry, RollingWindow, Sum};
    ///
    /// /// The sum of all that has left the line.
    /// #[derive(Default)]
    /// struct Earlier(AtomicU64);
    ///
    /// impl Carry<Sum> for Earlier {
    ///     fn taken(&self, [_count, sum]: &[u64; 2]) {
    ///         self.0.fetch_add(*sum, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let (start, second) = (Instant::now(), Duration::from_secs(1));
    /// let window = RollingWindow::<Sum, Earlier>::carrying(start, 5, second, Earlier::default)?;
    /// window.add_at(start, 7);
    /// window.add_at(start + 60 * second, 8);
    ///
    /// // The window has forgotten the first.
    /// assert_eq!(window.snapshot_at(start + 60 * second).sum, 8);
    /// let mut ever = 0;
    /// window.with_all_carried(|earlier, now| ever += earlier.0.load(Ordering::Relaxed) + now.sum);
    /// assert_eq!(ever, 15);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range.
    pub fn carrying(
        start: Instant,
        buckets: usize,
        bucket_length: Duration,
        each: impl Fn() -> S,
    ) -> Result<Self, BuildError> {
        if !(1..=MAX_BUCKETS).contains(&buckets) {
            let value = buckets.to_string();
            return Err(BuildError::new("buckets", value, "1 to 1048576"));
        }
        if bucket_length.is_zero() {
            let value = format!("{bucket_length:?}");
            return Err(BuildError::new("bucket_length", value, "1ns and more"));
        }
        Ok(RollingWindow {
            shared: Shared::carrying(start, buckets as u32, bucket_length, each),
        })
    }

    /// What is carried for the calling thread, always the same, with its place in
    /// [`all_carried`](Self::all_carried). For an example see [`carrying`](Self::carrying).
    #[inline]
    #[must_use]
    pub fn carried(&self) -> (usize, &S) {
        self.shared.carried()
    }

    /// What `read` makes of what is carried for the calling thread, and of the counts that are on its
    /// line: both at one moment, at which nothing was being moved off the line. Runs `read` again when
    /// something was.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use wheelhouse_collection::{RollingWindow, Sum};
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(5, Duration::from_secs(1))?;
    /// assert_eq!(window.with_carried(|(), on_line| on_line.count), 0);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn with_carried<R>(&self, read: impl Fn(&S, B) -> R) -> R {
        self.shared.with_carried(stripe(), read)
    }

    /// Shows `read` what is carried for each group of threads, and the counts that are on its line, under
    /// the window's lock, so that nothing is moved off the lines meanwhile. It must not use the window.
    /// For an example see [`carrying`](Self::carrying).
    pub fn with_all_carried(&self, read: impl FnMut(&S, B)) {
        self.shared.with_all_carried(read);
    }

    /// What is carried for all groups of threads. For an example see [`carrying`](Self::carrying).
    #[inline]
    pub fn all_carried(&self) -> impl Iterator<Item = &S> {
        self.shared.all_carried()
    }

    /// Lets reads leave out the bucket of their instant, which is unfinished. It counts once the next
    /// one has begun.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?
    ///     .ignoring_current();
    /// window.add_at(start, 7);
    /// assert_eq!(window.snapshot_at(start).sum, 0);
    /// assert_eq!(window.snapshot_at(start + Duration::from_secs(1)).sum, 7);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ignoring_current(mut self) -> Self {
        self.shared.leave_out_current();
        self
    }

    /// Adds `value` at the present instant, and returns what [`add_at`](Self::add_at) does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// window.add(3);
    /// window.add(4);
    /// assert_eq!(window.snapshot().mean(), Some(3.5));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn add(&self, value: B::Value) -> B {
        self.add_at(Instant::now(), value)
    }

    /// Adds `value` to the bucket of `now`, or to the latest one when `now` is before that.
    ///
    /// Returns this thread's share: what it, and few others, have added to the current bucket since
    /// that was last tidied up. It costs nothing, and no decision can rest on it, but a caller can
    /// use it to do something every so many values.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 60, Duration::from_secs(1))?;
    /// assert_eq!(window.add_at(start, 3).count, 1);
    /// assert_eq!(window.add_at(start, 4).count, 2);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn add_at(&self, now: Instant, value: B::Value) -> B {
        self.add_at_nanos(self.nanos_at(now), value)
    }

    /// [`add_at`](Self::add_at), with `now` in nanoseconds since the start.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at_nanos(2_500_000_000, 7);
    /// assert_eq!(window.snapshot_at_nanos(6_999_999_999).sum, 7);
    /// assert_eq!(window.snapshot_at_nanos(7_000_000_000).sum, 0);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn add_at_nanos(&self, now_nanos: u64, value: B::Value) -> B {
        self.shared.add(stripe(), now_nanos, value)
    }

    /// The sum over the window at the present instant.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// window.add(7);
    /// assert_eq!(window.snapshot(), Sum { count: 1, sum: 7 });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> B {
        self.snapshot_at(Instant::now())
    }

    /// The sum over the window at `now`, which is not before the latest bucket.
    ///
    /// Reading does not move the window: what a look ahead leaves out is still there for a read at an
    /// earlier instant, as long as nothing was added later. The first look ahead into a bucket costs
    /// a lock and time in the number of buckets between.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at(start, 7);
    /// assert_eq!(window.snapshot_at(start + Duration::from_secs(5)).sum, 0);
    /// assert_eq!(window.snapshot_at(start + Duration::from_secs(4)).sum, 7);
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use]
    pub fn snapshot_at(&self, now: Instant) -> B {
        self.snapshot_at_nanos(self.nanos_at(now))
    }

    /// [`snapshot_at`](Self::snapshot_at), with `now` in nanoseconds since the start.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at(start, 7);
    /// assert_eq!(window.snapshot_at_nanos(0).sum, 7);
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use]
    pub fn snapshot_at_nanos(&self, now_nanos: u64) -> B {
        self.shared.snapshot(now_nanos)
    }

    /// Folds the buckets of the window at the present instant, as [`reduce_at`](Self::reduce_at).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// window.add(7);
    /// let busy = window.reduce(0, |busy, second| busy + u32::from(second.count > 0));
    /// assert_eq!(busy, 1);
    /// # Ok(()) }
    /// ```
    pub fn reduce<T>(&self, initial: T, fold: impl FnMut(T, B) -> T) -> T {
        self.reduce_at(Instant::now(), initial, fold)
    }

    /// Folds the buckets of the window at `now`, oldest first, those included that nothing was added
    /// to.
    ///
    /// Takes a lock and allocates, both in the number of buckets; `fold` runs outside the lock. What
    /// it gives for finished buckets stays the same within a bucket, so a caller may keep it as long
    /// as [`bucket_at`](Self::bucket_at) says the same.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at(start, 7);
    /// window.add_at(start, 9);
    /// window.add_at(start + Duration::from_secs(2), 8);
    ///
    /// let busiest = window.reduce_at(
    ///     start + Duration::from_secs(2),
    ///     0,
    ///     |most, bucket| bucket.count.max(most),
    /// );
    /// assert_eq!(busiest, 2);
    /// # Ok(()) }
    /// ```
    pub fn reduce_at<T>(&self, now: Instant, initial: T, fold: impl FnMut(T, B) -> T) -> T {
        self.reduce_at_nanos(self.nanos_at(now), initial, fold)
    }

    /// [`reduce_at`](Self::reduce_at), with `now` in nanoseconds since the start.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// window.add_at_nanos(5, 7);
    /// let counts = window.reduce_at_nanos(5, Vec::new(), |mut all, bucket| {
    ///     all.push(bucket.count);
    ///     all
    /// });
    /// assert_eq!(counts, [0, 0, 0, 0, 1]);
    /// # Ok(()) }
    /// ```
    pub fn reduce_at_nanos<T>(&self, now_nanos: u64, initial: T, fold: impl FnMut(T, B) -> T) -> T {
        self.shared
            .buckets_at(now_nanos)
            .into_iter()
            .fold(initial, fold)
    }

    /// Forgets everything that was added.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// window.add(3);
    /// window.clear();
    /// assert_eq!(window.snapshot(), Sum::default());
    /// # Ok(()) }
    /// ```
    pub fn clear(&self) {
        self.shared.clear();
    }

    /// The number of the bucket that `now` is in, counted from 0 at the start.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// assert_eq!(window.bucket_at(start + Duration::from_millis(2999)), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn bucket_at(&self, now: Instant) -> u64 {
        self.shared.bucket(self.nanos_at(now))
    }

    /// Nanoseconds from the start to `now`: 0 before it, at most 2⁶³ - 1.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let start = Instant::now();
    /// let window = RollingWindow::<Sum>::starting_at(start, 5, Duration::from_secs(1))?;
    /// assert_eq!(window.nanos_at(start + Duration::from_micros(5)), 5000);
    /// # Ok(()) }
    /// ```
    #[inline]
    #[must_use]
    pub fn nanos_at(&self, now: Instant) -> u64 {
        self.shared.nanos_at(now)
    }

    /// The number of buckets.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// assert_eq!(window.buckets(), 60);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.shared.buckets() as usize
    }

    /// How long each bucket is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_collection::{RollingWindow, Sum};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = RollingWindow::<Sum>::new(60, Duration::from_secs(1))?;
    /// assert_eq!(window.bucket_length(), Duration::from_secs(1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn bucket_length(&self) -> Duration {
        self.shared.length()
    }
}

impl<B: Bucket, S: Carry<B>> Window for RollingWindow<B, S> {
    type Value = B::Value;
    type Total = B;

    #[inline]
    fn add_at(&self, now: Instant, value: B::Value) {
        self.add_at(now, value);
    }

    #[inline]
    fn snapshot_at(&self, now: Instant) -> B {
        self.snapshot_at(now)
    }

    fn clear(&self) {
        self.clear();
    }
}

impl<B: Bucket, S: Carry<B>> fmt::Debug for RollingWindow<B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RollingWindow")
            .field("buckets", &self.buckets())
            .field("bucket_length", &self.bucket_length())
            .finish_non_exhaustive()
    }
}
