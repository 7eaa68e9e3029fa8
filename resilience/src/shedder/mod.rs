//! [`Shedder`]: turns requests away before a busy server collapses.
//!
//! [`heat`] says whether the processors are too busy, [`sustainable`] how many requests in flight the
//! recent past can bear, [`flight`] how many there are. A request is shed when all three agree.
//!
//! Ground rules: nothing here blocks. What has to be worked out now and then (a sample of the
//! usage, the best of the window, the average in flight) is done by the first call that finds it due
//! and gets the lock; the others go on with what was before, for as long as that takes.

mod builder;
mod flight;
mod heat;
mod priority;
mod sampler;
mod stats;
mod sustainable;

pub use builder::ShedderBuilder;
pub use priority::Priority;
pub use sampler::Sampler;
pub use stats::ShedderStats;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use wheelhouse_wheel::Clock;

use crate::BuildError;
use crate::contain::Contained;
use flight::Flight;
use heat::Heat;
use sustainable::Sustainable;

/// An adaptive load shedder for servers, after go-zero's.
///
/// It needs no figure of what the server can bear. While the processors are busy (their usage,
/// smoothed, at the threshold or so within the last second) it lets in as many requests at once as
/// the last five seconds show to be sustainable, and sheds the others at once, which costs next to
/// nothing. While they are not, it lets everything in.
///
/// ```
/// use wheelhouse_resilience::{Priority, Shedder};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let shedder = Shedder::builder().build()?;
/// match shedder.try_acquire(Priority::Normal) {
///     Ok(promise) => {
///         // Serve the request, and then
///         promise.success();
///     }
///     Err(shed) => println!("503: {shed}"),
/// }
/// assert_eq!(shedder.stats().passed, 1);
/// # Ok(()) }
/// ```
///
/// # How it decides
///
/// A request is shed when it is hot, and both the requests in flight and their average are above
///
/// ```text
/// max(1, best rate × best mean latency) × clamp((1000 − cpu) / (1000 − threshold), 0.1, 1)
/// ```
///
/// - `best rate` and `best mean latency` are those of the best finished bucket of the window, of
///   requests that ended well; by Little's law their product is what was in flight when the server
///   was busy and nothing waited. A window in which nothing passed counts as one request a bucket of
///   one second.
/// - `cpu` is the usage in thousandths of what this process may use (see
///   [`CpuMeter`](crate::CpuMeter)), averaged with the weight 0.95 for the past over 250 ms. The
///   first sample is the average.
/// - The average in flight keeps the weight 0.9 over 10 ms, so that short bursts are let in.
///
/// Of several priorities the lowest are shed first: requests of a priority and those below it may
/// have what the formula says without the places that higher priorities need, which is what these
/// asked for in the last second, shed or not, × best mean latency. Requests of one priority alone are
/// held to the formula.
///
/// # Trade-offs
///
/// The average is slow: a server that was idle is overloaded for some 12 s before it is seen as busy,
/// and what it has let in by then it must serve. [`ShedderBuilder::sample_period`] makes that
/// shorter. Work that does not use the processor (waiting for a database) is not seen at all; there a
/// bulkhead or an adaptive limit is the right tool.
///
/// Clones share one state. A call costs a reading of the clock and some ten atomic operations, never
/// a lock or an allocation, besides two exceptions: once every sample period one call reads the usage
/// (some small files; [`start_sampler`](Self::start_sampler) takes that off the calls), and while it
/// is hot one call in each bucket looks over the window.
#[derive(Clone)]
pub struct Shedder {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    clock: Box<dyn Clock>,
    sample_period: Duration,
    heat: Heat,
    flight: Flight,
    sustainable: Sustainable,
    shed: CachePadded<[AtomicU64; Priority::COUNT]>,
    /// What is told to the metrics recorder and the tracing subscriber goes through this.
    observers: Contained,
    #[cfg(feature = "metrics")]
    meters: stats::Meters,
}

