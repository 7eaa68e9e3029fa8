//! Small inputs on which public timers went wrong, each named after its id in the case table.

mod support {
    pub(crate) mod turn;
}

use support::turn::{SLOTS, jump, set, shift, turn, wheel};

#[test]
fn w1_a_dead_entry_scanned_does_not_take_the_timer_along() {
    let mut wheel = wheel(10);
    let key = set(&mut wheel, 5, "k");
    shift(&mut wheel, key, 2);
    shift(&mut wheel, key, 9);
    assert_eq!(turn(&mut wheel, 5), []);
    assert_eq!(wheel.remove(key), Some("k"));
    assert_eq!(turn(&mut wheel, 30), []);
}

#[test]
fn w2_moved_to_now_fires_once_on_the_next_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let key = set(&mut wheel, 4, "k");
        assert!(shift(&mut wheel, key, 0));
        assert_eq!(wheel.deadline(key), Some(1));
        assert_eq!(turn(&mut wheel, 10), [(1, "k")]);
    }
}

#[test]
fn w3_set_after_drain_fires_at_its_own_time() {
    let mut wheel = wheel(10);
    set(&mut wheel, 4, "k");
    assert_eq!(wheel.drain().count(), 1);
    set(&mut wheel, 6, "k");
    assert_eq!(turn(&mut wheel, 20), [(6, "k")]);
}

#[test]
fn w4_a_stall_delays_nothing_after_it() {
    let mut wheel = wheel(10);
    set(&mut wheel, 10, "k");
    set(&mut wheel, 5, "in the stall");
    assert_eq!(turn(&mut wheel, 2), []);
    assert_eq!(jump(&mut wheel, 9), [(5, "in the stall")]);
    assert_eq!(turn(&mut wheel, 20), [(10, "k")]);
}

#[test]
fn w6_whole_turns_from_each_phase_rearmed() {
    for slots in [1, 2, 10, 64] {
        for phase in 0..slots as u64 {
            for turns in 1..=3 {
                let delay = turns * slots as u64;
                let mut wheel = wheel(slots);
                wheel.advance(phase, |_, _| {});
                set(&mut wheel, delay, 0);
                let mut due = phase;
                for round in 0..12 {
                    due += delay;
                    assert_eq!(wheel.next_deadline(), Some(due));
                    assert_eq!(jump(&mut wheel, due - 1), []);
                    assert_eq!(jump(&mut wheel, due), [(due, round)]);
                    set(&mut wheel, delay, round + 1);
                }
            }
        }
    }
}

#[test]
fn w7_a_deadline_in_the_past_fires_on_the_next_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        turn(&mut wheel, 100);
        for past in [0, 1, 99, 100] {
            let key = wheel.insert(past, past);
            assert_eq!(wheel.deadline(key), Some(101));
        }
        assert_eq!(jump(&mut wheel, 100), [], "the same tick again");
        let all = [(101, 0), (101, 1), (101, 99), (101, 100)];
        assert_eq!(jump(&mut wheel, 101), all);
    }
}

#[test]
fn w10_half_the_near_range_and_the_next_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        set(&mut wheel, 1 << 31, "far");
        set(&mut wheel, 1, "near");
        assert_eq!(turn(&mut wheel, 1), [(1, "near")]);
        assert_eq!(jump(&mut wheel, (1 << 31) - 1), []);
        assert_eq!(jump(&mut wheel, 1 << 31), [(1 << 31, "far")]);
    }
}

#[test]
fn w14_more_than_two_turns_away_fires_once() {
    let mut wheel = wheel(10);
    set(&mut wheel, 25, "k");
    assert_eq!(turn(&mut wheel, 60), [(25, "k")]);
}

#[test]
fn w15_removed_before_its_tick_never_fires() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let key = set(&mut wheel, 1, "k");
        assert_eq!(wheel.remove(key), Some("k"));
        assert_eq!(turn(&mut wheel, 2), []);
    }
}

