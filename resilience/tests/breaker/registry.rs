//! The registry: names, bounds, idleness, per-name settings.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wheelhouse_resilience::{Breaker, Registry, State, ThrottleMode};
use wheelhouse_wheel::{Clock, ManualClock};

#[test]
fn a_name_has_one_breaker() {
    let registry = Registry::builder().build().unwrap();
    registry.get("a").force_open();
    assert_eq!(registry.clone().get("a").state(), State::ForcedOpen);
    assert_eq!(registry.get("b").state(), State::Closed);
    assert_eq!((registry.get("a").name(), registry.len()), ("a", 2));
    assert!(registry.peek("c").is_none() && registry.peek("a").is_some());
}

#[test]
fn names_have_their_own_settings() {
    let registry = Registry::builder()
        .default_breaker(Breaker::throttle().mode(ThrottleMode::Sre))
        .configure("strict", Breaker::consecutive())
        .exempt("health")
        .build()
        .unwrap();
    for name in ["strict", "health", "other"] {
        for _ in 0..6 {
            if let Ok(permit) = registry.get(name).try_acquire() {
                permit.failure();
            }
        }
    }
    assert_eq!(registry.get("strict").state(), State::Open);
    let health = registry.get("health");
    assert_eq!(
        (health.state(), health.stats().failures),
        (State::Disabled, 0)
    );
    assert!(registry.get("other").rejection_probability() > 0.5);
    // Exempt ones take no place.
    assert_eq!(registry.len(), 2);
}

/// R11 as a class: a bound that holds whatever names come, and idle ones that go.
#[test]
fn r11_the_map_is_bounded_and_evicts_what_is_idle() {
    let clock = ManualClock::new();
    let registry = Registry::builder().clock(clock.clone()).build().unwrap();
    for name in 0..10_000 {
        let _ = registry.get(&format!("host-{name}"));
        assert!(registry.len() <= 1024);
    }
    let stats = registry.stats();
    assert_eq!(
        (stats.made, stats.names as u64),
        (10_000, 10_000 - stats.displaced)
    );

    clock.advance(Duration::from_secs(599));
    let _ = registry.get("host-9999");
    clock.advance(Duration::from_secs(11));
    let _ = registry.get("new");
    assert_eq!(registry.len(), 2);
    clock.advance(Duration::from_secs(610));
    assert_eq!(registry.evict_idle(), 2);
    assert!(registry.is_empty());
}

/// Uses shortly after one another are not all written down; none of them is forgotten for that.
#[test]
fn nothing_is_idle_before_its_time() {
    let idle = Duration::from_secs(64);
    for after in 0..200 {
        let clock = ManualClock::new();
        let registry = Registry::builder()
            .idle(idle)
            .clock(clock.clone())
            .build()
            .unwrap();
        let _ = registry.get("a");
        clock.advance(Duration::from_millis(10 * after));
        let _ = registry.get("a");
        clock.advance(idle - Duration::from_nanos(1));
        assert_eq!(registry.evict_idle(), 0, "used {after} hundredths later");
        clock.advance(idle / 64 + Duration::from_nanos(1));
        assert_eq!(registry.evict_idle(), 1);
    }
}

/// A clock that uses the registry whose time it is, as a clock of a user's may.
#[derive(Debug, Clone)]
struct Reentrant {
    time: ManualClock,
    registry: Arc<OnceLock<Registry>>,
}

impl Clock for Reentrant {
    fn now(&self) -> Instant {
        if let Some(registry) = self.registry.get() {
            let _ = registry.stats();
            let _ = (registry.len(), registry.peek("0"));
            registry.remove("nobody");
        }
        self.time.now()
    }
}

/// Held back by a lock of the registry's, these would never return.
#[test]
fn clocks_are_asked_outside_the_locks() {
    let clock = Reentrant {
        time: ManualClock::new(),
        registry: Arc::default(),
    };
    let registry = Registry::builder()
        .default_breaker(Breaker::consecutive().clock(clock.clone()))
        .max_names(4)
        .clock(clock.clone())
        .build()
        .unwrap();
    clock.registry.set(registry.clone()).unwrap();
    for name in 0..20 {
        let breaker = registry.get(&name.to_string());
        for _ in 0..6 * (name % 2) {
            let _ = breaker.try_acquire().map(|permit| permit.failure());
        }
        registry.evict_idle();
        clock.time.advance(Duration::from_secs(100));
    }
    assert!(registry.all().len() <= 4);
}

/// Names that come from all threads push out others, and never one that a thread has taken meanwhile
/// while there is another: it would go on with a breaker that nobody else sees.
#[test]
fn stress_what_is_taken_meanwhile_is_not_displaced() {
    let registry = Registry::builder().max_names(64).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let registry = &registry;
            scope.spawn(move || {
                for call in 0..4000_u32 {
                    // Nobody else has these, so nobody else forces them.
                    let name = format!("{thread}-{}", call * 7 % 32);
                    let breaker = registry.get(&name);
                    breaker.force_open();
                    let seen = registry.peek(&name).map(|breaker| breaker.state());
                    assert_eq!(seen, Some(State::ForcedOpen), "{name} was displaced");
                    breaker.reset();
                    assert!(registry.len() <= 64);
                }
            });
        }
    });
}

