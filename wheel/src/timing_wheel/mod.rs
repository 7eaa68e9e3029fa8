//! The keyed, channel-driven wheel.
//!
//! ```text
//!  callers                      shard (× 16)                         driver
//!  set_timer ──► channel (64) ──► lock { index: key ─► node          sleeps until the
//!  move_timer     full? the       wheel: nodes, slots }   ◄───────── earliest deadline,
//!  remove_timer   caller applies          │                          fires tick by tick
//!                 the batch               └── due pairs ──► executor
//! ```
//!
//! | file | idea |
//! |---|---|
//! | shard.rs | one channel, index and wheel; how commands are applied |
//! | alarm.rs | how a sleeping driver is woken |
//! | driver.rs | the driver's loop |
//! | ready.rs | due pairs between the driver and who runs them |
//! | executor.rs, stream.rs, manual.rs | who that is |
//! | shared.rs | what all of them share; tick, drain, stop |
//! | life.rs, ledger.rs | where the wheel is in its life; what it has done |

mod alarm;
mod builder;
mod driver;
mod error;
mod executor;
mod index;
mod ledger;
mod life;
mod manual;
mod ready;
mod shard;
mod shared;
mod stats;
mod stream;
mod ticks;

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Driven;

pub use builder::{BuildError, Builder};
pub use error::{Closed, SetError, TryError, TrySetError};
pub use executor::Executor;
pub use manual::ManualTimingWheel;
pub use stats::{Lateness, Stats};
pub use stream::ExpiredStream;

use shard::{Command, Trash};
use shared::Shared;
use ticks::NEVER;

/// A timing wheel of keyed values: each value is handed to a callback when its delay has passed.
///
/// A cheap handle; clones name the same wheel, from any thread. Dropping the last one stops it.
///
/// Times: a timer set with a delay is due at the instant of the call plus the delay, and fires at
/// the first tick that is after the call and not before it is due. It is never early, and less
/// than one interval late while the driver keeps up. What lies beyond the last tick never fires,
/// but can be moved and removed.
///
/// `Hash` and `Eq` of the keys run under a lock of the wheel: they must not use the wheel, and
/// should not panic (commands of that batch would be lost). All other user code, callbacks and
/// `Drop` of keys and values, runs outside every lock and may use the wheel freely.
///
/// Calls do not wait for the driver. A call that finds its channel full applies the commands in it
/// first.
pub struct TimingWheel<K, V> {
    handle: Arc<Handle<K, V>>,
}

/// A handle that does not keep its wheel running, from [`TimingWheel::downgrade`].
pub struct WeakTimingWheel<K, V> {
    handle: Weak<Handle<K, V>>,
}

/// Lives as long as anybody can use the wheel.
struct Handle<K, V> {
    shared: Arc<Shared<K, V>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// [`Handle::stop`], which knows more of the key than a `Drop` may ask of it.
    stop: fn(&Self) -> Vec<(K, V)>,
}

