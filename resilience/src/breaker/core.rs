//! The admission core under every breaker: who is let through, and what becomes of the verdict.
//!
//! # Ground rules
//!
//! - A call loads the state word. Closed, with nothing to measure: it may go, and nothing is written.
//! - When it ends, it loads the word again. The same: it is counted on its thread's own line. Another
//!   generation: it is stale.
//! - Everything else (half-open, transitions) is decided under the lock of the [`Gate`], which
//!   alone writes the word, but for the end of the ramp.
//! - `until` is written before the word that it belongs to, and read between two loads of that word.
//!
//! # Races considered
//!
//! - A call ends while the breaker changes: it has seen the old word and counts after the counters
//!   were reset. It is as if it had ended a moment later, in the next closed time: at most one call for
//!   each thread.
//! - Others open and close the breaker between the look at the word and that at `until`, which is of a
//!   later opening then: the word has changed too, and both are looked at again.
//! - A call in the ramp finds the `until` of an opening that is being made: it is rejected, or stale
//!   when it ends, as it would be a moment later.
//! - Two calls trip: the second finds another generation under the lock and does nothing.
//! - A success clears the watch (see word.rs) while a failure finds that it is needed: it is set again
//!   by the next failure.

use std::sync::{Arc, OnceLock};

use wheelhouse_collection::{Outcome, Probability};

use super::event::{Events, Hook, Listeners};
use super::gate::Gate;
use super::settings::Settings;
use super::stats::BreakerStats;
use super::tally::{Finding, Tally};
use super::timers::Armed;
use super::trip::Trip;
use super::word::{Mode, Word};
use super::{Cause, Reason, Rejected, Settled, State, Timers, Verdict};
use crate::BuildError;
use crate::clock::{NEVER, TimeSource};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::throttle::{self, Throttle};

/// What decides on calls while the breaker is closed.
#[derive(Debug)]
pub(crate) enum Admission {
    /// A policy that trips; until then every call may go.
    Circuit,
    /// A throttle, which never trips and is asked about every call.
    Throttle(Box<Throttle>),
}

pub(crate) struct Core {
    /// See word.rs.
    pub(super) word: AtomicU64,
    /// When the cool-down ends, or the ramp: the last of either.
    pub(super) until: AtomicU64,
    /// Whether a closed breaker needs nothing but its word to let a call go.
    plain: bool,
    pub(super) clock: TimeSource,
    pub(super) admission: Admission,
    pub(super) tally: Tally,
    pub(super) settings: Arc<Settings>,
    in_flight: AtomicU32,
    pub(super) gate: Mutex<Gate>,
    stale: AtomicU64,
    listeners: OnceLock<Box<Listeners>>,
    extras: Option<Box<Extras>>,
}

/// What a breaker without a name, a seed and timers does not have.
pub(super) struct Extras {
    pub(super) name: Option<Arc<str>>,
    pub(super) random: Option<Probability>,
    pub(super) armed: Option<Armed>,
}

/// What a call that was let through keeps until it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    word: Word,
    /// What a throttle keeps. Otherwise the first is, of a probe, the number of its lease, and of another
    /// call that is timed, when it began.
    marks: [u64; 2],
}

impl Ticket {
    pub(super) fn new(word: Word, mark: u64) -> Self {
        Ticket {
            word,
            marks: [mark, 0],
        }
    }