/// A request was turned away: the server is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "overloaded: cpu at {cpu:.0} of 1000, and {in_flight} in flight where {max_in_flight:.1} of \
     priority {} are sustainable", priority.name()
)]
#[non_exhaustive]
pub struct Shed {
    /// The priority of the request.
    pub priority: Priority,
    /// The smoothed processor usage in thousandths.
    pub cpu: f64,
    /// Requests in flight of this priority and lower ones.
    pub in_flight: u64,
    /// How many of these are sustainable beside what higher priorities need.
    pub max_in_flight: f64,
}

/// A request that was let in, in flight until this is consumed. Dropped, it has failed.
#[must_use = "a promise that is dropped counts as a failed request"]
pub struct Promise {
    shedder: Shedder,
    priority: Priority,
    started_nanos: u64,
    /// Known once it has ended well.
    latency_nanos: Option<u64>,
}

impl Shedder {
    /// The settings of a new shedder: threshold 900 of 1000, cool-off 1 s, a window of 5 s in 50
    /// buckets, a sample every 250 ms of this process's [`CpuMeter`](crate::CpuMeter).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder()
    ///     .threshold(800)
    ///     .window(Duration::from_secs(10), 100)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ShedderBuilder {
        ShedderBuilder::new()
    }

    fn from_builder(builder: ShedderBuilder) -> Result<Self, BuildError> {
        let buckets = builder.buckets;
        // Fewer buckets than that are refused below, and more than `u32::MAX` just as well.
        let bucket = builder.window / u32::try_from(buckets).unwrap_or(u32::MAX);
        let start = builder.clock.now();
        let sustainable = Sustainable::new(start, buckets, bucket)?;
        let cpu = builder.cpu.expect("the builder has set a source");
        let (threshold, cool_off) = (f64::from(builder.threshold), builder.cool_off);
        let inner = Inner {
            #[cfg(feature = "metrics")]
            meters: stats::Meters::new(&builder.name),
            name: builder.name,
            heat: Heat::new(cpu, threshold, cool_off, builder.sample_period, start),
            clock: builder.clock,
            sample_period: builder.sample_period,
            flight: Flight::new(),
            sustainable,
            shed: CachePadded::default(),
            observers: Contained::default(),
        };
        Ok(Shedder {
            inner: Arc::new(inner),
        })
    }

    /// The name that it was built with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Asks for a request of this priority to be let in.
    ///
    /// ```
    /// use wheelhouse_resilience::{Priority, Shedder};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shedder = Shedder::builder().build()?;
    /// let promise = shedder.try_acquire(Priority::default())?;
    /// assert_eq!(shedder.stats().in_flight, 1);
    /// promise.failure();
    /// assert_eq!(shedder.stats().in_flight, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Shed`] when the server is overloaded; it says by how much.
    pub fn try_acquire(&self, priority: Priority) -> Result<Promise, Shed> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let nanos = inner.sustainable.nanos_at(now);
        if inner.heat.is_due_on_call(nanos) {
            inner.sample(now, nanos);
        }
        inner.sustainable.asked(nanos, priority);
        inner.flight.observe(now, nanos);
        if inner.heat.is_hot(nanos)
            && let Some(shed) = inner.excess(now, nanos, priority)
        {
            inner.count_shed(priority);
            return Err(shed);
        }
        inner.flight.begin(priority);
        Ok(Promise {
            shedder: self.clone(),
            priority,
            started_nanos: nanos,
            latency_nanos: None,
        })
    }

    /// Samples the processor usage if a sample is due and nobody else is taking it, and says whether
    /// it did. For those who have a timer that can do it, so that no call has to.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Shedder;
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let shedder = Shedder::builder().clock(clock.clone()).cpu(|_| Some(0.5)).build()?;
    /// assert!(!shedder.sample());
    /// clock.advance(Duration::from_millis(250));
    /// assert!(shedder.sample());
    /// assert_eq!(shedder.stats().cpu, 500.0);
    /// # Ok(()) }
    /// ```
    pub fn sample(&self) -> bool {
        let now = self.inner.clock.now();
        self.inner.sample(now, self.inner.sustainable.nanos_at(now))
    }

    /// Starts a thread that samples the processor usage every sample period, until the [`Sampler`]
    /// is dropped. It sleeps in real time, whatever the clock of the shedder. Calls step in when it
    /// is late by a period.
    ///
    /// ```
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shedder = Shedder::builder().build()?;
    /// let sampler = shedder.start_sampler()?;
    /// // … as long as the server runs …
    /// drop(sampler);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// What the system says when it has no thread to give.
    pub fn start_sampler(&self) -> io::Result<Sampler> {
        Sampler::start(self, self.inner.sample_period)
    }

    /// What it has done, and what it sees now. Looks over the window, with a lock and an allocation,
    /// in the first call in each bucket.
    #[must_use]
    pub fn stats(&self) -> ShedderStats {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let nanos = inner.sustainable.nanos_at(now);
        ShedderStats {
            cpu: inner.heat.cpu(),
            is_hot: inner.heat.is_hot(nanos),
            in_flight: inner.flight.all(),
            average_in_flight: inner.flight.average_up_to(Priority::Critical),
            max_in_flight: inner.max_in_flight(now, nanos),
            passed: inner.flight.passed(),
            failed: inner.flight.failed(),
            // Relaxed: counts that are only shown.
            shed: std::array::from_fn(|index| inner.shed[index].load(Relaxed)),
            failed_samples: inner.heat.failed(),
            observer_panics: inner.observers.panics(),
        }
    }
}

