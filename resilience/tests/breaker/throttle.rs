//! Throttles through the breaker's face: that both ways to call decide alike, settings, figures.

use std::time::Duration;

use proptest::prelude::*;
use wheelhouse_resilience::{
    Breaker, Reason, Settled, State, ThrottleBuilder, ThrottleMode, Verdict,
};
use wheelhouse_wheel::ManualClock;

const MODES: [ThrottleMode; 4] = [
    ThrottleMode::Sre,
    ThrottleMode::GoZero2022,
    ThrottleMode::GoZero,
    ThrottleMode::Adaptive,
];

fn throttle(mode: ThrottleMode, clock: &ManualClock) -> ThrottleBuilder {
    Breaker::throttle().mode(mode).clock(clock.clone()).seed(7)
}

/// R44: the same trace through `call`, `call_async` and in two steps.
#[tokio::test]
async fn r44_all_ways_to_call_decide_alike() {
    for mode in MODES {
        let mut traces = Vec::new();
        for way in 0..3 {
            let clock = ManualClock::new();
            let breaker = throttle(mode, &clock)
                .window(Duration::from_secs(2), 40)
                .build()
                .unwrap();
            let mut trace = Vec::new();
            for call in 0..20_000_u64 {
                clock.advance(Duration::from_micros(700));
                // Dead for two seconds in the middle.
                let dead = (5000..8000).contains(&call);
                let result = if dead || call % 9 == 0 {
                    Err(())
                } else {
                    Ok(())
                };
                let ran = match way {
                    0 => breaker
                        .call(|| result)
                        .map_or_else(|e| e.rejected().is_none(), |()| true),
                    1 => {
                        let called = breaker.call_async(async { result }).await;
                        called.map_or_else(|error| error.rejected().is_none(), |()| true)
                    }
                    _ => breaker
                        .try_acquire()
                        .map(|permit| permit.settle(Verdict::of(&result)))
                        .is_ok(),
                };
                trace.push(ran);
            }
            assert!(trace.contains(&false), "{mode:?} never rejects");
            traces.push(trace);
        }
        assert_eq!(traces[0], traces[1], "{mode:?}");
        assert_eq!(traces[0], traces[2], "{mode:?}");
    }
}

#[test]
fn figures_agree_with_what_happened() {
    for mode in MODES {
        let clock = ManualClock::new();
        let breaker = throttle(mode, &clock).name("search").build().unwrap();
        assert_eq!(breaker.name(), "search");
        let (mut failed, mut rejected) = (0, 0);
        for _ in 0..500 {
            clock.advance(Duration::from_millis(1));
            match breaker.try_acquire() {
                Ok(permit) => {
                    permit.failure();
                    failed += 1;
                }
                Err(refused) => {
                    assert_eq!(refused.reason(), Reason::Throttled);
                    rejected += 1;
                }
            }
        }
        let stats = breaker.stats();
        assert_eq!(
            (stats.failures, stats.rejected),
            (failed, rejected),
            "{mode:?}"
        );
        assert!(rejected > failed, "{mode:?}");
        assert_eq!(breaker.state(), State::Closed);
        assert!(breaker.rejection_probability() > 0.8, "{mode:?}");

        breaker.reset();
        assert_eq!(breaker.rejection_probability(), 0.0);
        assert!(breaker.try_acquire().is_ok());
    }
}

#[test]
fn forced_states_go_before_the_rule() {
    for mode in MODES {
        let clock = ManualClock::new();
        let breaker = throttle(mode, &clock).build().unwrap();
        breaker.force_open();
        let refused = breaker.try_acquire().unwrap_err();
        assert_eq!(refused.reason(), Reason::ForcedOpen);
        breaker.force_closed();
        for _ in 0..1000 {
            breaker.try_acquire().unwrap().failure();
        }
        breaker.reset();
        let old = breaker.try_acquire().unwrap();
        breaker.disable();
        assert_eq!(old.settle(Verdict::Failure), Settled::Stale);
    }
}

