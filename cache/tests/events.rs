//! The listener hears of each value once, with its cause, and nothing is kept from being dropped.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use wheelhouse_cache::{Cache, Cause, Driver, Policy, Reclaim};
use wheelhouse_wheel::ManualClock;

type Log = Arc<Mutex<Vec<(u32, u32, Cause, Option<Duration>)>>>;

fn heard(policy: Policy, capacity: u64) -> (Cache<u32, u32>, Log, ManualClock) {
    let log = Log::default();
    let clock = ManualClock::new();
    let writes = log.clone();
    let cache = Cache::builder()
        .capacity(capacity)
        .policy(policy)
        .jitter(0.0)
        .clock(clock.clone())
        .listener(move |event| {
            let told = (event.key, event.value, event.cause, event.time_left);
            writes.lock().unwrap().push(told);
        })
        .build()
        .unwrap();
    (cache, log, clock)
}

#[test]
fn c15_c17_c56_each_cause_with_what_was_left() {
    let (cache, log, clock) = heard(Policy::Lru, 2);
    let seconds = Duration::from_secs;
    cache.set_with_ttl(1, 10, seconds(10)).unwrap();
    clock.advance(seconds(4));
    cache.set(1, 11).unwrap();
    assert_eq!(cache.remove(&1), Some(11));
    assert_eq!(cache.remove(&1), None);
    cache.set(2, 20).unwrap();
    cache.set(3, 30).unwrap();
    cache.set_with_ttl(4, 40, seconds(1)).unwrap();
    clock.advance(seconds(2));
    cache.run_pending(10);
    cache.clear();
    assert_eq!(
        *log.lock().unwrap(),
        [
            (1, 10, Cause::Replaced, Some(seconds(6))),
            (1, 11, Cause::Removed, None),
            (2, 20, Cause::Evicted, None),
            (4, 40, Cause::Expired, Some(seconds(0))),
            (3, 30, Cause::Cleared, None),
        ]
    );
    let stats = cache.stats();
    let causes = [
        stats.replaced,
        stats.removed,
        stats.evicted,
        stats.expired,
        stats.cleared,
    ];
    assert_eq!(causes, [1; 5]);
}

#[test]
fn c12_a_listener_that_panics_hears_of_the_others() {
    let told = Arc::new(AtomicU32::new(0));
    let counts = told.clone();
    let cache = Cache::<u32, u32>::builder()
        .capacity(10)
        .listener(move |_| {
            let before = counts.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "the first one panics, as planned");
        })
        .build()
        .unwrap();
    for key in 0..3 {
        cache.set(key, key).unwrap();
    }
    cache.clear();
    assert_eq!(told.load(Ordering::Relaxed), 3);
    assert_eq!(cache.stats().listener_panics, 1);
    cache.set(1, 1).unwrap();
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn a_listener_may_use_its_cache() {
    static CACHE: OnceLock<Cache<u32, u32>> = OnceLock::new();
    let cache = Cache::builder()
        .capacity(1)
        .listener(|event| {
            if let Some(cache) = CACHE.get()
                && event.value < 5
            {
                cache.set(event.key + 1, event.value + 1).unwrap();
                assert!(cache.len() <= 1);
            }
        })
        .build()
        .unwrap();
    let cache = CACHE.get_or_init(|| cache);
    cache.set(1, 0).unwrap();
    cache.remove(&1);
    assert_eq!(cache.get(&2), Some(1));
    cache.clear();
    assert_eq!(cache.get(&3), Some(2));
}

#[test]
fn c19_nothing_keeps_a_value_from_being_dropped() {
    for policy in [Policy::Adaptive, Policy::Sieve, Policy::Lru] {
        let values: Vec<_> = (0..500_u32).map(Arc::new).collect();
        let cache = Cache::builder()
            .capacity(100)
            .policy(policy)
            .build()
            .unwrap();
        for value in &values {
            cache.set(**value, value.clone()).unwrap();
            cache.get(&**value);
        }
        let held = values.iter().filter(|one| Arc::strong_count(one) == 2);
        assert_eq!(held.count(), 100, "interleaving 4: what is evicted is free");
        drop(cache);
        assert!(values.iter().all(|one| Arc::strong_count(one) == 1));
    }
}

#[test]
fn c16_c24_each_value_leaves_once() {
    for policy in [Policy::Adaptive, Policy::Sieve, Policy::Fifo] {
        let (cache, log, clock) = heard(policy, 64);
        let mut random = 1_u32;
        let mut stored = 0;
        for value in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = random >> 24;
            match random >> 8 & 7 {
                0 => drop(cache.remove(&key)),
                1 => clock.advance(Duration::from_millis(20)),
                2 => drop(cache.run_pending(3)),
                3 => drop(cache.get(&key)),
                _ => {
                    let lifetime = Duration::from_millis(u64::from(random >> 12 & 1023) + 1);
                    cache.set_with_ttl(key, value, lifetime).unwrap();
                    stored += 1;
                }
            }
        }
        cache.clear();
        let mut values: Vec<u32> = log.lock().unwrap().iter().map(|told| told.1).collect();
        assert_eq!(values.len(), stored, "{policy:?}");
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), stored, "no value twice under {policy:?}");
        assert_eq!(cache.stats().stored, stored as u64);
    }
}

#[test]
fn c59_a_driver_ends_with_its_last_handle() {
    let cache = Cache::<u32, u32>::builder()
        .capacity(10_000)
        .reclaim(Reclaim::OnRequest)
        .build()
        .unwrap();
    for _ in 0..20 {
        let driver = Driver::start().unwrap();
        let other = driver.clone();
        driver.drive(&cache);
        drop(driver);
        for key in 0..500 {
            let lifetime = Duration::from_millis(1);
            cache.set_with_ttl(key, key, lifetime).unwrap();
        }
        while !cache.is_empty() {
            thread::yield_now();
        }
        drop(other);
    }
    assert_eq!(cache.stats().expired, 10_000);
}
