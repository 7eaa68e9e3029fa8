//! The rules of `Wheel`: the circle made exact, and the guarantees by their numbers.

mod support {
    pub(crate) mod turn;
}

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use wheelhouse_wheel::{TimerKey, Wheel};

use support::turn::{SLOTS, jump, set, shift, turn, wheel};

// The sequences of "circle and diff, made exact", one test each.

#[test]
fn circle_moved_earlier_over_the_hand() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 6);
    let key = set(&mut wheel, 7, "k");
    assert!(shift(&mut wheel, key, 2));
    assert_eq!(turn(&mut wheel, 30), [(8, "k")]);
}

#[test]
fn circle_replaced_earlier_over_the_hand() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 6);
    let key = set(&mut wheel, 7, "v1");
    assert_eq!(wheel.remove(key), Some("v1"));
    set(&mut wheel, 2, "v2");
    assert_eq!(turn(&mut wheel, 30), [(8, "v2")]);
}

#[test]
fn circle_moved_later_then_earlier() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 6);
    let key = set(&mut wheel, 5, "k");
    assert!(shift(&mut wheel, key, 9));
    turn(&mut wheel, 1);
    assert!(shift(&mut wheel, key, 2));
    assert_eq!(turn(&mut wheel, 30), [(9, "k")]);
}

#[test]
fn circle_moved_later_by_more_than_a_turn() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 6);
    let key = set(&mut wheel, 2, "k");
    assert!(shift(&mut wheel, key, 15));
    assert_eq!(turn(&mut wheel, 60), [(21, "k")]);
}

#[test]
fn circle_moved_when_some_turns_away() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 6);
    let key = set(&mut wheel, 20, "k");
    assert_eq!(turn(&mut wheel, 7), []);
    assert!(shift(&mut wheel, key, 20));
    assert_eq!(turn(&mut wheel, 60), [(33, "k")]);
}

#[test]
fn circle_of_two_slots() {
    let mut wheel = wheel(2);
    let key = set(&mut wheel, 3, "k");
    turn(&mut wheel, 1);
    assert!(shift(&mut wheel, key, 1));
    assert_eq!(turn(&mut wheel, 10), [(2, "k")]);
}

#[test]
fn circle_of_five_slots() {
    let mut wheel = wheel(5);
    turn(&mut wheel, 1);
    let key = set(&mut wheel, 1, "k");
    assert!(shift(&mut wheel, key, 10));
    assert_eq!(turn(&mut wheel, 30), [(11, "k")]);
}

#[test]
fn circle_exactly_one_turn_after_four_ticks() {
    let mut wheel = wheel(10);
    turn(&mut wheel, 4);
    set(&mut wheel, 10, "k");
    assert_eq!(turn(&mut wheel, 30), [(14, "k")]);
}

#[test]
fn circle_removed_and_set_again() {
    let mut wheel = wheel(10);
    let key = set(&mut wheel, 4, "k");
    assert_eq!(wheel.remove(key), Some("k"));
    set(&mut wheel, 4, "k");
    assert_eq!(turn(&mut wheel, 30), [(4, "k")]);
}

#[test]
fn circle_a_move_after_drain_finds_no_timer() {
    let mut wheel = wheel(10);
    let key = set(&mut wheel, 4, "k");
    assert!(wheel.drain().map(|e| (e.deadline, e.value)).eq([(4, "k")]));
    assert!(!shift(&mut wheel, key, 2));
    assert_eq!(turn(&mut wheel, 30), []);
}

// The rules of the face.

#[test]
fn g1_what_a_callback_inserts_or_moves_waits_for_the_next_advance() {
    let mut wheel = wheel(10);
    set(&mut wheel, 3, "first");
    let other = set(&mut wheel, 7, "other");
    let same = set(&mut wheel, 3, "same tick");
    let mut fired = Vec::new();
    wheel.advance(10, |wheel, expired| {
        fired.push(expired.value);
        if expired.value == "first" {
            assert_eq!(wheel.tick(), 10, "the tick is the goal already");
            let new = wheel.insert(5, "new");
            assert_eq!(wheel.deadline(new), Some(11));
            assert!(wheel.reschedule(other, 8), "still ahead of the hand");
            assert!(wheel.reschedule(same, 2), "collected, not handed out");
        }
    });
    assert_eq!(fired, ["first"]);
    assert_eq!(
        jump(&mut wheel, 11),
        [(11, "new"), (11, "other"), (11, "same tick")]
    );
}

