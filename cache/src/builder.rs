//! What a cache is built with.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use wheelhouse_wheel::Clock;

use crate::budget::Budget;
use crate::driver::Sleep;
use crate::event::{Callback, Listener};
use crate::inner::{Cell, Inner, Options, Tuning};
use crate::refresh::{Refresh, Reload};
use crate::shard::{Columns, Extent, NEVER, Policy, Shard};
use crate::time::{Time, micros};
use crate::{BuildError, Cache, Event};

/// Entries that a shard should have at least: fewer cost hits.
const WORTH_A_SHARD: u64 = 2_048;

/// Shards, at most.
const MOST_SHARDS: usize = 64;

/// Lifetimes deviate by up to a twentieth.
const DEFAULT_JITTER: f64 = 0.05;

type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;

/// Builds a [`Cache`]; see [`Cache::builder`].
#[must_use = "nothing is built before `build`"]
pub struct Builder<K, V, S = RandomState> {
    bound: Option<u64>,
    weigher: Option<Weigher<K, V>>,
    policy: Policy,
    shards: Option<usize>,
    time_to_live: Option<Duration>,
    time_to_idle: Option<Duration>,
    jitter: f64,
    seed: Option<u64>,
    clock: Option<Arc<dyn Clock>>,
    listener: Option<Callback<K, V>>,
    reclaim: Reclaim,
    refresh: Option<(Duration, Refresh)>,
    stale_on_error: Option<Duration>,
    negative_ttl: Option<Duration>,
    name: String,
    hasher: S,
    entries: PhantomData<fn(K, V)>,
}

