//! Capacity and weight are exact, over all shards and at every instant, under every policy.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use wheelhouse_cache::{Cache, Policy};

const POLICIES: [Policy; 4] = [Policy::Adaptive, Policy::Lru, Policy::Sieve, Policy::Fifo];

fn of(capacity: u64) -> Cache<u64, u64> {
    Cache::builder().capacity(capacity).build().unwrap()
}

#[test]
fn c1_never_above_the_capacity() {
    let cache = Cache::<u64, u64>::builder()
        .capacity(100)
        .shards(4)
        .build()
        .unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let cache = &cache;
                scope.spawn(move || {
                    for k in 0..50_000_u64 {
                        cache.set((k * 7 + thread) % 300, k).unwrap();
                        cache.remove(&((k * 11 + thread) % 300));
                    }
                })
            })
            .collect();
        let looker = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(cache.weight() <= 100);
                assert!(cache.stats().len <= 100);
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        looker.join().unwrap();
    });
    assert_eq!(cache.len() as u64, cache.weight());
    assert_eq!(cache.iter().count() as u64, cache.weight());
}

#[test]
fn c23_c29_every_policy_fills_up_to_its_capacity() {
    for policy in POLICIES {
        let cache = Cache::builder()
            .capacity(1_000)
            .policy(policy)
            .build()
            .unwrap();
        for key in 0..2_000_u64 {
            cache.set(key, key).unwrap();
            assert!(cache.contains(&key), "{policy:?} keeps what was just set");
        }
        assert_eq!(cache.len(), 1_000, "{policy:?}");
        assert_eq!(cache.stats().evicted, 1_000, "{policy:?}");
    }
}

#[test]
fn c27_a_weight_fits_whatever_the_shards() {
    let cache = Cache::<u64, u32>::builder()
        .weight(1_000, |_, weight| *weight)
        .shards(16)
        .build()
        .unwrap();
    for key in 0..1_000 {
        cache.set(key, 1).unwrap();
    }
    assert_eq!(cache.weight(), 1_000);
    cache.set(5_000, 500).unwrap();
    assert!(cache.contains(&5_000));
    assert_eq!(cache.weight(), 1_000);
    cache.set(6_000, 1_000).unwrap();
    assert!(cache.contains(&6_000));
    assert_eq!((cache.weight(), cache.len()), (1_000, 1));
    // What can never fit is not stored, and nothing makes room for it.
    cache.set(7_000, 1_001).unwrap();
    assert!(!cache.contains(&7_000));
    assert!(cache.contains(&6_000));
}

#[test]
fn c28_many_light_items_under_a_small_weight() {
    let cache = Cache::<u64, u64>::builder()
        .weight(100, |_, _| 1)
        .build()
        .unwrap();
    for key in 0..10_000 {
        cache.set(key, key).unwrap();
        assert!(cache.weight() <= 100);
    }
    assert_eq!(cache.len(), 100);
}

#[test]
fn c32_c38_c57_one_entry_is_there_at_once() {
    let cache = of(1);
    for key in 0..10 {
        cache.set(key, key + 1).unwrap();
        assert_eq!(cache.get(&key), Some(key + 1));
        assert_eq!(cache.len(), 1);
    }
}

#[test]
fn c31_counts_agree_with_a_recount() {
    let cache = of(128);
    for k in 0..200_000_u64 {
        cache.set(k * 31 % 1_000, k).unwrap();
        if k % 3 == 0 {
            cache.remove(&(k % 1_000));
        }
    }
    let stats = cache.stats();
    assert_eq!(stats.len, cache.iter().count() as u64);
    assert_eq!(stats.weight, stats.len);
    let left = stats.evicted + stats.removed + stats.replaced;
    assert_eq!(stats.stored, left + stats.len);
}

#[test]
fn c74_setting_what_is_there_takes_no_place() {
    for policy in POLICIES {
        let cache = Cache::builder().capacity(2).policy(policy).build().unwrap();
        cache.set("a", 1).unwrap();
        cache.set("b", 2).unwrap();
        cache.set("b", 3).unwrap();
        assert_eq!((cache.get("a"), cache.get("b")), (Some(1), Some(3)));
    }
}

