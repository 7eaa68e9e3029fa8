//! The registry: names, bounds, idleness, per-name settings.

use std::sync::Arc;
use std::time::Duration;

use wheelhouse_resilience::{Breaker, Registry, State, ThrottleMode};
use wheelhouse_wheel::ManualClock;

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
    clock.advance(Duration::from_secs(1));
    let _ = registry.get("new");
    assert_eq!(registry.len(), 2);
    clock.advance(Duration::from_secs(600));
    assert_eq!(registry.evict_idle(), 2);
    assert!(registry.is_empty());
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
