//! Time: cool-downs, timers, and clocks that leap, stand still or go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use wheelhouse_resilience::{
    Breaker, Cause, CoarseClock, Consecutive, HalfOpenEnd, Reason, State, Timers,
};
use wheelhouse_wheel::{Clock, ManualClock};

use super::common::*;

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

/// A clock that runs faster or slower than another, by so many parts per million.
#[derive(Clone)]
struct Drifting {
    of: ManualClock,
    start: Instant,
    ppm: i32,
}

impl Clock for Drifting {
    fn now(&self) -> Instant {
        let passed = self.of.now() - self.start;
        self.start + passed.mul_f64(1.0 + f64::from(self.ppm) / 1e6)
    }

    fn system_now(&self) -> SystemTime {
        self.of.system_now()
    }
}

/// A breaker whose clock drifts from that of its timers, for three days: a cool-down is as long as the
/// breaker's clock says, and told of at most as late as the clocks drift apart meanwhile, and a tick.
#[test]
fn timers_on_a_clock_that_drifts_are_off_by_the_drift_of_one_cool_down() {
    const COOL_DOWN: Duration = Duration::from_secs(60);
    for ppm in [-500, -20, 20, 500] {
        let clock = ManualClock::new();
        let timers = Timers::new(clock.clone()).unwrap();
        let (of, start) = (clock.clone(), clock.now());
        let drifting = Drifting { of, start, ppm };
        let breaker = touchy(&clock)
            .clock(drifting.clone())
            .timers(&timers)
            .cool_down(COOL_DOWN)
            .build()
            .unwrap();
        let events = breaker.subscribe();
        let drift = COOL_DOWN * ppm.unsigned_abs() / 1_000_000;
        for hour in 0..72 {
            clock.advance(3600 * SECOND);
            breaker.try_acquire().unwrap().failure();
            let opened = events.try_next().unwrap().at;
            assert_eq!(opened, drifting.now(), "in hour {hour}");
            clock.advance(COOL_DOWN - drift - ms(1));
            assert!(events.try_next().is_none() && breaker.state() == State::Open);
            let told = (0..=2 * drift.as_millis() + 3).find_map(|_| {
                clock.advance(ms(1));
                events.try_next()
            });
            let told = told.expect("by then it is half-open");
            let took = told.at - opened;
            assert_eq!(told.to, State::HalfOpen);
            assert!(
                COOL_DOWN <= took && took <= COOL_DOWN + drift + ms(2),
                "{took:?}"
            );
            breaker.try_acquire().unwrap().success();
            assert_eq!(events.try_next().unwrap().to, State::Closed);
        }
    }
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
