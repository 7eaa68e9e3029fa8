//! The gate: transitions, and half-open admission by lease. All of it under one lock, which a closed
//! breaker does not take.
//!
//! # Invariants
//!
//! - I1: the generation changes under the lock, so each begins with one transition, and transitions
//!   have one order.
//! - I2: a lease is in the list from its probe's admission until the first of: its verdict, its
//!   permit's drop, its expiry, the end of the half-open time. Whoever takes it out of the list counts
//!   it, so it counts once; a verdict that does not find its lease is stale.
//! - I3: at most `max_probes` leases are in the list, and never more than the closing rule needs. A probe
//!   that has ended, and that a rule of the user's has yet to be asked about, counts as one: so a rule
//!   that takes its time has no more than that before it.
//! - I4: no code of the user's runs under the lock: not a hook, a clock, a policy, nor a closing rule.
//!   A closing rule of the user's is asked afterwards, about each probe in turn, by one thread at a
//!   time; what it says holds if the breaker is still in the same generation.

use std::collections::VecDeque;

use super::core::{Admission, Core, Ticket};
use super::event::Transition;
use super::word::{Mode, Word};
use super::{Cause, Decision, HalfOpenEnd, Probes, Reason, Rejected, Settled, Verdict};
use crate::clock::NEVER;
use crate::contain::report;
use crate::sync::{MutexGuard, Ordering};

#[derive(Debug, Default)]
pub(super) struct Gate {
    /// `None` until the breaker is half-open for the first time.
    half_open: Option<Box<HalfOpen>>,
    /// When the next probe may start.
    next_probe: u64,
    /// Since the breaker was built; the number of the next lease.
    pub(super) probes_started: u64,
    /// Whether it has opened since it was built, or reset.
    opened: bool,
    /// Openings without a stable time between.
    level: u32,
    closed_at: u64,
}

#[derive(Debug, Default)]
struct HalfOpen {
    /// When it has lasted for as long as it may.
    ends: u64,
    leases: Vec<Lease>,
    probes: Probes,
    /// What a closing rule of the user's is to be asked about.
    undecided: VecDeque<Probes>,
    /// Whether somebody asks it.
    deciding: bool,
    /// Of the closing rule, since the breaker was built.
    panics: u64,
}

#[derive(Debug)]
struct Lease {
    number: u64,
    began: u64,
    expires: u64,
}

type Locked<'a> = MutexGuard<'a, Gate>;

impl Gate {
    /// When something is due by time: [`NEVER`] if nothing is.
    pub(super) fn due(&self, word: Word, until: u64) -> u64 {
        match word.mode() {
            Mode::Open => until,
            Mode::HalfOpen => self.next_expiry().min(self.half_open_ends()),
            _ => NEVER,
        }
    }

    pub(super) fn rule_panics(&self) -> u64 {
        self.half_open
            .as_ref()
            .map_or(0, |half_open| half_open.panics)
    }

    fn half_open_ends(&self) -> u64 {
        self.half_open
            .as_ref()
            .map_or(NEVER, |half_open| half_open.ends)
    }

    fn next_expiry(&self) -> u64 {
        let leases = self
            .half_open
            .iter()
            .flat_map(|half_open| &half_open.leases);
        leases.map(|lease| lease.expires).min().unwrap_or(NEVER)
    }

    /// Takes a lease out of the list.
    fn take(&mut self, which: impl Fn(&Lease) -> bool) -> Option<Lease> {
        let leases = &mut self.half_open.as_mut()?.leases;
        let at = leases.iter().position(which)?;
        Some(leases.swap_remove(at))
    }

    fn half_open(&mut self) -> &mut HalfOpen {
        self.half_open.get_or_insert_default()
    }
}

impl Core {
    /// Runs `step` under the lock, and then, outside, what follows from a change: events and timers.
    pub(super) fn at_gate<T>(&self, step: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        let (result, change) = {
            let mut gate = self.gate.lock();
            let seen = |gate: &Gate| {
                let word = self.load();
                // Nobody writes it but under the lock.
                let until = self.until.load(Ordering::Relaxed);
                (word.generation(), gate.due(word, until))
            };
            let before = seen(&gate);
            let result = step(&mut gate);
            let after = seen(&gate);
            (result, (before != after).then_some(before.0 != after.0))
        };
        if let Some(transition) = change {
            self.tell(transition);
        }
        result
    }

    /// Open past its cool-down, or half-open. `None` when it has become something else meanwhile.
    #[cold]
    pub(super) fn admit_at_gate(&self, now: u64) -> Option<Result<Ticket, Rejected>> {
        if self.settings.closing.is_users() {
            self.tick_at(now);
        }
        self.at_gate(|gate| {
            self.catch_up(gate, now);
            let word = self.load();
            match word.mode() {
                Mode::HalfOpen => Some(self.lease(gate, word, now)),
                Mode::Open => {
                    let left = self.until.load(Ordering::Relaxed).saturating_sub(now);
                    Some(Err(Rejected::after(Reason::Open, left)))
                }
                _ => None,
            }
        })
    }

