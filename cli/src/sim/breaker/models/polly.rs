//! Polly's circuit breaker strategy: a failure ratio over a window of time, then one trial call.
//!
//! The window is ten parts, each of which begins with the first call after its forerunner. The
//! ratio is looked at when a call fails in closed, and trips at the threshold. Half-open lets no
//! call through but the one that opened it; any result that comes then decides, whichever call it
//! is of. A cancelled call is not handled, which Polly takes for a success.

use std::collections::VecDeque;

use super::super::policy::{Admitted, Outcome, Policy};
use super::SECOND;

/// `CircuitBreakerStrategyOptions`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The share of failures at which the circuit opens.
    pub(crate) failure_ratio: f64,
    /// Calls in the window without which it does not.
    pub(crate) minimum_throughput: u64,
    /// The window.
    pub(crate) sampling: u64,
    /// Time in open.
    pub(crate) break_duration: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failure_ratio: 0.1,
            minimum_throughput: 100,
            sampling: 30 * SECOND,
            break_duration: 5 * SECOND,
        }
    }
}

const PARTS: u64 = 10;

/// The circuit.
#[derive(Debug)]
pub(crate) struct Polly {
    settings: Settings,
    state: State,
    parts: VecDeque<Part>,
    successes: u64,
    failures: u64,
    transitions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Until this time.
    Open(u64),
    HalfOpen,
}

#[derive(Debug)]
struct Part {
    began: u64,
    successes: u64,
    failures: u64,
}

impl Polly {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Closed,
            parts: VecDeque::new(),
            successes: 0,
            failures: 0,
            transitions: 0,
        }
    }

    fn count(&mut self, failed: bool, now: u64) {
        let length = self.settings.sampling / PARTS;
        if self
            .parts
            .back()
            .is_none_or(|part| now - part.began >= length)
        {
            self.parts.push_back(Part {
                began: now,
                successes: 0,
                failures: 0,
            });
        }
        while let Some(oldest) = self.parts.front()
            && now - oldest.began >= self.settings.sampling
        {
            self.successes -= oldest.successes;
            self.failures -= oldest.failures;
            self.parts.pop_front();
        }
        let (successes, failures) = (u64::from(!failed), u64::from(failed));
        self.successes += successes;
        self.failures += failures;
        if let Some(part) = self.parts.back_mut() {
            part.successes += successes;
            part.failures += failures;
        }
    }

    fn has_too_many_failures(&self) -> bool {
        let calls = self.successes + self.failures;
        calls >= self.settings.minimum_throughput.max(1)
            && self.failures as f64 / calls as f64 >= self.settings.failure_ratio
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.transitions += 1;
    }
}

impl Policy for Polly {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        match self.state {
            State::Closed => Admitted::plain(()),
            State::Open(until) if now >= until => {
                self.enter(State::HalfOpen);
                Admitted::probe(())
            }
            State::Open(_) | State::HalfOpen => None,
        }
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        let failed = outcome == Outcome::Failure;
        if !(failed && self.state == State::HalfOpen) {
            self.count(failed, now);
        }
        let open = State::Open(now + self.settings.break_duration);
        match self.state {
            State::HalfOpen if failed => self.enter(open),
            State::HalfOpen => {
                self.enter(State::Closed);
                self.parts.clear();
                self.successes = 0;
                self.failures = 0;
            }
            State::Closed if failed && self.has_too_many_failures() => self.enter(open),
            State::Closed | State::Open(_) => {}
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
    fn a_tenth_of_a_hundred_calls_trips() {
        let mut breaker = Polly::new(Settings::default());
        for _ in 0..90 {
            breaker.settle((), Outcome::Success, 0);
        }
        for _ in 0..9 {
            breaker.settle((), Outcome::Failure, 0);
        }
        assert!(breaker.admit(0).is_some());
        breaker.settle((), Outcome::Failure, 0);
        assert!(breaker.admit(5 * SECOND - 1).is_none());
        assert!(breaker.admit(5 * SECOND).expect("half-open").probe);
        assert!(breaker.admit(5 * SECOND).is_none(), "one at a time");
        breaker.settle((), Outcome::Success, 5 * SECOND);
        assert!(breaker.admit(5 * SECOND).is_some());
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut breaker = Polly::new(Settings::default());
        for _ in 0..9 {
            breaker.settle((), Outcome::Failure, 0);
        }
        for call in 0..200 {
            breaker.settle((), Outcome::Success, 40 * SECOND + call);
        }
        for _ in 0..22 {
            breaker.settle((), Outcome::Failure, 41 * SECOND);
        }
        assert!(breaker.admit(41 * SECOND).is_some());
        breaker.settle((), Outcome::Failure, 41 * SECOND);
        assert!(breaker.admit(41 * SECOND).is_none());
    }
}
