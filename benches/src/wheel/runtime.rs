//! Workloads on keyed timers in a running process, in real time.
//!
//! An operation counts as applied when a flush that began after it has returned: every rate includes
//! one flush at the end and none in between. What has fired and what is left are counted and summed
//! after the clock has stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Fold, Load, Outcome, Sample, Wrong, expect};
use crate::peers::{Caller, KeyedTimers, Left, Recorder};
use crate::proc;

/// Calling threads of the workloads that have several.
pub(super) const CALLERS: usize = 2;

/// How long after the last deadline a timer counts as lost.
const GRACE: Duration = Duration::from_secs(10);

/// Two threads set `n` fresh keys between them, delays uniform in 60–120 s.
pub(super) fn set2<T: KeyedTimers>(load: &Load) -> Outcome {
    let each = load.n / CALLERS;
    let mut rng = StdRng::seed_from_u64(load.seed);
    let delays: Arc<[Duration]> = (0..each * CALLERS)
        .map(|_| Duration::from_millis(rng.random_range(60_000..=120_000)))
        .collect();
    let recorder = Recorder::counting();
    let timers = T::start(recorder);

    let began = Instant::now();
    let callers = (0..CALLERS).map(|_| timers.caller()).collect();
    timers.drive(callers, each as u64, move |caller, place, number| {
        let key = place * each as u64 + number;
        caller.set(key, key, delays[key as usize]);
    });
    timers.flush();
    let spent = began.elapsed();

    let set = (each * CALLERS) as u64;
    expect_left(recorder, timers.stop(), set, sum(0..set))?;
    Ok(vec![mops(set, spent)])
}

/// One thread runs `n / 2` iterations of two sets, a move and a remove, as go-zero's own benchmark
/// does; the iteration is one operation.
pub(super) fn goshape<T: KeyedTimers>(load: &Load) -> Outcome {
    let iterations = load.n as u64 / 2;
    let second = Duration::from_secs(1);
    let recorder = Recorder::counting();
    let timers = T::start(recorder);

    let began = Instant::now();
    timers.drive(vec![timers.caller()], iterations, move |caller, _, i| {
        caller.set(i, i, second);
        caller.set(iterations + i, iterations + i, second);
        caller.move_to(i, Duration::from_secs(i + 1));
        caller.remove(i);
    });
    timers.flush();
    let spent = began.elapsed();

    let kept = iterations..2 * iterations;
    expect_left(recorder, timers.stop(), iterations, sum(kept))?;
    let each = spent.as_secs_f64() * 1e9 / iterations as f64;
    Ok(vec![Sample::median("ns_per_op", "ns", each)])
}

/// Two threads each move the timers of their half of `n / 10` keys round-robin to 60 s from now,
/// `20 n` moves in all.
pub(super) fn refresh<T: KeyedTimers>(load: &Load) -> Outcome {
    let each = (load.n / 10 / CALLERS) as u64;
    let rounds = 200;
    let minute = Duration::from_secs(60);
    // In a smoke run the timers would fire soon if the moves were not applied.
    let first = if load.smoke {
        Duration::from_millis(500)
    } else {
        minute
    };
    let recorder = Recorder::counting();
    let timers = T::start(recorder);
    let mut callers: Vec<_> = (0..CALLERS).map(|_| timers.caller()).collect();
    let first_due = Instant::now() + first;
    for (place, caller) in (0..).zip(&mut callers) {
        for key in place * each..(place + 1) * each {
            caller.set(key, key, first);
        }
        caller.publish();
    }
    timers.flush();

    let began = Instant::now();
    timers.drive(callers, each * rounds, move |caller, place, number| {
        caller.move_to(place * each + number % each, minute);
    });
    timers.flush();
    let spent = began.elapsed();

    if load.smoke {
        let past_due = first_due + Duration::from_millis(50);
        thread::sleep(past_due.saturating_duration_since(Instant::now()));
    }
    expect("timers fired", recorder.count(), 0)?;
    let keys = each * CALLERS as u64;
    expect_left(recorder, timers.stop(), keys, sum(0..keys))?;
    Ok(vec![mops(keys * rounds, spent)])
}