    /// Of a half-open breaker, or the probe budget of a throttle.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_leased() || throttle::Ticket::unpack(self.marks).is_probe()
    }

    fn is_leased(&self) -> bool {
        self.word.mode() == Mode::HalfOpen
    }

    fn is_throttled(&self) -> bool {
        matches!(self.word.mode(), Mode::Closed | Mode::MetricsOnly)
    }

    pub(super) fn lease(&self) -> u64 {
        self.marks[0]
    }
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "the builder's fields, once")]
    pub(super) fn new(
        name: Option<Arc<str>>,
        clock: TimeSource,
        settings: Arc<Settings>,
        trips: &[Trip],
        admission: Admission,
        random: Option<Probability>,
        hooks: Vec<Hook>,
        timers: Option<Timers>,
    ) -> Result<Arc<Self>, BuildError> {
        let tally = Tally::new(trips, &clock)?;
        let listeners = OnceLock::new();
        if !hooks.is_empty() {
            let _ = listeners.set(Box::new(Listeners::new(hooks)));
        }
        let plain = matches!(admission, Admission::Circuit)
            && settings.slow_after == NEVER
            && settings.max_in_flight.is_none();
        Ok(Arc::new_cyclic(|weak| Core {
            word: AtomicU64::new(Word::new(0, Mode::Closed).0),
            until: AtomicU64::new(NEVER),
            plain,
            clock,
            admission,
            tally,
            settings,
            in_flight: AtomicU32::new(0),
            gate: Mutex::new(Gate::default()),
            stale: AtomicU64::new(0),
            listeners,
            extras: (name.is_some() || random.is_some() || timers.is_some()).then(|| {
                Box::new(Extras {
                    name,
                    random,
                    armed: timers.map(|timers| Armed::new(timers, weak.clone())),
                })
            }),
        }))
    }

    pub(super) fn name(&self) -> &str {
        let name = self
            .extras
            .as_ref()
            .and_then(|extras| extras.name.as_deref());
        name.unwrap_or("breaker")
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        let name = self.extras.as_ref().and_then(|extras| extras.name.clone());
        name.unwrap_or_else(|| Arc::from("breaker"))
    }

    pub(super) fn armed(&self) -> Option<&Armed> {
        self.extras.as_ref()?.armed.as_ref()
    }

    /// From 0 to 1.
    pub(super) fn random(&self) -> f64 {
        let seeded = self
            .extras
            .as_ref()
            .and_then(|extras| extras.random.as_ref());
        match seeded {
            Some(random) => random.next_f64(),
            None => Probability::new().next_f64(),
        }
    }

    #[inline]
    pub(super) fn load(&self) -> Word {
        // Acquire: pairs with the Release in `Core::enter`, which publishes `until` and the reset of
        // the counters.
        Word(self.word.load(Ordering::Acquire))
    }

    /// The word, and the `until` that belongs to it.
    #[inline]
    pub(super) fn look(&self) -> (Word, u64) {
        let mut word = self.load();
        loop {
            // Acquire: pairs with the Release in `Core::enter`: when this is of a later opening, the
            // load that follows finds a later word.
            let until = self.until.load(Ordering::Acquire);
            let again = self.load();
            if again == word {
                return (word, until);
            }
            word = again;
        }
    }

    // --- Admission ---------------------------------------------------------

    #[inline]
    pub(super) fn admit(&self) -> Result<Ticket, Rejected> {
        let word = self.load();
        if word.is_closed() && self.plain {
            return Ok(Ticket::new(word, 0));
        }
        match &self.admission {
            Admission::Throttle(throttle) if word.is_closed() => {
                self.admit_throttled(throttle, word)
            }
            _ => self.admit_otherwise(),
        }
    }

    #[inline]
    fn admit_throttled(&self, throttle: &Throttle, word: Word) -> Result<Ticket, Rejected> {
        match throttle.admit(&self.tally, || self.clock.nanos()) {
            Ok(ticket) => Ok(Ticket {
                word,
                marks: ticket.pack(),
            }),
            Err(rejected) => {
                self.tally.rejected();
                Err(rejected)
            }
        }
    }

    fn admit_otherwise(&self) -> Result<Ticket, Rejected> {
        let admitted = loop {
            let (word, until) = self.look();
            break match word.mode() {
                Mode::ForcedOpen => Err(Rejected::new(Reason::ForcedOpen)),
                Mode::Open | Mode::HalfOpen => {
                    let now = self.clock.nanos();
                    if word.mode() == Mode::Open && now < until {
                        Err(Rejected::after(Reason::Open, until - now))
                    } else if let Some(admitted) = self.admit_at_gate(now) {
                        admitted
                    } else {
                        // Another has made it something else.
                        continue;
                    }
                }
                Mode::Ramp => self.admit_in_ramp(word, until.saturating_sub(self.clock.nanos())),
                Mode::Closed => self.admit_closed(word, true),
                Mode::MetricsOnly => self.admit_observed(word),
                Mode::ForcedClosed | Mode::Disabled => self.admit_closed(word, false),
            };
        };
        if admitted.is_err() {
            self.tally.rejected();
        }
        admitted
    }

    /// A throttle counts the beginning of a call too.
    fn admit_observed(&self, word: Word) -> Result<Ticket, Rejected> {
        let ticket = self.admit_closed(word, false)?;
        let Admission::Throttle(throttle) = &self.admission else {
            return Ok(ticket);
        };
        // Throttles time no calls, so nothing is lost.
        let marks = throttle.observe(&self.tally, || self.clock.nanos()).pack();
        Ok(Ticket { marks, ..ticket })
    }

    /// The throttle that has counted the beginning of this call, if one has.
    fn throttle_of(&self, ticket: &Ticket) -> Option<&Throttle> {
        match &self.admission {
            Admission::Throttle(throttle) if ticket.is_throttled() => Some(throttle),
            _ => None,
        }
    }

    /// The rejection of every call at present, if there is one: it is open, and not half-open yet.
    #[cfg(feature = "tower")]
    #[inline]
    pub(super) fn rejects_all(&self) -> Option<Rejected> {
        match self.load().mode() {
            Mode::ForcedOpen | Mode::Open => self.rejects_all_now(),
            _ => None,
        }
    }

    #[cfg(feature = "tower")]
    #[cold]
    fn rejects_all_now(&self) -> Option<Rejected> {
        let (word, until) = self.look();
        match word.mode() {
            Mode::ForcedOpen => Some(Rejected::new(Reason::ForcedOpen)),
            Mode::Open => match until.saturating_sub(self.clock.nanos()) {
                0 => None,
                left => Some(Rejected::after(Reason::Open, left)),
            },
            _ => None,
        }
    }

    /// Any mode in which calls may go unless there are too many.
    fn admit_closed(&self, word: Word, capped: bool) -> Result<Ticket, Rejected> {
        // Before the place is taken, which would stay so if the clock, a user's perhaps, panicked.
        let timed = self.settings.slow_after != NEVER;
        let mark = if timed { self.clock.nanos() } else { 0 };
        self.take_place(capped)?;
        Ok(Ticket::new(word, mark))
    }

    /// `left` is how long the ramp lasts still.
    fn admit_in_ramp(&self, word: Word, left: u64) -> Result<Ticket, Rejected> {
        if left == 0 {
            let closed = word.with(Mode::Closed);
            // Release: keeps what the word published. Relaxed when it fails: somebody else has
            // changed it, and this call goes by the word that it saw.
            let _ =
                self.word
                    .compare_exchange(word.0, closed.0, Ordering::AcqRel, Ordering::Relaxed);
            return self.admit_closed(closed, true);
        }
        let done = 1.0 - left as f64 / self.settings.ramp as f64;
        match self.random() < 0.25 + 0.75 * done {
            true => self.admit_closed(word, true),
            false => Err(Rejected::new(Reason::Ramp)),
        }
    }

    /// Counts a call as in flight, if they are counted.
    pub(super) fn take_place(&self, capped: bool) -> Result<(), Rejected> {
        let Some(most) = self.settings.max_in_flight else {
            return Ok(());
        };
        let more = |now: u32| (!capped || now < most).then(|| now.saturating_add(1));
        // Relaxed, and in `leave_place`: the number is all there is to it. In one access: a call that
        // is counted before it is rejected would take the place of one that fits.
        let taken = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(Rejected::new(Reason::InFlightCap)),
        }
    }

    pub(super) fn leave_place(&self) {
        if self.settings.max_in_flight.is_some() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    // --- Verdicts ----------------------------------------------------------

    #[inline]
    pub(super) fn settle(&self, ticket: Ticket, verdict: Verdict) -> Settled {
        let word = self.load();
        if word == ticket.word && word.is_closed() && self.plain {
            match verdict {
                Verdict::Success => {
                    if let Some(policy) = self.tally.success(word, &self.clock) {
                        self.trip(word, Cause::Tripped(policy));
                    }
                }
                _ => self.count_closed(word, verdict, false),
            }
            return Settled::Counted;
        }
        match &self.admission {
            Admission::Throttle(throttle) if word == ticket.word && word.is_closed() => {
                self.settle_throttled(throttle, ticket, verdict)
            }
            _ => self.settle_otherwise(ticket, verdict),
        }
    }

    fn settle_otherwise(&self, ticket: Ticket, verdict: Verdict) -> Settled {
        self.leave_place();
        if ticket.is_leased() {
            return self.settle_probe(ticket, verdict);
        }
        let word = self.load();
        let throttle = self.throttle_of(&ticket);
        if word.generation() != ticket.word.generation() {
            if let Some(throttle) = throttle {
                throttle.abandon(&self.tally);
            }
            return self.stale();
        }
        if let Some(throttle) = throttle {
            return self.settle_throttled(throttle, ticket, verdict);
        }
        let slow = verdict != Verdict::Ignored && self.is_slow(ticket.marks[0]);
        match word.mode() {
            Mode::Closed => self.count_closed(word, verdict, slow),
            Mode::Ramp => {
                if verdict == Verdict::Failure && self.is_in_ramp(word) {
                    self.trip(word, Cause::FailedInRamp);
                }
                self.count_closed(word, verdict, slow);
            }
            Mode::MetricsOnly if verdict != Verdict::Ignored => {
                let outcome = Outcome::new(verdict == Verdict::Failure, slow);
                let _ = self.tally.marked(word, outcome, &self.clock);
            }
            Mode::Disabled => {}
            _ => self.count(verdict, slow),
        }
        Settled::Counted
    }

    #[inline]
    fn settle_throttled(&self, throttle: &Throttle, ticket: Ticket, verdict: Verdict) -> Settled {
        let ticket = throttle::Ticket::unpack(ticket.marks);
        let now = || self.clock.nanos();
        if !throttle.settle(&self.tally, &ticket, verdict, now) {
            return self.stale();
        }
        if verdict == Verdict::Ignored || !throttle.counts() {
            self.tally_count(verdict, false);
        }
        Settled::Counted
    }

    /// Whether the ramp of this word lasts still.
    fn is_in_ramp(&self, word: Word) -> bool {
        let now = self.clock.nanos();
        let (last, until) = self.look();
        last == word && now < until
    }

    /// Whether a call that began at `began` has taken too long.
    pub(super) fn is_slow(&self, began: u64) -> bool {
        let after = self.settings.slow_after;
        after != NEVER && self.clock.nanos().saturating_sub(began) >= after
    }

    #[inline]
    fn count_closed(&self, word: Word, verdict: Verdict, slow: bool) {
        let found = match (verdict, slow) {
            (Verdict::Success, false) => Finding::of(self.tally.success(word, &self.clock)),
            (Verdict::Ignored, _) => return self.tally.ignored(),
            _ => {
                let outcome = Outcome::new(verdict == Verdict::Failure, slow);
                self.tally.marked(word, outcome, &self.clock)
            }
        };
        let found = match word.is_watched() && verdict == Verdict::Success {
            true => found.or(self.tally.look(&self.clock)),
            false => found,
        };
        if let Finding::Exceeded(policy) = found {
            self.trip(word, Cause::Tripped(policy));
        } else if word.mode() == Mode::Closed {
            let watched = match found {
                Finding::Short => word.watched(),
                // A failure may not have looked at all windows.
                _ if verdict == Verdict::Failure => word,
                _ => word.with(Mode::Closed),
            };
            if watched != word {
                // AcqRel: keeps what the word published. Relaxed when it fails: another has changed it,
                // and whoever changes the generation clears the bit.
                let _ = self.word.compare_exchange(
                    word.0,
                    watched.0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// For the figures only.
    pub(super) fn count(&self, verdict: Verdict, slow: bool) {
        // A throttle takes the difference for what is in flight, and has not counted the start.
        if let Admission::Throttle(throttle) = &self.admission
            && throttle.counts()
            && verdict != Verdict::Ignored
        {
            self.tally.lane().start();
        }
        self.tally_count(verdict, slow);
    }

    fn tally_count(&self, verdict: Verdict, slow: bool) {
        match verdict {
            Verdict::Success => self.tally.count(false, slow),
            Verdict::Failure => self.tally.count(true, slow),
            Verdict::Ignored => self.tally.ignored(),
        }
    }

    pub(super) fn stale(&self) -> Settled {
        // Relaxed: a figure.
        self.stale.fetch_add(1, Ordering::Relaxed);
        Settled::Stale
    }

    /// The permit was dropped without a verdict. One that is disabled does not count that either.
    #[cold]
    pub(super) fn settle_dropped(&self, ticket: Ticket) {
        let verdict = if std::thread::panicking() {
            Verdict::Failure
        } else {
            if self.load().mode() != Mode::Disabled {
                self.tally.cancelled();
            }
            match self.settings.cancelled {
                Verdict::Ignored => return self.forget(ticket),
                verdict => verdict,
            }
        };
        let _ = self.settle(ticket, verdict);
    }

    /// Gives back what a call holds, without a verdict.
    fn forget(&self, ticket: Ticket) {
        self.leave_place();
        if ticket.is_leased() {
            self.return_lease(ticket);
        } else if let Some(throttle) = self.throttle_of(&ticket) {
            match self.load().generation() == ticket.word.generation() {
                true => {
                    let ticket = throttle::Ticket::unpack(ticket.marks);
                    throttle.settle(&self.tally, &ticket, Verdict::Ignored, || {
                        self.clock.nanos()
                    });
                }
                false => throttle.abandon(&self.tally),
            }
        }
    }

    // --- What others see ---------------------------------------------------

    pub(super) fn state(&self) -> State {
        let (word, until) = self.look();
        match word.mode() {
            Mode::Open if self.clock.nanos() >= until => State::HalfOpen,
            mode => mode.state(),
        }
    }

    pub(super) fn rejection_probability(&self) -> f64 {
        let (word, until) = self.look();
        match (&self.admission, word.mode(), self.state()) {
            (Admission::Throttle(throttle), Mode::Closed | Mode::MetricsOnly, _) => {
                throttle.probability(&self.tally, self.clock.nanos())
            }
            (_, _, State::Open | State::ForcedOpen) => 1.0,
            (_, Mode::Ramp, _) => {
                let left = until.saturating_sub(self.clock.nanos());
                (0.75 * left as f64 / self.settings.ramp.max(1) as f64).min(1.0)
            }
            _ => 0.0,
        }
    }

    pub(super) fn stats(&self) -> BreakerStats {
        let totals = self.tally.totals();
        let now = self.clock.nanos();
        let window = match &self.admission {
            Admission::Throttle(throttle) => throttle.window(&self.tally, now),
            Admission::Circuit => self.tally.window_at(now),
        };
        let state = self.state();
        let (probes, rule_panics) = {
            let gate = self.gate.lock();
            (gate.probes_started, gate.rule_panics())
        };
        let (slow, throttle_probes) = match &self.admission {
            // In its lanes something else is counted there.
            Admission::Throttle(throttle) => (0, throttle.probes()),
            Admission::Circuit => (totals.slow, 0),
        };
        BreakerStats {
            state,
            successes: totals.successes,
            failures: totals.failures,
            slow,
            ignored: totals.ignored,
            cancelled: totals.cancelled,
            rejected: totals.rejected,
            // Relaxed, both: figures.
            stale: self.stale.load(Ordering::Relaxed),
            in_flight: self
                .settings
                .max_in_flight
                .map(|_| self.in_flight.load(Ordering::Relaxed)),
            probes: probes + throttle_probes,
            transitions: self.load().generation(),
            hook_panics: self
                .listeners
                .get()
                .map_or(0, |listeners| listeners.panics()),
            policy_panics: self.tally.policy_panics() + rule_panics,
            lost_transitions: self.listeners.get().map_or(0, |listeners| listeners.lost()),
            window,
        }
    }

    pub(super) fn listeners(&self) -> Option<&Listeners> {
        self.listeners.get().map(|listeners| &**listeners)
    }

    /// Those who are told of a transition that is being made: traces and metrics always are.
    pub(super) fn audience(&self) -> Option<&Listeners> {
        match cfg!(any(feature = "tracing", feature = "metrics")) {
            true => Some(self.listeners.get_or_init(Box::default)),
            false => self.listeners(),
        }
    }

    pub(super) fn subscribe(&self) -> Events {
        self.listeners.get_or_init(Box::default).subscribe()
    }

    /// When something is due by time; [`NEVER`] if nothing is.
    pub(super) fn due(&self) -> u64 {
        let gate = self.gate.lock();
        // Relaxed: nobody writes it but under the lock.
        gate.due(self.load(), self.until.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Breaker")
            .field("name", &self.name())
            .field("state", &self.load().mode().state())
            .finish_non_exhaustive()
    }
}