#[test]
fn w17_beyond_the_ring_is_exact() {
    let mut wheel = wheel(256);
    for delay in [300, 512, 700] {
        set(&mut wheel, delay, delay);
    }
    assert_eq!(
        turn(&mut wheel, 1_000),
        [(300, 300), (512, 512), (700, 700)]
    );
}

#[test]
fn w22_one_tick_is_one_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        set(&mut wheel, 1, "k");
        assert_eq!(jump(&mut wheel, 0), []);
        assert_eq!(turn(&mut wheel, 3), [(1, "k")]);
    }
}

#[test]
fn w23_far_then_near() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        set(&mut wheel, (1 << 36) + 5, "far");
        assert_eq!(wheel.next_deadline(), Some((1 << 36) + 5));
        let start = (1 << 30) - 500;
        assert_eq!(jump(&mut wheel, start), []);
        set(&mut wheel, 1_000, "near");
        assert_eq!(wheel.next_deadline(), Some(start + 1_000));
        assert_eq!(jump(&mut wheel, start + 999), []);
        assert_eq!(jump(&mut wheel, start + 1_000), [(start + 1_000, "near")]);
        assert_eq!(wheel.next_deadline(), Some((1 << 36) + 5));
        assert_eq!(jump(&mut wheel, 1 << 36), []);
        assert_eq!(jump(&mut wheel, 1 << 40), [((1 << 36) + 5, "far")]);
    }
}

#[test]
fn w25_moves_and_sets_after_the_next_deadline_was_asked() {
    for slots in SLOTS {
        let mut a = wheel(slots);
        turn(&mut a, 1);
        let key = set(&mut a, 200, "a");
        assert_eq!(a.next_deadline(), Some(201));
        turn(&mut a, 2);
        assert!(a.reschedule(key, 5));
        assert_eq!(a.next_deadline(), Some(5));
        assert_eq!(turn(&mut a, 10), [(5, "a")]);

        let mut b = wheel(slots);
        set(&mut b, 10_000, "foo");
        assert_eq!(b.next_deadline(), Some(10_000));
        set(&mut b, 600, "bar");
        assert_eq!(b.next_deadline(), Some(600));
        assert_eq!(turn(&mut b, 700), [(600, "bar")]);

        let mut c = wheel(slots);
        let key = set(&mut c, 100, "c");
        turn(&mut c, 80);
        assert!(c.reschedule(key, 120));
        assert_eq!(c.next_deadline(), Some(120));
        assert_eq!(turn(&mut c, 100), [(120, "c")]);

        let mut d = wheel(slots);
        set(&mut d, 1, 0);
        let mut fired = Vec::new();
        d.advance(1, |wheel, _| {
            for seconds in 1..=5 {
                set(wheel, seconds * 1_000, seconds);
            }
        });
        while let Some(due) = d.next_deadline() {
            fired.extend(jump(&mut d, due));
        }
        assert_eq!(
            fired,
            [(1_001, 1), (2_001, 2), (3_001, 3), (4_001, 4), (5_001, 5)]
        );
    }
}

#[test]
fn w27_next_deadline_is_exact_at_a_slot_boundary() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        set(&mut wheel, 100, "a");
        set(&mut wheel, 120, "b");
        assert_eq!(jump(&mut wheel, 64), []);
        assert_eq!(wheel.next_deadline(), Some(100));
    }
}

#[test]
fn w30_any_tick_is_legal() {
    let edges = [u64::MAX, u64::MAX - 1, 1 << 36, (1 << 36) - 1, 1 << 63, 0];
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let keys: Vec<_> = edges.iter().map(|&tick| wheel.insert(tick, tick)).collect();
        for &key in &keys {
            for &tick in &edges {
                assert!(wheel.reschedule(key, tick));
                wheel.validate();
            }
        }
        for (&key, &tick) in keys.iter().zip(&edges) {
            assert!(wheel.reschedule(key, tick));
            wheel.validate();
        }
        let mut order = edges;
        order.sort_unstable();
        let expected = order.map(|tick| (tick.max(1), tick));
        assert_eq!(jump(&mut wheel, u64::MAX), expected);
        assert!(wheel.is_empty());
    }
}

