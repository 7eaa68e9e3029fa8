//! Records of tasks, by key: one map in order for each shard.
//!
//! # Ground rules
//! - A record's **generation** names one arming of one timer, and never comes again. A timer that
//!   fires with another generation than its record's is stale and does nothing.
//! - A record is **firing** from its timer until its attempt is settled. It has no timer then.
//! - Generations change only under the lock of the record's shard, together with the timer.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use wheelhouse_wheel::cron::Cron;

use crate::task::{Key, RetryPolicy, Schedule, Target};

/// Enough that threads on a few cores seldom meet, few enough that a page is cheap to gather.
const SHARDS: usize = 16;

/// The generation of a record that has had no timer yet.
pub(super) const NEVER_ARMED: u64 = u64::MAX;

pub(super) type Shard = BTreeMap<Key, Record>;

/// A task that is pending or being delivered.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) generation: u64,
    /// When it was or is due by its schedule; retries leave it. Milliseconds of the calendar.
    pub(super) due_ms: i64,
    /// When its next attempt is. Milliseconds of the calendar.
    pub(super) next_ms: i64,
    pub(super) target: Target,
    pub(super) payload: Arc<RawValue>,
    pub(super) repeat: Option<Box<Repeat>>,
    pub(super) ttl: Option<Duration>,
    pub(super) retry: RetryPolicy,
    /// Attempts that have begun since it was due.
    pub(super) attempts: u32,
    pub(super) firing: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Repeat {
    Every(Duration),
    Cron(Cron),
}

impl Repeat {
    /// How a task goes on after it was due; `None` when it does not.
    pub(super) fn of(schedule: Schedule) -> Option<Box<Self>> {
        match schedule {
            Schedule::Delay(_) | Schedule::At(_) => None,
            Schedule::Every(period) => Some(Box::new(Repeat::Every(period))),
            Schedule::Cron(cron) => Some(Box::new(Repeat::Cron(*cron))),
        }
    }
}

#[derive(Debug)]
pub(super) struct Store {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
}

impl Store {
    pub(super) fn new() -> Self {
        Store {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    pub(super) fn lock(&self, key: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        // The remainder is below the number of shards.
        self.shards[(hash % SHARDS as u64) as usize].lock()
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// What `view` makes of the records of one shard, in the order of their keys.
    pub(super) fn view_shard<T>(&self, shard: usize, view: impl Fn(&Key, &Record) -> T) -> Vec<T> {
        let shard = self.shards[shard].lock();
        shard
            .iter()
            .map(|(key, record)| view(key, record))
            .collect()
    }

    /// Returns when every critical section that had begun has ended.
    pub(super) fn wait_for_holders(&self) {
        for shard in &self.shards {
            drop(shard.lock());
        }
    }

    /// Up to `limit` of what `view` makes of the records whose keys begin with `prefix` and come after
    /// `after`, in the order of their keys. Locks one shard at a time.
    pub(super) fn page<T>(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        view: impl Fn(&Key, &Record) -> T,
    ) -> Vec<(Key, T)> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let range = shard.range::<str, _>((from, Bound::Unbounded));
            let range = range.take_while(|(key, _)| key.starts_with(prefix));
            found.extend(
                range
                    .take(limit)
                    .map(|(key, record)| (key.clone(), view(key, record))),
            );
        }
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        found.truncate(limit);
        found
    }
}