#[test]
fn c82_what_weighs_nothing_is_never_evicted() {
    for policy in POLICIES {
        let cache = Cache::<u64, u32>::builder()
            .weight(10, |_, weight| *weight)
            .policy(policy)
            .build()
            .unwrap();
        for key in 0..50 {
            cache.set(key, 0).unwrap();
        }
        for key in 100..1_000 {
            cache.set(key, 3).unwrap();
            assert!(cache.weight() <= 10);
        }
        assert_eq!(cache.weight(), 9);
        assert!((0..50).all(|key| cache.contains(&key)), "{policy:?}");
        assert_eq!(cache.len(), 53);
    }
}

/// A hasher with one answer.
#[derive(Debug, Clone, Default)]
struct Same;

impl BuildHasher for Same {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Same
    }
}

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}
    fn finish(&self) -> u64 {
        0xABCD_EF01_2345_6789
    }
}

#[test]
fn c60_keys_are_told_apart_by_equality() {
    let cache = Cache::<u64, u64>::builder()
        .capacity(200)
        .hasher(Same)
        .build()
        .unwrap();
    for key in 0..500 {
        cache.set(key, key * 2).unwrap();
    }
    assert_eq!(cache.len(), 200);
    for (key, value) in cache.iter() {
        assert_eq!(cache.peek(&key), Some(value));
        assert_eq!(value, key * 2);
    }
    for key in 0..500 {
        cache.remove(&key);
    }
    assert!(cache.is_empty());
}

#[test]
fn strict_lru_in_the_order_of_the_last_use() {
    let cache = Cache::builder()
        .capacity(3)
        .policy(Policy::Lru)
        .build()
        .unwrap();
    for key in 1..=4 {
        cache.set(key, ()).unwrap();
    }
    assert!(!cache.contains(&1));
    assert!(cache.get(&2).is_some());
    cache.set(5, ()).unwrap();
    cache.set(6, ()).unwrap();
    let mut left: Vec<i32> = cache.iter().map(|(key, ())| key).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 5, 6]);
}

#[test]
fn c35_a_scan_does_not_drive_out_what_is_used() {
    let cache = of(1_000);
    let get_or_insert = |key| {
        if cache.get(&key).is_none() {
            cache.set(key, key).unwrap();
        }
    };
    for _ in 0..20 {
        (0..500).for_each(get_or_insert);
    }
    (10_000..20_000).for_each(get_or_insert);
    let kept = (0..500).filter(|key| cache.contains(key)).count();
    assert!(kept >= 480, "{kept} of 500 are left");
}

#[test]
fn c72_asked_for_often_is_admitted_over_once() {
    let cache = of(100);
    for key in 0..100 {
        cache.get(&key);
        cache.set(key, key).unwrap();
    }
    for _ in 0..5 {
        cache.get(&7_777);
    }
    cache.set(7_777, 1).unwrap();
    // It has to leave the window for the others to come in, and stays.
    for key in 1_000..1_500 {
        cache.get(&key);
        cache.set(key, key).unwrap();
    }
    assert!(cache.contains(&7_777));
}

#[test]
fn refused_arguments_are_named() {
    let build = |builder: wheelhouse_cache::Builder<u8, u8>| builder.build().unwrap_err();
    let refused = build(Cache::builder());
    assert_eq!(
        refused.to_string(),
        "bound is missing; say capacity, weight or unbounded"
    );
    assert_eq!(build(Cache::builder().capacity(0)).argument(), "capacity");
    let zero = std::time::Duration::ZERO;
    let builder = || Cache::builder().capacity(1);
    assert_eq!(
        build(builder().time_to_live(zero)).argument(),
        "time_to_live"
    );
    assert_eq!(
        build(builder().time_to_idle(zero)).argument(),
        "time_to_idle"
    );
    assert_eq!(
        build(builder().jitter(1.5)).to_string(),
        "jitter is 1.5; allowed are 0 to 1"
    );
    assert_eq!(build(builder().shards(65)).argument(), "shards");
}
