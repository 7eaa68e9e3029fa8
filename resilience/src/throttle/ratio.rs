//! [`Ratio`]: the modes that reject by a ratio of sums over one window. [`Sre`] and [`GoZero2022`] are
//! here, [`GoZero`] has a file of its own.

use std::time::{Duration, Instant};

use wheelhouse_collection::{Bucket, ErrorCount, Outcome, Outcomes, Probability, RollingWindow};

use super::go_zero::GoZero;
use super::slack::Slack;
use super::{Decision, Settings, ThrottleMode};

/// One of the modes. Times are nanoseconds.
#[derive(Debug)]
pub(crate) enum Ratio {
    Sre(Sre),
    GoZero2022(GoZero2022),
    GoZero(GoZero),
}

impl Ratio {
    pub(super) fn new(settings: &Settings, start: Instant) -> Self {
        match settings.mode {
            ThrottleMode::Sre => Ratio::Sre(Sre::new(settings, start)),
            ThrottleMode::GoZero2022 => Ratio::GoZero2022(GoZero2022::new(settings, start)),
            _ => Ratio::GoZero(GoZero::new(settings, start)),
        }
    }

    /// Decides about a call that begins at `at`.
    #[inline]
    pub(super) fn admit(&self, at: u64) -> Decision {
        match self {
            Ratio::Sre(sre) => sre.admit(at),
            Ratio::GoZero2022(go_zero) => go_zero.admit(at),
            Ratio::GoZero(go_zero) => go_zero.admit(at),
        }
    }

    /// Takes note of a call that goes whatever the rule says.
    pub(super) fn observe(&self, at: u64) {
        if let Ratio::Sre(sre) = self {
            sre.request(at);
        }
    }

    /// Counts the end of a call.
    #[inline]
    pub(super) fn settle(&self, at: u64, success: bool) {
        match self {
            Ratio::Sre(sre) => sre.settle(at, success),
            Ratio::GoZero2022(go_zero) => go_zero.settle(at, success),
            Ratio::GoZero(go_zero) => go_zero.settle(at, success),
        }
    }

    pub(super) fn probability(&self, now: u64) -> f64 {
        match self {
            Ratio::Sre(sre) => sre.probability(now),
            Ratio::GoZero2022(go_zero) => go_zero.probability(now),
            Ratio::GoZero(go_zero) => go_zero.probability(now),
        }
    }

    pub(super) fn window(&self, now: u64) -> Outcomes {
        match self {
            Ratio::Sre(sre) => sre.window(now),
            Ratio::GoZero2022(go_zero) => go_zero.finished.snapshot_at_nanos(now).into(),
            Ratio::GoZero(go_zero) => go_zero.window(now),
        }
    }

    pub(super) fn clear(&self) {
        match self {
            Ratio::Sre(sre) => sre.clear(),
            Ratio::GoZero2022(go_zero) => go_zero.clear(),
            Ratio::GoZero(go_zero) => go_zero.clear(),
        }
    }
}

/// What a caller asked for, and what of it the other side accepted.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    requests: u64,
    accepts: u64,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Request,
    Accept,
}

impl Bucket for Demand {
    type Value = Event;
    type Counters = [u32; 2];

    #[inline]
    fn increments(event: Event) -> [u64; 2] {
        match event {
            Event::Request => [1, 0],
            Event::Accept => [0, 1],
        }
    }

    #[inline]
    fn from_counts([requests, accepts]: [u64; 2]) -> Self {
        Demand { requests, accepts }
    }
}

/// The client-side throttle of the book: requests are counted when they are made, rejected ones too.
#[derive(Debug)]
pub(crate) struct Sre {
    demand: Box<RollingWindow<Demand>>,
    slack: Slack,
    random: Probability,
    k: f64,
    protection: f64,
    bucket: u64,
}

impl Sre {
    pub(super) fn new(settings: &Settings, start: Instant) -> Self {
        Sre {
            demand: settings.window(start),
            slack: Slack::none(),
            random: settings.random(),
            k: settings.k,
            protection: settings.protection as f64,
            bucket: settings.bucket_nanos(),
        }
    }

    #[inline]
    pub(super) fn admit(&self, now: u64) -> Decision {
        self.request(now);
        if self.slack.covers(now) {
            return Decision::Admit;
        }
        let look = self.slack.look();
        let demand = self.demand.snapshot_at_nanos(now);
        // Those before this one.
        let requests = demand.requests.saturating_sub(1) as f64;
        let excess = requests - self.protection - self.k * demand.accepts as f64;
        if excess <= 0.0 {
            // One less: the next request sees this one.
            self.slack
                .renew(look, -excess - 1.0, edge_after(now, self.bucket));
            return Decision::Admit;
        }
        reject_with(&self.random, excess / (requests + 1.0))
    }

