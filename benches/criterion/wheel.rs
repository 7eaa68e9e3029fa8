//! Each operation of `Wheel<u64>` with 10 000, 1 000 000 and 10 000 000 timers pending.
//!
//! One iteration is one operation on a wheel that holds the given number of timers, their delays
//! uniform in 1..=60 000 ticks. Keys and deadlines are laid out before the clock starts, and the
//! timers are taken in random order; what the operations of a batch have added, taken out or used up
//! is restored after the clock has stopped.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use wheelhouse_wheel::{TimerKey, Wheel};

/// The longest delay, in ticks.
const HORIZON: u64 = 60_000;

/// Runs a batch of this many operations, at least one, and gives the time that they took.
type Batch = fn(&mut Filled, usize) -> Duration;

const OPERATIONS: &[(&str, Batch)] = &[
    ("insert", insert),
    ("remove", remove),
    ("later", later),
    ("earlier", earlier),
    ("fire", fire),
    ("churn", churn),
    ("startstop", start_stop),
    ("next_deadline", next_deadline),
];

/// A wheel that is kept at one size. The value of a timer is its place in `keys`.
struct Filled {
    wheel: Wheel<u64>,
    keys: Vec<TimerKey>,
    /// Every place once, in random order, and how far it is used up.
    order: Vec<usize>,
    used: usize,
    rng: StdRng,
}

impl Filled {
    fn new(size: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let mut wheel = Wheel::new();
        let keys = (0..size as u64)
            .map(|value| wheel.insert(rng.random_range(1..=HORIZON), value))
            .collect();
        let mut order: Vec<usize> = (0..size).collect();
        order.shuffle(&mut rng);
        Self {
            wheel,
            keys,
            order,
            used: 0,
            rng,
        }
    }

    /// The next places in random order, at most an eighth of them, so that none comes twice.
    fn places(&mut self, count: usize) -> Vec<usize> {
        if self.used + count > self.order.len() {
            self.order.shuffle(&mut self.rng);
            self.used = 0;
        }
        let from = self.used;
        self.used += count;
        self.order[from..self.used].to_vec()
    }

    fn deadlines(&mut self, count: usize) -> Vec<u64> {
        let now = self.wheel.tick();
        (0..count)
            .map(|_| now + self.rng.random_range(1..=HORIZON))
            .collect()
    }

    /// Fills places whose timers have left.
    fn refill(&mut self, places: &[usize]) {
        for (&place, deadline) in places.iter().zip(self.deadlines(places.len())) {
            self.keys[place] = self.wheel.insert(deadline, place as u64);
        }
    }

    /// Each place's key and its deadline as `change` has it.
    fn moves(&self, places: &[usize], change: impl Fn(u64) -> u64) -> Vec<(TimerKey, u64)> {
        let moved = |&place: &usize| {
            let key = self.keys[place];
            let deadline = self.wheel.deadline(key).expect("every place has a timer");
            (key, change(deadline))
        };
        places.iter().map(moved).collect()
    }
}

fn insert(filled: &mut Filled, count: usize) -> Duration {
    let deadlines = filled.deadlines(count);
    let mut added = Vec::with_capacity(count);

    let began = Instant::now();
    for &deadline in &deadlines {
        added.push(filled.wheel.insert(deadline, 0));
    }
    let spent = began.elapsed();

    for key in added {
        assert!(filled.wheel.remove(key).is_some());
    }
    spent
}

fn remove(filled: &mut Filled, count: usize) -> Duration {
    let places = filled.places(count);
    let keys: Vec<TimerKey> = places.iter().map(|&place| filled.keys[place]).collect();

    let began = Instant::now();
    for &key in &keys {
        black_box(filled.wheel.remove(key));
    }
    let spent = began.elapsed();

    filled.refill(&places);
    spent
}

/// Moves timers to a later deadline, one to a thousand ticks on.
fn later(filled: &mut Filled, count: usize) -> Duration {
    let places = filled.places(count);
    let moves = filled.moves(&places, |deadline| deadline + 1 + deadline % 1_000);
    reschedule(filled, &moves)
}

/// Moves timers to half of their distance.
fn earlier(filled: &mut Filled, count: usize) -> Duration {
    let places = filled.places(count);
    let now = filled.wheel.tick();
    let moves = filled.moves(&places, |deadline| now + (deadline - now).div_ceil(2));
    let spent = reschedule(filled, &moves);

    for (key, _) in moves {
        assert!(filled.wheel.remove(key).is_some());
    }
    filled.refill(&places);
    spent
}

fn reschedule(filled: &mut Filled, moves: &[(TimerKey, u64)]) -> Duration {
    let began = Instant::now();
    for &(key, deadline) in moves {
        black_box(filled.wheel.reschedule(key, deadline));
    }
    began.elapsed()
}

/// Advances tick by tick until enough timers have fired; the last tick may fire more, whose share is
/// taken off.
fn fire(filled: &mut Filled, count: usize) -> Duration {
    let mut fired = Vec::with_capacity(2 * count);

    let began = Instant::now();
    while fired.len() < count {
        let tick = filled.wheel.tick() + 1;
        filled
            .wheel
            .advance(tick, |_, expired| fired.push(expired.value as usize));
    }
    let spent = began.elapsed();

    filled.refill(&fired);
    spent.mul_f64(count as f64 / fired.len() as f64)
}

/// Removes a timer and inserts its value again.
fn churn(filled: &mut Filled, count: usize) -> Duration {
    let places = filled.places(count);
    let deadlines = filled.deadlines(count);
    let keys: Vec<TimerKey> = places.iter().map(|&place| filled.keys[place]).collect();
    let mut again = Vec::with_capacity(count);

    let began = Instant::now();
    for (&key, &deadline) in keys.iter().zip(&deadlines) {
        if let Some(value) = filled.wheel.remove(key) {
            again.push(filled.wheel.insert(deadline, value));
        }
    }
    let spent = began.elapsed();

    assert_eq!(again.len(), count);
    for (place, key) in places.into_iter().zip(again) {
        filled.keys[place] = key;
    }
    spent
}

/// Inserts a timer and removes it at once.
fn start_stop(filled: &mut Filled, count: usize) -> Duration {
    let deadlines = filled.deadlines(count);
    let began = Instant::now();
    for &deadline in &deadlines {
        let key = filled.wheel.insert(deadline, 0);
        black_box(filled.wheel.remove(key));
    }
    began.elapsed()
}

/// Asks for the next deadline of a wheel that nothing has changed since.
fn next_deadline(filled: &mut Filled, count: usize) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        black_box(filled.wheel.next_deadline());
    }
    began.elapsed()
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--test");
    let sizes: &[usize] = if smoke {
        &[1_000]
    } else {
        &[10_000, 1_000_000, 10_000_000]
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    for &(name, batch) in OPERATIONS {
        let mut group = criterion.benchmark_group(name);
        for &size in sizes {
            // Made when the first sample asks for it, so that what is filtered out costs nothing.
            let mut filled = None;
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter_custom(|iterations| {
                    let filled = filled.get_or_insert_with(|| Filled::new(size));
                    let largest = (size / 8) as u64;
                    let mut left = iterations;
                    let mut spent = Duration::ZERO;
                    while left > 0 {
                        let count = left.min(largest);
                        spent += batch(filled, count as usize);
                        left -= count;
                    }
                    spent
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
