//! From a timer that fires to an attempt that is settled.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::ending::{Ended, Ending};
use super::event::EventKind;
use super::store::{Record, Repeat, Shard};
use super::topics::Message;
use super::webhooks::{Delivery, SendError, Sending};
use super::{DeadLetter, Inner, later, timestamp, until};
use crate::task::{HttpTarget, Key, Target};

/// What an attempt goes by once it has its turn.
enum Turn {
    Publish(Message),
    /// Nothing has begun: the target has to be asked for leave first.
    Ask(Arc<HttpTarget>),
    Send(Delivery),
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
        let Some(sending) = self.start(generation, &key) else {
            return;
        };
        let timeout = self.attempt_timeout;
        // A task of its own, so that a panic in it is an attempt that failed.
        let sending = tokio::spawn(async move {
            let in_time = tokio::time::timeout(timeout, sending).await;
            in_time
                .unwrap_or_else(|_| Err(SendError::failed(format!("timed out after {timeout:?}"))))
        });
        let outcome = sending
            .await
            .unwrap_or_else(|error| Err(SendError::failed(error.to_string())));
        self.settle(generation, &key, outcome);
    }

    /// Begins the attempt, unless there is none to begin, or the target is to be left alone.
    fn start(self: &Arc<Self>, generation: u64, key: &Key) -> Option<Sending> {
        match self.turn(generation, key, false) {
            Turn::Stale | Turn::Send(_) => None,
            Turn::Publish(message) => {
                let inner = Arc::clone(self);
                Some(Box::pin(async move {
                    let published = inner.topics.publish(message).await;
                    published.map_err(SendError::from)
                }))
            }
            // Outside the lock: what asks is not ours.
            Turn::Ask(target) => match self.webhooks.as_ref()?.admit(&target) {
                Ok(admission) => match self.turn(generation, key, true) {
                    Turn::Send(delivery) => Some(admission.send(delivery)),
                    _ => None,
                },
                Err(hold) => {
                    self.hold(generation, key, hold.wait);
                    None
                }
            },
        }
    }

    /// Whose turn it is. A target over HTTP is asked first, then its turn comes `admitted`.
    fn turn(&self, generation: u64, key: &Key, admitted: bool) -> Turn {
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
        if let (Target::Http(target), false) = (&record.target, admitted) {
            return Turn::Ask(Arc::clone(target));
        }
        record.attempts += 1;
        record.firing = true;
        if record.attempts == 1 {
            let late = later(now, Duration::ZERO).saturating_sub(record.due_ms);
            let lateness = &self.counts.lateness;
            lateness.record(u64::try_from(late).unwrap_or(0));
        }
        self.tell(key, EventKind::Firing(record.attempts));
        let (key, attempt, payload) = (key.clone(), record.attempts, Arc::clone(&record.payload));
        match &record.target {
            Target::Topic(topic) => Turn::Publish(Message {
                topic: Arc::clone(topic),
                key,
                attempt,
                payload,
            }),
            Target::Http(target) => Turn::Send(Delivery {
                target: Arc::clone(target),
                key,
                attempt,
                payload,
            }),
        }
    }

    /// Tries again after `wait`, as if nothing had been.
    fn hold(&self, generation: u64, key: &Key, wait: Duration) {
        let mut shard = self.store.lock(key);
        if let Some(record) = current(&mut shard, generation, key) {
            self.counts.held.fetch_add(1, Ordering::Relaxed);
            record.next_ms = later(self.clock.system_now(), wait);
            record.generation = self.arm(key, wait);
        }
    }

    fn settle(&self, generation: u64, key: &Key, outcome: Result<(), SendError>) {
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
            Err(SendError::Failed {
                reason,
                retry_after,
            }) if attempts < record.retry.max_attempts => {
                let wait = record.retry.wait_after(attempts);
                let wait = wait.mul_f64(1.0 - fastrand::f64() / 2.0);
                let wanted = retry_after.unwrap_or_default().min(record.retry.max);
                let wait = wait.max(wanted);
                record.next_ms = later(now, wait);
                record.generation = self.arm(key, wait);
                let next = timestamp(record.next_ms);
                self.tell(key, EventKind::Retrying(attempts, next, reason.into()));
                return;
            }
            Err(SendError::Failed { reason, .. } | SendError::Refused(reason)) => {
                let ended = self.give_up(&mut shard, key, reason.into(), now);
                (ended, Ending::Dead)
            }
        };
        drop(shard);
        ended.tell(ending);
    }

    fn give_up(&self, shard: &mut Shard, key: &Key, reason: Arc<str>, now: SystemTime) -> Ended {
        self.counts.dead.fetch_add(1, Ordering::Relaxed);
        if let Some(record) = shard.get(&**key) {
            let mut dead = self.dead.lock();
            let letter = DeadLetter {
                // Relaxed: it changes under the lock of the letters alone.
                number: self.counts.letters.fetch_add(1, Ordering::Relaxed),
                key: key.clone(),
                target: record.target.clone(),
                payload: Arc::clone(&record.payload),
                retry: record.retry,
                attempts: record.attempts,
                reason: Arc::clone(&reason),
                at: timestamp(later(now, Duration::ZERO)),
            };
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
