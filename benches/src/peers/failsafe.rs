//! `failsafe_rate` and `failsafe_consecutive`: the failsafe crate, a state machine under a spin lock.
//!
//! Settings: each of its policies alone, with the library's default numbers (a success rate of 0.8
//! over 30 s, and five failures in a row), since only the default breaker would pay for both. Open
//! lasts an hour.

use std::time::Duration;

use failsafe::backoff::{self, Constant};
use failsafe::failure_policy::{
    ConsecutiveFailures, SuccessRateOverTimeWindow, consecutive_failures,
    success_rate_over_time_window,
};
use failsafe::{CircuitBreaker, Config, Error, StateMachine};

use super::{CallBreaker, Opens};

const HOUR: Duration = Duration::from_secs(3600);

/// The adapter of the success rate over a window of time.
#[derive(Debug)]
pub struct FailsafeRate(StateMachine<SuccessRateOverTimeWindow<Constant>, ()>);

/// The adapter of consecutive failures.
#[derive(Debug)]
pub struct FailsafeConsecutive(StateMachine<ConsecutiveFailures<Constant>, ()>);

impl CallBreaker for FailsafeRate {
    fn new() -> Self {
        let backoff = backoff::constant(HOUR);
        let policy = success_rate_over_time_window(0.8, 5, Duration::from_secs(30), backoff);
        Self(Config::new().failure_policy(policy).build())
    }

    #[inline]
    fn call(&self, number: u64, fails: bool) -> Option<u64> {
        call(&self.0, number, fails)
    }
}

impl CallBreaker for FailsafeConsecutive {
    fn new() -> Self {
        let policy = consecutive_failures(5, backoff::constant(HOUR));
        Self(Config::new().failure_policy(policy).build())
    }

    #[inline]
    fn call(&self, number: u64, fails: bool) -> Option<u64> {
        call(&self.0, number, fails)
    }
}

/// The rate needs a window's time before it can open; rejecting is the same for both.
impl Opens for FailsafeConsecutive {}

#[inline]
fn call(breaker: &impl CircuitBreaker, number: u64, fails: bool) -> Option<u64> {
    match breaker.call(|| if fails { Err(number) } else { Ok(number) }) {
        Ok(number) | Err(Error::Inner(number)) => Some(number),
        Err(Error::Rejected) => None,
    }
}
