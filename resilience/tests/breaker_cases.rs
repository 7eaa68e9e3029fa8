//! Faults that breakers elsewhere had, by the ids of their cases.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use wheelhouse_resilience::{
    Breaker, BreakerBuilder, CallError, Cause, Closing, CoarseClock, Consecutive, Cusum, Decision,
    ErrorRate, HalfOpenEnd, Permit, Reason, Settled, SlowRate, State, Timers, Transition, Verdict,
};
use wheelhouse_wheel::{Clock, ManualClock};

const SECOND: Duration = Duration::from_secs(1);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Opens for a second, by the policy that is to be set.
fn for_a_second(clock: &ManualClock) -> BreakerBuilder {
    Breaker::consecutive()
        .clock(clock.clone())
        .cool_down(SECOND)
}

/// Opens at the first failure, for a second.
fn touchy(clock: &ManualClock) -> BreakerBuilder {
    for_a_second(clock).trip_on(Consecutive::failures(1))
}

/// A breaker that has just become half-open.
fn half_open(builder: BreakerBuilder, clock: &ManualClock) -> Breaker {
    let breaker = builder.build().unwrap();
    breaker.try_acquire().unwrap().failure();
    assert_eq!(breaker.state(), State::Open);
    clock.advance(SECOND);
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker
}

fn reason(breaker: &Breaker) -> Reason {
    breaker.try_acquire().unwrap_err().reason()
}

