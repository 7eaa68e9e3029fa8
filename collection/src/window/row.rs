//! The finished buckets of a window, and of the current one what has been folded in already. Used
//! under the window's lock only.

use super::bucket::Counters;

/// Buckets are numbered from the window's start; bucket `b` has the cell `b mod n`.
///
/// I2: the cells hold the buckets in `current - n + 1 ..= current`, and `folded` is their sum.
#[derive(Debug)]
pub(super) struct Row<C: Counters> {
    cells: Box<[C]>,
    current: u64,
    folded: C::Counts,
}

impl<C: Counters> Row<C> {
    pub(super) fn new(buckets: u32) -> Self {
        Row {
            cells: vec![C::ZERO; buckets as usize].into(),
            current: 0,
            folded: C::Counts::default(),
        }
    }

    pub(super) fn current(&self) -> u64 {
        self.current
    }

    fn len(&self) -> u64 {
        self.cells.len() as u64
    }

    fn cell(&self, bucket: u64) -> usize {
        (bucket % self.len()) as usize
    }

    /// Adds to the current bucket.
    pub(super) fn fold(&mut self, counts: &C::Counts) {
        let cell = self.cell(self.current);
        let folded = self.folded.as_mut();
        for (index, &count) in counts.as_ref().iter().enumerate() {
            // Never more than there is room for: the cells are the addends.
            let raised = self.cells[cell].raise(index, count.min(u64::MAX - folded[index]));
            folded[index] += raised;
        }
    }

    /// Makes `bucket`, a later one, the current one, and clears what that takes out of the window.
    pub(super) fn advance(&mut self, bucket: u64) {
        let gone = (bucket - self.current).min(self.len());
        for step in 1..=gone {
            let cell = self.cell(self.current + step);
            self.take(cell);
        }
        self.current = bucket;
    }

    fn take(&mut self, cell: usize) {
        let cell = std::mem::replace(&mut self.cells[cell], C::ZERO);
        for (index, folded) in self.folded.as_mut().iter_mut().enumerate() {
            *folded -= cell.count(index);
        }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(C::ZERO);
        self.folded = C::Counts::default();
    }

    /// The sum of the buckets that are in the window when `bucket` is the last one, which is not
    /// before the current one. With `leave_out`, without `bucket` itself.
    ///
    /// The cost is in the number of buckets between the two.
    pub(super) fn sum_at(&self, bucket: u64, leave_out: bool) -> C::Counts {
        let mut sum = self.folded;
        let mut without = |cell: usize| {
            for (index, sum) in sum.as_mut().iter_mut().enumerate() {
                *sum -= self.cells[cell].count(index);
            }
        };
        let ahead = (bucket - self.current).min(self.len());
        for step in 1..=ahead {
            without(self.cell(self.current + step));
        }
        if leave_out && ahead == 0 {
            without(self.cell(self.current));
        }
        sum
    }

    /// The buckets that are in the window when `bucket` is the last one, oldest first, as far as
    /// they are not after the current one; with what has been folded in.
    pub(super) fn buckets_at(&self, bucket: u64) -> impl Iterator<Item = C::Counts> {
        let ahead = (bucket - self.current).min(self.len());
        (ahead + 1..=self.len()).map(move |step| {
            let mut counts = C::Counts::default();
            for (index, count) in counts.as_mut().iter_mut().enumerate() {
                *count = self.cells[self.cell(self.current + step)].count(index);
            }
            counts
        })
    }

    /// I2, for tests.
    #[cfg(test)]
    pub(super) fn validate(&self) {
        for (index, &folded) in self.folded.as_ref().iter().enumerate() {
            let sum: u64 = self.cells.iter().map(|cell| cell.count(index)).sum();
            assert_eq!(folded, sum, "counter {index}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(row: &Row<[u32; 1]>, at: u64) -> Vec<u64> {
        row.validate();
        row.buckets_at(at).map(|[count]| count).collect()
    }

    #[test]
    fn clears_as_many_buckets_as_it_moves_on() {
        let mut row = Row::<[u32; 1]>::new(3);
        for bucket in 0..3 {
            if bucket > 0 {
                row.advance(bucket);
            }
            row.fold(&[10 + bucket]);
        }
        assert_eq!(buckets(&row, 2), [10, 11, 12]);
        row.advance(4);
        assert_eq!(buckets(&row, 4), [12, 0, 0]);
        row.advance(1 << 63);
        assert_eq!(buckets(&row, 1 << 63), [0, 0, 0]);
    }

    #[test]
    fn looks_ahead_without_clearing() {
        let mut row = Row::<[u32; 1]>::new(3);
        row.fold(&[1]);
        row.advance(1);
        row.fold(&[2]);
        assert_eq!(buckets(&row, 1), [0, 1, 2]);
        assert_eq!(buckets(&row, 2), [1, 2]);
        assert_eq!(buckets(&row, 3), [2]);
        assert_eq!(buckets(&row, 9), []);
        assert_eq!(row.sum_at(3, true), [2]);
        assert_eq!(row.sum_at(9, false), [0]);
        assert_eq!(row.sum_at(1, true), [1]);
        assert_eq!(buckets(&row, 1), [0, 1, 2]);
    }

    #[test]
    fn narrow_counters_stay_at_their_end() {
        let mut row = Row::<[u32; 1]>::new(2);
        row.fold(&[u64::from(u32::MAX) + 5]);
        row.fold(&[7]);
        assert_eq!(row.sum_at(0, false), [u64::from(u32::MAX)]);
        row.validate();
        let mut row = Row::<[u64; 1]>::new(2);
        row.fold(&[u64::MAX]);
        row.advance(1);
        row.fold(&[7]);
        assert_eq!(row.sum_at(1, false), [u64::MAX]);
        row.validate();
    }
}
