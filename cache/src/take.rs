//! Loads: one per key at a time, and none stored that a change of its key has overtaken.
//!
//! A caller that finds nothing watches the key's fence and boards the flight of key and fence number;
//! whoever leads it computes, and stores the value if the number is still the same, under the lock
//! that any change of the key takes. So a load that began before a change is not stored, and callers
//! after the change, whose number is another, do not join it.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse_collection::{FlightError, SingleFlight};

use crate::TakeError;
use crate::cache::Shared;
use crate::event::Gone;
use crate::inner::{Cell, Inner, Watch};
use crate::negative::Failure;

pub(crate) struct Flights<K, V> {
    flights: SingleFlight<(K, u64), V, Failure>,
    /// Counts, of which nothing is read through: Relaxed throughout.
    pub(crate) coalesced: AtomicU64,
    pub(crate) loads_ok: AtomicU64,
    pub(crate) loads_failed: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) load_nanos: AtomicU64,
}

/// A value and, where the load says so, its own lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded<V> {
    value: V,
    lifetime: Option<Duration>,
}

impl<V> Loaded<V> {
    /// A value that lives as long as the cache says.
    #[must_use]
    pub fn new(value: V) -> Self {
        let lifetime = None;
        Loaded { value, lifetime }
    }

    /// A value that lives for `lifetime`; zero gives it to the callers without storing it.
    #[must_use]
    pub fn with_ttl(value: V, lifetime: Duration) -> Self {
        let lifetime = Some(lifetime);
        Loaded { value, lifetime }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Its own lifetime, if it has one.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }
}

impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self::new(value)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Flights {
            flights: SingleFlight::new(),
            coalesced: AtomicU64::new(0),
            loads_ok: AtomicU64::new(0),
            loads_failed: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            load_nanos: AtomicU64::new(0),
        }
    }
}

/// What a caller finds before it loads.
enum Found<'a, K: Hash + Eq, V, S: BuildHasher> {
    Value(V),
    /// An old one, for whose load the fence has been claimed at this number.
    Old(V, u64),
    Nothing(Watch<'a, K, V, S>),
}

/// Several keys: what was found, and what has to be loaded.
pub(crate) struct Many<'a, K: Hash + Eq, V, S: BuildHasher> {
    pub(crate) values: Vec<Option<V>>,
    /// Once each, in their order.
    pub(crate) missing: Vec<K>,
    /// Over the missing keys.
    watches: Vec<Watch<'a, K, V, S>>,
    /// Where the missing keys belong: places among the values, by the place among the missing.
    places: Vec<(usize, usize)>,
}

pub(crate) struct Loader<'a, K: Hash + Eq, V, S: BuildHasher> {
    pub(crate) inner: &'a Inner<K, V, S>,
    pub(crate) flights: &'a Flights<K, V>,
}

