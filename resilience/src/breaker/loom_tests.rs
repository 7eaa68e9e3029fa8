//! Models of how threads meet at a breaker, on the shipped code.
//!
//! Each names the guarantee that it checks and a mutation that makes it fail.

use std::time::Duration;

use loom::thread;
use wheelhouse_wheel::{Clock, SystemClock};

use super::word::Mode;
use super::{
    Breaker, BreakerBuilder, Closing, Consecutive, ErrorRate, Reason, Settled, State, Verdict,
};
use crate::CoarseClock;

/// A coarse clock is plain std, so the model does not branch on it. It stands still.
fn breaker(trip: u32, setup: impl FnOnce(BreakerBuilder) -> BreakerBuilder) -> Breaker {
    let builder = Breaker::consecutive()
        .clock(CoarseClock::over(SystemClock))
        .trip_on(Consecutive::failures(trip))
        .cool_down(Duration::ZERO);
    setup(builder).build().expect("in range")
}

fn fail(breaker: &Breaker) {
    breaker
        .try_acquire()
        .expect("it lets calls through")
        .failure();
}

/// I1 of the gate: two calls that both reach the limit make one transition. Fails when `trip` does
/// not compare the word.
#[test]
fn one_trip_for_two_last_failures() {
    loom::model(|| {
        let breaker = breaker(1, |builder| builder.cool_down(Duration::from_secs(60)));
        let (one, other) = (breaker.clone(), breaker.clone());
        let first = breaker.try_acquire_owned().expect("closed");
        let second = one.try_acquire_owned().expect("closed");
        let thread = thread::spawn(move || first.settle(Verdict::Failure));
        let here = second.settle(Verdict::Failure);
        let there = thread.join().expect("it does not panic");
        assert!(here == Settled::Counted || there == Settled::Counted);
        assert_eq!(other.state(), State::Open);
        assert_eq!(other.stats().transitions, 1);
    });
}

/// A rejection shows the deadline of the opening that it is about, whatever others make of the breaker
/// between its two looks. Fails when `look` does not look again.
#[test]
fn a_rejection_shows_the_deadline_of_its_own_opening() {
    loom::model(|| {
        let minute = Duration::from_secs(60);
        let breaker = breaker(1, |builder| {
            builder.cool_down(minute).ramp(Duration::from_secs(1))
        });
        fail(&breaker);
        let others = breaker.clone();
        let other = thread::spawn(move || others.try_acquire().err());
        breaker.core().force(Mode::HalfOpen);
        breaker.core().force(Mode::Ramp);
        let rejected = other.join().expect("it does not panic");
        if let Some(rejected) = rejected
            && rejected.reason() == Reason::Open
        {
            assert_eq!(rejected.retry_after(), Some(minute));
        }
    });
}

/// A call that is rejected takes the place of none that fits. Fails when it is counted first.
#[test]
fn a_rejected_call_takes_no_place() {
    loom::model(|| {
        let breaker = breaker(1, |builder| builder.max_in_flight(1));
        let held = breaker.try_acquire_owned().expect("there is room");
        let others = breaker.clone();
        let other = thread::spawn(move || others.try_acquire_owned().ok());
        held.success();
        let here = breaker.try_acquire_owned().ok();
        let there = other.join().expect("it does not panic");
        assert!(here.is_some() != there.is_some());
    });
}

/// I3 of the gate: whoever comes at the flip, one gets the lease. Fails when the length of the list is
/// not looked at under the lock.
#[test]
fn as_many_probes_as_leases() {
    loom::model(|| {
        let breaker = breaker(1, |builder| builder);
        fail(&breaker);
        let others = breaker.clone();
        let other = thread::spawn(move || others.try_acquire_owned().ok());
        let here = breaker.try_acquire_owned().ok();
        let there = other.join().expect("it does not panic");
        assert!(here.is_some() != there.is_some());
        assert_eq!(breaker.stats().probes, 1);
    });
}

/// Two leases, three callers.
#[test]
fn three_callers_share_two_leases() {
    loom::model(|| {
        let breaker = breaker(1, |builder| {
            builder.max_probes(2).closing(Closing::successes(2))
        });
        fail(&breaker);
        let (one, two) = (breaker.clone(), breaker.clone());
        let one = thread::spawn(move || one.try_acquire_owned().ok());
        let two = thread::spawn(move || two.try_acquire_owned().ok());
        let permits = [
            breaker.try_acquire_owned().ok(),
            one.join().expect("it does not panic"),
            two.join().expect("it does not panic"),
        ];
        assert_eq!(permits.iter().flatten().count(), 2);
    });
}

