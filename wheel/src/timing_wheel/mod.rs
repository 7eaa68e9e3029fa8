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
//! | late.rs | timers that the wheel would put off, when a clock has gone back |
//! | driver.rs | the driver's loop |
//! | ready.rs | due pairs between the driver and who runs them |
//! | executor.rs, stream.rs, manual.rs | who that is |
//! | shared.rs | what all of them share; tick, drain, stop |
//! | ledger.rs | what the wheel has done |
//! | ../drive/ | how a sleeping driver is woken; where the wheel is in its life; ticks |

mod builder;
mod driver;
mod error;
mod executor;
mod index;
mod late;
mod ledger;
mod manual;
mod ready;
mod shard;
mod shared;
mod stats;
mod stream;

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Driven;
use crate::drive::ticks::NEVER;

pub use builder::{BuildError, Builder};
pub use error::{Closed, SetError, TryError, TrySetError};
pub use executor::Executor;
pub use manual::ManualTimingWheel;
pub use stats::{Lateness, Stats};
pub use stream::ExpiredStream;

use shard::{Command, Shard, Trash};
use shared::Shared;

/// A timing wheel of keyed values: each value is handed to a callback when its delay has passed.
///
/// A cheap handle; clones name the same wheel, from any thread. Dropping the last one stops it and
/// waits like [`stop`](Self::stop): in async code drop it where blocking is allowed.
///
/// | | sends a command | gives up when the channel is full | acts and answers at once |
/// |---|---|---|---|
/// | set | [`set_timer`](Self::set_timer) | [`try_set_timer`](Self::try_set_timer) | [`replace_timer`](Self::replace_timer) |
/// | move | [`move_timer`](Self::move_timer) | [`try_move_timer`](Self::try_move_timer) | [`reschedule_timer`](Self::reschedule_timer) |
/// | remove | [`remove_timer`](Self::remove_timer) | [`try_remove_timer`](Self::try_remove_timer) | [`take_timer`](Self::take_timer) |
///
/// Sending costs a message, and one call in some sixty applies the batch. The answering forms lock
/// the shard of the key and apply what is in its channel first.
///
/// Values are moved several times on their way: box those of more than a few hundred bytes.
///
/// Times: a timer set with a delay is due at the instant of the call plus the delay, and fires at
/// the first tick that is after the call and not before it is due. It is never early, and less
/// than one interval late while the driver keeps up. What lies beyond the last tick never fires,
/// but can be moved and removed.
///
/// A pair that has come due belongs to the executor: it can no longer be taken, moved or replaced,
/// though its callback may begin later (when a pool is busy), or not at all if the wheel stops first;
/// then `stop` returns it. A set of its key is a new timer. [`len`](Self::len),
/// [`contains`](Self::contains) and [`next_deadline`](Self::next_deadline) leave such pairs out;
/// [`Stats::pending`] counts them.
///
/// Pairs fire in the order of their ticks. Within a tick they have no particular order, unless the
/// wheel has one shard: then it is that of the last set or move, also for `drain` and `stop`.
///
/// `Hash` and `Eq` of the keys run under a lock of the wheel: they must not use the wheel. When one
/// panics, the operation that asked is lost, counted in [`Stats::dropped`] if it was a set, and all
/// others go on. All other user code, callbacks and `Drop` of keys and values, runs outside every
/// lock and may use the wheel freely.
///
/// Calls do not wait for the driver, but for [`stop`](Self::stop) and the drop of the last handle. A
/// call that finds its channel full applies the commands in it first.
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
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_wheel::{Executor, TimingWheel};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let wheel = TimingWheel::builder()
    ///     .interval(Duration::from_millis(10))
    ///     .executor(Executor::Threads(2))
    ///     .build(|key: u64, url: String| println!("{key}: {url}"))?;
    /// # drop(wheel);
    /// # Ok(()) }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::{SetError, TimingWheel};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let wheel = TimingWheel::builder().max_pending(1).build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(1, "first", Duration::from_secs(60))?;
    /// let refused = wheel.set_timer(2, "second", Duration::from_secs(60));
    /// assert_eq!(refused, Err(SetError::Full(2, "second")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SetError::Full`] if the key is new and as many timers are pending as allowed,
    /// [`SetError::Closed`] after a stop; both give key and value back.
    pub fn set_timer(&self, key: K, value: V, delay: Duration) -> Result<(), SetError<K, V>> {
        let shared = self.shared();
        let sent = self.send_set(key, value, delay, |shard, command, tick| {
            let sent = shared.submit(shard, command, tick);
            sent.map_err(|command| (command, true))
        });
        sent.map_err(|error| match error {
            TrySetError::Full(key, value) => SetError::Full(key, value),
            TrySetError::Closed(key, value) => SetError::Closed(key, value),
            TrySetError::Busy(..) => unreachable!("a full channel is applied"),
        })
    }

    /// Moves a timer: it fires `delay` from now. An unknown key is not an error; to learn whether the
    /// key was still pending use [`reschedule_timer`](Self::reschedule_timer). Moving a timer to a
    /// later deadline is the cheapest thing there is: a store, however often.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(7, "session", Duration::from_secs(30))?;
    /// wheel.move_timer(7, Duration::from_secs(30))?; // heard of again
    /// # Ok(()) }
    /// ```
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

    /// Removes a timer. An unknown key is not an error; to learn who won use
    /// [`take_timer`](Self::take_timer). The value is dropped when the command is applied: by the
    /// next flush, or within the next tick (a driver that waits for the reader of a full stream
    /// ticks when it is read).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(7, "timeout", Duration::from_secs(30))?;
    /// wheel.remove_timer(7)?; // the answer came in time
    /// assert!(wheel.is_empty());
    /// # Ok(()) }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::{TimingWheel, TrySetError};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// match wheel.try_set_timer(7, "timeout", Duration::from_secs(30)) {
    ///     Ok(()) => {}
    ///     Err(TrySetError::Busy(key, value)) => { /* keep them for later */ }
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
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
        self.send_set(key, value, delay, |shard, command, tick| {
            shared.try_submit(shard, command, tick)
        })
    }

    /// Sends a set; near the pending limit, where each has to be counted, it acts at once instead.
    /// What `send` gives back comes with whether the wheel is stopped.
    #[inline]
    fn send_set(
        &self,
        key: K,
        value: V,
        delay: Duration,
        send: impl FnOnce(&Shard<K, V>, Command<K, V>, u64) -> Result<(), (Command<K, V>, bool)>,
    ) -> Result<(), TrySetError<K, V>> {
        let shared = self.shared();
        let tick = shared.deadline(delay);
        let (shard, hash) = shared.place(&key);
        if shared.ledger.near_limit() {
            let put = self.put(key, value, tick).map(drop);
            return put.map_err(|error| match error {
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
        send(shard, command, tick).map_err(|(command, closed)| match command {
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

    /// Sets a timer at once and returns the value that it replaced. If the old pair has come due,
    /// nothing is replaced and both fire.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// assert_eq!(wheel.replace_timer(7, "first", Duration::from_secs(30))?, None);
    /// assert_eq!(wheel.replace_timer(7, "second", Duration::from_secs(30))?, Some("first"));
    /// # Ok(()) }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(7, "session", Duration::from_secs(30))?;
    /// assert!(wheel.reschedule_timer(&7, Duration::from_secs(60))?);
    /// assert!(!wheel.reschedule_timer(&8, Duration::from_secs(60))?); // expired, or never there
    /// # Ok(()) }
    /// ```
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
    /// never set, is gone, or has come due, and then its callback gets the value.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(7, "cancel the order", Duration::from_secs(900))?;
    /// assert_eq!(wheel.take_timer(&7)?, Some("cancel the order")); // paid in time
    /// # Ok(()) }
    /// ```
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

    /// The number of timers that have not come due. 0 after a stop. Costs a lock per shard.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared().len()
    }

    /// Whether no timer waits for its deadline. Costs a lock per shard. It does not mean that every
    /// callback has run, for that see [`Stats::pending`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The instant of the next tick at which something fires. Costs a lock per shard, and settles
    /// what moves have left open.
    ///
    /// Pairs that have come due are not counted: `None` does not mean that every callback has run,
    /// for that see [`Stats::pending`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.shared().next_deadline()
    }

    /// Returns when every command sent before has been applied. It applies them itself, and costs a
    /// lock per shard.
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
    /// the order of their ticks. Returns their number. `f` may use the wheel; if it panics, the pairs
    /// that it has not seen are dropped. Costs O(n log n), and locks every shard while pairs are
    /// taken out.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(1, "later", Duration::from_secs(60))?;
    /// wheel.set_timer(2, "sooner", Duration::from_secs(30))?;
    /// let mut values = Vec::new();
    /// assert_eq!(wheel.drain(|_, value| values.push(value))?, 2);
    /// assert_eq!(values, ["sooner", "later"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Closed`] after a stop.
    pub fn drain(&self, f: impl FnMut(K, V)) -> Result<usize, Closed> {
        self.shared().drain(f).ok_or(Closed(()))
    }

    /// Stops the wheel and returns, in the order of their ticks, every pair whose callback has not
    /// begun. From then on every call fails and gives back what it was given. Costs O(n log n).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_wheel::{SetError, TimingWheel};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// wheel.set_timer(1, "unsent", Duration::from_secs(60))?;
    /// assert_eq!(wheel.stop(), [(1, "unsent")]);
    /// assert_eq!(wheel.stop(), []);
    /// let refused = wheel.set_timer(2, "late", Duration::from_secs(60));
    /// assert_eq!(refused, Err(SetError::Closed(2, "late")));
    /// # Ok(()) }
    /// ```
    ///
    /// It waits until the driver and the callbacks that have begun are over. The first stop gets
    /// the pairs; every later one waits for the same end and returns an empty list. On a thread of
    /// the wheel, in a callback for instance, it does not wait and returns an empty list: the pairs
    /// are left for the first stop elsewhere, or dropped with the last handle.
    ///
    /// It blocks; in async code use a thread that may, `tokio::task::spawn_blocking` for instance.
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
            .map(|node| state.deadline(node));
        shared.finish(shard, state);
        tick
    }
}

impl<K, V> TimingWheel<K, V> {
    /// A handle that does not keep the wheel running.
    ///
    /// ```
    /// # use wheelhouse_wheel::TimingWheel;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = TimingWheel::builder().build(|_: u64, _: &str| {})?;
    /// let weak = wheel.downgrade();
    /// assert!(weak.upgrade().is_some());
    /// drop(wheel);
    /// assert!(weak.upgrade().is_none());
    /// # Ok(()) }
    /// ```
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
        let Some(left) = self.shared.collect() else {
            return Vec::new();
        };
        let threads = std::mem::take(&mut *self.threads.lock());
        // A thread that is at its very end may stop the wheel in the destructor of a thread-local.
        let this = thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != this) {
            // Err: the callback's own drop panicked at the end of its thread. It has told.
            drop(thread.join());
        }
        self.shared.life.end_collection();
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
