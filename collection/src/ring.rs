//! [`Ring`]: the last `n` items.

use std::collections::VecDeque;
use std::collections::vec_deque;

use crate::BuildError;

/// The last `n` items that were pushed, oldest first.
///
/// A [`VecDeque`] that keeps its bound. For threads, put it in a lock.
///
/// ```
/// use wheelhouse_collection::Ring;
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let mut errors = Ring::new(2)?;
/// errors.push("timeout");
/// errors.push("refused");
/// assert_eq!(errors.push("reset"), Some("timeout"));
/// assert!(errors.iter().eq(&["refused", "reset"]));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
}

impl<T> Ring<T> {
    /// An empty ring for `capacity` items, 1 or more. Memory is taken as items come.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// let refused = Ring::<u8>::new(0).unwrap_err();
    /// assert_eq!(refused.to_string(), "capacity is 0; allowed are 1 and more");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when `capacity` is 0.
    pub fn new(capacity: usize) -> Result<Self, BuildError> {
        if capacity == 0 {
            return Err(BuildError::new("capacity", "0".into(), "1 and more"));
        }
        Ok(Ring {
            items: VecDeque::new(),
            capacity,
        })
    }

    /// Adds an item, and returns the oldest if there was no room left.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut ring = Ring::new(2)?;
    /// assert_eq!(ring.push('a'), None);
    /// assert_eq!(ring.push('b'), None);
    /// assert_eq!(ring.push('c'), Some('a'));
    /// # Ok(()) }
    /// ```
    pub fn push(&mut self, item: T) -> Option<T> {
        let oldest = match self.is_full() {
            true => self.items.pop_front(),
            false => None,
        };
        self.items.push_back(item);
        oldest
    }

    /// The newest item.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut ring = Ring::new(3)?;
    /// assert_eq!(ring.latest(), None);
    /// ring.push(1);
    /// ring.push(2);
    /// assert_eq!(ring.latest(), Some(&2));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn latest(&self) -> Option<&T> {
        self.items.back()
    }

    /// The items, oldest first.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut ring = Ring::new(2)?;
    /// ring.push('a');
    /// ring.push('b');
    /// assert_eq!(ring.iter().collect::<String>(), "ab");
    /// # Ok(()) }
    /// ```
    pub fn iter(&self) -> vec_deque::Iter<'_, T> {
        self.items.iter()
    }

    /// How many items there are.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut ring = Ring::new(2)?;
    /// assert!(ring.is_empty());
    /// ring.push('a');
    /// assert_eq!((ring.len(), ring.capacity(), ring.is_full()), (1, 2, false));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let ring = Ring::<u8>::new(2)?;
    /// assert!(ring.is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the next push returns an item.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let ring = Ring::<u8>::new(2)?;
    /// assert!(!ring.is_full());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.items.len() == self.capacity
    }

    /// How many items there can be.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let ring = Ring::<u8>::new(2)?;
    /// assert_eq!(ring.capacity(), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Drops all items.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let mut ring = Ring::new(2)?;
    /// ring.push('a');
    /// ring.clear();
    /// assert!(ring.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn clear(&mut self) {
        self.items.clear();
    }
}

impl<T> IntoIterator for Ring<T> {
    type Item = T;
    type IntoIter = vec_deque::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Ring<T> {
    type Item = &'a T;
    type IntoIter = vec_deque::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_n_and_gives_the_others_back() {
        for capacity in 1..5 {
            let mut ring = Ring::new(capacity).unwrap();
            let gone: Vec<usize> = (0..10).filter_map(|item| ring.push(item)).collect();
            assert!(gone.into_iter().eq(0..10 - capacity));
            assert!(ring.is_full());
            assert!((&ring).into_iter().copied().eq(10 - capacity..10));
            assert!(ring.into_iter().eq(10 - capacity..10));
        }
    }

    #[test]
    fn refuses_to_keep_nothing() {
        let refused = Ring::<u8>::new(0).unwrap_err();
        assert_eq!(refused.to_string(), "capacity is 0; allowed are 1 and more");
        let bottomless = Ring::<u8>::new(usize::MAX).unwrap();
        assert!(bottomless.is_empty());
    }
}