impl Promise {
    /// The request ended well: its latency counts for what is sustainable.
    pub fn success(mut self) {
        let inner = &*self.shedder.inner;
        let nanos = inner.sustainable.nanos_at(inner.clock.now());
        self.latency_nanos = Some(nanos.saturating_sub(self.started_nanos));
    }

    /// The request failed. What it took says nothing of what is sustainable: an error may be quick
    /// or slow for reasons of its own.
    pub fn failure(self) {
        drop(self);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let inner = &*self.shedder.inner;
        if let Some(latency) = self.latency_nanos {
            let nanos = self.started_nanos.saturating_add(latency);
            inner.sustainable.passed(nanos, latency);
        }
        inner
            .flight
            .end(self.priority, self.latency_nanos.is_some());
        #[cfg(feature = "metrics")]
        inner.observers.run(|| match self.latency_nanos {
            Some(latency) => inner.meters.passed(latency),
            None => inner.meters.failed(),
        });
    }
}

impl Inner {
    fn sample(&self, now: Instant, nanos: u64) -> bool {
        let Some(sample) = self.heat.sample(now, nanos) else {
            return false;
        };
        self.observers.run(|| {
            #[cfg(feature = "metrics")]
            self.meters.sampled(sample.cpu, self.flight.all());
            #[cfg(feature = "tracing")]
            self.trace(&sample);
            let _ = sample;
        });
        true
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, sample: &heat::Sample) {
        match sample.turned {
            Some(true) => {
                let (cpu, in_flight) = (sample.cpu, self.flight.all());
                tracing::warn!(shedder = %self.name, cpu, in_flight, "processors are too busy");
            }
            Some(false) => {
                tracing::info!(shedder = %self.name, cpu = sample.cpu, "processors have cooled off");
            }
            None => {}
        }
    }

    fn max_in_flight(&self, now: Instant, nanos: u64) -> f64 {
        self.sustainable.max_flight(now, nanos) * self.heat.factor()
    }

    /// What a request of this priority would be too much of.
    fn excess(&self, now: Instant, nanos: u64, priority: Priority) -> Option<Shed> {
        let reserved = self.sustainable.reserved(now, nanos, priority);
        let room = self.max_in_flight(now, nanos) - reserved;
        let in_flight = self.flight.up_to(priority);
        let is_excess = match room > 0.0 {
            true => in_flight as f64 > room && self.flight.average_up_to(priority) > room,
            // All of it is for others, who are not there yet or just gone.
            false => self.flight.all() > 0,
        };
        is_excess.then(|| Shed {
            priority,
            cpu: self.heat.cpu(),
            in_flight,
            max_in_flight: room.max(0.0),
        })
    }

    fn count_shed(&self, priority: Priority) {
        // Relaxed: a count that is only shown.
        self.shed[priority as usize].fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.observers.run(|| self.meters.shed(priority));
    }
}

impl fmt::Debug for Shedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedder")
            .field("name", &self.inner.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise")
            .field("shedder", &self.shedder.inner.name)
            .field("started_nanos", &self.started_nanos)
            .finish_non_exhaustive()
    }
}
