//! sony/gobreaker: trips at a run of failures.
//!
//! A generation ends with each change of state, and results of an older generation count for
//! nothing. Open ends strictly after its time. In half-open a request takes one of `max_requests`
//! places, and as many successes in a row close the circuit. Any error is a failure, that of a
//! cancelled context too.

use super::super::policy::{Admitted, Outcome, Policy};
use super::SECOND;

/// `gobreaker.Settings`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Requests let through in half-open.
    pub(crate) max_requests: u32,
    /// After so long in closed the counts are cleared; 0 for never.
    pub(crate) interval: u64,
    /// Time in open.
    pub(crate) timeout: u64,
    /// More consecutive failures than this trip the circuit.
    pub(crate) tolerated: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_requests: 1,
            interval: 0,
            timeout: 60 * SECOND,
            tolerated: 5,
        }
    }
}

/// The circuit.
#[derive(Debug)]
pub(crate) struct Gobreaker {
    settings: Settings,
    state: State,
    /// When the state or the counts end, where they do by time.
    expiry: Option<u64>,
    generation: u64,
    requests: u32,
    successes_in_a_row: u32,
    failures_in_a_row: u32,
    transitions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    HalfOpen,
}

impl Gobreaker {
    pub(crate) fn new(settings: Settings) -> Self {
        let expiry = (settings.interval > 0).then_some(settings.interval);
        Self {
            settings,
            state: State::Closed,
            expiry,
            generation: 0,
            requests: 0,
            successes_in_a_row: 0,
            failures_in_a_row: 0,
            transitions: 0,
        }
    }

    fn follow_the_clock(&mut self, now: u64) {
        if self.expiry.is_some_and(|expiry| expiry < now) {
            match self.state {
                State::Closed => self.begin_generation(now),
                State::Open => self.enter(State::HalfOpen, now),
                State::HalfOpen => {}
            }
        }
    }

    fn enter(&mut self, state: State, now: u64) {
        self.state = state;
        self.transitions += 1;
        self.begin_generation(now);
    }

    fn begin_generation(&mut self, now: u64) {
        self.generation += 1;
        self.requests = 0;
        self.successes_in_a_row = 0;
        self.failures_in_a_row = 0;
        let lasts = match self.state {
            State::Closed => self.settings.interval,
            State::Open => self.settings.timeout,
            State::HalfOpen => 0,
        };
        self.expiry = (lasts > 0).then(|| now + lasts);
    }
}

impl Policy for Gobreaker {
    /// The generation.
    type Token = u64;

    fn admit(&mut self, now: u64) -> Option<Admitted<u64>> {
        self.follow_the_clock(now);
        match self.state {
            State::Open => return None,
            State::HalfOpen if self.requests >= self.settings.max_requests => return None,
            State::Closed | State::HalfOpen => {}
        }
        self.requests = self.requests.saturating_add(1);
        Some(Admitted {
            token: self.generation,
            probe: self.state == State::HalfOpen,
        })
    }

    fn settle(&mut self, generation: u64, outcome: Outcome, now: u64) {
        self.follow_the_clock(now);
        if generation != self.generation {
            return;
        }
        if outcome == Outcome::Success {
            self.successes_in_a_row = self.successes_in_a_row.saturating_add(1);
            self.failures_in_a_row = 0;
            if self.state == State::HalfOpen
                && self.successes_in_a_row >= self.settings.max_requests
            {
                self.enter(State::Closed, now);
            }
        } else {
            self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
            self.successes_in_a_row = 0;
            if self.state == State::HalfOpen || self.failures_in_a_row > self.settings.tolerated {
                self.enter(State::Open, now);
            }
        }
    }

    fn transitions(&self) -> u64 {
        self.transitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(breaker: &mut Gobreaker, now: u64) {
        let call = breaker.admit(now).expect("closed");
        breaker.settle(call.token, Outcome::Failure, now);
    }

    #[test]
    fn the_sixth_failure_in_a_row_trips_and_one_success_after_a_minute_closes() {
        let mut breaker = Gobreaker::new(Settings::default());
        for _ in 0..5 {
            fails(&mut breaker, 0);
        }
        let call = breaker.admit(0).expect("closed");
        breaker.settle(call.token, Outcome::Success, 0);
        for _ in 0..6 {
            fails(&mut breaker, 0);
        }
        assert!(breaker.admit(60 * SECOND).is_none());
        let probe = breaker.admit(60 * SECOND + 1).expect("half-open");
        assert!(probe.probe);
        assert!(breaker.admit(60 * SECOND + 1).is_none(), "one at a time");
        breaker.settle(probe.token, Outcome::Success, 61 * SECOND);
        assert!(!breaker.admit(61 * SECOND).expect("closed").probe);
        assert_eq!(breaker.transitions(), 3);
    }

    #[test]
    fn results_of_an_older_generation_count_for_nothing() {
        let mut breaker = Gobreaker::new(Settings::default());
        let old = breaker.admit(0).expect("closed");
        for _ in 0..6 {
            fails(&mut breaker, 0);
        }
        let probe = breaker.admit(61 * SECOND).expect("half-open");
        breaker.settle(old.token, Outcome::Failure, 61 * SECOND);
        breaker.settle(probe.token, Outcome::Success, 61 * SECOND);
        assert!(breaker.admit(61 * SECOND).is_some());
    }
}
