//! One-shot tasks of a running process, and the ledger that their work writes.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::{Builder, Runtime};

/// Workers of the runtime that every subject gets.
pub const WORKERS: usize = 2;

/// Runs work once, at a given instant; the work is [`Ledger::ran`].
pub trait OneShots: Sized {
    /// What the scheduling task holds.
    type Caller: OneShotCaller + Send + 'static;

    /// Starts it on a runtime of its own, see [`runtime`].
    fn start(ledger: &'static Ledger) -> Self;

    /// That runtime.
    fn runtime(&self) -> &Runtime;

    /// A handle for the scheduling task.
    fn caller(&self) -> Self::Caller;

    /// Returns when every one-shot that was scheduled waits for its time, and tells how many have
    /// not run. No caller is left by then.
    fn flush(&self) -> usize;

    /// Stops it and its threads.
    fn stop(self);
}

/// The scheduling task's side.
pub trait OneShotCaller {
    /// Schedules a one-shot that is due at `due`, which is `due_ns` since the ledger's epoch; its
    /// work keeps no more than the latter.
    fn schedule(&mut self, due: Instant, due_ns: u64);
}

/// The runtime of every subject: multi-threaded, tokio's defaults but for the number of workers,
/// with time and without I/O.
///
/// # Panics
///
/// When the system refuses its threads.
pub fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_time()
        .build()
        .expect("threads for the runtime's workers")
}

/// What the one-shots' work bumps and writes: the same for every subject, without a lock, and made
/// before anything is timed or counted.
pub struct Ledger {
    epoch: Instant,
    ran: Padded<AtomicUsize>,
    /// One place a run, taken in the order in which they began.
    runs: Box<[RunAt]>,
}

/// Alone on its cache lines, so that who reads a field beside it does not wait for those who bump it.
#[repr(align(128))]
struct Padded<T>(T);

/// One run, both in nanoseconds since the epoch.
#[derive(Default)]
struct RunAt {
    due: AtomicU64,
    began: AtomicU64,
}

/// What a ledger holds after a run.
#[derive(Debug)]
pub struct Ran {
    /// One-shots that ran, twice if they did so.
    pub count: usize,
    /// Sum of the due times of the first `n` of them, as [`Ledger::nanos`] gives them.
    pub due: u64,
    /// Those that began before they were due.
    pub early: u64,
    /// Begin minus due, in nanoseconds, to three digits.
    pub lateness: Histogram<u64>,
}

impl Ledger {
    /// For `n` one-shots. Lives as long as the process, so that no subject pays for sharing it.
    pub fn of(n: usize) -> &'static Self {
        Box::leak(Box::new(Self {
            epoch: Instant::now(),
            ran: Padded(AtomicUsize::new(0)),
            runs: (0..n).map(|_| RunAt::default()).collect(),
        }))
    }

    /// The work of a one-shot that is due `due_ns` after the epoch.
    #[inline]
    pub fn ran(&self, due_ns: u64) {
        let began = Instant::now();
        let place = self.ran.0.fetch_add(1, Relaxed);
        // Relaxed here and below: who reads the runs has waited for the workers' end.
        if let Some(run) = self.runs.get(place) {
            run.due.store(due_ns, Relaxed);
            run.began.store(self.nanos(began), Relaxed);
        }
    }

    /// An instant after the ledger was made, in nanoseconds since then.
    pub fn nanos(&self, at: Instant) -> u64 {
        (at - self.epoch).as_nanos() as u64
    }

    /// The instant that many nanoseconds after the ledger was made.
    pub fn instant(&self, nanos: u64) -> Instant {
        self.epoch + Duration::from_nanos(nanos)
    }

    /// How many have run so far.
    pub fn count(&self) -> usize {
        self.ran.0.load(Relaxed)
    }

    /// Adds up. Nothing may run any more.
    ///
    /// # Panics
    ///
    /// Never: the bounds of the histogram are constants.
    pub fn add_up(&self) -> Ran {
        let mut lateness = Histogram::new_with_bounds(1, 1_000_000_000_000, 3)
            .expect("1 ns to 1000 s to three digits is a range the histogram allows");
        let (mut due_sum, mut early) = (0, 0);
        for run in self.runs.iter().take(self.count()) {
            let (due, began) = (run.due.load(Relaxed), run.began.load(Relaxed));
            due_sum += due;
            match began.checked_sub(due) {
                Some(late) => lateness.saturating_record(late),
                None => early += 1,
            }
        }
        Ran {
            count: self.count(),
            due: due_sum,
            early,
            lateness,
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("count", &self.count())
            .field("room", &self.runs.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_early_and_twice_is_told_apart() {
        let ledger = Ledger::of(2);
        let now = ledger.nanos(Instant::now());
        ledger.ran(now - 1);
        ledger.ran(now + 3_600_000_000_000);
        ledger.ran(now);
        let ran = ledger.add_up();
        assert_eq!((ran.count, ran.early, ran.lateness.len()), (3, 1, 1));
        assert_eq!(ran.due, 2 * now + 3_600_000_000_000 - 1);
        assert_eq!(ledger.nanos(ledger.instant(now)), now);
    }
}
