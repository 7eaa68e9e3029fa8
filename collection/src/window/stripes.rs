//! Words that threads write to without meeting: each on a cache line of its own.

/// How many threads can write without meeting. The models have fewer, so that they end.
#[cfg(not(wheelhouse_loom))]
pub(super) const STRIPES: usize = 4;
#[cfg(wheelhouse_loom)]
pub(super) const STRIPES: usize = 2;

/// On a cache line that nothing else is on.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

/// Processors fetch lines in pairs, which is why the array begins with a pair.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stripes<T>([Line<T>; STRIPES]);

impl<T> Stripes<T> {
    pub(super) fn new(each: impl Fn() -> T) -> Self {
        Stripes(std::array::from_fn(|_| Line(each())))
    }

    /// What is for the thread with this number, of [`stripe`](crate::sync::stripe).
    #[inline]
    pub(super) fn of(&self, thread: usize) -> &T {
        &self.0[thread % STRIPES].0
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
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

        let stripes = Stripes::new(|| 0_u64);
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