    /// Makes the transitions that are due at `now`: at most one of each kind, so it ends however
    /// short the times are.
    pub(super) fn catch_up(&self, gate: &mut Locked<'_>, now: u64) {
        // Relaxed: nobody writes it but under the lock.
        if self.load().mode() == Mode::Open && now >= self.until.load(Ordering::Relaxed) {
            self.enter(gate, Mode::HalfOpen, Cause::CooledDown, now);
        }
        if self.load().mode() != Mode::HalfOpen {
            return;
        }
        while let Some(lease) = gate.take(|lease| now >= lease.expires) {
            self.probe_ended(gate, self.settings.expired, lease.began, now);
            if self.load().mode() != Mode::HalfOpen {
                return;
            }
        }
        // Not before the closing rule has been asked about the last of them.
        if now >= gate.half_open_ends() && gate.half_open().undecided.is_empty() {
            let (mode, cause) = (self.settings.half_open_end, Cause::HalfOpenTimeout);
            match mode {
                HalfOpenEnd::Open => self.enter(gate, Mode::Open, cause, now),
                HalfOpenEnd::Closed => self.enter(gate, Mode::Ramp, cause, now),
            }
        }
    }

    fn lease(&self, gate: &mut Locked<'_>, word: Word, now: u64) -> Result<Ticket, Rejected> {
        let settings = &self.settings;
        let half_open = gate.half_open();
        let held = (half_open.leases.len() + half_open.undecided.len()) as u64;
        let settled = half_open.probes.settled();
        let wanted = u64::from(settings.closing.most().saturating_sub(settled));
        if held >= u64::from(settings.max_probes).min(wanted.max(1)) {
            return Err(match gate.next_expiry() {
                NEVER => Rejected::new(Reason::HalfOpenFull),
                expiry => Rejected::after(Reason::HalfOpenFull, expiry.saturating_sub(now)),
            });
        }
        if now < gate.next_probe {
            return Err(Rejected::after(
                Reason::ProbeInterval,
                gate.next_probe - now,
            ));
        }
        self.take_place(true)?;
        let number = gate.probes_started;
        gate.probes_started += 1;
        gate.next_probe = now.saturating_add(settings.probe_interval);
        gate.half_open().leases.push(Lease {
            number,
            began: now,
            expires: now.saturating_add(settings.lease),
        });
        Ok(Ticket::new(word, number))
    }

    #[cold]
    pub(super) fn settle_probe(&self, ticket: Ticket, verdict: Verdict) -> Settled {
        // The clock may be a user's, and panic: the probe is then as one that was dropped.
        let unsettled = OnUnwind(|| self.return_lease(ticket));
        let now = self.clock.nanos();
        std::mem::forget(unsettled);
        if self.settings.closing.is_users() {
            self.tick_at(now);
        }
        let settled = self.at_gate(|gate| {
            self.catch_up(gate, now);
            let lease = gate.take(|lease| lease.number == ticket.lease())?;
            self.probe_ended(gate, verdict, lease.began, now);
            Some(Settled::Counted)
        });
        self.decide();
        settled.unwrap_or_else(|| self.stale())
    }

    /// The probe was dropped without a verdict: its place is free at once, and so is its turn.
    #[cold]
    pub(super) fn return_lease(&self, ticket: Ticket) {
        self.at_gate(|gate| {
            if gate.take(|lease| lease.number == ticket.lease()).is_some() {
                gate.next_probe = 0;
            }
        });
    }

    /// Takes the verdict of a probe into account, or of its lease that has expired.
    fn probe_ended(&self, gate: &mut Locked<'_>, verdict: Verdict, began: u64, now: u64) {
        if verdict == Verdict::Ignored {
            gate.next_probe = 0;
            return self.count(verdict, false);
        }
        let slow = self.is_slow_at(began, now);
        self.count(verdict, slow);
        let half_open = gate.half_open();
        half_open.probes.count(verdict == Verdict::Failure, slow);
        match self.settings.closing.decide(&half_open.probes) {
            None => half_open.undecided.push_back(half_open.probes),
            Some(decision) => self.follow(gate, decision, now),
        }
    }

    fn follow(&self, gate: &mut Locked<'_>, decision: Decision, now: u64) {
        match decision {
            Decision::Wait => {}
            Decision::Open => self.enter(gate, Mode::Open, Cause::ProbesFailed, now),
            Decision::Close => self.enter(gate, Mode::Ramp, Cause::ProbesSucceeded, now),
        }
    }

