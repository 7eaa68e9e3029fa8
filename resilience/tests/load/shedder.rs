//! `Shedder` in virtual time, with processors that are as busy as the test says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_resilience::{Priority, Promise, Shed, Shedder, ShedderBuilder};
use wheelhouse_wheel::{Clock, ManualClock};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A shedder, its time, and how busy its processors are.
struct Bench {
    clock: ManualClock,
    usage: Arc<Mutex<Option<f64>>>,
    shedder: Shedder,
}

impl Bench {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(ShedderBuilder) -> ShedderBuilder) -> Self {
        let clock = ManualClock::new();
        let usage = Arc::new(Mutex::new(Some(0.0)));
        let source = usage.clone();
        let builder = Shedder::builder()
            .clock(clock.clone())
            .cpu(move |_now: Instant| *source.lock().unwrap());
        let shedder = settings(builder).build().unwrap();
        Bench {
            clock,
            usage,
            shedder,
        }
    }

    fn busy(&self, usage: f64) {
        *self.usage.lock().unwrap() = Some(usage);
    }

    fn ask(&self) -> Result<Promise, Shed> {
        self.shedder.try_acquire(Priority::Normal)
    }

    /// Requests that take `latency` and come one after the other, `each` apart.
    fn serve(&self, count: u32, latency: Duration, each: Duration) {
        for _ in 0..count {
            let promise = self.ask().expect("let in");
            self.clock.advance(latency);
            promise.success();
            self.clock.advance(each - latency);
        }
    }

    /// The first sample, which is the average, is all of it.
    fn overloaded(&self) {
        self.busy(1.0);
        self.clock.advance(250 * MILLI);
        assert!(self.shedder.sample());
        assert!(self.shedder.stats().is_hot);
    }
}

/// As many as are let in, one every `each`, until one is shed.
fn fill(bench: &Bench, each: Duration) -> Vec<Promise> {
    let mut promises = Vec::new();
    while let Ok(promise) = bench.ask() {
        promises.push(promise);
        bench.clock.advance(each);
        assert!(promises.len() < 10_000, "nothing is ever shed");
    }
    promises
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * right.abs().max(1.0)
}

/// go-zero kept itself hot: the end of an overload was pushed off by what it shed.
#[test]
fn r46_nothing_is_shed_later_than_a_second_after_the_overload() {
    for quiet in [0.0, 0.1, 0.5, 0.7] {
        let bench = Bench::new();
        bench.busy(1.0);
        let mut in_flight = Vec::new();
        let start = bench.clock.now();
        let (mut last_shed, mut last_overload) = (Duration::ZERO, Duration::ZERO);
        for step in 0..10_000 {
            if step == 1000 {
                bench.busy(quiet);
            }
            let now = bench.clock.now() - start;
            match bench.ask() {
                Ok(promise) => in_flight.push(promise),
                Err(_) => last_shed = now,
            }
            if bench.shedder.stats().cpu >= 900.0 {
                last_overload = now;
            }
            bench.clock.advance(MILLI);
        }
        assert!(last_overload >= SECOND, "{quiet}: it was never overloaded");
        assert!(
            last_shed > last_overload,
            "{quiet}: nothing was shed in the cool-off"
        );
        assert!(
            last_shed <= last_overload + SECOND,
            "{quiet}: {last_shed:?} {last_overload:?}"
        );
        assert!(in_flight.len() > 5000, "{quiet}: all is let in again");
        assert!(!bench.shedder.stats().is_hot);
    }
}

/// Without a cool-off it is hot from a sample that says so to the next that does not.
#[test]
fn the_cool_off_may_be_none() {
    let bench = Bench::with(|builder| builder.cool_off(Duration::ZERO));
    bench.overloaded();
    bench.clock.advance(249 * MILLI);
    assert!(bench.shedder.stats().is_hot);
    bench.busy(0.0);
    // Nearly two periods of nothing make 903, one more 857.
    let mut samples = 0;
    while bench.shedder.stats().is_hot {
        bench.clock.advance(250 * MILLI);
        assert!(bench.shedder.sample());
        samples += 1;
    }
    assert_eq!(samples, 2);
    assert!(bench.shedder.stats().cpu < 900.0);
}

#[test]
fn nothing_is_shed_below_the_threshold() {
    let bench = Bench::new();
    bench.busy(0.899);
    let promises: Vec<_> = (0..20_000)
        .map(|_| {
            bench.clock.advance(MILLI);
            bench.ask().expect("let in")
        })
        .collect();
    assert_eq!(bench.shedder.stats().in_flight, 20_000);
    drop(promises);
    let stats = bench.shedder.stats();
    assert_eq!(
        (stats.in_flight, stats.passed, stats.failed),
        (0, 0, 20_000)
    );
}

