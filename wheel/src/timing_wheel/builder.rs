//! Building a wheel: every bad argument is refused here, by name.

use std::fmt;
use std::hash::Hash;
use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{Clock, Driven, SystemClock};
use crate::drive::alarm::{Alarm, Bell};
use crate::sync::Parker;
use crate::wheel::{MAX_SLOTS, Wheel};

use super::driver::Driver;
use super::executor::{Callback, Executor, Outlet, work};
use super::manual::ManualTimingWheel;
use super::shard::Shard;
use super::shared::{Parts, Shared};
use super::stream::ExpiredStream;
use super::{TimingWheel, WeakTimingWheel};

/// What a thread's stack has beside room for pairs: as much as the standard library gives.
const STACK: usize = 2 << 20;

/// How many pairs the stack has room for: more than are moved at once in an unoptimised build.
const COPIES: usize = 64;

/// Settings of a [`TimingWheel`], from [`TimingWheel::builder`].
///
/// | setting | default | allowed |
/// |---|---|---|
/// | [`interval`](Self::interval) | 1 ms | more than 0 |
/// | [`slots`](Self::slots) | 512 | 1 to 16 777 216 |
/// | [`shards`](Self::shards) | 16 | 1 to 1024 |
/// | [`channel`](Self::channel) | 64 | 1 to 65 536 |
/// | [`max_pending`](Self::max_pending) | 16 777 216 | 1 or more |
/// | [`executor`](Self::executor) | `Inline` | |
/// | [`clock`](Self::clock) | `SystemClock` | |
#[derive(Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    name: String,
    interval: Duration,
    slots: usize,
    shards: usize,
    channel: usize,
    max_pending: usize,
    executor: Executor,
    ordered_by_key: bool,
    clock: Arc<dyn Clock>,
}

/// Why a wheel was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is out of range.
    #[error("{argument}: {value} is not allowed, it must be {allowed}")]
    #[non_exhaustive]
    Argument {
        /// The builder's method.
        argument: &'static str,
        /// What it was given.
        value: String,
        /// What it takes.
        allowed: String,
    },
    /// The operating system did not start a thread.
    #[error("a thread of the timing wheel could not be started: {0}")]
    Thread(#[from] io::Error),
}

impl Builder {
    pub(super) fn new() -> Self {
        Builder {
            name: "timing-wheel".to_owned(),
            interval: Duration::from_millis(1),
            slots: 512,
            shards: 16,
            channel: 64,
            max_pending: 16_777_216,
            executor: Executor::Inline,
            ordered_by_key: false,
            clock: Arc::new(SystemClock),
        }
    }

    /// The name of the wheel in thread names (of which Linux shows 15 bytes), traces and metrics;
    /// without NUL characters.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The length of a tick. Timers fire less than one interval after they are due, when the
    /// driver keeps up.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Slots of each shard's finest ring, rounded up to a power of two, of which 4096 are used at
    /// most. What fires when never depends on it, the cost may: timers within so many ticks are
    /// filed once.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Into how many independent parts the keys are divided. More shards let more threads work at
    /// once and cost memory. With one shard the order within a tick is that of the last set or move.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// How many commands a shard's channel holds: the size of the batches in which they are
    /// applied.
    pub fn channel(mut self, commands: usize) -> Self {
        self.channel = commands;
        self
    }

    /// How many timers may be pending at once; further sets of new keys are refused. Threads that
    /// set at the same time may exceed it by one batch per shard. Within `shards × (channel + 64)` of
    /// the limit a set costs a lock of every shard.
    pub fn max_pending(mut self, timers: usize) -> Self {
        self.max_pending = timers;
        self
    }

    /// Lets as many timers be pending as memory holds.
    pub fn unbounded_pending(self) -> Self {
        self.max_pending(usize::MAX)
    }

    /// Where callbacks run. Without meaning for [`manual`](Self::manual) and
    /// [`stream`](Self::stream).
    pub fn executor(mut self, executor: Executor) -> Self {
        self.executor = executor;
        self
    }

    /// Runs the callbacks of one key one after another, in firing order. Keys then share lanes: a
    /// slow callback also holds up the other keys of its lane. `Inline` keeps that order anyway.
    pub fn ordered_by_key(mut self, ordered: bool) -> Self {
        self.ordered_by_key = ordered;
        self
    }

    /// Where time is read from.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts a wheel that calls `callback` with each pair that comes due.
    ///
    /// A callback that needs the wheel itself is built by [`build_cyclic`](Self::build_cyclic).
    ///
    /// # Errors
    /// A setting is out of range, or a thread could not be started.
    pub fn build<K, V, F>(self, callback: F) -> Result<TimingWheel<K, V>, BuildError>
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
        F: Fn(K, V) + Send + Sync + 'static,
    {
        self.build_cyclic(|_| callback)
    }

