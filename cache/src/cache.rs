//! [`Cache`]: the face.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::event::Gone;
use crate::inner::{Inner, Watch};
use crate::report::{Mark, Report};
use crate::take::{Flights, Loader};
use crate::{Builder, Closed, Computed, Loaded, Op, Stats, TakeError};

/// A concurrent cache of bounded size whose values expire.
///
/// Clones share the same cache; the last one frees every value when it goes.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_cache::Cache;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sessions = Cache::builder()
///     .capacity(10_000)
///     .time_to_live(Duration::from_secs(60))
///     .build()?;
/// sessions.set("alice", 1)?;
/// assert_eq!(sessions.get("alice"), Some(1));
/// assert_eq!(sessions.get("bob"), None);
/// # Ok(()) }
/// ```
pub struct Cache<K: Hash + Eq, V, S: BuildHasher = RandomState> {
    pub(crate) shared: Arc<Shared<K, V, S>>,
}

pub(crate) struct Shared<K: Hash + Eq, V, S: BuildHasher> {
    pub(crate) inner: Arc<Inner<K, V, S>>,
    pub(crate) flights: Flights<K, V>,
    reported: Mutex<Mark>,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// A builder, which wants a bound: [`capacity`](Builder::capacity),
    /// [`weight`](Builder::weight) or [`unbounded`](Builder::unbounded).
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    pub(crate) fn over(inner: Inner<K, V, S>) -> Self {
        let shared = Shared {
            inner: Arc::new(inner),
            flights: Flights::new(),
            reported: Mutex::default(),
        };
        Cache {
            shared: Arc::new(shared),
        }
    }