/// Who takes expired entries out. Nobody sees them either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reclaim {
    /// Stores do, at most 128 entries each, of the shard that they store in.
    #[default]
    InOperations,
    /// [`Cache::run_pending`] only: on a thread of yours, or a [`Driver`](crate::Driver).
    OnRequest,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new() -> Self {
        Builder {
            bound: None,
            weigher: None,
            policy: Policy::default(),
            shards: None,
            time_to_live: None,
            time_to_idle: None,
            jitter: DEFAULT_JITTER,
            seed: None,
            clock: None,
            listener: None,
            reclaim: Reclaim::default(),
            refresh: None,
            stale_on_error: None,
            negative_ttl: None,
            name: "cache".to_owned(),
            hasher: RandomState::default(),
            entries: PhantomData,
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Holds up to `entries` entries, from 1.
    pub fn capacity(mut self, entries: u64) -> Self {
        self.bound = Some(entries);
        self.weigher = None;
        self
    }

    /// Holds entries of up to `weight` together, from 1, each as heavy as `weigher` says. It is asked
    /// once per store, outside every lock. What weighs nothing is never evicted, what weighs more
    /// than `weight` is never stored.
    pub fn weight(
        mut self,
        weight: u64,
        weigher: impl Fn(&K, &V) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.bound = Some(weight);
        self.weigher = Some(Box::new(weigher));
        self
    }

    /// Holds whatever is stored until it expires or is removed.
    pub fn unbounded(mut self) -> Self {
        self.bound = Some(u64::MAX);
        self.weigher = None;
        self
    }

    /// Values live for `lifetime` after they were stored, more than zero; by default without end.
    pub fn time_to_live(mut self, lifetime: Duration) -> Self {
        self.time_to_live = Some(lifetime);
        self
    }

    /// Values live for `lifetime` after they were used, more than zero; by default without end. Where
    /// there is a time to live too, the earlier end counts.
    pub fn time_to_idle(mut self, lifetime: Duration) -> Self {
        self.time_to_idle = Some(lifetime);
        self
    }

    /// Lifetimes deviate by up to the share `deviation`, from 0 to 1, in either direction, so that
    /// what was stored together does not expire together. By default 0.05.
    pub fn jitter(mut self, deviation: f64) -> Self {
        self.jitter = deviation;
        self
    }

    /// Seeds what deviates.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Who goes when there is no room.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The number of shards, from 1 to 64, rounded up to a power of two. By default one for each
    /// 2 048 entries. The strict policies, LRU and FIFO, always have one.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The clock, instead of the system's. It is read in every lookup, under the lock of a shard: it
    /// must not use the cache.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Is told of each value that leaves the cache, exactly once, on the thread that took it out,
    /// outside every lock. It may use the cache; its panics are counted.
    pub fn listener(mut self, listener: impl Fn(Event<K, V>) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Who takes expired entries out.
    pub fn reclaim(mut self, reclaim: Reclaim) -> Self {
        self.reclaim = reclaim;
        self
    }

    /// Has values loaded anew in the background once they are older than `age`, their soft time to
    /// live, while callers go on to get the old one until its deadline: stale-while-revalidate, or,
    /// with an age close to the time to live, refresh-ahead. Only
    /// [`take_refreshing`](Cache::take_refreshing) and its likes do so, one load of a key at a time.
    ///
    /// `age` is more than zero and less than the time to live, which has to be set; lifetimes then
    /// deviate by half of it at most, and so does the age. A value with a lifetime of its own is loaded
    /// anew as long before its end, and at once where that is before it came. `spawn` gets each [`Reload`] on the
    /// thread of the caller who found the value old, outside every lock, and is to return at once; it
    /// may drop it, and the next caller tries again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_cache::Cache;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rates = Cache::builder()
    ///     .capacity(1_000)
    ///     .time_to_live(Duration::from_secs(600))
    ///     .refresh_after(Duration::from_secs(60), |reload| {
    ///         std::thread::spawn(|| reload.run());
    ///     })
    ///     .build()?;
    /// assert_eq!(rates.take_refreshing("EUR", |_| 1.08)?, 1.08);
    /// # Ok(()) }
    /// ```
    pub fn refresh_after(
        mut self,
        age: Duration,
        spawn: impl Fn(Reload) + Send + Sync + 'static,
    ) -> Self {
        self.refresh = Some((age, Refresh::new(spawn)));
        self
    }

    /// Lets a value live `longer` past its deadline, once, when it could not be loaded anew in the
    /// background: zero and none by default. It wants [`refresh_after`](Self::refresh_after).
    pub fn stale_on_error(mut self, longer: Duration) -> Self {
        self.stale_on_error = Some(longer);
        self
    }

    /// Remembers for `lifetime`, more than zero, that a load failed: who asks for the key meanwhile
    /// gets the same error, unless the key is set, removed or cleared. By default nothing is
    /// remembered. A shard remembers 1 024 failures at most, and forgets any of them for the next.
    pub fn negative_ttl(mut self, lifetime: Duration) -> Self {
        self.negative_ttl = Some(lifetime);
        self
    }

    /// The name in statistics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The hasher of keys. The default is fast, and seeded anew for each cache.
    pub fn hasher<H>(self, hasher: H) -> Builder<K, V, H> {
        Builder {
            bound: self.bound,
            weigher: self.weigher,
            policy: self.policy,
            shards: self.shards,
            time_to_live: self.time_to_live,
            time_to_idle: self.time_to_idle,
            jitter: self.jitter,
            seed: self.seed,
            clock: self.clock,
            listener: self.listener,
            reclaim: self.reclaim,
            refresh: self.refresh,
            stale_on_error: self.stale_on_error,
            negative_ttl: self.negative_ttl,
            name: self.name,
            hasher,
            entries: PhantomData,
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Builder<K, V, S> {
    /// Builds the cache. Nothing is started.
    ///
    /// # Errors
    /// [`BuildError`] when an argument is out of its range, or no bound was chosen.
    pub fn build(self) -> Result<Cache<K, V, S>, BuildError> {
        let refuse = |argument, value: &dyn fmt::Display, allowed| {
            Err(BuildError {
                argument,
                value: value.to_string(),
                allowed,
            })
        };
        let Some(bound) = self.bound else {
            return refuse("bound", &"missing", "say capacity, weight or unbounded");
        };
        if bound == 0 {
            return refuse("capacity", &bound, "allowed are 1 and more");
        }
        for (argument, lifetime) in [
            ("time_to_live", self.time_to_live),
            ("time_to_idle", self.time_to_idle),
            ("negative_ttl", self.negative_ttl),
        ] {
            if lifetime == Some(Duration::ZERO) {
                return refuse(argument, &"0 s", "allowed is more than zero");
            }
        }
        if let Some((age, _)) = &self.refresh {
            let within = self.time_to_live.is_some_and(|life| *age < life);
            if age.is_zero() || !within {
                let age = format!("{age:?}");
                return refuse(
                    "refresh_after",
                    &age,
                    "allowed is more than zero and less than time_to_live",
                );
            }
        } else if let Some(longer) = self.stale_on_error {
            let longer = format!("{longer:?}");
            return refuse("stale_on_error", &longer, "it wants refresh_after");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse("jitter", &self.jitter, "allowed are 0 to 1");
        }
        if let Some(shards) = self.shards
            && !(1..=MOST_SHARDS).contains(&shards)
        {
            return refuse("shards", &shards, "allowed are 1 to 64");
        }

        let is_weighted = self.weigher.is_some();
        let shards = match self.policy {
            Policy::Lru | Policy::Fifo => 1,
            _ => {
                let worth = if is_weighted {
                    MOST_SHARDS as u64 / 2
                } else {
                    bound / WORTH_A_SHARD
                };
                let worth = worth.clamp(1, MOST_SHARDS as u64) as usize;
                // Rounded down: no shard gets fewer entries than it is worth.
                let worth = 1 << worth.ilog2();
                self.shards.map_or(worth, usize::next_power_of_two)
            }
        };
        let is_counted = !is_weighted && bound != u64::MAX;
        let most = if is_counted && shards == 1 {
            usize::try_from(bound).unwrap_or(usize::MAX)
        } else {
            usize::MAX
        };
        let is_tuned = self.policy == Policy::Adaptive && bound != u64::MAX;
        let expected = if is_weighted { 1 << 16 } else { bound };
        let expected = usize::try_from(expected).unwrap_or(usize::MAX).min(1 << 24);
        let columns = Columns {
            weights: is_weighted,
            hard: self.time_to_idle.is_some(),
        };
        let extent = Extent {
            most,
            likely: if is_counted {
                usize::try_from(bound).unwrap_or(usize::MAX) / shards
            } else {
                usize::MAX
            },
        };
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let cells = (0..shards as u64).map(|number| {
            let shard = Shard::new(self.policy, columns, extent, self.hasher.clone());
            CachePadded::new(Mutex::new(Cell::new(shard, seed.wrapping_add(number))))
        });
        let span = |lifetime: Option<Duration>| lifetime.map_or(NEVER, micros);
        let life = self.time_to_live.unwrap_or_default();
        let refresh = self
            .refresh
            .map(|(age, refresh)| refresh.at(micros(age), micros(life)));
        let inner = Inner {
            cells: cells.collect(),
            hasher: self.hasher,
            budget: Budget::new(bound),
            time: self.clock.map_or_else(Time::system, Time::of),
            listener: Listener::new(self.listener),
            options: Options {
                name: self.name,
                time_to_live: span(self.time_to_live),
                time_to_idle: span(self.time_to_idle),
                jitter: (self.jitter * (1_u64 << 32) as f64) as u64,
                weigher: self.weigher,
                expires: self.time_to_live.is_some() || self.time_to_idle.is_some(),
                reclaims: self.reclaim == Reclaim::InOperations,
                refresh,
                stale_on_error: micros(self.stale_on_error.unwrap_or_default()),
                negative_ttl: micros(self.negative_ttl.unwrap_or_default()),
            },
            sleep: Sleep::default(),
            tuning: is_tuned.then(|| Tuning::new(expected)),
            closed: AtomicBool::new(false),
        };
        Ok(Cache::over(inner))
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("bound", &self.bound)
            .field("policy", &self.policy)
            .field("time_to_live", &self.time_to_live)
            .field("time_to_idle", &self.time_to_idle)
            .finish_non_exhaustive()
    }
}
