//! The models of `sim breaker` against the crates that they model: the same calls, call by call.
//!
//! The program's models are compiled in from its sources: the program is no library, and peers are
//! dependencies of this package only.

#[path = "../../cli/src/sim/breaker/policy.rs"]
mod policy;

#[path = "../../cli/src/sim/breaker/models/mod.rs"]
mod models;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use failsafe::backoff;
use failsafe::failure_policy::{consecutive_failures, success_rate_over_time_window};
use failsafe::{Config, FailurePolicy, StateMachine};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use models::failsafe::Failsafe;
use models::recloser::Recloser;
use policy::{Outcome, Policy};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Whether calls fail: for a random while with one probability, then with another.
struct Weather {
    draws: StdRng,
    fails: f64,
    left: u32,
}

impl Weather {
    fn new(seed: u64) -> Self {
        Self {
            draws: StdRng::seed_from_u64(seed),
            fails: 0.0,
            left: 0,
        }
    }

    fn fails(&mut self) -> bool {
        if self.left == 0 {
            self.left = self.draws.random_range(1..300);
            self.fails = [0.0, 0.1, 0.3, 0.5, 0.7, 1.0][self.draws.random_range(0..6)];
        }
        self.left -= 1;
        self.draws.random_bool(self.fails)
    }
}

/// Calls of the recloser crate are made one after the other, in real time: open ends at once here, as
/// soon as the clock has moved.
#[test]
fn recloser_decides_as_its_model_where_open_is_short() {
    for seed in 0..20 {
        let (closed_len, half_open_len) = (30 + seed as usize, 5 + seed as usize % 7);
        let crate_s = recloser::Recloser::custom()
            .closed_len(closed_len)
            .half_open_len(half_open_len)
            .open_wait(Duration::ZERO)
            .build();
        let mut model = Recloser::new(models::recloser::Settings {
            closed_len,
            half_open_len,
            open_wait: 0,
            ..Default::default()
        });
        let mut weather = Weather::new(seed);
        for call in 0..20_000 {
            let fails = weather.fails();
            let before = Instant::now();
            while Instant::now() == before {}
            assert_eq!(
                recloser_calls(&crate_s, fails),
                calls(&mut model, fails, call),
                "call {call} of seed {seed}"
            );
        }
        assert!(model.transitions() > 20, "{}", model.transitions());
    }
}

/// And open never ends here.
#[test]
fn recloser_trips_with_the_same_call_as_its_model() {
    for seed in 0..50 {
        let crate_s = recloser::Recloser::custom()
            .open_wait(Duration::from_secs(3600))
            .build();
        let mut model = Recloser::new(models::recloser::Settings {
            open_wait: 3600 * SECOND,
            ..Default::default()
        });
        let mut weather = Weather::new(seed);
        let mut rejected = 0;
        for call in 0..20_000 {
            let fails = weather.fails();
            let admitted = recloser_calls(&crate_s, fails);
            rejected += u32::from(!admitted);
            assert_eq!(
                admitted,
                calls(&mut model, fails, call),
                "call {call} of seed {seed}"
            );
        }
        assert!(rejected > 0 && model.transitions() == 1);
    }
}

/// The failsafe crate has a clock that can be moved by hand, so calls overlap here.
#[test]
fn failsafe_decides_as_its_model_on_consecutive_failures() {
    for seed in 0..10 {
        failsafe::clock::freeze(|clock| {
            let backoff = backoff::exponential(Duration::from_secs(10), Duration::from_secs(300));
            let breaker = Config::new()
                .failure_policy(consecutive_failures(5, backoff))
                .build();
            let settings = models::failsafe::Settings {
                success_rate: 0.0,
                jitter: false,
                ..Default::default()
            };
            let transitions = play(&breaker, &mut |by| clock.advance(by), settings, seed);
            assert!(transitions > 20, "{transitions}");
        });
    }
}

#[test]
fn failsafe_decides_as_its_model_on_a_success_rate() {
    for seed in 0..10 {
        failsafe::clock::freeze(|clock| {
            let backoff = backoff::constant(Duration::from_secs(10));
            let window = Duration::from_secs(30);
            let policy = success_rate_over_time_window(0.8, 5, window, backoff);
            let breaker = Config::new().failure_policy(policy).build();
            let settings = models::failsafe::Settings {
                consecutive: u32::MAX,
                backoff_max: 10 * SECOND,
                jitter: false,
                ..Default::default()
            };
            let transitions = play(&breaker, &mut |by| clock.advance(by), settings, seed);
            assert!(transitions > 20, "{transitions}");
        });
    }
}

#[test]
fn failsafe_decides_as_its_model_on_either() {
    for seed in 0..10 {
        failsafe::clock::freeze(|clock| {
            let backoff = || {
                let (first, most) = (Duration::from_secs(10), Duration::from_secs(300));
                backoff::exponential(first, most)
            };
            let window = Duration::from_secs(30);
            let policy = success_rate_over_time_window(0.8, 5, window, backoff())
                .or_else(consecutive_failures(5, backoff()));
            let breaker = Config::new().failure_policy(policy).build();
            let settings = models::failsafe::Settings {
                jitter: false,
                ..Default::default()
            };
            let transitions = play(&breaker, &mut |by| clock.advance(by), settings, seed);
            assert!(transitions > 20, "{transitions}");
        });
    }
}

/// Plays calls that take up to ten steps, the same to the crate and to the model, and gives the
/// transitions of the model.
fn play<P: FailurePolicy>(
    breaker: &StateMachine<P, ()>,
    advance: &mut dyn FnMut(Duration),
    settings: models::failsafe::Settings,
    seed: u64,
) -> u64 {
    let mut model = Failsafe::new(settings, 1);
    let mut weather = Weather::new(seed);
    let mut draws = StdRng::seed_from_u64(seed + 1000);
    let mut pending = VecDeque::new();
    let mut now = 0;
    for call in 0..50_000 {
        // Mostly a busy service, and now and then a pause that outlasts slices, windows and open.
        let step_ms = if draws.random_bool(0.002) {
            draws.random_range(1..60_000)
        } else {
            draws.random_range(0..50)
        };
        advance(Duration::from_millis(step_ms));
        now += step_ms * MILLISECOND;
        let admitted = breaker.is_call_permitted();
        assert_eq!(
            admitted,
            model.admit(now).is_some(),
            "call {call} of seed {seed}"
        );
        if admitted {
            pending.push_back(weather.fails());
        }
        while pending.len() > draws.random_range(0..10) {
            let Some(fails) = pending.pop_front() else {
                break;
            };
            settle(breaker, fails);
            model.settle((), outcome(fails), now);
        }
    }
    model.transitions()
}

/// Tells the crate how a call ended.
fn settle<P: FailurePolicy>(breaker: &StateMachine<P, ()>, fails: bool) {
    if fails {
        breaker.on_error();
    } else {
        breaker.on_success();
    }
}

fn recloser_calls(breaker: &recloser::Recloser, fails: bool) -> bool {
    let result = breaker.call(|| if fails { Err(()) } else { Ok(()) });
    !matches!(result, Err(recloser::Error::Rejected))
}

fn calls(model: &mut Recloser, fails: bool, now: u64) -> bool {
    let admitted = model.admit(now).is_some();
    if admitted {
        model.settle((), outcome(fails), now);
    }
    admitted
}

fn outcome(fails: bool) -> Outcome {
    if fails {
        Outcome::Failure
    } else {
        Outcome::Success
    }
}
