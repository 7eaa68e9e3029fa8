//! [`Striped`]: one value for each of a few groups of threads, on cache lines of their own.

use crate::sync::stripe;

/// How many threads can write without meeting. The models have fewer, so that they end.
#[cfg(not(wheelhouse_loom))]
pub(crate) const STRIPES: usize = 4;
#[cfg(wheelhouse_loom)]
pub(crate) const STRIPES: usize = 2;

/// On a cache line that nothing else is on.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// Four values that threads write to without meeting: what a thread gets is on a cache line that
/// few others write to.
///
/// Unlike a thread-local, it belongs to its owner, and all of it can be read. Threads are divided
/// among the values, so a value is shared by some: it has to be an atomic, or made of such.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use wheelhouse_collection::Striped;
///
/// let calls = Striped::new(|| AtomicU64::new(0));
/// std::thread::scope(|scope| {
///     for _ in 0..8 {
///         scope.spawn(|| calls.mine().fetch_add(1, Ordering::Relaxed));
///     }
/// });
/// let all: u64 = calls.iter().map(|calls| calls.load(Ordering::Relaxed)).sum();
/// assert_eq!(all, 8);
/// ```
// Processors fetch lines in pairs, which is why the array begins with a pair.
#[derive(Debug)]
#[repr(align(128))]
pub struct Striped<T>([Line<T>; STRIPES]);

impl<T> Striped<T> {
    /// How many values there are.
    pub const COUNT: usize = STRIPES;

    /// What `each` makes, for each group of threads.
    ///
    /// ```
    /// use wheelhouse_collection::Striped;
    ///
    /// assert_eq!(Striped::new(|| 7).iter().count(), 4);
    /// ```
    pub fn new(each: impl Fn() -> T) -> Self {
        Striped(std::array::from_fn(|_| Line(each())))
    }

    /// What is for the calling thread, always the same.
    ///
    /// ```
    /// use wheelhouse_collection::Striped;
    ///
    /// assert_eq!(*Striped::new(|| 7).mine(), 7);
    /// ```
    #[inline]
    #[must_use]
    pub fn mine(&self) -> &T {
        self.of(stripe())
    }

    /// What is for the calling thread, with its place in [`iter`](Self::iter).
    ///
    /// ```
    /// use wheelhouse_collection::Striped;
    ///
    /// let values = Striped::new(|| 7);
    /// let (place, mine) = values.mine_at();
    /// assert!(std::ptr::eq(values.iter().nth(place).unwrap(), mine));
    /// ```
    #[inline]
    #[must_use]
    pub fn mine_at(&self) -> (usize, &T) {
        let place = stripe() % STRIPES;
        (place, &self.0[place].0)
    }

    /// All of them.
    ///
    /// ```
    /// use wheelhouse_collection::Striped;
    ///
    /// assert!(Striped::new(|| 7).iter().all(|&value| value == 7));
    /// ```
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }

    /// What is for the thread with this number, of [`stripe`].
    #[inline]
    pub(crate) fn of(&self, thread: usize) -> &T {
        &self.0[thread % STRIPES].0
    }
}

#[cfg(test)]
mod tests {
    /// Threads that ask one after the other: four words for any four of them, and different pairs of
    /// lines for any two.
    #[cfg(not(wheelhouse_loom))]
    #[test]
    fn threads_that_began_together_do_not_meet() {
        use super::*;

        let stripes = Striped::new(|| 0_u64);
        let line = |number| {
            let word = stripes.of(crate::sync::spread(number));
            std::ptr::from_ref(word) as usize / 64
        };
        for first in 0..9 {
            let mut lines: Vec<usize> = (first..first + 4).map(line).collect();
            assert_ne!(lines[0] / 2, lines[1] / 2);
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), STRIPES);
        }
    }
}