#[test]
fn g3_the_last_touch_orders_a_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let a = wheel.insert(700, "a");
        let b = wheel.insert(300, "b");
        wheel.insert(700, "c");
        let d = wheel.insert(700, "d");
        assert!(wheel.reschedule(b, 700));
        assert!(wheel.reschedule(a, 700), "the same deadline is a touch");
        assert!(wheel.reschedule(d, 900));
        assert!(wheel.reschedule(d, 700));
        assert_eq!(
            jump(&mut wheel, 700),
            [(700, "c"), (700, "b"), (700, "a"), (700, "d")]
        );
    }
}

#[test]
fn g2_a_panic_leaves_the_rest_pending() {
    let mut wheel = wheel(10);
    for id in 0..6 {
        set(&mut wheel, 4 + id / 3, id);
    }
    let run = AssertUnwindSafe(|| {
        wheel.advance(20, |_, expired| {
            if expired.value == 1 {
                resume_unwind(Box::new("planned"));
            }
        });
    });
    assert!(catch_unwind(run).is_err());
    wheel.validate();
    assert_eq!((wheel.len(), wheel.tick()), (4, 20));
    assert_eq!(wheel.next_deadline(), Some(4));
    set(&mut wheel, 1, 6);
    assert_eq!(jump(&mut wheel, 20), [(4, 2), (5, 3), (5, 4), (5, 5)]);
    assert_eq!(jump(&mut wheel, 21), [(21, 6)]);
}

#[test]
fn g2_pop_hands_out_one_at_a_time() {
    let mut wheel = wheel(10);
    for id in 0..4 {
        set(&mut wheel, 5, id);
    }
    assert_eq!(wheel.pop_expired(4).map(|e| e.value), None);
    assert_eq!(
        wheel.pop_expired(9).map(|e| (e.deadline, e.value)),
        Some((5, 0))
    );
    wheel.validate();
    assert_eq!(wheel.next_deadline(), Some(5));
    assert_eq!(wheel.tick(), 9);
    assert_eq!(jump(&mut wheel, 9), [(5, 1), (5, 2), (5, 3)]);
}

#[test]
fn g2_a_nested_advance_hands_out_what_is_left_of_the_outer_one() {
    let mut wheel = wheel(10);
    for delay in [3, 3, 6, 12] {
        set(&mut wheel, delay, delay);
    }
    let mut outer = Vec::new();
    let mut inner = Vec::new();
    wheel.advance(8, |wheel, expired| {
        outer.push(expired.value);
        wheel.advance(15, |_, expired| inner.push(expired.value));
    });
    assert_eq!((outer, inner), (vec![3], vec![3, 6, 12]));
    assert_eq!(wheel.tick(), 15);
    wheel.validate();
}

#[test]
fn g5_at_the_last_tick_nothing_new_fires() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let before = wheel.insert(u64::MAX, "before");
        let moved = wheel.insert(u64::MAX - 1, "moved");
        wheel.insert(u64::MAX - 1, "mover");
        let mut fired = Vec::new();
        wheel.advance(u64::MAX, |wheel, expired| {
            fired.push(expired.value);
            if expired.value == "moved" {
                wheel.insert(7, "inside");
                assert!(wheel.reschedule(before, u64::MAX));
            }
        });
        assert_eq!(fired, ["moved", "mover"]);
        assert_eq!(wheel.remove(moved), None);
        let after = wheel.insert(3, "after");
        assert_eq!(wheel.deadline(after), Some(u64::MAX));
        assert_eq!(wheel.next_deadline(), Some(u64::MAX));
        assert_eq!(jump(&mut wheel, u64::MAX), []);
        let left: Vec<_> = wheel.drain().map(|e| e.value).collect();
        assert_eq!(left, ["inside", "before", "after"]);
    }
}

#[test]
fn refreshing_a_keep_alive_relocates_it_once() {
    let mut wheel = wheel(256);
    let key = set(&mut wheel, 50, "session");
    for i in 0..1_000 {
        assert!(wheel.reschedule(key, 51 + i));
    }
    assert_eq!(jump(&mut wheel, 1_049), []);
    assert_eq!(jump(&mut wheel, 1_050), [(1_050, "session")]);
    assert_eq!(wheel.stats().relocations, 1);
}

#[test]
fn a_dead_entry_is_dropped_where_it_is_found() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let key = set(&mut wheel, 50, "k");
        assert!(shift(&mut wheel, key, 10), "its entry at 50 is dead now");
        assert!(shift(&mut wheel, key, 100), "its entry at 10 is early");
        assert_eq!(jump(&mut wheel, 60), []);
        let stats = wheel.stats();
        assert_eq!((stats.relocations, stats.stale), (1, 1));
        assert_eq!(jump(&mut wheel, 100), [(100, "k")]);
        assert_eq!(wheel.stats().relocations, 1);
    }
}

