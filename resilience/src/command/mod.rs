//! A call with everything around it that keeps its failures to itself: [`Command`].
//!
//! What hystrix-go does in Go, with futures: a limit on calls at a time, a breaker, a timeout, a
//! fallback, and figures that the Hystrix dashboard reads.
//!
//! ```
//! use wheelhouse_resilience::Command;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! async fn fetch(id: u32) -> Result<String, std::io::Error> {
//!     # if id == 7 { return Err(std::io::ErrorKind::ConnectionRefused.into()) }
//!     Ok(format!("user {id}"))
//! }
//!
//! let users = Command::builder("users").build()?;
//! assert_eq!(users.run(fetch(1)).await?, "user 1");
//!
//! let cached = |_: &_| async { Ok::<_, std::convert::Infallible>("somebody".to_owned()) };
//! assert_eq!(users.run_or(fetch(7), cached).await?, "somebody");
//! # Ok(()) }
//! ```
//!
//! # What happens in a call
//!
//! 1. A caller that has cancelled, or whose deadline has passed, gets no further.
//! 2. A permit of the command's bulkhead. There is no queue: none free is `Rejected`. This comes before
//!    the breaker, so that no probe of the breaker is spent on a call that then finds no place.
//! 3. A permit of the breaker; none is `ShortCircuited`.
//! 4. The work runs until it is done, its caller cancels or the time is up, which is the earlier of the
//!    caller's deadline and the command's timeout. It is dropped before the permits come back.
//! 5. The breaker is told: errors and timeouts are failures. Rejections, short circuits, and calls that
//!    their caller gave up or had no time for say nothing.
//! 6. If there is no result, the fallback is given the reason, within a limit of its own.
//!
//! A future that is dropped is cancelled, wherever it was. Work that panics is a failure, and the panic
//! goes on.
//!
//! Blocking work cannot be stopped. When nobody waits for it any longer it keeps its permit until it
//! really ends, and counts as [abandoned](CommandStats::abandoned): a dependency that hangs fills the
//! bulkhead, and later calls are rejected instead of taking more threads.
//!
//! It differs from hystrix-go where that counts what was not called: rejections and short circuits are
//! neither errors nor part of the volume.
//!
//! The time is tokio's, so that tests can pause it. A command starts no task and no thread of its own.

mod blocking;
mod builder;
mod call;
mod dashboard;
mod error;
mod event;
mod latency;
mod meters;
mod progress;
mod race;
mod record;
mod snapshot;

use std::fmt;
use std::future::{Pending, pending};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wheelhouse_wheel::{Clock, TokioClock};

use crate::{Breaker, Bulkhead};

pub use builder::CommandBuilder;
pub use call::Call;
pub use dashboard::{Dashboard, DashboardStream};
pub use error::{CommandError, FallbackError};
pub use event::{CommandEvent, Event, EventCounts};
pub use latency::LatencySummary;

use progress::Abandoned;
use record::Record;

/// A named kind of call, with a limit, a breaker, a timeout and figures. Clones are the same command.
///
/// See the [module](self) for what happens in a call.
#[derive(Clone)]
pub struct Command {
    shared: Arc<Shared>,
}

impl Command {
    /// A command with hystrix-go's defaults: timeout 1 s, 10 at a time, and a breaker that opens at 50 %
    /// errors among at least 20 calls within 10 s and probes every 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Command;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let export = Command::builder("export").timeout(None).max_concurrent(2).build()?;
    /// let refused = Command::builder("export").timeout(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "timeout is 0ns; allowed are 1ns and more");
    /// # Ok(()) }
    /// ```
    pub fn builder(name: impl Into<String>) -> CommandBuilder {
        CommandBuilder::new(name.into())
    }

