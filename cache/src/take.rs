//! Loads: one per key at a time, and none stored that a change of its key has overtaken.
//!
//! A caller that finds nothing watches the key's fence and boards the flight of key and fence number;
//! whoever leads it computes, and stores the value if the number is still the same, under the lock
//! that any change of the key takes. So a load that began before a change is not stored, and callers
//! after the change, whose number is another, do not join it.

use std::any::Any;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse_collection::{FlightError, SingleFlight};

use crate::TakeError;
use crate::event::Gone;
use crate::inner::{Inner, Watch};

type Failure = Arc<dyn Any + Send + Sync>;

pub(crate) struct Flights<K, V> {
    flights: SingleFlight<(K, u64), V, Failure>,
    /// Counts, of which nothing is read through: Relaxed throughout.
    pub(crate) coalesced: AtomicU64,
    pub(crate) loads_ok: AtomicU64,
    pub(crate) loads_failed: AtomicU64,
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
            load_nanos: AtomicU64::new(0),
        }
    }
}

/// What a caller finds before it loads.
enum Found<'a, K: Hash + Eq, V, S: BuildHasher> {
    Value(V),
    Nothing(Watch<'a, K, V, S>),
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
        let watch = match self.find(hash, &key)? {
            Found::Value(value) => return Ok(value),
            Found::Nothing(watch) => watch,
        };
        let mut led = false;
        let result = self
            .flights
            .flights
            .try_run((key.clone(), watch.number()), || {
                led = true;
                if let Some(value) = self.stored_meanwhile(hash, &key) {
                    return Ok(value);
                }
                let began = Instant::now();
                let loaded = load(&key);
                self.landed(loaded, began, &key, &watch)
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
        let watch = match self.find(hash, &key)? {
            Found::Value(value) => return Ok(value),
            Found::Nothing(watch) => watch,
        };
        let led = AtomicU64::new(0);
        let flown = (key.clone(), watch.number());
        let work = async {
            // Read by this task alone: Relaxed.
            led.store(1, Ordering::Relaxed);
            if let Some(value) = self.stored_meanwhile(hash, &key) {
                return Ok(value);
            }
            let began = Instant::now();
            let loaded = load.await;
            self.landed(loaded, began, &key, &watch)
        };
        let result = self.flights.flights.try_run_async(flown, work).await;
        self.result(result, led.load(Ordering::Relaxed) == 1)
    }

    /// The value, or a watch over its key from the moment it was not there.
    fn find<E>(&self, hash: u64, key: &K) -> Result<Found<'a, K, V, S>, TakeError<E>> {
        if self.inner.is_closed() {
            return Err(TakeError::Closed);
        }
        let mut cell = self.inner.cell(hash);
        let value = self
            .inner
            .lookup_in(&mut cell, hash, |other| other == key, V::clone);
        let found = match value {
            Some(value) => Found::Value(value),
            None => Found::Nothing(self.inner.watch(&mut cell, hash)),
        };
        drop(cell);
        self.inner.accessed(hash);
        Ok(found)
    }

    /// Another's load may have landed between the look and the flight.
    fn stored_meanwhile(&self, hash: u64, key: &K) -> Option<V> {
        self.inner
            .look(hash, |other| other == key, |entry| entry.value.clone())
    }

    /// Stores what was loaded, unless the key has changed since.
    fn landed<E, L>(
        &self,
        loaded: Result<L, E>,
        began: Instant,
        key: &K,
        watch: &Watch<'_, K, V, S>,
    ) -> Result<V, Failure>
    where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
    {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.flights.load_nanos.fetch_add(nanos, Ordering::Relaxed);
        let Loaded { value, lifetime } = match loaded {
            Ok(loaded) => loaded.into(),
            Err(error) => {
                self.flights.loads_failed.fetch_add(1, Ordering::Relaxed);
                return Err(Arc::new(error));
            }
        };
        self.flights.loads_ok.fetch_add(1, Ordering::Relaxed);
        let weight = self.inner.weigh(key, &value);
        let (key, stored) = (key.clone(), value.clone());
        let mut gone = Gone::new();
        let mut cell = self.inner.cell(watch.hash);
        if cell.fences.is_unchanged(watch.hash, watch.number()) {
            // A cache that was closed meanwhile gives it back: the callers have theirs.
            let refused = self
                .inner
                .store_in(cell, watch.hash, key, stored, weight, lifetime, &mut gone);
            drop(refused);
        } else {
            drop(cell);
        }
        self.inner.tell(gone);
        Ok(value)
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
            FlightError::Failed(failure) => match failure.downcast::<E>() {
                Ok(error) => TakeError::Failed(error),
                // A caller with errors of another type led: its failure is none of ours to show.
                Err(_) => TakeError::Other,
            },
            _ => TakeError::Recursive,
        })
    }
}