/// Calls in flight when a throttle is forced open end without a verdict. Were they taken for calls
/// that hang, a silence after the next ones would give a healthy backend up.
#[test]
fn calls_in_flight_over_a_forced_state_do_not_hang() {
    let clock = ManualClock::new();
    let breaker = throttle(ThrottleMode::Adaptive, &clock).build().unwrap();
    let serve = |calls| {
        for _ in 0..calls {
            clock.advance(Duration::from_millis(1));
            breaker.try_acquire().unwrap().success();
        }
    };
    for forced in [Breaker::force_open, Breaker::disable, Breaker::metrics_only] {
        serve(1000);
        let held: Vec<_> = (0..100).map(|_| breaker.try_acquire().unwrap()).collect();
        forced(&breaker);
        for (call, permit) in held.into_iter().enumerate() {
            match call % 3 {
                0 => assert_eq!(permit.settle(Verdict::Success), Settled::Stale),
                1 => assert_eq!(permit.settle(Verdict::Failure), Settled::Stale),
                _ => drop(permit),
            }
        }
        breaker.reset();
        serve(1000);
        // A second without a call, but for a few that take as long.
        for _ in 0..8 {
            clock.advance(Duration::from_millis(250));
            let slow: Vec<_> = (0..2).map(|_| breaker.try_acquire().unwrap()).collect();
            assert_eq!(breaker.rejection_probability(), 0.0);
            drop(slow);
        }
        // Calls of before the reset are over as well.
        let held: Vec<_> = (0..100).map(|_| breaker.try_acquire().unwrap()).collect();
        breaker.reset();
        drop(held);
        clock.advance(Duration::from_secs(3));
        assert_eq!(breaker.rejection_probability(), 0.0);
    }
}

/// What the window says is what happened within its length, and nothing of before a reset.
#[test]
fn stats_say_what_is_in_the_window() {
    for mode in MODES {
        let clock = ManualClock::new();
        let breaker = throttle(mode, &clock).build().unwrap();
        let window = || {
            let window = breaker.stats().window;
            (window.requests, window.errors, window.slow)
        };
        assert_eq!(window(), (0, 0, 0), "{mode:?}");
        for call in 0..1000 {
            clock.advance(Duration::from_millis(1));
            let permit = breaker.try_acquire().unwrap();
            match call % 10 {
                0 => permit.failure(),
                1 if mode != ThrottleMode::Sre => permit.ignored(),
                _ => permit.success(),
            }
        }
        let right = match mode {
            ThrottleMode::Sre => (1000, 100, 0),
            _ => (900, 100, 0),
        };
        assert_eq!(window(), right, "{mode:?}");
        clock.advance(Duration::from_millis(8500));
        assert_eq!(window(), right, "{mode:?}");
        clock.advance(Duration::from_secs(2));
        assert_eq!(window(), (0, 0, 0), "{mode:?}");
        breaker.try_acquire().unwrap().success();
        assert_eq!(window(), (1, 0, 0), "{mode:?}");
        breaker.reset();
        assert_eq!(window(), (0, 0, 0), "{mode:?}");
    }
}

/// In mode `Sre` a request counts when it is made, whether or not it is let through.
#[test]
fn the_window_of_sre_has_all_requests() {
    let clock = ManualClock::new();
    let breaker = throttle(ThrottleMode::Sre, &clock).build().unwrap();
    let held = breaker.try_acquire().unwrap();
    for _ in 0..99 {
        let _ = breaker.try_acquire().map(|permit| permit.failure());
    }
    let stats = breaker.stats();
    assert!(stats.rejected > 50);
    assert_eq!((stats.window.requests, stats.window.errors), (100, 100));
    held.success();
    assert_eq!(breaker.stats().window.errors, 99);
}

