//! Heap bytes of `TimingWheel`, by a counting allocator.

mod support {
    pub(crate) mod heap;
    pub(crate) mod within;
}

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use wheelhouse_wheel::{ManualClock, TimingWheel};

use support::heap::{alone, heap, since};
use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;

/// What a timer of two words may take.
const EACH: usize = 96;

/// What an empty wheel of 16 shards may hold on to: what the pure wheel may, for each, and a
/// channel of commands.
const SLACK: usize = 16 * (64 * 1024 + 64 * 64);

fn wheel() -> (ManualClock, TimingWheel<u64, u64>) {
    let clock = ManualClock::new();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build(|_: u64, _: u64| {})
        .unwrap();
    (clock, wheel)
}

#[test]
fn a_timer_of_two_words_takes_at_most_96_bytes() {
    let timers = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let _alone = alone();
    let (_clock, wheel) = wheel();
    let before = heap();
    for key in 0..timers {
        let delay = Duration::from_millis(60_000 + key * 7919 % 60_000);
        wheel.set_timer(key, key, delay).unwrap();
    }
    wheel.flush().unwrap();
    let each = since(before) as f64 / timers as f64;
    println!("{each:.1} bytes per timer at {timers}");
    assert_eq!(wheel.len() as u64, timers);
    assert!(each <= EACH as f64, "{each} bytes per timer at {timers}");
}

#[test]
fn values_that_leave_are_freed_at_once() {
    const VALUES: u64 = 2000;
    const SIZE: usize = 4096;
    let _alone = alone();
    let clock = ManualClock::new();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build(|_: u64, _: Box<[u8; SIZE]>| {})
        .unwrap();
    let base = heap();
    let filled = |expected: u64| {
        let bytes = since(base);
        let values = expected as usize * SIZE;
        assert!(
            (values..values + MIB).contains(&bytes),
            "{bytes} bytes for {expected} values"
        );
    };
    let fill = || {
        for key in 0..VALUES {
            wheel.set_timer(key, Box::new([0; SIZE]), HOUR).unwrap();
        }
        wheel.flush().unwrap();
        filled(VALUES);
    };

    fill();
    for key in 0..VALUES {
        assert!(wheel.take_timer(&key).unwrap().is_some());
        if key % 500 == 0 {
            filled(VALUES - key - 1);
        }
    }
    filled(0);

    fill();
    for key in 0..VALUES {
        wheel.remove_timer(key).unwrap();
    }
    wheel.flush().unwrap();
    filled(0);

    fill();
    for key in 0..VALUES {
        wheel.remove_timer(key).unwrap();
    }
    clock.advance(MS);
    filled(0);

    // Replaced ones, ten times over.
    for _ in 0..10 {
        fill();
    }
    assert_eq!(wheel.drain(|_, _| {}), Ok(VALUES as usize));
    filled(0);

    fill();
    clock.advance(2 * HOUR);
    filled(0);

    fill();
    drop(wheel.stop());
    filled(0);
}

#[test]
fn endless_sets_and_removals_with_long_delays_stay_bounded() {
    let _alone = alone();
    let (clock, wheel) = wheel();
    let before = heap();
    let mut most = 0;
    for round in 0..100u64 {
        for n in 0..10_000 {
            let key = round * 10_000 + n;
            let delay = HOUR + (key % 1000) as u32 * MS;
            wheel.set_timer(key, key, delay).unwrap();
            if n % 2 == 0 {
                wheel.remove_timer(key).unwrap();
            } else if key > 2000 {
                // Others live on for a while, so that it is not always the newest that goes.
                wheel.remove_timer(key - 2000).unwrap();
            }
        }
        clock.advance(MS);
        most = most.max(since(before));
    }
    let live = wheel.len();
    assert!(live < 3000, "{live} live");
    println!("{most} bytes at most, {live} live timers");
    let bound = 4 * EACH * 3000 + SLACK;
    assert!(most <= bound, "{most} bytes, at most {bound}");
}

#[test]
fn endless_moves_stay_bounded() {
    let _alone = alone();
    let (clock, wheel) = wheel();
    let mut rng = SmallRng::seed_from_u64(1);
    for key in 0..1000 {
        wheel.set_timer(key, key, HOUR).unwrap();
    }
    wheel.flush().unwrap();
    let before = heap();
    let mut most = 0;
    for _ in 0..300 {
        for key in 0..1000 {
            // Both ways: earlier ones leave an entry behind each.
            let delay = HOUR + rng.random_range(0..3_600_000) * MS;
            wheel.move_timer(key, delay).unwrap();
        }
        clock.advance(MS);
        most = most.max(since(before));
    }
    println!("{most} bytes at most");
    assert_eq!(wheel.len(), 1000);
    let bound = 4 * EACH * 1000 + SLACK;
    assert!(most <= bound, "{most} bytes, at most {bound}");
}

#[test]
fn w54_removing_all_gives_the_memory_back_at_once() {
    let timers = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let _alone = alone();
    let (_clock, wheel) = wheel();
    let before = heap();
    for key in 0..timers {
        wheel.set_timer(key, key, HOUR).unwrap();
    }
    wheel.flush().unwrap();
    let full = since(before);
    for key in 0..timers {
        wheel.remove_timer(key).unwrap();
    }
    wheel.flush().unwrap();
    let empty = since(before);
    println!("{full} bytes full, {empty} empty");
    assert!(full > SLACK + MIB);
    assert!(empty <= SLACK, "{empty} bytes, at most {SLACK}");
}

#[test]
fn memory_is_proportional_to_what_is_live() {
    const TIMERS: u64 = 100_000;
    let _alone = alone();
    let (_clock, wheel) = wheel();
    let mut rng = SmallRng::seed_from_u64(2);
    let mut keys: Vec<u64> = (0..TIMERS).collect();
    keys.shuffle(&mut rng);
    let before = heap();
    for key in 0..TIMERS {
        let delay = Duration::from_millis(rng.random_range(1000..100_000_000));
        wheel.set_timer(key, key, delay).unwrap();
    }
    let mut live = TIMERS as usize;
    for percent in [50, 25, 10, 1] {
        let leave = TIMERS as usize * percent / 100;
        for key in keys.drain(leave..) {
            wheel.remove_timer(key).unwrap();
        }
        wheel.flush().unwrap();
        live = wheel.len();
        assert_eq!(live, leave);
        let bytes = since(before);
        println!("{bytes} bytes for {live} timers");
        let bound = 4 * EACH * live + SLACK;
        assert!(bytes <= bound, "{bytes} bytes for {live}, at most {bound}");
    }
    let mut left: Vec<u64> = wheel.stop().into_iter().map(|pair| pair.0).collect();
    left.sort_unstable();
    keys.sort_unstable();
    assert_eq!((left.len(), left), (live, keys));
}

#[test]
fn w49_a_stopped_wheel_and_a_dropped_one_leave_nothing() {
    within_a_minute(|| {
        let _alone = alone();
        // What a thread and the allocator keep for themselves is there after a first wheel.
        drop(wheel());
        let before = heap();
        for stop in [true, false] {
            let (_clock, wheel) = wheel();
            for key in 0..100_000 {
                wheel.set_timer(key, key, HOUR).unwrap();
            }
            if stop {
                assert_eq!(wheel.stop().len(), 100_000);
            }
            drop(wheel);
            let bytes = since(before);
            assert!(bytes < 64 * 1024, "{bytes} bytes are left");
        }
    });
}
