//! The engine: takes tasks in, arms their timers, delivers them.
//!
//! | file | idea |
//! |---|---|
//! | store.rs | records by key, in order |
//! | deliver.rs | from a timer to a settled attempt |
//! | saved.rs | tasks that outlive an engine |
//! | lateness.rs | how late attempts begin |
//! | event.rs | what happens, as it happens |
//! | ending.rs | who is told when a task ends |
//! | topics.rs | where due tasks go: topics |
//! | webhooks.rs | and targets over HTTP |
//! | letters.rs | tasks that were given up |
//! | builder.rs | settings |
//!
//! # Races considered
//!
//! All that decides is done under the lock of the key's shard, and by generation (store.rs):
//! - cancel, move or replace against the timer: the timer finds another generation, or no record.
//! - the same against an attempt that waits for its turn: likewise, when its turn comes.
//! - the same against an attempt under way: a cancel and a put win over its outcome, and a cancel says
//!   so; a move is refused, since it could not say whether the task will be delivered twice.
//! - stop against all of them: what has not begun an attempt stays pending.

mod builder;
mod deliver;
mod ending;
mod event;
mod lateness;
mod letters;
mod saved;
mod store;
mod topics;
mod webhooks;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wheelhouse_wheel::cron::Timestamp;
use wheelhouse_wheel::{Clock, TimingWheel};

use crate::task::{Due, Key, Schedule, Target, Task, TaskError};

pub use builder::{BuildError, Builder};
pub use ending::Ending;
pub use event::{Event, EventKind, Lagged, Watch};
pub use lateness::{LATENESS_BOUNDS_MS, Lateness};
pub use letters::{DeadLetter, Requeue};
pub use saved::Saved;
pub use topics::{InProcess, Message, PublishError, Publishing, Subscription, Topics};
pub use webhooks::{Admission, Delivery, Hold, SendError, Sending, Webhooks};

use ending::Endings;
use store::{NEVER_ARMED, Record, Repeat, Store};

/// Entries that a page of [`Engine::list`] has at most.
pub const MAX_PAGE: usize = 1_000;

/// Keeps tasks and delivers them when they are due. A cheap handle; clones name the same engine.
///
/// Calls lock one of 16 shards for a moment and wait for nothing. Drop the last handle where blocking
/// is allowed, or [`stop`](Self::stop) first: it ends a thread.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Put {
    /// The key had no task.
    Created,
    /// The key had one, which is gone.
    Replaced,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// No attempt was under way, and none will be.
    InTime,
    /// An attempt was under way and may still deliver; none will follow it.
    UnderWay,
}

/// Why the engine did not do what it was asked for. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// An argument breaks a rule.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// There is no task under this key.
    #[error("there is no task {0:?}")]
    NotFound(Key),
    /// An attempt to deliver the task is under way, so it cannot be moved.
    #[error("an attempt to deliver {0:?} is under way; put it anew to have it delivered again")]
    UnderWay(Key),
    /// As many tasks are pending as may be.
    #[error("{0} tasks are pending, which is the limit; try again later")]
    Full(usize),
    /// The engine is stopping.
    #[error("the engine is stopping")]
    Stopping,
}

/// A task as it stands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// When its next attempt is; in the past while one is under way.
    pub next: Timestamp,
    /// Where it goes.
    pub target: Target,
    /// What goes there.
    pub payload: Arc<RawValue>,
    /// Attempts that have begun since it was due.
    pub attempts: u32,
    /// Whether an attempt is under way.
    pub firing: bool,
}

/// A page of tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page {
    /// The tasks, in the order of their keys.
    pub tasks: Vec<(Key, Status)>,
    /// What to ask for next, if there may be more.
    pub cursor: Option<Key>,
}

/// What an engine holds and has done since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tasks pending or being delivered.
    pub pending: usize,
    /// Dead letters held; the oldest make room for new ones.
    pub dead_letters: usize,
    /// Tasks taken in, those that replaced others included.
    pub taken_in: u64,
    /// Those of them that replaced others.
    pub replaced: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Attempts that delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Tasks given up.
    pub dead: u64,
    /// Turns of tasks that were put off, since their target was not to be called.
    pub held: u64,
}

/// What a stop has left, from [`Engine::stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Tasks that were not delivered.
    pub pending: usize,
}

