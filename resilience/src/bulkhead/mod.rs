//! At most so many at a time: [`Bulkhead`].
//!
//! A bulkhead keeps one slow dependency from taking every thread, connection or byte of memory of a
//! process: calls take a permit, and who gets none is refused at once, or waits in a queue that is
//! bounded and first in, first out.
//!
//! ```
//! use wheelhouse_resilience::Bulkhead;
//!
//! let database = Bulkhead::new(2);
//! let first = database.try_acquire().unwrap();
//! let _second = database.try_acquire().unwrap();
//! assert_eq!(database.try_acquire().unwrap_err().permits, 2);
//! drop(first);
//! assert!(database.try_acquire().is_ok());
//! ```
//!
//! Unlike `tokio::sync::Semaphore` it has a bound on who waits and for how long, shrinks as well as
//! it grows, and serves threads without a runtime. It has no weights: a call is one permit.
//!
//! # Guarantees
//!
//! - B1, never more: at no instant are more permits handed out than there are. When their number
//!   falls those that are out stay valid, and none is handed out until enough have come back.
//! - B2, in order: who waits gets a permit in the order of arrival, and nobody who comes later takes
//!   one past the queue, [`try_acquire`](Bulkhead::try_acquire) included.
//! - B3, none lost: a future that is dropped in the queue leaves it; one that is dropped after a permit
//!   was granted to it, before it noticed, passes the permit on; a permit that is dropped, by a panic
//!   too, comes back. A future that has completed holds nothing.
//! - B4, who won: a wait that times out at the moment a permit is granted returns the permit.
//! - B5, code of others: a waker, recorder or subscriber that panics is counted, and changes nothing
//!   for anybody else.

mod acquire;
mod error;
mod gate;
mod meters;
mod permit;

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(wheelhouse_loom))]
use std::time::Instant;

pub use acquire::{Acquire, AcquireOwned};
pub use error::{Full, WaitError};
pub use permit::{OwnedPermit, Permit};

pub(crate) use gate::MAX_PERMITS;

use crate::BuildError;
use crate::contain::Contained;
use crate::text;

use gate::Gate;
use meters::Meters;
use permit::Held;

/// A number of permits, and a bounded queue of those who wait for one.
///
/// Clones share them. Taking a permit that is free is one atomic exchange, giving it back one
/// subtraction; only where somebody waits is a lock taken, and then the cost is logarithmic in the
/// length of the queue.
///
/// See the [module](self) for what it guarantees.
#[derive(Clone)]
pub struct Bulkhead {
    shared: Arc<Shared>,
}

