//! [`GoZero`]: the ratio of go-zero's breaker of today, which leans on how whole buckets went.
//!
//! - total: all calls that finished in the window and all that were rejected in it; accepts: those
//!   that succeeded.
//! - failing: the trailing run of buckets with a failure and no success. working: the trailing run of
//!   buckets with a success and no failure. Buckets that are empty, or have rejections only, change
//!   neither run.
//! - w = max(1.1, k - (k - 1.1) · failing / n) for n buckets, p = (total - protection - w · accepts) /
//!   (total + 1); p ≤ 0 admits.
//! - If a call was last let through, while p > 0, more than a second ago, one caller is admitted.
//! - Otherwise p · (n - working) / n rejects.
//!
//! How finished buckets went changes only with the bucket, so it is kept: a look into the buckets is
//! needed once per bucket, and not at all while the window has no failure.

use std::time::Instant;

use wheelhouse_collection::{Bucket, Outcomes, Probability, RollingWindow};

use crate::sync::{AtomicU64, Ordering};

use super::ratio::{edge_after, reject_with};
use super::slack::{Look, Slack};
use super::{Decision, Settings};

const LEAST_WEIGHT: f64 = 1.1;

/// Nanoseconds after which a call is let through.
const FORCED_PASS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Finished {
    successes: u64,
    failures: u64,
    rejections: u64,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Success,
    Failure,
    Rejection,
}

impl Bucket for Finished {
    type Value = Event;
    type Counters = [u32; 3];

    #[inline]
    fn increments(event: Event) -> [u64; 3] {
        match event {
            Event::Success => [1, 0, 0],
            Event::Failure => [0, 1, 0],
            Event::Rejection => [0, 0, 1],
        }
    }

    #[inline]
    fn from_counts([successes, failures, rejections]: [u64; 3]) -> Self {
        Finished {
            successes,
            failures,
            rejections,
        }
    }
}

#[derive(Debug)]
pub(crate) struct GoZero {
    finished: Box<RollingWindow<Finished>>,
    slack: Slack,
    random: Probability,
    k: f64,
    protection: f64,
    buckets: u64,
    bucket: u64,
    runs: Runs,
    marks: Marks,
    /// When a call was last let through while p > 0: nanoseconds, at least 1; 0 before that.
    last_pass: AtomicU64,
}