    /// Asks a closing rule of the user's about the probes that have ended. Outside every lock.
    fn decide(&self) {
        if !self.settings.closing.is_users() {
            return;
        }
        let next = |gate: &mut Gate| {
            let half_open = gate.half_open.as_mut().filter(|it| !it.deciding)?;
            let probes = half_open.undecided.pop_front()?;
            half_open.deciding = true;
            Some((self.load(), probes))
        };
        while let Some((word, probes)) = self.at_gate(|gate| next(gate)) {
            let said = self.settings.closing.ask(&probes);
            if said.is_none() {
                report("closing rule", self.name());
            }
            let now = self.clock.nanos();
            self.at_gate(|gate| {
                let half_open = gate.half_open();
                half_open.deciding = false;
                half_open.panics += u64::from(said.is_none());
                if self.load() == word {
                    self.follow(gate, said.unwrap_or(Decision::Open), now);
                }
            });
        }
    }

    fn is_slow_at(&self, began: u64, now: u64) -> bool {
        let after = self.settings.slow_after;
        after != NEVER && now.saturating_sub(began) >= after
    }

    /// Opens, if the breaker is still in the generation of this word.
    #[cold]
    pub(super) fn trip(&self, word: Word, cause: Cause) {
        let now = self.clock.nanos();
        self.at_gate(|gate| {
            if self.load().generation() == word.generation() {
                self.enter(gate, Mode::Open, cause, now);
            }
        });
    }

    /// What the user says.
    pub(super) fn force(&self, mode: Mode) {
        let now = self.clock.nanos();
        self.at_gate(|gate| {
            if self.load().mode() != mode || mode == Mode::Closed {
                self.enter(gate, mode, Cause::Forced, now);
            }
        });
    }

    /// What a timer says.
    pub(super) fn tick(&self) {
        self.tick_at(self.clock.nanos());
        if let Some(armed) = self.armed() {
            armed.fired();
            armed.arm(self);
        }
    }

    fn tick_at(&self, now: u64) {
        self.at_gate(|gate| self.catch_up(gate, now));
        self.decide();
    }

    fn enter(&self, gate: &mut Locked<'_>, mode: Mode, cause: Cause, now: u64) {
        let old = self.load();
        let mode = match mode {
            Mode::Ramp if self.settings.ramp == 0 => Mode::Closed,
            mode => mode,
        };
        let until = match mode {
            Mode::Open => Some(self.open(gate, old, now)),
            Mode::Ramp => Some(now.saturating_add(self.settings.ramp)),
            _ => None,
        };
        if mode == Mode::HalfOpen {
            gate.half_open().ends = now.saturating_add(self.settings.max_half_open);
        }
        if let Some(half_open) = &mut gate.half_open {
            half_open.leases.clear();
            half_open.probes = Probes::default();
            half_open.undecided.clear();
        }
        if matches!(mode, Mode::Closed | Mode::Ramp | Mode::MetricsOnly) {
            gate.closed_at = now;
            self.tally.reset();
            if let Admission::Throttle(throttle) = &self.admission {
                throttle.clear(&self.tally);
            }
        }
        if cause == Cause::Forced && mode == Mode::Closed {
            gate.opened = false;
            gate.next_probe = 0;
        }
        // Others keep the last one. Release: pairs with the Acquire in `look`: who finds it also finds
        // the transition before this one.
        if let Some(until) = until {
            self.until.store(until, Ordering::Release);
        }
        let new = old.next(mode);
        // Release: pairs with the Acquire in `load`, and publishes `until` and the reset.
        self.word.store(new.0, Ordering::Release);
        if let Some(listeners) = self.audience() {
            listeners.put(Transition {
                name: self.shared_name(),
                from: old.mode().state(),
                to: mode.state(),
                sequence: new.generation(),
                at: self.clock.instant(now),
                cause,
            });
        }
    }

    /// Returns the end of the cool-down.
    fn open(&self, gate: &mut Locked<'_>, old: Word, now: u64) -> u64 {
        let closed = old.mode() == Mode::Closed;
        let stable = now.saturating_sub(gate.closed_at) >= self.settings.stable_after;
        gate.level = match closed && stable || !gate.opened {
            true => 0,
            false => gate.level.saturating_add(1),
        };
        gate.opened = true;
        let cool_down = self.settings.cool_down(gate.level, self.random());
        now.saturating_add(cool_down).min(NEVER - 1)
    }

    /// Tells of a transition, or of another due time alone. Outside every lock.
    fn tell(&self, transition: bool) {
        if transition {
            self.tally.renew(self.load());
            if let Some(listeners) = self.listeners() {
                listeners.deliver();
            }
        }
        if let Some(armed) = self.armed() {
            armed.arm(self);
        }
    }
}

/// Does what it is given when a panic unwinds past it; forgotten otherwise.
struct OnUnwind<F: Fn()>(F);

impl<F: Fn()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
