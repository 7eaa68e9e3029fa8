//! A cell that is set once and that any number of tasks and threads wait for.
//!
//! Each stop request, each service's end and the group's report is one of these, so that nothing
//! waits for a count that somebody else forgot to lower.
//!
//! Ground rules: the lock covers a few moves; wakers run, and values are dropped, outside it.
//!
//! - I1: the value, once there, never changes and never goes.
//! - I2: while there is no value, every waiter that was told to wait has its latest waker in
//!   `waiting`. After that `waiting` is empty for good.
//!
//! Races, all resolved by the lock: of several `set` exactly one finds the cell empty (I1). A waiter
//! that looks before a `set` has left its waker by the time the lock is free, so that `set` takes it
//! and wakes it (I2); one that looks later finds the value.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use slab::Slab;

use crate::sync::{Mutex, Parker, Unparker};

#[derive(Debug)]
pub(crate) struct Completion<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    value: Option<Arc<T>>,
    waiting: Slab<Waker>,
}

impl<T> Completion<T> {
    pub(crate) fn new() -> Self {
        Completion {
            state: Mutex::new(State {
                value: None,
                waiting: Slab::new(),
            }),
        }
    }

    /// Sets the cell and wakes everybody, or gives the value back when another came first.
    pub(crate) fn set(&self, value: T) -> Result<Arc<T>, T> {
        let (value, waiting) = {
            let mut state = self.state.lock();
            if state.value.is_some() {
                return Err(value);
            }
            let value = state.value.insert(Arc::new(value)).clone();
            (value, std::mem::take(&mut state.waiting))
        };
        for (_, waker) in waiting {
            waker.wake();
        }
        Ok(value)
    }

    pub(crate) fn value(&self) -> Option<Arc<T>> {
        self.state.lock().value.clone()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state.lock().value.is_some()
    }

    pub(crate) fn wait(&self) -> Wait<'_, T> {
        Wait {
            cell: self,
            place: None,
        }
    }

    /// Blocks the thread until the cell is set.
    pub(crate) fn wait_blocking(&self) -> Arc<T> {
        let parker = Parker::new();
        let mut wait = self.wait();
        loop {
            match wait.look(&parker) {
                Some(value) => return value,
                None => parker.park(),
            }
        }
    }

    /// Blocks the thread until the cell is set, at most until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<Arc<T>> {
        let parker = Parker::new();
        let mut wait = self.wait();
        loop {
            let value = wait.look(&parker);
            if value.is_some() || Instant::now() >= deadline {
                return value;
            }
            parker.park_deadline(deadline);
        }
    }
}

/// Resolves with the value. Dropping it takes its waker out.
#[derive(Debug)]
pub(crate) struct Wait<'a, T> {
    cell: &'a Completion<T>,
    place: Option<usize>,
}

impl<T> Wait<'_, T> {
    fn look(&mut self, parker: &Parker) -> Option<Arc<T>> {
        let waker = Waker::from(Arc::new(Sleeper(parker.unparker().clone())));
        match Pin::new(self).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}

impl<T> Future for Wait<'_, T> {
    type Output = Arc<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Arc<T>> {
        // Cloned before the lock is taken and dropped after it: wakers are foreign code.
        let waker = context.waker().clone();
        let _replaced;
        let cell = self.cell;
        let mut state = cell.state.lock();
        if let Some(value) = &state.value {
            return Poll::Ready(value.clone());
        }
        match self.place {
            Some(place) => _replaced = std::mem::replace(&mut state.waiting[place], waker),
            None => self.place = Some(state.waiting.insert(waker)),
        }
        Poll::Pending
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // Empty once the value is there (I2).
            let _waker = self.cell.state.lock().waiting.try_remove(place);
        }
    }
}

/// A thread that waits, as a waker.
struct Sleeper(Unparker);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod loom_tests {
    use super::*;

    #[cfg(wheelhouse_loom)]
    use loom::thread;
    #[cfg(not(wheelhouse_loom))]
    use std::thread;

    fn check(test: impl Fn() + Sync + Send + 'static) {
        #[cfg(wheelhouse_loom)]
        loom::model(test);
        #[cfg(not(wheelhouse_loom))]
        test();
    }

    // G5: one stop wins, and who waits sees the winner's. Fails when `set` overwrites a value.
    #[test]
    fn one_of_two_wins_and_both_see_it() {
        check(|| {
            let cell = Arc::new(Completion::new());
            let other = {
                let cell = cell.clone();
                thread::spawn(move || cell.set(1).is_ok())
            };
            let won = cell.set(2).is_ok();
            assert_ne!(won, other.join().unwrap());
            assert_eq!(*cell.wait_blocking(), if won { 2 } else { 1 });
        });
    }

    // Fails when `set` leaves out the wake, or when a waiter looks before it leaves its waker
    // without holding the lock between.
    #[test]
    fn waiters_are_woken() {
        check(|| {
            let cell = Arc::new(Completion::new());
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let cell = cell.clone();
                    thread::spawn(move || *cell.wait_blocking())
                })
                .collect();
            cell.set(7).unwrap();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 7);
            }
        });
    }

    // Fails when `Drop` removes by place without looking whether the places are those of before.
    #[test]
    fn a_waiter_may_give_up_while_the_cell_is_set() {
        check(|| {
            let cell = Arc::new(Completion::new());
            let other = {
                let cell = cell.clone();
                thread::spawn(move || {
                    let mut wait = cell.wait();
                    wait.look(&Parker::new()).map(|value| *value)
                })
            };
            cell.set(7).unwrap();
            assert!(matches!(other.join().unwrap(), None | Some(7)));
            assert!(cell.state.lock().waiting.is_empty());
        });
    }
}
