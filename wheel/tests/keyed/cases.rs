//! Small inputs on which public timers went wrong, on the keyed wheel in virtual time, each named
//! after its id.
//!
//! Where each row is tested (those of periodic tasks and calendars belong to the scheduler):
//!
//! | file | rows |
//! |---|---|
//! | ../wheel_cases.rs, the pure structure | W1–W4, W6, W7, W10, W14, W15, W17, W22, W23, W25, W27, W30–W32, W37–W40, W42b, W43, W47, W62, W63, W67, W86 |
//! | here | W1–W4, W7, W8, W10, W11, W18, W20, W21, W25d, W30–W32, W34, W44–W47, W49, W50, W53, W55, W58, W63, W85, W86 |
//! | stream.rs | W26 |
//! | ../keyed_realtime.rs | W29, W31, W56, W59, W60, W65 |
//! | ../keyed_memory.rs | W49, W54 |

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use wheelhouse_wheel::{Clock, Executor, ManualClock, SetError, TimingWheel, WeakTimingWheel};

use crate::support::counted::{Alive, Counted};
use crate::support::timeline::{MS, Timeline};
use crate::support::within::within_a_minute;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn w1_a_dead_entry_does_not_take_the_timer_along() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, 5 * MS);
    time.wheel.move_timer("k", 2 * MS).unwrap();
    time.wheel.move_timer("k", 9 * MS).unwrap();
    time.run_for(5 * MS);
    assert_eq!(time.wheel.take_timer("k"), Ok(Some(0)));
    time.run_for(5 * MS);
    assert_eq!(time.fired(), []);
}

#[test]
fn w2_moved_to_now_fires_once_on_the_next_tick() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, 4 * MS);
    time.wheel.move_timer("k", Duration::ZERO).unwrap();
    time.run_for(10 * MS);
    assert_eq!(time.fired(), [("k", 0, MS)]);
}

#[test]
fn w3_set_after_drain_fires_at_its_own_time() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, 4 * MS);
    assert_eq!(time.wheel.drain(|_, _| {}), Ok(1));
    time.set("k", 1, 6 * MS);
    time.run_for(5 * MS);
    assert_eq!(time.fired(), []);
    time.run_for(MS);
    assert_eq!(time.fired(), [("k", 1, 6 * MS)]);
}

#[test]
fn w4_a_stall_delays_nothing_after_it() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, 10 * MS);
    time.run_for(2 * MS);
    time.clock.advance(7 * MS);
    assert_eq!(time.fired(), []);
    time.run_for(20 * MS);
    assert_eq!(time.fired(), [("k", 0, 10 * MS)]);
}

#[test]
fn w7_no_delay_is_the_next_tick() {
    let time = Timeline::with_slots(10);
    time.run_for(3 * MS + MS / 2);
    time.set("k", 0, Duration::ZERO);
    time.clock.advance(MS / 4);
    assert_eq!(time.fired(), []);
    time.run_for(MS);
    assert_eq!(time.fired(), [("k", 0, 4 * MS)]);
}

#[test]
fn w8_the_longest_delay_never_fires_and_can_be_removed() {
    let time = Timeline::with_slots(10);
    time.set("k", 0, Duration::MAX);
    time.run_for(HOUR);
    assert_eq!(time.fired(), []);
    assert_eq!(time.wheel.stats().pending, 1);
    assert!(time.wheel.contains("k"));
    assert_eq!(time.wheel.deadline("k"), None);
    assert_eq!(time.wheel.next_deadline(), None);
    assert_eq!(time.wheel.take_timer("k"), Ok(Some(0)));
    assert_eq!(time.wheel.stats().pending, 0);
}

#[test]
fn w10_half_the_range_of_a_word_and_a_fraction_of_a_tick() {
    let time = Timeline::with_slots(10);
    time.set("far", 0, Duration::from_millis(1 << 31));
    time.clock.advance(Duration::from_micros(900));
    time.set("near", 0, MS);
    time.run_for(Duration::from_millis(1 << 31));
    assert_eq!(
        time.fired(),
        [
            ("near", 0, 2 * MS),
            ("far", 0, Duration::from_millis(1 << 31))
        ]
    );
}

#[test]
fn w11_the_fraction_of_now_counts() {
    let time = Timeline::with_slots(10);
    time.clock.advance(Duration::from_micros(10_990));
    time.set("k", 0, MS);
    time.run_for(10 * MS);
    assert_eq!(time.fired(), [("k", 0, 12 * MS)]);
}