/// The formula, with figures that are easy to check: 200 a second × 50 ms = 10.
#[test]
fn sustainable_is_best_rate_times_best_latency_times_factor() {
    for (usage, max) in [
        (0.5, 10.0),
        (0.9, 10.0),
        (0.95, 5.0),
        (0.98, 2.0),
        (1.0, 1.0),
        (7.0, 1.0),
    ] {
        // The first sample, which is the average, comes when the window is full.
        let bench = Bench::with(|builder| builder.sample_period(2 * SECOND));
        bench.busy(usage);
        for round in 0..10 {
            // The best of it: others are slower, fewer, or have failed.
            let (count, latency) = match round {
                4 => (20, 80),
                7 => (10, 50),
                _ => (10, 70),
            };
            let failing: Vec<_> = (0..50).map(|_| bench.ask().expect("let in")).collect();
            let promises: Vec<_> = (0..count).map(|_| bench.ask().expect("let in")).collect();
            bench.clock.advance(MILLI);
            drop(failing);
            bench.clock.advance((latency - 1) * MILLI);
            promises.into_iter().for_each(Promise::success);
            bench.clock.advance((100 - latency) * MILLI);
        }
        bench.clock.advance(SECOND);
        assert!(bench.shedder.sample());
        let stats = bench.shedder.stats();
        assert!(
            close(stats.cpu, usage.min(1.0) * 1000.0),
            "{usage}: {stats:?}"
        );
        assert!(close(stats.max_in_flight, max), "{usage}: {stats:?}");
        if usage >= 0.9 {
            // Not more than that is no excess, so one more is let in; and the average lags behind
            // by about as many as come in 0.1 s.
            let held = fill(&bench, 50 * MILLI).len() as f64;
            assert!((max + 1.0..=max + 4.0).contains(&held), "{usage}: {held}");
        }
    }
}

/// Both the requests in flight and their average have to be above it.
#[test]
fn a_short_burst_is_let_in_and_a_long_one_is_not() {
    let bench = Bench::new();
    bench.serve(50, 50 * MILLI, 100 * MILLI);
    bench.busy(1.0);
    while !bench.shedder.stats().is_hot {
        bench.clock.advance(250 * MILLI);
        bench.shedder.sample();
    }
    // Nothing is in the window any more, so it is 10 and a little less; and the average in flight is
    // below 1, so that a hundred at one instant are let in.
    bench.clock.advance(20 * MILLI);
    let burst: Vec<_> = (0..100).map(|_| bench.ask().expect("a burst")).collect();
    bench.clock.advance(20 * MILLI);
    let shed = bench.ask().unwrap_err();
    assert_eq!((shed.priority, shed.in_flight), (Priority::Normal, 100));
    assert!(
        shed.cpu >= 900.0 && (9.0..10.0).contains(&shed.max_in_flight),
        "{shed:?}"
    );
    // None in flight: the average is still above, and yet so many are let in.
    drop(burst);
    assert!(bench.shedder.stats().average_in_flight > 10.0);
    assert_eq!(fill(&bench, MILLI).len(), 10);
}

/// Of the best bucket the unfinished one is no part, and it leaves with the window.
#[test]
fn the_window_ends_and_its_last_bucket_is_ignored() {
    let bench = Bench::new();
    let max = || bench.shedder.stats().max_in_flight;
    // Nothing is known: as if one passed in each bucket, in a second.
    assert!(close(max(), 10.0));
    let promises: Vec<_> = (0..40).map(|_| bench.ask().unwrap()).collect();
    bench.clock.advance(50 * MILLI);
    promises.into_iter().for_each(Promise::success);
    assert!(close(max(), 10.0));
    bench.clock.advance(49 * MILLI);
    assert!(close(max(), 10.0));
    bench.clock.advance(MILLI);
    assert!(close(max(), 400.0 * 0.05));
    bench.clock.advance(4899 * MILLI);
    assert!(close(max(), 400.0 * 0.05));
    bench.clock.advance(MILLI);
    assert!(close(max(), 10.0));
    // One at least.
    bench.serve(1, MILLI, 100 * MILLI);
    assert!(close(max(), 1.0));
}