    /// Like [`build`](Self::build), with a callback that can reach its own wheel, to set the next
    /// timer, say. It gets a weak handle: a strong one inside the callback would keep the wheel
    /// alive for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_wheel::{ManualClock, TimingWheel};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let wheel = TimingWheel::builder().clock(clock.clone()).build_cyclic(|wheel| {
    ///     move |key: u32, beats: u32| {
    ///         if let Some(wheel) = wheel.upgrade() {
    ///             let _ = wheel.set_timer(key, beats + 1, Duration::from_secs(1));
    ///         }
    ///     }
    /// })?;
    /// wheel.set_timer(7, 0, Duration::from_secs(1))?;
    /// clock.run_for(Duration::from_secs(10));
    /// assert_eq!(wheel.stop(), [(7, 10)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_cyclic<K, V, F, M>(self, make: M) -> Result<TimingWheel<K, V>, BuildError>
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
        F: Fn(K, V) + Send + Sync + 'static,
        M: FnOnce(WeakTimingWheel<K, V>) -> F,
    {
        self.check()?;
        let lanes = match &self.executor {
            Executor::Threads(threads) => {
                in_range("executor: Threads", *threads, 1..=1024)?;
                if self.ordered_by_key { *threads } else { 1 }
            }
            #[cfg(feature = "tokio")]
            Executor::Tokio(_) | Executor::TokioBlocking(_) if self.ordered_by_key => {
                super::executor::TOKIO_LANES
            }
            _ => 1,
        };
        let parker = Parker::new();
        let shared = Arc::new(self.shared(&parker, self.shards, lanes));
        let wheel = TimingWheel::new(shared.clone());
        let callback: Callback<K, V> = Arc::new(make(wheel.downgrade()));
        let outlet = match &self.executor {
            Executor::Inline => Outlet::Inline(callback.clone()),
            Executor::Threads(_) => Outlet::Threads,
            #[cfg(feature = "tokio")]
            Executor::Tokio(runtime) => Outlet::Tokio {
                runtime: runtime.clone(),
                callback: callback.clone(),
                blocking: false,
            },
            #[cfg(feature = "tokio")]
            Executor::TokioBlocking(runtime) => Outlet::Tokio {
                runtime: runtime.clone(),
                callback: callback.clone(),
                blocking: true,
            },
        };
        let mut threads = vec![self.start_driver(&shared, parker, outlet)?];
        if let Executor::Threads(count) = self.executor {
            for number in 0..count {
                let (shared, callback) = (shared.clone(), callback.clone());
                let name = format!("{}-{number}", self.name);
                let started = spawn(&name, size_of::<(K, V)>(), move || {
                    work(
                        &shared,
                        &shared.lanes[number % shared.lanes.len()],
                        callback,
                    );
                });
                match started {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        // What has started is stopped and joined.
                        wheel.adopt(threads);
                        drop(wheel);
                        return Err(error);
                    }
                }
            }
        }
        wheel.adopt(threads);
        Ok(wheel)
    }

    /// Starts a wheel whose expired pairs are read from a stream instead of being given to a
    /// callback. The stream holds at most `capacity` pairs, 1 or more; while it is full, due timers
    /// wait in the wheel.
    ///
    /// ```
    /// use std::time::Duration;
    /// use futures_util::StreamExt;
    /// use wheelhouse_wheel::TimingWheel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (wheel, mut expired) = TimingWheel::builder().stream(1024)?;
    /// wheel.set_timer("tea", "is ready", Duration::from_millis(5))?;
    /// assert_eq!(expired.next().await, Some(("tea", "is ready")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A setting is out of range, or the driver's thread could not be started.
    #[expect(
        clippy::type_complexity,
        reason = "a pair of handles needs no name of its own"
    )]
    pub fn stream<K, V>(
        self,
        capacity: usize,
    ) -> Result<(TimingWheel<K, V>, ExpiredStream<K, V>), BuildError>
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
    {
        self.check()?;
        in_range("stream", capacity, 1..=usize::MAX)?;
        let capacity = NonZeroUsize::new(capacity).expect("checked to be 1 or more");
        let parker = Parker::new();
        let shared = Arc::new(self.shared(&parker, self.shards, 1));
        let wheel = TimingWheel::new(shared.clone());
        let stream = ExpiredStream::new(shared.clone(), capacity, Shared::close);
        wheel.adopt(vec![self.start_driver(
            &shared,
            parker,
            Outlet::Stream { capacity },
        )?]);
        Ok((wheel, stream))
    }

    /// Builds a wheel of one shard without a thread. A [`ManualClock`](crate::ManualClock) does not
    /// turn it. It fires when
    /// [`turn`](ManualTimingWheel::turn) is called, on the caller's thread, one pair after another
    /// in exact order.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_wheel::{Clock, ManualClock, TimingWheel};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let mut wheel = TimingWheel::builder()
    ///     .clock(clock.clone())
    ///     .manual(|key: &str, value: u32| println!("{key}: {value}"))?;
    /// wheel.set_timer("a", 1, Duration::from_millis(20))?;
    /// clock.advance(Duration::from_millis(20));
    /// assert_eq!(wheel.turn(clock.now()), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn manual<K, V, F>(self, callback: F) -> Result<ManualTimingWheel<K, V>, BuildError>
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
        F: FnMut(K, V) + Send + 'static,
    {
        self.check()?;
        let shared = Arc::new(self.shared(&Parker::new(), 1, 1));
        Ok(ManualTimingWheel::new(
            TimingWheel::new(shared),
            Box::new(callback),
        ))
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.name.contains('\0') {
            return Err(BuildError::Argument {
                argument: "name",
                value: format!("{:?}", self.name),
                allowed: "without NUL characters".to_owned(),
            });
        }
        if self.interval.is_zero() {
            return Err(BuildError::Argument {
                argument: "interval",
                value: format!("{:?}", self.interval),
                allowed: "more than 0".to_owned(),
            });
        }
        in_range("slots", self.slots, 1..=MAX_SLOTS)?;
        in_range("shards", self.shards, 1..=1024)?;
        in_range("channel", self.channel, 1..=65_536)?;
        in_range("max_pending", self.max_pending, 1..=usize::MAX)
    }

    fn shared<K: Eq, V>(&self, parker: &Parker, shards: usize, lanes: usize) -> Shared<K, V> {
        let shards = (0..shards)
            .map(|_| {
                let wheel = Wheel::with_slots(self.slots).expect("the range is checked above");
                Shard::new(self.channel, wheel)
            })
            .collect();
        Shared::new(Parts {
            name: self.name.as_str().into(),
            shards,
            channel: self.channel,
            lanes,
            alarm: Alarm::new(Bell::Thread(parker.unparker().clone())),
            interval: self.interval,
            clock: self.clock.clone(),
            max_pending: self.max_pending,
        })
    }

    fn start_driver<K, V>(
        &self,
        shared: &Arc<Shared<K, V>>,
        parker: Parker,
        outlet: Outlet<K, V>,
    ) -> Result<JoinHandle<()>, BuildError>
    where
        K: Hash + Eq + Send + 'static,
        V: Send + 'static,
    {
        let weak: Weak<dyn Driven> = Arc::downgrade(&(shared.clone() as Arc<dyn Driven>));
        let virtual_time = self.clock.register(weak);
        let driver = Driver::new(shared.clone(), parker, outlet, virtual_time);
        shared.life.driver_starts();
        let started = spawn(&self.name, size_of::<(K, V)>(), move || driver.run());
        if started.is_err() {
            shared.life.driver_ended();
        }
        #[cfg(feature = "tracing")]
        if started.is_ok() {
            tracing::debug!(wheel = %self.name, interval = ?self.interval, shards = self.shards, "timing wheel starts");
        }
        started
    }
}

/// Starts a thread that hands out pairs of `pair` bytes, which are moved many times on its stack.
fn spawn(
    name: &str,
    pair: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, BuildError> {
    let stack = STACK + pair.saturating_mul(COPIES);
    let builder = thread::Builder::new().name(name.to_owned());
    Ok(builder.stack_size(stack).spawn(body)?)
}

fn in_range(
    argument: &'static str,
    value: usize,
    allowed: RangeInclusive<usize>,
) -> Result<(), BuildError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let allowed = match *allowed.end() {
        usize::MAX => format!("{} or more", allowed.start()),
        end => format!("{} to {end}", allowed.start()),
    };
    Err(BuildError::Argument {
        argument,
        value: value.to_string(),
        allowed,
    })
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("interval", &self.interval)
            .field("slots", &self.slots)
            .field("shards", &self.shards)
            .field("channel", &self.channel)
            .field("max_pending", &self.max_pending)
            .field("executor", &self.executor)
            .field("ordered_by_key", &self.ordered_by_key)
            .finish_non_exhaustive()
    }
}
