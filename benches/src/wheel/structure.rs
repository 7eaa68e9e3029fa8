//! Workloads on timer structures: one thread, `n` timers, `u64` payload, delays uniform in
//! 1..=60 000 ticks, everything at tick 0.
//!
//! The sequence of operations, with keys and deadlines in the subject's own types, is laid out
//! before the clock starts, so that the timed loop reads it in order and touches at random only
//! what the subject itself touches. Small sizes are repeated on fresh structures until a million
//! operations are timed. What is left afterwards is fired and compared with what must be left, tick
//! by tick.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::harness::{Load, Outcome, Sample, Wrong, expect};
use crate::peers::{Remove, Reschedule, TimerStructure};

/// The longest delay, in ticks.
const HORIZON: u64 = 60_000;

/// Operations timed in a round, at least.
const TIMED_OPERATIONS: usize = 1_000_000;

/// Inserts all timers into an empty structure.
pub(super) fn insert<S: TimerStructure>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let ticks = ticks(rng, n);
        let mut timers = S::new();
        let deadlines: Vec<_> = ticks.iter().map(|&tick| timers.deadline(tick)).collect();

        let began = Instant::now();
        for (value, &deadline) in (0..).zip(&deadlines) {
            black_box(timers.insert(deadline, value));
        }
        let spent = began.elapsed();

        expect_left(timers, (0..).zip(ticks).map(|(value, tick)| (tick, value)))?;
        Ok(spent)
    })
}

/// Moves every timer to a later deadline, in random order.
pub(super) fn later<S: Reschedule>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let (mut timers, ticks, keys) = filled::<S>(rng, n);
        let moved: Vec<u64> = ticks
            .iter()
            .map(|tick| tick + rng.random_range(1..=HORIZON))
            .collect();
        let mut moves: Vec<_> = keys
            .into_iter()
            .zip(moved.iter().map(|&tick| timers.deadline(tick)))
            .collect();
        moves.shuffle(rng);

        let mut found = 0;
        let began = Instant::now();
        for &(key, deadline) in &moves {
            found += usize::from(timers.reschedule(key, deadline));
        }
        let spent = began.elapsed();

        expect("timers found", found, n)?;
        expect_left(timers, (0..).zip(moved).map(|(value, tick)| (tick, value)))?;
        Ok(spent)
    })
}

/// Removes every timer, in random order.
pub(super) fn remove<S: Remove>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let (mut timers, _, mut keys) = filled::<S>(rng, n);
        keys.shuffle(rng);

        let mut sum = 0;
        let began = Instant::now();
        for &key in &keys {
            sum += timers.remove(key).unwrap_or(u64::MAX);
        }
        let spent = began.elapsed();

        expect("sum of the removed values", sum, sum_below(n))?;
        expect_left(timers, std::iter::empty())?;
        Ok(spent)
    })
}

/// Advances tick by tick until every timer has fired.
pub(super) fn fire<S: TimerStructure>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let (mut timers, ..) = filled::<S>(rng, n);
        timers.before_fire(HORIZON);

        let (mut count, mut sum) = (0, 0);
        let began = Instant::now();
        timers.fire(HORIZON, |_, value| {
            count += 1;
            sum += value;
        });
        let spent = began.elapsed();

        expect("timers fired", count, n)?;
        expect("sum of the fired values", sum, sum_below(n))?;
        expect("timers left", timers.pending(), 0)?;
        Ok(spent)
    })
}

/// Removes every timer in random order and at once inserts its value again; the pair is one
/// operation.
pub(super) fn churn<S: Remove>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let (mut timers, _, keys) = filled::<S>(rng, n);
        let again = ticks(rng, n);
        let mut pairs: Vec<_> = keys
            .into_iter()
            .zip(again.iter().map(|&tick| timers.deadline(tick)))
            .collect();
        pairs.shuffle(rng);

        let mut lost = 0;
        let began = Instant::now();
        for &(key, deadline) in &pairs {
            match timers.remove(key) {
                Some(value) => {
                    black_box(timers.insert(deadline, value));
                }
                None => lost += 1,
            }
        }
        let spent = began.elapsed();

        expect("timers not found", lost, 0)?;
        expect_left(timers, (0..).zip(again).map(|(value, tick)| (tick, value)))?;
        Ok(spent)
    })
}

