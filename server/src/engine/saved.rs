//! Tasks taken out of an engine that has stopped, and into one that starts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use wheelhouse_wheel::cron::Timestamp;

use super::store::{NEVER_ARMED, Record, Repeat};
use super::{Engine, Put, Refused, timestamp, until};
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
    pub ttl: Option<Duration>,
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
    pub fn restore(&self, saved: Saved) -> Result<Put, Refused> {
        let record = Record {
            generation: NEVER_ARMED,
            due_ms: saved.due.as_millisecond(),
            next_ms: saved.next.as_millisecond(),
            target: saved.target,
            payload: saved.payload,
            repeat: Repeat::of(saved.schedule),
            ttl: saved.ttl,
            retry: saved.retry,
            attempts: saved.attempts,
            firing: false,
        };
        let delay = until(saved.next, self.inner.clock.system_now());
        let put = self.enter(saved.key, record, delay, None, true)?;
        // Nothing keeps it from replacing what is there.
        Ok(put.unwrap_or(Put::Replaced))
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
