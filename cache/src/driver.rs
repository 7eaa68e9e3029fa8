//! [`Driver`]: a thread that reclaims what has expired in any number of caches.
//!
//! It sleeps until the earliest deadline of its caches, at least an interval at a time, so that
//! deadlines that lie close together cost one wake-up. A store with an earlier deadline wakes it.
//!
//! # The hand-shake
//! A cache publishes until when its driver sleeps on its account ([`Sleep`]).
//! 1. The driver publishes "for ever": any store with a deadline is to wake it.
//! 2. It looks at the deadlines in each shard, under the shard's lock.
//! 3. It publishes the earliest, and sleeps unless it has been woken.
//!
//! A storer writes its deadline under the shard's lock and then reads what is published. If it had the
//! lock before step 2 came to the shard, the driver sees the deadline. If it had it afterwards, it
//! sees what step 1 published, or step 3: it wakes the driver, or its deadline is not the earliest.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wheelhouse_wheel::Driven;

use crate::Cache;
use crate::inner::Inner;
use crate::reclaim::STEP;
use crate::shard::{Micros, NEVER};

/// How long it sleeps at least.
const INTERVAL: Duration = Duration::from_millis(50);

/// Until when a cache's driver sleeps on its account, as [`Micros`]: 0 where there is no driver.
#[derive(Default)]
pub(crate) struct Sleep {
    /// Ordered by the locks of the shards: see the hand-shake. Relaxed.
    until: AtomicU64,
    driver: Mutex<Weak<State>>,
}

/// A cache as the driver sees it.
trait Reclaims: Send + Sync {
    /// One step; whether there may be more.
    fn step(&self) -> bool;

    /// Steps 1 to 3 of the hand-shake: the instant of the earliest deadline.
    fn sleep(&self) -> Option<Instant>;

    /// Whether this driver is the one that counts.
    fn is_driven_by(&self, driver: &State) -> bool;
}

impl Sleep {
    /// Wakes the driver if it sleeps for longer than until `deadline`.
    #[inline]
    pub(crate) fn wake_before(&self, deadline: Micros) {
        if deadline < self.until.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One storer is enough.
        self.until.store(0, Ordering::Relaxed);
        let driver = self.driver.lock().upgrade();
        if let Some(driver) = driver {
            driver.work.lock().woken = true;
            driver.changed.notify_one();
        }
    }
}

impl<K, V, S> Reclaims for Inner<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn step(&self) -> bool {
        self.reclaim_all(STEP).1
    }

    fn sleep(&self) -> Option<Instant> {
        self.sleep.until.store(NEVER, Ordering::Relaxed);
        let deadline = self.next_deadline();
        self.sleep
            .until
            .store(deadline.unwrap_or(NEVER), Ordering::Relaxed);
        self.time.instant(deadline?)
    }

    fn is_driven_by(&self, driver: &State) -> bool {
        std::ptr::eq(self.sleep.driver.lock().as_ptr(), driver)
    }
}

/// On a clock that is moved by hand, whoever moves it reclaims.
impl<K, V, S> Driven for Inner<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn catch_up(&self) {
        while self.step() {}
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadline = Inner::next_deadline(self)?;
        self.time.instant(deadline)
    }
}

/// A thread that reclaims what expires in the caches that it is given, in steps of 128 entries.
///
/// Its caches may go before it. The thread ends when the last clone of the driver is dropped; it is
/// waited for, unless a listener that runs on it drops the driver.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_cache::{Cache, Driver, Reclaim};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::builder()
///     .capacity(100)
///     .reclaim(Reclaim::OnRequest)
///     .build()?;
/// let driver = Driver::start()?;
/// driver.drive(&cache);
/// cache.set_with_ttl("short", 1, Duration::from_millis(1))?;
/// while !cache.is_empty() {
///     std::thread::yield_now();
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "the thread ends when the driver is dropped"]
pub struct Driver {
    shared: Arc<Stopper>,
}

/// Ends the thread when it goes.
struct Stopper {
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct State {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    caches: Vec<Weak<dyn Reclaims>>,
    stopped: bool,
    woken: bool,
}

impl Driver {
    /// Starts the thread, without caches: it sleeps.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        let state = Arc::new(State {
            work: Mutex::default(),
            changed: Condvar::new(),
        });
        let runs = state.clone();
        let thread = thread::Builder::new()
            .name("wheelhouse-cache".to_owned())
            .spawn(move || runs.run())?;
        let shared = Stopper {
            state,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Driver {
            shared: Arc::new(shared),
        })
    }

    /// Reclaims what expires in this cache from now on, until it is gone. On a clock that is moved by
    /// hand, whoever moves it does; the last driver of
    /// a cache is the one that counts.
    pub fn drive<K, V, S>(&self, cache: &Cache<K, V, S>)
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        let inner = cache.inner().clone();
        if let Some(clock) = inner.time.clock() {
            let driven: Arc<dyn Driven> = inner.clone();
            if clock.register(Arc::downgrade(&driven)) {
                return;
            }
        }
        *inner.sleep.driver.lock() = Arc::downgrade(&self.shared.state);
        let inner: Arc<dyn Reclaims> = inner;
        let mut work = self.shared.state.work.lock();
        work.caches.push(Arc::downgrade(&inner));
        work.woken = true;
        self.shared.state.changed.notify_one();
    }
}

impl State {
    fn run(&self) {
        loop {
            let caches = {
                let mut work = self.work.lock();
                if work.stopped {
                    return;
                }
                work.woken = false;
                work.caches.retain(|cache| cache.strong_count() > 0);
                work.caches.clone()
            };
            // Outside the lock: this may turn out to hold the last handle of a cache.
            let mut more = false;
            let mut earliest: Option<Instant> = None;
            for cache in caches.iter().filter_map(Weak::upgrade) {
                if !cache.is_driven_by(self) {
                    continue;
                }
                more |= cache.step();
                let next = cache.sleep();
                earliest = earliest.into_iter().chain(next).min();
            }
            if more {
                continue;
            }
            let interval = Instant::now() + INTERVAL;
            let mut work = self.work.lock();
            match earliest {
                _ if work.stopped || work.woken => {}
                Some(earliest) => {
                    self.changed.wait_until(&mut work, earliest.max(interval));
                }
                None => self.changed.wait(&mut work),
            }
        }
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.state.work.lock().stopped = true;
        self.state.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != thread::current().id()
        {
            // It does not panic: listeners are contained.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caches = self.shared.state.work.lock().caches.len();
        f.debug_struct("Driver").field("caches", &caches).finish()
    }
}