#[test]
fn w18_a_deadline_between_two_ticks_waits_for_the_second() {
    let time = Timeline::new(TimingWheel::builder().interval(10 * MS));
    time.set("k", 0, 12 * MS);
    time.clock.advance(10 * MS);
    assert_eq!(time.fired(), []);
    time.clock.advance(10 * MS);
    assert_eq!(time.fired(), [("k", 0, 20 * MS)]);
}

#[test]
fn w20_intervals_of_fractions_of_a_millisecond() {
    for (micros, at) in [(100, 10_000), (1500, 10_500)] {
        let interval = Duration::from_micros(micros);
        let time = Timeline::new(TimingWheel::builder().interval(interval));
        time.set("k", 0, 10 * MS);
        time.run_for(20 * MS);
        assert_eq!(time.fired(), [("k", 0, Duration::from_micros(at))]);
    }
}

#[test]
fn w21_a_little_less_than_ten_turns() {
    let time = Timeline::new(TimingWheel::builder().slots(4096).interval(100 * MS));
    time.set("k", 0, Duration::from_secs(3900));
    time.run_for(Duration::from_secs(4000));
    assert_eq!(time.fired(), [("k", 0, Duration::from_secs(3900))]);
}

#[test]
fn w25_five_sets_from_a_running_consumer() {
    let clock = ManualClock::new();
    let start = clock.now();
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build_cyclic(|wheel: WeakTimingWheel<u64, ()>| {
            let clock = clock.clone();
            move |key, ()| {
                if key == 0 {
                    let wheel = wheel.upgrade().unwrap();
                    for key in 1..=5 {
                        wheel.set_timer(key, (), Duration::from_secs(key)).unwrap();
                    }
                } else {
                    fired
                        .send((key, clock.now().duration_since(start)))
                        .unwrap();
                }
            }
        })
        .unwrap();
    wheel.set_timer(0, (), MS).unwrap();
    clock.run_for(Duration::from_secs(10));
    let log: Vec<_> = log.try_iter().collect();
    let expected: Vec<_> = (1..=5).map(|n| (n, Duration::from_secs(n) + MS)).collect();
    assert_eq!(log, expected);
}

#[test]
fn w30_any_delay_is_legal() {
    let delays = [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        Duration::from_millis(1 << 36),
        Duration::from_millis((1 << 36) - 1),
    ];
    for interval in [Duration::from_nanos(1), MS, Duration::MAX] {
        for delay in delays {
            let time = Timeline::new(TimingWheel::builder().interval(interval));
            time.set("set", 0, delay);
            time.set("moved", 0, MS);
            time.wheel.move_timer("moved", delay).unwrap();
            assert_eq!(time.wheel.reschedule_timer("set", delay), Ok(true));
            assert_eq!(time.wheel.len(), 2);
            assert_eq!(time.wheel.deadline("set"), time.wheel.deadline("moved"));
            time.clock.advance(delay);
            time.clock.advance(MS);
            // Time itself ends before the others: the last instant, or the last tick.
            let reached = delay != Duration::MAX
                && delay.as_nanos().div_ceil(interval.as_nanos()) < u128::from(u64::MAX)
                && interval != Duration::MAX;
            let (fired, left) = if reached { (2, 0) } else { (0, 2) };
            assert_eq!(time.fired().len(), fired, "{interval:?}, {delay:?}");
            assert_eq!(time.wheel.len(), left, "{interval:?}, {delay:?}");
        }
    }
    let time = Timeline::with_slots(10);
    time.set("below", 0, Duration::from_millis((1 << 36) - 1));
    time.set("at", 0, Duration::from_millis(1 << 36));
    time.run_for(Duration::from_millis(1 << 37));
    assert_eq!(
        time.fired(),
        [
            ("below", 0, Duration::from_millis((1 << 36) - 1)),
            ("at", 0, Duration::from_millis(1 << 36))
        ]
    );
}

#[test]
fn w31_a_clock_that_steps_back_changes_nothing() {
    let time = Timeline::with_slots(10);
    time.run_for(20 * MS);
    time.set("a", 0, 5 * MS);
    time.set("b", 0, 2 * MS);
    time.run_for(2 * MS);
    assert_eq!(time.fired(), [("b", 0, 22 * MS)]);
    time.clock.set(time.clock.now() - 10 * MS);
    assert_eq!(time.fired(), []);
    assert!(time.wheel.contains("a"));
    // Due at 17 by the clock as it is now.
    time.set("c", 0, 5 * MS);
    time.clock.advance(4 * MS);
    assert_eq!(time.fired(), []);
    time.run_for(20 * MS);
    let fired = time.fired();
    assert_eq!(fired.len(), 2);
    for (key, not_before) in [("a", 25 * MS), ("c", 17 * MS)] {
        let at = fired.iter().find(|fired| fired.0 == key).unwrap().2;
        assert!(at >= not_before, "{key} fired at {at:?}");
    }
}

