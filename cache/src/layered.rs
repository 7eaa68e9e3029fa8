//! [`Layered`]: a cache in front of a slower store that outlives it, such as Redis or a disk.
//!
//! What may never happen is that the store keeps a value older than a change which has returned.
//! - A change passes the key's fence in memory first, then changes the store, then memory again.
//! - Whoever writes a value to the store looks at the fence after that, and deletes what was written if
//!   the fence was passed since its load began, or since its own change.
//!
//! A future that is dropped between the two cannot delete: its docs say so.
//!
//! So a value written after a change's own write to the store is seen to be late, and one written
//! before is overwritten. What is deleted too much is loaded again.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::event::Gone;
use crate::inner::Watch;
use crate::shard::NEVER;
use crate::time::micros;
use crate::{Cache, Closed, Loaded, TakeError};

/// A store behind a cache, on whose answers a thread waits.
///
/// Its methods run outside every lock of the cache, and may use it.
pub trait SecondLevel<K, V>: Send + Sync {
    /// Why the store did not do it.
    type Error;

    /// The value at `key`, if there is one, with the rest of its lifetime if that is known.
    ///
    /// # Errors
    /// When the store cannot be asked. The caller loads the value as if it were not there.
    fn get(&self, key: &K) -> Result<Option<Loaded<V>>, Self::Error>;

    /// Stores a value for `lifetime`, or without end.
    ///
    /// # Errors
    /// When it may not be stored.
    fn put(&self, key: &K, value: &V, lifetime: Option<Duration>) -> Result<(), Self::Error>;

    /// Deletes the value at `key`, if there is one.
    ///
    /// # Errors
    /// When it may still be there.
    fn del(&self, key: &K) -> Result<(), Self::Error>;
}

/// A store behind a cache, on whose answers a task waits. As [`SecondLevel`] otherwise.
pub trait AsyncSecondLevel<K, V>: Send + Sync {
    /// Why the store did not do it.
    type Error;

    /// As [`SecondLevel::get`].
    fn get(&self, key: &K) -> impl Future<Output = Result<Option<Loaded<V>>, Self::Error>> + Send;

    /// As [`SecondLevel::put`].
    fn put(
        &self,
        key: &K,
        value: &V,
        lifetime: Option<Duration>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// As [`SecondLevel::del`].
    fn del(&self, key: &K) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A [`Cache`] with a second level behind it, from [`Cache::layered`].
///
/// Loads ask the second level first and write to it what they load; a second level that fails is
/// counted and holds nobody up. Changes go to both, and say when the second level failed. Clones share
/// both levels.
///
/// ```
/// use std::collections::HashMap;
/// use std::convert::Infallible;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use wheelhouse_cache::{Cache, Loaded, SecondLevel};
///
/// #[derive(Default)]
/// struct Disk(Mutex<HashMap<u32, String>>);
///
/// impl SecondLevel<u32, String> for Disk {
///     type Error = Infallible;
///
///     fn get(&self, key: &u32) -> Result<Option<Loaded<String>>, Infallible> {
///         Ok(self.0.lock().unwrap().get(key).cloned().map(Loaded::new))
///     }
///
///     fn put(&self, key: &u32, value: &String, _: Option<Duration>) -> Result<(), Infallible> {
///         self.0.lock().unwrap().insert(*key, value.clone());
///         Ok(())
///     }
///
///     fn del(&self, key: &u32) -> Result<(), Infallible> {
///         self.0.lock().unwrap().remove(key);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let users = Cache::builder().capacity(100).build()?.layered(Disk::default());
/// users.set(7, "seven".to_owned())?;
/// users.cache().clear(); // memory only
/// let name = users.take(7, |id| format!("user {id}"))?; // the disk has it
/// assert_eq!(name, "seven");
/// # Ok(()) }
/// ```
pub struct Layered<K: Hash + Eq, V, L, S: BuildHasher = RandomState> {
    cache: Cache<K, V, S>,
    second: Arc<Behind<L>>,
}

struct Behind<L> {
    store: L,
    /// A count: nothing is read through it, so Relaxed.
    failures: AtomicU64,
}

/// Why a value is not stored at both levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError<V, E> {
    /// The cache is closed. Nothing was stored, and here is the value.
    #[error(transparent)]
    Closed(#[from] Closed<V>),
    /// The second level failed. The value is in memory, and the second level has neither an older
    /// value nor this one, unless it failed to delete that as well.
    #[error("the value is in memory, but the second level failed: {0}")]
    Second(E),
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    /// This cache in front of a second level: a [`SecondLevel`], or an [`AsyncSecondLevel`]. Changes
    /// that are made to this cache itself do not reach it.
    pub fn layered<L>(self, second: L) -> Layered<K, V, L, S> {
        Layered {
            cache: self,
            second: Arc::new(Behind {
                store: second,
                failures: AtomicU64::new(0),
            }),
        }
    }
}

impl<K, V, L, S> Layered<K, V, L, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    /// The first level. What is changed there is not changed behind it.
    #[must_use]
    pub fn cache(&self) -> &Cache<K, V, S> {
        &self.cache
    }

    /// The second level.
    #[must_use]
    pub fn second(&self) -> &L {
        &self.second.store
    }

    /// How often the second level failed in a load, or after one.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.second.failures.load(Ordering::Relaxed)
    }

