//! What the hand-shakes of this package are built from: the real crates, or models of them under
//! `--cfg wheelhouse_loom` with the same contract.
//!
//! | item | real | model |
//! |---|---|---|
//! | atomics, `fence` | `std` | `loom` |
//! | [`Mutex`] | `parking_lot` | `loom`, in `parking_lot`'s clothes |

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
