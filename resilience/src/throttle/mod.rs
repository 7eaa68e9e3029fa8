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
mod probes;
mod ratio;
#[cfg(all(test, not(wheelhouse_loom)))]
mod simulation;
mod slack;

pub use builder::{ThrottleBuilder, ThrottleMode};

use std::time::{Duration, Instant};

use wheelhouse_collection::Outcomes;

use crate::Verdict;
use crate::breaker::tally::Tally;
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

/// One of the modes. What is large in them is in a box, or it would be large in the others too. What an adaptive one counts is in the lanes of the
/// breaker's [`Tally`], an argument too.
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

/// What an adaptive throttle has counted. Only differences matter.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    /// Without those that ended and say nothing.
    started: u64,
    succeeded: u64,
    failed: u64,
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
    pub(crate) fn admit(
        &self,
        tally: &Tally,
        now: impl FnOnce() -> u64,
    ) -> Result<Ticket, Rejected> {
        let (decision, epoch, at) = match self {
            Throttle::Adaptive(adaptive) => {
                // Only read when it rejects, and then `now` has been called.
                let mut at = 0;
                let (decision, epoch) = adaptive.admit(tally, || {
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
    pub(crate) fn observe(&self, tally: &Tally, now: impl FnOnce() -> u64) -> Ticket {
        let (epoch, at) = match self {
            Throttle::Adaptive(adaptive) => (adaptive.observe(tally, now), 0),
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
        tally: &Tally,
        ticket: &Ticket,
        verdict: Verdict,
        now: impl FnOnce() -> u64,
    ) -> bool {
        match self {
            Throttle::Adaptive(adaptive) => adaptive.settle(tally, ticket, verdict, now),
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
    pub(crate) fn abandon(&self, tally: &Tally) {
        if let Throttle::Adaptive(adaptive) = self {
            adaptive.abandon(tally);
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
    pub(crate) fn probability(&self, tally: &Tally, now: u64) -> f64 {
        match self {
            Throttle::Ratio(ratio) => ratio.probability(now),
            Throttle::Adaptive(adaptive) => adaptive.probability(tally, now),
        }
    }

    /// What is in the window at `now`.
    pub(crate) fn window(&self, tally: &Tally, now: u64) -> Outcomes {
        match self {
            Throttle::Ratio(ratio) => ratio.window(now),
            Throttle::Adaptive(adaptive) => adaptive.window(tally, now),
        }
    }

    /// How many calls the probe budget has let through, if it has one.
    pub(crate) fn probes(&self) -> u64 {
        match self {
            Throttle::Adaptive(adaptive) => adaptive.probes(),
            Throttle::Ratio(_) => 0,
        }
    }

    /// Whether it counts starts, successes and failures itself.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        matches!(self, Throttle::Adaptive(_))
    }

    /// Forgets the past.
    pub(crate) fn clear(&self, tally: &Tally) {
        match self {
            Throttle::Ratio(ratio) => ratio.clear(),
            Throttle::Adaptive(adaptive) => adaptive.clear(tally),
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