impl TimingWheel<(), ()> {
    /// Settings for a new wheel, of any key and value.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<K, V> TimingWheel<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn new(shared: Arc<Shared<K, V>>) -> Self {
        let handle = Handle {
            shared,
            threads: Mutex::new(Vec::new()),
            stop: Handle::stop,
        };
        TimingWheel {
            handle: Arc::new(handle),
        }
    }

    /// Hands over threads that are joined when the wheel stops.
    fn adopt(&self, threads: Vec<JoinHandle<()>>) {
        self.handle.threads.lock().extend(threads);
    }

    /// Sets a timer: `value` fires after `delay`. If the key is pending, its value is replaced and
    /// it is moved.
    ///
    /// # Errors
    /// [`SetError::Full`] if the key is new and as many timers are pending as allowed,
    /// [`SetError::Closed`] after a stop; both give key and value back.
    pub fn set_timer(&self, key: K, value: V, delay: Duration) -> Result<(), SetError<K, V>> {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(&key);
        if shared.ledger.near_limit() {
            return self.put(key, value, tick).map(drop);
        }
        let command = Command::Set {
            hash,
            tick,
            key,
            value,
        };
        shared
            .submit(shard, command, tick)
            .map_err(|command| match command {
                Command::Set { key, value, .. } => SetError::Closed(key, value),
                _ => unreachable!("the command comes back as it went in"),
            })
    }

    /// Moves a timer: it fires `delay` from now. An unknown key is not an error.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn move_timer(&self, key: K, delay: Duration) -> Result<(), Closed<K>> {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(&key);
        let command = Command::Move { hash, tick, key };
        shared
            .submit(shard, command, tick)
            .map_err(|command| Closed(command.into_key()))
    }

    /// Removes a timer. An unknown key is not an error. The value is dropped when the command is
    /// applied: by the next flush, or when the driver next ticks.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn remove_timer(&self, key: K) -> Result<(), Closed<K>> {
        let shared = self.shared();
        let (shard, hash) = shared.place(&key);
        let tick = shared.removal_tick();
        let command = Command::Remove { hash, key };
        shared
            .submit(shard, command, tick)
            .map_err(|command| Closed(command.into_key()))
    }

    /// [`set_timer`](Self::set_timer) that does not apply a full channel but gives up.
    ///
    /// # Errors
    /// As [`set_timer`](Self::set_timer), and [`TrySetError::Busy`] if the channel is full. Near the
    /// pending limit the channel is not used, and the set is not refused as busy.
    pub fn try_set_timer(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<(), TrySetError<K, V>> {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(&key);
        if shared.ledger.near_limit() {
            return self
                .put(key, value, tick)
                .map(drop)
                .map_err(|error| match error {
                    SetError::Full(key, value) => TrySetError::Full(key, value),
                    SetError::Closed(key, value) => TrySetError::Closed(key, value),
                });
        }
        let command = Command::Set {
            hash,
            tick,
            key,
            value,
        };
        shared
            .try_submit(shard, command, tick)
            .map_err(|(command, closed)| match command {
                Command::Set { key, value, .. } if closed => TrySetError::Closed(key, value),
                Command::Set { key, value, .. } => TrySetError::Busy(key, value),
                _ => unreachable!("the command comes back as it went in"),
            })
    }

    /// [`move_timer`](Self::move_timer) that does not apply a full channel but gives up.
    ///
    /// # Errors
    /// [`TryError::Busy`] if the channel is full, [`TryError::Closed`] after a stop.
    pub fn try_move_timer(&self, key: K, delay: Duration) -> Result<(), TryError<K>> {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(&key);
        let command = Command::Move { hash, tick, key };
        shared
            .try_submit(shard, command, tick)
            .map_err(TryError::new)
    }

    /// [`remove_timer`](Self::remove_timer) that does not apply a full channel but gives up.
    ///
    /// # Errors
    /// [`TryError::Busy`] if the channel is full, [`TryError::Closed`] after a stop.
    pub fn try_remove_timer(&self, key: K) -> Result<(), TryError<K>> {
        let shared = self.shared();
        let (shard, hash) = shared.place(&key);
        let tick = shared.removal_tick();
        let command = Command::Remove { hash, key };
        shared
            .try_submit(shard, command, tick)
            .map_err(TryError::new)
    }

    /// Sets a timer at once and returns the value that it replaced.
    ///
    /// # Errors
    /// As [`set_timer`](Self::set_timer).
    pub fn replace_timer(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<Option<V>, SetError<K, V>> {
        let tick = self.shared().deadline(delay);
        self.put(key, value, tick)
    }

    /// Moves a timer at once: it fires `delay` from now. False if the key is not pending.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn reschedule_timer<Q>(&self, key: &Q, delay: Duration) -> Result<bool, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(key);
        let Some(mut state) = shared.open(shard) else {
            return Err(Closed(()));
        };
        let node = state.find(hash, |k| k.borrow() == key);
        if let Some(node) = node {
            state.move_node(node, tick);
            shard.lower_next(tick);
        }
        shared.finish(shard, state);
        Ok(node.is_some())
    }

    /// Takes a timer out at once and returns its value. `None` if the key is not pending: it was
    /// never set, or its callback has the value.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn take_timer<Q>(&self, key: &Q) -> Result<Option<V>, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let shared = self.shared();
        let (shard, hash) = shared.place(key);
        let Some(mut state) = shared.open(shard) else {
            return Err(Closed(()));
        };
        let taken = state.take(hash, |k| k.borrow() == key).map(|(key, value)| {
            state.discard(Trash::Key(key));
            value
        });
        shared.finish(shard, state);
        Ok(taken)
    }

    /// Whether the key is pending. False after a stop.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.tick_of(key).is_some()
    }

    /// The instant of the tick at which the key fires. `None` if it is not pending, or so far away
    /// that no [`Instant`] expresses it.
    #[must_use]
    pub fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.tick_of(key)? {
            NEVER => None,
            tick => self.shared().ticks.instant(tick),
        }
    }

    /// The number of pending timers. 0 after a stop. Costs a lock per shard.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().len()
    }

    /// Whether no timer is pending. Costs a lock per shard.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The instant of the next tick at which something fires. Costs a lock per shard.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.shared().next_deadline()
    }

    /// Returns when every command sent before has been applied. It applies them itself.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn flush(&self) -> Result<(), Closed> {
        self.shared().flush();
        if self.shared().is_stopping() {
            Err(Closed(()))
        } else {
            Ok(())
        }
    }

    /// Takes every pending pair out at one instant, then calls `f` with each on this thread, in
    /// firing order. Returns their number. `f` may use the wheel; if it panics, the pairs that it
    /// has not seen are dropped.
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn drain(&self, f: impl FnMut(K, V)) -> Result<usize, Closed> {
        self.shared().drain(f).ok_or(Closed(()))
    }

    /// Stops the wheel and returns, in firing order, every pair whose callback has not begun. From
    /// then on every call fails and gives back what it was given.
    ///
    /// It waits until the driver and the callbacks that have begun are over. The first stop gets
    /// the pairs; every later one waits for the same end and returns an empty list. On a thread of
    /// the wheel, in a callback for instance, it does not wait and returns an empty list: the pairs
    /// are left for the first stop elsewhere, or dropped with the last handle.
    ///
    /// It blocks; in async code use a thread that may.
    pub fn stop(&self) -> Vec<(K, V)> {
        self.handle.stop()
    }

    /// What the wheel has done so far. Costs a lock per shard.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// Sets under the lock of the shard, counting exactly.
    fn put(&self, key: K, value: V, tick: u64) -> Result<Option<V>, SetError<K, V>> {
        let shared = self.shared();
        if shared.ledger.near_limit() {
            // Also what the driver is just applying: a removal sent before makes room.
            shared.flush();
        }
        let (shard, hash) = shared.place(&key);
        let Some(mut state) = shared.open(shard) else {
            return Err(SetError::Closed(key, value));
        };
        shared.account(&mut state);
        let replaced = match state.find(hash, |k| *k == key) {
            Some(node) => {
                state.counts.set += 1;
                let replaced = state.replace(node, tick, value);
                state.discard(Trash::Key(key));
                Some(replaced)
            }
            None if shared.ledger.has_room() => {
                state.counts.set += 1;
                state.insert(hash, tick, key, value);
                None
            }
            None => {
                shared.finish(shard, state);
                return Err(SetError::Full(key, value));
            }
        };
        shard.lower_next(tick);
        shared.finish(shard, state);
        Ok(replaced)
    }

    fn tick_of<Q>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let shared = self.shared();
        let (shard, hash) = shared.place(key);
        let state = shared.open(shard)?;
        let tick = state
            .find(hash, |k| k.borrow() == key)
            .map(|node| state.wheel.deadline_raw(node));
        shared.finish(shard, state);
        tick
    }
}

