//! What the hand-shakes of this package are built from: the real crates, or models of them under
//! `--cfg wheelhouse_loom` with the same contract.
//!
//! | item | real | model |
//! |---|---|---|
//! | [`atomic`], [`local`] | `std` | `loom` |
//! | [`Word`] | SeqCst accesses | accesses between SeqCst fences |
//! | [`Mutex`], [`Condvar`], [`Projection`] | `parking_lot` | `loom`, in `parking_lot`'s clothes |
//! | [`Parker`], [`Unparker`] | `crossbeam-utils` | a token under a mutex |
//! | [`Channel`] | `crossbeam-channel`, bounded | `Mutex<VecDeque>` |
//!
//! The contract that callers rely on, held by the tests at the bottom for either side (the single
//! order only where it can be tested, in the model):
//! a channel is first in first out, holds exactly its capacity, and a `try_send` that returned Ok
//! is seen by every later `try_recv` and `is_empty`; `try_send` and `is_empty` take part in the
//! single order of sequentially consistent operations (crossbeam claims a slot with a SeqCst
//! compare-exchange and reads head and tail with SeqCst loads; its own blocking receive rests on
//! the same pair). An `unpark` before a `park` makes that `park` return at once.
//!
//! loom treats a SeqCst access as acquire-release and knows the single order only of fences. So the
//! model of a [`Word`] has the fences that order its accesses as SeqCst orders the real ones.

#[cfg(not(wheelhouse_loom))]
mod real {
    pub(crate) use crossbeam_utils::sync::{Parker, Unparker};
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    #[cfg(feature = "tokio")]
    pub(crate) use std::sync::atomic;

    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use crossbeam_channel::{Receiver, Sender, TrySendError};

    /// Storage of each thread's own.
    macro_rules! local {
        ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
            std::thread_local! {
                $(#[$attribute])*
                static $name: $type = const { $value };
            }
        };
    }
    pub(crate) use local;

    /// A part of what a locked mutex holds.
    #[cfg(feature = "tokio")]
    pub(crate) type Projection<'a, U> = parking_lot::MappedMutexGuard<'a, U>;