#[test]
fn w31_a_turn_that_steps_back_changes_nothing() {
    let clock = ManualClock::new();
    let start = clock.now();
    let (fired, log) = mpsc::channel();
    let mut wheel = TimingWheel::builder()
        .clock(clock.clone())
        .manual(move |key: &str, ()| fired.send(key).unwrap())
        .unwrap();
    wheel.set_timer("a", (), 20 * MS).unwrap();
    wheel.set_timer("b", (), 30 * MS).unwrap();
    assert_eq!(wheel.turn(start + 25 * MS), 1);
    wheel.set_timer("c", (), 5 * MS).unwrap();
    for back in [24, 15, 10, 0] {
        assert_eq!(wheel.turn(start + back * MS), 0, "back to {back} ms");
    }
    assert_eq!(wheel.turn(start + 30 * MS), 2);
    assert_eq!(log.try_iter().collect::<Vec<_>>(), ["a", "c", "b"]);
}

#[test]
fn w32_a_key_set_again_is_another_timer() {
    let time = Timeline::with_slots(10);
    time.set("a", 0, MS);
    time.run_for(MS);
    time.set("b", 1, MS);
    assert_eq!(time.wheel.take_timer("a"), Ok(None));
    assert_eq!(time.wheel.reschedule_timer("a", HOUR), Ok(false));
    time.run_for(MS);
    assert_eq!(time.fired(), [("a", 0, MS), ("b", 1, 2 * MS)]);
}

#[test]
fn w34_a_coarse_tick_rounds_up() {
    for (delay, at) in [(110, 200), (230, 300), (149, 200), (151, 200)] {
        let time = Timeline::new(TimingWheel::builder().interval(100 * MS));
        let start = time.clock.now();
        time.set("k", 0, delay * MS);
        assert_eq!(time.wheel.deadline("k"), Some(start + at * MS));
        time.run_for(1000 * MS);
        assert_eq!(time.fired(), [("k", 0, at * MS)], "{delay} ms");
    }
}

#[test]
fn w44_calls_after_a_stop_return_closed_at_once() {
    within_a_minute(|| {
        let time = Timeline::with_slots(10);
        time.set("k", 1, HOUR);
        assert_eq!(time.wheel.stop(), [("k", 1)]);
        assert_eq!(
            time.wheel.set_timer("k", 2, MS).unwrap_err(),
            SetError::Closed("k", 2)
        );
        assert_eq!(time.wheel.move_timer("k", MS).unwrap_err().0, "k");
        assert_eq!(time.wheel.remove_timer("k").unwrap_err().0, "k");
        assert!(time.wheel.drain(|_, _| {}).is_err());
        time.run_for(HOUR);
        assert_eq!(time.fired(), []);
    });
}

#[test]
fn w45_one_slow_task_of_a_hundred_holds_up_no_other_of_a_pool() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let others = Arc::new(AtomicUsize::new(0));
        let (done, all_done) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(Executor::Threads(2))
            .build({
                let others = others.clone();
                move |key: u32, ()| {
                    if key == 0 {
                        // As slow as it can be: it waits for all the others.
                        while others.load(SeqCst) < 99 {
                            std::thread::yield_now();
                        }
                        done.send(()).unwrap();
                    } else {
                        others.fetch_add(1, SeqCst);
                    }
                }
            })
            .unwrap();
        for key in 0..100 {
            wheel.set_timer(key, (), MS).unwrap();
        }
        clock.advance(MS);
        all_done.recv().unwrap();
    });
}

#[test]
fn w46_drain_gives_each_key_its_own_value() {
    let wheel = TimingWheel::builder()
        .build(|_: String, _: String| {})
        .unwrap();
    for n in 0..10 {
        let delay = HOUR + (n * 3 % 10) * MS;
        wheel
            .set_timer(format!("key {n}"), format!("value {n}"), delay)
            .unwrap();
    }
    let mut seen = Vec::new();
    let drained = wheel.drain(|key, value| {
        assert_eq!(key.replace("key", "value"), value);
        seen.push(key);
    });
    assert_eq!(drained, Ok(10));
    seen.sort_unstable();
    let expected: Vec<_> = (0..10).map(|n| format!("key {n}")).collect();
    assert_eq!(seen, expected);
    assert!(wheel.is_empty());
}

