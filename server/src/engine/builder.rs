//! Settings of an engine.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wheelhouse_wheel::{Clock, Driven, SystemClock, TimingWheel};

use super::ending::Endings;
use super::store::Store;
use super::topics::Topics;
use super::webhooks::Webhooks;
use super::{Counts, Engine, Inner};

/// Events that are held for a slow reader.
const EVENTS: usize = 1_024;

/// Settings of an [`Engine`], from [`Engine::builder`].
#[must_use]
pub struct Builder {
    topics: Box<dyn Topics>,
    webhooks: Option<Box<dyn Webhooks>>,
    clock: Arc<dyn Clock>,
    max_tasks: usize,
    max_dead: usize,
    max_attempts: usize,
    attempt_timeout: Duration,
}

/// An engine was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is out of its range.
    #[error("{argument} is {value}; allowed are {allowed}")]
    #[non_exhaustive]
    Limit {
        /// Its name.
        argument: &'static str,
        /// Its value.
        value: usize,
        /// Its range.
        allowed: &'static str,
    },
    /// It was built outside a tokio runtime.
    #[error("an engine is built within a tokio runtime")]
    NoRuntime,
    /// The wheel was not built.
    #[error(transparent)]
    Wheel(#[from] wheelhouse_wheel::BuildError),
}

/// One clock for the engine and its wheel.
struct Same(Arc<dyn Clock>);

impl Builder {
    pub(super) fn new(topics: Box<dyn Topics>) -> Self {
        Builder {
            topics,
            webhooks: None,
            clock: Arc::new(SystemClock),
            max_tasks: 16_777_216,
            max_dead: 10_000,
            max_attempts: 1_024,
            attempt_timeout: Duration::from_secs(10),
        }
    }

    /// Who delivers to targets over HTTP; by default nobody, and such tasks are refused.
    pub fn webhooks(mut self, webhooks: impl Webhooks) -> Self {
        self.webhooks = Some(Box::new(webhooks));
        self
    }

    /// Where time is read from; by default the system's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Tasks that may be pending, at least 1; by default 16 777 216.
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.max_tasks = tasks;
        self
    }

    /// Dead letters that are held, 0 for none; by default 10 000. The oldest make room for new ones.
    pub fn max_dead_letters(mut self, letters: usize) -> Self {
        self.max_dead = letters;
        self
    }

    /// Attempts that may be under way at once, 1 to 1 048 576; by default 1 024. Others wait.
    pub fn max_attempts_under_way(mut self, attempts: usize) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// How long an attempt may take before it has failed; by default 10 s, on tokio's clock.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// Builds the engine: one thread, which sleeps until a task is due. Attempts run on the tokio
    /// runtime that this is called in.
    ///
    /// # Errors
    /// [`BuildError`] when a limit is out of range, outside a runtime, or when the thread does not
    /// start.
    pub fn build(self) -> Result<Engine, BuildError> {
        limit("max_tasks", self.max_tasks, 1..=usize::MAX, "1 and more")?;
        let most = 1 << 20;
        limit(
            "max_attempts_under_way",
            self.max_attempts,
            1..=most,
            "1 to 1048576",
        )?;
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let inner = Arc::new(Inner {
            store: Store::new(),
            wheel: OnceLock::new(),
            clock: Arc::clone(&self.clock),
            topics: self.topics,
            webhooks: self.webhooks,
            events: broadcast::Sender::new(EVENTS),
            dead: Mutex::new(VecDeque::new()),
            endings: Endings::default(),
            max_tasks: self.max_tasks,
            max_dead: self.max_dead,
            attempt_timeout: self.attempt_timeout,
            attempts: Semaphore::new(self.max_attempts),
            runtime,
            running: TaskTracker::new(),
            stopping: CancellationToken::new(),
            counts: Counts::default(),
        });
        // Weak, or the engine would keep itself alive through its wheel.
        let weak = Arc::downgrade(&inner);
        let wheel = TimingWheel::builder()
            .name("tasks")
            .clock(Same(self.clock))
            // The engine counts its tasks itself; a timer more may be on its way out.
            .unbounded_pending()
            .build(move |generation: u64, key| {
                if let Some(inner) = Weak::upgrade(&weak) {
                    inner.come_due(generation, key);
                }
            })?;
        inner.wheel.get_or_init(|| wheel);
        Ok(Engine { inner })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("max_tasks", &self.max_tasks)
            .field("max_dead", &self.max_dead)
            .field("max_attempts", &self.max_attempts)
            .field("attempt_timeout", &self.attempt_timeout)
            .finish_non_exhaustive()
    }
}

impl Clock for Same {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn system_now(&self) -> SystemTime {
        self.0.system_now()
    }

    fn register(&self, driver: Weak<dyn Driven>) -> bool {
        self.0.register(driver)
    }
}

fn limit(
    argument: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
    allowed: &'static str,
) -> Result<(), BuildError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(BuildError::Limit {
        argument,
        value,
        allowed,
    })
}
