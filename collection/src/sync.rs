//! What the hand-shakes of this package are built from: the real crates, or models of them under
//! `--cfg wheelhouse_loom` with the same contract.
//!
//! | item | real | model |
//! |---|---|---|
//! | atomics, `fence`, [`ThreadId`] | `std` | `loom` |
//! | [`Mutex`] | `parking_lot` | `loom`, in `parking_lot`'s clothes |
//! | [`Parker`], [`Unparker`] | `crossbeam-utils` | a token under a mutex |
//! | [`Map`] | `dashmap` | one `Mutex<HashMap>` |
//! | [`stripe`] | a number per thread | always 0: models name their stripes |
//!
//! The contract that callers rely on, held by the tests at the bottom for either side: an `unpark`
//! before a `park` makes that `park` return at once, and once. What a [`Map`] does to one key is
//! done under a lock that covers the key, so that the closure of
//! [`Map::remove_if`] never runs at the same time as another or one of [`Map::enter`] for an equal key; a removed pair is dropped by the
//! caller, outside that lock.

#[cfg(not(wheelhouse_loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
    pub(crate) use std::thread::ThreadId;

    pub(crate) use crossbeam_utils::sync::{Parker, Unparker};
    pub(crate) use parking_lot::{Mutex, MutexGuard};

    use std::cell::Cell;
    use std::hash::Hash;
    use std::sync::atomic::AtomicUsize;

    use dashmap::DashMap;
    use dashmap::mapref::entry::Entry;
    use foldhash::fast::RandomState;

    pub(crate) fn thread_id() -> ThreadId {
        std::thread::current().id()
    }

    /// The threads that have been given a number. Relaxed: the numbers only have to differ.
    static THREADS: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// A number of this thread's own, of which callers use the lowest two bits.
    #[inline]
    pub(crate) fn stripe() -> usize {
        NUMBER.with(|number| match number.get() {
            usize::MAX => first_time(number),
            known => known,
        })
    }

    #[cold]
    fn first_time(number: &Cell<usize>) -> usize {
        number.set(spread(THREADS.fetch_add(1, Ordering::Relaxed)));
        number.get()
    }

    /// Exchanges the lowest two bits: 0, 2, 1, 3, and so on. Threads that began one after the other,
    /// and are likely to work side by side, differ in the upper bit.
    pub(crate) fn spread(number: usize) -> usize {
        number & !3 | (number & 1) << 1 | (number >> 1) & 1
    }

    pub(crate) struct Map<K, V>(DashMap<K, V, RandomState>);

    impl<K: Eq + Hash + Clone, V> Map<K, V> {
        pub(crate) fn new() -> Self {
            Map(DashMap::with_hasher(RandomState::default()))
        }

        /// What `found` makes of the value at `key`, or else what `made` gives beside a new value.
        pub(crate) fn enter<R>(
            &self,
            key: &K,
            found: impl Fn(&V) -> R,
            made: impl FnOnce() -> (V, R),
        ) -> R {
            if let Some(value) = self.0.get(key) {
                return found(&value);
            }
            match self.0.entry(key.clone()) {
                Entry::Vacant(vacant) => {
                    let (value, result) = made();
                    vacant.insert(value);
                    result
                }
                Entry::Occupied(occupied) => {
                    let result = found(occupied.get());
                    // Out of the lock first, then dropped: it is the user's.
                    drop(occupied.into_key());
                    result
                }
            }
        }

        pub(crate) fn remove_if(
            &self,
            key: &K,
            mut condition: impl FnMut(&V) -> bool,
        ) -> Option<(K, V)> {
            self.0.remove_if(key, |_, value| condition(value))
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

#[cfg(wheelhouse_loom)]
mod model {
    use std::collections::HashMap;
    use std::hash::Hash;
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;

    pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
    pub(crate) use loom::thread::ThreadId;

    pub(crate) fn thread_id() -> ThreadId {
        loom::thread::current().id()
    }

    pub(crate) fn stripe() -> usize {
        0
    }

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
            let mut set = self.0.0.set.lock().unwrap_or_else(|e| e.into_inner());
            while !*set {
                set = self
                    .0
                    .0
                    .changed
                    .wait(set)
                    .unwrap_or_else(|e| e.into_inner());
            }
            *set = false;
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            *self.0.set.lock().unwrap_or_else(|e| e.into_inner()) = true;
            self.0.changed.notify_one();
        }
    }

    pub(crate) struct Map<K, V>(Mutex<HashMap<K, V>>);

    impl<K: Eq + Hash + Clone, V> Map<K, V> {
        pub(crate) fn new() -> Self {
            Map(Mutex::new(HashMap::new()))
        }

        pub(crate) fn enter<R>(
            &self,
            key: &K,
            found: impl Fn(&V) -> R,
            made: impl FnOnce() -> (V, R),
        ) -> R {
            let mut map = self.0.lock();
            if let Some(value) = map.get(key) {
                return found(value);
            }
            let (value, result) = made();
            map.insert(key.clone(), value);
            result
        }

        pub(crate) fn remove_if(
            &self,
            key: &K,
            mut condition: impl FnMut(&V) -> bool,
        ) -> Option<(K, V)> {
            let mut map = self.0.lock();
            match map.get(key).is_some_and(&mut condition) {
                true => map.remove_entry(key),
                false => None,
            }
        }

        pub(crate) fn len(&self) -> usize {
            self.0.lock().len()
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
    use std::sync::Arc;

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

    #[test]
    fn unpark_before_park_is_kept_once() {
        check(|| {
            let parker = Parker::new();
            parker.unparker().unpark();
            parker.unparker().unpark();
            parker.park();
            let unparker = parker.unparker().clone();
            let other = thread::spawn(move || unparker.unpark());
            parker.park();
            other.join().expect("the other thread does not panic");
        });
    }

    /// Two threads enter and leave under one key: each time one makes the value and both count.
    #[test]
    fn one_thread_at_a_time_is_at_a_key() {
        check(|| {
            let map = Arc::new(Map::<u8, Mutex<u32>>::new());
            let enter = |map: &Map<u8, Mutex<u32>>| {
                let count = |value: &Mutex<u32>| *value.lock() += 1;
                map.enter(&7, count, || (Mutex::new(1), ()));
            };
            let others = map.clone();
            let other = thread::spawn(move || enter(&others));
            enter(&map);
            other.join().expect("the other thread does not panic");
            assert_eq!(map.len(), 1);
            assert!(map.remove_if(&7, |value| *value.lock() != 2).is_none());
            let (key, value) = map.remove_if(&7, |_| true).expect("it is there");
            assert_eq!((key, *value.lock()), (7, 2));
            assert!(map.remove_if(&7, |_| true).is_none());
        });
    }

    #[test]
    fn a_thread_keeps_its_stripe_and_its_id() {
        check(|| {
            let here = (stripe(), thread_id());
            let there = thread::spawn(|| (stripe(), thread_id()));
            let there = there.join().expect("the other thread does not panic");
            assert_eq!(here, (stripe(), thread_id()));
            assert_ne!(here.1, there.1);
            #[cfg(not(wheelhouse_loom))]
            assert_ne!(here.0, there.0);
        });
    }
}
