//! What the calls of a breaker come to: counters, windows, evidence, and the policies on them.
//!
//! # Ground rules
//!
//! - What a call writes is on the line of its thread's stripe: a [`Lane`], and the word of a window
//!   that carries the lanes.
//! - A success is counted by one addition: to the window that carries the lanes, or to the lane when
//!   there is none; and by one to each other window. It trips no policy of ours, unless the breaker is
//!   watched (see word.rs): a success only exceeds a rate by making up the minimum volume.
//! - The successes of a lane are those in its word, and those that the carrying window has on the same
//!   line and has not moved to the word yet.

use std::time::{Duration, Instant};

use wheelhouse_collection::{
    Bucket, Carry, CountWindow, ErrorCount, Outcome, Outcomes, RollingWindow, Striped,
};

pub(crate) use super::lane::{Lane, SUCCESSES};
pub(super) use super::trip::Finding;
use super::trip::{Evidence, Kind, Marks, Rate, Rates, Trip, TripPolicy, Weights, Window};
use super::word::{Mode, Word};
use crate::BuildError;
use crate::clock::{NEVER, TimeSource};
use crate::contain::{contained, report};
use crate::sync::{AtomicU64, Ordering};

/// The lanes, and the window that carries them, if there is one.
#[derive(Debug)]
pub(crate) enum Carrier {
    Plain(Box<Striped<Lane>>),
    Count(Box<Counted>),
    Errors(Box<RollingWindow<ErrorCount, Lane>>),
    All(Box<RollingWindow<Outcomes, Lane>>),
}

/// A window with lanes beside it: its own lines have no room for them.
#[derive(Debug)]
pub(crate) struct Counted {
    lanes: Striped<Lane>,
    window: CountWindow,
}

impl Carrier {
    fn new(rates: &[Rate], clock: &TimeSource) -> Result<Self, BuildError> {
        let Some(first) = rates.first() else {
            return Ok(Carrier::Plain(Box::new(Striped::new(Lane::new))));
        };
        match first.window {
            Window::Count(size) => Ok(Carrier::Count(Box::new(Counted {
                lanes: Striped::new(Lane::new),
                window: count_window(size)?,
            }))),
            Window::Time { span, buckets } if rates.iter().any(|rate| rate.slow) => {
                let window = time_window(clock, span, buckets, Lane::new)?;
                Ok(Carrier::All(Box::new(window)))
            }
            Window::Time { span, buckets } => {
                let window = time_window(clock, span, buckets, Lane::new)?;
                Ok(Carrier::Errors(Box::new(window)))
            }
        }
    }

    /// Counts a failure of the calling thread's lane, with its evidence, which it returns, with the
    /// number of the lane's failures.
    #[inline]
    pub(crate) fn fail(&self, lane: &Lane, weights: &Weights) -> (u16, u64) {
        lane.fail(weights, || match self {
            Carrier::Plain(_) | Carrier::Count(_) => (lane.word(), 0),
            Carrier::Errors(window) => {
                window.with_carried(|lane, now| (lane.word(), now.requests - now.errors))
            }
            Carrier::All(window) => {
                window.with_carried(|lane, now| (lane.word(), now.requests - now.errors))
            }
        })
    }

    /// Counts a success, unless a window does that.
    fn succeed(&self, lane: &Lane) {
        if let Carrier::Plain(_) | Carrier::Count(_) = self {
            lane.succeed();
        }
    }

    /// Shows each lane with its successes.
    pub(crate) fn each_counted(&self, mut look: impl FnMut(&Lane, u64)) {
        let folded = |lane: &Lane| lane.word() & SUCCESSES;
        match self {
            Carrier::Plain(_) | Carrier::Count(_) => self.each(|lane| look(lane, folded(lane))),
            Carrier::Errors(window) => window.with_all_carried(|lane, now| {
                look(lane, folded(lane) + now.requests - now.errors);
            }),
            Carrier::All(window) => window.with_all_carried(|lane, now| {
                look(lane, folded(lane) + now.requests - now.errors);
            }),
        }
    }

    #[inline]
    pub(crate) fn lane(&self) -> (usize, &Lane) {
        match self {
            Carrier::Plain(lanes) => lanes.mine_at(),
            Carrier::Count(counted) => counted.lanes.mine_at(),
            Carrier::Errors(window) => window.carried(),
            Carrier::All(window) => window.carried(),
        }
    }

    pub(crate) fn each(&self, mut look: impl FnMut(&Lane)) {
        match self {
            Carrier::Plain(lanes) => lanes.iter().for_each(&mut look),
            Carrier::Count(counted) => counted.lanes.iter().for_each(&mut look),
            Carrier::Errors(window) => window.all_carried().for_each(&mut look),
            Carrier::All(window) => window.all_carried().for_each(&mut look),
        }
    }
}

