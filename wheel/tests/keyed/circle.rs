//! The sequences of "circle and diff, made exact" on the keyed wheel, one test each.

use crate::support::timeline::{MS, Timeline};

#[test]
fn circle_moved_earlier_over_the_hand() {
    let time = Timeline::with_slots(10);
    time.run_for(6 * MS);
    time.set("k", 0, 7 * MS);
    time.wheel.move_timer("k", 2 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 8 * MS)]);
}

#[test]
fn circle_replaced_earlier_over_the_hand() {
    let time = Timeline::with_slots(10);
    time.run_for(6 * MS);
    time.set("k", 1, 7 * MS);
    time.set("k", 2, 2 * MS);
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 2, 8 * MS)]);
    let stats = time.wheel.stats();
    assert_eq!((stats.set, stats.replaced, stats.fired), (2, 1, 1));
}

#[test]
fn circle_moved_later_then_earlier() {
    let time = Timeline::with_slots(10);
    time.run_for(6 * MS);
    time.set("k", 0, 5 * MS);
    time.wheel.move_timer("k", 9 * MS).unwrap();
    time.run_for(MS);
    time.wheel.move_timer("k", 2 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 9 * MS)]);
}

#[test]
fn circle_moved_later_by_more_than_a_turn() {
    let time = Timeline::with_slots(10);
    time.run_for(6 * MS);
    time.set("k", 0, 2 * MS);
    time.wheel.move_timer("k", 15 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 21 * MS)]);
}

#[test]
fn circle_moved_when_some_turns_away() {
    let time = Timeline::with_slots(10);
    time.run_for(6 * MS);
    time.set("k", 0, 20 * MS);
    time.run_for(7 * MS);
    time.wheel.move_timer("k", 20 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 33 * MS)]);
}

#[test]
fn circle_of_two_slots() {
    let time = Timeline::with_slots(2);
    time.set("k", 0, 3 * MS);
    time.run_for(MS);
    time.wheel.move_timer("k", MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 2 * MS)]);
}

#[test]
fn circle_of_five_slots() {
    let time = Timeline::with_slots(5);
    time.run_for(MS);
    time.set("k", 0, MS);
    time.wheel.move_timer("k", 10 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 11 * MS)]);
}

#[test]
fn circle_a_set_after_drain() {
    let time = Timeline::with_slots(10);
    time.set("k", 4, 4 * MS);
    let mut drained = Vec::new();
    assert_eq!(time.wheel.drain(|k, v| drained.push((k, v))), Ok(1));
    time.set("k", 6, 6 * MS);
    time.run_for(100 * MS);
    assert_eq!(drained, [("k", 4)]);
    assert_eq!(time.fired(), [("k", 6, 6 * MS)]);
}

#[test]
fn circle_a_move_after_drain_finds_no_timer() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, 4 * MS);
    assert_eq!(time.wheel.drain(|_, _| {}), Ok(1));
    assert_eq!(time.wheel.reschedule_timer("k", 2 * MS), Ok(false));
    time.wheel.move_timer("k", 2 * MS).unwrap();
    time.run_for(100 * MS);
    assert_eq!(time.fired(), []);
    assert_eq!(time.wheel.stats().moved, 0);
}

#[test]
fn circle_exactly_one_turn_after_four_ticks() {
    let time = Timeline::with_slots(10);
    time.run_for(4 * MS);
    time.set("k", 0, 10 * MS);
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 0, 14 * MS)]);
}

#[test]
fn circle_removed_and_set_again() {
    let time = Timeline::with_slots(10);
    time.set("k", 1, 4 * MS);
    time.wheel.remove_timer("k").unwrap();
    time.set("k", 2, 4 * MS);
    time.run_for(100 * MS);
    assert_eq!(time.fired(), [("k", 2, 4 * MS)]);
}
