//! From a timer that fires to an attempt that is settled.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::ending::{Ended, Ending};
use super::event::EventKind;
use super::store::{Record, Repeat, Shard};
use super::topics::Message;
use super::{DeadLetter, Inner, later, timestamp, until};
use crate::task::{Key, Target};

/// What an attempt goes by once it has its turn.
enum Turn {
    Publish(Message),
    /// The record has changed hands, or the engine is stopping.
    Stale,
}

impl Inner {
    /// Called by the wheel's thread, which must not wait.
    pub(super) fn come_due(self: &Arc<Self>, generation: u64, key: Key) {
        let inner = Arc::clone(self);
        let attempt = async move { inner.attempt(generation, key).await };
        self.running.spawn_on(attempt, &self.runtime);
    }

    async fn attempt(self: Arc<Self>, generation: u64, key: Key) {
        let permit = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            permit = self.attempts.acquire() => permit,
        };
        // The semaphore is never closed.
        let Ok(_permit) = permit else { return };
        let Turn::Publish(message) = self.begin(generation, &key) else {
            return;
        };
        let inner = Arc::clone(&self);
        // A task of its own, so that a panic in the publisher is an attempt that failed.
        let publishing = tokio::spawn(async move {
            let publishing = inner.topics.publish(message);
            match tokio::time::timeout(inner.attempt_timeout, publishing).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.0),
                Err(_) => Err(format!("timed out after {:?}", inner.attempt_timeout)),
            }
        });
        let outcome = publishing
            .await
            .unwrap_or_else(|error| Err(error.to_string()));
        self.settle(generation, &key, outcome);
    }

    fn begin(&self, generation: u64, key: &Key) -> Turn {
        let mut shard = self.store.lock(key);
        let Some(record) = current(&mut shard, generation, key) else {
            return Turn::Stale;
        };
        if self.stopping.is_cancelled() {
            return Turn::Stale;
        }
        let now = self.clock.system_now();
        let expired = record.ttl.is_some_and(|ttl| {
            let now = timestamp(later(now, Duration::ZERO));
            let late = now.as_millisecond().saturating_sub(record.due_ms);
            u128::try_from(late).is_ok_and(|late| late > ttl.as_millis())
        });
        if expired {
            let ended = self.give_up(&mut shard, key, "its time to live has passed".into(), now);
            drop(shard);
            ended.tell(Ending::Dead);
            return Turn::Stale;
        }
        record.attempts += 1;
        record.firing = true;
        self.tell(key, EventKind::Firing(record.attempts));
        let Target::Topic(topic) = &record.target;
        Turn::Publish(Message {
            topic: Arc::clone(topic),
            key: key.clone(),
            attempt: record.attempts,
            payload: Arc::clone(&record.payload),
        })
    }

    fn settle(&self, generation: u64, key: &Key, outcome: Result<(), String>) {
        let counter = match outcome {
            Ok(()) => &self.counts.delivered,
            Err(_) => &self.counts.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.store.lock(key);
        let now = self.clock.system_now();
        let Some(record) = current(&mut shard, generation, key) else {
            return;
        };
        record.firing = false;
        let attempts = record.attempts;
        let (ended, ending) = match outcome {
            Ok(()) => {
                self.tell(key, EventKind::Delivered(attempts));
                (self.go_on(&mut shard, key, now), Ending::Delivered)
            }
            Err(reason) if attempts >= record.retry.max_attempts => {
                let ended = self.give_up(&mut shard, key, reason.into(), now);
                (ended, Ending::Dead)
            }
            Err(reason) => {
                let wait = record.retry.wait_after(attempts);
                let wait = wait.mul_f64(1.0 - fastrand::f64() / 2.0);
                record.next_ms = later(now, wait);
                record.generation = self.arm(key, wait);
                let next = timestamp(record.next_ms);
                self.tell(key, EventKind::Retrying(attempts, next, reason.into()));
                return;
            }
        };
        drop(shard);
        ended.tell(ending);
    }

    fn give_up(&self, shard: &mut Shard, key: &Key, reason: Arc<str>, now: SystemTime) -> Ended {
        self.counts.dead.fetch_add(1, Ordering::Relaxed);
        if let Some(record) = shard.get(&**key) {
            let letter = DeadLetter {
                key: key.clone(),
                target: record.target.clone(),
                payload: Arc::clone(&record.payload),
                attempts: record.attempts,
                reason: Arc::clone(&reason),
                at: timestamp(later(now, Duration::ZERO)),
            };
            let mut dead = self.dead.lock();
            dead.push_back(letter);
            let over = dead.len().saturating_sub(self.max_dead);
            dead.drain(..over);
        }
        self.tell(key, EventKind::Dead(reason));
        self.go_on(shard, key, now)
    }

    /// Arms the next time of a task that repeats, and lets go of one that does not: gives whom to tell,
    /// once the lock is released.
    fn go_on(&self, shard: &mut Shard, key: &Key, now: SystemTime) -> Ended {
        let Some(record) = shard.get_mut(&**key) else {
            return Ended::default();
        };
        let now_ms = later(now, Duration::ZERO);
        let next_ms = record.repeat.as_deref().and_then(|repeat| match repeat {
            Repeat::Every(period) => Some(next_round(record.due_ms, *period, now_ms)),
            Repeat::Cron(cron) => {
                let next = cron.next_after_system(now)?;
                Some(later(next, Duration::ZERO))
            }
        });
        match next_ms {
            Some(next_ms) => {
                (record.due_ms, record.next_ms, record.attempts) = (next_ms, next_ms, 0);
                record.generation = self.arm(key, until(timestamp(next_ms), now));
                Ended::default()
            }
            None => {
                shard.remove(&**key);
                self.counts.pending.fetch_sub(1, Ordering::Relaxed);
                self.endings.take(key)
            }
        }
    }
}

fn current<'a>(shard: &'a mut Shard, generation: u64, key: &Key) -> Option<&'a mut Record> {
    let record = shard.get_mut(&**key)?;
    (record.generation == generation).then_some(record)
}

/// The first time after `now_ms` that is a whole number of periods after `due_ms`: what was missed is
/// left out.
fn next_round(due_ms: i64, period: Duration, now_ms: i64) -> i64 {
    let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let missed = now_ms.saturating_sub(due_ms).max(0) / period;
    due_ms.saturating_add(period.saturating_mul(missed.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_to_the_grid_and_leave_out_what_was_missed() {
        let period = Duration::from_millis(100);
        assert_eq!(next_round(1_000, period, 1_000), 1_100);
        assert_eq!(next_round(1_000, period, 1_099), 1_100);
        assert_eq!(next_round(1_000, period, 1_100), 1_200);
        assert_eq!(next_round(1_000, period, 1_950), 2_000);
        assert_eq!(next_round(1_000, period, 500), 1_100);
        assert_eq!(next_round(i64::MAX, period, i64::MAX), i64::MAX);
    }
}
