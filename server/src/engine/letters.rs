//! Tasks that were given up: read, taken up again, thrown away.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use wheelhouse_wheel::cron::Timestamp;

use super::{Engine, Refused};
use crate::task::{Key, RetryPolicy, Schedule, Target, Task};

/// A task that was given up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Which one it is: later ones have higher numbers.
    pub number: u64,
    /// Its key.
    pub key: Key,
    /// Where it should have gone.
    pub target: Target,
    /// What should have gone there.
    pub payload: Arc<RawValue>,
    /// How often it was to be tried.
    pub retry: RetryPolicy,
    /// Attempts that were made.
    pub attempts: u32,
    /// Why it was given up.
    pub reason: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// What became of a dead letter that was to be taken up again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Requeue {
    /// Its task is due at once, under this key.
    Queued(Key),
    /// There is no such letter.
    NotFound,
    /// Another task has its key, and the letter stays.
    Taken(Key),
}

impl Engine {
    /// The tasks that were given up, oldest first.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.inner.dead.lock().iter().cloned().collect()
    }

    /// Up to `limit` of them whose numbers are higher than `after`, oldest first.
    #[must_use]
    pub fn dead_letters_after(&self, after: Option<u64>, limit: usize) -> Vec<DeadLetter> {
        let dead = self.inner.dead.lock();
        let from = after.map_or(0, |after| dead.partition_point(|it| it.number <= after));
        dead.range(from..).take(limit).cloned().collect()
    }

    /// Throws a dead letter away, and returns whether there was one of this number.
    pub fn discard_dead_letter(&self, number: u64) -> bool {
        let mut dead = self.inner.dead.lock();
        let place = dead.binary_search_by_key(&number, |it| it.number);
        place.is_ok_and(|place| dead.remove(place).is_some())
    }

    /// Makes a task of a dead letter again, due at once, with all its attempts before it; one that
    /// repeated does so once. Of several calls at once one gets the letter.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); the letter stays.
    pub fn requeue_dead_letter(&self, number: u64) -> Result<Requeue, Refused> {
        let letter = {
            let mut dead = self.inner.dead.lock();
            let place = dead.binary_search_by_key(&number, |it| it.number);
            match place.ok().and_then(|place| dead.remove(place)) {
                Some(letter) => letter,
                None => return Ok(Requeue::NotFound),
            }
        };
        let task = Task {
            schedule: Schedule::Delay(Duration::ZERO),
            target: letter.target.clone(),
            payload: (*letter.payload).to_owned(),
            retry: letter.retry,
            ttl: None,
        };
        let put = self.put_if_absent(letter.key.clone(), task);
        let key = letter.key.clone();
        if !matches!(put, Ok(true)) {
            let mut dead = self.inner.dead.lock();
            let place = dead.partition_point(|it| it.number < number);
            dead.insert(place, letter);
            // What came meanwhile may have taken the last place.
            let over = dead.len().saturating_sub(self.inner.max_dead);
            dead.drain(..over);
        }
        Ok(match put? {
            true => Requeue::Queued(key),
            false => Requeue::Taken(key),
        })
    }
}