impl Bulkhead {
    /// A bulkhead of so many permits in which nobody waits.
    ///
    /// With 0 permits every call is refused until [`resize`](Self::resize).
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let closed = Bulkhead::new(0);
    /// assert!(closed.try_acquire().is_err());
    /// closed.resize(1).unwrap();
    /// assert!(closed.try_acquire().is_ok());
    /// ```
    ///
    /// # Panics
    ///
    /// With more than 2 147 483 647 permits; the [builder](Self::builder) refuses them instead.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        match Self::builder(permits).build() {
            Ok(bulkhead) => bulkhead,
            Err(error) => panic!("{error}"),
        }
    }

    /// A bulkhead of so many permits with further choices.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let search = Bulkhead::builder(10).name("search").queue(50).build()?;
    /// assert_eq!((search.permits(), search.name()), (10, "search"));
    /// # Ok(()) }
    /// ```
    pub fn builder(permits: usize) -> BulkheadBuilder {
        BulkheadBuilder {
            permits,
            queue: 0,
            max_wait: None,
            name: None,
        }
    }

    /// A permit, if one is free and nobody waits.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(1);
    /// let permit = bulkhead.try_acquire().unwrap();
    /// assert_eq!(bulkhead.in_use(), 1);
    /// drop(permit);
    /// assert_eq!(bulkhead.in_use(), 0);
    /// ```
    ///
    /// # Errors
    ///
    /// [`Full`] otherwise.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, Full> {
        match self.shared.gate.try_take() {
            true => Ok(Held::new(&*self.shared).into()),
            false => Err(self.shared.full(0)),
        }
    }

    /// [`try_acquire`](Self::try_acquire) for a permit that outlives the borrow.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(1);
    /// let permit = bulkhead.try_acquire_owned().unwrap();
    /// let worker = std::thread::spawn(move || drop(permit));
    /// worker.join().unwrap();
    /// assert_eq!(bulkhead.in_use(), 0);
    /// ```
    ///
    /// # Errors
    ///
    /// [`Full`] if no permit is free or somebody waits.
    #[inline]
    pub fn try_acquire_owned(&self) -> Result<OwnedPermit, Full> {
        match self.shared.gate.try_take() {
            true => Ok(Held::new(self.shared.clone()).into()),
            false => Err(self.shared.full(0)),
        }
    }

    /// A permit, for which this thread blocks in the queue for at most `timeout`, or the bulkhead's own
    /// limit if that is less. `Duration::MAX` is for ever.
    ///
    /// The time is real, by the system's clock, and no other clock can be given: the thread sleeps in
    /// the system, which a clock of a test's or tokio's paused one does not wake. Tests in virtual time
    /// use [`acquire`](Self::acquire).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Bulkhead;
    /// use wheelhouse_resilience::bulkhead::WaitError;
    ///
    /// let bulkhead = Bulkhead::builder(1).queue(1).build().unwrap();
    /// let _held = bulkhead.try_acquire().unwrap();
    /// let wait = Duration::from_millis(1);
    /// assert_eq!(bulkhead.acquire_timeout(wait).unwrap_err(), WaitError::TimedOut(wait));
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::Full`] if the queue has no place, [`WaitError::TimedOut`] if no permit came in
    /// time.
    #[cfg(not(wheelhouse_loom))]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit<'_>, WaitError> {
        self.shared.block(timeout)?;
        Ok(Held::new(&*self.shared).into())
    }

    /// A permit, as a future that waits in the queue, at most for as long as the bulkhead allows.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::builder(1).queue(10).build()?;
    /// let permit = bulkhead.acquire().await?;
    /// assert_eq!(bulkhead.in_use(), 1);
    /// # drop(permit);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The future returns [`WaitError::Full`] if the queue has no place, [`WaitError::TimedOut`] if no
    /// permit came in time.
    ///
    /// # Panics
    ///
    /// The future panics when it has to wait with a limit and is not polled in a tokio runtime with
    /// its timer, and when it is polled after it was ready.
    pub fn acquire(&self) -> Acquire<'_> {
        Acquire::new(&self.shared)
    }

    /// [`acquire`](Self::acquire) for a permit, and a future, that outlive the borrow.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(1);
    /// let permit = bulkhead.acquire_owned().await?;
    /// tokio::spawn(async move { drop(permit) }).await?;
    /// assert_eq!(bulkhead.in_use(), 0);
    /// # Ok(()) }
    /// ```
    pub fn acquire_owned(&self) -> AcquireOwned {
        AcquireOwned::new(self.shared.clone())
    }

    /// Sets the number of permits, 0 to 2 147 483 647.
    ///
    /// New ones go to the queue first. When there are fewer than are in use, those in use stay
    /// valid, and none is handed out until enough have come back.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(2);
    /// let held = (bulkhead.try_acquire().unwrap(), bulkhead.try_acquire().unwrap());
    /// bulkhead.resize(1).unwrap();
    /// assert_eq!((bulkhead.permits(), bulkhead.in_use()), (1, 2));
    /// drop(held.0);
    /// assert!(bulkhead.try_acquire().is_err());
    /// # drop(held.1);
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when there are more: nothing has changed.
    pub fn resize(&self, permits: usize) -> Result<(), BuildError> {
        self.resize_to(checked_permits(permits)?);
        Ok(())
    }

    /// [`resize`](Self::resize) to what is in range.
    pub(crate) fn resize_to(&self, permits: usize) {
        self.shared.gate.resize(permits);
        let permits = self.permits();
        self.shared
            .observers
            .run(|| self.shared.meters.permits(permits));
    }

    /// The name it was given, `"bulkhead"` without one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.name.as_deref().unwrap_or("bulkhead")
    }

    /// How many permits there are.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.shared.gate.permits()
    }

    /// How many permits are out, or granted to somebody in the queue who has not noticed yet.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.gate.in_use()
    }

    /// How many wait for a permit. Takes the lock of the queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.shared.gate.queued()
    }

    /// The present figures and totals. Each is right by itself; together they are no snapshot of one
    /// instant.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// let bulkhead = Bulkhead::new(0);
    /// let _ = bulkhead.try_acquire();
    /// assert_eq!(bulkhead.stats().rejected, 1);
    /// ```
    #[must_use]
    pub fn stats(&self) -> BulkheadStats {
        let totals = &self.shared.totals;
        // Relaxed: nothing else is read through these counters.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BulkheadStats {
            permits: self.permits(),
            in_use: self.in_use(),
            queued: self.queued(),
            waited: read(&totals.waited),
            rejected: read(&totals.rejected),
            timed_out: read(&totals.timed_out),
            cancelled: read(&totals.cancelled),
            contained_panics: self.shared.gate.waker_panics() + self.shared.observers.panics(),
        }
    }
}

