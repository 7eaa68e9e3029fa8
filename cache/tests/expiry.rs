//! Deadlines: who sees what until when, and what reclaims it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse_cache::{Builder, Cache, Cause, Reclaim};
use wheelhouse_wheel::{Clock, ManualClock};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(31_557_600);

fn exact(clock: &ManualClock) -> Builder<u64, u64> {
    Cache::builder()
        .capacity(100_000)
        .jitter(0.0)
        .clock(clock.clone())
}

#[test]
fn c2_an_update_without_expiry_takes_the_old_one_away() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    cache.set_with_ttl(1, 1, SECOND).unwrap();
    cache.set_with_ttl(1, 2, Duration::MAX).unwrap();
    clock.advance(Duration::from_secs(3_600));
    for key in 2..1_000 {
        cache.set(key, key).unwrap();
    }
    assert_eq!(cache.get(&1), Some(2));
    cache.run_pending(usize::MAX);
    assert_eq!(cache.stats().timers, 0);
}

#[test]
fn c5_what_has_expired_is_no_value_to_compute_from() {
    use wheelhouse_cache::{Computed, Op};
    let clock = ManualClock::new();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = causes.clone();
    let cache = exact(&clock)
        .listener(move |event| heard.lock().unwrap().push((event.value, event.cause)))
        .build()
        .unwrap();
    cache.set_with_ttl(1, 10, SECOND).unwrap();
    clock.advance(SECOND);
    let computed = cache.compute(1, |value| {
        assert_eq!(value, None);
        Op::Put(20)
    });
    assert_eq!(computed, Ok(Computed::Inserted(20)));
    assert_eq!(*causes.lock().unwrap(), [(10, Cause::Expired)]);
}

#[test]
fn c13_c37_everything_is_reclaimed_without_traffic() {
    let clock = ManualClock::new();
    let told = Arc::new(AtomicUsize::new(0));
    let hears = told.clone();
    let cache = exact(&clock)
        .reclaim(Reclaim::OnRequest)
        .listener(move |event| {
            assert_eq!(event.cause, Cause::Expired);
            hears.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    for key in 0..10_000 {
        cache.set_with_ttl(key, key, 60 * SECOND).unwrap();
    }
    clock.advance(100 * SECOND);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.len(), 10_000);
    assert_eq!(cache.run_pending(usize::MAX), 10_000);
    assert_eq!(cache.len(), 0);
    assert_eq!(told.load(Ordering::Relaxed), 10_000);
    assert_eq!(cache.next_deadline(), None);
}

#[test]
fn c20_one_operation_does_one_step() {
    let clock = ManualClock::new();
    let reaped = Arc::new(AtomicUsize::new(0));
    let hears = reaped.clone();
    let cache = exact(&clock)
        .listener(move |_| {
            hears.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    for key in 0..50_000 {
        cache.set_with_ttl(key, key, SECOND).unwrap();
    }
    clock.advance(2 * SECOND);
    assert!((0..50_000).all(|key| cache.peek(&key).is_none()));
    let mut before = reaped.load(Ordering::Relaxed);
    for key in 100_000..100_100 {
        assert_eq!(cache.get(&key), None);
        cache.set_with_ttl(key, key, 10 * SECOND).unwrap();
        let now = reaped.load(Ordering::Relaxed);
        assert!(now - before <= 128, "{}", now - before);
        before = now;
    }
    assert!(before >= 1_000, "stores reclaim: {before}");
}

#[test]
fn c45_c76_a_shorter_lifetime_counts_from_the_update_on() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    cache.set_with_ttl(1, 1, 100 * YEAR).unwrap();
    cache.set_with_ttl(2, 1, 100 * YEAR).unwrap();
    cache.set_with_ttl(1, 2, SECOND).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.run_pending(10), 1);
    assert_eq!(cache.get(&2), Some(1));
    clock.advance(99 * YEAR);
    assert_eq!(cache.get(&2), Some(1));
    clock.advance(YEAR);
    assert_eq!(cache.get(&2), None);
}

#[test]
fn c46_the_next_deadline_is_the_earliest() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    let began = clock.now();
    cache.set_with_ttl(1, 1, 70 * SECOND).unwrap();
    cache
        .set_with_ttl(2, 2, Duration::from_millis(1_500))
        .unwrap();
    let next = cache.next_deadline().unwrap() - began;
    let due = Duration::from_millis(1_500);
    assert!(
        next >= due && next <= due + Duration::from_millis(2),
        "{next:?}"
    );
}

#[test]
fn c48_what_was_stored_together_does_not_expire_together() {
    let clock = ManualClock::new();
    let cache = Cache::<u64, u64>::builder()
        .capacity(100_000)
        .time_to_live(60 * SECOND)
        .seed(7)
        .clock(clock.clone())
        .reclaim(Reclaim::OnRequest)
        .build()
        .unwrap();
    for key in 0..100_000 {
        cache.set(key, key).unwrap();
    }
    clock.advance(57 * SECOND - Duration::from_millis(1));
    assert_eq!(cache.run_pending(usize::MAX), 0, "95 % are visible");
    let mut buckets = Vec::new();
    for _ in 0..60 {
        clock.advance(Duration::from_millis(100));
        buckets.push(cache.run_pending(usize::MAX));
    }
    clock.advance(Duration::from_millis(3));
    let rest = cache.run_pending(usize::MAX);
    assert_eq!(buckets.iter().sum::<usize>() + rest, 100_000);
    let mean = 100_000 / 60;
    assert!(buckets.iter().all(|count| *count < 3 * mean), "{buckets:?}");
}