struct Inner {
    store: Store,
    wheel: OnceLock<TimingWheel<u64, Key>>,
    clock: Arc<dyn Clock>,
    topics: Box<dyn Topics>,
    webhooks: Option<Box<dyn Webhooks>>,
    events: broadcast::Sender<Event>,
    dead: Mutex<VecDeque<DeadLetter>>,
    endings: Endings,
    max_tasks: usize,
    max_dead: usize,
    attempt_timeout: Duration,
    /// One permit for each attempt that may be under way.
    attempts: Semaphore,
    runtime: Handle,
    running: TaskTracker,
    stopping: CancellationToken,
    counts: Counts,
}

/// Relaxed throughout: nothing is read through them. `generation` need only be unique, and `pending`
/// is exact because each change to it goes with one under a shard's lock.
#[derive(Default)]
struct Counts {
    generation: AtomicU64,
    pending: AtomicUsize,
    taken_in: AtomicU64,
    cancelled: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    held: AtomicU64,
    letters: AtomicU64,
    replaced: AtomicU64,
    lateness: lateness::Recorder,
}

impl Engine {
    /// Settings for an engine that publishes to `topics`.
    pub fn builder(topics: impl Topics) -> Builder {
        Builder::new(Box::new(topics))
    }

    /// Takes a task in, instead of the one that the key may have.
    ///
    /// # Errors
    /// [`Refused::Full`] when the key is new, [`Refused::Stopping`], and [`Refused::Task`] when a cron
    /// expression never comes, or its target is asked over HTTP and the engine has no
    /// [`webhooks`](Builder::webhooks).
    pub fn put(&self, key: Key, task: Task) -> Result<Put, Refused> {
        self.replace(key, task, None)
    }