impl fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulkhead")
            .field("name", &self.name())
            .field("permits", &self.permits())
            .field("in_use", &self.in_use())
            .field("queue", &self.shared.queue)
            .finish_non_exhaustive()
    }
}

/// What a bulkhead has done and holds: [`Bulkhead::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BulkheadStats {
    /// Permits that there are.
    pub permits: usize,
    /// Permits that are out, or granted and not noticed yet.
    pub in_use: usize,
    /// Callers in the queue.
    pub queued: usize,
    /// Permits that were waited for and taken. Those that were free are not counted.
    pub waited: u64,
    /// Callers refused for want of a permit and a place to wait.
    pub rejected: u64,
    /// Callers whose wait ended without a permit.
    pub timed_out: u64,
    /// Futures dropped while they waited, or with a permit that they had not noticed.
    pub cancelled: u64,
    /// How often a waker, the metrics recorder or the tracing subscriber panicked. That ends there:
    /// whoever was granted a permit is woken all the same.
    pub contained_panics: u64,
}

/// The choices of a [`Bulkhead`].
///
/// ```
/// use wheelhouse_resilience::Bulkhead;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let search = Bulkhead::builder(10).queue(50).name("search").build()?;
/// assert_eq!(search.permits(), 10);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct BulkheadBuilder {
    permits: usize,
    queue: usize,
    max_wait: Option<Duration>,
    name: Option<String>,
}

impl BulkheadBuilder {
    /// How many may wait. 0, the default, refuses at once whoever finds no permit.
    ///
    /// ```
    /// use std::task::{Context, Waker};
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let bulkhead = Bulkhead::builder(0).queue(1).build()?;
    /// let waiting = bulkhead.acquire_owned();
    /// let mut waiting = std::pin::pin!(waiting);
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(waiting.as_mut().poll(&mut context).is_pending());
    /// assert_eq!(bulkhead.queued(), 1);
    /// # Ok(()) }
    /// ```
    pub fn queue(mut self, places: usize) -> Self {
        self.queue = places;
        self
    }

    /// How long anybody may wait, futures by tokio's clock and threads by the system's; without a
    /// limit they wait for as long as they like, which a timeout around the future bounds too. Zero
    /// leaves room for what is free now and nothing else.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Bulkhead;
    /// use wheelhouse_resilience::bulkhead::WaitError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let second = Duration::from_secs(1);
    /// let full = Bulkhead::builder(0).queue(10).max_wait(second).build()?;
    /// assert_eq!(full.acquire().await.unwrap_err(), WaitError::TimedOut(second));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn max_wait(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.max_wait = limit.into();
        self
    }

    /// What it is called in `tracing` events and metrics.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// assert_eq!(Bulkhead::builder(10).name("search").build()?.name(), "search");
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets an option by its name, from text: for configuration files and command lines.
    ///
    /// The options are `permits` and the methods `queue`, `name` and, with the feature `tokio`,
    /// `max_wait`: a duration with its unit ("10s", "200ms"), or "none". A bare number is refused
    /// there.
    ///
    /// ```
    /// use wheelhouse_resilience::Bulkhead;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let bulkhead = Bulkhead::builder(1).set("permits", "10")?.set("queue", "50")?.build()?;
    /// assert_eq!(bulkhead.permits(), 10);
    /// assert_eq!(Bulkhead::builder(1).set("queue", "ten").unwrap_err().argument(), "queue");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when there is no such option, or the text does not say a value of its kind.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self, BuildError> {
        match option {
            "permits" => self.permits = text::number(option, value, "a whole number")?,
            "queue" => self.queue = text::number(option, value, "a whole number")?,
            "name" => self.name = Some(value.to_owned()),
            #[cfg(feature = "tokio")]
            "max_wait" => {
                self.max_wait = text::optional(value, || text::duration(option, value))?;
            }
            _ => return Err(BuildError::new("option", option, OPTIONS)),
        }
        Ok(self)
    }

    /// The bulkhead.
    ///
    /// # Errors
    ///
    /// [`BuildError`] with more than 2 147 483 647 permits.
    pub fn build(self) -> Result<Bulkhead, BuildError> {
        checked_permits(self.permits)?;
        let meters = Meters::new(self.name.as_deref().unwrap_or("bulkhead"));
        let shared = Shared {
            gate: Gate::new(self.permits, self.queue),
            queue: self.queue,
            max_wait: self.max_wait,
            name: self.name.map(String::into_boxed_str),
            totals: Totals::default(),
            meters,
            observers: Contained::default(),
        };
        let shared = Arc::new(shared);
        let permits = shared.gate.permits();
        shared.observers.run(|| shared.meters.permits(permits));
        Ok(Bulkhead { shared })
    }
}