/// Counters and policies of a breaker.
#[derive(Debug)]
pub(crate) struct Tally {
    carrier: Carrier,
    /// On the carrier's window.
    rates: Option<Rates>,
    /// On the lanes.
    evidence: Option<Evidence>,
    more: Option<Box<More>>,
}

/// What breakers with one policy or two do not have.
#[derive(Debug, Default)]
struct More {
    counts: Vec<(CountWindow, Rates)>,
    windows: Vec<(RollingWindow<Outcomes>, Rates)>,
    /// Each on lanes of its own.
    evidence: Vec<(Carrier, Evidence)>,
    policies: Vec<Policy>,
}

/// A policy of the user's.
#[derive(Debug)]
struct Policy {
    policy: Box<dyn TripPolicy>,
    name: &'static str,
    /// The generation of the word that it has been reset for, times two; one more while it is.
    reset_for: AtomicU64,
    panics: AtomicU64,
}

impl Policy {
    fn new(name: &'static str, policy: Box<dyn TripPolicy>) -> Self {
        Policy {
            policy,
            name,
            reset_for: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    /// Resets it for this generation, unless somebody has. Says whether it is ready for it: not while
    /// another resets it, and not when it is ready for a later one.
    fn is_ready(&self, generation: u64) -> bool {
        let ready = generation * 2;
        // Acquire: pairs with the Release below, which passes on what the user's code has written.
        let found = self.reset_for.load(Ordering::Acquire);
        if found >= ready {
            return found == ready;
        }
        // Relaxed, both: the one that comes first resets it, the others do not use it.
        let claimed =
            self.reset_for
                .compare_exchange(found, ready + 1, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            return false;
        }
        self.contain(|policy| policy.reset());
        // Fails when another has claimed a later one.
        self.reset_for
            .compare_exchange(ready + 1, ready, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    fn record(&self, generation: u64, outcome: Outcome, now: Instant) -> bool {
        self.is_ready(generation)
            && self
                .contain(|policy| policy.record(outcome, now))
                .unwrap_or(false)
    }

    fn contain<T>(&self, user: impl FnOnce(&dyn TripPolicy) -> T) -> Option<T> {
        let value = contained(|| user(&*self.policy));
        if value.is_none() {
            // Relaxed: a figure.
            self.panics.fetch_add(1, Ordering::Relaxed);
            report("trip policy", self.name);
        }
        value
    }
}

/// Sums over all lanes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) successes: u64,
    pub(crate) failures: u64,
    pub(crate) slow: u64,
    pub(crate) ignored: u64,
    pub(crate) cancelled: u64,
    pub(crate) rejected: u64,
}

impl Tally {
    pub(crate) fn new(trips: &[Trip], clock: &TimeSource) -> Result<Self, BuildError> {
        let mut groups: Vec<(Window, Vec<Rate>)> = Vec::new();
        let mut weights = Vec::new();
        let mut more = More::default();
        for trip in trips {
            match &trip.kind {
                Kind::Rate(rate) => {
                    rate.check()?;
                    match groups.iter_mut().find(|(window, _)| *window == rate.window) {
                        Some((_, rates)) => rates.push(*rate),
                        None => groups.push((rate.window, vec![*rate])),
                    }
                }
                Kind::Consecutive(policy) => weights.push(policy.weights()?),
                Kind::Cusum(policy) => weights.push(policy.weights()?),
                Kind::User(name, make) => more.policies.push(Policy::new(name(), (make.0)())),
            }
        }
        // One over time first: its lines have room for the lanes.
        let over_time = |(window, _): &(Window, _)| matches!(window, Window::Time { .. });
        let carried = match groups.iter().position(over_time) {
            Some(at) => groups.remove(at).1,
            None if groups.is_empty() => Vec::new(),
            None => groups.remove(0).1,
        };
        let carrier = Carrier::new(&carried, clock)?;
        for (window, rates) in groups {
            let rates = Rates::new(&rates[0], &rates[1..]);
            match window {
                Window::Count(size) => more.counts.push((count_window(size)?, rates)),
                Window::Time { span, buckets } => {
                    let window = time_window(clock, span, buckets, || ())?;
                    more.windows.push((window, rates));
                }
            }
        }
        let mut weights = weights.into_iter();
        let evidence = weights.next().map(Evidence::new);
        more.evidence = weights
            .map(|weights| {
                let lanes = Carrier::Plain(Box::new(Striped::new(Lane::new)));
                (lanes, Evidence::new(weights))
            })
            .collect();
        Ok(Tally {
            carrier,
            rates: carried
                .split_first()
                .map(|(first, others)| Rates::new(first, others)),
            evidence,
            more: (!more.is_empty()).then(|| Box::new(more)),
        })
    }

    /// Counts a success while closed. Only a policy of the user's can trip on it, or a slow one.
    #[inline]
    pub(crate) fn success(&self, word: Word, clock: &TimeSource) -> Option<&'static str> {
        match &self.carrier {
            Carrier::Plain(lanes) => lanes.mine().succeed(),
            Carrier::Count(counted) => {
                counted.lanes.mine().succeed();
                counted.window.add(Outcome::Success);
            }
            Carrier::Errors(window) => {
                window.add_at_nanos(clock.nanos(), Outcome::Success);
            }
            Carrier::All(window) => {
                window.add_at_nanos(clock.nanos(), Outcome::Success);
            }
        }
        match &self.more {
            None => None,
            Some(more) => match more.record(word, Outcome::Success, clock, Marks::default()) {
                Finding::Exceeded(policy) => Some(policy),
                Finding::Fine | Finding::Short => None,
            },
        }
    }

    /// Counts any other outcome while closed, and says what policies find.
    pub(crate) fn marked(&self, word: Word, outcome: Outcome, clock: &TimeSource) -> Finding {
        let (place, lane) = self.carrier.lane();
        let mut found = Finding::Fine;
        let mut marks = Marks::default();
        if outcome.is_slow() {
            marks.slow = lane.count_slow();
        }
        if !outcome.is_error() {
            self.carrier.succeed(lane);
        } else if let Some(evidence) = &self.evidence {
            if evidence.weights.interval != NEVER {
                evidence.renew(&self.carrier, clock.nanos());
            }
            let trips;
            (trips, marks.failures) = evidence.failed(&self.carrier, place, lane);
            found = Finding::of(trips.then(|| evidence.weights.name()));
        } else {
            marks.failures = lane.count_failure();
        }
        marks.some_slow = lane.slow() > 0;
        if let Some(rates) = &self.rates {
            found = found.or(self.mark_window(rates, outcome, marks, clock));
        }
        if let Some(more) = &self.more {
            found = found.or(more.record(word, outcome, clock, marks));
        }
        found
    }

    /// Looks at all windows.
    #[cold]
    pub(crate) fn look(&self, clock: &TimeSource) -> Finding {
        let mut found = match &self.rates {
            None => Finding::Fine,
            Some(rates) => {
                let now = match &self.carrier {
                    Carrier::Plain(_) | Carrier::Count(_) => 0,
                    Carrier::Errors(_) | Carrier::All(_) => clock.nanos(),
                };
                rates.look(&self.window_at(now))
            }
        };
        if let Some(more) = &self.more {
            for (window, rates) in &more.counts {
                found = found.or(rates.look(&window.snapshot()));
            }
            for (window, rates) in &more.windows {
                found = found.or(rates.look(&window.snapshot_at_nanos(clock.nanos())));
            }
        }
        found
    }

    /// Counts a failure or a slow call in the carrier's window.
    fn mark_window(
        &self,
        rates: &Rates,
        outcome: Outcome,
        marks: Marks,
        clock: &TimeSource,
    ) -> Finding {
        let (error, slow) = (u64::from(outcome.is_error()), u64::from(outcome.is_slow()));
        let (is_due, now) = match &self.carrier {
            Carrier::Plain(_) => return Finding::Fine,
            Carrier::Count(counted) => {
                counted.window.add(outcome);
                (rates.is_due_by(marks), 0)
            }
            Carrier::Errors(window) => {
                let now = clock.nanos();
                let marks = window.add_at_nanos(now, outcome).errors;
                let first = marks <= error;
                (error > 0 && (first || rates.is_due(marks, error)), now)
            }
            Carrier::All(window) => {
                let now = clock.nanos();
                let share = window.add_at_nanos(now, outcome);
                let (marks, by) = (share.errors + share.slow, error + slow);
                (marks <= by || rates.is_due(marks, by), now)
            }
        };
        match is_due {
            true => rates.look(&self.window_at(now)),
            false => Finding::Fine,
        }
    }

    /// Counts a call that ended while not closed: for the figures only.
    pub(crate) fn count(&self, failed: bool, slow: bool) {
        let (_, lane) = self.carrier.lane();
        match failed {
            true => _ = lane.count_failure(),
            false => lane.succeed(),
        }
        if slow {
            lane.count_slow();
        }
    }

    /// The lane of the calling thread.
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        match &self.carrier {
            // First, since throttles have no other and ask at every call.
            Carrier::Plain(lanes) => lanes.mine(),
            carrier => carrier.lane().1,
        }
    }

    pub(crate) fn each_lane(&self, look: impl FnMut(&Lane)) {
        self.carrier.each(look);
    }

    pub(crate) fn ignored(&self) {
        self.carrier
            .lane()
            .1
            .ignored
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cancelled(&self) {
        self.carrier
            .lane()
            .1
            .cancelled
            .fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn rejected(&self) {
        self.carrier
            .lane()
            .1
            .rejected
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets what policies go by. Counters stay.
    pub(crate) fn reset(&self) {
        match &self.carrier {
            Carrier::Plain(_) => {}
            Carrier::Count(counted) => counted.window.clear(),
            Carrier::Errors(window) => window.clear(),
            Carrier::All(window) => window.clear(),
        }
        if let Some(rates) = &self.rates {
            rates.reset();
        }
        if let Some(evidence) = &self.evidence {
            evidence.reset(&self.carrier);
        }
        if let Some(more) = &self.more {
            more.reset();
        }
    }

    /// Resets the policies of the user's for the closed time of this word, if it is one. Outside every
    /// lock.
    pub(crate) fn renew(&self, word: Word) {
        if let Some(more) = &self.more
            && matches!(word.mode(), Mode::Closed | Mode::Ramp | Mode::MetricsOnly)
        {
            for policy in &more.policies {
                let _ = policy.is_ready(word.generation());
            }
        }
    }

    pub(crate) fn policy_panics(&self) -> u64 {
        let policies = self.more.iter().flat_map(|more| &more.policies);
        // Relaxed: a figure.
        policies
            .map(|policy| policy.panics.load(Ordering::Relaxed))
            .sum()
    }

    /// What is in the first window.
    pub(crate) fn window_at(&self, now: u64) -> Outcomes {
        match &self.carrier {
            Carrier::Plain(_) => Outcomes::default(),
            Carrier::Count(counted) => counted.window.snapshot(),
            Carrier::Errors(window) => window.snapshot_at_nanos(now).into(),
            Carrier::All(window) => window.snapshot_at_nanos(now),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.carrier.each_counted(|lane, successes| {
            totals.successes += successes;
            totals.failures += lane.failures();
            totals.slow += lane.slow();
            totals.ignored += lane.ignored.load(Ordering::Relaxed);
            totals.cancelled += lane.cancelled.load(Ordering::Relaxed);
            totals.rejected += lane.rejected.load(Ordering::Relaxed);
        });
        totals
    }
}

impl More {
    fn is_empty(&self) -> bool {
        self.counts.is_empty()
            && self.windows.is_empty()
            && self.evidence.is_empty()
            && self.policies.is_empty()
    }

    fn record(&self, word: Word, outcome: Outcome, clock: &TimeSource, marks: Marks) -> Finding {
        let by = u64::from(outcome.is_error()) + u64::from(outcome.is_slow());
        let mut found = Finding::Fine;
        for (window, rates) in &self.counts {
            window.add(outcome);
            if by > 0 && rates.is_due_by(marks) {
                found = found.or(rates.look(&window.snapshot()));
            }
        }
        for (window, rates) in &self.windows {
            let now = clock.nanos();
            let share = window.add_at_nanos(now, outcome);
            let marks = share.errors + share.slow;
            if by > 0 && (marks <= by || rates.is_due(marks, by)) {
                found = found.or(rates.look(&window.snapshot_at_nanos(now)));
            }
        }
        for (lanes, evidence) in &self.evidence {
            let (place, lane) = lanes.lane();
            if !outcome.is_error() {
                lane.succeed();
                continue;
            }
            if evidence.weights.interval != NEVER {
                evidence.renew(lanes, clock.nanos());
            }
            let (trips, _) = evidence.failed(lanes, place, lane);
            found = found.or(Finding::of(trips.then(|| evidence.weights.name())));
        }
        if !self.policies.is_empty() {
            let now: Instant = clock.now();
            for policy in &self.policies {
                let trips = policy.record(word.generation(), outcome, now);
                found = found.or(Finding::of(trips.then_some(policy.name)));
            }
        }
        found
    }

    fn reset(&self) {
        for (window, rates) in &self.counts {
            window.clear();
            rates.reset();
        }
        for (window, rates) in &self.windows {
            window.clear();
            rates.reset();
        }
        for (lanes, evidence) in &self.evidence {
            evidence.reset(lanes);
        }
    }
}

fn count_window(size: usize) -> Result<CountWindow, BuildError> {
    CountWindow::new(size).map_err(|_| BuildError::new("last", size.to_string(), "1 to 16777216"))
}

fn time_window<B: Bucket, S: Carry<B>>(
    clock: &TimeSource,
    span: Duration,
    buckets: usize,
    each: impl Fn() -> S,
) -> Result<RollingWindow<B, S>, BuildError> {
    let refused = |value: String, allowed| BuildError::new("within", value, allowed);
    let few = || refused(buckets.to_string(), "1 to 1048576 buckets");
    let number = u32::try_from(buckets).ok().filter(|&number| number > 0);
    let length = span / number.ok_or_else(few)?;
    if length.is_zero() {
        return Err(refused(format!("{span:?}"), "1ns and more for each bucket"));
    }
    RollingWindow::carrying(clock.start(), buckets, length, each).map_err(|_| few())
}
