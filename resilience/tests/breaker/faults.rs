//! Users whose code is slow, panics, or uses the breaker that calls it; and numbers that presets promise.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wheelhouse_resilience::{
    Breaker, CallError, Closing, Consecutive, Cusum, Decision, ErrorRate, Fallback, Outcome,
    Reason, SlowRate, State, Trip, TripPolicy, Verdict,
};
use wheelhouse_wheel::{Clock, ManualClock};

const SECOND: Duration = Duration::from_secs(1);

fn fail(breaker: &Breaker, times: usize) {
    (0..times).for_each(|_| breaker.try_acquire().unwrap().failure());
}

fn succeed(breaker: &Breaker, times: usize) {
    (0..times).for_each(|_| breaker.try_acquire().unwrap().success());
}

#[test]
fn error_rate_has_the_numbers_of_the_article() {
    let clock = ManualClock::new();
    let breaker = Breaker::error_rate().clock(clock.clone()).build().unwrap();
    succeed(&breaker, 200);
    fail(&breaker, 1);
    assert_eq!(breaker.state(), State::Closed);
    breaker.reset();
    fail(&breaker, 199);
    assert_eq!(breaker.state(), State::Closed);
    fail(&breaker, 1);
    let rejected = breaker.try_acquire().unwrap_err();
    assert_eq!(rejected.retry_after(), Some(5 * SECOND));
    clock.advance(5 * SECOND);
    succeed(&breaker, 1);
    assert_eq!(breaker.state(), State::HalfOpen);
    let rejected = breaker.try_acquire().unwrap_err();
    assert_eq!(rejected.reason(), Reason::ProbeInterval);
    assert_eq!(rejected.retry_after(), Some(SECOND / 5));
    clock.advance(SECOND / 5);
    succeed(&breaker, 1);
    assert_eq!(breaker.state(), State::Closed);
    succeed(&breaker, 100);
}

#[test]
fn a_success_that_makes_up_the_minimum_volume_trips() {
    let clock = ManualClock::new();
    for rate in [
        ErrorRate::above(0.5),
        ErrorRate::above(0.5).last(1000),
        ErrorRate::at_least(0.75).within(SECOND, 1),
    ] {
        let builder = Breaker::error_rate().clock(clock.clone()).trip_on(rate);
        // Also beside another window, which carries the lanes.
        let beside = builder
            .clone()
            .trip_on(ErrorRate::above(1.0).within(SECOND, 2));
        for builder in [builder, beside] {
            let breaker = builder.build().unwrap();
            fail(&breaker, 150);
            succeed(&breaker, 49);
            assert_eq!(breaker.state(), State::Closed);
            succeed(&breaker, 1);
            assert_eq!(breaker.state(), State::Open, "{rate:?}");

            let breaker = builder.build().unwrap();
            fail(&breaker, 50);
            succeed(&breaker, 1000);
            assert_eq!(breaker.state(), State::Closed);
        }
    }
}

#[test]
fn growth_begins_anew_when_the_user_closes() {
    let clock = ManualClock::new();
    for force in [
        Breaker::reset as fn(&Breaker),
        Breaker::force_closed,
        Breaker::disable,
        Breaker::force_open,
    ] {
        let breaker = Breaker::consecutive()
            .clock(clock.clone())
            .trip_on(Consecutive::failures(1))
            .cool_down(SECOND)
            .growth(2.0)
            .build()
            .unwrap();
        fail(&breaker, 1);
        clock.advance(SECOND);
        fail(&breaker, 1);
        let wait = |breaker: &Breaker| breaker.try_acquire().unwrap_err().retry_after();
        assert_eq!(wait(&breaker), Some(2 * SECOND));
        force(&breaker);
        breaker.reset();
        fail(&breaker, 1);
        assert_eq!(wait(&breaker), Some(SECOND));
        clock.advance(SECOND);
        fail(&breaker, 1);
        assert_eq!(wait(&breaker), Some(2 * SECOND));
    }
}

#[test]
fn the_cap_of_cool_downs_does_not_depend_on_the_order_of_calls() {
    let builder = Breaker::builder;
    let (long, short) = (120 * SECOND, 90 * SECOND);
    for refused in [
        builder().cool_down(long).max_cool_down(short),
        builder().max_cool_down(short).cool_down(long),
    ] {
        assert_eq!(refused.build().unwrap_err().argument(), "max_cool_down");
    }
    assert!(
        builder()
            .cool_down(long)
            .cool_down(SECOND)
            .max_cool_down(SECOND)
            .build()
            .is_ok()
    );
    assert!(builder().cool_down(long).build().is_ok());
}

