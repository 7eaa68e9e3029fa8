//! Heap bytes of `Wheel` after hostile sequences, by a counting allocator: G7.

mod support {
    pub(crate) mod heap;
}

use std::rc::Rc;

use wheelhouse_wheel::{TimerKey, Wheel};

use support::heap::{alone, heap, since};

/// What a pending timer with a value of 8 bytes needs: a node and an entry.
const NEED: usize = 32 + 8;

/// What a wheel may hold beyond four times the need.
const SLACK: usize = 64 * 1024;

fn assert_bounded(wheel: &Wheel<u64>, bytes: usize, when: &str) {
    let bound = 4 * NEED * wheel.len() + SLACK;
    let live = wheel.len();
    assert!(
        bytes <= bound,
        "{when}: {bytes} bytes for {live} timers, at most {bound}"
    );
}

/// Numbers that look random and are the same every time.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    *state >> 24
}

#[test]
fn a_million_timers_take_at_most_48_bytes_each() {
    let _alone = alone();
    let mut seed = 1;
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..1_000_000 {
        wheel.insert(1 + random(&mut seed) % 60_000, i);
    }
    let per_timer = since(before) as f64 / 1e6;
    println!("{per_timer:.2} bytes per timer");
    assert!(per_timer <= 48.0, "{per_timer} bytes per timer");
}

#[test]
fn a_removed_value_is_dropped_at_once() {
    let _alone = alone();
    let value = Rc::new(());
    let mut wheel = Wheel::new();
    let keys: Vec<_> = (0..100)
        .map(|i| wheel.insert(i << 20, Rc::clone(&value)))
        .collect();
    for (left, key) in (0..100).rev().zip(keys) {
        wheel.remove(key);
        assert_eq!(Rc::strong_count(&value), 1 + left);
    }
}

#[test]
fn w54_removing_all_gives_the_memory_back_without_waiting() {
    let _alone = alone();
    let mut seed = 54;
    let mut keys: Vec<TimerKey> = Vec::with_capacity(1_000_000);
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..1_000_000 {
        keys.push(wheel.insert(3_600_000 + random(&mut seed) % 1_000, i));
    }
    assert!(since(before) > 32_000_000);
    for key in keys.drain(..) {
        wheel.remove(key).expect("pending");
    }
    let bytes = since(before);
    assert!(bytes < SLACK, "{bytes} bytes for nothing");
}

#[test]
fn endless_set_and_remove_with_long_delays_stays_proportional() {
    let _alone = alone();
    let mut seed = 7;
    let live = 10_000;
    let mut keys = Vec::with_capacity(live);
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..live as u64 {
        keys.push(wheel.insert(1 << 30, i));
    }
    let mut peak = 0;
    for i in 0..1_000_000 {
        let at = random(&mut seed) as usize % live;
        wheel.remove(keys[at]).expect("pending");
        let far = random(&mut seed) % (1 << 34);
        keys[at] = wheel.insert(3_600_000 + far, i);
        if i % 1_000 == 0 {
            wheel.advance(i / 1_000, |_, e| panic!("{} is early", e.deadline));
            peak = peak.max(since(before));
        }
    }
    // Between sweeps there are up to three dead entries for every live timer.
    assert!(peak <= 4 * NEED * live + SLACK, "{peak} bytes at the peak");
    wheel.compact();
    assert_bounded(&wheel, since(before), "compacted");
}

#[test]
fn g7_random_survivors() {
    let _alone = alone();
    for one_in in [2, 5, 10, 100, 1_000, 50_000] {
        let mut seed = one_in;
        let mut keys = Vec::with_capacity(300_000);
        let before = heap();
        let mut wheel = Wheel::new();
        for i in 0..300_000 {
            keys.push(wheel.insert(1 + random(&mut seed) % 600_000, i));
        }
        for &key in &keys {
            if !random(&mut seed).is_multiple_of(one_in) {
                wheel.remove(key).expect("pending");
            }
        }
        // By itself: at a quarter, or with at most three dead entries a timer.
        assert_bounded(&wheel, since(before), "not compacted");
        wheel.compact();
        assert_bounded(&wheel, since(before), "compacted");
        let found = keys.iter().filter(|&&key| wheel.get(key).is_some());
        assert_eq!(found.count(), wheel.len(), "old keys stay valid");
    }
}

