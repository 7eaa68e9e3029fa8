//! [`Arming`]: how threads that change a breaker agree on what its timer is set for.
//!
//! One thread at a time sets the timer. Who comes meanwhile leaves a note that something has changed,
//! and the one that sets looks once more before it goes: so nobody waits, each look follows a change,
//! and the last look is after the last change.
//!
//! # Races considered
//!
//! - An old timer fires while another thread sets a new one: `fired` forgets what the timer is set for,
//!   and who fired arms afterwards. So the new one may be set twice, for the same; it is never taken
//!   for set when it is not.

use crate::clock::NEVER;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub(super) struct Arming {
    /// [`IDLE`], [`BUSY`] or [`AGAIN`].
    state: AtomicU32,
    /// What the timer is set for, in time of the breaker; [`NEVER`] when it is not.
    due: AtomicU64,
}

/// Nobody sets the timer.
const IDLE: u32 = 0;
/// Somebody does.
const BUSY: u32 = 1;
/// Somebody does, and has to look again.
const AGAIN: u32 = 2;

impl Arming {
    pub(super) fn idle() -> Self {
        Arming {
            state: AtomicU32::new(IDLE),
            due: AtomicU64::new(NEVER),
        }
    }

    /// The timer has fired. To be followed by [`arm`](Self::arm).
    pub(super) fn fired(&self) {
        // Relaxed: the thread that stores it arms afterwards, which passes it on.
        self.due.store(NEVER, Ordering::Relaxed);
    }

    /// Calls `set` with what is `due` next, unless the timer is set for it or nothing is due.
    pub(super) fn arm(&self, due: impl Fn() -> u64, set: impl Fn(u64)) {
        // AcqRel, all: what has changed before a note is seen by the look that follows it.
        if self.state.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return;
        }
        let setting = Setting(self);
        loop {
            self.state.swap(BUSY, Ordering::AcqRel);
            let due = due();
            // Relaxed: passed on by the state.
            if due != NEVER && self.due.swap(due, Ordering::Relaxed) != due {
                set(due);
            }
            let done = self
                .state
                .compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if done.is_ok() {
                std::mem::forget(setting);
                return;
            }
        }
    }
}

/// Somebody sets the timer. If that unwinds, since a user's clock panicked, nothing is set, and the next
/// change sets it.
struct Setting<'a>(&'a Arming);

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        // Relaxed: passed on by the state.
        self.0.due.store(NEVER, Ordering::Relaxed);
        // Release: pairs with the swap of the next.
        self.0.state.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn sets_what_is_new_and_only_that() {
        let (arming, set) = (Arming::idle(), RefCell::new(Vec::new()));
        let arm = |due: u64| arming.arm(|| due, |at| set.borrow_mut().push(at));
        arm(NEVER);
        arm(7);
        arm(7);
        arm(NEVER);
        arm(7);
        arm(9);
        arming.fired();
        arm(9);
        assert_eq!(*set.borrow(), [7, 9, 9]);
    }

    #[test]
    fn a_panic_while_the_timer_is_set_leaves_it_to_the_next() {
        let arming = Arming::idle();
        let panics = || arming.arm(|| 7, |_| std::panic::resume_unwind(Box::new("a clock")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        let set = std::cell::Cell::new(0);
        arming.arm(|| 7, |at| set.set(at));
        assert_eq!(set.get(), 7);
    }

    /// What changes while the timer is being set is looked at before the one that sets it goes.
    #[test]
    fn a_change_while_the_timer_is_set_is_not_missed() {
        let (arming, set) = (Arming::idle(), RefCell::new(Vec::new()));
        let due = std::cell::Cell::new(7);
        arming.arm(
            || due.get(),
            |at| {
                set.borrow_mut().push(at);
                if at == 7 {
                    due.set(5);
                    arming.arm(|| unreachable!("left to the other"), |_| ());
                }
            },
        );
        assert_eq!(*set.borrow(), [7, 5]);
    }
}

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::Mutex;

    struct Model {
        arming: Arming,
        /// What is due, and what the timer is set for.
        due: Mutex<u64>,
        timer: Mutex<Option<u64>>,
    }

    impl Model {
        fn arm(&self) {
            let set = |at| *self.timer.lock() = Some(at);
            self.arming.arm(|| *self.due.lock(), set);
        }
    }

    /// A deadline moves while the old timer fires: in the end the timer is set for what is due. Fails
    /// when who finds another arming leaves no note, and when `fired` changes nothing.
    #[test]
    fn the_timer_is_set_for_what_is_due() {
        loom::model(|| {
            let model = Arc::new(Model {
                arming: Arming::idle(),
                due: Mutex::new(10),
                timer: Mutex::new(None),
            });
            model.arm();
            let firing = model.clone();
            let firing = thread::spawn(move || {
                let fired = firing.timer.lock().take();
                if fired.is_some() {
                    firing.arming.fired();
                    firing.arm();
                }
            });
            *model.due.lock() = 20;
            model.arm();
            firing.join().expect("the other thread does not panic");
            assert_eq!(*model.timer.lock(), Some(20));
        });
    }

    /// Two threads move the deadline: the timer is set for where it is.
    #[test]
    fn the_last_deadline_wins() {
        loom::model(|| {
            let model = Arc::new(Model {
                arming: Arming::idle(),
                due: Mutex::new(10),
                timer: Mutex::new(None),
            });
            let other = model.clone();
            let moving = thread::spawn(move || {
                *other.due.lock() = 30;
                other.arm();
            });
            *model.due.lock() = 20;
            model.arm();
            moving.join().expect("the other thread does not panic");
            let due = *model.due.lock();
            assert_eq!(*model.timer.lock(), Some(due));
        });
    }
}