/// Forced to do nothing but count, a throttle learns what it would reject.
#[test]
fn metrics_only_feeds_the_window() {
    for mode in MODES {
        let clock = ManualClock::new();
        let breaker = throttle(mode, &clock).build().unwrap();
        breaker.metrics_only();
        for _ in 0..200 {
            clock.advance(Duration::from_millis(1));
            breaker.try_acquire().unwrap().failure();
        }
        assert!(breaker.rejection_probability() > 0.9, "{mode:?}");
        for _ in 0..2000 {
            clock.advance(Duration::from_millis(1));
            breaker.try_acquire().unwrap().success();
        }
        assert_eq!(breaker.rejection_probability(), 0.0, "{mode:?}");
        let stats = breaker.stats();
        let counts = (stats.successes, stats.failures, stats.rejected);
        assert_eq!(counts, (2000, 200, 0), "{mode:?}");
        assert_eq!(breaker.state(), State::MetricsOnly);
    }
}

/// R40: in mode `GoZero` a call goes through when none did for a second, and of all that ask at that
/// moment exactly one.
#[test]
fn r40_go_zero_lets_exactly_one_caller_through_after_a_second() {
    let clock = ManualClock::new();
    let breaker = throttle(ThrottleMode::GoZero, &clock).build().unwrap();
    for _ in 0..200 {
        clock.advance(Duration::from_millis(1));
        let _ = breaker.try_acquire().map(|permit| permit.failure());
    }
    assert!(breaker.rejection_probability() > 0.9);
    for round in 0..100 {
        // Not yet: the last one that went through may have been the last call.
        let early = breaker.try_acquire();
        assert!(!early.is_ok_and(|permit| permit.is_probe()), "{round}");
        clock.advance(Duration::from_nanos(1_000_000_001));
        let all_at_once = std::sync::Barrier::new(4);
        let forced: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        all_at_once.wait();
                        let calls = (0..50).filter_map(|_| breaker.try_acquire().ok());
                        calls.filter(|permit| permit.is_probe()).count()
                    })
                })
                .collect();
            let forced = threads.into_iter().map(|thread| thread.join().unwrap());
            forced.sum()
        });
        assert_eq!(forced, 1, "round {round}");
    }
}

/// The probe budget of a dead backend: one a second, and permits say that they are probes.
#[test]
fn dead_backend_gets_a_probe_a_second() {
    let clock = ManualClock::new();
    let breaker = throttle(ThrottleMode::Adaptive, &clock).build().unwrap();
    for _ in 0..30 {
        breaker.try_acquire().unwrap().failure();
    }
    let mut probes = 0;
    for _ in 0..60_000 {
        clock.advance(Duration::from_millis(1));
        if let Ok(permit) = breaker.try_acquire() {
            assert!(permit.is_probe());
            permit.failure();
            probes += 1;
        }
    }
    // One every second, and those of the first second: after 0.1, 0.3 and 0.7 s.
    assert!((60..=63).contains(&probes), "{probes}");

    // A probe that is never settled does not hold up the next.
    let hung: Vec<_> = (0..3)
        .map(|_| {
            clock.advance(Duration::from_secs(1));
            breaker.try_acquire().unwrap()
        })
        .collect();
    assert_eq!(hung.len(), 3);
}

#[test]
fn refuses_what_makes_no_sense() {
    let refused = |builder: ThrottleBuilder| builder.build().unwrap_err().to_string();
    let builder = Breaker::throttle;
    assert_eq!(
        refused(builder().k(1.0)),
        "k is 1; allowed are 1.1 to 1000000"
    );
    assert_eq!(
        refused(builder().k(f64::NAN)),
        "k is NaN; allowed are 1.1 to 1000000"
    );
    assert_eq!(
        refused(builder().window(Duration::from_secs(1), 0)),
        "buckets is 0; allowed are 1 to 4096"
    );
    assert_eq!(
        refused(builder().window(Duration::from_nanos(39), 40)),
        "window is 39ns; allowed are 1ns and more for each bucket"
    );
    assert_eq!(
        refused(builder().probe_interval(Duration::ZERO)),
        "probe_interval is 0ns; allowed are 1ms and more"
    );
    for mode in MODES {
        let widest = builder()
            .mode(mode)
            .window(Duration::MAX, 1)
            .probe_interval(Duration::MAX);
        assert!(widest.build().unwrap().try_acquire().is_ok());
    }
}

