//! Half-open: probes, their leases, and what follows them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use wheelhouse_resilience::{
    Breaker, Cause, Closing, Consecutive, Decision, HalfOpenEnd, Permit, Reason, Settled, State,
    Timers, Verdict,
};
use wheelhouse_wheel::ManualClock;

use super::common::*;

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
