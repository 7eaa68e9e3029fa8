//! hystrix-go, which has the defaults of Netflix's Hystrix: an error percentage over ten seconds, and
//! a limit of calls at once.
//!
//! Rejections by the limit and short circuits count as errors. Open admits one call per sleep
//! window without waiting for the last one; any success while open closes and forgets everything.
//! Cancelled contexts count as requests and not as errors. The library's counters are fed by a
//! goroutine; here they are up to date. The command's own timeout is not modelled, the backend has
//! one.

use std::collections::VecDeque;

use super::super::policy::{Admitted, Outcome, Policy};
use super::SECOND;

/// `hystrix.CommandConfig`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Calls at once.
    pub(crate) max_concurrent: u64,
    /// Requests in the window without which the circuit does not open.
    pub(crate) volume: u64,
    /// Time between two calls admitted in open.
    pub(crate) sleep: u64,
    /// The percentage of errors, rounded, at which the circuit opens.
    pub(crate) error_percent: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_concurrent: 10,
            volume: 20,
            sleep: 5 * SECOND,
            error_percent: 50,
        }
    }
}

/// Whole seconds before the present one that count.
const WINDOW_SECONDS: u64 = 10;

/// The circuit.
#[derive(Debug)]
pub(crate) struct Hystrix {
    settings: Settings,
    /// Since when it is open, or when the last call was admitted in open.
    open: Option<u64>,
    running: u64,
    seconds: VecDeque<Second>,
    requests: u64,
    errors: u64,
    transitions: u64,
}

#[derive(Debug)]
struct Second {
    number: u64,
    requests: u64,
    errors: u64,
}

impl Hystrix {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            open: None,
            running: 0,
            seconds: VecDeque::new(),
            requests: 0,
            errors: 0,
            transitions: 0,
        }
    }

    fn forget(&mut self, now: u64) {
        while let Some(oldest) = self.seconds.front()
            && oldest.number + WINDOW_SECONDS < now / SECOND
        {
            self.requests -= oldest.requests;
            self.errors -= oldest.errors;
            self.seconds.pop_front();
        }
    }

    fn count(&mut self, error: bool, now: u64) {
        self.forget(now);
        let number = now / SECOND;
        if self.seconds.back().is_none_or(|last| last.number != number) {
            self.seconds.push_back(Second {
                number,
                requests: 0,
                errors: 0,
            });
        }
        self.requests += 1;
        self.errors += u64::from(error);
        if let Some(second) = self.seconds.back_mut() {
            second.requests += 1;
            second.errors += u64::from(error);
        }
    }

    fn is_unhealthy(&mut self, now: u64) -> bool {
        self.forget(now);
        if self.requests < self.settings.volume.max(1) {
            return false;
        }
        let percent = self.errors as f64 / self.requests as f64 * 100.0;
        (percent + 0.5) as u64 >= self.settings.error_percent
    }

    /// Whether the circuit lets the call through, and whether it is the one of a sleep window.
    fn allow(&mut self, now: u64) -> Option<bool> {
        if self.open.is_none() {
            if !self.is_unhealthy(now) {
                return Some(false);
            }
            self.open = Some(now);
            self.transitions += 1;
        }
        let last = self.open?;
        if now <= last + self.settings.sleep {
            return None;
        }
        self.open = Some(now);
        Some(true)
    }
}

impl Policy for Hystrix {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        let allowed = self.allow(now);
        match allowed {
            Some(probe) if self.running < self.settings.max_concurrent => {
                self.running += 1;
                Some(Admitted { token: (), probe })
            }
            Some(_) | None => {
                self.count(true, now);
                None
            }
        }
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        self.running -= 1;
        if outcome == Outcome::Success && self.open.take().is_some() {
            self.transitions += 1;
            self.seconds.clear();
            self.requests = 0;
            self.errors = 0;
        }
        self.count(outcome == Outcome::Failure, now);
    }

    fn transitions(&self) -> u64 {
        self.transitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(breaker: &mut Hystrix, outcome: Outcome, now: u64) -> bool {
        let admitted = breaker.admit(now);
        if admitted.is_some() {
            breaker.settle((), outcome, now);
        }
        admitted.is_some()
    }

    #[test]
    fn half_of_twenty_opens_and_a_success_after_the_sleep_closes() {
        let mut breaker = Hystrix::new(Settings::default());
        for number in 0..20 {
            let outcome = if number % 2 == 0 {
                Outcome::Success
            } else {
                Outcome::Failure
            };
            assert!(call(&mut breaker, outcome, 0), "{number}");
        }
        assert!(!call(&mut breaker, Outcome::Success, 0));
        assert!(!call(&mut breaker, Outcome::Success, 5 * SECOND));
        assert!(call(&mut breaker, Outcome::Failure, 5 * SECOND + 1));
        assert!(!call(&mut breaker, Outcome::Success, 10 * SECOND));
        assert!(call(&mut breaker, Outcome::Success, 11 * SECOND));
        assert!(call(&mut breaker, Outcome::Success, 11 * SECOND));
        assert_eq!(breaker.transitions(), 2);
    }

    #[test]
    fn ten_calls_run_at_once() {
        let mut breaker = Hystrix::new(Settings::default());
        let admitted = (0..15).filter(|_| breaker.admit(0).is_some()).count();
        assert_eq!(admitted, 10);
        breaker.settle((), Outcome::Success, 0);
        assert!(breaker.admit(0).is_some());
    }
}