/// Two timers of one tick, of which the first to run takes the other.
fn take_each_other(turn: bool) {
    let clock = ManualClock::new();
    let handle: Arc<Mutex<Option<WeakTimingWheel<u32, u32>>>> = Arc::default();
    let (ran, log) = mpsc::channel();
    let callback = {
        let handle = handle.clone();
        move |key: u32, value: u32| {
            let wheel = handle.lock().unwrap().as_ref().unwrap().upgrade().unwrap();
            let other = wheel.take_timer(&(1 - key)).unwrap();
            ran.send((key, value, other)).unwrap();
        }
    };
    let builder = TimingWheel::builder().clock(clock.clone());
    let set = |wheel: &TimingWheel<u32, u32>| {
        *handle.lock().unwrap() = Some(wheel.downgrade());
        wheel.set_timer(0, 10, MS).unwrap();
        wheel.set_timer(1, 11, MS).unwrap();
    };
    if turn {
        let mut wheel = builder.manual(callback).unwrap();
        set(&wheel);
        clock.advance(MS);
        wheel.turn(clock.now());
        assert_eq!(log.try_iter().collect::<Vec<_>>(), [(0, 10, Some(11))]);
    } else {
        let wheel = builder.build(callback).unwrap();
        set(&wheel);
        clock.advance(MS);
        let ran: Vec<_> = log.try_iter().collect();
        let taken = ran.iter().filter(|ran| ran.2.is_some()).count();
        assert_eq!(ran.len() + taken, 2, "taken, or it ran: {ran:?}");
        assert!(ran.iter().all(|ran| ran.1 == ran.0 + 10));
    }
}

#[test]
fn w47_removed_by_another_timer_of_the_same_tick() {
    take_each_other(true);
    take_each_other(false);
}

#[test]
fn w49_a_stop_hands_over_a_million_values_once() {
    let timers = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let alive = Alive::default();
    let wheel = TimingWheel::builder()
        .build(|_: u64, _: Counted| {})
        .unwrap();
    for key in 0..timers {
        let delay = HOUR + (key % 1000) as u32 * MS;
        wheel.set_timer(key, alive.value(key), delay).unwrap();
    }
    let left = wheel.stop();
    assert_eq!(left.len() as u64, timers);
    assert!(left.iter().all(|(key, value)| *key == value.id));
    assert_eq!(alive.count() as u64, timers);
    drop(left);
    assert_eq!(alive.count(), 0);
    drop(wheel);
    assert_eq!(alive.count(), 0);
}

#[test]
fn w50_stop_right_after_the_start() {
    within_a_minute(|| {
        for executor in [Executor::Inline, Executor::Threads(3)] {
            let wheel = TimingWheel::builder()
                .executor(executor)
                .build(|_: u32, ()| {})
                .unwrap();
            assert_eq!(wheel.stop(), []);
        }
        let wheel = TimingWheel::builder().manual(|_: u32, ()| {}).unwrap();
        assert_eq!(wheel.stop(), []);
    });
}

#[test]
fn w53_the_thousand_and_first_timer_is_refused() {
    for channel in [1, 64, 5000] {
        let wheel = TimingWheel::builder()
            .max_pending(1000)
            .channel(channel)
            .build(|_: u32, _: u32| {})
            .unwrap();
        for key in 0..1000 {
            wheel.set_timer(key, key, HOUR).unwrap();
        }
        let error = wheel.set_timer(1000, 1, HOUR).unwrap_err();
        assert_eq!(error, SetError::Full(1000, 1));
        assert_eq!(
            error.to_string(),
            "the pending limit is reached; set again when timers have fired, \
             or build with a larger `max_pending`"
        );
        assert_eq!(wheel.set_timer(5, 2, HOUR), Ok(()), "it is there already");
        wheel.remove_timer(7).unwrap();
        assert_eq!(wheel.set_timer(1000, 1, HOUR), Ok(()));
        assert_eq!(wheel.len(), 1000);
    }
}