#[test]
fn usage_is_averaged_by_time() {
    let bench = Bench::new();
    let cpu = || bench.shedder.stats().cpu;
    bench.busy(0.4);
    bench.clock.advance(250 * MILLI);
    assert!(bench.shedder.sample());
    assert!(close(cpu(), 400.0));
    bench.busy(1.0);
    // Not due yet: neither the call nor the driver samples.
    bench.clock.advance(249 * MILLI);
    drop(bench.ask());
    assert!(!bench.shedder.sample());
    assert!(close(cpu(), 400.0));
    bench.clock.advance(MILLI);
    drop(bench.ask());
    assert!(close(cpu(), 1000.0 - 600.0 * 0.95));
    // Late by seven: as if it had been sampled each time.
    bench.clock.advance(2000 * MILLI);
    drop(bench.ask());
    assert!(close(cpu(), 1000.0 - 600.0 * 0.95_f64.powi(9)));
    // What is not a number, or not known, changes nothing.
    for usage in [Some(f64::NAN), Some(f64::INFINITY), None] {
        *bench.usage.lock().unwrap() = usage;
        bench.clock.advance(250 * MILLI);
        assert!(bench.shedder.sample());
        assert!(close(cpu(), 1000.0 - 600.0 * 0.95_f64.powi(9)));
    }
}

/// A source that has nothing to say any more does not keep it hot.
#[test]
fn unknown_usage_lets_everything_in() {
    let bench = Bench::new();
    bench.overloaded();
    let held = fill(&bench, MILLI);
    *bench.usage.lock().unwrap() = None;
    bench.clock.advance(SECOND);
    assert!(bench.ask().is_ok());
    assert!(!bench.shedder.stats().is_hot);
    drop(held);
}

#[test]
fn a_promise_is_consumed_once() {
    let bench = Bench::new();
    bench.ask().unwrap().success();
    bench.ask().unwrap().failure();
    drop(bench.ask().unwrap());
    let shedder = bench.shedder.clone();
    let unwound = thread::spawn(move || {
        let _promise = shedder.try_acquire(Priority::Normal).unwrap();
        panic!("a handler");
    });
    assert!(unwound.join().is_err());
    let stats = bench.shedder.stats();
    assert_eq!((stats.in_flight, stats.passed, stats.failed), (0, 1, 3));
}

/// With more asked than can be served, the lowest are shed as far as the others need the room, and
/// all of one priority are held to the same as without priorities.
#[test]
fn the_lowest_are_shed_first() {
    let admitted = |load: [u32; 4]| {
        // At threshold 0 it holds to what is sustainable, whatever the usage; that is 0 here.
        let bench = Bench::with(|builder| builder.threshold(0));
        let priorities = [
            Priority::Low,
            Priority::Normal,
            Priority::High,
            Priority::Critical,
        ];
        let mut asked = [0_u32; 4];
        let mut served = [0_u32; 4];
        let mut in_flight = std::collections::VecDeque::new();
        // Ten at once, 50 ms each: 200 a second.
        for millis in 0_u32..20_000 {
            while let Some((end, _)) = in_flight.front()
                && *end <= millis
            {
                let (_, promise): (u32, Promise) = in_flight.pop_front().unwrap();
                promise.success();
            }
            for priority in priorities {
                let load = load[priority as usize];
                // Evenly, `load` a second.
                let due = (millis + 1) * load / 1000 - millis * load / 1000;
                for _ in 0..due {
                    let promise = bench.shedder.try_acquire(priority);
                    if millis >= 10_000 {
                        asked[priority as usize] += 1;
                        served[priority as usize] += u32::from(promise.is_ok());
                    }
                    if let Ok(promise) = promise {
                        let begin = match in_flight.len() {
                            waiting @ 10.. => in_flight[waiting - 10].0,
                            _ => millis,
                        };
                        in_flight.push_back((begin + 50, promise));
                    }
                }
            }
            bench.clock.advance(MILLI);
        }
        let share = |index: usize| f64::from(served[index]) / f64::from(asked[index].max(1));
        (
            std::array::from_fn::<_, 4, _>(share),
            served.iter().sum::<u32>(),
        )
    };
    let (shares, all) = admitted([200, 100, 0, 0]);
    assert!(
        shares[1] > 0.9 && shares[0] > 0.3 && shares[0] < 0.7,
        "{shares:?}"
    );
    assert!(all > 1800, "{all}");
    let (shares, all) = admitted([100, 100, 300, 0]);
    assert!(
        shares[2] > 0.55 && shares[0] < 0.05 && shares[1] < 0.05,
        "{shares:?}"
    );
    assert!(all > 1800, "{all}");
    for only in 0..4 {
        let mut load = [0; 4];
        load[only] = 400;
        let (_, all) = admitted(load);
        assert!(all > 1900, "{only}: {all}");
    }
}