    /// Counts a failure, of which nobody else is told.
    fn note<T, E>(&self, result: Result<T, E>) -> Option<T> {
        if result.is_err() {
            self.second.failures.fetch_add(1, Ordering::Relaxed);
        }
        result.ok()
    }

    /// How long a value lives behind the cache that lives for `own` there, or as the cache says.
    fn lifetime(&self, own: Option<Duration>) -> Option<Duration> {
        let general = self.cache.inner().options.time_to_live;
        let own = own.unwrap_or(Duration::from_micros(general));
        (micros(own) != NEVER).then_some(own)
    }

    fn watch(&self, key: &K) -> Watch<'_, K, V, S> {
        let inner = self.cache.inner();
        let hash = inner.hasher.hash_one(key);
        inner.watch(&mut inner.cell(hash), hash)
    }

    /// Stores a value in memory, and watches its key from then on.
    fn remember(
        &self,
        key: &K,
        value: &V,
        own: Option<Duration>,
    ) -> Result<Watch<'_, K, V, S>, Closed<V>> {
        let inner = self.cache.inner();
        let hash = inner.hasher.hash_one(key);
        let (stored, watch) = inner.store_watched(hash, key.clone(), value.clone(), own);
        stored.map_err(|value| Closed { value })?;
        Ok(watch)
    }

    /// Once a value has been written to the store: whether the key has changed since. If so, or if the
    /// value has left memory, what came there from the store meanwhile may be older: it is removed,
    /// and what is on its way is not stored.
    fn settle(&self, key: &K, watch: &Watch<'_, K, V, S>) -> bool {
        let inner = self.cache.inner();
        let mut gone = Gone::new();
        let mut cell = inner.cell(watch.hash);
        let has_changed = !cell.fences.is_unchanged(watch.hash, watch.number());
        if has_changed || cell.shard.find(watch.hash, |other| other == key).is_none() {
            inner.remove_in(&mut cell, watch.hash, |other| other == key, &mut gone);
        }
        drop(cell);
        inner.tell(gone);
        has_changed
    }

    fn has_changed(&self, watch: &Watch<'_, K, V, S>) -> bool {
        let mut cell = self.cache.inner().cell(watch.hash);
        !cell.fences.is_unchanged(watch.hash, watch.number())
    }
}

impl<K, V, L, S> Layered<K, V, L, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: SecondLevel<K, V>,
    S: BuildHasher,
{
    /// The value at `key` in memory, or behind it, from where it comes into memory.
    ///
    /// # Errors
    /// When it is not in memory and the second level failed.
    pub fn get(&self, key: &K) -> Result<Option<V>, L::Error> {
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        let watch = self.watch(key);
        let found = self.second.store.get(key)?;
        Ok(found.map(|loaded| self.cache.loaded(loaded, key, &watch)))
    }

    /// As [`Cache::take`]; `load` is only asked when neither level has the value, and what it gives is
    /// stored at both.
    ///
    /// # Errors
    /// As [`Cache::take`]. Failures of the second level are [counted](Self::failures).
    ///
    /// # Panics
    /// When `load` does, on the thread that ran it only.
    pub fn take<T: Into<Loaded<V>>>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> T,
    ) -> Result<V, TakeError<std::convert::Infallible>> {
        self.try_take(key, |key| Ok(load(key)))
    }

    /// The same for a load that can fail.
    ///
    /// # Errors
    /// As [`Cache::try_take`]. Failures of the second level are [counted](Self::failures).
    ///
    /// # Panics
    /// When `load` does, on the thread that ran it only.
    pub fn try_take<T, E>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> Result<T, E>,
    ) -> Result<V, TakeError<E>>
    where
        T: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        self.cache.try_take(key, |key| {
            let store = &self.second.store;
            let watch = self.watch(key);
            if let Some(Some(found)) = self.note(store.get(key)) {
                return Ok(found);
            }
            let loaded: Loaded<V> = load(key)?.into();
            let lifetime = self.lifetime(loaded.lifetime());
            if lifetime != Some(Duration::ZERO) {
                self.note(store.put(key, loaded.value(), lifetime));
                if self.has_changed(&watch) {
                    self.note(store.del(key));
                }
            }
            Ok(loaded)
        })
    }

    /// Stores a value at both levels, for as long as the cache says.
    ///
    /// # Errors
    /// [`SetError`] when the cache is closed, or the second level failed.
    pub fn set(&self, key: K, value: V) -> Result<(), SetError<V, L::Error>> {
        self.store(key, value, None)
    }

    /// Stores a value at both levels for `lifetime`; zero means expired already, and nothing is there
    /// afterwards.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_with_ttl(
        &self,
        key: K,
        value: V,
        lifetime: Duration,
    ) -> Result<(), SetError<V, L::Error>> {
        self.store(key, value, Some(lifetime))
    }

    /// Removes the value at `key` from both levels, and gives it if it was in memory.
    ///
    /// # Errors
    /// When the second level failed, and may still have it. It has left memory then.
    pub fn remove(&self, key: &K) -> Result<Option<V>, L::Error> {
        let removed = self.cache.remove(key);
        let deleted = self.second.store.del(key);
        // What came from the second level meanwhile.
        let late = self.cache.remove(key);
        deleted.map(|()| removed.or(late))
    }

    fn store(&self, key: K, value: V, own: Option<Duration>) -> Result<(), SetError<V, L::Error>> {
        let store = &self.second.store;
        let watch = self.remember(&key, &value, own)?;
        let lifetime = self.lifetime(own);
        let written = if lifetime == Some(Duration::ZERO) {
            store.del(&key)
        } else {
            store.put(&key, &value, lifetime)
        };
        let has_changed = self.settle(&key, &watch);
        if written.is_err() || has_changed {
            // An older value is worse than none.
            self.note(store.del(&key));
        }
        written.map_err(SetError::Second)
    }
}