#[test]
fn r01_rate_is_that_of_the_window_and_not_of_the_last_second() {
    let clock = ManualClock::new();
    let breaker = Breaker::error_rate().clock(clock.clone()).build().unwrap();
    for _ in 0..10 {
        for _ in 0..910 {
            breaker.try_acquire().unwrap().success();
            clock.advance(SECOND / 910);
        }
    }
    for _ in 0..900 {
        breaker.try_acquire().unwrap().failure();
        clock.advance(SECOND / 900);
    }
    let window = breaker.stats().window;
    assert!((0.09..0.105).contains(&window.error_rate()), "{window:?}");
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn r02_more_calls_than_probes_are_rejected_as_such() {
    let clock = ManualClock::new();
    for probes in [1, 3, 8] {
        let builder = touchy(&clock)
            .max_probes(probes)
            .closing(Closing::successes(probes));
        let breaker = half_open(builder, &clock);
        let held: Vec<Permit<'_>> = (0..probes)
            .map(|_| breaker.try_acquire().unwrap())
            .collect();
        assert!(held.iter().all(Permit::is_probe));
        assert_eq!(reason(&breaker), Reason::HalfOpenFull);
        held.into_iter().for_each(Permit::success);
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn r03_hooks_may_use_the_breaker_and_see_events_in_order() {
    let clock = ManualClock::new();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::<Transition>::new()));
    let own: Arc<std::sync::OnceLock<Breaker>> = Arc::default();
    let (seen_by_hook, breaker_of_hook) = (seen.clone(), own.clone());
    let breaker = touchy(&clock)
        .name("mine")
        .on_transition(move |transition| {
            seen_by_hook.lock().push(transition.clone());
            let breaker = breaker_of_hook.get().unwrap();
            let _ = (breaker.state(), breaker.stats());
            let _ = breaker.call(|| Ok::<_, ()>(()));
            if transition.to == State::Open {
                breaker.force_open();
            }
        })
        .on_transition(|_| panic!("a hook's own fault"))
        .build()
        .unwrap();
    own.set(breaker.clone()).unwrap();
    let events = breaker.subscribe();

    breaker.try_acquire().unwrap().failure();
    breaker.reset();
    let states = [State::Open, State::ForcedOpen, State::Closed];
    assert_eq!(
        seen.lock().iter().map(|seen| seen.to).collect::<Vec<_>>(),
        states
    );
    let mut from = State::Closed;
    for (index, to) in states.into_iter().enumerate() {
        let event = events.try_next().unwrap();
        assert_eq!((event.from, event.to), (from, to));
        assert_eq!(event.sequence, index as u64 + 1);
        assert_eq!(&*event.name, "mine");
        from = to;
    }
    assert!(events.try_next().is_none());
    assert_eq!(breaker.stats().hook_panics, 3);
}

#[test]
fn r05_first_failed_probe_opens_unless_all_are_to_run() {
    let clock = ManualClock::new();
    let builder = touchy(&clock).max_probes(3);
    let breaker = half_open(builder.clone().closing(Closing::successes(3)), &clock);
    breaker.try_acquire().unwrap().failure();
    assert_eq!(breaker.state(), State::Open);

    for (failures, end) in [(1, State::Closed), (2, State::Open)] {
        let breaker = half_open(builder.clone().closing(Closing::rate(3, 0.5)), &clock);
        for probe in 0..3 {
            assert_eq!(breaker.state(), State::HalfOpen);
            let permit = breaker.try_acquire().unwrap();
            if probe < failures {
                permit.failure()
            } else {
                permit.success()
            };
        }
        assert_eq!(breaker.state(), end);
    }
}

#[test]
fn r06_closing_rules_plug_in() {
    let clock = ManualClock::new();
    let four_of_five = |probes: &wheelhouse_resilience::Probes| match probes.settled() {
        5 if probes.successes >= 4 => Decision::Close,
        5 => Decision::Open,
        _ => Decision::Wait,
    };
    for rule in [Closing::of(4, 5), Closing::by(four_of_five)] {
        let breaker = half_open(touchy(&clock).closing(rule.clone()), &clock);
        for success in [true, true, false, true] {
            let permit = breaker.try_acquire().unwrap();
            if success {
                permit.success()
            } else {
                permit.failure()
            };
            assert_eq!(breaker.state(), State::HalfOpen);
        }
        breaker.try_acquire().unwrap().success();
        assert_eq!(breaker.state(), State::Closed);

        let breaker = half_open(touchy(&clock).closing(rule), &clock);
        for success in [true, false, true, false, false] {
            if let Ok(permit) = breaker.try_acquire() {
                if success {
                    permit.success()
                } else {
                    permit.failure()
                };
            }
        }
        assert_eq!(breaker.state(), State::Open);
    }
    // One that panics is taken for "open".
    let breaker = half_open(
        touchy(&clock).closing(Closing::by(|_| panic!("oh"))),
        &clock,
    );
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn r07_calls_to_a_backend_that_hangs_are_bounded() {
    let breaker = Breaker::builder()
        .trip_on(Consecutive::failures(5))
        .max_in_flight(20)
        .build()
        .unwrap();
    let held: Vec<_> = (0..1000).map(|_| breaker.try_acquire()).collect();
    assert_eq!(held.iter().filter(|call| call.is_ok()).count(), 20);
    let rejected = held.iter().find_map(|call| call.as_ref().err()).unwrap();
    assert_eq!(rejected.reason(), Reason::InFlightCap);
    assert_eq!(breaker.stats().in_flight, Some(20));

    held.into_iter().flatten().take(6).for_each(Permit::failure);
    assert_eq!(breaker.stats().in_flight, Some(0));
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn r07_calls_of_many_threads_are_bounded() {
    let breaker = Breaker::builder().max_in_flight(4).build().unwrap();
    let (inside, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
    let barrier = Barrier::new(16);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let first = breaker.try_acquire();
                barrier.wait();
                admitted.fetch_add(u64::from(first.is_ok()), Ordering::Relaxed);
                drop(first);
                barrier.wait();
                for _ in 0..2000 {
                    if let Ok(permit) = breaker.try_acquire() {
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        assert!(others < 4);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        permit.success();
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 4);
    assert_eq!(breaker.stats().in_flight, Some(0));
}

#[test]
fn r09_calls_that_their_callers_gave_up_are_no_failures() {
    let breaker = Breaker::consecutive().build().unwrap();
    for _ in 0..100 {
        drop(breaker.try_acquire().unwrap());
    }
    assert_eq!(breaker.state(), State::Closed);
    let stats = breaker.stats();
    assert_eq!(
        (stats.cancelled, stats.ignored, stats.failures),
        (100, 0, 0)
    );

    let strict = Breaker::consecutive()
        .cancelled_as(Verdict::Failure)
        .build()
        .unwrap();
    for _ in 0..6 {
        drop(strict.try_acquire_owned().unwrap());
    }
    assert_eq!(strict.state(), State::Open);
}

#[tokio::test]
async fn r09_futures_that_are_dropped_are_cancelled() {
    let breaker = Breaker::builder().build().unwrap();
    for _ in 0..100 {
        let call = breaker.call_async(std::future::pending::<Result<(), ()>>());
        let _ = tokio::time::timeout(Duration::ZERO, call).await;
    }
    assert_eq!(breaker.stats().cancelled, 100);
}

#[test]
fn a_panic_is_a_failure_and_goes_on() {
    let breaker = Breaker::consecutive().build().unwrap();
    for _ in 0..6 {
        let call = || breaker.call(|| -> Result<(), ()> { panic!("in the call") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    }
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(breaker.stats().failures, 6);
}

#[test]
fn r12_no_snapshot_has_more_errors_than_requests() {
    for rate in [
        ErrorRate::above(1.0).minimum(1),
        ErrorRate::above(1.0).last(100).minimum(1),
    ] {
        let breaker = Breaker::builder().trip_on(rate).build().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let window = breaker.stats().window;
                    assert!(window.errors <= window.requests, "{window:?}");
                }
            });
            let writers: Vec<_> = (0..1000)
                .map(|writer| {
                    let breaker = &breaker;
                    scope.spawn(move || {
                        for call in 0..20 {
                            let permit = breaker.try_acquire().unwrap();
                            if (writer + call) % 3 == 0 {
                                permit.success()
                            } else {
                                permit.failure()
                            };
                        }
                    })
                })
                .collect();
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(breaker.stats().transitions, 0);
        assert_eq!(breaker.stats().successes + breaker.stats().failures, 20_000);
    }
}

#[test]
fn r17_durations_have_units() {
    for option in ["cool_down", "probe_interval", "ramp", "lease", "slow_after"] {
        for text in ["10s", "10ms", "1m 30s"] {
            assert!(Breaker::builder().set(option, text).is_ok());
        }
        for text in ["10", "", "s", "-10s", "10 parsecs", "1e3"] {
            let refused = Breaker::builder().set(option, text).unwrap_err();
            assert_eq!(refused.argument(), option);
            assert!(refused.to_string().contains("10s or 200ms"), "{refused}");
        }
    }
    assert!(Breaker::builder().set("max_probes", "10s").is_err());
    assert_eq!(
        Breaker::builder()
            .set("coolness", "1")
            .unwrap_err()
            .argument(),
        "option"
    );
}

#[test]
fn r18_rejections_are_not_in_the_rate() {
    let clock = ManualClock::new();
    let builder = Breaker::error_rate()
        .clock(clock.clone())
        .trip_on(ErrorRate::above(0.5).minimum(1))
        .closing(Closing::successes(1))
        .cool_down(SECOND);
    let breaker = half_open(builder, &clock);
    breaker.force_open();
    for _ in 0..1000 {
        assert_eq!(reason(&breaker), Reason::ForcedOpen);
    }
    breaker.reset();
    for call in 0..20 {
        let permit = breaker.try_acquire().unwrap();
        if call == 7 {
            permit.failure()
        } else {
            permit.success()
        };
    }
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.stats().window.error_rate(), 0.05);
    assert_eq!(breaker.stats().rejected, 1000);
}

#[test]
fn r18_rejections_while_open_are_not_in_the_rate() {
    let clock = ManualClock::new();
    let breaker = for_a_second(&clock)
        .trip_on(ErrorRate::above(0.5).minimum(2))
        .build()
        .unwrap();
    breaker.try_acquire().unwrap().failure();
    breaker.try_acquire().unwrap().failure();
    for _ in 0..1000 {
        assert_eq!(reason(&breaker), Reason::Open);
    }
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.stats().window.requests, 0);
}

#[test]
fn r20_an_old_failure_does_not_end_the_probe() {
    let clock = ManualClock::new();
    let builder = touchy(&clock);
    let breaker = builder.build().unwrap();
    let old = breaker.try_acquire().unwrap();
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    let probe = breaker.try_acquire().unwrap();
    assert_eq!(old.settle(Verdict::Failure), Settled::Stale);
    assert_eq!(breaker.state(), State::HalfOpen);
    assert_eq!(probe.settle(Verdict::Success), Settled::Counted);
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.stats().stale, 1);
}

/// A probe of an earlier half-open time has a number of its own.
#[test]
fn r20_an_old_probe_does_not_end_a_new_one() {
    let clock = ManualClock::new();
    let builder = touchy(&clock).max_probes(2).closing(Closing::successes(2));
    let breaker = half_open(builder, &clock);
    let old = breaker.try_acquire().unwrap();
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    let new = breaker.try_acquire().unwrap();
    assert_eq!(old.settle(Verdict::Failure), Settled::Stale);
    assert_eq!(breaker.state(), State::HalfOpen);
    new.success();
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn r22_a_probe_that_did_not_run_gives_its_turn_back() {
    let clock = ManualClock::new();
    let breaker = half_open(touchy(&clock).probe_interval(SECOND), &clock);
    drop(breaker.try_acquire().unwrap());
    breaker.try_acquire().unwrap().ignored();
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn r23_a_single_slow_client_finds_out_that_all_is_well() {
    for heal in [20_000, 20_300, 20_999, 25_500, 61_400] {
        let clock = ManualClock::new();
        let breaker = Breaker::builder()
            .clock(clock.clone())
            .seed(heal)
            .build()
            .unwrap();
        let mut closed = None;
        for second in 0..120 {
            let now = second * 1000;
            if let Ok(permit) = breaker.try_acquire() {
                if now >= heal {
                    permit.success()
                } else {
                    permit.failure()
                };
            }
            if now >= heal && breaker.state() == State::Closed && closed.is_none() {
                closed = Some(now);
            }
            clock.advance(SECOND);
        }
        let closed = closed.expect("it closes");
        assert!(
            closed <= heal + 1100 + 1000,
            "healed at {heal}, closed at {closed}"
        );
    }
}

#[test]
fn r24_r35_ignored_probes_free_their_places_and_decide_nothing() {
    let clock = ManualClock::new();
    for probes in [1, 2] {
        let builder = touchy(&clock)
            .max_probes(probes)
            .closing(Closing::successes(2))
            .probe_interval(Duration::ZERO);
        let breaker = half_open(builder, &clock);
        let held: Vec<_> = (0..probes)
            .map(|_| breaker.try_acquire().unwrap())
            .collect();
        assert_eq!(reason(&breaker), Reason::HalfOpenFull);
        held.into_iter().for_each(Permit::ignored);
        assert_eq!(breaker.state(), State::HalfOpen);
        breaker.try_acquire().unwrap().success();
        breaker.try_acquire().unwrap().ignored();
        assert_eq!(breaker.state(), State::HalfOpen);
        breaker.try_acquire().unwrap().success();
        assert_eq!(breaker.state(), State::Closed);
    }
}

#[test]
fn r26_threads_at_the_flip_get_exactly_the_probes() {
    let clock = ManualClock::new();
    let builder = touchy(&clock).max_probes(3).closing(Closing::successes(3));
    let breaker = half_open(builder, &clock);
    let barrier = Barrier::new(1000);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..1000 {
            scope.spawn(|| {
                barrier.wait();
                let permit = breaker.try_acquire();
                admitted.fetch_add(u64::from(permit.is_ok()), Ordering::Relaxed);
                barrier.wait();
                drop(permit);
            });
        }
    });
    assert_eq!(admitted.into_inner(), 3);
    assert_eq!(breaker.stats().probes, 3);
    assert_eq!(breaker.stats().rejected, 997);
}

/// Calls and timers race for a transition that is always due, on a clock that stands still.
#[test]
fn r27_no_cool_down_and_no_time() {
    let clock = ManualClock::new();
    let timers = Timers::new(clock.clone()).unwrap();
    let breaker = touchy(&clock)
        .timers(&timers)
        .cool_down(Duration::ZERO)
        .lease(Duration::ZERO)
        .max_half_open(Duration::ZERO, HalfOpenEnd::Open)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if let Ok(permit) = breaker.try_acquire() {
                        permit.failure();
                    }
                    let _ = breaker.state();
                }
            });
        }
        scope.spawn(|| (0..50).for_each(|_| clock.advance(Duration::ZERO)));
    });
    let stats = breaker.stats();
    assert_eq!(stats.successes, 0);
    // Each call takes two steps, each timer one, and a step makes three transitions at most.
    assert!(
        (1..=3 * (2 * 8000 + 1000)).contains(&stats.transitions),
        "{stats:?}"
    );
}

