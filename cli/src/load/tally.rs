//! What the callbacks note down, cheaply enough not to be what is measured.
//!
//! Each thread that runs callbacks has a cell of its own (threads beyond the number of
//! cells share), so that the locks are free when they are taken.

use std::{
    cell::Cell,
    collections::TryReserveError,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use hdrhistogram::Histogram;

/// Enough that the threads of a pool rarely share one.
const CELLS: usize = 16;

/// Counts of a run, shared with the callbacks.
#[derive(Debug)]
pub(super) struct Tally {
    cells: Vec<Mutex<Counts>>,
    /// One bit a task: whether it has fired.
    seen: Vec<AtomicU64>,
    fired: AtomicU64,
}

/// Counts of one thread.
#[derive(Debug)]
struct Counts {
    lateness: Histogram<u64>,
    max_ns: u64,
    early: u64,
    twice: u64,
}

/// The counts of all threads together.
#[derive(Debug)]
pub(super) struct Totals {
    /// Lateness in nanoseconds, three significant digits; early tasks count as 0.
    pub(super) lateness: Histogram<u64>,
    /// The greatest lateness, exact.
    pub(super) max_ns: u64,
    /// Callbacks that ran.
    pub(super) fired: u64,
    /// Callbacks that ran before their task was due.
    pub(super) early: u64,
    /// Callbacks that ran again for the same task.
    pub(super) twice: u64,
}

impl Tally {
    /// Room for `tasks` tasks.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub(super) fn new(tasks: u64) -> Result<Self, TryReserveError> {
        let words = usize::try_from(tasks.div_ceil(64)).unwrap_or(usize::MAX);
        let mut seen = Vec::new();
        seen.try_reserve_exact(words)?;
        seen.resize_with(words, || AtomicU64::new(0));
        Ok(Self {
            cells: (0..CELLS).map(|_| Mutex::new(Counts::new())).collect(),
            seen,
            fired: AtomicU64::new(0),
        })
    }

    /// Notes that `task`, due at `due_ns`, began at `start_ns`.
    pub(super) fn note(&self, task: u64, due_ns: u64, start_ns: u64) {
        let bit = 1 << (task % 64);
        // Relaxed here and below: the counts are read for good only after the wheel has been
        // stopped, which waits for the callbacks; until then they only feed the progress bar.
        let word = usize::try_from(task / 64)
            .ok()
            .and_then(|word| self.seen.get(word));
        let again = word.is_some_and(|word| word.fetch_or(bit, Relaxed) & bit != 0);
        let lateness_ns = start_ns.saturating_sub(due_ns);
        {
            let mut cell = lock(&self.cells[cell_of_this_thread()]);
            cell.lateness.saturating_record(lateness_ns);
            cell.max_ns = cell.max_ns.max(lateness_ns);
            cell.early += u64::from(start_ns < due_ns);
            cell.twice += u64::from(again);
        }
        self.fired.fetch_add(1, Relaxed);
    }

    /// How many callbacks have run by now.
    pub(super) fn fired(&self) -> u64 {
        self.fired.load(Relaxed)
    }

    /// Adds up what all threads have noted.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals {
            lateness: histogram(),
            max_ns: 0,
            fired: self.fired(),
            early: 0,
            twice: 0,
        };
        for cell in &self.cells {
            let cell = lock(cell);
            totals.lateness += &cell.lateness;
            totals.max_ns = totals.max_ns.max(cell.max_ns);
            totals.early += cell.early;
            totals.twice += cell.twice;
        }
        totals
    }
}

impl Counts {
    fn new() -> Self {
        Self {
            lateness: histogram(),
            max_ns: 0,
            early: 0,
            twice: 0,
        }
    }
}

/// From a nanosecond to an hour with three significant digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid constants")
}

fn cell_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Relaxed) % CELLS);
    }
    MINE.get()
}

fn lock(cell: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_late_and_twice_are_told_apart() {
        let tally = Tally::new(130).unwrap();
        tally.note(0, 1000, 1000);
        tally.note(129, 1000, 999);
        tally.note(64, 1000, 5000);
        tally.note(64, 1000, 3000);
        let totals = tally.totals();
        assert_eq!((totals.fired, totals.early, totals.twice), (4, 1, 1));
        assert_eq!(totals.max_ns, 4000);
        assert_eq!(totals.lateness.len(), 4);
    }
}