impl<'a, K, V, S> Loader<'a, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    pub(crate) fn of(shared: &'a Shared<K, V, S>) -> Self {
        Loader {
            inner: &shared.inner,
            flights: &shared.flights,
        }
    }

    pub(crate) fn try_take<E, L>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> Result<L, E>,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let hash = self.inner.hasher.hash_one(&key);
        match self.find(hash, &key, false)? {
            Found::Value(value) | Found::Old(value, _) => Ok(value),
            Found::Nothing(watch) => self.lead(hash, &key, &watch, load),
        }
    }

    /// Loads, or waits for who does.
    fn lead<E, L>(
        &self,
        hash: u64,
        key: &K,
        watch: &Watch<'a, K, V, S>,
        load: impl FnOnce(&K) -> Result<L, E>,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let mut led = false;
        let result = self
            .flights
            .flights
            .try_run((key.clone(), watch.number()), || {
                led = true;
                if let Some(value) = self.stored_meanwhile(hash, key) {
                    return Ok(value);
                }
                let began = Instant::now();
                let loaded = load(key).map(Into::into);
                self.landed(loaded, began, key, hash, watch.number())
            });
        self.result(result, led)
    }

    pub(crate) async fn try_take_async<E, L>(
        &self,
        key: K,
        load: impl Future<Output = Result<L, E>>,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let hash = self.inner.hasher.hash_one(&key);
        match self.find(hash, &key, false)? {
            Found::Value(value) | Found::Old(value, _) => Ok(value),
            Found::Nothing(watch) => self.lead_async(hash, &key, &watch, load).await,
        }
    }

    /// The same for a future.
    async fn lead_async<E, L>(
        &self,
        hash: u64,
        key: &K,
        watch: &Watch<'a, K, V, S>,
        load: impl Future<Output = Result<L, E>>,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let led = AtomicU64::new(0);
        let flown = (key.clone(), watch.number());
        let work = async {
            // Read by this task alone: Relaxed.
            led.store(1, Ordering::Relaxed);
            if let Some(value) = self.stored_meanwhile(hash, key) {
                return Ok(value);
            }
            let began = Instant::now();
            let loaded = load.await.map(Into::into);
            self.landed(loaded, began, key, hash, watch.number())
        };
        let result = self.flights.flights.try_run_async(flown, work).await;
        self.result(result, led.load(Ordering::Relaxed) == 1)
    }

    /// The value, or a watch over its key from the moment it was not there. Of an old one the load is
    /// claimed if that is wanted.
    fn find<E: Send + Sync + 'static>(
        &self,
        hash: u64,
        key: &K,
        refreshes: bool,
    ) -> Result<Found<'a, K, V, S>, TakeError<E>> {
        if self.inner.is_closed() {
            return Err(TakeError::Closed);
        }
        let mut cell = self.inner.cell(hash);
        let value = self
            .inner
            .lookup_in(&mut cell, hash, |other| other == key, V::clone);
        let found = match value {
            Some(value) => match refreshes
                .then(|| self.claim(&mut cell, hash, key))
                .flatten()
            {
                Some(number) => Ok(Found::Old(value, number)),
                None => Ok(Found::Value(value)),
            },
            None => match cell.negatives.find(hash, key, || self.inner.time.now()) {
                Some(failure) => Err(failure),
                None => Ok(Found::Nothing(self.inner.watch(&mut cell, hash))),
            },
        };
        drop(cell);
        self.inner.accessed(hash);
        found.map_err(failed)
    }

    /// Claims the load of a key whose value is old, unless somebody has.
    fn claim(&self, cell: &mut Cell<K, V, S>, hash: u64, key: &K) -> Option<u64> {
        let refresh = self.inner.options.refresh.as_ref()?;
        let position = cell.shard.find(hash, |other| other == key)?;
        let (entry, hard) = (cell.shard.entry(position), cell.shard.hard(position));
        if !refresh.is_due(entry, hard, || self.inner.time.now()) {
            return None;
        }
        cell.fences.claim(hash)
    }

    /// Another's load may have landed between the look and the flight.
    fn stored_meanwhile(&self, hash: u64, key: &K) -> Option<V> {
        self.inner
            .look(hash, |other| other == key, |entry| entry.value.clone())
    }

    /// Stores what was loaded, unless the key has changed since the fence had `number`.
    pub(crate) fn landed<E: Send + Sync + 'static>(
        &self,
        loaded: Result<Loaded<V>, E>,
        began: Instant,
        key: &K,
        hash: u64,
        number: u64,
    ) -> Result<V, Failure> {
        self.took(began);
        match loaded {
            Ok(loaded) => {
                self.flights.loads_ok.fetch_add(1, Ordering::Relaxed);
                Ok(self.stored(loaded, key, hash, number))
            }
            Err(error) => {
                self.flights.loads_failed.fetch_add(1, Ordering::Relaxed);
                let failure: Failure = Arc::new(error);
                self.has_failed(key, hash, number, &failure);
                Err(failure)
            }
        }
    }

    /// Stores what was loaded, unless the key has changed since the fence had `number`; the value.
    pub(crate) fn stored(&self, loaded: Loaded<V>, key: &K, hash: u64, number: u64) -> V {
        let Loaded { value, lifetime } = loaded;
        let weight = self.inner.weigh(key, &value);
        let (key, stored) = (key.clone(), value.clone());
        let mut gone = Gone::new();
        let mut cell = self.inner.cell(hash);
        if cell.fences.is_unchanged(hash, number) {
            // A cache that was closed meanwhile gives it back: the callers have theirs.
            let refused = self
                .inner
                .store_in(cell, hash, key, stored, weight, lifetime, &mut gone);
            drop(refused);
        } else {
            drop(cell);
        }
        self.inner.tell(gone);
        value
    }

    /// Looks several keys up.
    pub(crate) fn find_many<E: Send + Sync + 'static>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Many<'a, K, V, S>, TakeError<E>> {
        let mut many = Many {
            values: Vec::new(),
            missing: Vec::new(),
            watches: Vec::new(),
            places: Vec::new(),
        };
        let mut known: HashMap<K, usize> = HashMap::new();
        for (place, key) in keys.into_iter().enumerate() {
            many.values.push(None);
            if let Some(&missing) = known.get(&key) {
                many.places.push((missing, place));
                continue;
            }
            let hash = self.inner.hasher.hash_one(&key);
            match self.find(hash, &key, false)? {
                Found::Value(value) | Found::Old(value, _) => many.values[place] = Some(value),
                Found::Nothing(watch) => {
                    let missing = many.missing.len();
                    known.insert(key.clone(), missing);
                    many.places.push((missing, place));
                    many.watches.push(watch);
                    many.missing.push(key);
                }
            }
        }
        Ok(many)
    }

    /// Stores what was loaded for the missing keys, each unless it has changed since.
    pub(crate) fn landed_many<E, L, R>(
        &self,
        many: &mut Many<'a, K, V, S>,
        loaded: Result<R, E>,
        began: Instant,
    ) -> Result<(), TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
        R: IntoIterator<Item = (K, L)>,
    {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.took(began);
                self.flights.loads_failed.fetch_add(1, Ordering::Relaxed);
                let failure: Failure = Arc::new(error);
                for (key, watch) in many.missing.iter().zip(&many.watches) {
                    self.has_failed(key, watch.hash, watch.number(), &failure);
                }
                return Err(failed(failure));
            }
        };
        // Collected first: the iterator is the user's, and part of the load.
        let mut loaded: HashMap<K, Loaded<V>> = loaded
            .into_iter()
            .map(|(key, loaded)| (key, loaded.into()))
            .collect();
        self.took(began);
        self.flights.loads_ok.fetch_add(1, Ordering::Relaxed);
        let values: Vec<Option<V>> = many
            .missing
            .iter()
            .zip(&many.watches)
            .map(|(key, watch)| {
                let loaded = loaded.remove(key)?;
                Some(self.stored(loaded, key, watch.hash, watch.number()))
            })
            .collect();
        for &(missing, place) in &many.places {
            many.values[place].clone_from(&values[missing]);
        }
        Ok(())
    }

    /// Counts the time of a load.
    fn took(&self, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.flights.load_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Remembers a failure, and lets the old value live on, as far as the cache was told to.
    fn has_failed(&self, key: &K, hash: u64, number: u64, failure: &Failure) {
        let inner = self.inner;
        if inner.options.negative_ttl == 0 && inner.options.stale_on_error == 0 {
            return;
        }
        let (key, now) = (key.clone(), inner.time.now());
        let mut cell = inner.cell(hash);
        let mut forgotten = Vec::new();
        if cell.fences.is_unchanged(hash, number) && !inner.is_closed() {
            match cell.shard.find(hash, |other| *other == key) {
                Some(position) if cell.shard.entry(position).deadline() > now => {
                    let longer = inner.options.stale_on_error;
                    if longer > 0 {
                        let idle = now.saturating_add(inner.options.time_to_idle);
                        cell.shard.extend(position, longer, idle);
                    }
                }
                _ if inner.options.negative_ttl > 0 => {
                    let until = now.saturating_add(inner.options.negative_ttl);
                    let failure = failure.clone();
                    forgotten = cell.negatives.add(hash, key, failure, until, now);
                }
                _ => {}
            }
        }
        drop(cell);
        drop(forgotten);
    }

    fn result<E: Send + Sync + 'static>(
        &self,
        result: Result<V, FlightError<Failure>>,
        led: bool,
    ) -> Result<V, TakeError<E>> {
        if !led {
            self.flights.coalesced.fetch_add(1, Ordering::Relaxed);
        }
        result.map_err(|error| match error {
            FlightError::Failed(failure) => failed(failure),
            _ => TakeError::Recursive,
        })
    }
}