    #[inline]
    fn request(&self, now: u64) {
        let share = self.demand.add_at_nanos(now, Event::Request);
        self.slack.spend(share.requests);
    }

    #[inline]
    pub(super) fn settle(&self, at: u64, success: bool) {
        if success {
            self.demand.add_at_nanos(at, Event::Accept);
        }
    }

    pub(super) fn probability(&self, now: u64) -> f64 {
        let demand = self.demand.snapshot_at_nanos(now);
        let requests = demand.requests as f64;
        let excess = requests - self.protection - self.k * demand.accepts as f64;
        (excess / (requests + 1.0)).max(0.0)
    }

    /// Requests, and as errors those that were not accepted.
    fn window(&self, now: u64) -> Outcomes {
        let demand = self.demand.snapshot_at_nanos(now);
        Outcomes {
            requests: demand.requests,
            // A call may be accepted in a later bucket than it was made in.
            errors: demand.requests.saturating_sub(demand.accepts),
            slow: 0,
        }
    }

    pub(super) fn clear(&self) {
        self.demand.clear();
        self.slack.clear();
    }
}

/// go-zero's breaker as its article of 2022 has it: only calls that finished are counted.
#[derive(Debug)]
pub(crate) struct GoZero2022 {
    finished: Box<RollingWindow<ErrorCount>>,
    slack: Slack,
    random: Probability,
    k: f64,
    protection: f64,
    bucket: u64,
}

impl GoZero2022 {
    pub(super) fn new(settings: &Settings, start: Instant) -> Self {
        GoZero2022 {
            finished: settings.window(start),
            slack: Slack::none(),
            random: settings.random(),
            k: settings.k,
            protection: settings.protection as f64,
            bucket: settings.bucket_nanos(),
        }
    }

    #[inline]
    pub(super) fn admit(&self, now: u64) -> Decision {
        if self.slack.covers(now) {
            return Decision::Admit;
        }
        let look = self.slack.look();
        let (excess, total) = self.excess(now);
        if excess <= 0.0 {
            self.slack
                .renew(look, -excess, edge_after(now, self.bucket));
            return Decision::Admit;
        }
        reject_with(&self.random, excess / (total + 1.0))
    }

    #[inline]
    pub(super) fn settle(&self, at: u64, success: bool) {
        let share = self
            .finished
            .add_at_nanos(at, Outcome::new(!success, false));
        if !success {
            self.slack.spend(share.errors);
        }
    }

    pub(super) fn probability(&self, now: u64) -> f64 {
        let (excess, total) = self.excess(now);
        (excess / (total + 1.0)).max(0.0)
    }

    fn excess(&self, now: u64) -> (f64, f64) {
        let finished = self.finished.snapshot_at_nanos(now);
        let accepts = (finished.requests - finished.errors) as f64;
        let total = finished.requests as f64;
        (total - self.protection - self.k * accepts, total)
    }

    pub(super) fn clear(&self) {
        self.finished.clear();
        self.slack.clear();
    }
}

/// The end of the bucket that `now` is in.
pub(super) fn edge_after(now: u64, bucket: u64) -> u64 {
    (now / bucket + 1).saturating_mul(bucket)
}

pub(super) fn reject_with(random: &Probability, probability: f64) -> Decision {
    match random.roll(probability) {
        true => Decision::Reject,
        false => Decision::Admit,
    }
}

impl Settings {
    /// In a box: what it is in would be rounded up to pairs of cache lines with it.
    pub(super) fn window<B: Bucket>(&self, start: Instant) -> Box<RollingWindow<B>> {
        let length = Duration::from_nanos(self.bucket_nanos());
        let window = RollingWindow::starting_at(start, self.buckets, length)
            .expect("the builder has checked the number of buckets and their length");
        Box::new(window)
    }

    pub(super) fn random(&self) -> Probability {
        self.seed.map_or_else(Probability::new, Probability::seeded)
    }

    /// Of one bucket, at least 1.
    pub(super) fn bucket_nanos(&self) -> u64 {
        let nanos = self.window.as_nanos() / self.buckets as u128;
        u64::try_from(nanos)
            .unwrap_or(u64::MAX)
            .clamp(1, u64::MAX / 2)
    }
}