    /// Keeps to the part that both functions name.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn project<T, U>(
        guard: MutexGuard<'_, T>,
        _shared: fn(&T) -> &U,
        exclusive: fn(&mut T) -> &mut U,
    ) -> Projection<'_, U> {
        MutexGuard::map(guard, exclusive)
    }

    /// An atomic number every access to which is sequentially consistent.
    #[derive(Debug)]
    pub(crate) struct Word(AtomicU64);

    impl Word {
        pub(crate) fn new(value: u64) -> Self {
            Word(AtomicU64::new(value))
        }

        #[inline]
        pub(crate) fn load(&self) -> u64 {
            self.0.load(SeqCst)
        }

        #[inline]
        pub(crate) fn store(&self, value: u64) {
            self.0.store(value, SeqCst);
        }

        #[inline]
        pub(crate) fn swap(&self, value: u64) -> u64 {
            self.0.swap(value, SeqCst)
        }

        #[inline]
        pub(crate) fn fetch_min(&self, value: u64) {
            self.0.fetch_min(value, SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_add(&self, value: u64) {
            self.0.fetch_add(value, SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_sub(&self, value: u64) {
            self.0.fetch_sub(value, SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_max(&self, value: u64) {
            self.0.fetch_max(value, SeqCst);
        }
    }

    /// Both ends of a bounded channel.
    #[derive(Debug)]
    pub(crate) struct Channel<T> {
        sender: Sender<T>,
        receiver: Receiver<T>,
    }

    impl<T> Channel<T> {
        pub(crate) fn bounded(capacity: usize) -> Self {
            let (sender, receiver) = crossbeam_channel::bounded(capacity);
            Channel { sender, receiver }
        }

        /// Puts `message` in, or gives it back when the channel is full.
        #[inline]
        pub(crate) fn try_send(&self, message: T) -> Result<(), T> {
            match self.sender.try_send(message) {
                Ok(()) => Ok(()),
                Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                    Err(message)
                }
            }
        }

        #[inline]
        pub(crate) fn try_recv(&self) -> Option<T> {
            self.receiver.try_recv().ok()
        }

        #[inline]
        pub(crate) fn is_empty(&self) -> bool {
            self.receiver.is_empty()
        }

        pub(crate) fn len(&self) -> usize {
            self.receiver.len()
        }
    }
}

#[cfg(wheelhouse_loom)]
mod model {
    use std::collections::VecDeque;
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;
    use std::time::Duration;

    #[cfg(feature = "tokio")]
    pub(crate) use loom::sync::atomic;

    use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
    use loom::sync::atomic::{AtomicU64, fence};

    macro_rules! local {
        ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
            loom::thread_local! {
                $(#[$attribute])*
                static $name: $type = $value;
            }
        };
    }
    pub(crate) use local;

    #[derive(Debug)]
    pub(crate) struct Word(AtomicU64);

    impl Word {
        pub(crate) fn new(value: u64) -> Self {
            Word(AtomicU64::new(value))
        }

        pub(crate) fn load(&self) -> u64 {
            fence(SeqCst);
            self.0.load(Acquire)
        }

        pub(crate) fn store(&self, value: u64) {
            self.0.store(value, Release);
            fence(SeqCst);
        }

        pub(crate) fn swap(&self, value: u64) -> u64 {
            fence(SeqCst);
            let old = self.0.swap(value, AcqRel);
            fence(SeqCst);
            old
        }

        pub(crate) fn fetch_min(&self, value: u64) {
            fence(SeqCst);
            self.0.fetch_min(value, AcqRel);
            fence(SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_add(&self, value: u64) {
            fence(SeqCst);
            self.0.fetch_add(value, AcqRel);
            fence(SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_sub(&self, value: u64) {
            fence(SeqCst);
            self.0.fetch_sub(value, AcqRel);
            fence(SeqCst);
        }

        #[cfg(feature = "tokio")]
        pub(crate) fn fetch_max(&self, value: u64) {
            fence(SeqCst);
            self.0.fetch_max(value, AcqRel);
            fence(SeqCst);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|e| e.into_inner())))
        }
    }

    #[cfg(feature = "tokio")]
    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Mutex::new(T::default())
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) struct Projection<'a, U>(Box<dyn DerefMut<Target = U> + 'a>);

    #[cfg(feature = "tokio")]
    struct Part<'a, T, U> {
        whole: MutexGuard<'a, T>,
        shared: fn(&T) -> &U,
        exclusive: fn(&mut T) -> &mut U,
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn project<'a, T, U: 'a>(
        whole: MutexGuard<'a, T>,
        shared: fn(&T) -> &U,
        exclusive: fn(&mut T) -> &mut U,
    ) -> Projection<'a, U> {
        Projection(Box::new(Part {
            whole,
            shared,
            exclusive,
        }))
    }

    #[cfg(feature = "tokio")]
    impl<T, U> Deref for Part<'_, T, U> {
        type Target = U;
        fn deref(&self) -> &U {
            (self.shared)(&self.whole)
        }
    }

    #[cfg(feature = "tokio")]
    impl<T, U> DerefMut for Part<'_, T, U> {
        fn deref_mut(&mut self) -> &mut U {
            (self.exclusive)(&mut self.whole)
        }
    }

    #[cfg(feature = "tokio")]
    impl<U> Deref for Projection<'_, U> {
        type Target = U;
        fn deref(&self) -> &U {
            &self.0
        }
    }

    #[cfg(feature = "tokio")]
    impl<U> DerefMut for Projection<'_, U> {
        fn deref_mut(&mut self) -> &mut U {
            &mut self.0
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("held but while waiting")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("held but while waiting")
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("held by the caller");
            guard.0 = Some(self.0.wait(held).unwrap_or_else(|e| e.into_inner()));
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    #[derive(Debug)]
    struct Token {
        set: Mutex<bool>,
        changed: Condvar,
    }

    #[derive(Debug)]
    pub(crate) struct Parker(Unparker);

    #[derive(Debug, Clone)]
    pub(crate) struct Unparker(Arc<Token>);

    impl Parker {
        pub(crate) fn new() -> Self {
            Parker(Unparker(Arc::new(Token {
                set: Mutex::new(false),
                changed: Condvar::new(),
            })))
        }

        pub(crate) fn unparker(&self) -> &Unparker {
            &self.0
        }

        pub(crate) fn park(&self) {
            let mut set = self.0.0.set.lock();
            while !*set {
                self.0.0.changed.wait(&mut set);
            }
            *set = false;
        }

        /// Time does not pass in a model: a time-out is a second thread that unparks.
        pub(crate) fn park_timeout(&self, _timeout: Duration) {
            self.park();
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            *self.0.set.lock() = true;
            self.0.changed.notify_one();
        }
    }

    #[derive(Debug)]
    pub(crate) struct Channel<T> {
        queue: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> Channel<T> {
        pub(crate) fn bounded(capacity: usize) -> Self {
            Channel {
                queue: Mutex::new(VecDeque::new()),
                capacity,
            }
        }

        pub(crate) fn try_send(&self, message: T) -> Result<(), T> {
            let mut queue = self.queue.lock();
            if queue.len() == self.capacity {
                return Err(message);
            }
            queue.push_back(message);
            Ok(())
        }

        pub(crate) fn try_recv(&self) -> Option<T> {
            self.queue.lock().pop_front()
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.queue.lock().is_empty()
        }

        pub(crate) fn len(&self) -> usize {
            self.queue.lock().len()
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

    fn check(test: impl Fn() + Sync + Send + 'static) {
        #[cfg(wheelhouse_loom)]
        loom::model(test);
        #[cfg(not(wheelhouse_loom))]
        test();
    }

    #[test]
    fn channel_is_fifo_and_holds_exactly_its_capacity() {
        check(|| {
            let channel = Channel::bounded(2);
            assert!(channel.is_empty());
            assert_eq!(channel.try_send(1), Ok(()));
            assert_eq!(channel.try_send(2), Ok(()));
            assert_eq!(channel.try_send(3), Err(3));
            assert!(!channel.is_empty());
            assert_eq!(channel.len(), 2);
            assert_eq!(channel.try_recv(), Some(1));
            assert_eq!(channel.try_send(3), Ok(()));
            assert_eq!(channel.try_recv(), Some(2));
            assert_eq!(channel.try_recv(), Some(3));
            assert_eq!(channel.try_recv(), None);
        });
    }

    #[test]
    fn unpark_before_park_is_kept_once() {
        check(|| {
            let parker = Parker::new();
            parker.unparker().unpark();
            parker.unparker().unpark();
            parker.park();
            let unparker = parker.unparker().clone();
            unparker.unpark();
            parker.park_timeout(std::time::Duration::from_secs(1));
        });
    }

    #[test]
    fn condvar_waits_for_the_change() {
        check(|| {
            let pair = std::sync::Arc::new((Mutex::new(false), Condvar::new()));
            let other = pair.clone();
            #[cfg(wheelhouse_loom)]
            use loom::thread;
            #[cfg(not(wheelhouse_loom))]
            use std::thread;
            let setter = thread::spawn(move || {
                *other.0.lock() = true;
                other.1.notify_all();
            });
            let mut set = pair.0.lock();
            while !*set {
                pair.1.wait(&mut set);
            }
            drop(set);
            setter.join().expect("the setter does not panic");
        });
    }

    /// Store, then load, on either side: at least one sees the other. What alarm.rs rests on.
    /// Fails when the model of a word has no fence.
    #[test]
    fn words_and_channel_are_in_one_order() {
        check(|| {
            let pair = std::sync::Arc::new((Word::new(0), Channel::bounded(1), Word::new(0)));
            let other = pair.clone();
            #[cfg(wheelhouse_loom)]
            use loom::thread;
            #[cfg(not(wheelhouse_loom))]
            use std::thread;
            let sleeper = thread::spawn(move || {
                other.0.store(1);
                (other.1.is_empty(), other.2.load())
            });
            assert_eq!(pair.1.try_send(()), Ok(()));
            pair.2.store(1);
            let published = pair.0.load();
            let (empty, lowered) = sleeper.join().expect("the sleeper does not panic");
            assert!(published == 1 || !empty, "neither saw the other");
            assert!(published == 1 || lowered == 1, "neither saw the other");
        });
    }
}
