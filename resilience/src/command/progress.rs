//! How far blocking work has come: [`Progress`], between the thread that is at it and whoever waits.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | `WAITING` | no thread of the pool has come to it | the thread that does: to `RUNNING`; who gives it up: to `OVER` |
//! | `RUNNING` | a thread is at it and somebody waits | its end: to `OVER`; who gives it up: to `ABANDONED` |
//! | `ABANDONED` | a thread is at it and nobody waits | its end: to `OVER` |
//! | `OVER` | it has ended, or will not begin | nobody |

use std::sync::Arc;

use crate::bulkhead;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const WAITING: u32 = 0;
const RUNNING: u32 = 1;
const ABANDONED: u32 = 2;
const OVER: u32 = 3;

/// How much work was abandoned. Relaxed throughout: they are only read as figures.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    pub(super) total: AtomicU64,
    pub(super) running: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Progress {
    word: AtomicU32,
    abandoned: Arc<Abandoned>,
}

/// What the thread holds until it is done.
pub(super) struct Work {
    /// Given back first, so that whoever sees the work over finds the permit free.
    place: Option<bulkhead::OwnedPermit>,
    progress: Arc<Progress>,
}

impl Progress {
    pub(super) fn new(abandoned: &Arc<Abandoned>) -> Arc<Self> {
        Arc::new(Progress {
            word: AtomicU32::new(WAITING),
            abandoned: abandoned.clone(),
        })
    }

    /// Nobody waits for the work any longer.
    pub(super) fn give_up(&self) {
        // Release: publishes the count below to the end that takes it off again, with the Acquire of
        // its swap. Relaxed on failure, and everywhere else on the word: the result travels by the
        // handle.
        let exchange = |from, to| {
            self.word
                .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        };
        if exchange(WAITING, OVER) {
            return;
        }
        let Abandoned { total, running } = &*self.abandoned;
        // Before the exchange, so that there is something to take off.
        running.fetch_add(1, Ordering::Relaxed);
        if exchange(RUNNING, ABANDONED) {
            total.fetch_add(1, Ordering::Relaxed);
        } else {
            running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    pub(super) fn new(place: bulkhead::OwnedPermit, progress: &Arc<Progress>) -> Self {
        Work {
            place: Some(place),
            progress: progress.clone(),
        }
    }

    /// Whether somebody still waits for it.
    pub(super) fn begin(&self) -> bool {
        self.progress
            .word
            .compare_exchange(WAITING, RUNNING, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        drop(self.place.take());
        let Progress { word, abandoned } = &*self.progress;
        // Acquire: see `give_up`.
        if word.swap(OVER, Ordering::Acquire) == ABANDONED {
            abandoned.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::{Abandoned, Progress, Work};
    use crate::Bulkhead;
    use crate::sync::Ordering::Relaxed;

    /// Work is given up as it begins, runs and ends: it is abandoned only if it began, is counted as
    /// running for no longer than it does, and its permit comes back in any case. Fails when `give_up`
    /// counts after its exchange, when it takes nothing off where it came too late, and when the end
    /// takes off what was not abandoned.
    #[test]
    fn giving_up_meets_begin_and_end() {
        loom::model(|| {
            let bulkhead = Bulkhead::new(1);
            let abandoned = Arc::new(Abandoned::default());
            let progress = Progress::new(&abandoned);
            let place = bulkhead.try_acquire_owned().expect("it is free");
            let work = Work::new(place, &progress);
            let thread = thread::spawn(move || work.begin());
            let figures = abandoned.clone();
            let observer = thread::spawn(move || figures.running.load(Relaxed));
            progress.give_up();
            let seen = observer.join().expect("no panic");
            assert!(seen <= 1, "{seen} running of one");
            let began = thread.join().expect("no panic");
            assert_eq!(abandoned.running.load(Relaxed), 0);
            assert!(abandoned.total.load(Relaxed) <= u64::from(began));
            assert_eq!(bulkhead.in_use(), 0);
        });
    }
}