#[test]
fn w55_a_slow_inline_callback_delays_what_comes_due_meanwhile() {
    let clock = ManualClock::new();
    let start = clock.now();
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build({
            let clock = clock.clone();
            move |key: &str, ()| {
                fired
                    .send((key, clock.now().duration_since(start)))
                    .unwrap();
                if key == "slow" {
                    clock.advance(1000 * MS);
                }
            }
        })
        .unwrap();
    wheel.set_timer("slow", (), MS).unwrap();
    wheel.set_timer("held up", (), 10 * MS).unwrap();
    wheel.set_timer("after", (), 2000 * MS).unwrap();
    clock.run_for(MS);
    clock.run_for(2000 * MS);
    let log: Vec<_> = log.try_iter().collect();
    assert_eq!(
        log,
        [("slow", MS), ("held up", 1001 * MS), ("after", 2000 * MS)]
    );
    let lateness = wheel.stats().lateness;
    // The histogram has two digits.
    assert!(lateness.max() >= 980 * MS && lateness.max() <= 1010 * MS);
    assert_eq!(lateness.quantile(0.5), Duration::ZERO);
}

#[test]
fn w55_a_slow_callback_delays_nothing_in_a_pool() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (fired, log) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(Executor::Threads(2))
            .build(move |key: u32, ()| {
                if key == 0 {
                    gate.lock().unwrap().recv().unwrap();
                }
                fired.send(key).unwrap();
            })
            .unwrap();
        wheel.set_timer(0, (), MS).unwrap();
        clock.advance(MS);
        for key in 1..100 {
            wheel.set_timer(key, (), MS).unwrap();
            clock.advance(MS);
            assert_eq!(log.recv().unwrap(), key, "within its tick");
        }
        open.send(()).unwrap();
        assert_eq!(log.recv().unwrap(), 0);
        assert!(wheel.stats().lateness.max() < 2 * MS);
    });
}

#[test]
fn w58_an_hour_back_has_no_effect() {
    let time = Timeline::with_slots(512);
    time.run_for(2 * HOUR);
    time.set("k", 0, 10 * MS);
    time.run_for(5 * MS);
    let now = time.clock.now();
    time.clock.set(now - HOUR);
    time.clock.set(now);
    time.run_for(HOUR);
    assert_eq!(time.fired(), [("k", 0, 2 * HOUR + 10 * MS)]);
}

#[test]
fn w58_no_wall_clock_is_read() {
    // The clocks know the calendar for the sake of cron; the wheels and their driver do not ask.
    let source = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut folders: Vec<_> = ["wheel", "timing_wheel", "drive"]
        .map(|folder| source.join(folder))
        .into();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                let source = std::fs::read_to_string(&path).unwrap();
                for read in ["SystemTime", "system_now"] {
                    assert!(!source.contains(read), "{}", path.display());
                }
            }
        }
    }
    assert!(files > 10);
}

#[test]
fn w63_a_timer_that_sets_itself_into_its_slot_runs_once_a_turn() {
    for (delay, times) in [(16 * MS, 6), (Duration::ZERO, 100)] {
        let clock = ManualClock::new();
        let start = clock.now();
        let (fired, log) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .slots(16)
            .clock(clock.clone())
            .build_cyclic(|wheel: WeakTimingWheel<u32, ()>| {
                let clock = clock.clone();
                move |key, ()| {
                    fired.send(clock.now().duration_since(start)).unwrap();
                    wheel.upgrade().unwrap().set_timer(key, (), delay).unwrap();
                }
            })
            .unwrap();
        wheel.set_timer(1, (), delay).unwrap();
        clock.run_for(100 * MS);
        let step = delay.max(MS);
        let expected: Vec<_> = (1..=times).map(|n| n * step).collect();
        assert_eq!(log.try_iter().collect::<Vec<_>>(), expected);
        // A jump is one pass.
        clock.advance(100 * MS);
        assert_eq!(log.try_iter().count(), 1);
    }
}

#[test]
fn w85_w86_a_callback_removes_its_own_key_and_stops() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (answer, answers) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .build_cyclic(|wheel: WeakTimingWheel<u32, u32>| {
                move |key, _| {
                    let wheel = wheel.upgrade().unwrap();
                    let taken = wheel.take_timer(&key);
                    let moved = wheel.reschedule_timer(&key, HOUR);
                    wheel.remove_timer(key).unwrap();
                    wheel.flush().unwrap();
                    let contains = wheel.contains(&key);
                    answer.send((taken, moved, contains, wheel.stop())).unwrap();
                }
            })
            .unwrap();
        wheel.set_timer(1, 1, MS).unwrap();
        clock.advance(MS);
        assert_eq!(
            answers.try_recv().unwrap(),
            (Ok(None), Ok(false), false, Vec::new())
        );
        assert_eq!(wheel.stop(), []);
        let stats = wheel.stats();
        assert_eq!((stats.fired, stats.removed, stats.moved), (1, 0, 0));
    });
}