/// R17 for throttles: options by name, with the units and ranges that the methods have.
#[test]
fn r17_options_are_set_by_name() {
    let set = |option, value| Breaker::throttle().set(option, value);
    for (option, value) in [
        ("mode", "adaptive"),
        ("mode", "sre"),
        ("mode", "go-zero"),
        ("mode", "go-zero-2022"),
        ("window", "10s"),
        ("buckets", "1"),
        ("k", "1.1"),
        ("protection", "0"),
        ("probe_interval", "10ms"),
    ] {
        let built = set(option, value).and_then(|builder| builder.build());
        assert!(built.is_ok(), "{option} = {value}");
    }
    for (option, value) in [
        ("mode", "Sre"),
        ("mode", ""),
        ("window", "10"),
        ("window", "-1s"),
        ("buckets", "40.0"),
        ("buckets", "-1"),
        ("k", "two"),
        ("protection", "-5"),
        ("probe_interval", "1"),
    ] {
        assert_eq!(set(option, value).unwrap_err().argument(), option);
    }
    assert_eq!(
        set("k", "NaN").unwrap().build().unwrap_err().to_string(),
        "k is NaN; allowed are 1.1 to 1000000"
    );
    let unknown = set("seed", "1").unwrap_err().to_string();
    assert!(unknown.starts_with("option is seed; allowed are mode, window"));

    // What is set is what the methods set.
    let clock = ManualClock::new();
    let by_name = throttle(ThrottleMode::Adaptive, &clock)
        .set("mode", "go-zero-2022")
        .and_then(|builder| builder.set("window", "2s"))
        .and_then(|builder| builder.set("buckets", "4"))
        .and_then(|builder| builder.set("k", "2"))
        .and_then(|builder| builder.set("protection", "9"))
        .unwrap();
    let by_method = throttle(ThrottleMode::GoZero2022, &clock)
        .window(Duration::from_secs(2), 4)
        .k(2.0)
        .protection(9);
    assert_eq!(format!("{by_name:?}"), format!("{by_method:?}"));
}

