//! The failsafe crate: a moving success rate or consecutive failures, with growing, jittered time in
//! open.
//!
//! Half-open lets every call through and the first result decides. Results count in the state that
//! they come to, successes also while open. The two policies keep their own back-off; where both
//! want to open, the longer time counts. Times are whole milliseconds, back-offs whole seconds. A
//! cancelled call leaves no trace.

use fastrand::Rng;

use super::super::policy::{Admitted, Outcome, Policy};
use super::{MILLISECOND, SECOND};

/// What `Config::new` builds.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The moving success rate below which the circuit opens; 0 for never.
    pub(crate) success_rate: f64,
    /// Requests in the window without which it does not.
    pub(crate) minimum: i64,
    /// The window of the rate, in whole seconds; nothing happens by rate before it has passed.
    pub(crate) window: u64,
    /// Consecutive failures at which the circuit opens.
    pub(crate) consecutive: u32,
    /// The first time in open, in whole seconds; it doubles with each failed return.
    pub(crate) backoff: u64,
    /// The longest time in open, in whole seconds.
    pub(crate) backoff_max: u64,
    /// Whether half of the time in open is by chance.
    pub(crate) jitter: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            success_rate: 0.8,
            minimum: 5,
            window: 30 * SECOND,
            consecutive: 5,
            backoff: 10 * SECOND,
            backoff_max: 300 * SECOND,
            jitter: true,
        }
    }
}

/// The circuit.
#[derive(Debug)]
pub(crate) struct Failsafe {
    settings: Settings,
    state: State,
    rate: Rate,
    rate_attempts: u32,
    failures_in_a_row: u32,
    row_attempts: u32,
    draws: Rng,
    transitions: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    /// Until strictly after `until`.
    Open {
        until: u64,
        lasts: u64,
    },
    HalfOpen {
        lasted: u64,
    },
}

impl Failsafe {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        Self {
            state: State::Closed,
            rate: Rate::new(settings.window / MILLISECOND),
            settings,
            rate_attempts: 0,
            failures_in_a_row: 0,
            row_attempts: 0,
            draws: Rng::with_seed(seed),
            transitions: 0,
        }
    }

    /// How long to stay open, if the failure is one too many.
    fn failed(&mut self, now: u64) -> Option<u64> {
        let rate = self.rate.update(false, now);
        let by_rate = self.rate.age(now) >= self.rate.window_ms
            && rate < self.settings.success_rate
            && self.rate.requests.sum(now) >= self.settings.minimum;
        let by_rate = by_rate.then(|| {
            let attempt = self.rate_attempts;
            self.rate_attempts += 1;
            self.backoff(attempt)
        });
        self.failures_in_a_row += 1;
        let by_row = self.failures_in_a_row >= self.settings.consecutive;
        let by_row = by_row.then(|| {
            let attempt = self.row_attempts;
            self.row_attempts += 1;
            self.backoff(attempt)
        });
        by_rate.max(by_row)
    }

    fn backoff(&mut self, attempt: u32) -> u64 {
        let seconds = (self.settings.backoff / SECOND) << attempt.min(30);
        let seconds = seconds.min(self.settings.backoff_max / SECOND);
        if self.settings.jitter {
            (seconds / 2 + self.draws.u64(0..=seconds / 2)) * SECOND
        } else {
            seconds * SECOND
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.transitions += 1;
    }
}

impl Policy for Failsafe {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        match self.state {
            State::Closed => return Admitted::plain(()),
            State::Open { until, .. } if now <= until => return None,
            State::Open { lasts, .. } => self.enter(State::HalfOpen { lasted: lasts }),
            State::HalfOpen { .. } => {}
        }
        Admitted::probe(())
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        match outcome {
            Outcome::Cancelled => {}
            Outcome::Success => {
                if let State::HalfOpen { .. } = self.state {
                    self.enter(State::Closed);
                    self.rate.reset(now);
                    self.rate_attempts = 0;
                    self.row_attempts = 0;
                }
                self.failures_in_a_row = 0;
                self.rate.update(true, now);
            }
            Outcome::Failure => {
                let lasted = match self.state {
                    State::Closed => None,
                    State::HalfOpen { lasted } => Some(lasted),
                    State::Open { .. } => return,
                };
                if let Some(lasts) = self.failed(now).or(lasted) {
                    let until = now + lasts;
                    self.enter(State::Open { until, lasts });
                }
            }
        }
    }

    fn transitions(&self) -> u64 {
        self.transitions
    }
}

