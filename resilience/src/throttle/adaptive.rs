//! [`Adaptive`]: rejects as much as is needed and learns from what it lets through.
//!
//! Three things decide about a call, and the first that applies wins:
//!
//! 1. *Given up.* A run of failures without a success between them that the backend, going by its
//!    rate of failures in the window, would show with a chance of 10⁻⁹: r = ln 10⁻⁹ / ln e with
//!    e = (failed + 1) / (succeeded + failed + 2), from 10 to 200. Only probes go through: the first
//!    after a tenth of the interval, then with pauses that double up to the interval (a second).
//!    A backend that does not answer at all is given up likewise, by the calls that are overdue
//!    (three times the mean latency, by Little's law, and at least a bucket) instead of failed.
//! 2. *Ramp.* The first probe that succeeds forgets the window and lets a share of 1/32 through, which
//!    doubles every 100 ms, at most once for each success, so within 500 ms. While the successes are
//!    few each of them allows one call more. A run of failures as long as all the successes since the
//!    first probe gives the backend up again, so at the beginning a single one does.
//! 3. *Ratio.* p = (n - k · succeeded - protection) / (n + 1) over the admitted calls that ended in
//!    the window, n of them, from 0 to 0.9. It is taken anew with each bucket. If nothing went through
//!    for an interval one call does.
//!
//! # Why there is no cliff
//!
//! A throttle that counts its own rejections as requests takes them for failures: each makes the next
//! more likely, and where failures do not depend on the load it ends at a few per cent. Here rejected
//! calls are not counted, so with a share e of failures p is 1 - k · (1 - e) whatever was rejected
//! before: with k = 2 nothing up to e = 0.5, and then as much as e says. And since the run that means
//! death grows with e, a backend that often fails is throttled by its ratio and not given up.
//!
//! # Ground rules
//!
//! - A call counts in the breaker's lane of its thread ([`Lane`]): once when it starts, once when it
//!   ends. What it decides on is the gate word, which is written only when the decision changes.
//! - Of the lanes' counters only the differences of two sums matter: the window, the calls in flight
//!   and the breaker's figures come from the same ones.
//! - While the gate is open no clock is read, except at a failure and at every sixteenth start of a
//!   lane: an open gate does not depend on time.
//! - [`Book`], under its lock, holds what happened by the edges of the buckets. The gate is written
//!   under this lock.
//!
//! # Invariants
//!
//! - I1: the epoch of the gate is the number of times the backend was given up. A call of an earlier
//!   epoch than the gate's is stale: it neither counts as success nor as failure. Exception: when the
//!   backend was given up for hanging, a success of before ends that.
//! - I2: `doubt` is set exactly while the book's run counts.
//!
//! # Races considered
//!
//! - A success settles while another thread sets `doubt`: it may have looked at the gate before, and
//!   then does not end the run. Each thread misses at most one success so; a run needs ten failures.
//! - Two threads find the edge passed: the compare-exchange on `edge` has one winner, who writes the
//!   book.

use std::time::Duration;

use wheelhouse_collection::{Outcomes, Probability};

use crate::Verdict;
use crate::breaker::tally::{Lane, SUCCESSES, Tally};
use crate::sync::{AtomicU64, Mutex, Ordering};

use super::book::Book;
use super::gate::{Gate, Mode};
use super::probes::Probes;
use super::{Decision, Settings, Ticket, Totals};

/// The most that the ratio rejects, so that it goes on learning.
const MOST: f64 = 0.9;

/// Of the lane's starts, one in so many reads the clock.
const LOOK_EVERY: u64 = 16;

/// The failures in a row in one lane from which on the backend is in doubt.
const DOUBTFUL_RUN: u64 = 4;

/// Doublings until everything is let through.
const DOUBLINGS: u64 = 5;

/// The part of the interval after which the first probe is due.
const FIRST_PROBE: u64 = 10;

const RAMP_STEP_NANOS: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Adaptive {
    gate: Gate,
    /// The end of the present bucket.
    edge: AtomicU64,
    /// When the ramp began, and how many of its doublings have been earned.
    ramp_start: AtomicU64,
    ramp_earned: AtomicU64,
    probes: Probes,
    /// How many probes there were.
    probed: AtomicU64,
    random: Probability,
    k: f64,
    protection: f64,
    bucket: u64,
    interval: u64,
    book: Mutex<Box<Book>>,
}

impl Adaptive {
    pub(super) fn new(settings: &Settings) -> Self {
        let bucket = settings.bucket_nanos();
        let interval = crate::clock::nanos(settings.probe_interval);
        Adaptive {
            gate: Gate::open(),
            edge: AtomicU64::new(bucket),
            ramp_start: AtomicU64::new(0),
            ramp_earned: AtomicU64::new(0),
            probes: Probes::every(interval),
            probed: AtomicU64::new(0),
            random: settings.random(),
            k: settings.k,
            protection: settings.protection as f64,
            bucket,
            interval,
            book: Mutex::new(Box::new(Book::new(settings.buckets))),
        }
    }

