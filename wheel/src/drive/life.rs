//! Where a wheel or a scheduler is between its start and its end, and which threads work for it.
//!
//! | `stopping` | `collection` | meaning | who moves it on |
//! |---|---|---|---|
//! | RUNNING | Open | calls are accepted | the first `Shared::close` |
//! | STOPPING | Open | calls fail, or soon will; the driver ends | the first stop on a foreign thread |
//! | STOPPING | Begun | that stop waits for the driver and for callbacks, gathers, joins | the same |
//! | STOPPING | Done | later stops return | nobody |
//!
//! `driver_runs` is set before the driver's thread starts and cleared as its last act, so whoever
//! sees it cleared under the lock finds all that the driver left in the lanes.
//!
//! `requested` and `settled` count the catch-ups of a virtual clock. The driver reads `requested`,
//! then the clock; when nothing is due by then it writes what it read to `settled`. The clock was
//! moved before the request, so a settled request has seen the moved clock. Before it sleeps it
//! looks at `requested` once more, after it has published its tick (alarm.rs): a request either is
//! seen there, or its `wake` finds the tick.
//!
//! Checked by `stop_against_stop`, `stop_against_a_running_driver` and
//! `a_jump_of_the_clock_waits_for_the_driver` in `timing_wheel::loom_tests`.

use std::cell::RefCell;

use crate::sync::{Condvar, Mutex, Word};

/// Where its owner is between start and end.
pub(crate) struct Life {
    /// [`RUNNING`], then [`STOPPING`] from the first stop on. The driver looks at it before it
    /// sleeps, see alarm.rs; whoever sets it wakes the driver then.
    stopping: Word,
    state: Mutex<LifeState>,
    changed: Condvar,
}

const RUNNING: u64 = 0;
const STOPPING: u64 = 1;

struct LifeState {
    driver_runs: bool,
    /// Who collects what is left: nobody yet, somebody, or it is done.
    collection: Collection,
    /// Catch-ups asked for, and those after which the driver found nothing more to do.
    requested: u64,
    settled: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Collection {
    Open,
    Begun,
    Done,
}

impl Life {
    pub(crate) fn new() -> Self {
        Life {
            stopping: Word::new(RUNNING),
            state: Mutex::new(LifeState {
                driver_runs: false,
                collection: Collection::Open,
                requested: 0,
                settled: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// A stop has begun. True for the first.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.swap(STOPPING) == RUNNING
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load() == STOPPING
    }

    /// True for the first caller; the others return when it is done.
    pub(crate) fn begin_collection(&self) -> bool {
        let mut state = self.state.lock();
        if state.collection == Collection::Open {
            state.collection = Collection::Begun;
            return true;
        }
        while state.collection != Collection::Done {
            self.changed.wait(&mut state);
        }
        false
    }

    /// What is left has been collected.
    pub(crate) fn end_collection(&self) {
        self.state.lock().collection = Collection::Done;
        self.changed.notify_all();
    }

    pub(crate) fn wait_for_driver(&self) {
        let mut state = self.state.lock();
        while state.driver_runs {
            self.changed.wait(&mut state);
        }
    }

    /// The driver is about to start; from now on a stop waits for its end.
    pub(crate) fn driver_starts(&self) {
        self.state.lock().driver_runs = true;
    }

    /// The driver has ended, or did not start.
    pub(crate) fn driver_ended(&self) {
        self.state.lock().driver_runs = false;
        self.changed.notify_all();
    }

    /// Asks the driver to catch up with its clock.
    pub(crate) fn request(&self) -> u64 {
        let mut state = self.state.lock();
        state.requested += 1;
        state.requested
    }

    /// The last catch-up that was asked for.
    pub(crate) fn requested(&self) -> u64 {
        self.state.lock().requested
    }

    /// The driver has found nothing more to do since `request` was made.
    pub(crate) fn settle(&self, request: u64) {
        self.state.lock().settled = request;
        self.changed.notify_all();
    }

    pub(crate) fn wait_until_settled(&self, request: u64) {
        let mut state = self.state.lock();
        while state.settled < request && state.driver_runs {
            self.changed.wait(&mut state);
        }
    }
}

crate::sync::local! {
    /// The wheels on whose behalf this thread runs at the moment.
    static ON_BEHALF: RefCell<Vec<usize>> = RefCell::new(Vec::new());
}

/// While it lives, the thread counts as one of the wheel's.
pub(crate) struct OnBehalf;

impl Drop for OnBehalf {
    fn drop(&mut self) {
        ON_BEHALF.with(|wheels| wheels.borrow_mut().pop());
    }
}

impl OnBehalf {
    /// Marks this thread as one of the wheel `id`'s.
    pub(crate) fn of(id: usize) -> Self {
        ON_BEHALF.with(|wheels| wheels.borrow_mut().push(id));
        OnBehalf
    }

    /// Whether this thread works for any wheel.
    pub(crate) fn any() -> bool {
        ON_BEHALF
            .try_with(|wheels| !wheels.borrow().is_empty())
            .unwrap_or(false)
    }

    /// Whether this thread is one of the wheel `id`'s.
    pub(crate) fn is(id: usize) -> bool {
        // A handle may be dropped at the very end of a thread, by the destructor of a thread-local.
        // No thread of a wheel does that while it is at work for one.
        ON_BEHALF
            .try_with(|wheels| wheels.borrow().contains(&id))
            .unwrap_or(false)
    }
}