impl<K, V, S> Loader<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`try_take`](Self::try_take), where an old value is loaded anew in the background.
    pub(crate) fn try_take_refreshing<E, L>(
        shared: &Arc<Shared<K, V, S>>,
        key: K,
        load: impl FnOnce(&K) -> Result<L, E> + Send + 'static,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let loader = Loader::of(shared);
        let hash = shared.inner.hasher.hash_one(&key);
        match loader.find(hash, &key, true)? {
            Found::Value(value) => Ok(value),
            Found::Old(value, number) => {
                shared.reload(hash, number, key, |key| {
                    let key = key.clone();
                    async move { load(&key) }
                });
                Ok(value)
            }
            Found::Nothing(watch) => loader.lead(hash, &key, &watch, load),
        }
    }

    /// The same for a future.
    pub(crate) async fn try_take_refreshing_async<E, L>(
        shared: &Arc<Shared<K, V, S>>,
        key: K,
        load: impl Future<Output = Result<L, E>> + Send + 'static,
    ) -> Result<V, TakeError<E>>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let loader = Loader::of(shared);
        let hash = shared.inner.hasher.hash_one(&key);
        match loader.find(hash, &key, true)? {
            Found::Value(value) => Ok(value),
            Found::Old(value, number) => {
                shared.reload(hash, number, key, |_| load);
                Ok(value)
            }
            Found::Nothing(watch) => loader.lead_async(hash, &key, &watch, load).await,
        }
    }
}

fn failed<E: Send + Sync + 'static>(failure: Failure) -> TakeError<E> {
    match failure.downcast::<E>() {
        Ok(error) => TakeError::Failed(error),
        // The load of a caller with errors of another type: its failure is none of ours to show.
        Err(_) => TakeError::Other,
    }
}