#[test]
fn r28_forced_states_last() {
    let clock = ManualClock::new();
    let timers = Timers::new(clock.clone()).unwrap();
    let breaker = touchy(&clock).timers(&timers).build().unwrap();
    for (force, state) in [
        (Breaker::force_open as fn(&Breaker), State::ForcedOpen),
        (Breaker::force_closed, State::ForcedClosed),
        (Breaker::disable, State::Disabled),
        (Breaker::metrics_only, State::MetricsOnly),
    ] {
        breaker.reset();
        breaker.try_acquire().unwrap().failure();
        assert_eq!(breaker.state(), State::Open);
        force(&breaker);
        for _ in 0..20 {
            clock.advance(SECOND / 2);
            match breaker.try_acquire() {
                Ok(permit) => permit.failure(),
                Err(rejected) => assert_eq!(rejected.retry_after(), None),
            }
            assert_eq!(breaker.state(), state);
        }
    }
    assert!(breaker.stats().window.requests == 0);
}

#[test]
fn forced_states_count_what_they_say() {
    let breaker = Breaker::error_rate().build().unwrap();
    let fail = |times| (0..times).for_each(|_| breaker.try_acquire().unwrap().failure());
    breaker.disable();
    fail(300);
    assert_eq!(
        (breaker.stats().failures, breaker.stats().window.requests),
        (0, 0)
    );
    breaker.force_closed();
    fail(300);
    assert_eq!(
        (breaker.stats().failures, breaker.stats().window.requests),
        (300, 0)
    );
    breaker.metrics_only();
    fail(300);
    assert_eq!(
        (breaker.stats().failures, breaker.stats().window.requests),
        (600, 300)
    );
    assert_eq!(breaker.state(), State::MetricsOnly);
    breaker.reset();
    fail(200);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn r29_smallest_windows() {
    let clock = ManualClock::new();
    for rate in [
        ErrorRate::at_least(1.0).last(1).minimum(1),
        ErrorRate::at_least(1.0).last(1),
        ErrorRate::at_least(1.0)
            .within(Duration::from_nanos(1), 1)
            .minimum(1),
        ErrorRate::at_least(1.0).within(SECOND, 1).minimum(0),
    ] {
        let breaker = for_a_second(&clock).trip_on(rate).build().unwrap();
        breaker.try_acquire().unwrap().success();
        assert_eq!(breaker.state(), State::Closed);
        clock.advance(SECOND);
        breaker.try_acquire().unwrap().failure();
        assert_eq!(breaker.state(), State::Open, "{rate:?}");
    }
    for (rate, argument) in [
        (ErrorRate::above(0.5).last(0), "last"),
        (ErrorRate::above(0.5).within(SECOND, 0), "within"),
        (ErrorRate::above(0.5).within(Duration::ZERO, 1), "within"),
        (
            ErrorRate::above(0.5).within(Duration::from_nanos(3), 4),
            "within",
        ),
        (ErrorRate::above(f64::NAN), "error_rate"),
        (ErrorRate::at_least(0.0), "error_rate"),
    ] {
        let refused = Breaker::builder().trip_on(rate).build().unwrap_err();
        assert_eq!(refused.argument(), argument, "{refused}");
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let builder = Breaker::builder;
    for (refused, argument) in [
        (builder().growth(0.5), "growth"),
        (builder().growth(f64::INFINITY), "growth"),
        (builder().jitter(1.5), "jitter"),
        (builder().max_probes(0), "max_probes"),
        (builder().max_in_flight(0), "max_in_flight"),
        (builder().max_cool_down(ms(1)), "max_cool_down"),
        (builder().closing(Closing::successes(0)), "closing"),
        (builder().closing(Closing::of(6, 5)), "closing"),
        (builder().closing(Closing::rate(3, 1.5)), "closing"),
        (builder().trip_on(Consecutive::failures(0)), "failures"),
        (builder().trip_on(Consecutive::failures(65_536)), "failures"),
        (
            builder().trip_on(Consecutive::failures(1).interval(Duration::ZERO)),
            "interval",
        ),
        (builder().trip_on(Cusum::new().rates(0.5, 0.5)), "rates"),
        (
            builder().trip_on(Cusum::new().threshold(f64::NAN)),
            "threshold",
        ),
    ] {
        assert_eq!(refused.build().unwrap_err().argument(), argument);
    }
}

#[test]
fn r31_half_open_ends() {
    for (end, state) in [
        (HalfOpenEnd::Open, State::Open),
        (HalfOpenEnd::Closed, State::Closed),
    ] {
        let clock = ManualClock::new();
        let timers = Timers::new(clock.clone()).unwrap();
        let builder = touchy(&clock)
            .timers(&timers)
            .closing(Closing::successes(3))
            .max_half_open(10 * SECOND, end);
        let breaker = half_open(builder, &clock);
        breaker.try_acquire().unwrap().success();
        clock.advance(9 * SECOND);
        assert_eq!(breaker.state(), State::HalfOpen);
        clock.advance(SECOND + ms(1));
        assert_eq!(breaker.state(), state);
    }
}

/// The same without timers: the next call finds out.
#[test]
fn r31_half_open_ends_on_a_call() {
    let clock = ManualClock::new();
    let builder = touchy(&clock)
        .closing(Closing::successes(3))
        .max_half_open(10 * SECOND, HalfOpenEnd::Open);
    let breaker = half_open(builder, &clock);
    breaker.try_acquire().unwrap().success();
    clock.advance(10 * SECOND);
    assert_eq!(reason(&breaker), Reason::Open);
}

#[test]
fn a_probe_that_hangs_loses_its_lease() {
    let clock = ManualClock::new();
    for (expired, state) in [
        (Verdict::Failure, State::Open),
        (Verdict::Ignored, State::HalfOpen),
        (Verdict::Success, State::Closed),
    ] {
        let builder = touchy(&clock).lease(5 * SECOND).expired_as(expired);
        let breaker = half_open(builder, &clock);
        let hung = breaker.try_acquire().unwrap();
        clock.advance(5 * SECOND - ms(1));
        let rejected = breaker.try_acquire().unwrap_err();
        assert_eq!(rejected.reason(), Reason::HalfOpenFull);
        assert_eq!(rejected.retry_after(), Some(ms(1)));
        clock.advance(ms(1));
        drop(breaker.try_acquire());
        assert_eq!(breaker.state(), state);
        assert_eq!(hung.settle(Verdict::Success), Settled::Stale);
        assert_eq!(breaker.state(), state);
    }
}

#[test]
fn r36_an_old_success_changes_nothing() {
    let clock = ManualClock::new();
    let breaker = touchy(&clock).cool_down(5 * SECOND).build().unwrap();
    let events = breaker.subscribe();
    let old = breaker.try_acquire().unwrap();
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().failure();
    clock.advance(5 * SECOND);
    let probe = breaker.try_acquire().unwrap();
    clock.advance(SECOND);
    assert_eq!(old.settle(Verdict::Success), Settled::Stale);
    assert_eq!(breaker.state(), State::HalfOpen);
    drop(probe);
    let states: Vec<_> = std::iter::from_fn(|| events.try_next())
        .map(|event| event.to)
        .collect();
    assert_eq!(states, [State::Open, State::HalfOpen]);
}

#[test]
fn r37_timers_make_transitions_without_calls() {
    let clock = ManualClock::new();
    let timers = Timers::new(clock.clone()).unwrap();
    let breakers: Vec<_> = (0..20)
        .map(|_| touchy(&clock).timers(&timers).build().unwrap())
        .collect();
    let events: Vec<_> = breakers.iter().map(Breaker::subscribe).collect();
    for breaker in &breakers {
        breaker.try_acquire().unwrap().failure();
    }
    clock.advance(SECOND - ms(1));
    for (breaker, events) in breakers.iter().zip(&events) {
        assert_eq!(events.try_next().unwrap().to, State::Open);
        assert!(events.try_next().is_none());
        assert_eq!(breaker.state(), State::Open);
    }
    let due = clock.now() + ms(1);
    clock.advance(ms(2));
    for (breaker, events) in breakers.iter().zip(&events) {
        let event = events.try_next().unwrap();
        assert_eq!(
            (event.to, event.cause),
            (State::HalfOpen, Cause::CooledDown)
        );
        assert!(due <= event.at && event.at <= due + ms(1));
        assert_eq!(breaker.state(), State::HalfOpen);
    }

    // A probe's lease ends on time too, and the breaker that is dropped leaves no timer.
    let probe = breakers[0].try_acquire().unwrap();
    clock.advance(Duration::from_secs(60) + ms(1));
    assert_eq!(events[0].try_next().unwrap().cause, Cause::ProbesFailed);
    drop(probe);
    drop((breakers, events));
    clock.advance(ms(1));
    assert_eq!(format!("{timers:?}"), "Timers { pending: 0, .. }");
}

#[test]
fn r44_one_step_and_two_steps_decide_alike() {
    let builder = Breaker::builder().seed(7);
    let run = |two_steps: bool| {
        let clock = ManualClock::new();
        let breaker = builder.clone().clock(clock.clone()).build().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut log = Vec::new();
        for call in 0..20_000 {
            let sick = (call / 4000) % 2 == 1;
            let fails = random.f64() < if sick { 0.95 } else { 0.02 };
            let admitted = if two_steps {
                match breaker.try_acquire() {
                    Ok(permit) if fails => {
                        permit.failure();
                        true
                    }
                    Ok(permit) => {
                        permit.success();
                        true
                    }
                    Err(_) => false,
                }
            } else {
                let result = breaker.call(|| if fails { Err(()) } else { Ok(()) });
                !matches!(result, Err(CallError::Rejected(_)))
            };
            log.push((admitted, breaker.state()));
            clock.advance(ms(1));
        }
        log
    };
    let (one, two) = (run(false), run(true));
    assert!(one == two);
    assert!(one.iter().any(|(admitted, _)| !admitted));
}

#[test]
fn r55_the_minimum_is_not_the_window() {
    let clock = ManualClock::new();
    for rate in [
        ErrorRate::at_least(0.5).last(100).minimum(4),
        ErrorRate::at_least(0.5).within(10 * SECOND, 10).minimum(4),
    ] {
        let breaker = for_a_second(&clock).trip_on(rate).build().unwrap();
        for _ in 0..4 {
            assert_eq!(breaker.state(), State::Closed);
            breaker.try_acquire().unwrap().failure();
        }
        assert_eq!(breaker.state(), State::Open);
    }
}

#[test]
fn r60_a_failed_probe_opens() {
    let clock = ManualClock::new();
    let breaker = half_open(touchy(&clock), &clock);
    breaker.try_acquire().unwrap().failure();
    assert_eq!(breaker.state(), State::Open);
    assert_eq!(
        breaker.try_acquire().unwrap_err().retry_after(),
        Some(SECOND)
    );
}

/// A clock whose calendar leaps at every look, and that counts those.
#[derive(Clone)]
struct Leaping(ManualClock, Arc<AtomicU64>);

impl Clock for Leaping {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn system_now(&self) -> SystemTime {
        let days = self.1.fetch_add(1, Ordering::Relaxed) as u32;
        SystemTime::UNIX_EPOCH + Duration::from_secs(86_400) * days
    }
}

#[test]
fn r61_the_calendar_does_not_come_into_it() {
    let clock = ManualClock::new();
    let leaping = Leaping(clock.clone(), Arc::default());
    let timers = Timers::new(leaping.clone()).unwrap();
    let breaker = touchy(&clock)
        .clock(leaping.clone())
        .timers(&timers)
        .build()
        .unwrap();
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND - ms(1));
    assert_eq!(breaker.state(), State::Open);
    clock.advance(ms(1));
    assert_eq!(breaker.state(), State::HalfOpen);
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(
        leaping.1.load(Ordering::Relaxed),
        0,
        "the calendar was asked"
    );
}

/// The monotonic clock of a virtual machine that was moved steps back.
#[test]
fn r61_a_clock_that_steps_back_changes_nothing() {
    let clock = ManualClock::new();
    let start = clock.now();
    let breaker = touchy(&clock).build().unwrap();
    clock.advance(10 * SECOND);
    breaker.try_acquire().unwrap().failure();
    clock.set(start);
    assert_eq!(reason(&breaker), Reason::Open);
    clock.set(start - SECOND);
    assert_eq!(reason(&breaker), Reason::Open);
    clock.set(start + 11 * SECOND);
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn cool_downs_grow_and_begin_anew() {
    let clock = ManualClock::new();
    let breaker = touchy(&clock)
        .growth(2.0)
        .max_cool_down(5 * SECOND)
        .stable_after(30 * SECOND)
        .build()
        .unwrap();
    breaker.try_acquire().unwrap().failure();
    for seconds in [1, 2, 4, 5, 5] {
        let wait = breaker.try_acquire().unwrap_err().retry_after();
        assert_eq!(wait, Some(seconds * SECOND));
        clock.advance(seconds * SECOND);
        breaker.try_acquire().unwrap().failure();
    }
    clock.advance(5 * SECOND);
    breaker.try_acquire().unwrap().success();
    clock.advance(29 * SECOND);
    breaker.try_acquire().unwrap().failure();
    assert_eq!(
        breaker.try_acquire().unwrap_err().retry_after(),
        Some(5 * SECOND)
    );
    clock.advance(5 * SECOND);
    breaker.try_acquire().unwrap().success();
    clock.advance(30 * SECOND);
    breaker.try_acquire().unwrap().failure();
    assert_eq!(
        breaker.try_acquire().unwrap_err().retry_after(),
        Some(SECOND)
    );
}

#[test]
fn ramp_lets_a_growing_part_through() {
    let clock = ManualClock::new();
    let breaker = touchy(&clock).ramp(SECOND).seed(3).build().unwrap();
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
    let mut shares = Vec::new();
    for _ in 0..10 {
        let admitted = (0..1000).filter(|_| match breaker.try_acquire() {
            Ok(permit) => {
                permit.success();
                true
            }
            Err(rejected) => {
                assert_eq!(rejected.reason(), Reason::Ramp);
                false
            }
        });
        shares.push(admitted.count());
        clock.advance(SECOND / 10);
    }
    for (tenth, share) in shares.iter().enumerate() {
        let expected = 250 + 75 * tenth;
        assert!(share.abs_diff(expected) < 80, "{tenth}: {share}");
    }
    // Over, in the same generation: what began in it still counts.
    let old = breaker.try_acquire().unwrap();
    assert_eq!(old.settle(Verdict::Success), Settled::Counted);
    assert!((0..1000).all(|_| breaker.try_acquire().map(Permit::success).is_ok()));

    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().success();
    let events = breaker.subscribe();
    let permit = std::iter::repeat_with(|| breaker.try_acquire())
        .find_map(Result::ok)
        .unwrap();
    permit.failure();
    assert_eq!(events.try_next().unwrap().cause, Cause::FailedInRamp);
}

/// Nobody comes to end the ramp, but it is over.
#[test]
fn a_failure_after_the_ramp_is_none_in_it() {
    let clock = ManualClock::new();
    let breaker = for_a_second(&clock)
        .trip_on(Consecutive::failures(2))
        .ramp(SECOND)
        .build()
        .unwrap();
    breaker.try_acquire().unwrap().failure();
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().success();
    let mut tries = std::iter::repeat_with(|| breaker.try_acquire());
    let permit = tries.find_map(Result::ok).unwrap();
    clock.advance(SECOND);
    permit.failure();
    assert_eq!(breaker.state(), State::Closed);
    breaker.try_acquire().unwrap().failure();
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn slow_successes_are_no_errors() {
    let clock = ManualClock::new();
    let breaker = for_a_second(&clock)
        .slow_after(ms(100))
        .trip_on(ErrorRate::above(0.0).minimum(1))
        .trip_on(SlowRate::above(0.5).minimum(10))
        .build()
        .unwrap();
    let call = |took: u64| {
        let permit = breaker.try_acquire().unwrap();
        clock.advance(ms(took));
        permit.success();
    };
    for _ in 0..5 {
        call(99);
        call(100);
    }
    let stats = breaker.stats();
    assert_eq!((stats.window.errors, stats.window.slow), (0, 5));
    assert_eq!((stats.successes, stats.slow), (10, 5));
    assert_eq!(breaker.state(), State::Closed);
    call(100);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn any_of_several_policies_trips() {
    let builder = || {
        Breaker::builder()
            .trip_on(Consecutive::failures(3))
            .trip_on(Cusum::new())
            .trip_on(ErrorRate::above(0.5).last(10).minimum(10))
            .trip_on(ErrorRate::above(0.3).minimum(100))
            .trip_on(ErrorRate::above(0.9).within(SECOND, 10).minimum(50))
    };
    let outcomes = |pattern: &str, times: usize| {
        let breaker = builder().build().unwrap();
        let events = breaker.subscribe();
        let calls = pattern.chars().cycle().take(pattern.len() * times);
        for (number, outcome) in calls.enumerate() {
            let Ok(permit) = breaker.try_acquire() else {
                break;
            };
            if outcome == 'F' {
                permit.failure()
            } else {
                permit.success()
            };
            if let Some(event) = events.try_next() {
                return Some((number + 1, event.cause));
            }
        }
        None
    };
    assert_eq!(
        outcomes("F", 9),
        Some((3, Cause::Tripped("consecutive failures")))
    );
    // The tenth call, which goes well, makes up the minimum volume.
    assert_eq!(outcomes("SFF", 9), Some((10, Cause::Tripped("error rate"))));
    assert_eq!(
        outcomes("SSF", 99),
        Some((100, Cause::Tripped("error rate")))
    );
    assert_eq!(outcomes("SSSF", 99), None);
}

#[test]
fn intervals_clear_what_a_closed_breaker_has_counted() {
    let clock = ManualClock::new();
    let breaker = Breaker::consecutive()
        .clock(clock.clone())
        .trip_on(Consecutive::failures(3).interval(10 * SECOND))
        .build()
        .unwrap();
    for _ in 0..10 {
        breaker.try_acquire().unwrap().failure();
        breaker.try_acquire().unwrap().failure();
        clock.advance(10 * SECOND);
    }
    assert_eq!(breaker.state(), State::Closed);
    (0..3).for_each(|_| breaker.try_acquire().unwrap().failure());
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn coarse_clocks_stand_still_between_refreshes() {
    let time = ManualClock::new();
    let coarse = CoarseClock::over(time.clone());
    let breaker = touchy(&time).clock(coarse.clone()).build().unwrap();
    breaker.try_acquire().unwrap().failure();
    time.advance(5 * SECOND);
    assert_eq!(reason(&breaker), Reason::Open);
    coarse.refresh();
    assert_eq!(breaker.state(), State::HalfOpen);
    time.set(time.now() - 3 * SECOND);
    coarse.refresh();
    assert_eq!(breaker.state(), State::HalfOpen);
}