const OPTIONS: &str = if cfg!(feature = "tokio") {
    "permits, queue, name and max_wait"
} else {
    "permits, queue and name"
};

fn checked_permits(permits: usize) -> Result<usize, BuildError> {
    if permits > MAX_PERMITS {
        let value = permits.to_string();
        return Err(BuildError::new("permits", value, "0 to 2147483647"));
    }
    Ok(permits)
}

/// What clones, permits and futures share.
struct Shared {
    gate: Gate,
    queue: usize,
    #[cfg_attr(
        all(wheelhouse_loom, not(feature = "tokio")),
        expect(dead_code, reason = "models have no time")
    )]
    max_wait: Option<Duration>,
    name: Option<Box<str>>,
    totals: Totals,
    meters: Meters,
    /// What is told to the metrics recorder and the tracing subscriber goes through this.
    observers: Contained,
}

/// Relaxed throughout: they are only read as figures.
#[derive(Debug, Default)]
struct Totals {
    waited: AtomicU64,
    rejected: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
}

impl Shared {
    /// Waits on this thread; afterwards the caller holds a permit.
    #[cfg(not(wheelhouse_loom))]
    fn block(&self, timeout: Duration) -> Result<(), WaitError> {
        if self.gate.try_take() {
            return Ok(());
        }
        let timeout = self.max_wait.map_or(timeout, |limit| timeout.min(limit));
        // `None` lies beyond what the clock can express.
        let deadline = Instant::now().checked_add(timeout);
        let parker = crossbeam_utils::sync::Parker::new();
        let waker = std::task::Waker::from(Arc::new(Unpark(parker.unparker().clone())));
        let seat = match self.gate.take_or_queue(&waker) {
            gate::Turn::Taken => return Ok(()),
            gate::Turn::Full => return Err(self.full(self.queue).into()),
            gate::Turn::Queued(seat) => seat,
        };
        while self.gate.poll(seat, &waker).is_pending() {
            match deadline {
                None => parker.park(),
                Some(deadline) if Instant::now() < deadline => parker.park_deadline(deadline),
                Some(_) if self.gate.leave(seat) => break,
                Some(_) => return Err(self.timed_out(timeout)),
            }
        }
        self.waited();
        Ok(())
    }

    #[cold]
    fn full(&self, queue: usize) -> Full {
        self.totals.rejected.fetch_add(1, Ordering::Relaxed);
        let permits = self.gate.permits();
        self.observers.run(|| {
            self.meters.refused("full");
            #[cfg(feature = "tracing")]
            tracing::debug!(bulkhead = self.name.as_deref(), permits, "bulkhead full");
        });
        Full { permits, queue }
    }

    #[cfg(any(feature = "tokio", not(wheelhouse_loom)))]
    #[cold]
    fn timed_out(&self, limit: Duration) -> WaitError {
        self.totals.timed_out.fetch_add(1, Ordering::Relaxed);
        self.observers.run(|| {
            self.meters.refused("timed_out");
            #[cfg(feature = "tracing")]
            tracing::debug!(
                bulkhead = self.name.as_deref(),
                ?limit,
                "bulkhead wait timed out"
            );
        });
        WaitError::TimedOut(limit)
    }

    fn waited(&self) {
        self.totals.waited.fetch_add(1, Ordering::Relaxed);
        self.observers.run(|| self.meters.waited());
    }

    #[cold]
    fn cancelled(&self) {
        self.totals.cancelled.fetch_add(1, Ordering::Relaxed);
        self.observers.run(|| self.meters.refused("cancelled"));
    }
}

/// Wakes a thread that blocks.
#[cfg(not(wheelhouse_loom))]
struct Unpark(crossbeam_utils::sync::Unparker);

#[cfg(not(wheelhouse_loom))]
impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
