//! resilience4j's CircuitBreaker: a failure rate over the last calls, then a fixed number of trial
//! calls.
//!
//! The rate counts from `minimum` calls on and trips at the threshold. Half-open admits `permitted`
//! calls in all and decides by the rate over them once they have ended. A result counts in the
//! state that it comes to, whichever admitted the call. A cancelled call gives its permission back.

use super::super::policy::{Admitted, Outcome, Policy};
use super::{SECOND, ring::Ring};

/// `CircuitBreakerConfig`. Slow calls are left out: by default a call is slow after a minute, and
/// only if all are does the circuit open.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The share of failures at which the circuit opens.
    pub(crate) failure_rate: f64,
    /// Calls that the rate is over.
    pub(crate) window: usize,
    /// Calls without which there is no rate.
    pub(crate) minimum: usize,
    /// Time in open.
    pub(crate) wait: u64,
    /// Calls in half-open.
    pub(crate) permitted: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failure_rate: 0.5,
            window: 100,
            minimum: 100,
            wait: 60 * SECOND,
            permitted: 10,
        }
    }
}

/// The circuit.
#[derive(Debug)]
pub(crate) struct Resilience4j {
    settings: Settings,
    state: State,
    transitions: u64,
}

#[derive(Debug)]
enum State {
    Closed(Ring),
    /// Until strictly after this time.
    Open(u64),
    HalfOpen {
        ring: Ring,
        permits: usize,
    },
}

impl Resilience4j {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            state: State::Closed(Ring::new(settings.window)),
            settings,
            transitions: 0,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.transitions += 1;
    }
}

impl Policy for Resilience4j {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        if let State::Open(until) = self.state {
            if now <= until {
                return None;
            }
            let permits = self.settings.permitted;
            let ring = Ring::new(permits);
            self.enter(State::HalfOpen { ring, permits });
        }
        match &mut self.state {
            State::HalfOpen { permits, .. } => {
                *permits = permits.checked_sub(1)?;
                Admitted::probe(())
            }
            State::Closed(_) | State::Open(_) => Admitted::plain(()),
        }
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        let failed = match outcome {
            Outcome::Success => false,
            Outcome::Failure => true,
            Outcome::Cancelled => {
                if let State::HalfOpen { permits, .. } = &mut self.state {
                    *permits = self.settings.permitted.min(*permits + 1);
                }
                return;
            }
        };
        let (ring, of) = match &mut self.state {
            State::Closed(ring) => (ring, self.settings.window),
            State::HalfOpen { ring, .. } => (ring, self.settings.permitted),
            State::Open(_) => return,
        };
        ring.push(failed);
        if ring.filled() < self.settings.minimum.min(of) {
            return;
        }
        if ring.failure_rate() >= self.settings.failure_rate {
            self.enter(State::Open(now + self.settings.wait));
        } else if matches!(self.state, State::HalfOpen { .. }) {
            self.enter(State::Closed(Ring::new(self.settings.window)));
        }
    }

    fn transitions(&self) -> u64 {
        self.transitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Resilience4j {
        let mut breaker = Resilience4j::new(Settings::default());
        for _ in 0..1000 {
            breaker.settle((), Outcome::Success, 0);
        }
        for failures in 0..50 {
            assert!(breaker.admit(0).is_some(), "after {failures} failures");
            breaker.settle((), Outcome::Failure, 0);
        }
        assert!(breaker.admit(60 * SECOND).is_none());
        breaker
    }

    #[test]
    fn ten_trial_calls_decide_together() {
        for (failures, closes) in [(4, true), (5, false)] {
            let mut breaker = open();
            for _ in 0..10 {
                assert!(breaker.admit(61 * SECOND).expect("half-open").probe);
            }
            assert!(breaker.admit(61 * SECOND).is_none(), "ten and no more");
            for call in 0..10 {
                let outcome = if call < failures {
                    Outcome::Failure
                } else {
                    Outcome::Success
                };
                breaker.settle((), outcome, 61 * SECOND);
            }
            assert_eq!(breaker.admit(61 * SECOND).is_some(), closes, "{failures}");
        }
    }

    #[test]
    fn a_cancelled_trial_call_gives_its_place_back() {
        let mut breaker = open();
        for _ in 0..10 {
            assert!(breaker.admit(61 * SECOND).is_some());
        }
        breaker.settle((), Outcome::Cancelled, 61 * SECOND);
        assert!(breaker.admit(61 * SECOND).is_some());
        assert!(breaker.admit(61 * SECOND).is_none());
    }
}
