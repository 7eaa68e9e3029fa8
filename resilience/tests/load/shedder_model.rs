//! `Shedder` against a naive model, step by step:
//!
//! - a request is shed exactly when the formula says so, worked out from a list of all that passed;
//! - the smoothed usage, what is sustainable, and the requests in flight are those of the model;
//! - whatever happened, once all have ended none is in flight, and each is accounted for once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wheelhouse_resilience::{Priority, Promise, Shedder};
use wheelhouse_wheel::{Clock, ManualClock};

const THRESHOLD: u32 = 800;
const BUCKETS: u64 = 10;
const BUCKET_MS: u64 = 20;
const SAMPLE_MS: u64 = 50;
const COOL_OFF_MS: u64 = 100;

#[derive(Debug, Clone)]
enum Op {
    Ask,
    /// The request at this place of those in flight, modulo their number.
    Success(usize),
    Failure(usize),
    Busy(f64),
    Wait(u64),
    Sample,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Ask),
        4 => any::<usize>().prop_map(Op::Success),
        1 => any::<usize>().prop_map(Op::Failure),
        1 => (0.0..1.3).prop_map(Op::Busy),
        1 => Just(Op::Busy(1.0)),
        6 => (0_u64..30).prop_map(Op::Wait),
        1 => (0_u64..400).prop_map(Op::Wait),
        1 => Just(Op::Sample),
    ]
}

/// All in milliseconds since the start, and with no thought of speed.
#[derive(Default)]
struct Model {
    now: u64,
    usage: f64,
    /// When the last sample was taken, and the average then.
    cpu: Option<(u64, f64)>,
    sampled: u64,
    last_hot: Option<u64>,
    /// When each that passed ended, and how long it took.
    passed: Vec<(u64, u64)>,
    in_flight: Vec<u64>,
    /// When the average in flight was brought up to date, and what it was.
    average: Option<(u64, f64)>,
}

impl Model {
    fn sample(&mut self) -> bool {
        if self.now < self.sampled + SAMPLE_MS {
            return false;
        }
        let sample = (self.usage * 1000.0).min(1000.0);
        let average = match self.cpu {
            None => sample,
            Some((then, average)) => {
                let kept = 0.95_f64.powf((self.now - then) as f64 / SAMPLE_MS as f64);
                average * kept + sample * (1.0 - kept)
            }
        };
        self.cpu = Some((self.now, average));
        self.sampled = self.now;
        if average >= f64::from(THRESHOLD) {
            self.last_hot = Some(self.now);
        }
        true
    }

    fn cpu(&self) -> f64 {
        self.cpu.map_or(0.0, |(_, average)| average)
    }

    fn is_hot(&self) -> bool {
        self.last_hot
            .is_some_and(|last| self.now < last + COOL_OFF_MS)
    }

    fn max_in_flight(&self) -> f64 {
        let current = self.now / BUCKET_MS;
        let oldest = (current + 1).saturating_sub(BUCKETS);
        let (mut most, mut least) = (1, f64::INFINITY);
        for bucket in oldest..current {
            let ended = self
                .passed
                .iter()
                .filter(|(end, _)| end / BUCKET_MS == bucket);
            let latencies: Vec<u64> = ended.map(|(_, latency)| *latency).collect();
            if !latencies.is_empty() {
                let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
                most = most.max(latencies.len());
                least = mean.min(least);
            }
        }
        let latency = if least.is_finite() {
            least / 1000.0
        } else {
            1.0
        };
        let rate = most as f64 * 1000.0 / BUCKET_MS as f64;
        let factor = (1000.0 - self.cpu()) / (1000.0 - f64::from(THRESHOLD));
        (rate * latency).max(1.0) * factor.clamp(0.1, 1.0)
    }

    /// Whether it is let in; `None` when that hangs on how numbers are rounded.
    fn ask(&mut self) -> Option<bool> {
        self.sample();
        let in_flight = self.in_flight.len() as f64;
        let average = match self.average {
            None => in_flight,
            Some((then, average)) if then == self.now => average,
            Some((then, average)) => {
                let kept = 0.9_f64.powf((self.now - then) as f64 / 10.0);
                average * kept + in_flight * (1.0 - kept)
            }
        };
        self.average = Some((self.now, average));
        let max = self.max_in_flight();
        let is_close = |value: f64| (value - max).abs() < 1e-6;
        let is_near_threshold = (self.cpu() - f64::from(THRESHOLD)).abs() < 1e-6;
        if is_near_threshold || (self.is_hot() && (is_close(in_flight) || is_close(average))) {
            return None;
        }
        Some(!(self.is_hot() && in_flight > max && average > max))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sheds_what_the_formula_says(ops in prop::collection::vec(op(), 1..400)) {
        let clock = ManualClock::new();
        let start = clock.now();
        let usage = Arc::new(Mutex::new(0.0));
        let source = usage.clone();
        let shedder = Shedder::builder()
            .clock(clock.clone())
            .cpu(move |_: Instant| Some(*source.lock().unwrap()))
            .threshold(THRESHOLD)
            .cool_off(Duration::from_millis(COOL_OFF_MS))
            .window(Duration::from_millis(BUCKETS * BUCKET_MS), BUCKETS as usize)
            .sample_period(Duration::from_millis(SAMPLE_MS))
            .build()
            .unwrap();
        let mut model = Model::default();
        let mut promises: Vec<Promise> = Vec::new();
        let (mut passed, mut failed, mut shed) = (0, 0, 0);
        for op in ops {
            model.now = (clock.now() - start).as_millis() as u64;
            match op {
                Op::Ask => {
                    let expected = model.ask();
                    let got = shedder.try_acquire(Priority::Normal);
                    if let Some(expected) = expected {
                        prop_assert_eq!(got.is_ok(), expected, "{:?}", shedder);
                    }
                    match got {
                        Ok(promise) => {
                            promises.push(promise);
                            model.in_flight.push(model.now);
                        }
                        Err(_) => shed += 1,
                    }
                }
                Op::Success(place) if !promises.is_empty() => {
                    let place = place % promises.len();
                    promises.remove(place).success();
                    let started = model.in_flight.remove(place);
                    model.passed.push((model.now, model.now - started));
                    passed += 1;
                }
                Op::Failure(place) if !promises.is_empty() => {
                    let place = place % promises.len();
                    promises.remove(place).failure();
                    model.in_flight.remove(place);
                    failed += 1;
                }
                Op::Success(_) | Op::Failure(_) => {}
                Op::Busy(now) => {
                    *usage.lock().unwrap() = now;
                    model.usage = now;
                }
                Op::Wait(millis) => clock.advance(Duration::from_millis(millis)),
                Op::Sample => prop_assert_eq!(shedder.sample(), model.sample()),
            }
            model.now = (clock.now() - start).as_millis() as u64;
            let stats = shedder.stats();
            let (max, cpu) = (model.max_in_flight(), model.cpu());
            prop_assert!((stats.cpu - cpu).abs() < 1e-6, "{} for {cpu}", stats.cpu);
            prop_assert!((stats.max_in_flight - max).abs() < 1e-6, "{} for {max}", stats.max_in_flight);
            prop_assert_eq!(stats.in_flight, model.in_flight.len() as u64);
            prop_assert_eq!((stats.passed, stats.failed, stats.shed_total()), (passed, failed, shed));
        }
        failed += promises.len() as u64;
        drop(promises);
        let stats = shedder.stats();
        prop_assert_eq!((stats.in_flight, stats.passed, stats.failed), (0, passed, failed));
    }
}