#[test]
fn g6_quiet_ticks_cost_nothing_and_the_next_deadline_is_found_once() {
    let mut wheel = wheel(256);
    for i in 0..10_000 {
        set(&mut wheel, 3_600_000 + i % 100, i);
    }
    assert_eq!(wheel.next_deadline(), Some(3_600_000));
    let before = wheel.stats();
    for now in 1..3_000_000 {
        wheel.advance(now, |_, _| unreachable!("nothing is due"));
        assert_eq!(wheel.next_deadline(), Some(3_600_000));
    }
    let after = wheel.stats();
    assert!(after.cascades - before.cascades <= 20_000, "{after:?}");
    assert_eq!(after.relocations + after.stale, 0);
}

#[test]
fn g8_keys_stay_valid_and_stale_ones_stale_across_compactions() {
    let mut wheel = wheel(256);
    let mut live = Vec::new();
    let mut stale = Vec::new();
    for era in 0..5u64 {
        for i in 0..1_000 {
            let value = era * 1_000 + i;
            let key = set(&mut wheel, 100_000 + value, value);
            live.push((key, value));
        }
        for (n, (key, value)) in std::mem::take(&mut live).into_iter().enumerate() {
            if n % 3 == 0 {
                live.push((key, value));
            } else {
                assert_eq!(wheel.remove(key), Some(value));
                stale.push(key);
            }
        }
        wheel.compact();
        wheel.validate();
        for &(key, value) in &live {
            assert_eq!(wheel.get(key), Some(&value));
        }
        assert!(stale.iter().all(|&key| wheel.get(key).is_none()));
    }
    let mut keys: Vec<_> = wheel.iter().map(|(key, _, _)| key).collect();
    keys.sort_unstable();
    let mut expected: Vec<_> = live.iter().map(|&(key, _)| key).collect();
    expected.sort_unstable();
    assert_eq!(
        keys, expected,
        "a timer's key is the one it was inserted under"
    );
    for &(key, value) in &live {
        assert!(wheel.reschedule(key, 500_000 - value));
    }
    let mut fired = Vec::new();
    wheel.advance(600_000, |_, e| fired.push((e.key, e.value)));
    fired.reverse();
    assert_eq!(fired, live);
}

#[test]
fn a_panicking_drop_does_no_harm() {
    struct Bomb {
        _life: Rc<()>,
        goes_off: bool,
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.goes_off {
                resume_unwind(Box::new("planned"));
            }
        }
    }
    let life = Rc::new(());
    let mut wheel = wheel(10);
    let fill = |wheel: &mut Wheel<Bomb>| {
        let insert = |i: u64| {
            let _life = Rc::clone(&life);
            let goes_off = i == 3;
            set(wheel, 2 + i, Bomb { _life, goes_off })
        };
        (0..8).map(insert).collect::<Vec<_>>()
    };
    let keys = fill(&mut wheel);
    let run = AssertUnwindSafe(|| drop(wheel.remove(keys[3])));
    assert!(catch_unwind(run).is_err());
    wheel.validate();
    assert_eq!(wheel.len(), 7);

    fill(&mut wheel);
    assert!(catch_unwind(AssertUnwindSafe(|| wheel.clear())).is_err());
    wheel.validate();
    assert!(wheel.is_empty() && wheel.get(keys[0]).is_none());
    assert_eq!(Rc::strong_count(&life), 1, "all others were dropped");

    fill(&mut wheel);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(wheel.drain()))).is_err());
    wheel.validate();
    assert_eq!(Rc::strong_count(&life), 1);

    fill(&mut wheel);
    assert!(catch_unwind(AssertUnwindSafe(|| wheel.advance(20, |_, _| {}))).is_err());
    wheel.validate();
    assert_eq!(wheel.len(), 4, "what was not handed out stays");
}

#[test]
fn a_key_is_twelve_bytes() {
    assert_eq!(size_of::<TimerKey>(), 12);
}

#[test]
fn slots_are_refused_by_name_and_value() {
    for slots in [0, 16_777_217, usize::MAX] {
        let refused = Wheel::<()>::with_slots(slots).expect_err("not legal");
        let message = format!("slots must be in 1..=16777216, got {slots}");
        assert_eq!(refused.to_string(), message);
    }
    assert!(Wheel::<()>::with_slots(16_777_216).is_ok());
}