    /// The same, and calls `ended` once when this task has ended: outside the engine's locks, by
    /// whoever ends it, so it should not wait. It is dropped uncalled when the task is refused, and
    /// with an engine that was not stopped. A task that nobody asks about costs nothing for it.
    ///
    /// ```
    /// use tokio::sync::oneshot;
    /// use wheelhouse_server::engine::{Ending, Engine, InProcess};
    /// use wheelhouse_server::task::{Key, Task};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::builder(InProcess::new()).build()?;
    /// let task = Task::from_json(br#"{"delay":"10ms","target":{"topic":"t"}}"#)?;
    /// let (told, ending) = oneshot::channel();
    /// engine.put_and_tell(Key::new("a")?, task, |ending| drop(told.send(ending)))?;
    /// assert_eq!(ending.await?, Ending::Delivered);
    /// # engine.stop().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_and_tell(
        &self,
        key: Key,
        task: Task,
        ended: impl FnOnce(Ending) + Send + 'static,
    ) -> Result<Put, Refused> {
        self.replace(key, task, Some(Box::new(ended)))
    }

    /// Calls `ended` as [`put_and_tell`](Self::put_and_tell) does, for the task that is under `key` now.
    ///
    /// # Errors
    /// [`Refused::NotFound`], and [`Refused::Stopping`].
    pub fn tell_ending(
        &self,
        key: &Key,
        ended: impl FnOnce(Ending) + Send + 'static,
    ) -> Result<(), Refused> {
        let inner = &*self.inner;
        let shard = inner.store.lock(key);
        if inner.stopping.is_cancelled() {
            return Err(Refused::Stopping);
        }
        if !shard.contains_key(&**key) {
            return Err(Refused::NotFound(key.clone()));
        }
        inner.endings.add(key, Box::new(ended));
        Ok(())
    }

    fn replace(&self, key: Key, task: Task, ended: Option<ending::Tell>) -> Result<Put, Refused> {
        let put = self.take_in(key, task, ended, true)?;
        // Nothing keeps it from replacing what is there.
        Ok(put.unwrap_or(Put::Replaced))
    }

    /// Returns whether the key had no task; if it had, nothing has changed.
    fn put_if_absent(&self, key: Key, task: Task) -> Result<bool, Refused> {
        let put = self.take_in(key, task, None, false)?;
        Ok(put.is_some())
    }

    /// `None` when the key has a task that is not to be replaced.
    fn take_in(
        &self,
        key: Key,
        task: Task,
        ended: Option<ending::Tell>,
        replaces: bool,
    ) -> Result<Option<Put>, Refused> {
        let (due_ms, delay) = first_due(&task.schedule, self.inner.clock.system_now())?;
        let record = Record {
            generation: NEVER_ARMED,
            due_ms,
            next_ms: due_ms,
            target: task.target,
            payload: task.payload.into(),
            repeat: Repeat::of(task.schedule),
            ttl: task.ttl,
            retry: task.retry,
            attempts: 0,
            firing: false,
        };
        self.enter(key, record, delay, ended, replaces)
    }

    /// Stores a record and arms its timer.
    fn enter(
        &self,
        key: Key,
        mut record: Record,
        delay: Duration,
        ended: Option<ending::Tell>,
        replaces: bool,
    ) -> Result<Option<Put>, Refused> {
        let inner = &*self.inner;
        inner.check_target(&record.target)?;
        let mut shard = inner.store.lock(&key);
        if inner.stopping.is_cancelled() {
            return Err(Refused::Stopping);
        }
        let old = shard.get(&*key).map(|record| record.generation);
        match old {
            Some(_) if !replaces => return Ok(None),
            Some(generation) => inner.disarm(generation),
            None => inner.reserve()?,
        }
        record.generation = inner.arm(&key, delay);
        shard.insert(key.clone(), record);
        inner.counts.taken_in.fetch_add(1, Ordering::Relaxed);
        let (put, kind) = match old {
            Some(_) => {
                inner.counts.replaced.fetch_add(1, Ordering::Relaxed);
                (Put::Replaced, EventKind::Replaced)
            }
            None => (Put::Created, EventKind::Created),
        };
        inner.tell(&key, kind);
        let replaced = inner.endings.take(&key);
        if let Some(ended) = ended {
            inner.endings.add(&key, ended);
        }
        drop(shard);
        replaced.tell(Ending::Replaced);
        Ok(Some(put))
    }

    /// Makes a task due at another time; its attempts count from none again.
    ///
    /// # Errors
    /// Those of [`move_to`](Self::move_to).
    pub fn move_due(&self, key: &Key, due: Due) -> Result<Timestamp, Refused> {
        let delay = match due {
            Due::Delay(delay) => delay,
            Due::At(at) => until(at, self.inner.clock.system_now()),
        };
        self.move_to(key, delay)
    }

    /// Makes a task due `delay` from now; its attempts count from none again.
    ///
    /// # Errors
    /// [`Refused::NotFound`], [`Refused::UnderWay`] and [`Refused::Stopping`].
    pub fn move_to(&self, key: &Key, delay: Duration) -> Result<Timestamp, Refused> {
        let inner = &*self.inner;
        let due_ms = later(inner.clock.system_now(), delay);
        let mut shard = inner.store.lock(key);
        if inner.stopping.is_cancelled() {
            return Err(Refused::Stopping);
        }
        let Some(record) = shard.get_mut(&**key) else {
            return Err(Refused::NotFound(key.clone()));
        };
        if record.firing {
            return Err(Refused::UnderWay(key.clone()));
        }
        inner.disarm(record.generation);
        record.generation = inner.arm(key, delay);
        (record.due_ms, record.next_ms, record.attempts) = (due_ms, due_ms, 0);
        let due = timestamp(due_ms);
        inner.tell(key, EventKind::Moved(due));
        Ok(due)
    }

    /// Takes a task out. The answer says whether an attempt was under way.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn cancel(&self, key: &Key) -> Result<Cancelled, Refused> {
        let inner = &*self.inner;
        let mut shard = inner.store.lock(key);
        let Some(record) = shard.remove(&**key) else {
            return Err(Refused::NotFound(key.clone()));
        };
        inner.disarm(record.generation);
        inner.counts.pending.fetch_sub(1, Ordering::Relaxed);
        inner.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        inner.tell(key, EventKind::Cancelled);
        let ended = inner.endings.take(key);
        drop(shard);
        ended.tell(Ending::Cancelled);
        Ok(match record.firing {
            true => Cancelled::UnderWay,
            false => Cancelled::InTime,
        })
    }

    /// The task under a key.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<Status> {
        self.inner.store.lock(key).get(&**key).map(status)
    }

    /// Tasks whose keys begin with `prefix` and come after `cursor`, in the order of their keys; at
    /// most `limit`, 1 to [`MAX_PAGE`]. Tasks that come and go meanwhile may be in it or not.
    ///
    /// # Errors
    /// [`Refused::Task`] for another limit.
    pub fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, Refused> {
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Refused::Task(TaskError::Field {
                field: "limit",
                value: limit.to_string(),
                allowed: format!("1 to {MAX_PAGE}"),
            }));
        }
        let store = &self.inner.store;
        let tasks = store.page(prefix, cursor, limit, |_, record| status(record));
        let last = tasks.last().filter(|_| tasks.len() == limit);
        let cursor = last.map(|(key, _)| key.clone());
        Ok(Page { tasks, cursor })
    }

    /// Listens to what happens from now on. The last 1 024 events are held for a slow reader.
    pub fn watch(&self) -> Watch {
        Watch {
            events: self.inner.events.subscribe(),
        }
    }

    /// What the engine holds and has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner { counts, dead, .. } = &*self.inner;
        Stats {
            pending: counts.pending.load(Ordering::Relaxed),
            dead_letters: dead.lock().len(),
            taken_in: counts.taken_in.load(Ordering::Relaxed),
            replaced: counts.replaced.load(Ordering::Relaxed),
            cancelled: counts.cancelled.load(Ordering::Relaxed),
            delivered: counts.delivered.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            dead: counts.dead.load(Ordering::Relaxed),
            held: counts.held.load(Ordering::Relaxed),
        }
    }

    /// Cancelled when the engine begins to stop.
    #[cfg(any(feature = "grpc", feature = "http"))]
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    /// How late first attempts began.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        self.inner.counts.lateness.read()
    }

    /// What the engine's wheel holds and has done.
    #[must_use]
    pub fn wheel_stats(&self) -> wheelhouse_wheel::Stats {
        self.inner.wheel().stats()
    }

    /// Takes nothing more in, begins no attempt, and waits for those under way: no longer than one
    /// may take. Any number of calls give the same answer. What is left can still be listed.
    pub async fn stop(&self) -> Left {
        let inner = &*self.inner;
        inner.stopping.cancel();
        // A put that has not seen it is counted below.
        inner.store.wait_for_holders();
        if let Some(wheel) = inner.wheel.get().cloned() {
            // It waits for the wheel's thread.
            let stopped = tokio::task::spawn_blocking(move || drop(wheel.stop()));
            stopped.await.unwrap_or_default();
        }
        inner.running.close();
        inner.running.wait().await;
        inner.endings.take_all().tell(Ending::Stopped);
        Left {
            pending: inner.counts.pending.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn wheel(&self) -> &TimingWheel<u64, Key> {
        self.wheel.get().expect("set when the engine was built")
    }

    /// Sets a timer and returns its generation. After a stop there are no timers, and none is missed.
    fn arm(&self, key: &Key, delay: Duration) -> u64 {
        let generation = self.counts.generation.fetch_add(1, Ordering::Relaxed);
        let _ = self.wheel().set_timer(generation, key.clone(), delay);
        generation
    }

    fn disarm(&self, generation: u64) {
        let _ = self.wheel().remove_timer(generation);
    }

    fn check_target(&self, target: &Target) -> Result<(), TaskError> {
        match (target, &self.webhooks) {
            (Target::Http(_), None) => Err(TaskError::Field {
                field: "target.http",
                value: "said".to_owned(),
                allowed: "topics: this server delivers to no other targets".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn reserve(&self) -> Result<(), Refused> {
        if self.counts.pending.fetch_add(1, Ordering::Relaxed) < self.max_tasks {
            return Ok(());
        }
        self.counts.pending.fetch_sub(1, Ordering::Relaxed);
        Err(Refused::Full(self.max_tasks))
    }

    /// Under the lock of the key's shard, so that the events of a task come in their order.
    fn tell(&self, key: &Key, kind: EventKind) {
        if self.events.receiver_count() > 0 {
            let key = key.clone();
            // Without a reader by now, nobody misses it.
            let _ = self.events.send(Event { key, kind });
        }
    }
}

fn status(record: &Record) -> Status {
    Status {
        next: timestamp(record.next_ms),
        target: record.target.clone(),
        payload: Arc::clone(&record.payload),
        attempts: record.attempts,
        firing: record.firing,
    }
}

/// When a task is due first, and how long that is from now.
fn first_due(schedule: &Schedule, now: SystemTime) -> Result<(i64, Duration), TaskError> {
    let delay = match schedule {
        Schedule::Delay(delay) | Schedule::Every(delay) => *delay,
        Schedule::At(at) => until(*at, now),
        Schedule::Cron(cron) => {
            let Some(next) = cron.next_after_system(now) else {
                return Err(TaskError::Field {
                    field: "cron",
                    value: format!("{:?}", cron.expression()),
                    allowed: "expressions that come within a hundred years".to_owned(),
                });
            };
            next.duration_since(now).unwrap_or_default()
        }
    };
    Ok((later(now, delay), delay))
}

fn until(at: Timestamp, now: SystemTime) -> Duration {
    let at = SystemTime::from(at);
    at.duration_since(now).unwrap_or_default()
}

/// Milliseconds of the calendar at `now` + `delay`, rounded down: a task is never delivered before the
/// time that it is said to be due at.
fn later(now: SystemTime, delay: Duration) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = since.saturating_add(delay).as_nanos();
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}