/// One thread sets `n` timers due uniformly 5–15 s after their calls; lateness is callback start
/// minus due.
pub(super) fn late<T: KeyedTimers>(load: &Load) -> Outcome {
    let delays = late_delays(load);
    let recorder = Recorder::lateness();
    let cpu_before = proc::cpu_time();
    let timers = T::start(recorder);
    let values = set_late(&timers, recorder, &delays);

    let set = load.n as u64;
    thread::sleep(delays.longest);
    let last_due = Instant::now();
    while recorder.count() < set && last_due.elapsed() < GRACE {
        thread::sleep(Duration::from_millis(20));
    }
    let cpu = proc::cpu_time() - cpu_before;

    let left = timers.stop();
    let fired = recorder.snapshot();
    let lost = set.saturating_sub(fired.count);
    if fired.count > set {
        return Err(Wrong(format!("{} of {set} timers fired", fired.count)));
    }
    if lost == 0 {
        expect("sum of the fired keys", fired.keys, sum(0..set))?;
        expect("sum of the fired values", fired.values, values)?;
        expect("timers left", left.count, 0)?;
    }
    if load.smoke {
        expect("timers lost", lost, 0)?;
        expect("timers early", fired.early, 0)?;
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let at = |quantile| micros(fired.lateness.value_at_quantile(quantile));
    Ok(vec![
        Sample::median("early", "timers", fired.early as f64).folded(Fold::Sum),
        Sample::median("lost", "timers", lost as f64).folded(Fold::Sum),
        Sample::median("p50_us", "us", at(0.5)),
        Sample::median("p99_us", "us", at(0.99)),
        Sample::median("max_us", "us", micros(fired.lateness.max())),
        Sample::median("cpu_s", "s", cpu.as_secs_f64()),
    ])
}

/// Heap bytes of everything that `late` has set before the first timer is due, over `n`.
pub(super) fn late_bytes<T: KeyedTimers>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(|| {
        Wrong("bytes are counted by versus-counted, which gives the means".to_owned())
    })?;
    let delays = late_delays(load);
    let recorder = Recorder::lateness();

    let before = live_bytes();
    let began = Instant::now();
    let timers = T::start(recorder);
    set_late(&timers, recorder, &delays);
    let grown = live_bytes() - before;

    // Some would have been freed already.
    if began.elapsed() >= delays.shortest {
        return Err(Wrong(format!(
            "{} timers took longer to set than the shortest delay, {:?}",
            load.n, delays.shortest
        )));
    }
    let left = timers.stop();
    expect("timers left", left.count, load.n as u64)?;
    let each = grown as f64 / load.n as f64;
    Ok(vec![Sample::median("bytes", "bytes", each)])
}

/// `n` timers an hour out, left alone for 10 s.
pub(super) fn idle<T: KeyedTimers>(load: &Load) -> Outcome {
    let (settle, watch) = if load.smoke {
        (Duration::from_millis(50), Duration::from_millis(200))
    } else {
        (Duration::from_secs(1), Duration::from_secs(10))
    };
    let recorder = Recorder::counting();
    let others = proc::threads();
    let timers = T::start(recorder);
    let set = load.n as u64;
    timers.drive(vec![timers.caller()], set, |caller, _, key| {
        caller.set(key, key, Duration::from_secs(3_600));
    });
    timers.flush();
    thread::sleep(settle);

    let switches_before = proc::voluntary_switches_since(&others);
    let cpu_before = proc::cpu_time();
    thread::sleep(watch);
    let cpu = proc::cpu_time() - cpu_before;
    let wakeups = proc::voluntary_switches_since(&others) - switches_before;

    expect("timers fired", recorder.count(), 0)?;
    expect_left(recorder, timers.stop(), set, sum(0..set))?;
    Ok(vec![
        Sample::median("wakeups", "switches", wakeups as f64).folded(Fold::Max),
        Sample::median("cpu_s", "s", cpu.as_secs_f64()),
    ])
}

/// The delays of `late`.
struct LateDelays {
    each: Arc<[Duration]>,
    /// No delay is shorter.
    shortest: Duration,
    /// No delay is longer.
    longest: Duration,
}

fn late_delays(load: &Load) -> LateDelays {
    let (shortest, longest) = if load.smoke {
        (300, 600)
    } else {
        (5_000, 15_000)
    };
    let mut rng = StdRng::seed_from_u64(load.seed);
    LateDelays {
        each: (0..load.n)
            .map(|_| Duration::from_micros(rng.random_range(shortest * 1_000..=longest * 1_000)))
            .collect(),
        shortest: Duration::from_millis(shortest),
        longest: Duration::from_millis(longest),
    }
}

/// Sets the timers of `late`, flushes, and gives the sum of their values.
fn set_late<T: KeyedTimers>(timers: &T, recorder: &'static Recorder, delays: &LateDelays) -> u64 {
    let values = Arc::new(AtomicU64::new(0));
    let (each, sum) = (Arc::clone(&delays.each), Arc::clone(&values));
    let count = each.len() as u64;
    timers.drive(vec![timers.caller()], count, move |caller, _, key| {
        let delay = each[key as usize];
        let due = Instant::now() + delay;
        let value = recorder.value_of(due);
        // One caller adds; `drive` has joined it before the sum is read.
        sum.fetch_add(value, Relaxed);
        caller.set_due(key, value, due, delay);
    });
    timers.flush();
    values.load(Relaxed)
}

fn mops(operations: u64, spent: Duration) -> Sample {
    let rate = operations as f64 / spent.as_secs_f64() / 1e6;
    Sample::median("mops", "M/s", rate)
}

fn sum(values: std::ops::Range<u64>) -> u64 {
    values.sum()
}

/// Every timer has fired or is left, once.
fn expect_left(recorder: &Recorder, left: Left, count: u64, values: u64) -> Result<(), Wrong> {
    let fired = recorder.snapshot();
    expect("timers fired or left", fired.count + left.count, count)?;
    expect("sum of their values", fired.values + left.sum, values)
}