#[test]
fn c55_timers_are_in_proportion_to_entries() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    for k in 0..300_000_u64 {
        cache.set_with_ttl(k % 1_000, k, 60 * SECOND).unwrap();
        cache.remove(&((k + 500) % 1_000));
    }
    let stats = cache.stats();
    assert!(stats.len <= 1_000);
    assert!(stats.timers <= stats.len.div_ceil(64) + 64, "{stats:?}");
    cache.clear();
    assert_eq!(cache.stats().timers, 0);
}

#[test]
fn c67_at_the_edges_of_ticks() {
    for power in [0_u32, 1, 9, 10, 11, 16, 20, 31, 32, 40] {
        for off in [-1_i64, 0, 1] {
            let micros = ((1_i64 << power) + off).max(1) as u64;
            let clock = ManualClock::new();
            let cache = exact(&clock).build().unwrap();
            let lifetime = Duration::from_micros(micros);
            cache.set_with_ttl(1, 1, lifetime).unwrap();
            clock.advance(lifetime - Duration::from_micros(1));
            assert_eq!(cache.get(&1), Some(1), "{micros}");
            assert_eq!(cache.run_pending(1), 0, "{micros}");
            clock.advance(Duration::from_micros(1));
            assert_eq!(cache.get(&1), None, "{micros}");
            clock.advance(Duration::from_millis(3));
            assert_eq!(cache.run_pending(1), 1, "{micros}");
        }
    }
}

#[test]
fn c73_a_stream_of_short_lived_keys_is_held_for_its_lifetime_only() {
    let clock = ManualClock::new();
    // Stores reclaim in their own shard: with several it depends on the hashes how soon each is met.
    let cache = exact(&clock).shards(1).build().unwrap();
    let mut most = 0;
    for key in 0..60_000 {
        cache.set_with_ttl(key, key, SECOND).unwrap();
        clock.advance(Duration::from_millis(1));
        most = most.max(cache.len());
    }
    assert!(most <= 2_000, "{most}");
}

#[test]
fn c77_an_old_timer_never_takes_a_newer_value() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    cache.set_with_ttl(1, 1, SECOND).unwrap();
    cache.remove(&1);
    cache.set_with_ttl(1, 2, 10 * SECOND).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.run_pending(10), 0);
    assert_eq!(cache.get(&1), Some(2));
}

/// Interleavings 1, 3 and 5: whichever value stays, its own lifetime applies.
#[test]
fn the_last_value_has_its_own_lifetime() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    for (first, second) in [(295, 3), (100, 500), (3_600, 1), (1, 3_600)] {
        cache.set_with_ttl(1, 1, first * SECOND).unwrap();
        cache.set_with_ttl(1, 2, second * SECOND).unwrap();
        clock.advance(second * SECOND - Duration::from_micros(1));
        cache.run_pending(10);
        assert_eq!(cache.get(&1), Some(2), "{first} {second}");
        clock.advance(Duration::from_micros(1));
        assert_eq!(cache.get(&1), None, "{first} {second}");
    }
}

#[test]
fn idle_entries_go_and_used_ones_live_as_long_as_they_may() {
    let clock = ManualClock::new();
    let cache = exact(&clock)
        .time_to_live(10 * SECOND)
        .time_to_idle(2 * SECOND)
        .build()
        .unwrap();
    cache.set(1, 1).unwrap();
    cache.set(2, 2).unwrap();
    for _ in 0..9 {
        clock.advance(SECOND);
        assert_eq!(cache.get(&1), Some(1));
        cache.run_pending(10);
    }
    assert_eq!(cache.peek(&2), None);
    assert_eq!(cache.len(), 1);
    clock.advance(SECOND);
    assert_eq!(cache.get(&1), None, "uses do not outlive the time to live");
}

#[test]
fn zero_means_expired_already() {
    let clock = ManualClock::new();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = causes.clone();
    let cache = exact(&clock)
        .listener(move |event| heard.lock().unwrap().push((event.value, event.cause)))
        .build()
        .unwrap();
    cache.set(1, 1).unwrap();
    cache.set_with_ttl(1, 2, Duration::ZERO).unwrap();
    assert!(cache.is_empty());
    assert_eq!(
        *causes.lock().unwrap(),
        [(1, Cause::Replaced), (2, Cause::Expired)]
    );
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let clock = ManualClock::new();
    let cache = exact(&clock).build().unwrap();
    let began = clock.now();
    clock.advance(10 * SECOND);
    cache.set_with_ttl(1, 1, SECOND).unwrap();
    clock.set(began - 5 * SECOND);
    assert_eq!(cache.get(&1), Some(1));
    cache.set_with_ttl(2, 2, SECOND).unwrap();
    clock.set(began + 11 * SECOND);
    assert_eq!(cache.get(&1), None);
    clock.advance(Duration::from_millis(3));
    assert_eq!(cache.run_pending(10), 2);
}
