//! The last `n` outcomes, and how many of them failed.

/// A ring that forgets its oldest outcome for each new one once it is full.
#[derive(Debug)]
pub(super) struct Ring {
    failed: Box<[bool]>,
    next: usize,
    filled: usize,
    failures: usize,
}

impl Ring {
    /// An empty ring for `len` outcomes, at least one.
    pub(super) fn new(len: usize) -> Self {
        Self {
            failed: vec![false; len.max(1)].into(),
            next: 0,
            filled: 0,
            failures: 0,
        }
    }

    pub(super) fn push(&mut self, failed: bool) {
        let place = &mut self.failed[self.next];
        self.failures += usize::from(failed);
        self.failures -= usize::from(*place);
        *place = failed;
        self.next = (self.next + 1) % self.failed.len();
        self.filled = (self.filled + 1).min(self.failed.len());
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == self.failed.len()
    }

    /// The share of failures among what is held; at least one outcome must be.
    pub(super) fn failure_rate(&self) -> f64 {
        self.failures as f64 / self.filled as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_knows_its_last_outcomes_only() {
        let mut ring = Ring::new(4);
        for (failed, filled, rate) in [
            (true, 1, 1.0),
            (false, 2, 0.5),
            (false, 3, 1.0 / 3.0),
            (true, 4, 0.5),
            (false, 4, 0.25),
            (true, 4, 0.5),
            (true, 4, 0.75),
        ] {
            ring.push(failed);
            assert_eq!((ring.filled(), ring.failure_rate()), (filled, rate));
        }
        assert!(ring.is_full());
    }
}
