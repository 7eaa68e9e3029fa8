//! [`SingleFlight`]: one computation per key at a time.

#[expect(
    clippy::module_inception,
    reason = "a group of flights, and one of them"
)]
mod flight;
#[cfg(all(test, wheelhouse_loom))]
mod loom_tests;
mod seats;

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use crate::sync::{AtomicU64, Map, Ordering};

use flight::{Flight, News};
use seats::{Boarded, Lead, Wait, block_on};

/// Lets callers that want the same thing at the same time share one computation of it.
///
/// The first caller for a key leads: it computes, on its own thread or task. Callers that come
/// meanwhile wait and get a clone of what it returns, success or error. Once it is over the next
/// caller starts afresh: nothing is kept.
///
/// ```
/// use wheelhouse_collection::SingleFlight;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flights = SingleFlight::<&str, u32>::new();
/// let calls = std::sync::atomic::AtomicU32::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let answer = flights.run("answer", || {
///                 calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///                 std::thread::sleep(std::time::Duration::from_millis(20));
///                 42
///             });
///             assert_eq!(answer, Ok(42));
///         });
///     }
/// });
/// let stats = flights.stats();
/// assert_eq!(stats.led, u64::from(calls.into_inner()));
/// assert_eq!(stats.led + stats.joined, 4);
/// # Ok(()) }
/// ```
///
/// A leader that panics, or whose future is dropped, hands over: the next of those who wait computes
/// with what it brought along itself. Nobody takes a panic for a result.
///
/// A computation that asks for its own key, directly or through other keys on the same thread, gets
/// [`FlightError::Recursive`]. Two computations on different threads that wait for each other's keys
/// wait for ever, as with any lock: take keys in one order.
///
/// Sync and async callers may share flights. Waiting in [`run`](Self::run) blocks the thread; on an
/// async runtime use [`run_async`](Self::run_async).
pub struct SingleFlight<K, V, E = std::convert::Infallible> {
    flights: Map<K, Arc<Flight<Result<V, E>>>>,
    counts: Counts,
}

/// Relaxed throughout: nothing is read through a count.
#[derive(Debug)]
struct Counts {
    led: AtomicU64,
    joined: AtomicU64,
    handed_over: AtomicU64,
    recursive: AtomicU64,
}

/// Why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError<E> {
    /// The computation failed. Everyone who waited for it gets this.
    #[error("{0}")]
    Failed(E),
    /// The computation of this key asked for this key, which would wait for ever.
    #[error("the computation of a key asked for the same key; compute it from others")]
    Recursive,
}

/// What [`SingleFlight`] has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlightStats {
    /// Computations that began.
    pub led: u64,
    /// Calls that got the result of another's computation.
    pub joined: u64,
    /// Computations that ended without a result, and that one who waited began anew.
    pub handed_over: u64,
    /// Calls that were refused because they would have waited for themselves.
    pub recursive: u64,
    /// Keys that are being computed at this moment.
    pub in_flight: u64,
}