#[test]
fn w31_an_earlier_tick_changes_nothing() {
    let mut wheel = wheel(10);
    set(&mut wheel, 30, "k");
    assert_eq!(jump(&mut wheel, 20), []);
    assert_eq!(jump(&mut wheel, 10), []);
    assert_eq!(wheel.pop_expired(10), None);
    assert_eq!(wheel.tick(), 20);
    assert_eq!(wheel.next_deadline(), Some(30));
    assert_eq!(jump(&mut wheel, 30), [(30, "k")]);
}

#[test]
fn w32_a_stale_key_does_nothing_to_the_slots_next_tenant() {
    let mut wheel = wheel(256);
    let a = set(&mut wheel, 1, "a");
    assert_eq!(turn(&mut wheel, 1), [(1, "a")]);
    let b = set(&mut wheel, 5, "b");
    assert_ne!(a, b);
    assert_eq!(wheel.remove(a), None);
    assert!(!shift(&mut wheel, a, 1));
    assert_eq!((wheel.get(a), wheel.deadline(a)), (None, None));
    assert_eq!(turn(&mut wheel, 10), [(6, "b")]);
}

#[test]
fn w37_around_the_span_of_every_level() {
    for slots in SLOTS {
        for phase in [0, 1, 63, 255, 4_095, 70_000] {
            for bit in 0..64 {
                for delay in [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1] {
                    let mut wheel = wheel(slots);
                    wheel.advance(phase, |_, _| {});
                    let due = phase.saturating_add(delay.max(1));
                    set(&mut wheel, delay, "k");
                    assert_eq!(wheel.next_deadline(), Some(due));
                    assert_eq!(jump(&mut wheel, due - 1), []);
                    assert_eq!(jump(&mut wheel, due), [(due, "k")]);
                }
            }
        }
    }
}

/// A sequence of numbers that looks random and is the same every time.
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let step = |state: &u64| Some(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    std::iter::successors(Some(seed), step).map(|state| state >> 24)
}

#[test]
fn w38_no_error_at_any_phase() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let mut random = numbers(38);
        let mut next = || random.next().expect("endless");
        let mut due = Vec::new();
        let mut fired = Vec::new();
        for id in 0..500 {
            let now = wheel.tick() + next() % 50;
            fired.extend(jump(&mut wheel, now));
            let delay = 1 + next() % 5_000;
            due.push((now + delay, id));
            set(&mut wheel, delay, id);
        }
        for _ in 0..6_000 {
            let now = wheel.tick() + 1;
            wheel.advance(now, |_, e| {
                assert_eq!(e.deadline, now);
                fired.push((now, e.value));
            });
        }
        due.sort_unstable();
        fired.sort_unstable();
        assert_eq!(fired, due);
    }
}

#[test]
fn w39_delays_over_all_levels_fire_exactly() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let mut due: Vec<_> = numbers(39)
            .take(2_000)
            .enumerate()
            .map(|(id, random)| (1 + (random >> (random % 40)), id))
            .collect();
        for &(deadline, id) in &due {
            wheel.insert(deadline, id);
        }
        due.sort_unstable();
        let mut fired = Vec::new();
        while let Some(next) = wheel.next_deadline() {
            wheel.advance(next - 1, |_, e| panic!("{} is early", e.deadline));
            wheel.advance(next, |_, e| fired.push((next, e.value)));
        }
        assert_eq!(fired, due);
    }
}

