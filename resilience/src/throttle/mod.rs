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
use ratio::Ratio;

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
    Ratio(Ratio),
    Adaptive(Adaptive),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Admit,
    /// Admitted by the probe budget.
    Probe,
    Reject,
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
            ThrottleMode::Adaptive => Throttle::Adaptive(Adaptive::new(settings)),
            _ => Throttle::Ratio(Ratio::new(settings, start)),
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
            Throttle::Ratio(ratio) => {
                let at = now();
                (ratio.admit(at), 0, at)
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

    /// Counts the beginning of a call that goes whatever the rule says.
    pub(crate) fn observe(&self, now: impl FnOnce() -> u64) -> Ticket {
        let (epoch, at) = match self {
            Throttle::Adaptive(adaptive) => (adaptive.observe(now), 0),
            Throttle::Ratio(ratio) => {
                let at = now();
                ratio.observe(at);
                (0, at)
            }
        };
        Ticket {
            at,
            epoch,
            probe: false,
        }
    }

    /// Counts the end of a call, of which one that is ignored says nothing; false if it was stale.
    #[inline]
    pub(crate) fn settle(
        &self,
        ticket: &Ticket,
        verdict: Verdict,
        now: impl FnOnce() -> u64,
    ) -> bool {
        match self {
            Throttle::Adaptive(adaptive) => adaptive.settle(ticket, verdict, now),
            Throttle::Ratio(ratio) => {
                match verdict {
                    Verdict::Success => ratio.settle(ticket.at, true),
                    Verdict::Failure => ratio.settle(now(), false),
                    Verdict::Ignored => {}
                }
                true
            }
        }
    }

    /// Takes note that a call ended of which the throttle has counted the beginning, and which says
    /// nothing: the breaker has changed its state meanwhile.
    pub(crate) fn abandon(&self) {
        if let Throttle::Adaptive(adaptive) = self {
            adaptive.abandon();
        }
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
            Throttle::Ratio(_) => Rejected::new(Reason::Throttled),
        }
    }

    /// The probability with which a call at `now` would be rejected.
    pub(crate) fn probability(&self, now: u64) -> f64 {
        match self {
            Throttle::Ratio(ratio) => ratio.probability(now),
            Throttle::Adaptive(adaptive) => adaptive.probability(now),
        }
    }

    /// What it counts itself: of an adaptive one, successes, failures and probes.
    pub(crate) fn totals(&self) -> Option<Totals> {
        match self {
            Throttle::Adaptive(adaptive) => Some(adaptive.totals()),
            Throttle::Ratio(_) => None,
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
            Throttle::Ratio(ratio) => ratio.clear(),
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
