//! Tasks taken out of an engine that has stopped, and into one that starts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::value::RawValue;
use wheelhouse_wheel::cron::Timestamp;

use super::event::EventKind;
use super::store::{Record, Repeat};
use super::{Engine, Refused, timestamp, until};
use crate::task::{Key, RetryPolicy, Schedule, Target, Task};

/// A task that is pending, with what has become of it so far.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Saved {
    /// Its key.
    pub key: Key,
    /// How it repeats; one that does not is due [`At`](Schedule::At) its time.
    pub schedule: Schedule,
    /// Where it goes.
    pub target: Target,
    /// What goes there.
    pub payload: Arc<RawValue>,
    /// How often a delivery is tried.
    pub retry: RetryPolicy,
    /// How long after it was due it may still be delivered.
    pub ttl: Option<std::time::Duration>,
    /// When it is due by its schedule.
    pub due: Timestamp,
    /// When its next attempt is.
    pub next: Timestamp,
    /// Attempts that have begun since it was due.
    pub attempts: u32,
}

impl Saved {
    /// A task that was due at `due`, whose next attempt is at `next`, after so many `attempts`.
    #[must_use]
    pub fn new(key: Key, task: Task, due: Timestamp, next: Timestamp, attempts: u32) -> Self {
        Saved {
            key,
            schedule: task.schedule,
            target: task.target,
            payload: task.payload.into(),
            retry: task.retry,
            ttl: task.ttl,
            due,
            next,
            attempts,
        }
    }
}

impl Engine {
    /// Calls `each` with every task that is pending, in no order, outside of all locks. Tasks that
    /// change meanwhile may be seen as they were; after a [`stop`](Self::stop) nothing changes.
    /// Memory for a sixteenth of the tasks.
    ///
    /// # Errors
    /// The first error of `each`, which ends it.
    pub fn save<E>(&self, mut each: impl FnMut(Saved) -> Result<(), E>) -> Result<(), E> {
        for shard in 0..self.inner.store.shards() {
            for saved in self.inner.store.view_shard(shard, saved) {
                each(saved)?;
            }
        }
        Ok(())
    }

    /// Takes a task in as it was: due at its original instant, at once if that has passed, and after
    /// the attempts that were made. It replaces what is under its key.
    ///
    /// # Errors
    /// As those of [`put`](Self::put).
    pub fn restore(&self, saved: Saved) -> Result<(), Refused> {
        let inner = &*self.inner;
        inner.check_target(&saved.target)?;
        let repeat = match saved.schedule {
            Schedule::Delay(_) | Schedule::At(_) => None,
            Schedule::Every(period) => Some(Box::new(Repeat::Every(period))),
            Schedule::Cron(cron) => Some(Box::new(Repeat::Cron(*cron))),
        };
        let now = inner.clock.system_now();
        let mut shard = inner.store.lock(&saved.key);
        if inner.stopping.is_cancelled() {
            return Err(Refused::Stopping);
        }
        match shard.get(&*saved.key).map(|record| record.generation) {
            Some(generation) => inner.disarm(generation),
            None => inner.reserve()?,
        }
        let record = Record {
            generation: inner.arm(&saved.key, until(saved.next, now)),
            due_ms: saved.due.as_millisecond(),
            next_ms: saved.next.as_millisecond(),
            target: saved.target,
            payload: saved.payload,
            repeat,
            ttl: saved.ttl,
            retry: saved.retry,
            attempts: saved.attempts,
            firing: false,
        };
        shard.insert(saved.key.clone(), record);
        inner.counts.taken_in.fetch_add(1, Ordering::Relaxed);
        inner.tell(&saved.key, EventKind::Created);
        Ok(())
    }
}

fn saved(key: &Key, record: &Record) -> Saved {
    let due = timestamp(record.due_ms);
    Saved {
        key: key.clone(),
        schedule: match record.repeat.as_deref() {
            None => Schedule::At(due),
            Some(Repeat::Every(period)) => Schedule::Every(*period),
            Some(Repeat::Cron(cron)) => Schedule::Cron(Box::new(cron.clone())),
        },
        target: record.target.clone(),
        payload: Arc::clone(&record.payload),
        retry: record.retry,
        ttl: record.ttl,
        due,
        next: timestamp(record.next_ms),
        attempts: record.attempts,
    }
}