/// The success rate as a moving average whose memory is the window.
#[derive(Debug)]
struct Rate {
    window_ms: u64,
    began: u64,
    /// Milliseconds from `began` to the last update; at 0 the next one starts anew.
    updated_ms: u64,
    average: f64,
    requests: Requests,
}

impl Rate {
    fn new(window_ms: u64) -> Self {
        Self {
            window_ms,
            began: 0,
            updated_ms: 0,
            average: 0.0,
            requests: Requests::new(window_ms),
        }
    }

    fn age(&self, now: u64) -> u64 {
        (now - self.began) / MILLISECOND
    }

    fn update(&mut self, success: bool, now: u64) -> f64 {
        self.requests.add(now);
        let at = self.age(now);
        let value = f64::from(u8::from(success));
        if self.updated_ms == 0 {
            self.average = value;
        } else if at > self.updated_ms {
            let weight = if self.window_ms == 0 {
                0.0
            } else {
                (-((at - self.updated_ms) as f64) / self.window_ms as f64).exp()
            };
            self.average = value * (1.0 - weight) + self.average * weight;
        }
        self.updated_ms = at;
        self.average
    }

    fn reset(&mut self, now: u64) {
        self.began = now;
        self.updated_ms = 0;
        self.average = 0.0;
        self.requests.reset(now);
    }
}

/// Requests over the window, in five slices; each begins with the first request after the last one
/// has had its time.
#[derive(Debug)]
struct Requests {
    slice_ms: u64,
    slices: [i64; SLICES],
    current: usize,
    began: u64,
}

const SLICES: usize = 5;

impl Requests {
    fn new(window_ms: u64) -> Self {
        Self {
            slice_ms: (window_ms / SLICES as u64).max(1),
            slices: [0; SLICES],
            current: 0,
            began: 0,
        }
    }

    fn add(&mut self, now: u64) {
        self.expire(now);
        self.slices[self.current] += 1;
    }

    fn sum(&mut self, now: u64) -> i64 {
        self.expire(now);
        self.slices.iter().sum()
    }

    fn expire(&mut self, now: u64) {
        let passed = (now - self.began) / MILLISECOND / self.slice_ms;
        if passed == 0 {
            return;
        }
        for _ in 0..passed.min(1 + SLICES as u64) {
            self.current = (self.current + 1) % SLICES;
            self.slices[self.current] = 0;
        }
        self.began = now;
    }

    fn reset(&mut self, now: u64) {
        self.slices = [0; SLICES];
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_trip_and_the_time_in_open_doubles() {
        let settings = Settings {
            jitter: false,
            ..Settings::default()
        };
        let mut breaker = Failsafe::new(settings, 1);
        for _ in 0..5 {
            assert!(breaker.admit(0).is_some());
            breaker.settle((), Outcome::Failure, 0);
        }
        assert!(breaker.admit(10 * SECOND).is_none());
        assert!(breaker.admit(10 * SECOND + 1).expect("half-open").probe);
        breaker.settle((), Outcome::Failure, 10 * SECOND + 1);
        assert!(breaker.admit(30 * SECOND + 1).is_none());
        assert!(breaker.admit(30 * SECOND + 2).is_some());
        breaker.settle((), Outcome::Success, 30 * SECOND + 2);
        assert!(!breaker.admit(30 * SECOND + 2).expect("closed").probe);
    }

    #[test]
    fn a_low_success_rate_trips_once_the_window_has_passed() {
        let mut breaker = Failsafe::new(Settings::default(), 1);
        let mut calls = 0_u64;
        // Every other call fails, never five in a row.
        while breaker.transitions() == 0 {
            let outcome = if calls.is_multiple_of(2) {
                Outcome::Success
            } else {
                Outcome::Failure
            };
            calls += 1;
            breaker.settle((), outcome, calls * 10 * MILLISECOND);
        }
        assert_eq!(calls, 3000);
    }
}