#[test]
fn arguments_out_of_range_are_refused() {
    let refused = |builder: ShedderBuilder| builder.build().unwrap_err().to_string();
    let new = || Shedder::builder();
    for (builder, message) in [
        (
            new().threshold(1000),
            "threshold is 1000; allowed are 0 to 999",
        ),
        (
            new().window(SECOND, 1),
            "buckets is 1; allowed are 2 to 1048576",
        ),
        (
            new().window(SECOND, 0),
            "buckets is 0; allowed are 2 to 1048576",
        ),
        (
            new().window(Duration::from_nanos(49), 50),
            "window is 50 buckets of 0ns; allowed are 1ns and more in each of 2 to 1048576 buckets",
        ),
        (
            new().sample_period(Duration::ZERO),
            "sample_period is 0ns; allowed are 1ns and more",
        ),
        (
            new().cpu_limit(0.0),
            "processors is 0; allowed are finite numbers above 0",
        ),
        (
            new().cpu(|_: Instant| None).cpu_limit(2.0),
            "cpu_limit is 2; allowed are numbers without a cpu source of one's own",
        ),
    ] {
        assert_eq!(refused(builder), message);
    }
    assert_eq!(
        refused(new().window(Duration::MAX, usize::MAX))
            .split(' ')
            .next(),
        Some("window")
    );
    new()
        .window(Duration::MAX, 2)
        .sample_period(Duration::MAX)
        .cool_off(Duration::MAX)
        .build()
        .unwrap();
    new()
        .window(Duration::from_nanos(2), 2)
        .threshold(0)
        .cpu_limit(0.5)
        .build()
        .unwrap();
}

/// R61 for the shedder.
#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let bench = Bench::new();
    bench.clock.advance(86_400 * SECOND);
    bench.overloaded();
    let held = fill(&bench, MILLI);
    let before = bench.shedder.stats();
    let now = bench.clock.now();
    bench.clock.set(now - 86_400 * SECOND);
    let early = bench.ask();
    bench.clock.set(now);
    assert!(early.is_err());
    let after = bench.shedder.stats();
    assert_eq!(before.cpu, after.cpu);
    assert_eq!(before.max_in_flight, after.max_in_flight);
    // One that began before the step and ends after it took no time at all.
    bench.clock.set(now - SECOND);
    held.into_iter().for_each(Promise::success);
    assert_eq!(bench.shedder.stats().in_flight, 0);
}

/// Whatever it was like before, and however long nobody came: the first request after a silence is let in,
/// and of a burst as many as the average is slow to see.
#[test]
fn after_a_silence_the_first_is_let_in_and_a_burst_begins_anew() {
    let priorities = [
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Critical,
    ];
    for silence in [
        MILLI,
        249 * MILLI,
        SECOND,
        5 * SECOND,
        3600 * SECOND,
        1_000_000 * SECOND,
    ] {
        for usage in [
            Some(0.0),
            Some(1.0),
            Some(f64::INFINITY),
            Some(-1.0),
            Some(f64::NAN),
            None,
        ] {
            for priority in priorities {
                let bench = Bench::new();
                bench.overloaded();
                let held = fill(&bench, MILLI);
                // Higher ones ask as well, and reserve what there is.
                for _ in 0..50 {
                    for other in priorities {
                        drop(bench.shedder.try_acquire(other));
                    }
                }
                drop(held);
                *bench.usage.lock().unwrap() = usage;
                bench.clock.advance(silence);
                let first = bench.shedder.try_acquire(priority);
                assert!(first.is_ok(), "{silence:?}, {usage:?}: {first:?}");
                let burst = (0..100).filter_map(|_| bench.shedder.try_acquire(priority).ok());
                let burst: Vec<_> = burst.collect();
                let stats = bench.shedder.stats();
                assert!(
                    stats.cpu.is_finite() && stats.max_in_flight >= 0.1,
                    "{stats:?}"
                );
                assert_eq!(stats.in_flight, 1 + burst.len() as u64);
            }
        }
    }
}

#[test]
fn every_request_is_accounted_for_under_threads() {
    const CALLS: u64 = 20_000;
    let shedder = Shedder::builder()
        .threshold(0)
        .sample_period(Duration::from_micros(100))
        .cpu(|_: Instant| Some(0.5))
        .build()
        .unwrap();
    let shed = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (shedder, shed) = (shedder.clone(), &shed);
            scope.spawn(move || {
                let mut held = Vec::new();
                for call in 0..CALLS {
                    match shedder.try_acquire(Priority::Normal) {
                        Ok(promise) if call % 3 == 0 => held.push(promise),
                        Ok(promise) if call % 3 == 1 => promise.success(),
                        Ok(promise) => promise.failure(),
                        Err(_) => {
                            shed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if held.len() > number * 10 {
                        held.clear();
                    }
                }
            });
        }
    });
    let stats = shedder.stats();
    assert_eq!(stats.in_flight, 0);
    assert_eq!(stats.shed_total(), shed.into_inner());
    assert_eq!(stats.passed + stats.failed + stats.shed_total(), 4 * CALLS);
}
