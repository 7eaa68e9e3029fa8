//! The recloser crate: a failure rate over the last calls, in closed and in half-open.
//!
//! A rate is there once an outcome comes to a ring that is already full, so with the hundred and
//! first. Half-open lets every call through. Results of calls that began in another state count in
//! the present one. A cancelled call leaves no trace.

use super::super::policy::{Admitted, Outcome, Policy};
use super::{SECOND, ring::Ring};

/// `RecloserBuilder`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The share of failures at which closed and half-open lead to open.
    pub(crate) error_rate: f64,
    /// Calls in closed that the rate is over.
    pub(crate) closed_len: usize,
    /// The same in half-open.
    pub(crate) half_open_len: usize,
    /// Time in open.
    pub(crate) open_wait: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            error_rate: 0.5,
            closed_len: 100,
            half_open_len: 10,
            open_wait: 30 * SECOND,
        }
    }
}

/// The circuit.
#[derive(Debug)]
pub(crate) struct Recloser {
    settings: Settings,
    state: State,
    transitions: u64,
}

#[derive(Debug)]
enum State {
    Closed(Ring),
    /// Until strictly after this time.
    Open(u64),
    HalfOpen(Ring),
}

impl Recloser {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            state: State::Closed(Ring::new(settings.closed_len)),
            settings,
            transitions: 0,
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.transitions += 1;
    }
}

impl Policy for Recloser {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        match self.state {
            State::Closed(_) => return Admitted::plain(()),
            State::Open(until) if now <= until => return None,
            State::Open(_) => {
                self.enter(State::HalfOpen(Ring::new(self.settings.half_open_len)));
            }
            State::HalfOpen(_) => {}
        }
        Admitted::probe(())
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        let failed = match outcome {
            Outcome::Success => false,
            Outcome::Failure => true,
            Outcome::Cancelled => return,
        };
        let (State::Closed(ring) | State::HalfOpen(ring)) = &mut self.state else {
            return;
        };
        let was_full = ring.is_full();
        ring.push(failed);
        if !was_full {
            return;
        }
        let rate = ring.failure_rate();
        let threshold = self.settings.error_rate;
        let half_open = matches!(self.state, State::HalfOpen(_));
        if half_open && !failed && rate <= threshold {
            self.enter(State::Closed(Ring::new(self.settings.closed_len)));
        } else if rate >= threshold && (failed || !half_open) {
            self.enter(State::Open(now + self.settings.open_wait));
        }
    }

    fn transitions(&self) -> u64 {
        self.transitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_failures_after_many_successes_trip_and_eleven_successes_close() {
        let mut breaker = Recloser::new(Settings::default());
        for _ in 0..500 {
            breaker.settle((), Outcome::Success, 0);
        }
        for _ in 0..49 {
            breaker.settle((), Outcome::Failure, 0);
        }
        assert!(breaker.admit(0).is_some());
        breaker.settle((), Outcome::Failure, 0);
        assert!(breaker.admit(30 * SECOND).is_none());
        for call in 0..11 {
            assert!(
                breaker.admit(31 * SECOND).expect("half-open").probe,
                "{call}"
            );
            breaker.settle((), Outcome::Success, 31 * SECOND);
        }
        assert!(!breaker.admit(31 * SECOND).expect("closed").probe);
    }
}