    #[inline]
    pub(super) fn admit(&self, tally: &Tally, now: impl FnOnce() -> u64) -> (Decision, u64) {
        let gate = self.gate.load();
        let lane = tally.lane();
        if !gate.admits_all() {
            return self.admit_some(tally, lane, now());
        }
        if lane.start().is_multiple_of(LOOK_EVERY) {
            self.look(tally, now());
        }
        (Decision::Admit, gate.epoch())
    }

    /// Counts the beginning of a call that goes anyway, and returns the epoch.
    pub(super) fn observe(&self, tally: &Tally, now: impl FnOnce() -> u64) -> u64 {
        if tally.lane().start().is_multiple_of(LOOK_EVERY) {
            self.look(tally, now());
        }
        self.gate.load().epoch()
    }

    #[cold]
    #[inline(never)]
    fn admit_some(&self, tally: &Tally, lane: &Lane, now: u64) -> (Decision, u64) {
        self.look(tally, now);
        let gate = self.gate.load();
        let passes = match gate.mode() {
            Mode::Open => !self.random.roll(gate.rejected()),
            Mode::GivenUp => false,
            Mode::Ramp => match self.ramp_share(now) {
                share if share < 1.0 => self.random.roll(share * (1.0 - gate.rejected())),
                _ => {
                    self.end_ramp(gate.epoch());
                    !self.random.roll(gate.rejected())
                }
            },
        };
        let decision = if passes {
            if gate.mode() == Mode::Open {
                self.probes.passed(now);
            }
            Decision::Admit
        } else if self.probes.claim(now) {
            // Relaxed: a figure.
            self.probed.fetch_add(1, Ordering::Relaxed);
            Decision::Probe
        } else {
            return (Decision::Reject, gate.epoch());
        };
        lane.start();
        (decision, gate.epoch())
    }

    #[inline]
    pub(super) fn settle(
        &self,
        tally: &Tally,
        ticket: &Ticket,
        verdict: Verdict,
        now: impl FnOnce() -> u64,
    ) -> bool {
        let lane = tally.lane();
        let gate = self.gate.load();
        if gate.epoch() != ticket.epoch {
            return self.settle_late(tally, verdict, now);
        }
        match verdict {
            Verdict::Success => {
                lane.succeed_in_run();
                if gate.wants_successes() {
                    self.recover(tally, ticket, now());
                }
            }
            Verdict::Failure => {
                let run = lane.fail_in_run();
                let now = now();
                self.look(tally, now);
                if run >= DOUBTFUL_RUN || gate.wants_successes() {
                    self.doubt(tally, ticket, run, now);
                }
            }
            Verdict::Ignored => lane.unstart(),
        }
        true
    }

    /// A call from before the backend was given up (I1).
    #[cold]
    fn settle_late(&self, tally: &Tally, verdict: Verdict, now: impl FnOnce() -> u64) -> bool {
        self.abandon(tally);
        if verdict == Verdict::Success {
            let mut book = self.book.lock();
            if self.gate.load().mode() == Mode::GivenUp && book.hung {
                self.begin_ramp(tally, &mut book, now());
            }
        }
        false
    }

    /// A call has ended that says nothing any more.
    pub(super) fn abandon(&self, tally: &Tally) {
        tally.lane().unstart();
    }

    /// What a success changes while the backend is in doubt, given up or recovering.
    #[cold]
    fn recover(&self, tally: &Tally, ticket: &Ticket, now: u64) {
        let mut book = self.book.lock();
        let gate = self.gate.load();
        if gate.epoch() != ticket.epoch {
            return;
        }
        match gate.mode() {
            Mode::Open => {
                book.run = 0;
                self.gate.store(gate.with_doubt(false));
            }
            Mode::GivenUp => self.begin_ramp(tally, &mut book, now),
            Mode::Ramp => {
                book.run = 0;
                book.recovered += 1;
                if book.recovered <= DOUBLINGS {
                    // Relaxed: a pace, read by nobody but the ramp itself.
                    self.ramp_earned.store(book.recovered, Ordering::Relaxed);
                    self.probes.restart(now, self.interval / FIRST_PROBE);
                }
            }
        }
    }

    /// What a failure changes when it is not the first in its lane, or the backend is in doubt, given
    /// up or recovering.
    #[cold]
    fn doubt(&self, tally: &Tally, ticket: &Ticket, run: u64, now: u64) {
        let mut book = self.book.lock();
        let gate = self.gate.load();
        if gate.epoch() != ticket.epoch {
            return;
        }
        let limit = match gate.mode() {
            Mode::GivenUp => return,
            Mode::Open => book.limit,
            Mode::Ramp => book.recovered.clamp(1, book.limit),
        };
        match gate.mode() == Mode::Ramp || gate.doubts() {
            true => book.run += 1,
            // The first of this lane's run were not counted in the book.
            false => {
                book.run = run;
                self.gate.store(gate.with_doubt(true));
            }
        }
        if book.run >= limit {
            self.give_up(tally, &mut book, false, now);
        }
    }