/// The same for second levels on whose answers a task waits.
impl<K, V, L, S> Layered<K, V, L, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    L: AsyncSecondLevel<K, V>,
    S: BuildHasher,
{
    /// As [`get`](Self::get).
    ///
    /// # Errors
    /// When it is not in memory and the second level failed.
    pub async fn get_async(&self, key: &K) -> Result<Option<V>, L::Error> {
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        let watch = self.watch(key);
        let found = self.second.store.get(key).await?;
        Ok(found.map(|loaded| self.cache.loaded(loaded, key, &watch)))
    }

    /// As [`Cache::try_take_async`], likewise. Dropped while it writes to the second level, it may leave
    /// there what is older than a change that came meanwhile.
    ///
    /// # Errors
    /// As [`Cache::try_take_async`]. Failures of the second level are [counted](Self::failures).
    pub async fn try_take_async<T, E>(
        &self,
        key: K,
        load: impl Future<Output = Result<T, E>>,
    ) -> Result<V, TakeError<E>>
    where
        T: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        let store = &self.second.store;
        let asked = key.clone();
        let load = async {
            let watch = self.watch(&asked);
            if let Some(Some(found)) = self.note(store.get(&asked).await) {
                return Ok(found);
            }
            let loaded: Loaded<V> = load.await?.into();
            let lifetime = self.lifetime(loaded.lifetime());
            if lifetime != Some(Duration::ZERO) {
                self.note(store.put(&asked, loaded.value(), lifetime).await);
                if self.has_changed(&watch) {
                    self.note(store.del(&asked).await);
                }
            }
            Ok(loaded)
        };
        self.cache.try_take_async(key, load).await
    }

    /// As [`set`](Self::set). Dropped half way the levels may differ: the value may be in memory only,
    /// or be written to the second level after a later one.
    ///
    /// # Errors
    /// [`SetError`] when the cache is closed, or the second level failed.
    pub async fn set_async(&self, key: K, value: V) -> Result<(), SetError<V, L::Error>> {
        self.store_async(key, value, None).await
    }

    /// As [`set_with_ttl`](Self::set_with_ttl), likewise.
    ///
    /// # Errors
    /// As [`set_async`](Self::set_async).
    pub async fn set_with_ttl_async(
        &self,
        key: K,
        value: V,
        lifetime: Duration,
    ) -> Result<(), SetError<V, L::Error>> {
        self.store_async(key, value, Some(lifetime)).await
    }

    /// As [`remove`](Self::remove). Dropped half way it may have removed the value from memory only.
    ///
    /// # Errors
    /// When the second level failed, and may still have it. It has left memory then.
    pub async fn remove_async(&self, key: &K) -> Result<Option<V>, L::Error> {
        let removed = self.cache.remove(key);
        let deleted = self.second.store.del(key).await;
        // What came from the second level meanwhile.
        let late = self.cache.remove(key);
        deleted.map(|()| removed.or(late))
    }

    async fn store_async(
        &self,
        key: K,
        value: V,
        own: Option<Duration>,
    ) -> Result<(), SetError<V, L::Error>> {
        let store = &self.second.store;
        let watch = self.remember(&key, &value, own)?;
        let lifetime = self.lifetime(own);
        let written = if lifetime == Some(Duration::ZERO) {
            store.del(&key).await
        } else {
            store.put(&key, &value, lifetime).await
        };
        let has_changed = self.settle(&key, &watch);
        if written.is_err() || has_changed {
            // An older value is worse than none.
            self.note(store.del(&key).await);
        }
        written.map_err(SetError::Second)
    }
}

impl<K: Hash + Eq, V, L, S: BuildHasher> Clone for Layered<K, V, L, S> {
    fn clone(&self) -> Self {
        Layered {
            cache: self.cache.clone(),
            second: self.second.clone(),
        }
    }
}

impl<K: Hash + Eq, V, L, S: BuildHasher> fmt::Debug for Layered<K, V, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