impl GoZero {
    pub(super) fn new(settings: &Settings, start: Instant) -> Self {
        let bucket = settings.bucket_nanos();
        GoZero {
            finished: settings.window(start),
            slack: Slack::none(),
            random: settings.random(),
            k: settings.k,
            protection: settings.protection as f64,
            buckets: settings.buckets as u64,
            bucket,
            runs: Runs::none(),
            marks: Marks::at(bucket),
            last_pass: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn admit(&self, now: u64) -> Decision {
        match self.slack.covers(now) {
            true => Decision::Admit,
            false => self.look(now),
        }
    }

    fn look(&self, now: u64) -> Decision {
        let look = self.slack.look();
        let (excess, total, working) = self.excess(now, Some(look));
        if excess <= 0.0 {
            return Decision::Admit;
        }
        // Relaxed: the instant itself is all that is passed on, and the exchange has one winner.
        let last = self.last_pass.load(Ordering::Relaxed);
        if last > 0 && now.saturating_sub(last) > FORCED_PASS {
            let won = self.last_pass.compare_exchange(
                last,
                now.max(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if won.is_ok() {
                return Decision::Probe;
            }
        }
        let left = (self.buckets - working) as f64 / self.buckets as f64;
        let decision = reject_with(&self.random, excess / (total + 1.0) * left);
        match decision {
            Decision::Reject => {
                self.finished.add_at_nanos(now, Event::Rejection);
            }
            _ => self.last_pass.store(now.max(1), Ordering::Relaxed),
        }
        decision
    }

    /// The excess, the total and the working run. A look publishes the slack that it finds.
    fn excess(&self, now: u64, look: Option<Look>) -> (f64, f64, u64) {
        let finished = self.finished.snapshot_at_nanos(now);
        let accepts = finished.successes as f64;
        let total = (finished.successes + finished.failures + finished.rejections) as f64;
        let excess = |weight: f64| total - self.protection - weight * accepts;
        // With the least weight: then it is none with any.
        if finished.failures == 0 && excess(LEAST_WEIGHT) <= 0.0 {
            let slack = -excess(LEAST_WEIGHT);
            self.renew(look, slack, now);
            return (-slack, total, 0);
        }
        let bucket = self.finished_bucket(now);
        let (failing, working) = self.runs.of(bucket, || self.count_runs(now));
        // The bucket of now may join the failing run, and no more can happen to the run in it.
        let slack = -excess(self.weight(failing + 1));
        if slack >= 0.0 {
            self.renew(look, slack, now);
        }
        let (failing, working) = self.marks.join(now, failing, working);
        let working = working.min(self.buckets);
        (
            excess(self.weight(failing.min(self.buckets))),
            total,
            working,
        )
    }

    fn renew(&self, look: Option<Look>, slack: f64, now: u64) {
        if let Some(look) = look {
            self.slack.renew(look, slack, edge_after(now, self.bucket));
        }
    }

    fn weight(&self, failing: u64) -> f64 {
        let lighter = (self.k - LEAST_WEIGHT) * failing as f64 / self.buckets as f64;
        (self.k - lighter).max(LEAST_WEIGHT)
    }

    fn finished_bucket(&self, now: u64) -> u64 {
        now / self.bucket
    }

    /// The failing and the working run of the buckets before that of `now`.
    fn count_runs(&self, now: u64) -> (u64, u64) {
        let mut bucket = 0;
        let last = self.buckets - 1;
        self.finished
            .reduce_at_nanos(now, (0, 0), |(failing, working), counts| {
                bucket += 1;
                match bucket > last {
                    true => (failing, working),
                    false => joined(failing, working, counts.successes > 0, counts.failures > 0),
                }
            })
    }

    #[inline]
    pub(super) fn settle(&self, at: u64, success: bool) {
        let event = match success {
            true => Event::Success,
            false => Event::Failure,
        };
        self.marks.mark(at, success, self.bucket);
        let share = self.finished.add_at_nanos(at, event);
        if !success {
            self.slack.spend(share.failures);
        }
    }

    pub(super) fn probability(&self, now: u64) -> f64 {
        let (excess, total, working) = self.excess(now, None);
        let left = (self.buckets - working) as f64 / self.buckets as f64;
        (excess / (total + 1.0)).max(0.0) * left
    }

    /// Calls that finished.
    pub(super) fn window(&self, now: u64) -> Outcomes {
        let finished = self.finished.snapshot_at_nanos(now);
        Outcomes {
            requests: finished.successes + finished.failures,
            errors: finished.failures,
            slow: 0,
        }
    }

    pub(super) fn clear(&self) {
        self.finished.clear();
        self.slack.clear();
        self.runs.clear();
        self.marks.clear();
        // Relaxed: as in `look`.
        self.last_pass.store(0, Ordering::Relaxed);
    }
}

/// The runs, one bucket further.
fn joined(failing: u64, working: u64, succeeded: bool, failed: bool) -> (u64, u64) {
    match (succeeded, failed) {
        (false, false) => (failing, working),
        (true, false) => (0, working + 1),
        (false, true) => (failing + 1, 0),
        (true, true) => (0, 0),
    }
}

/// The runs of the finished buckets, as they were found first in the present one.
///
/// | bits | meaning |
/// |---|---|
/// | 0..16 | failing |
/// | 16..32 | working |
/// | 32..64 | the number of the present bucket and one, of which the lower bits |
#[derive(Debug)]
struct Runs(AtomicU64);

impl Runs {
    fn none() -> Self {
        Runs(AtomicU64::new(0))
    }

    /// What is known in `bucket`, or else what `count` finds.
    fn of(&self, bucket: u64, count: impl FnOnce() -> (u64, u64)) -> (u64, u64) {
        let tag = (bucket + 1) << 32;
        // Relaxed: the word is all that is passed on; who finds an old one counts for itself.
        let word = self.0.load(Ordering::Relaxed);
        if word >> 32 << 32 == tag {
            return (word & 0xFFFF, word >> 16 & 0xFFFF);
        }
        let (failing, working) = count();
        self.0.store(
            tag | working.min(0xFFFF) << 16 | failing.min(0xFFFF),
            Ordering::Relaxed,
        );
        (failing, working)
    }

    fn clear(&self) {
        // Relaxed: as in `of`.
        self.0.store(0, Ordering::Relaxed);
    }
}

const SUCCEEDED: u64 = 1;
const FAILED: u64 = 2;

/// What there was in the latest bucket: its end, of which the lowest two bits say whether there was a
/// success and a failure. So they are read without the counts, which other threads write to.
#[derive(Debug)]
struct Marks(AtomicU64);

impl Marks {
    fn at(edge: u64) -> Self {
        Marks(AtomicU64::new(edge & !3))
    }

    #[inline]
    fn mark(&self, at: u64, success: bool, bucket: u64) {
        let flag = match success {
            true => SUCCEEDED,
            false => FAILED,
        };
        // Relaxed, and below: the word is all that is passed on.
        let word = self.0.load(Ordering::Relaxed);
        if at < word & !3 && word & flag != 0 {
            return;
        }
        let edge = edge_after(at, bucket) & !3;
        let _always = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(match edge > word & !3 {
                    true => edge | flag,
                    false => word | flag,
                })
            });
    }

    /// The runs of finished buckets, joined by the bucket of `now`.
    fn join(&self, now: u64, failing: u64, working: u64) -> (u64, u64) {
        // Relaxed: as in `mark`.
        let word = self.0.load(Ordering::Relaxed);
        match now < word & !3 {
            true => joined(failing, working, word & SUCCEEDED != 0, word & FAILED != 0),
            false => (failing, working),
        }
    }

    fn clear(&self) {
        // Relaxed: as in `mark`.
        self.0.fetch_and(!3, Ordering::Relaxed);
    }
}
