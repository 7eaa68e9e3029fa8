//! Users' code at its worst: clocks, policies, rules and hooks that panic, block, lie or call back, at
//! any moment; arguments at the ends of their ranges; permits that never end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use wheelhouse_resilience::{
    Breaker, BreakerBuilder, Closing, Consecutive, Cusum, Decision, ErrorRate, HalfOpenEnd,
    Outcome, Reason, Registry, SlowRate, State, ThrottleMode, Timers, Trip, TripPolicy, Verdict,
};
use wheelhouse_wheel::{Clock, ManualClock};

use super::common::*;

/// A clock that panics at one of its readings.
#[derive(Clone)]
struct Panicking {
    of: ManualClock,
    readings: Arc<AtomicU64>,
    panics_at: u64,
}

impl Clock for Panicking {
    fn now(&self) -> Instant {
        if self.readings.fetch_add(1, Ordering::Relaxed) == self.panics_at {
            std::panic::resume_unwind(Box::new("a clock"));
        }
        self.of.now()
    }

    fn system_now(&self) -> SystemTime {
        self.of.system_now()
    }
}

/// Whichever reading of the clock panics: the breaker goes on, no place and no lease is lost, and its
/// timers work.
#[test]
fn a_clock_that_panics_once_takes_nothing_with_it() {
    let mut panicked = 0;
    for panics_at in 1..120 {
        let time = ManualClock::new();
        let timers = Timers::new(time.clone()).unwrap();
        let clock = Panicking {
            of: time.clone(),
            readings: Arc::default(),
            panics_at,
        };
        let breaker = touchy(&time)
            .clock(clock.clone())
            .timers(&timers)
            .lease(None)
            .slow_after(ms(500))
            .max_in_flight(1)
            .build()
            .unwrap();
        let mut step = |step: &dyn Fn()| {
            panicked += u32::from(catch_unwind(AssertUnwindSafe(step)).is_err());
        };
        for round in 0..8 {
            step(&|| _ = breaker.try_acquire().map(|permit| permit.success()));
            step(&|| drop(breaker.call(|| Err::<(), ()>(()))));
            step(&|| drop(breaker.try_acquire()));
            let _ = catch_unwind(AssertUnwindSafe(|| time.advance(ms(600 * (round % 3)))));
            step(&|| _ = breaker.state());
            step(&|| _ = breaker.stats());
        }
        // It has panicked by now, or does so here. One probe heals it, whatever came before.
        while clock.readings.load(Ordering::Relaxed) <= panics_at {
            let _ = catch_unwind(AssertUnwindSafe(|| clock.now()));
        }
        let events = breaker.subscribe();
        let _ = breaker.try_acquire().map(|permit| permit.failure());
        time.advance(2 * SECOND);
        if breaker.state() != State::Closed {
            let probe = breaker.try_acquire();
            probe
                .unwrap_or_else(|rejected| panic!("reading {panics_at}: {rejected}"))
                .success();
        }
        assert_eq!(breaker.state(), State::Closed, "reading {panics_at}");
        assert_eq!(breaker.stats().in_flight, Some(0), "reading {panics_at}");
        // The timers tell of a cool-down that is over, without a call.
        while events.try_next().is_some() {}
        breaker.try_acquire().unwrap().failure();
        time.advance(2 * SECOND);
        let told: Vec<_> = std::iter::from_fn(|| events.try_next())
            .map(|event| event.to)
            .collect();
        assert_eq!(told, [State::Open, State::HalfOpen], "reading {panics_at}");
    }
    assert!(panicked > 50, "{panicked}");
}