impl<K, V> TimingWheel<K, V> {
    /// A handle that does not keep the wheel running.
    #[must_use]
    pub fn downgrade(&self) -> WeakTimingWheel<K, V> {
        WeakTimingWheel {
            handle: Arc::downgrade(&self.handle),
        }
    }

    fn shared(&self) -> &Arc<Shared<K, V>> {
        &self.handle.shared
    }
}

impl<K, V> WeakTimingWheel<K, V> {
    /// The wheel, unless its last handle is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<TimingWheel<K, V>> {
        Some(TimingWheel {
            handle: self.handle.upgrade()?,
        })
    }
}

impl<K, V> Handle<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn stop(&self) -> Vec<(K, V)> {
        self.shared.close();
        if self.shared.on_wheel_thread() {
            return Vec::new();
        }
        let left = self.shared.collect();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // Err: the callback's own drop panicked at the end of its thread. It has told.
            drop(thread.join());
        }
        left
    }
}

impl<K, V> Drop for Handle<K, V> {
    fn drop(&mut self) {
        for pair in (self.stop)(self) {
            self.shared.contain("drop of a pending pair", || drop(pair));
        }
    }
}

impl<K, V> Clone for TimingWheel<K, V> {
    fn clone(&self) -> Self {
        TimingWheel {
            handle: self.handle.clone(),
        }
    }
}

impl<K, V> Clone for WeakTimingWheel<K, V> {
    fn clone(&self) -> Self {
        WeakTimingWheel {
            handle: self.handle.clone(),
        }
    }
}

impl<K, V> fmt::Debug for TimingWheel<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimingWheel")
            .field("name", &self.shared().name)
            .finish_non_exhaustive()
    }
}

impl<K, V> fmt::Debug for WeakTimingWheel<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakTimingWheel").finish_non_exhaustive()
    }
}