#[test]
fn an_expired_lease_that_is_ignored_gives_its_turn_back() {
    let clock = ManualClock::new();
    let breaker = Breaker::consecutive()
        .clock(clock.clone())
        .trip_on(Consecutive::failures(1))
        .cool_down(SECOND)
        .probe_interval(100 * SECOND)
        .lease(SECOND)
        .expired_as(Verdict::Ignored)
        .build()
        .unwrap();
    fail(&breaker, 1);
    clock.advance(SECOND);
    let hung = breaker.try_acquire().unwrap();
    clock.advance(SECOND);
    succeed(&breaker, 1);
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.stats().ignored, 1);
    drop(hung);
}

#[test]
fn in_a_ramp_no_time_is_said() {
    let clock = ManualClock::new();
    let breaker = Breaker::builder()
        .clock(clock.clone())
        .seed(1)
        .build()
        .unwrap();
    fail(&breaker, 17);
    clock.advance(2 * SECOND);
    succeed(&breaker, 1);
    let rejected = (0..100).find_map(|_| breaker.try_acquire().err()).unwrap();
    assert_eq!(rejected.reason(), Reason::Ramp);
    assert_eq!(rejected.retry_after(), None);
}

/// A policy, a closing rule and a clock that all use the breaker they belong to.
#[test]
fn code_of_the_users_may_use_its_breaker() {
    static OWN: OnceLock<Breaker> = OnceLock::new();

    fn uses() -> bool {
        OWN.get().is_some_and(|breaker| {
            breaker.stats().state == State::Closed && !breaker.name().is_empty()
        })
    }

    #[derive(Debug, Default)]
    struct Reentrant(AtomicU64);

    impl TripPolicy for Reentrant {
        fn record(&self, outcome: Outcome, _: Instant) -> bool {
            uses();
            outcome.is_error() && self.0.fetch_add(1, Ordering::Relaxed) == 2
        }

        fn reset(&self) {
            assert!(uses());
            self.0.store(0, Ordering::Relaxed);
        }
    }

    let clock = ManualClock::new();
    let breaker = Breaker::consecutive()
        .clock(clock.clone())
        .trip_on(Trip::policy::<Reentrant>())
        .cool_down(SECOND)
        .closing(Closing::by(|probes| {
            assert!(OWN.get().unwrap().try_acquire().is_ok());
            match probes.settled() {
                2 => Decision::Close,
                _ => Decision::Wait,
            }
        }))
        .build()
        .unwrap();
    OWN.set(breaker.clone()).unwrap();
    for _ in 0..3 {
        fail(&breaker, 3);
        assert_eq!(breaker.state(), State::Open);
        clock.advance(SECOND);
        succeed(&breaker, 1);
        assert_eq!(breaker.state(), State::HalfOpen);
        succeed(&breaker, 1);
        assert_eq!(breaker.state(), State::Closed);
    }
    assert_eq!(breaker.stats().policy_panics, 0);
}

#[test]
fn policies_that_panic_are_counted_and_take_nothing_down() {
    #[derive(Debug, Default)]
    struct Faulty;

    impl TripPolicy for Faulty {
        fn record(&self, _: Outcome, _: Instant) -> bool {
            panic!("in record")
        }

        fn reset(&self) {
            panic!("in reset")
        }
    }

    let breaker = Breaker::consecutive()
        .trip_on(Trip::policy::<Faulty>())
        .trip_on(Consecutive::failures(2))
        .cool_down(Duration::ZERO)
        .closing(Closing::by(|_| panic!("in the rule")))
        .build()
        .unwrap();
    succeed(&breaker, 1);
    assert_eq!(breaker.stats().policy_panics, 1);
    // A permit that is dropped while another panic unwinds must not panic in turn.
    let call = || breaker.call(|| -> Result<(), ()> { panic!("in the call") });
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(breaker.stats().policy_panics, 2);
    fail(&breaker, 1);
    assert_eq!(breaker.stats().policy_panics, 3);
    succeed(&breaker, 1);
    assert_eq!(breaker.stats().policy_panics, 4);
    assert_eq!(breaker.stats().transitions, 3, "a rule that panics opens");
    breaker.reset();
    assert_eq!(breaker.stats().policy_panics, 5);
}