/// A verdict that comes while the breaker changes is counted or stale, and says which. Fails when
/// `settle` does not compare the word, and when `stale` is not counted.
#[test]
fn verdict_during_a_transition_is_counted_or_stale() {
    loom::model(|| {
        let breaker = breaker(2, |builder| builder);
        let permit = breaker.try_acquire_owned().expect("closed");
        let others = breaker.clone();
        let other = thread::spawn(move || others.force_open());
        let settled = permit.settle(Verdict::Failure);
        other.join().expect("it does not panic");
        let stats = breaker.stats();
        let expected = match settled {
            Settled::Counted => (1, 0),
            Settled::Stale => (0, 1),
        };
        assert_eq!((stats.failures, stats.stale), expected);
        assert_eq!(stats.state, State::ForcedOpen);
    });
}

/// I2 of the gate: a lease that expires while its probe ends is counted by one of the two. Fails when
/// `settle_probe` judges without finding the lease.
#[test]
fn lease_that_expires_and_ends_is_counted_once() {
    loom::model(|| {
        let clock = CoarseClock::over(SystemClock);
        let breaker = breaker(1, |builder| {
            builder
                .clock(clock.clone())
                .cool_down(Duration::ZERO)
                .lease(Duration::from_nanos(1))
        });
        fail(&breaker);
        let probe = breaker.try_acquire_owned().expect("half-open");
        let others = breaker.clone();
        let other = thread::spawn(move || {
            let before = clock.now();
            while clock.now() == before {
                clock.refresh();
            }
            others.core().tick();
        });
        let settled = probe.settle(Verdict::Success);
        other.join().expect("it does not panic");
        let stats = breaker.stats();
        match settled {
            Settled::Counted => assert_eq!((stats.successes, stats.failures), (1, 1)),
            Settled::Stale => assert_eq!((stats.successes, stats.failures), (0, 2)),
        }
    });
}

/// Each transition is told once, in the order in which it was made, whoever delivers. Fails when a
/// delivery ends in another step than that in which it finds the outbox empty.
#[test]
fn each_transition_is_told_once_and_in_order() {
    loom::model(|| {
        // Of std, so that the model does not branch on it: it is the hook's own.
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let hears = told.clone();
        let breaker = breaker(1, |builder| {
            builder.on_transition(move |transition| {
                let mut told = hears.lock().expect("nobody panics");
                told.push(transition.sequence);
            })
        });
        let others = breaker.clone();
        let other = thread::spawn(move || others.force_open());
        breaker.core().force(Mode::Disabled);
        other.join().expect("it does not panic");
        assert_eq!(*told.lock().expect("nobody panics"), [1, 2]);
    });
}

/// I1 of the evidence: three failures with a success among them are never three in a row, whoever
/// weighs when. Fails when a weighing reads the failures once only.
#[test]
fn no_trip_on_failures_that_a_success_has_outweighed() {
    loom::model(|| {
        let breaker = breaker(3, |builder| builder);
        let others = breaker.clone();
        let other = thread::spawn(move || fail(&others));
        let between = breaker.try_acquire_owned().expect("closed");
        fail(&breaker);
        assert_eq!(between.settle(Verdict::Success), Settled::Counted);
        fail(&breaker);
        other.join().expect("it does not panic");
        assert_eq!(breaker.state(), State::Closed);
    });
}

/// The same where the successes are counted in a window that carries the lanes. Fails when the
/// successes that are still in the window's words are left out.
#[test]
fn no_trip_on_failures_that_a_success_in_a_window_has_outweighed() {
    loom::model(|| {
        let rate = ErrorRate::above(0.9).within(Duration::from_secs(10), 1);
        let breaker = breaker(3, |builder| builder.trip_on(rate));
        let others = breaker.clone();
        let other = thread::spawn(move || fail(&others));
        let between = breaker.try_acquire_owned().expect("closed");
        fail(&breaker);
        assert_eq!(between.settle(Verdict::Success), Settled::Counted);
        fail(&breaker);
        other.join().expect("it does not panic");
        assert_eq!(breaker.state(), State::Closed);
    });
}

/// Of failures on two threads that make up the limit, none is lost: with those that every lane may
/// still lack, it trips.
#[test]
fn failures_of_two_threads_add_up() {
    loom::model(|| {
        let breaker = breaker(2, |builder| builder.cool_down(Duration::from_secs(60)));
        let others = breaker.clone();
        let other = thread::spawn(move || fail(&others));
        fail(&breaker);
        other.join().expect("it does not panic");
        assert_eq!(breaker.state(), State::Open);
    });
}