/// Threads that call at the same time: everything is counted once, and of the probes of a dead
/// backend there are no more than were due.
#[test]
fn stress_counts_each_call_once() {
    const CALLS: u64 = 50_000;
    for mode in MODES {
        let breaker = Breaker::throttle().mode(mode).build().unwrap();
        let started = std::time::Instant::now();
        let ran: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let breaker = &breaker;
                    scope.spawn(move || {
                        let mut ran = 0;
                        for call in 0..CALLS {
                            if let Ok(permit) = breaker.try_acquire() {
                                ran += 1;
                                match (call + thread) % 10 {
                                    _ if call > CALLS / 2 => permit.failure(),
                                    0 => permit.failure(),
                                    1 => drop(permit),
                                    _ => permit.success(),
                                }
                            }
                        }
                        ran
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        let stats = breaker.stats();
        let ended = stats.successes + stats.failures + stats.cancelled + stats.stale;
        assert_eq!(ended, ran, "{mode:?}: {stats:?}");
        assert_eq!(ran + stats.rejected, 4 * CALLS, "{mode:?}: {stats:?}");
        if mode == ThrottleMode::Adaptive {
            let most = 4 + 2 * started.elapsed().as_secs();
            assert!(stats.rejected > 0 && breaker.rejection_probability() == 1.0);
            assert!(stats.probes <= most, "{} of {most}", stats.probes);
        }
    }
}

/// The ratio modes, as the documentation has them: over a list of what happened when.
struct Naive {
    mode: ThrottleMode,
    /// Nanoseconds, and what: a request, a success, a failure, a rejection.
    events: Vec<(u64, char)>,
    last_pass: Option<u64>,
}

const BUCKETS: u64 = 8;
const BUCKET: u64 = 125_000_000;

impl Naive {
    fn bucket(&self, now: u64, age: u64) -> impl Iterator<Item = char> + '_ {
        let bucket = (now / BUCKET).checked_sub(age);
        let is_in = move |at: u64| Some(at / BUCKET) == bucket;
        self.events
            .iter()
            .filter(move |event| is_in(event.0))
            .map(|event| event.1)
    }

    fn count(&self, now: u64, kinds: &str) -> f64 {
        (0..BUCKETS)
            .flat_map(|age| self.bucket(now, age))
            .filter(|kind| kinds.contains(*kind))
            .count() as f64
    }

    /// The probability of a rejection, and whether a pass is forced instead.
    fn decide(&self, now: u64) -> (f64, bool) {
        let accepts = self.count(now, "s");
        let (p, forced) = match self.mode {
            ThrottleMode::Sre => {
                let requests = self.count(now, "q");
                ((requests - 2.0 * accepts) / (requests + 1.0), false)
            }
            ThrottleMode::GoZero2022 => {
                let total = self.count(now, "sf");
                ((total - 5.0 - 1.5 * accepts) / (total + 1.0), false)
            }
            _ => {
                let (mut failing, mut working) = (0, 0);
                for age in (0..BUCKETS).rev() {
                    let has = |kind| self.bucket(now, age).any(|other| other == kind);
                    match (has('s'), has('f')) {
                        (true, true) => (failing, working) = (0, 0),
                        (true, false) => (failing, working) = (0, working + 1),
                        (false, true) => (failing, working) = (failing + 1, 0),
                        (false, false) => {}
                    }
                }
                let w = (1.5 - 0.4 * f64::from(failing) / BUCKETS as f64).max(1.1);
                let total = self.count(now, "sfr");
                let p = (total - 5.0 - w * accepts) / (total + 1.0);
                let forced = self
                    .last_pass
                    .is_some_and(|last| now - last > 1_000_000_000);
                let left = (BUCKETS as f64 - f64::from(working)) / BUCKETS as f64;
                (
                    if forced || p <= 0.0 { p } else { p * left },
                    p > 0.0 && forced,
                )
            }
        };
        (p.max(0.0), forced)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The ratio modes against the list: the same probability after each call, and the same decision
    /// where it is not a matter of chance.
    #[test]
    fn ratio_modes_agree_with_their_formulas(
        mode in 0..3_usize,
        calls in prop::collection::vec((0..40_u64, 0..10_u32), 1..400),
        error_rate in 0..10_u32,
    ) {
        let mode = MODES[mode];
        let clock = ManualClock::new();
        let breaker = throttle(mode, &clock)
            .window(Duration::from_nanos(BUCKETS * BUCKET), BUCKETS as usize)
            .build()
            .unwrap();
        let mut naive = Naive { mode, events: Vec::new(), last_pass: None };
        let mut now = 0;
        for (pause, draw) in calls {
            // Mostly short, at times longer than the window.
            let pause = if pause == 39 { 1500 } else { pause } * 1_000_000;
            now += pause;
            clock.advance(Duration::from_nanos(pause));
            let (expected, forced) = naive.decide(now);
            let told = breaker.rejection_probability();
            if !forced {
                prop_assert!((told - expected).abs() < 1e-9, "{told}, not {expected}");
            }
            naive.events.push((now, 'q'));
            match breaker.try_acquire() {
                Ok(permit) => {
                    prop_assert!(expected < 1.0 || forced);
                    prop_assert_eq!(permit.is_probe(), forced);
                    if expected > 0.0 {
                        naive.last_pass = Some(now);
                    }
                    let failed = draw < error_rate;
                    if failed { permit.failure() } else { permit.success() }
                    naive.events.push((now, if failed { 'f' } else { 's' }));
                }
                Err(_) => {
                    prop_assert!(expected > 0.0 && !forced);
                    naive.events.push((now, 'r'));
                }
            }
        }
    }
}