impl<K, V, E> SingleFlight<K, V, E>
where
    K: Eq + Hash + Clone,
    V: Clone,
    E: Clone,
{
    /// Nothing in flight.
    ///
    /// ```
    /// use wheelhouse_collection::SingleFlight;
    ///
    /// let flights = SingleFlight::<&str, u32>::new();
    /// assert_eq!(flights.stats().in_flight, 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        SingleFlight {
            flights: Map::new(),
            counts: Counts {
                led: AtomicU64::new(0),
                joined: AtomicU64::new(0),
                handed_over: AtomicU64::new(0),
                recursive: AtomicU64::new(0),
            },
        }
    }

    /// The value that `compute` returns, or another caller's, if one is being computed for `key`.
    ///
    /// ```
    /// use wheelhouse_collection::SingleFlight;
    ///
    /// let flights = SingleFlight::<&str, u32>::new();
    /// assert_eq!(flights.run("answer", || 42), Ok(42));
    /// ```
    ///
    /// # Errors
    ///
    /// [`FlightError::Recursive`] from within the computation of the same key, and
    /// [`FlightError::Failed`] if it was another's computation that failed.
    ///
    /// # Panics
    ///
    /// When `compute` does, on the thread that ran it only.
    pub fn run(&self, key: K, compute: impl FnOnce() -> V) -> Result<V, FlightError<E>> {
        self.try_run(key, || Ok(compute()))
    }

    /// The same for a computation that can fail.
    ///
    /// ```
    /// use wheelhouse_collection::{FlightError, SingleFlight};
    ///
    /// let flights = SingleFlight::<u32, String, String>::new();
    /// let failed = flights.try_run(7, || Err("no such user".into()));
    /// assert_eq!(failed, Err(FlightError::Failed("no such user".into())));
    ///
    /// let recursive = flights.try_run(7, || {
    ///     flights.run(7, String::new).map_err(|error| error.to_string())
    /// });
    /// assert!(recursive.unwrap_err().to_string().contains("same key"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`FlightError::Failed`] with what the computation returned, its own or another caller's;
    /// [`FlightError::Recursive`] from within the computation of the same key.
    ///
    /// # Panics
    ///
    /// When `compute` does, on the thread that ran it only.
    pub fn try_run(
        &self,
        key: K,
        compute: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, FlightError<E>> {
        let lead = match self.board(key) {
            Boarded::Leading(lead) => lead,
            Boarded::Waiting(wait) => match block_on(|context| wait.poll(context)) {
                News::Landed(result) => return wait.joined(&result),
                News::Promoted => wait.take_over(),
                News::Recursive => return Err(wait.refused()),
            },
        };
        lead.enter();
        let result = compute();
        lead.land(result)
    }

    /// The output of `work`, or of another caller's, if one is being computed for `key`. A future
    /// that is not needed is dropped without having been polled.
    ///
    /// ```
    /// use wheelhouse_collection::SingleFlight;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let flights = SingleFlight::<&str, u32>::new();
    /// let slow = || async {
    ///     tokio::task::yield_now().await;
    ///     42
    /// };
    /// let (first, second) = tokio::join!(
    ///     flights.run_async("answer", slow()),
    ///     flights.run_async("answer", slow()),
    /// );
    /// assert_eq!((first, second), (Ok(42), Ok(42)));
    /// assert_eq!(flights.stats().led, 1);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// When `work` does, in the task that polled it only.
    pub async fn run_async(
        &self,
        key: K,
        work: impl Future<Output = V>,
    ) -> Result<V, FlightError<E>> {
        self.try_run_async(key, async { Ok(work.await) }).await
    }

    /// The same for a computation that can fail.
    ///
    /// ```
    /// use wheelhouse_collection::{FlightError, SingleFlight};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let flights = SingleFlight::<&str, u32, &str>::new();
    /// let failed = flights.try_run_async("answer", async { Err("not yet") }).await;
    /// assert_eq!(failed, Err(FlightError::Failed("not yet")));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_run`](Self::try_run).
    ///
    /// # Panics
    ///
    /// When `work` does, in the task that polled it only.
    pub async fn try_run_async(
        &self,
        key: K,
        work: impl Future<Output = Result<V, E>>,
    ) -> Result<V, FlightError<E>> {
        let lead = match self.board(key) {
            Boarded::Leading(lead) => lead,
            Boarded::Waiting(wait) => match poll_fn(|context| wait.poll(context)).await {
                News::Landed(result) => return wait.joined(&result),
                News::Promoted => wait.take_over(),
                News::Recursive => return Err(wait.refused()),
            },
        };
        let mut work = pin!(work);
        let result = poll_fn(|context| {
            lead.enter();
            let output = work.as_mut().poll(context);
            lead.leave();
            output
        })
        .await;
        lead.land(result)
    }

    /// Detaches the computation of `key`, if there is one: those who wait still get its result, and
    /// the next caller starts afresh. Says whether there was one.
    ///
    /// ```
    /// use wheelhouse_collection::SingleFlight;
    ///
    /// let flights = SingleFlight::<&str, u32>::new();
    /// let outer = flights.run("key", || {
    ///     // What is being computed is out of date already.
    ///     assert!(flights.forget(&"key"));
    ///     let fresh = flights.run("key", || 2);
    ///     assert_eq!(fresh, Ok(2));
    ///     1
    /// });
    /// assert_eq!(outer, Ok(1));
    /// assert!(!flights.forget(&"key"));
    /// ```
    pub fn forget(&self, key: &K) -> bool {
        self.flights.remove_if(key, |_| true).is_some()
    }

    /// What has been done so far. Counts are read one after the other.
    ///
    /// ```
    /// use wheelhouse_collection::SingleFlight;
    ///
    /// let flights = SingleFlight::<&str, u32>::new();
    /// for _ in 0..3 {
    ///     let _ = flights.run("answer", || 42);
    /// }
    /// assert_eq!((flights.stats().led, flights.stats().joined), (3, 0));
    /// ```
    #[must_use]
    pub fn stats(&self) -> FlightStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FlightStats {
            led: read(&self.counts.led),
            joined: read(&self.counts.joined),
            handed_over: read(&self.counts.handed_over),
            recursive: read(&self.counts.recursive),
            in_flight: self.flights.len() as u64,
        }
    }

    fn board(&self, key: K) -> Boarded<'_, K, V, E> {
        let found = |flight: &Arc<Flight<Result<V, E>>>| (flight.clone(), flight.sit_down(), false);
        let made = || {
            let (flight, seat) = Flight::new();
            let flight = Arc::new(flight);
            (flight.clone(), (flight, seat, true))
        };
        match self.flights.enter(&key, found, made) {
            (flight, _, true) => {
                count(&self.counts.led);
                Boarded::Leading(Lead::new(self, key, flight))
            }
            (flight, seat, false) => Boarded::Waiting(Wait::new(self, key, flight, seat)),
        }
    }
}

impl<K, V, E> Default for SingleFlight<K, V, E>
where
    K: Eq + Hash + Clone,
    V: Clone,
    E: Clone,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, E> fmt::Debug for SingleFlight<K, V, E>
where
    K: Eq + Hash + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("in_flight", &self.flights.len())
            .finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
