//! Values that are counted while they live.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

/// How many [`Counted`] values of one test are alive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alive(Arc<AtomicIsize>);

impl Alive {
    pub(crate) fn value(&self, id: u64) -> Counted {
        self.0.fetch_add(1, SeqCst);
        Counted {
            id,
            alive: self.clone(),
        }
    }

    /// Negative if values were dropped twice.
    pub(crate) fn count(&self) -> isize {
        self.0.load(SeqCst)
    }
}

/// A value with something to drop.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) id: u64,
    alive: Alive,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.0.fetch_sub(1, SeqCst);
    }
}