/// A rule that does not answer: as many probes wait for it as may be in flight, and no more.
#[test]
fn a_closing_rule_that_blocks_has_few_probes_before_it() {
    let clock = ManualClock::new();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let asked = Arc::new(AtomicU64::new(0));
    let counts = asked.clone();
    let rule = Closing::by(move |_| {
        if counts.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = blocked.lock().unwrap().recv();
        }
        Decision::Wait
    });
    let builder = touchy(&clock).max_probes(3).closing(rule);
    let breaker = half_open(builder, &clock);
    thread::scope(|scope| {
        scope.spawn(|| breaker.try_acquire().unwrap().success());
        while asked.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let settled = (0..100)
            .filter_map(|_| breaker.try_acquire().ok())
            .map(|probe| probe.success())
            .count();
        assert_eq!(settled, 3);
        assert_eq!(reason(&breaker), Reason::HalfOpenFull);
        release.send(()).unwrap();
    });
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert!(breaker.try_acquire().is_ok());
}

/// Says that it trips at every call, and forces, resets and calls its breaker besides.
#[derive(Debug, Default)]
struct Meddling {
    busy: AtomicBool,
}

static MEDDLED: Mutex<Option<Breaker>> = Mutex::new(None);

impl TripPolicy for Meddling {
    fn record(&self, _outcome: Outcome, _now: Instant) -> bool {
        if !self.busy.swap(true, Ordering::SeqCst) {
            let breaker = MEDDLED.lock().unwrap().clone().unwrap();
            breaker.reset();
            let _ = breaker.call(|| Err::<(), ()>(()));
            breaker.force_open();
            let _ = breaker.stats();
            breaker.reset();
            self.busy.store(false, Ordering::SeqCst);
        }
        true
    }

    fn reset(&self) {
        let _ = MEDDLED.lock().unwrap().as_ref().map(Breaker::state);
    }
}

#[test]
fn a_policy_that_meddles_with_its_breaker_ends() {
    let clock = ManualClock::new();
    let builder = for_a_second(&clock).trip_on(Trip::policy::<Meddling>());
    let breaker = builder.build().unwrap();
    *MEDDLED.lock().unwrap() = Some(breaker.clone());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _ = breaker.call(|| Ok::<(), ()>(()));
                    breaker.reset();
                }
            });
        }
    });
    *MEDDLED.lock().unwrap() = None;
    let stats = breaker.stats();
    assert_eq!((stats.policy_panics, stats.hook_panics), (0, 0));
    breaker.reset();
    assert_eq!(breaker.state(), State::Closed);
}

/// Panics when it is dropped.
#[derive(Debug, Default)]
struct Bomb;

impl TripPolicy for Bomb {
    fn record(&self, _outcome: Outcome, _now: Instant) -> bool {
        false
    }

    fn reset(&self) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        // Not while the registry checks its settings, which drops one too.
        if ARMED.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("a policy's drop"));
        }
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);

/// Breakers that leave a registry take their policies along, whose drops panic, many at once: who asked
/// for another name gets it.
#[test]
fn policies_that_panic_in_their_drop_leave_a_registry_quietly() {
    let clock = ManualClock::new();
    let recipe = Breaker::builder().trip_on(Trip::policy::<Bomb>());
    let registry = Registry::builder()
        .default_breaker(recipe)
        .max_names(200)
        .idle(SECOND)
        .clock(clock.clone())
        .build()
        .unwrap();
    ARMED.store(true, Ordering::SeqCst);
    for name in 0..1000 {
        assert!(registry.get(&name.to_string()).try_acquire().is_ok());
    }
    assert_eq!(registry.stats().displaced, 1000 - registry.len() as u64);
    clock.advance(10 * SECOND);
    assert_eq!(registry.evict_idle() as u64, registry.stats().idle);
    assert!(registry.is_empty());
    ARMED.store(false, Ordering::SeqCst);
}