#[test]
fn g7_many_generations_of_survivors() {
    let _alone = alone();
    let mut seed = 3;
    let before = heap();
    let mut wheel = Wheel::new();
    let mut keys = Vec::with_capacity(100_000);
    for round in 0..60 {
        for i in 0..3_000 {
            keys.push(wheel.insert(1 + random(&mut seed) % 10_000_000, i));
        }
        keys.retain(|&key| random(&mut seed).is_multiple_of(10) || wheel.remove(key).is_none());
        keys.retain(|&key| wheel.get(key).is_some());
        if round % 3 == 0 {
            wheel.compact();
        }
    }
    let keys_bytes = keys.capacity() * size_of::<TimerKey>();
    wheel.compact();
    assert_bounded(&wheel, since(before) - keys_bytes, "after 20 eras");
    assert!(wheel.stats().compactions >= 20);
}

#[test]
fn g7_sparse_wheels() {
    let _alone = alone();
    for slots in [1, 256, 4_096, 65_536, 16_777_216] {
        for count in [0, 1, 100, 5_000, 65_000] {
            for spread in [1, 3, 1 << 12, 1 << 26, 1 << 33, 1 << 40] {
                let before = heap();
                let mut wheel = Wheel::with_slots(slots).expect("legal");
                for i in 0..count {
                    wheel.insert(1 + i * spread, i);
                }
                let name = format!("{slots} slots, {count} timers {spread} apart");
                assert_bounded(&wheel, since(before), &name);
                wheel.compact();
                assert_bounded(&wheel, since(before), &format!("{name}, compacted"));
                wheel.next_deadline();
                wheel.compact();
                assert_bounded(&wheel, since(before), &format!("{name}, searched"));
            }
        }
    }
}

#[test]
fn g7_moves_both_ways() {
    let _alone = alone();
    let mut keys = Vec::with_capacity(50_000);
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..50_000 {
        keys.push(wheel.insert(1_000_000 + i, i));
    }
    for round in 1..=40 {
        let later = round % 2 == 0;
        for (i, &key) in keys.iter().enumerate() {
            let deadline = if later {
                1 << (20 + round % 20)
            } else {
                900_000 - round * 100
            };
            assert!(wheel.reschedule(key, deadline + i as u64));
        }
        if round % 5 == 0 {
            wheel.next_deadline();
        }
        assert_bounded(&wheel, since(before), "moving");
    }
    wheel.compact();
    assert_bounded(&wheel, since(before), "compacted");
}

#[test]
fn g7_a_tick_with_everything_in_it() {
    let _alone = alone();
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..200_000 {
        wheel.insert(5, i);
    }
    let mut fired = 0;
    wheel.advance(5, |_, _| fired += 1);
    assert_eq!(fired, 200_000);
    wheel.insert(10, 0);
    wheel.compact();
    assert_bounded(&wheel, since(before), "compacted");
}

#[test]
fn g7_fired_and_cleared_wheels_are_small() {
    let _alone = alone();
    let before = heap();
    let mut wheel = Wheel::new();
    for i in 0..200_000 {
        wheel.insert(1 + i % 5_000, i);
    }
    for now in 1..=5_000 {
        wheel.advance(now, |_, _| {});
    }
    assert_bounded(&wheel, since(before), "all fired");
    for i in 0..200_000 {
        wheel.insert(6_000 + i % 5_000, i);
    }
    wheel.clear();
    assert_bounded(&wheel, since(before), "cleared");
    for i in 0..200_000 {
        wheel.insert(6_000 + i % 5_000, i);
    }
    drop(wheel.drain());
    assert_bounded(&wheel, since(before), "drained");
}
