//! Faults that breakers elsewhere had, by the ids of their cases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use wheelhouse_resilience::{
    Breaker, CallError, Cause, Closing, Consecutive, Cusum, ErrorRate, Permit, Reason, Settled,
    SlowRate, State, Timers, Transition, Verdict,
};
use wheelhouse_wheel::ManualClock;

use super::common::*;

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

/// However a call ends: by a verdict, a drop, a panic, in one step or two, borrowed or owned.
#[test]
fn disabled_counts_nothing_however_calls_end() {
    for cancelled_as in [Verdict::Ignored, Verdict::Failure, Verdict::Success] {
        let breaker = Breaker::error_rate()
            .max_in_flight(50)
            .cancelled_as(cancelled_as)
            .build()
            .unwrap();
        breaker.disable();
        let before = breaker.stats();
        for _ in 0..100 {
            drop(breaker.try_acquire().unwrap());
            drop(breaker.try_acquire_owned().unwrap());
            breaker.try_acquire().unwrap().ignored();
            breaker.try_acquire().unwrap().failure();
            let panicking =
                || breaker.call(|| -> Result<(), ()> { std::panic::resume_unwind(Box::new(())) });
            assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        }
        assert_eq!(breaker.stats(), before, "{cancelled_as:?}");

        // A call from before is over as well; that its verdict came late shows, that it gave none does not.
        breaker.reset();
        let (late, given_up) = (
            breaker.try_acquire().unwrap(),
            breaker.try_acquire().unwrap(),
        );
        breaker.disable();
        assert_eq!(late.settle(Verdict::Failure), Settled::Stale);
        drop(given_up);
        let stats = breaker.stats();
        assert_eq!((stats.cancelled, stats.in_flight), (0, Some(0)));
        assert_eq!(stats.stale, 1 + u64::from(cancelled_as != Verdict::Ignored));

        // And it counts again once it is no longer disabled.
        breaker.reset();
        drop(breaker.try_acquire().unwrap());
        assert_eq!(breaker.stats().cancelled, 1);
    }
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
        (ErrorRate::above(0.0), "error_rate"),
        (ErrorRate::above(1.0 + f64::EPSILON), "error_rate"),
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
fn slow_successes_are_no_errors() {
    let clock = ManualClock::new();
    let breaker = for_a_second(&clock)
        .slow_after(ms(100))
        .trip_on(ErrorRate::above(0.01).minimum(1))
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
