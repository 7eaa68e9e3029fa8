//! What the hand-shakes of this package are built from: the real crates, or models of them under
//! `--cfg wheelhouse_loom` with the same contract.
//!
//! | item | real | model |
//! |---|---|---|
//! | [`Mutex`] | `parking_lot` | `loom`, in `parking_lot`'s clothes |
//! | [`Parker`], [`Unparker`] | `crossbeam-utils` | a token under a mutex, without time |
//!
//! The contract, held by the test at the bottom for either side: an `unpark` before a `park` makes
//! that `park` return at once, and once. A park with a deadline may return early for no reason. In
//! the model time never passes: a deadline is a second thread that unparks.

#[cfg(not(wheelhouse_loom))]
mod real {
    pub(crate) use crossbeam_utils::sync::{Parker, Unparker};
    pub(crate) use parking_lot::Mutex;
}

#[cfg(wheelhouse_loom)]
mod model {
    use std::sync::Arc;
    use std::time::Instant;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|e| e.into_inner())
        }
    }

    #[derive(Debug)]
    struct Token {
        set: loom::sync::Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    #[derive(Debug)]
    pub(crate) struct Parker(Unparker);

    #[derive(Debug, Clone)]
    pub(crate) struct Unparker(Arc<Token>);

    impl Parker {
        pub(crate) fn new() -> Self {
            Parker(Unparker(Arc::new(Token {
                set: loom::sync::Mutex::new(false),
                changed: loom::sync::Condvar::new(),
            })))
        }

        pub(crate) fn unparker(&self) -> &Unparker {
            &self.0
        }

        pub(crate) fn park(&self) {
            let token = &self.0.0;
            let mut set = token.set.lock().unwrap_or_else(|e| e.into_inner());
            while !*set {
                set = token.changed.wait(set).unwrap_or_else(|e| e.into_inner());
            }
            *set = false;
        }

        pub(crate) fn park_deadline(&self, _deadline: Instant) {
            self.park();
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            *self.0.set.lock().unwrap_or_else(|e| e.into_inner()) = true;
            self.0.changed.notify_one();
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
    use super::*;

    #[cfg(wheelhouse_loom)]
    use loom::thread;
    #[cfg(not(wheelhouse_loom))]
    use std::thread;

    pub(crate) fn check(test: impl Fn() + Sync + Send + 'static) {
        #[cfg(wheelhouse_loom)]
        loom::model(test);
        #[cfg(not(wheelhouse_loom))]
        test();
    }

    // Fails when the model's unpark does not set its token.
    #[test]
    fn an_unpark_before_a_park_is_kept() {
        check(|| {
            let parker = Parker::new();
            let unparker = parker.unparker().clone();
            let other = thread::spawn(move || unparker.unpark());
            parker.park();
            other.join().unwrap();
        });
    }
}