    fn give_up(&self, tally: &Tally, book: &mut Book, hung: bool, now: u64) {
        book.run = 0;
        book.hung = hung;
        let first = self.interval / FIRST_PROBE;
        self.probes.restart(now.saturating_add(first), first);
        self.gate.store(self.gate.load().given_up());
        tally.each_lane(Lane::end_run);
    }

    fn begin_ramp(&self, tally: &Tally, book: &mut Book, now: u64) {
        book.cut(&totals(tally));
        book.recovered = 1;
        // Relaxed: published by the gate, whose store is a Release.
        self.ramp_start.store(now, Ordering::Relaxed);
        self.ramp_earned.store(1, Ordering::Relaxed);
        self.probes.restart(now, self.interval / FIRST_PROBE);
        tally.each_lane(Lane::end_run);
        self.gate.store(self.gate.load().with_mode(Mode::Ramp));
    }

    #[cold]
    fn end_ramp(&self, epoch: u64) {
        let mut book = self.book.lock();
        let gate = self.gate.load();
        if gate.mode() == Mode::Ramp && gate.epoch() == epoch {
            book.run = 0;
            self.gate.store(gate.with_mode(Mode::Open));
        }
    }

    /// The share that the ramp lets through, 1 and more at its end.
    fn ramp_share(&self, now: u64) -> f64 {
        // Relaxed: published by the gate, whose load is an Acquire.
        let start = self.ramp_start.load(Ordering::Relaxed);
        let earned = self.ramp_earned.load(Ordering::Relaxed);
        let steps = now.saturating_sub(start) as f64 / RAMP_STEP_NANOS as f64;
        (steps.min(earned as f64) - DOUBLINGS as f64).exp2()
    }

    /// Takes note of the edge if it has passed.
    #[inline]
    fn look(&self, tally: &Tally, now: u64) {
        // Relaxed: the word itself is all that is passed on; what belongs to it is under the lock.
        let edge = self.edge.load(Ordering::Relaxed);
        if now >= edge {
            self.turn(tally, edge, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn turn(&self, tally: &Tally, edge: u64, now: u64) {
        let passed = (now - edge) / self.bucket + 1;
        let next = edge.saturating_add(passed.saturating_mul(self.bucket));
        // Relaxed: as in `look`.
        let won = self
            .edge
            .compare_exchange(edge, next, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_err() {
            return;
        }
        let mut book = self.book.lock();
        let seen = book.turn(passed, &totals(tally));
        let gate = self.gate.load();
        if gate.mode() == Mode::Open && seen.hangs {
            self.give_up(tally, &mut book, true, now);
            return;
        }
        self.gate
            .store(gate.with_rejected(self.ratio(seen.succeeded, seen.failed)));
    }

    /// From 0 to [`MOST`].
    fn ratio(&self, succeeded: u64, failed: u64) -> f64 {
        let ended = (succeeded + failed) as f64;
        let excess = ended - self.k * succeeded as f64 - self.protection;
        (excess / (ended + 1.0)).clamp(0.0, MOST)
    }

    /// How long a rejected caller had better wait, in nanoseconds.
    pub(super) fn wait(&self, now: u64) -> u64 {
        self.probes.wait(now)
    }

    pub(super) fn is_ramp(&self) -> bool {
        self.gate.load().mode() == Mode::Ramp
    }

    /// The probability with which a call at `now` is rejected, the probe budget left out.
    pub(super) fn probability(&self, tally: &Tally, now: u64) -> f64 {
        self.look(tally, now);
        let gate = self.gate.load();
        match gate.mode() {
            Mode::Open => gate.rejected(),
            Mode::GivenUp => 1.0,
            Mode::Ramp => 1.0 - self.ramp_share(now).min(1.0) * (1.0 - gate.rejected()),
        }
    }

    /// The admitted calls of the window that ended.
    pub(super) fn window(&self, tally: &Tally, now: u64) -> Outcomes {
        self.look(tally, now);
        let (succeeded, failed) = self.book.lock().window(&totals(tally));
        Outcomes {
            requests: succeeded + failed,
            errors: failed,
            slow: 0,
        }
    }

    pub(super) fn probes(&self) -> u64 {
        self.probed.load(Ordering::Relaxed)
    }

    /// Forgets the past, and admits all. Calls under way are stale.
    pub(super) fn clear(&self, tally: &Tally) {
        let mut book = self.book.lock();
        book.cut(&totals(tally));
        book.hung = false;
        tally.each_lane(Lane::end_run);
        self.gate.store(self.gate.load().given_up().opened());
    }
}

/// Ends before starts, so that no more seem to have ended than started: a sum is taken while they move.
fn totals(tally: &Tally) -> Totals {
    let sum = |counter: fn(&Lane) -> u64| {
        let mut sum = 0_u64;
        tally.each_lane(|lane| sum = sum.wrapping_add(counter(lane)));
        sum
    };
    Totals {
        succeeded: sum(|lane| lane.word() & SUCCESSES),
        failed: sum(Lane::failures),
        started: sum(Lane::started),
    }
}

impl Settings {
    /// One second.
    pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(1);
}
