//! Draining a `TimingWheel`: one instant, in firing order, with user code that uses the wheel.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wheelhouse_wheel::{Executor, ManualClock, TimingWheel, WeakTimingWheel};

use crate::support::counted::{Alive, Counted};
use crate::support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn pairs_come_in_firing_order() {
    let wheel = TimingWheel::builder()
        .clock(ManualClock::new())
        .build(|_: u32, _: u32| {})
        .unwrap();
    for key in 0..1000 {
        let place = key * 7919 % 1000;
        wheel.set_timer(key, place, (place + 1) * MS).unwrap();
    }
    let mut places = Vec::new();
    assert_eq!(wheel.drain(|_, place| places.push(place)), Ok(1000));
    assert_eq!(places, (0..1000).collect::<Vec<_>>());
    assert_eq!(wheel.drain(|_, _| unreachable!("it is empty")), Ok(0));
    assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
    let stats = wheel.stats();
    assert_eq!((stats.set, stats.drained, stats.pending), (1000, 1000, 0));
}

#[test]
fn a_drain_is_one_instant() {
    within_a_minute(|| {
        let wheel = TimingWheel::builder()
            .channel(8)
            .build(|_: u64, ()| {})
            .unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // One set after another: what a drain gets is a stretch of this sequence.
                for key in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    wheel.set_timer(key, (), HOUR).unwrap();
                }
            });
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut next = 0;
                for round in 0..30_000 {
                    let mut keys = Vec::new();
                    wheel.drain(|key, ()| keys.push(key)).unwrap();
                    keys.sort_unstable();
                    let expected: Vec<u64> = (next..).take(keys.len()).collect();
                    assert!(
                        keys == expected,
                        "drain {round} left out what was set before what it took"
                    );
                    next += keys.len() as u64;
                }
            }));
            over.store(true, SeqCst);
            if let Err(payload) = outcome {
                resume_unwind(payload);
            }
        });
    });
}

#[test]
fn drains_at_once_share_the_pairs() {
    within_a_minute(|| {
        let wheel = TimingWheel::builder().build(|_: u32, ()| {}).unwrap();
        for key in 0..10_000 {
            wheel.set_timer(key, (), HOUR).unwrap();
        }
        let drained: usize = thread::scope(|scope| {
            let drains: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| wheel.drain(|_, ()| {}).unwrap()))
                .collect();
            drains.into_iter().map(|drain| drain.join().unwrap()).sum()
        });
        assert_eq!(drained, 10_000);
        assert_eq!(wheel.stats().drained, 10_000);
    });
}

#[test]
fn a_panic_in_f_drops_the_rest_and_counts_it() {
    let alive = Alive::default();
    let wheel = TimingWheel::builder()
        .build(|_: u64, _: Counted| {})
        .unwrap();
    for key in 0..100 {
        let delay = HOUR + key as u32 * MS;
        wheel.set_timer(key, alive.value(key), delay).unwrap();
    }
    let mut seen = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        wheel.drain(|key, _| {
            seen += 1;
            if key == 9 {
                resume_unwind(Box::new("enough"));
            }
        })
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"enough"));
    assert_eq!(seen, 10);
    assert_eq!(alive.count(), 0);
    let stats = wheel.stats();
    assert_eq!((stats.drained, stats.dropped), (10, 90));
    assert_eq!((stats.pending, stats.panicked), (0, 0));
    wheel.set_timer(1, alive.value(7), HOUR).unwrap();
    let value = wheel.take_timer(&1).unwrap();
    assert_eq!(value.map(|value| value.id), Some(7), "the wheel goes on");
}

#[test]
fn f_sets_timers_and_drains_again() {
    within_a_minute(|| {
        let wheel = TimingWheel::builder()
            .channel(1)
            .shards(2)
            .build(|_: u32, _: u32| {})
            .unwrap();
        for key in 0..100 {
            wheel.set_timer(key, 0, HOUR).unwrap();
        }
        let mut inner = 0;
        let drained = wheel.drain(|key, generation| {
            assert_eq!(generation, 0, "what f sets is not part of this drain");
            wheel.set_timer(key, 1, HOUR).unwrap();
            if key % 10 == 0 {
                inner += wheel
                    .drain(|_, generation| assert_eq!(generation, 1))
                    .unwrap();
            }
            assert!(key % 10 == 0 || wheel.contains(&key));
        });
        assert_eq!(drained, Ok(100));
        assert_eq!(inner + wheel.len(), 100);
    });
}

#[test]
fn f_stops_the_wheel() {
    within_a_minute(|| {
        let wheel = TimingWheel::builder().build(|_: u32, ()| {}).unwrap();
        for key in 0..10 {
            wheel.set_timer(key, (), HOUR).unwrap();
        }
        let drained = wheel.drain(|_, ()| assert_eq!(wheel.stop(), []));
        assert_eq!(drained, Ok(10), "they were out already");
        let stats = wheel.stats();
        assert_eq!((stats.drained, stats.returned), (10, 0));
    });
}

#[test]
fn a_callback_drains_its_own_wheel() {
    within_a_minute(|| {
        for executor in [Executor::Inline, Executor::Threads(1)] {
            let clock = ManualClock::new();
            let (drained, outcome) = mpsc::channel();
            let wheel = TimingWheel::builder()
                .clock(clock.clone())
                .executor(executor)
                .build_cyclic(|wheel: WeakTimingWheel<u32, u32>| {
                    move |_, _| {
                        let wheel = wheel.upgrade().unwrap();
                        let mut keys = Vec::new();
                        let count = wheel.drain(|key, value| {
                            keys.push(key);
                            wheel.set_timer(key + 100, value, HOUR).unwrap();
                        });
                        drained.send((count, keys)).unwrap();
                    }
                })
                .unwrap();
            wheel.set_timer(0, 0, MS).unwrap();
            for key in 1..=5 {
                wheel.set_timer(key, key, HOUR + key * MS).unwrap();
            }
            clock.advance(MS);
            assert_eq!(outcome.recv().unwrap(), (Ok(5), vec![1, 2, 3, 4, 5]));
            assert_eq!(wheel.len(), 5);
            assert!((101..=105).all(|key| wheel.contains(&key)));
        }
    });
}

#[test]
fn what_is_due_is_past_a_drain() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (fired, log) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(Executor::Threads(1))
            .build(move |key: u32, value: u32| {
                gate.lock().unwrap().recv().unwrap();
                fired.send((key, value)).unwrap();
            })
            .unwrap();
        for key in 0..5 {
            wheel.set_timer(key, 0, MS).unwrap();
        }
        clock.advance(MS);
        wheel.set_timer(0, 1, HOUR).unwrap();
        let mut drained = Vec::new();
        assert_eq!(wheel.drain(|key, value| drained.push((key, value))), Ok(1));
        assert_eq!(drained, [(0, 1)], "a set of a due key is a new entry");
        for _ in 0..5 {
            open.send(()).unwrap();
        }
        let mut log: Vec<_> = (0..5).map(|_| log.recv().unwrap()).collect();
        log.sort_unstable();
        assert_eq!(log, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
    });
}
