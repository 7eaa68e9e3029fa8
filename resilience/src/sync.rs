//! What the hand-shakes of this package are built from: the real crates, or models of them under
//! `--cfg wheelhouse_loom` with the same contract.
//!
//! | item | real | model |
//! |---|---|---|
//! | atomics, `fence` | `std` | `loom` |
//! | [`Mutex`] | `parking_lot` | `loom`, in `parking_lot`'s clothes |
//!
//! The contract that callers rely on, held by the tests at the bottom for either side: a [`Mutex`] lets
//! one thread in at a time, and a panic while it is held leaves it usable; an exchange or addition loses
//! nothing, and what was written before a Release is seen after the Acquire that reads it.

#[cfg(not(wheelhouse_loom))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[cfg(wheelhouse_loom)]
mod model {
    use std::ops::{Deref, DerefMut};

    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap_or_else(|e| e.into_inner()))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

#[cfg(wheelhouse_loom)]
pub(crate) use model::*;
#[cfg(not(wheelhouse_loom))]
pub(crate) use real::*;

/// The contract, checked on whichever side is compiled (the model runs inside `loom::model`).
#[cfg(test)]
mod loom_tests {
    use std::sync::Arc;

    #[cfg(wheelhouse_loom)]
    use loom::thread;
    #[cfg(not(wheelhouse_loom))]
    use std::thread;

    use super::{AtomicU32, AtomicU64, Mutex, Ordering};

    fn check(test: impl Fn() + Sync + Send + 'static) {
        #[cfg(wheelhouse_loom)]
        loom::model(test);
        #[cfg(not(wheelhouse_loom))]
        test();
    }

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        check(|| {
            let count = Arc::new((Mutex::new(0), AtomicU32::new(0)));
            let enter = |(sum, inside): &(Mutex<u32>, AtomicU32)| {
                let mut sum = sum.lock();
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                *sum += 1;
                inside.fetch_sub(1, Ordering::Relaxed);
            };
            let theirs = count.clone();
            let other = thread::spawn(move || enter(&theirs));
            enter(&count);
            other.join().expect("the other thread does not panic");
            assert_eq!(*count.0.lock(), 2);
        });
    }

    /// Not in a model, where a panic ends the run.
    #[cfg(not(wheelhouse_loom))]
    #[test]
    fn a_lock_outlives_a_panic() {
        let lock = Arc::new(Mutex::new(1));
        let theirs = lock.clone();
        let other = thread::spawn(move || {
            let mut value = theirs.lock();
            *value = 2;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(other.join().is_err());
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn a_release_publishes_and_no_addition_is_lost() {
        check(|| {
            let words = Arc::new((AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0)));
            let theirs = words.clone();
            let other = thread::spawn(move || {
                let (data, flag, sum) = &*theirs;
                sum.fetch_add(1, Ordering::Relaxed);
                data.store(7, Ordering::Relaxed);
                flag.store(1, Ordering::Release);
            });
            let (data, flag, sum) = &*words;
            sum.fetch_add(2, Ordering::Relaxed);
            if flag.load(Ordering::Acquire) == 1 {
                assert_eq!(data.load(Ordering::Relaxed), 7);
            }
            other.join().expect("the other thread does not panic");
            assert_eq!(sum.load(Ordering::Relaxed), 3);
        });
    }
}