    /// A call with a deadline or a cancellation of its caller's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::{Instant, sleep};
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::CommandError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").build()?;
    /// let slow = async {
    ///     sleep(Duration::from_millis(500)).await;
    ///     Ok::<_, std::io::Error>("found")
    /// };
    /// let deadline = Instant::now() + Duration::from_millis(100);
    /// let result = command.call().deadline(deadline).run(slow).await;
    /// assert!(matches!(result, Err(CommandError::DeadlineExceeded)));
    /// # Ok(()) }
    /// ```
    pub fn call(&self) -> Call<'_, Pending<()>> {
        Call::new(self, pending())
    }

    /// Runs `work`.
    ///
    /// # Errors
    ///
    /// [`CommandError`] says why there is no result.
    ///
    /// # Panics
    ///
    /// When it is not polled in a tokio runtime with its timer; and if `work` panics.
    // These return the call's own future: an async function around it would be copied with it.
    pub fn run<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, CommandError<E>>> {
        self.call().run(work)
    }

    /// Runs `work`, or else the future that `fallback` makes of the reason why it has no result.
    ///
    /// # Errors
    ///
    /// [`FallbackError`] says why neither has a result.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if the fallback panics.
    pub fn run_or<T, E, F, B: Future<Output = Result<T, F>>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> impl Future<Output = Result<T, FallbackError<E, F>>> {
        self.call().run_or(work, fallback)
    }

    /// Runs `work` on the blocking pool of the present tokio runtime. If it has not begun when its time
    /// is up it never will; if it has, it is abandoned.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("read").build()?;
    /// let sum = command.run_blocking(|| Ok::<_, std::io::Error>((1..=10).sum::<u32>())).await?;
    /// assert_eq!(sum, 55);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CommandError`] says why there is no result.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn run_blocking<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, CommandError<E>>> {
        self.call().run_blocking(work)
    }

    /// [`run_blocking`](Self::run_blocking), or else the future that `fallback` makes of the reason.
    ///
    /// # Errors
    ///
    /// [`FallbackError`] says why neither has a result.
    ///
    /// # Panics
    ///
    /// As [`run_or`](Self::run_or).
    pub fn run_blocking_or<T, E, F, B>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> impl Future<Output = Result<T, FallbackError<E, F>>>
    where
        T: Send + 'static,
        E: Send + 'static,
        B: Future<Output = Result<T, F>>,
    {
        self.call().run_blocking_or(work, fallback)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its breaker, to look at or to force; `None` without one.
    #[must_use]
    pub fn breaker(&self) -> Option<&Breaker> {
        self.shared.breaker.as_ref()
    }

    /// Its bulkhead, to look at or to resize.
    #[must_use]
    pub fn bulkhead(&self) -> &Bulkhead {
        &self.shared.places
    }

    /// The present figures and totals. Each is right by itself; together they are no snapshot of one
    /// instant.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let command = Command::builder("search").build()?;
    /// assert_eq!(command.stats().totals.requests(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> CommandStats {
        self.shared.stats()
    }

    /// The JSON by which the Hystrix dashboard knows it, with all its required keys.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let command = Command::builder("search").build()?;
    /// assert!(command.snapshot_json().starts_with(r#"{"type":"HystrixCommand","name":"search""#));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn snapshot_json(&self) -> String {
        self.shared.snapshot_json()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("name", &self.shared.name)
            .field("settings", &self.shared.settings)
            .field("in_flight", &self.shared.places.in_use())
            .finish_non_exhaustive()
    }
}

/// What a command has done and does: [`Command::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandStats {
    /// Events since the command was built.
    pub totals: EventCounts,
    /// Events of the last 10 s.
    pub rolling: EventCounts,
    /// Calls that run, abandoned ones included.
    pub in_flight: usize,
    /// Blocking calls that nobody waited for any longer when they still ran.
    pub abandoned: u64,
    /// Those of them that run still.
    pub abandoned_running: u64,
    /// How long calls ran, of the last 30 to 60 s: those that succeeded, failed or timed out.
    pub execution: LatencySummary,
    /// The same calls until there was a result, fallbacks included.
    pub total: LatencySummary,
    /// How often the hook panicked.
    pub hook_panics: u64,
    /// How often the metrics recorder or the tracing subscriber panicked. That ends there.
    pub observer_panics: u64,
}

/// As they were built, for the dashboard.
#[derive(Debug, Clone)]
struct Settings {
    timeout: Option<Duration>,
    max_concurrent: Option<usize>,
    fallback_max_concurrent: Option<usize>,
    volume: u64,
    error_percent: Option<f64>,
    sleep_window: Duration,
}

/// What clones and calls share.
struct Shared {
    name: Box<str>,
    settings: Settings,
    places: Bulkhead,
    fallbacks: Bulkhead,
    breaker: Option<Breaker>,
    record: Record,
    abandoned: Arc<Abandoned>,
}

impl Shared {
    fn stats(&self) -> CommandStats {
        let now = TokioClock.now();
        let nanos = self.record.nanos_at(now.into());
        let [execution, total] = self.record.latency.summaries(nanos);
        CommandStats {
            totals: self.record.tally.totals(),
            rolling: self.record.tally.recent(now),
            in_flight: self.places.in_use(),
            abandoned: self.abandoned.total.load(Ordering::Relaxed),
            abandoned_running: self.abandoned.running.load(Ordering::Relaxed),
            execution,
            total,
            hook_panics: self.record.hooks.panics(),
            observer_panics: self.record.observers.panics(),
        }
    }
}