/// Inserts one timer and removes it again while `n` others are pending; the pair is one operation.
pub(super) fn start_stop<S: Remove>(load: &Load) -> Outcome {
    ns_per_op::<S>(load, |rng, n| {
        let (mut timers, before, _) = filled::<S>(rng, n);
        let short_lived: Vec<_> = ticks(rng, n)
            .into_iter()
            .map(|tick| timers.deadline(tick))
            .collect();

        let mut sum = 0;
        let began = Instant::now();
        for (value, &deadline) in (n as u64..).zip(&short_lived) {
            let key = timers.insert(deadline, value);
            sum += timers.remove(key).unwrap_or(u64::MAX);
        }
        let spent = began.elapsed();

        expect("sum of the values", sum, sum_below(2 * n) - sum_below(n))?;
        expect_left(timers, (0..).zip(before).map(|(value, tick)| (tick, value)))?;
        Ok(spent)
    })
}

/// Heap bytes of the structure after all inserts, over the number of timers.
pub(super) fn bytes<S: TimerStructure>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(|| {
        Wrong("bytes are counted by versus-counted, which gives the means".to_owned())
    })?;
    S::within(|| {
        let ticks = ticks(&mut StdRng::seed_from_u64(load.seed), load.n);
        let empty = live_bytes();
        let mut timers = S::new();
        let made = live_bytes() - empty;
        let deadlines: Vec<_> = ticks.iter().map(|&tick| timers.deadline(tick)).collect();

        let before = live_bytes();
        for (value, &deadline) in (0..).zip(&deadlines) {
            timers.insert(deadline, value);
        }
        let grown = live_bytes() - before;

        expect_left(timers, (0..).zip(ticks).map(|(value, tick)| (tick, value)))?;
        let each = (made + grown) as f64 / load.n as f64;
        Ok(vec![Sample::median("bytes", "bytes", each)])
    })
}

/// Times `pass` on fresh structures often enough, and divides by the operations.
fn ns_per_op<S: TimerStructure>(
    load: &Load,
    mut pass: impl FnMut(&mut StdRng, usize) -> Result<Duration, Wrong>,
) -> Outcome {
    let passes = if load.smoke {
        1
    } else {
        TIMED_OPERATIONS.div_ceil(load.n)
    };
    let mut rng = StdRng::seed_from_u64(load.seed);
    let mut spent = Duration::ZERO;
    S::within(|| {
        for _ in 0..passes {
            spent += pass(&mut rng, load.n)?;
        }
        let each = spent.as_secs_f64() * 1e9 / (passes * load.n) as f64;
        Ok(vec![Sample::median("ns_per_op", "ns", each)])
    })
}

/// Deadlines of `n` timers: the timer with value v has the one at v.
fn ticks(rng: &mut StdRng, n: usize) -> Vec<u64> {
    (0..n).map(|_| rng.random_range(1..=HORIZON)).collect()
}

/// A structure with `n` timers, their deadlines and their keys.
fn filled<S: TimerStructure>(rng: &mut StdRng, n: usize) -> (S, Vec<u64>, Vec<S::Key>) {
    let ticks = ticks(rng, n);
    let mut timers = S::new();
    let keys = (0..)
        .zip(&ticks)
        .map(|(value, &tick)| {
            let deadline = timers.deadline(tick);
            timers.insert(deadline, value)
        })
        .collect();
    (timers, ticks, keys)
}

/// The sum of the values 0..n.
fn sum_below(n: usize) -> u64 {
    (n as u64 * (n as u64).saturating_sub(1)) / 2
}

/// Fires what is left and compares it with the (tick, value) pairs that must be.
fn expect_left<S: TimerStructure>(
    mut timers: S,
    wanted: impl Iterator<Item = (u64, u64)>,
) -> Result<(), Wrong> {
    let mut expected = Ledger::default();
    for (tick, value) in wanted {
        expected.add(tick, value);
    }
    expect("timers left", timers.pending(), expected.count)?;

    let last = expected.last_tick;
    timers.before_fire(last);
    let mut left = Ledger::default();
    timers.fire(last, |tick, value| left.add(tick, value));
    expect("timers fired of those left", left.count, expected.count)?;
    expect("sum of the values left", left.sum, expected.sum)?;
    expect("ticks of the timers left, hashed", left.hash, expected.hash)
}

/// What has fired, whatever the order.
#[derive(Default)]
struct Ledger {
    count: usize,
    sum: u64,
    hash: u64,
    last_tick: u64,
}

impl Ledger {
    fn add(&mut self, tick: u64, value: u64) {
        self.count += 1;
        self.sum += value;
        // Each pair is mixed before the sum, so that two timers that swap their ticks show.
        let mixed = (value << 20 ^ tick).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.hash = self.hash.wrapping_add(mixed ^ mixed >> 29);
        self.last_tick = self.last_tick.max(tick);
    }
}
