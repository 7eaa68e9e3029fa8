//! Values that are loaded anew before their deadline, in the background.
//!
//! A caller that finds a value old claims its key and hands a [`Reload`] to the user's `spawn`. The
//! claim is a watch over the key's fence: what is loaded is stored only if the key has not changed
//! since, and the claim of a load that hangs ends with the next change. Such loads board no flight, so
//! nobody waits for one that hangs: after the deadline a caller loads the key itself.
//!
//! A reload holds the cache weakly: it does not keep it alive.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crossbeam_utils::sync::{Parker, Unparker};

use crate::cache::Shared;
use crate::shard::{Entry, Micros, NEVER};
use crate::take::Loader;
use crate::{Cache, Loaded, TakeError};

/// A load that is to be made in the background, by whatever the cache was given for it.
///
/// It is a future, for an async runtime to spawn, and can be [run](Self::run) on a thread. Dropped
/// before its end, it loads nothing, and the next caller makes another.
#[must_use = "nothing is loaded before it is polled or run"]
pub struct Reload(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Reload {
    /// Loads on this thread, which waits where the load does.
    ///
    /// # Panics
    /// When the load does.
    pub fn run(self) {
        // Not the thread's own token, which a load that blocks may take.
        struct Unpark(Unparker);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let parker = Parker::new();
        let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(self.0);
        while work.as_mut().poll(&mut context).is_pending() {
            parker.park();
        }
    }
}

impl Future for Reload {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").finish_non_exhaustive()
    }
}

/// Loads in the background, as [`Builder::refresh_after`](crate::Builder::refresh_after) says.
impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value at `key`, as [`take`](Self::take); where it is old it is given at once, and `load` is
    /// run in the background, once for all who ask.
    ///
    /// If that load fails the old value stays until its deadline, or
    /// [longer](crate::Builder::stale_on_error), and the next caller has it tried again. One that hangs holds
    /// up nobody: after the deadline the next caller loads the key itself.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse_cache::Cache;
    /// # use wheelhouse_wheel::ManualClock;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::new();
    /// let cache = Cache::builder()
    ///     .capacity(10)
    ///     .time_to_live(Duration::from_secs(60))
    ///     .refresh_after(Duration::from_secs(10), |reload| reload.run())
    ///     .clock(clock.clone())
    ///     .build()?;
    /// assert_eq!(cache.take_refreshing("answer", |_| 42)?, 42);
    /// clock.advance(Duration::from_secs(20));
    /// assert_eq!(cache.take_refreshing("answer", |_| 43)?, 42); // the old one
    /// assert_eq!(cache.take_refreshing("answer", |_| 44)?, 43);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`take`](Cache::take).
    ///
    /// # Panics
    /// When `load` does where there was no value, on the thread that ran it only.
    pub fn take_refreshing<L: Into<Loaded<V>>>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> L + Send + 'static,
    ) -> Result<V, TakeError<Infallible>> {
        self.try_take_refreshing(key, |key| Ok(load(key)))
    }

    /// The same for a load that can fail.
    ///
    /// # Errors
    /// As [`try_take`](Self::try_take). Who gets an old value hears nothing of a failure.
    ///
    /// # Panics
    /// As [`take_refreshing`](Self::take_refreshing).
    pub fn try_take_refreshing<L, E>(
        &self,
        key: K,
        load: impl FnOnce(&K) -> Result<L, E> + Send + 'static,
    ) -> Result<V, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        Loader::try_take_refreshing(&self.shared, key, load)
    }

    /// [`take_refreshing`](Self::take_refreshing) for a future, which is polled here where there is no
    /// value, and in the background where there is an old one.
    ///
    /// # Errors
    /// As [`take`](Cache::take).
    pub async fn take_refreshing_async<L: Into<Loaded<V>>>(
        &self,
        key: K,
        load: impl Future<Output = L> + Send + 'static,
    ) -> Result<V, TakeError<Infallible>> {
        self.try_take_refreshing_async(key, async { Ok(load.await) })
            .await
    }

    /// The same for a load that can fail.
    ///
    /// # Errors
    /// As [`try_take_refreshing`](Self::try_take_refreshing).
    pub async fn try_take_refreshing_async<L, E>(
        &self,
        key: K,
        load: impl Future<Output = Result<L, E>> + Send + 'static,
    ) -> Result<V, TakeError<E>>
    where
        L: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        Loader::try_take_refreshing_async(&self.shared, key, load).await
    }
}

/// When and where values are loaded anew.
#[derive(Clone)]
pub(crate) struct Refresh {
    /// How old a value is then that lives as long as the cache says.
    pub(crate) age: Micros,
    /// How long before its deadline a value is old.
    window: Micros,
    spawn: Arc<dyn Fn(Reload) + Send + Sync>,
}

impl fmt::Debug for Refresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresh")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl Refresh {
    pub(crate) fn new(spawn: impl Fn(Reload) + Send + Sync + 'static) -> Self {
        Refresh {
            age: 0,
            window: 0,
            spawn: Arc::new(spawn),
        }
    }

    /// A value is old at `age` where it lives for `life`.
    pub(crate) fn at(mut self, age: Micros, life: Micros) -> Self {
        self.age = age;
        self.window = life.saturating_sub(age).max(1);
        self
    }

    /// Whether a value that lives until `hard`, whatever hits do, is old at `now`.
    #[inline]
    pub(crate) fn is_due<K, V>(
        &self,
        entry: &Entry<K, V>,
        hard: Micros,
        now: impl FnOnce() -> Micros,
    ) -> bool {
        entry.is_extended() || (hard != NEVER && hard <= now().saturating_add(self.window))
    }
}

/// The right to load a key anew. To be dropped outside the shard's lock.
struct Claim<K: Hash + Eq, V, S: BuildHasher> {
    shared: Weak<Shared<K, V, S>>,
    hash: u64,
    number: u64,
}

impl<K: Hash + Eq, V, S: BuildHasher> Drop for Claim<K, V, S> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut cell = shared.inner.cell(self.hash);
            cell.fences.give_up(self.hash, self.number);
        }
    }
}

impl<K, V, S> Shared<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Hands a load of the key to the background. The fence has been claimed at `number`.
    pub(crate) fn reload<E, L, F>(
        self: &Arc<Self>,
        hash: u64,
        number: u64,
        key: K,
        load: impl FnOnce(&K) -> F,
    ) where
        E: Send + Sync + 'static,
        L: Into<Loaded<V>>,
        F: Future<Output = Result<L, E>> + Send + 'static,
    {
        let Some(refresh) = &self.inner.options.refresh else {
            return;
        };
        let claim = Claim {
            shared: Arc::downgrade(self),
            hash,
            number,
        };
        let load = load(&key);
        let work = async move {
            let began = Instant::now();
            let loaded = load.await.map(Into::into);
            // The last handle may have gone meanwhile, and the values with it.
            if let Some(shared) = claim.shared.upgrade() {
                let loader = Loader::of(&shared);
                let _loaded = loader.landed(loaded, began, &key, hash, number);
            }
        };
        // A count: nothing is read through it.
        self.flights.reloads.fetch_add(1, Ordering::Relaxed);
        let reload = Reload(Box::pin(work));
        // It drops what it does not run, and with that the claim.
        if catch_unwind(AssertUnwindSafe(|| (refresh.spawn)(reload))).is_err() {
            self.inner.listener.has_panicked();
        }
    }
}