/// The last handles of a breaker and its timers go while the timers' own thread is at a hook of it.
#[test]
fn timers_may_end_on_their_own_thread() {
    let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (over, ended) = mpsc::channel();
    let hook = {
        let (entered, leave) = (entered.clone(), leave.clone());
        // Dropped with the breaker, on whatever thread that is.
        let over = Mutex::new(over);
        move |event: &wheelhouse_resilience::Transition| {
            if event.to == State::HalfOpen {
                entered.wait();
                leave.wait();
                let _ = over.lock().unwrap().send(());
            }
        }
    };
    let timers = Timers::new(wheelhouse_wheel::SystemClock).unwrap();
    let breaker = Breaker::consecutive()
        .trip_on(Consecutive::failures(1))
        .cool_down(ms(1))
        .timers(&timers)
        .on_transition(hook)
        .build()
        .unwrap();
    breaker.try_acquire().unwrap().failure();
    entered.wait();
    drop((breaker, timers));
    leave.wait();
    let long = Duration::from_secs(60);
    assert_eq!(ended.recv_timeout(long), Ok(()));
    // The breaker and its hook are dropped there, after the hook has returned.
    assert_eq!(
        ended.recv_timeout(long),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
}

/// What never ends holds what it took; what has a time gets it back.
#[test]
fn forgotten_permits_hold_what_they_took_and_probes_their_lease() {
    let clock = ManualClock::new();
    let breaker = touchy(&clock)
        .lease(SECOND)
        .max_in_flight(3)
        .build()
        .unwrap();
    std::mem::forget(breaker.try_acquire());
    std::mem::forget(breaker.try_acquire_owned());
    assert_eq!(breaker.stats().in_flight, Some(2));
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    std::mem::forget(breaker.try_acquire().unwrap());
    assert_eq!(reason(&breaker), Reason::HalfOpenFull);
    clock.advance(SECOND);
    // The lease has run out, which is a failure; its place is lost as the others are.
    assert_eq!(reason(&breaker), Reason::Open);
    clock.advance(SECOND);
    assert_eq!(reason(&breaker), Reason::InFlightCap);

    // Without a cap nothing is lost.
    let breaker = touchy(&clock).build().unwrap();
    (0..1000).for_each(|_| std::mem::forget(breaker.try_acquire()));
    breaker.try_acquire().unwrap().failure();
    clock.advance(SECOND);
    breaker.try_acquire().unwrap().success();
    assert_eq!(breaker.state(), State::Closed);
}

/// Every argument of a builder at 0, 1 and the most there is: refused with its name, or of use: what is
/// built lets calls through and stops for failures without a panic, at any time.
#[test]
fn arguments_at_their_ends_are_refused_or_work() {
    type Set = fn(BreakerBuilder, usize) -> BreakerBuilder;
    const SPANS: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
    const WHOLE: [u32; 3] = [0, 1, u32::MAX];
    const REAL: [f64; 8] = [
        0.0,
        1.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        1.0 - f64::EPSILON,
    ];
    let sets: [(&str, Set); 25] = [
        ("cool_down max_cool_down", |b, i| b.cool_down(SPANS[i % 3])),
        ("growth", |b, i| b.growth(REAL[i])),
        ("max_cool_down", |b, i| b.max_cool_down(SPANS[i % 3])),
        ("jitter", |b, i| b.jitter(REAL[i])),
        ("", |b, i| b.stable_after(SPANS[i % 3])),
        ("max_probes", |b, i| b.max_probes(WHOLE[i % 3])),
        ("", |b, i| b.probe_interval(SPANS[i % 3])),
        ("", |b, i| b.lease(SPANS[i % 3])),
        ("", |b, i| b.max_half_open(SPANS[i % 3], HalfOpenEnd::Open)),
        ("", |b, i| {
            b.max_half_open(SPANS[i % 3], HalfOpenEnd::Closed)
        }),
        ("closing", |b, i| {
            b.closing(Closing::successes(WHOLE[i % 3]))
        }),
        ("closing", |b, i| {
            b.closing(Closing::of(WHOLE[i % 3], WHOLE[i / 3]))
        }),
        ("closing", |b, i| {
            b.closing(Closing::rate(WHOLE[i % 3], REAL[i]))
        }),
        ("", |b, i| b.ramp(SPANS[i % 3])),
        ("", |b, i| b.slow_after(SPANS[i % 3])),
        ("max_in_flight", |b, i| b.max_in_flight(WHOLE[i % 3])),
        ("error_rate", |b, i| b.trip_on(ErrorRate::above(REAL[i]))),
        ("error_rate", |b, i| {
            b.trip_on(ErrorRate::at_least(REAL[i]).minimum(u64::MAX))
        }),
        ("slow_rate", |b, i| {
            b.slow_after(ms(1))
                .trip_on(SlowRate::above(REAL[i]).minimum(0))
        }),
        ("within", |b, i| {
            b.trip_on(ErrorRate::above(0.5).within(SPANS[i % 3], [0, 1, 40][i / 3]))
        }),
        ("within", |b, i| {
            b.trip_on(ErrorRate::above(0.5).within(SECOND, [0, 1, usize::MAX][i % 3]))
        }),
        ("last", |b, i| {
            b.trip_on(ErrorRate::above(0.5).last([0, 1, usize::MAX][i % 3]))
        }),
        ("failures", |b, i| {
            b.trip_on(Consecutive::failures(WHOLE[i % 3]))
        }),
        ("interval", |b, i| {
            b.trip_on(Consecutive::failures(2).interval(SPANS[i % 3]))
        }),
        ("rates threshold", |b, i| {
            b.trip_on(
                Cusum::new()
                    .rates(REAL[i], REAL[(i + 3) % 8])
                    .threshold(REAL[i]),
            )
        }),
    ];
    for (number, (arguments, set)) in sets.iter().enumerate() {
        for end in 0..8 {
            let clock = ManualClock::new();
            let builder = set(Breaker::builder().clock(clock.clone()).growth(2.0), end);
            match builder.build() {
                Ok(breaker) => exercise(&breaker, &clock),
                Err(refused) => {
                    let named = arguments.split(' ').any(|name| name == refused.argument());
                    assert!(named, "number {number} at {end}: {refused}");
                }
            }
        }
    }
    for mode in [
        ThrottleMode::Sre,
        ThrottleMode::GoZero2022,
        ThrottleMode::GoZero,
        ThrottleMode::Adaptive,
    ] {
        for end in 0..27 {
            let clock = ManualClock::new();
            let builder = Breaker::throttle().mode(mode).clock(clock.clone());
            let (one, two, three) = (end % 3, end / 3 % 3, end / 9);
            let builder = builder
                .window(SPANS[one], [0, 1, 4096][two])
                .protection([0, 1, u64::MAX][three])
                .probe_interval(if two == 0 { SPANS[one] } else { Duration::MAX })
                .k(if three == 0 { 1.1 } else { 1e6 });
            match builder.build() {
                Ok(breaker) => exercise(&breaker, &clock),
                Err(refused) => {
                    let named =
                        ["window", "buckets", "probe_interval"].contains(&refused.argument());
                    assert!(named, "{mode:?} at {end}: {refused}");
                }
            }
        }
    }
}

/// Calls of all kinds over times of all lengths. Ends, without a panic, and figures add up.
fn exercise(breaker: &Breaker, clock: &ManualClock) {
    let start = clock.now();
    let mut admitted = 0;
    for round in 0..12_u32 {
        for call in 0..40 {
            if let Ok(permit) = breaker.try_acquire() {
                admitted += 1;
                match (call + round) % 5 {
                    0 => permit.success(),
                    1 => drop(permit),
                    2 => _ = permit.settle(Verdict::Ignored),
                    _ => permit.failure(),
                }
            }
        }
        let probability = breaker.rejection_probability();
        assert!((0.0..=1.0).contains(&probability), "{probability}");
        match round % 4 {
            0 => clock.advance(Duration::from_nanos(1)),
            1 => clock.advance(SECOND),
            // Three centuries, and back.
            2 => clock.advance(Duration::from_secs(300 * 365 * 86_400)),
            _ => clock.set(start),
        }
        let _ = breaker.state();
    }
    let stats = breaker.stats();
    let ended = stats.successes + stats.failures + stats.ignored + stats.cancelled + stats.stale;
    assert!(ended >= admitted, "{admitted} admitted: {stats:?}");
    assert!(stats.window.errors <= stats.window.requests);
    assert_eq!(stats.in_flight.unwrap_or(0), 0);
    breaker.reset();
    assert!(breaker.try_acquire().is_ok());
}