    /// A clone of the value at `key`. Counts as a use of it.
    ///
    /// ```
    /// # use wheelhouse_cache::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::<String, u32>::builder().capacity(10).build()?;
    /// cache.set("one".to_owned(), 1)?;
    /// assert_eq!(cache.get("one"), Some(1));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.inner()
            .lookup(hash, |other| other.borrow() == key, V::clone)
    }

    /// A clone of the value at `key`, without a trace: no count, no use.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.inner().look(
            hash,
            |other| other.borrow() == key,
            |entry| entry.value.clone(),
        )
    }

    /// Whether there is a value at `key`, without a trace.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.inner()
            .look(hash, |other| other.borrow() == key, |_| ())
            .is_some()
    }

    /// Clones of the values at `keys`, in their order.
    pub fn get_many<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>) -> Vec<Option<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized + 'k,
    {
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// Stores a value for as long as the cache says. Whatever was at `key` is replaced; loads of it
    /// that are under way are not stored.
    ///
    /// # Errors
    /// [`Closed`], with the value, when the cache is.
    #[inline]
    pub fn set(&self, key: K, value: V) -> Result<(), Closed<V>> {
        self.store(key, value, None)
    }

    /// Stores a value for `lifetime`, give or take the jitter: `Duration::MAX` is without end, zero
    /// means expired already, so that nothing is there afterwards.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_cache::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::builder().capacity(10).build()?;
    /// cache.set_with_ttl("token", 1, Duration::from_secs(60))?;
    /// assert_eq!(cache.get("token"), Some(1));
    /// cache.set_with_ttl("token", 2, Duration::ZERO)?;
    /// assert_eq!(cache.get("token"), None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Closed`], with the value, when the cache is.
    pub fn set_with_ttl(&self, key: K, value: V, lifetime: Duration) -> Result<(), Closed<V>> {
        self.store(key, value, Some(lifetime))
    }

    /// Removes the value at `key`: it is given to this caller alone, and a load under way is not
    /// stored.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.inner()
            .remove(hash, |other| other.borrow() == key, V::clone)
    }

    /// Removes the value at `key` if `condition` says so, which runs outside every lock. If the key
    /// changes meanwhile it is asked again.
    pub fn remove_if(&self, key: &K, mut condition: impl FnMut(&K, &V) -> bool) -> Option<V> {
        let computed = self.compute(key.clone(), |value| match value {
            Some(value) if condition(key, value) => Op::Remove,
            _ => Op::Keep,
        });
        match computed {
            Ok(Computed::Removed(value)) => Some(value),
            _ => None,
        }
    }

    /// Removes every value that `keep` does not want; they are gone when this returns. What is stored
    /// meanwhile may be missed. `keep` runs outside every lock.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for key in self.keys() {
            self.remove_if(&key, |key, value| !keep(key, value));
        }
    }

    /// Decides from the value at `key` what becomes of it, as one step: if the key changes while
    /// `decide` runs, which is outside every lock, it runs again.
    ///
    /// ```
    /// # use wheelhouse_cache::{Cache, Computed, Op};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::builder().capacity(10).build()?;
    /// let count = |value: Option<&u32>| Op::Put(value.map_or(1, |count| count + 1));
    /// assert_eq!(cache.compute("visits", count)?, Computed::Inserted(1));
    /// assert_eq!(cache.compute("visits", count)?, Computed::Replaced(2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Closed`], with the value that was decided for, when the cache is.
    pub fn compute(
        &self,
        key: K,
        mut decide: impl FnMut(Option<&V>) -> Op<V>,
    ) -> Result<Computed<V>, Closed<V>> {
        let hash = self.hash(&key);
        let inner = self.inner();
        loop {
            let mut cell = inner.cell(hash);
            let found = cell.shard.find(hash, |other| *other == key);
            let found = found.map(|at| cell.shard.entry(at));
            let before = found
                .filter(|entry| !inner.time.is_past(entry.deadline()))
                .map(|entry| entry.value.clone());
            let watch = inner.watch(&mut cell, hash);
            drop(cell);
            let op = decide(before.as_ref());

            let mut cell = inner.cell(hash);
            if !cell.fences.is_unchanged(hash, watch.number()) {
                drop(cell);
                continue;
            }
            match op {
                Op::Keep => {
                    drop(cell);
                    return Ok(before.map_or(Computed::Nothing, Computed::Kept));
                }
                Op::Remove => {
                    let mut gone = Gone::new();
                    inner.remove_in(&mut cell, hash, |other| *other == key, &mut gone);
                    drop(cell);
                    inner.tell(gone);
                    return Ok(before.map_or(Computed::Nothing, Computed::Removed));
                }
                Op::Put(value) => {
                    drop(cell);
                    let weight = inner.weigh(&key, &value);
                    let mut gone = Gone::new();
                    let mut cell = inner.cell(hash);
                    if !cell.fences.is_unchanged(hash, watch.number()) {
                        drop(cell);
                        continue;
                    }
                    let stored = value.clone();
                    let result = inner.store_in(cell, hash, key, stored, weight, None, &mut gone);
                    inner.tell(gone);
                    return match result {
                        Ok(()) if before.is_some() => Ok(Computed::Replaced(value)),
                        Ok(()) => Ok(Computed::Inserted(value)),
                        Err(value) => Err(Closed { value }),
                    };
                }
            }
        }
    }

    /// The value at `key`, or what `load` gives, which is stored. Callers that ask for the key at the
    /// same time share one load.
    ///
    /// If the key is set or removed while it is loaded, the callers still get what was loaded, but it
    /// is not stored, and callers after the change have it loaded anew. A caller whose load panics
    /// hands over to the next of those who wait.
    ///
    /// ```
    /// # use wheelhouse_cache::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::builder().capacity(10).build()?;
    /// assert_eq!(cache.take("answer", |_| 42)?, 42);
    /// assert_eq!(cache.take("answer", |_| 43)?, 42); // it is there
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`TakeError::Recursive`] in the load of the same key, [`TakeError::Closed`] when the cache is, and
    /// [`TakeError::Other`] when it waited for a [`try_take`](Self::try_take) that failed.
    ///
    /// # Panics
    /// When `load` does, on the thread that ran it only.
    pub fn take<L: Into<Loaded<V>>>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> L,
    ) -> Result<V, TakeError<Infallible>> {
        self.try_take(key, |key| Ok(load(key)))
    }

    /// The same for a load that can fail. A failure is not kept: the next caller loads again.
    ///
    /// # Errors
    /// [`TakeError::Failed`] with what the load returned, the caller's own or that of the caller it
    /// waited for; and as [`take`](Self::take).
    ///
    /// # Panics
    /// When `load` does, on the thread that ran it only.
    pub fn try_take<L, E>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> Result<L, E>,
    ) -> Result<V, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        self.loader().try_take(key, load)
    }

    /// The value at `key`, or the output of `load`, which is stored. A future that is not needed is
    /// dropped without having been polled; one that is dropped half way hands over to the next.
    ///
    /// ```
    /// # use wheelhouse_cache::Cache;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cache = Cache::builder().capacity(10).build()?;
    /// assert_eq!(cache.take_async("answer", async { 42 }).await?, 42);
    /// assert_eq!(cache.get("answer"), Some(42));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_async<L: Into<Loaded<V>>>(
        &self,
        key: K,
        load: impl Future<Output = L>,
    ) -> Result<V, TakeError<Infallible>> {
        self.try_take_async(key, async { Ok(load.await) }).await
    }

    /// The same for a load that can fail.
    ///
    /// # Errors
    /// As [`try_take`](Self::try_take).
    pub async fn try_take_async<L, E>(
        &self,
        key: K,
        load: impl Future<Output = Result<L, E>>,
    ) -> Result<V, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        self.loader().try_take_async(key, load).await
    }

    /// The values at `keys`, in their order, or what `load` gives for those that are missing, which is
    /// stored. `load` gets each missing key once, in their order, and runs at most once; `None` is
    /// where it gave nothing, and what it gives for other keys is left alone.
    ///
    /// As with [`take`](Self::take), nothing is stored for a key that was changed meanwhile. Such a load
    /// neither joins others of the same keys nor is joined.
    ///
    /// ```
    /// # use wheelhouse_cache::Cache;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let squares = Cache::builder().capacity(10).build()?;
    /// squares.set(2, 4)?;
    /// let values = squares.take_many([1, 2, 3, 1], |missing| {
    ///     assert_eq!(missing, [1, 3]);
    ///     missing.iter().map(|&n| (n, n * n)).collect::<Vec<_>>()
    /// })?;
    /// assert_eq!(values, [Some(1), Some(4), Some(9), Some(1)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`TakeError::Closed`] when the cache is.
    ///
    /// # Panics
    /// When `load` does.
    pub fn take_many<L, R>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(&[K]) -> R,
    ) -> Result<Vec<Option<V>>, TakeError<Infallible>>
    where
        L: Into<Loaded<V>>,
        R: IntoIterator<Item = (K, L)>,
    {
        self.try_take_many(keys, |keys| Ok(load(keys)))
    }

    /// The same for a load that can fail, as a whole.
    ///
    /// # Errors
    /// [`TakeError::Failed`] with what the load returned, or a load of one of the keys that is
    /// [remembered](Builder::negative_ttl); [`TakeError::Closed`] when the cache is.
    ///
    /// # Panics
    /// When `load` does.
    pub fn try_take_many<L, R, E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(&[K]) -> Result<R, E>,
    ) -> Result<Vec<Option<V>>, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        R: IntoIterator<Item = (K, L)>,
        E: Send + Sync + 'static,
    {
        let mut many = self.loader().find_many(keys)?;
        if !many.missing.is_empty() {
            let began = Instant::now();
            let loaded = load(&many.missing);
            self.loader().landed_many(&mut many, loaded, began)?;
        }
        Ok(many.values)
    }

    /// [`take_many`](Self::take_many) for a future, which `load` makes of the missing keys.
    ///
    /// # Errors
    /// As [`try_take_many`](Self::try_take_many).
    pub async fn try_take_many_async<L, R, E, F>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl FnOnce(Vec<K>) -> F,
    ) -> Result<Vec<Option<V>>, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        R: IntoIterator<Item = (K, L)>,
        E: Send + Sync + 'static,
        F: Future<Output = Result<R, E>>,
    {
        let mut many = self.loader().find_many(keys)?;
        if !many.missing.is_empty() {
            let began = Instant::now();
            let loaded = load(many.missing.clone()).await;
            self.loader().landed_many(&mut many, loaded, began)?;
        }
        Ok(many.values)
    }

    /// Keys and values, shard by shard; what is stored or removed meanwhile may or may not be among
    /// them. Clones a shard at a time.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        let inner = self.inner();
        inner.cells.iter().flat_map(|cell| {
            let cell = cell.lock();
            let entries = cell.shard.entries().iter();
            let visible = entries.filter(|entry| !inner.time.is_past(entry.deadline()));
            let pairs = visible.map(|entry| (entry.key.clone(), entry.value.clone()));
            pairs.collect::<Vec<_>>()
        })
    }

    /// Removes everything, and keeps loads that are under way from being stored.
    pub fn clear(&self) {
        self.inner().clear();
    }

    /// Takes out up to `budget` expired entries now. How many there were: as many as `budget` means
    /// that there may be more.
    pub fn run_pending(&self, budget: usize) -> usize {
        self.inner().reclaim_all(budget).0
    }

    /// The instant at which an entry may have to be reclaimed, to within about a millisecond; `None`
    /// when nothing expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let inner = self.inner();
        inner.time.instant(inner.next_deadline()?)
    }

    /// Entries, those that have expired and are not reclaimed yet among them.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.inner().len()).unwrap_or(usize::MAX)
    }

    /// Whether there are no entries, not even expired ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries: their number, unless a weigher says otherwise. Never above the
    /// bound.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.inner().budget.used()
    }

    /// What the cache has done and holds. Shards are read one after the other.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.inner().stats();
        let flights = &self.shared.flights;
        // Counts: nothing is read through them.
        stats.coalesced = flights.coalesced.load(Ordering::Relaxed);
        stats.loads_ok = flights.loads_ok.load(Ordering::Relaxed);
        stats.loads_failed = flights.loads_failed.load(Ordering::Relaxed);
        stats.reloads = flights.reloads.load(Ordering::Relaxed);
        stats.load_time = Duration::from_nanos(flights.load_nanos.load(Ordering::Relaxed));
        stats
    }

    /// What the cache has served since it was last asked for this. Logged once a minute it is the line
    /// that go-zero's cache logs.
    ///
    /// ```
    /// # use wheelhouse_cache::Cache;
    /// # use wheelhouse_wheel::ManualClock;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let cache = Cache::builder().capacity(10).name("users").clock(clock.clone()).build()?;
    /// cache.set(1, "one")?;
    /// assert_eq!((cache.get(&1), cache.get(&2)), (Some("one"), None));
    /// clock.advance(std::time::Duration::from_secs(60));
    /// assert_eq!(
    ///     cache.report().to_string(),
    ///     "cache(users) - qpm: 2, hit_ratio: 50.0%, elements: 1, hit: 1, miss: 1"
    /// );
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn report(&self) -> Report {
        let inner = self.inner();
        let now = inner.time.now();
        let mut reported = self.shared.reported.lock();
        // Under the lock: the next report has to begin with later figures.
        let stats = self.stats();
        reported.report(&inner.options.name, now, &stats)
    }

    /// The name it was built with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().options.name
    }

    /// Closes the cache for all its clones: every value leaves, stores and loads are refused from
    /// then on, lookups find nothing.
    pub fn close(&self) {
        let inner = self.inner();
        // The locks of the shards order it: see `Inner::closed`.
        inner.closed.store(true, Ordering::Relaxed);
        inner.clear();
    }

    /// Stores what was loaded, unless the key has changed since it is watched; the value.
    pub(crate) fn loaded(&self, loaded: Loaded<V>, key: &K, watch: &Watch<'_, K, V, S>) -> V {
        self.loader()
            .stored(loaded, key, watch.hash, watch.number())
    }

    fn store(&self, key: K, value: V, lifetime: Option<Duration>) -> Result<(), Closed<V>> {
        let hash = self.hash(&key);
        self.inner()
            .store(hash, key, value, lifetime)
            .map_err(|value| Closed { value })
    }

    fn keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        for cell in &self.inner().cells {
            let cell = cell.lock();
            keys.extend(cell.shard.entries().iter().map(|entry| entry.key.clone()));
        }
        keys
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Arc<Inner<K, V, S>> {
        &self.shared.inner
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.inner().hasher.hash_one(key)
    }

    fn loader(&self) -> Loader<'_, K, V, S> {
        Loader::of(&self.shared)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Cache {
            shared: self.shared.clone(),
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.shared.inner;
        f.debug_struct("Cache")
            .field("name", &inner.options.name)
            .field("weight", &inner.budget.used())
            .finish_non_exhaustive()
    }
}