#[test]
fn w40_removed_after_a_long_idle_time() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let key = wheel.insert(1 << 34, "a");
        assert_eq!(jump(&mut wheel, 1 << 33), []);
        assert_eq!(wheel.remove(key), Some("a"));
        set(&mut wheel, 3, "b");
        assert_eq!(turn(&mut wheel, 5), [((1 << 33) + 3, "b")]);
    }
}

#[test]
fn w42b_a_turn_less_one_and_a_turn_from_the_last_slot() {
    for slots in [2, 10, 64, 256, 4096] {
        let n = slots as u64;
        let mut wheel = wheel(slots);
        assert_eq!(jump(&mut wheel, n - 1), []);
        set(&mut wheel, n - 1, "N-1");
        set(&mut wheel, n, "N");
        assert_eq!(
            turn(&mut wheel, 2 * n),
            [(2 * n - 2, "N-1"), (2 * n - 1, "N")]
        );
    }
}

#[test]
fn w43_an_hour_and_a_day_on_a_ring_of_an_hour() {
    let mut wheel = wheel(3_600);
    for delay in [86_400, 3_601, 3_600] {
        set(&mut wheel, delay, ());
    }
    let mut fired = Vec::new();
    for now in 1..=90_000 {
        wheel.advance(now, |_, _| fired.push(now));
    }
    assert_eq!(fired, [3_600, 3_601, 86_400]);
}

#[test]
fn w47_removed_by_another_timer_of_the_same_tick() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let keys: Vec<_> = (0..3).map(|id| set(&mut wheel, 5, id)).collect();
        let mut fired = Vec::new();
        wheel.advance(5, |wheel, expired| {
            fired.push(expired.value);
            if expired.value == 1 {
                assert_eq!(wheel.remove(keys[2]), Some(2), "it has not run");
                assert_eq!(wheel.remove(keys[0]), None, "it has run");
            }
            wheel.validate();
        });
        assert_eq!(fired, [0, 1]);
        assert!(wheel.is_empty());
    }
}

#[test]
fn w62_five_years_of_milliseconds_cost_three_timers() {
    let year = 31_557_600_000;
    let mut wheel = wheel(256);
    for years in [1, 3, 5] {
        set(&mut wheel, years * year, years);
    }
    let fired = jump(&mut wheel, 5 * year);
    assert_eq!(fired, [(year, 1), (3 * year, 3), (5 * year, 5)]);
    let stats = wheel.stats();
    assert!(stats.cascades <= 15, "once per timer and level: {stats:?}");
}

#[test]
fn w63_a_timer_that_sets_itself_into_its_slot_runs_once_a_turn() {
    for slots in SLOTS {
        let mut wheel = wheel(slots);
        let turn_ticks = slots as u64;
        set(&mut wheel, turn_ticks, 0);
        for round in 0..5 {
            let now = (round + 1) * turn_ticks;
            let mut fired = 0;
            wheel.advance(now, |wheel, expired| {
                fired += 1;
                assert_eq!(expired.value, round);
                set(wheel, turn_ticks, round + 1);
            });
            assert_eq!(fired, 1, "one pass, then the next turn");
        }
    }
}

#[test]
fn w67_the_middle_one_removed_leaves_the_two() {
    let mut wheel = wheel(256);
    let keys: Vec<_> = [10, 20, 30]
        .map(|delay| set(&mut wheel, delay, delay))
        .into();
    assert_eq!(wheel.remove(keys[1]), Some(20));
    let left: Vec<_> = wheel.iter().map(|(key, _, &value)| (key, value)).collect();
    assert_eq!(left, [(keys[0], 10), (keys[2], 30)]);
}

#[test]
fn w86_a_callback_that_removes_its_own_key_gets_none() {
    let mut wheel = wheel(256);
    set(&mut wheel, 1, "k");
    wheel.advance(1, |wheel, expired| {
        assert_eq!(wheel.remove(expired.key), None);
        assert!(!wheel.reschedule(expired.key, 9));
    });
    assert!(wheel.is_empty());
}
