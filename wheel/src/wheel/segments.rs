//! Storage that grows by whole segments, so that growth never copies.
//!
//! The first segment grows by doubling, so that a small wheel stays small;
//! every later one is allocated whole. From then on no item moves.

/// Items per segment, as a power of two.
const SEGMENT_BITS: u32 = 7;
const SEGMENT: usize = 1 << SEGMENT_BITS;

/// A growing array whose items never move once its first segment is full.
#[derive(Debug)]
pub(super) struct Segments<B> {
    segments: Vec<Box<[B]>>,
}

impl<B> Segments<B> {
    pub(super) const fn new() -> Self {
        Self {
            segments: Vec::new(),
        }
    }

    /// Items allocated.
    pub(super) fn capacity(&self) -> usize {
        match self.segments.as_slice() {
            [] => 0,
            [first] => first.len(),
            several => several.len() * SEGMENT,
        }
    }

    /// Adds at least one item: doubles the first segment, then adds whole ones.
    #[cold]
    pub(super) fn grow(&mut self, make: impl FnMut() -> B) {
        let items = match self.segments.as_mut_slice() {
            [] => Vec::with_capacity(1),
            [first] if first.len() < SEGMENT => {
                let mut items = std::mem::take(first).into_vec();
                items.reserve_exact(items.len());
                self.segments.clear();
                items
            }
            _ => Vec::with_capacity(SEGMENT),
        };
        let mut items = items;
        let capacity = items.capacity().min(SEGMENT);
        items.resize_with(capacity, make);
        self.segments.push(items.into_boxed_slice());
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&B> {
        let segment = self.segments.get(index >> SEGMENT_BITS)?;
        segment.get(index & (SEGMENT - 1))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut B> {
        let segment = self.segments.get_mut(index >> SEGMENT_BITS)?;
        segment.get_mut(index & (SEGMENT - 1))
    }

    /// The items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &B> {
        self.segments.iter().flatten()
    }

    /// Drops all items but the first `items`, and some of their segment.
    pub(super) fn truncate(&mut self, items: usize) {
        self.segments.truncate(items.div_ceil(SEGMENT));
        self.segments.shrink_to_fit();
        if let [first] = self.segments.as_mut_slice() {
            let mut kept = std::mem::take(first).into_vec();
            kept.truncate(items);
            *first = kept.into_boxed_slice();
        }
    }
}

impl<B> std::ops::Index<usize> for Segments<B> {
    type Output = B;

    #[inline]
    fn index(&self, index: usize) -> &B {
        &self.segments[index >> SEGMENT_BITS][index & (SEGMENT - 1)]
    }
}

impl<B> std::ops::IndexMut<usize> for Segments<B> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut B {
        &mut self.segments[index >> SEGMENT_BITS][index & (SEGMENT - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_doubling_then_by_segments() {
        let mut segments = Segments::new();
        let mut made = 0;
        let mut capacities = Vec::new();
        while segments.capacity() < 4 * SEGMENT {
            segments.grow(|| {
                made += 1;
                made - 1
            });
            capacities.push(segments.capacity());
        }
        assert_eq!(
            capacities,
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512],
            "items allocated after each growth"
        );
        assert!((0..512).all(|i| segments[i] == i));
        assert_eq!(segments.get(512), None);
        assert!(segments.iter().copied().eq(0..512));
        segments.truncate(129);
        assert_eq!(segments.capacity(), 256, "a second segment is whole");
        segments.truncate(5);
        assert!(segments.iter().copied().eq(0..5));
        segments.grow(|| 7);
        assert!(segments.iter().copied().eq([0, 1, 2, 3, 4, 7, 7, 7, 7, 7]));
        segments.truncate(0);
        assert_eq!(segments.capacity(), 0);
    }
}
