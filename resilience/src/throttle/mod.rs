//! Client-side throttling: rejects a part of the calls, by chance, and has no states.
//!
//! A circuit breaker asks whether a backend is down; a throttle asks how much of what is sent to it
//! comes back well, and sends accordingly less. [`ThrottleMode`] says by which rule.
//!
//! # Ground rules
//!
//! - Time is nanoseconds of the breaker's clock, an argument. The modes differ in when they need it,
//!   so it comes as a closure: [`Throttle::admit`] and [`Throttle::settle`] call it at most once.
//! - A [`Ticket`] carries what a call needs to know at its end of its beginning.
//! - In the ratio modes a success is dated by the latest instant that any call has begun at, which
//!   saves a look at the clock; a failure reads it. So a success counts at most its own duration less
//!   long than the window, and only when no other call begins meanwhile.

mod adaptive;
mod book;
mod builder;
mod gate;
mod go_zero;
mod lanes;
mod probes;
mod ratio;
#[cfg(all(test, not(wheelhouse_loom)))]
mod simulation;
mod slack;

pub use builder::{ThrottleBuilder, ThrottleMode};

use std::time::{Duration, Instant};

use crate::Verdict;
use crate::breaker::{Reason, Rejected};

use adaptive::Adaptive;
use go_zero::GoZero;
use ratio::{GoZero2022, Sre};

/// What is built from: checked by the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    mode: ThrottleMode,
    window: Duration,
    buckets: usize,
    k: f64,
    protection: u64,
    probe_interval: Duration,
    seed: Option<u64>,
}

/// One of the modes.
#[derive(Debug)]
pub(crate) enum Throttle {
    Sre(Sre),
    GoZero2022(GoZero2022),
    GoZero(GoZero),
    Adaptive(Adaptive),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Admit,
    /// Admitted by the probe budget.
    Probe,
    Reject,
}

/// How a call ended; cancelled ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    Failure,
    Ignored,
}

/// What an admitted call keeps until it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    /// When it was admitted, in a mode that read the clock for that.
    at: u64,
    epoch: u64,
    probe: bool,
}

/// What an adaptive throttle has counted since it was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) started: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) stale: u64,
    pub(crate) probes: u64,
}

impl Throttle {
    /// `start` is the instant that time counts from.
    pub(crate) fn new(settings: &Settings, start: Instant) -> Self {
        match settings.mode {
            ThrottleMode::Sre => Throttle::Sre(Sre::new(settings, start)),
            ThrottleMode::GoZero2022 => Throttle::GoZero2022(GoZero2022::new(settings, start)),
            ThrottleMode::GoZero => Throttle::GoZero(GoZero::new(settings, start)),
            ThrottleMode::Adaptive => Throttle::Adaptive(Adaptive::new(settings)),
        }
    }

    /// Decides about a call.
    #[inline]
    pub(crate) fn admit(&self, now: impl FnOnce() -> u64) -> Result<Ticket, Rejected> {
        let (decision, epoch, at) = match self {
            Throttle::Adaptive(adaptive) => {
                // Only read when it rejects, and then `now` has been called.
                let mut at = 0;
                let (decision, epoch) = adaptive.admit(|| {
                    at = now();
                    at
                });
                (decision, epoch, at)
            }
            ratio => {
                let at = now();
                let decision = match ratio {
                    Throttle::Sre(sre) => sre.admit(at),
                    Throttle::GoZero2022(go_zero) => go_zero.admit(at),
                    Throttle::GoZero(go_zero) => go_zero.admit(at),
                    Throttle::Adaptive(_) => unreachable!("the arm above"),
                };
                (decision, 0, at)
            }
        };
        match decision {
            Decision::Reject => Err(self.rejection(at)),
            admitted => Ok(Ticket {
                at,
                epoch,
                probe: admitted == Decision::Probe,
            }),
        }
    }

    /// Counts the end of a call; false if it was stale.
    #[inline]
    pub(crate) fn settle(
        &self,
        ticket: &Ticket,
        ending: Ending,
        now: impl FnOnce() -> u64,
    ) -> bool {
        if let Throttle::Adaptive(adaptive) = self {
            return adaptive.settle(ticket, ending, now);
        }
        let (success, at) = match ending {
            Ending::Success => (true, ticket.at),
            Ending::Failure => (false, now()),
            Ending::Ignored => return true,
        };
        match self {
            Throttle::Sre(sre) => sre.settle(at, success),
            Throttle::GoZero2022(go_zero) => go_zero.settle(at, success),
            Throttle::GoZero(go_zero) => go_zero.settle(at, success),
            Throttle::Adaptive(_) => unreachable!("returned above"),
        }
        true
    }

    #[inline]
    fn rejection(&self, now: u64) -> Rejected {
        match self {
            Throttle::Adaptive(adaptive) => {
                let reason = match adaptive.is_ramp() {
                    true => Reason::Ramp,
                    false => Reason::Throttled,
                };
                Rejected::after(reason, adaptive.wait(now))
            }
            // The next call has the same chance at once.
            _ => Rejected::new(Reason::Throttled),
        }
    }

    /// The probability with which a call at `now` would be rejected.
    pub(crate) fn probability(&self, now: u64) -> f64 {
        match self {
            Throttle::Sre(sre) => sre.probability(now),
            Throttle::GoZero2022(go_zero) => go_zero.probability(now),
            Throttle::GoZero(go_zero) => go_zero.probability(now),
            Throttle::Adaptive(adaptive) => adaptive.probability(now),
        }
    }

    /// What it counts itself: of an adaptive one, successes, failures and probes.
    pub(crate) fn totals(&self) -> Option<Totals> {
        match self {
            Throttle::Adaptive(adaptive) => Some(adaptive.totals()),
            _ => None,
        }
    }

    /// Whether it counts successes and failures itself.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        matches!(self, Throttle::Adaptive(_))
    }

    /// Forgets the past.
    pub(crate) fn clear(&self) {
        match self {
            Throttle::Sre(sre) => sre.clear(),
            Throttle::GoZero2022(go_zero) => go_zero.clear(),
            Throttle::GoZero(go_zero) => go_zero.clear(),
            Throttle::Adaptive(adaptive) => adaptive.clear(),
        }
    }
}

impl Ticket {
    /// As words, for the breaker's own ticket.
    #[inline]
    pub(crate) fn pack(self) -> [u64; 2] {
        [self.at, self.epoch << 1 | u64::from(self.probe)]
    }

    #[inline]
    pub(crate) fn unpack([at, rest]: [u64; 2]) -> Self {
        Ticket {
            at,
            epoch: rest >> 1,
            probe: rest & 1 == 1,
        }
    }

    /// Whether the probe budget has admitted it.
    #[inline]
    pub(crate) fn is_probe(&self) -> bool {
        self.probe
    }
}

impl From<Verdict> for Ending {
    #[inline]
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Success => Ending::Success,
            Verdict::Failure => Ending::Failure,
            Verdict::Ignored => Ending::Ignored,
        }
    }
}