/// Whatever is done to it, an exempt breaker rejects nothing.
#[test]
fn exempt_breakers_cannot_be_armed() {
    let registry = Registry::builder().exempt("health").build().unwrap();
    let health = registry.get("health");
    for force in [
        Breaker::reset,
        Breaker::force_open,
        Breaker::force_closed,
        Breaker::metrics_only,
        Breaker::disable,
    ] {
        force(&health);
        assert_eq!(health.state(), State::Disabled);
        for _ in 0..100 {
            health.try_acquire().unwrap().failure();
        }
    }
    let stats = registry.get("health").stats();
    assert_eq!((stats.failures, stats.rejected), (0, 0));
}

#[test]
fn what_is_in_use_or_open_stays_longest() {
    let clock = ManualClock::new();
    let registry = Registry::builder()
        .max_names(3)
        .idle(Duration::from_secs(60))
        .clock(clock.clone())
        .build()
        .unwrap();
    let held = registry.get("held");
    registry.get("open").force_open();
    for other in 0..10 {
        clock.advance(Duration::from_secs(1));
        let _ = registry.get(&format!("other-{other}"));
        assert_eq!(registry.len(), 3);
    }
    assert_eq!(registry.get("open").state(), State::ForcedOpen);
    held.force_open();
    assert_eq!(
        registry.get("held").state(),
        State::ForcedOpen,
        "another breaker"
    );

    // A call in flight is use, however long.
    held.reset();
    let permit = registry.get("held").try_acquire_owned().unwrap();
    drop(held);
    clock.advance(Duration::from_secs(600));
    registry.evict_idle();
    assert_eq!(registry.len(), 1);
    permit.success();
    assert_eq!(registry.get("held").stats().successes, 1);
}

/// The bound is on names, not on good will: when all are in use the one unused for longest goes.
#[test]
fn the_bound_holds_when_all_are_in_use() {
    let clock = ManualClock::new();
    let registry = Registry::builder()
        .max_names(2)
        .clock(clock.clone())
        .build()
        .unwrap();
    let held: Vec<Breaker> = (0..5)
        .map(|name: u32| {
            clock.advance(Duration::from_secs(30));
            registry.get(&name.to_string())
        })
        .collect();
    assert_eq!((held.len(), registry.len()), (5, 2));
    assert!(registry.peek("3").is_some() && registry.peek("4").is_some());
}

/// A flood of names that each come once, as hosts that an attacker chooses: the bound holds, and breakers
/// that are open or in use outlast it.
#[test]
fn a_flood_of_names_displaces_nothing_that_matters() {
    let registry = Registry::builder().max_names(128).build().unwrap();
    let open: Vec<String> = (0..30).map(|name| format!("open {name}")).collect();
    let held: Vec<String> = (0..30).map(|name| format!("held {name}")).collect();
    open.iter().for_each(|name| registry.get(name).force_open());
    let permits: Vec<_> = held
        .iter()
        .map(|name| registry.get(name).try_acquire_owned().unwrap())
        .collect();
    for name in 0..100_000 {
        registry
            .get(&name.to_string())
            .try_acquire()
            .unwrap()
            .success();
        if name % 1000 == 0 {
            assert!(registry.len() <= 128);
        }
    }
    for name in &open {
        assert_eq!(registry.peek(name).unwrap().state(), State::ForcedOpen);
    }
    for (name, permit) in held.iter().zip(permits) {
        permit.success();
        assert_eq!(registry.peek(name).unwrap().stats().successes, 1);
    }
    let stats = registry.stats();
    assert_eq!(
        stats.made - stats.displaced - stats.idle,
        stats.names as u64
    );
}

#[test]
fn refuses_what_makes_no_sense() {
    let refused = Registry::builder().max_names(0).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "max_names is 0; allowed are 1 and more"
    );
    let refused = Registry::builder()
        .configure("a", Breaker::throttle().k(0.0))
        .build()
        .unwrap_err();
    assert_eq!(refused.argument(), "k");
}

/// Threads that ask for the same names at the same time get the same breakers, and no more than fit.
#[test]
fn stress_one_breaker_for_each_name() {
    let registry = Registry::builder().build().unwrap();
    let breakers: Vec<Vec<Breaker>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..500)
                        .map(|name| registry.get(&name.to_string()))
                        .collect()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for breaker in &breakers[0] {
        breaker.force_open();
    }
    assert!(
        breakers
            .iter()
            .flatten()
            .all(|breaker| breaker.state() == State::ForcedOpen)
    );
    assert_eq!((registry.len(), registry.stats().made), (500, 500));
    let names: std::collections::HashSet<Arc<str>> =
        registry.all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 500);
}
