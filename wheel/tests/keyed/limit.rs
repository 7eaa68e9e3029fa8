//! The pending limit: exact for one thread, with a bounded slack for many.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use wheelhouse_wheel::{Executor, ManualClock, SetError, TimingWheel, TrySetError};

use crate::support::counted::{Alive, Counted};
use crate::support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn one_thread_meets_the_limit_exactly() {
    for (max, shards, channel) in [
        (1, 1, 1),
        (1, 16, 64),
        (7, 3, 2),
        (100, 16, 64),
        (3000, 16, 64),
    ] {
        let wheel = TimingWheel::builder()
            .clock(ManualClock::new())
            .max_pending(max)
            .shards(shards)
            .channel(channel)
            .build(|_: usize, _: usize| {})
            .unwrap();
        for key in 0..max {
            wheel.set_timer(key, 0, HOUR).unwrap();
        }
        for key in max..max + 10 {
            assert_eq!(wheel.set_timer(key, 1, HOUR), Err(SetError::Full(key, 1)));
            assert_eq!(
                wheel.try_set_timer(key, 1, HOUR),
                Err(TrySetError::Full(key, 1))
            );
            assert_eq!(
                wheel.replace_timer(key, 1, HOUR),
                Err(SetError::Full(key, 1))
            );
        }
        assert_eq!(wheel.len(), max);
        // What is there may be replaced, in every form.
        assert_eq!(wheel.set_timer(0, 2, HOUR), Ok(()));
        assert_eq!(wheel.try_set_timer(0, 3, HOUR), Ok(()));
        assert_eq!(wheel.replace_timer(0, 4, HOUR), Ok(Some(3)));
        // Each way out makes room for one.
        wheel.remove_timer(0).unwrap();
        assert_eq!(wheel.set_timer(max, 5, HOUR), Ok(()));
        assert_eq!(wheel.set_timer(0, 6, HOUR), Err(SetError::Full(0, 6)));
        assert_eq!(wheel.take_timer(&max), Ok(Some(5)));
        assert_eq!(wheel.set_timer(0, 7, HOUR), Ok(()));
        assert_eq!(wheel.drain(|_, _| {}), Ok(max));
        for key in 0..max {
            wheel.set_timer(key, 0, HOUR).unwrap();
        }
        assert_eq!(wheel.set_timer(max, 8, HOUR), Err(SetError::Full(max, 8)));
        let stats = wheel.stats();
        assert_eq!(stats.pending, max as u64);
        assert_eq!(
            stats.set,
            stats.pending + stats.replaced + stats.removed + stats.drained
        );
    }
}

#[test]
fn a_removal_makes_room_while_the_driver_is_applying_it() {
    // The driver takes removals of values with something to drop at the next tick, that is, at
    // any moment here.
    let wheel = TimingWheel::builder()
        .interval(Duration::from_micros(5))
        .max_pending(1)
        .build(|_: u32, _: String| {})
        .unwrap();
    for key in 0..50_000 {
        let set = wheel.set_timer(key, String::new(), HOUR);
        assert_eq!(set, Ok(()), "{key}");
        wheel.remove_timer(key).unwrap();
        // Differently long, to meet the driver at different moments.
        for _ in 0..key % 400 {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn what_fires_makes_room() {
    let clock = ManualClock::new();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .max_pending(10)
        .build(|_: u32, ()| {})
        .unwrap();
    for round in 0..20 {
        for key in 0..10 {
            wheel.set_timer(round * 10 + key, (), MS).unwrap();
        }
        assert!(wheel.set_timer(u32::MAX, (), MS).is_err());
        clock.advance(MS);
    }
    assert_eq!(wheel.stats().fired, 200);
}

#[test]
fn what_waits_for_a_worker_is_still_pending() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (begun, has_begun) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .max_pending(10)
            .executor(Executor::Threads(1))
            .build(move |_: u32, ()| {
                begun.send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
            })
            .unwrap();
        for key in 0..10 {
            wheel.set_timer(key, (), MS).unwrap();
        }
        clock.advance(MS);
        has_begun.recv().unwrap();
        assert_eq!(wheel.len(), 0);
        // One has begun, nine wait.
        assert_eq!(wheel.set_timer(0, (), HOUR), Ok(()));
        assert_eq!(wheel.set_timer(11, (), HOUR), Err(SetError::Full(11, ())));
        for _ in 0..9 {
            open.send(()).unwrap();
            has_begun.recv().unwrap();
        }
        for key in 11..20 {
            assert_eq!(wheel.set_timer(key, (), HOUR), Ok(()));
        }
        assert_eq!(wheel.set_timer(20, (), HOUR), Err(SetError::Full(20, ())));
        open.send(()).unwrap();
    });
}

#[test]
fn many_threads_exceed_the_limit_by_no_more_than_a_batch_per_shard() {
    const MAX: u64 = 2000;
    within_a_minute(|| {
        for (shards, channel) in [(16, 64), (4, 8), (1, 1)] {
            let alive = Alive::default();
            let wheel = TimingWheel::builder()
                .max_pending(MAX as usize)
                .shards(shards)
                .channel(channel)
                .build(|_: u64, _: Counted| {})
                .unwrap();
            let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
            let start = Barrier::new(8);
            thread::scope(|scope| {
                for thread in 0..8 {
                    let (wheel, alive, start) = (&wheel, &alive, &start);
                    let (accepted, refused) = (&accepted, &refused);
                    scope.spawn(move || {
                        start.wait();
                        for n in 0..1000 {
                            let key = thread * 1000 + n;
                            match wheel.set_timer(key, alive.value(key), HOUR) {
                                Ok(()) => accepted.fetch_add(1, SeqCst),
                                Err(SetError::Full(key, value)) => {
                                    assert_eq!(key, value.id);
                                    refused.fetch_add(1, SeqCst)
                                }
                                Err(error) => panic!("{error}"),
                            };
                        }
                    });
                }
            });
            let accepted = accepted.load(SeqCst);
            assert_eq!(accepted + refused.load(SeqCst), 8000);
            assert!(accepted >= MAX, "{accepted} of {MAX} were accepted");
            let slack = (shards * channel) as u64 + 8;
            assert!(accepted <= MAX + slack, "{accepted}, the limit being {MAX}");
            assert_eq!(wheel.len() as u64, accepted);
            assert_eq!(alive.count() as u64, accepted);
        }
    });
}

#[test]
fn removals_and_sets_of_many_threads_stay_within_the_limit() {
    const MAX: u64 = 500;
    within_a_minute(|| {
        let wheel = TimingWheel::builder()
            .max_pending(MAX as usize)
            .shards(4)
            .channel(8)
            .build(|_: u64, ()| {})
            .unwrap();
        thread::scope(|scope| {
            for thread in 0..4 {
                let wheel = &wheel;
                scope.spawn(move || {
                    for n in 0..5000u64 {
                        let key = thread << 32 | n;
                        let _ = wheel.set_timer(key, (), HOUR);
                        if n % 3 == 0 {
                            wheel.remove_timer(key).unwrap();
                        }
                        if n % 100 == 0 {
                            let len = wheel.len() as u64;
                            assert!(len <= MAX + 4 * 8 + 4, "{len} are pending");
                        }
                    }
                });
            }
        });
        // What went wrong in the accounts would show now: fill up to the limit, exactly.
        wheel.drain(|_, ()| {}).unwrap();
        for key in 0..MAX {
            wheel.set_timer(key, (), HOUR).unwrap();
        }
        assert_eq!(wheel.set_timer(MAX, (), HOUR), Err(SetError::Full(MAX, ())));
    });
}