#[test]
fn transitions_that_a_slow_hook_leaves_no_room_for_are_counted() {
    let own: Arc<OnceLock<Breaker>> = Arc::default();
    let breaker_of_hook = own.clone();
    let breaker = Breaker::builder()
        .on_transition(move |transition| {
            if transition.sequence == 1 {
                for _ in 0..600 {
                    breaker_of_hook.get().unwrap().reset();
                    breaker_of_hook.get().unwrap().force_open();
                }
            }
        })
        .build()
        .unwrap();
    own.set(breaker.clone()).unwrap();
    let events = breaker.subscribe();
    breaker.force_open();
    let heard = std::iter::from_fn(|| events.try_next()).count() as u64;
    let stats = breaker.stats();
    assert_eq!(stats.transitions, 1201);
    assert_eq!(stats.lost_transitions, 1200 - 1024);
    assert_eq!(heard + events.lost(), 1201);
}

/// Counts how often it is looked at.
#[derive(Clone)]
struct Counting(ManualClock, Arc<AtomicU64>);

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }
}

#[test]
fn no_clock_is_read_while_closed_unless_a_policy_goes_by_time() {
    let looks = Arc::new(AtomicU64::new(0));
    let clock = Counting(ManualClock::new(), looks.clone());
    for (trip, reads) in [
        (Trip::from(Consecutive::failures(100)), 0),
        (Cusum::new().into(), 0),
        (ErrorRate::above(0.5).last(100).into(), 0),
        (ErrorRate::above(0.5).into(), 200),
        (SlowRate::above(0.5).into(), 200),
    ] {
        let name = format!("{trip:?}");
        let builder = Breaker::builder().clock(clock.clone()).trip_on(trip);
        let breaker = builder.build().unwrap();
        let before = looks.load(Ordering::Relaxed);
        for _ in 0..20 {
            succeed(&breaker, 9);
            fail(&breaker, 1);
        }
        assert_eq!(looks.load(Ordering::Relaxed) - before, reads, "{name}");
    }
}

#[test]
fn fallbacks_for_failures_are_not_for_rejections() {
    let breaker = Breaker::builder().build().unwrap();
    let failed = || breaker.call(|| Err::<u32, _>("unreachable"));
    assert_eq!(
        failed().or_if_failed(|error| Ok(error.len() as u32)),
        Ok(11)
    );
    assert_eq!(
        failed().or_if_failed(|_| Err("nor this")),
        Err(CallError::Failed("nor this"))
    );
    assert_eq!(
        breaker.call(|| Ok::<_, &str>(1)).or_if_failed(|_| Ok(2)),
        Ok(1)
    );
    assert_eq!(
        failed().or_if_rejected(|_| Ok(2)),
        Err(CallError::Failed("unreachable"))
    );
    breaker.force_open();
    let rejected = failed().or_if_failed(|_| Ok(2)).unwrap_err();
    assert_eq!(rejected.rejected().unwrap().reason(), Reason::ForcedOpen);
}

#[cfg(feature = "metrics")]
mod meters {
    use super::*;
    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Figures {
        counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
        panics: bool,
    }

    impl Figures {
        fn of(&self, key: &Key) -> Arc<AtomicU64> {
            assert!(!self.panics, "a recorder's own fault");
            let labels: Vec<&str> = key.labels().map(|label| label.value()).collect();
            let name = format!("{} {}", key.name(), labels.join(" "));
            self.counters
                .lock()
                .unwrap()
                .entry(name)
                .or_default()
                .clone()
        }

        fn read(&self, name: &str) -> u64 {
            self.counters.lock().unwrap()[name].load(Ordering::Relaxed)
        }
    }

    impl metrics::Recorder for Figures {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.of(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.of(key))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn transitions_and_calls_are_metered() {
        let figures = Figures::default();
        metrics::with_local_recorder(&figures, || {
            let breaker = Breaker::consecutive().name("mine").build().unwrap();
            fail(&breaker, 6);
            breaker.publish_metrics();
        });
        assert_eq!(
            figures.read("wheelhouse_breaker_transitions_total mine open"),
            1
        );
        let state = f64::from_bits(figures.read("wheelhouse_breaker_state mine"));
        assert_eq!(state, 2.0);
        assert_eq!(
            figures.read("wheelhouse_breaker_calls_total mine failure"),
            6
        );
    }

    #[test]
    fn a_recorder_that_panics_ends_no_events() {
        let figures = Figures {
            panics: true,
            ..Figures::default()
        };
        metrics::with_local_recorder(&figures, || {
            let breaker = Breaker::consecutive().build().unwrap();
            let events = breaker.subscribe();
            fail(&breaker, 6);
            breaker.reset();
            let told = std::iter::from_fn(|| events.try_next()).map(|event| event.to);
            assert_eq!(told.collect::<Vec<_>>(), [State::Open, State::Closed]);
            assert_eq!(breaker.stats().hook_panics, 2);
        });
    }
}
