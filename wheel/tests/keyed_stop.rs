//! Stopping a `TimingWheel`: who gets the pairs, who waits for what, and what ends with it.

#![cfg(target_os = "linux")]

mod support {
    pub(crate) mod asleep;
    pub(crate) mod counted;
    pub(crate) mod threads;
    pub(crate) mod within;
}

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use wheelhouse_wheel::{
    Executor, ManualClock, SetError, TimingWheel, TryError, TrySetError, WeakTimingWheel,
};

use support::asleep::await_asleep;
use support::counted::{Alive, Counted};
use support::threads::{await_threads, threads_named};
use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn stop_returns_what_is_pending_in_firing_order() {
    let wheel = TimingWheel::builder()
        .clock(ManualClock::new())
        .build(|_: u32, _: u32| panic!("time stands still"))
        .unwrap();
    for key in 0..1000 {
        let delay = key * 7919 % 1000 + 1;
        wheel.set_timer(key, delay, delay * MS).unwrap();
    }
    wheel.set_timer(5000, u32::MAX, Duration::MAX).unwrap();
    wheel.move_timer(3, 2000 * MS).unwrap();
    wheel.remove_timer(4).unwrap();
    let left = wheel.stop();
    assert_eq!(left.len(), 1000);
    assert_eq!(
        left[998],
        (3, 3 * 7919 % 1000 + 1),
        "moved behind the others"
    );
    assert_eq!(left[999], (5000, u32::MAX), "what never fires comes last");
    assert!(left[..998].is_sorted_by_key(|pair| pair.1));
    assert!(left.iter().all(|pair| pair.0 != 4));
    assert_eq!(wheel.stop(), [], "the second stop gets nothing");
    let stats = wheel.stats();
    assert_eq!((stats.set, stats.removed, stats.returned), (1001, 1, 1000));
    assert_eq!(stats.pending, 0);
}

#[test]
fn stop_returns_the_ready_queue_before_what_is_not_due() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (begun, has_begun) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(Executor::Threads(1))
            .build(move |key: u64, ()| {
                begun.send(key).unwrap();
                gate.lock().unwrap().recv().unwrap();
            })
            .unwrap();
        for key in 0..10 {
            wheel.set_timer(key, (), (key as u32 + 1) * MS).unwrap();
        }
        for key in 10..15 {
            wheel.set_timer(key, (), HOUR).unwrap();
        }
        clock.advance(10 * MS);
        assert_eq!(has_begun.recv().unwrap(), 0);
        assert_eq!(wheel.len(), 5, "what is due is past removal");
        assert_eq!(wheel.take_timer(&5), Ok(None));
        assert_eq!(wheel.stats().pending, 14, "but still pending");

        let stopper = thread::spawn({
            let wheel = wheel.clone();
            move || wheel.stop()
        });
        while wheel.flush().is_ok() {
            thread::yield_now();
        }
        open.send(()).unwrap();
        let keys: Vec<u64> = stopper.join().unwrap().into_iter().map(|p| p.0).collect();
        assert_eq!(keys[..9], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(keys.len(), 14);
        assert!(has_begun.try_recv().is_err(), "nothing begins after a stop");
    });
}

#[test]
fn of_many_stops_at_once_one_gets_the_pairs_and_all_wait() {
    within_a_minute(|| {
        for round in 0..50 {
            let clock = ManualClock::new();
            let running = Arc::new(AtomicBool::new(false));
            let (begun, has_begun) = mpsc::channel();
            let (open, gate) = mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            let wheel = TimingWheel::builder()
                .clock(clock.clone())
                .executor(Executor::Threads(1))
                .build({
                    let running = running.clone();
                    move |_: u32, ()| {
                        running.store(true, SeqCst);
                        begun.send(()).unwrap();
                        gate.lock().unwrap().recv().unwrap();
                        running.store(false, SeqCst);
                    }
                })
                .unwrap();
            wheel.set_timer(0, (), MS).unwrap();
            for key in 1..=100 {
                wheel.set_timer(key, (), HOUR).unwrap();
            }
            clock.advance(MS);
            has_begun.recv().unwrap();
            let start = AtomicBool::new(false);
            let lens = thread::scope(|scope| {
                let stop = || {
                    // Not a barrier, since whoever sleeps is to be asleep in the stop.
                    while !start.load(SeqCst) {
                        thread::yield_now();
                    }
                    let left = wheel.stop().len();
                    assert!(!running.load(SeqCst), "round {round}: a callback runs on");
                    left
                };
                let stops: Vec<_> = (0..8)
                    .map(|_| {
                        let thread = thread::Builder::new().name("stops-at-once".into());
                        thread.spawn_scoped(scope, stop).unwrap()
                    })
                    .collect();
                start.store(true, SeqCst);
                await_asleep("stops-at-once", 8);
                open.send(()).unwrap();
                stops
                    .into_iter()
                    .map(|stop| stop.join().unwrap())
                    .collect::<Vec<_>>()
            });
            assert_eq!(lens.iter().sum::<usize>(), 100, "round {round}: {lens:?}");
            assert_eq!(lens.iter().filter(|len| **len > 0).count(), 1);
        }
    });
}

#[test]
fn stop_waits_for_an_inline_callback() {
    within_a_minute(|| {
        let (begun, has_begun) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let over = Arc::new(AtomicBool::new(false));
        let wheel = TimingWheel::builder()
            .build({
                let over = over.clone();
                move |_: u32, ()| {
                    begun.send(()).unwrap();
                    gate.lock().unwrap().recv().unwrap();
                    over.store(true, SeqCst);
                }
            })
            .unwrap();
        wheel.set_timer(1, (), Duration::ZERO).unwrap();
        has_begun.recv().unwrap();
        let stopper = thread::Builder::new().name("stops-and-waits".into());
        let stopper = stopper.spawn(move || {
            assert_eq!(wheel.stop(), []);
            assert!(over.load(SeqCst));
        });
        // Asleep in the stop: one that did not wait would end instead.
        await_asleep("stops-and-waits", 1);
        open.send(()).unwrap();
        stopper.unwrap().join().unwrap();
    });
}

/// Stops in the first of three callbacks due at once, and once more outside.
fn stop_in_a_callback(executor: Executor, name: &'static str) {
    within_a_minute(move || {
        let clock = ManualClock::new();
        let (stopped, was_stopped) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .name(name)
            .clock(clock.clone())
            .executor(executor)
            .build_cyclic(|wheel: WeakTimingWheel<u32, u32>| {
                move |key, _| {
                    if let Some(wheel) = wheel.upgrade() {
                        let left = wheel.stop();
                        let refused = wheel.set_timer(9, 9, MS).is_err();
                        stopped.send((key, left, refused)).unwrap();
                    }
                }
            })
            .unwrap();
        for key in 0..3 {
            wheel.set_timer(key, key, MS).unwrap();
        }
        wheel.set_timer(3, 3, HOUR).unwrap();
        clock.advance(MS);
        let (first, left, refused) = was_stopped.recv().unwrap();
        assert_eq!(
            left,
            [],
            "{name}: on a thread of the wheel it returns at once"
        );
        assert!(refused);
        let mut left = wheel.stop();
        let begun = was_stopped.try_iter().map(|(key, ..)| (key, key));
        assert!(left.is_sorted_by_key(|pair| pair.0 == 3));
        left.extend(begun.chain([(first, first)]));
        left.sort_unstable();
        assert_eq!(left, [(0, 0), (1, 1), (2, 2), (3, 3)], "{name}");
        assert_eq!(wheel.stop(), []);
        await_threads(name, 0);
    });
}

#[test]
fn stop_in_an_inline_callback() {
    stop_in_a_callback(Executor::Inline, "stop-inline");
}

#[test]
fn stop_in_a_pool_worker() {
    stop_in_a_callback(Executor::Threads(2), "stop-pool");
}

#[cfg(feature = "tokio")]
#[test]
fn stop_in_a_tokio_task() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    stop_in_a_callback(Executor::Tokio(runtime.handle().clone()), "stop-tokio");
    stop_in_a_callback(
        Executor::TokioBlocking(runtime.handle().clone()),
        "stop-blocking",
    );
}

#[test]
fn the_last_handle_takes_the_threads_and_the_values_with_it() {
    let alive = Alive::default();
    let wheel = TimingWheel::builder()
        .name("last-handle")
        .executor(Executor::Threads(3))
        .build(|_: u64, _: Counted| {})
        .unwrap();
    await_threads("last-handle", 1);
    for number in 0..3 {
        await_threads(&format!("last-handle-{number}"), 1);
    }
    for key in 0..1000 {
        wheel.set_timer(key, alive.value(key), HOUR).unwrap();
    }
    let other = wheel.clone();
    let weak = wheel.downgrade();
    drop(wheel);
    assert_eq!(alive.count(), 1000);
    assert_eq!(weak.upgrade().unwrap().len(), 1000);
    drop(other);
    assert_eq!(alive.count(), 0);
    assert!(weak.upgrade().is_none());
    // They were joined; the system may list them a moment longer.
    await_threads("last-handle", 0);
    for number in 0..3 {
        await_threads(&format!("last-handle-{number}"), 0);
    }
}

/// The handle is given to the callback, so that the wheel ends on one of its own threads.
fn last_handle_in_a_callback(executor: Executor, name: &'static str) {
    within_a_minute(move || {
        let alive = Alive::default();
        let (give, given) = mpsc::channel::<TimingWheel<u64, Counted>>();
        let given = Mutex::new(given);
        let wheel = TimingWheel::builder()
            .name(name)
            .executor(executor)
            .build(move |_, value| {
                let last = given.lock().unwrap().recv();
                drop(value);
                drop(last);
            })
            .unwrap();
        for key in 0..100 {
            wheel.set_timer(key, alive.value(key), HOUR).unwrap();
        }
        wheel
            .set_timer(100, alive.value(100), Duration::ZERO)
            .unwrap();
        give.send(wheel).unwrap();
        await_threads(name, 0);
        await_threads(&format!("{name}-0"), 0);
        // What is still held when the thread has lost its name goes at its very end.
        while alive.count() > 0 {
            thread::yield_now();
        }
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn the_last_handle_dropped_in_an_inline_callback() {
    last_handle_in_a_callback(Executor::Inline, "last-inline");
}

#[test]
fn the_last_handle_dropped_in_a_pool_worker() {
    last_handle_in_a_callback(Executor::Threads(1), "last-pool");
}

#[test]
fn after_a_stop_every_call_fails_and_gives_back() {
    let wheel = TimingWheel::builder()
        .build(|_: String, _: String| {})
        .unwrap();
    let pair = || ("key".to_owned(), "value".to_owned());
    let (key, value) = pair();
    wheel.set_timer(key, value, HOUR).unwrap();
    assert_eq!(wheel.stop(), [pair()]);

    let (key, value) = pair();
    let error = wheel.set_timer(key, value, MS).unwrap_err();
    assert!(matches!(error, SetError::Closed(..)));
    assert_eq!(
        error.to_string(),
        "the timing wheel is stopped; build a new one to go on"
    );
    let (key, value) = error.into_inner();
    let error = wheel.try_set_timer(key, value, MS).unwrap_err();
    assert!(matches!(error, TrySetError::Closed(..)));
    let (key, value) = error.into_inner();
    let error = wheel.replace_timer(key, value, MS).unwrap_err();
    assert!(matches!(error, SetError::Closed(..)));
    let (key, value) = error.into_inner();
    assert_eq!(value, "value");
    let key = wheel.move_timer(key, MS).unwrap_err().0;
    let error = wheel.try_move_timer(key, MS).unwrap_err();
    assert!(matches!(error, TryError::Closed(_)));
    let key = wheel.remove_timer(error.into_inner()).unwrap_err().0;
    let error = wheel.try_remove_timer(key).unwrap_err();
    assert!(matches!(error, TryError::Closed(_)));
    assert_eq!(error.into_inner(), "key");
    assert!(wheel.reschedule_timer("key", MS).is_err());
    assert!(wheel.take_timer("key").is_err());
    assert!(wheel.flush().is_err());
    assert!(wheel.drain(|_, _| unreachable!("nothing is left")).is_err());
    assert!(!wheel.contains("key"));
    assert_eq!(wheel.deadline("key"), None);
    assert_eq!(wheel.next_deadline(), None);
    assert_eq!((wheel.len(), wheel.is_empty()), (0, true));
}

#[test]
fn stop_against_sets_loses_nothing() {
    within_a_minute(|| {
        for round in 0..200 {
            let alive = Alive::default();
            let wheel = TimingWheel::builder()
                .shards(if round % 2 == 0 { 2 } else { 16 })
                .channel(if round % 3 == 0 { 1 } else { 8 })
                .executor(Executor::Threads(1))
                .build(|_: u64, _: Counted| {})
                .unwrap();
            let start = Barrier::new(5);
            let (accepted, left) = thread::scope(|scope| {
                let setters: Vec<_> = (0..4)
                    .map(|thread| {
                        let (wheel, alive, start) = (&wheel, &alive, &start);
                        scope.spawn(move || {
                            start.wait();
                            let mut accepted = 0;
                            for n in 0u64.. {
                                let key = n << 2 | thread;
                                let value = alive.value(key);
                                let delay = if n % 2 == 0 { HOUR } else { Duration::ZERO };
                                let back = if n % 5 == 0 {
                                    match wheel.try_set_timer(key, value, delay) {
                                        Err(TrySetError::Busy(..)) => continue,
                                        Err(error) => error.into_inner(),
                                        Ok(()) => {
                                            accepted += 1;
                                            continue;
                                        }
                                    }
                                } else {
                                    match wheel.set_timer(key, value, delay) {
                                        Ok(()) => {
                                            accepted += 1;
                                            continue;
                                        }
                                        Err(error) => error.into_inner(),
                                    }
                                };
                                assert_eq!((back.0, back.1.id), (key, key));
                                return accepted;
                            }
                            unreachable!("the wheel is stopped before the numbers end")
                        })
                    })
                    .collect();
                start.wait();
                thread::sleep(Duration::from_micros(200));
                let left = wheel.stop();
                let accepted: u64 = setters.into_iter().map(|s| s.join().unwrap()).sum();
                (accepted, left)
            });
            let stats = wheel.stats();
            assert_eq!(stats.set, accepted, "round {round}: {stats:?}");
            assert_eq!(stats.returned, left.len() as u64);
            assert_eq!(stats.fired + stats.returned, accepted, "round {round}");
            assert_eq!(alive.count(), left.len() as isize, "round {round}");
            drop(left);
            assert_eq!(alive.count(), 0);
        }
    });
}

#[test]
fn a_wheel_that_nobody_finished_building_is_taken_down() {
    within_a_minute(|| {
        let built = std::panic::catch_unwind(|| {
            TimingWheel::builder().name("unfinished").build_cyclic(
                |wheel: WeakTimingWheel<u32, u32>| {
                    let handle = wheel.upgrade().unwrap();
                    handle.set_timer(1, 1, MS).unwrap();
                    drop(handle);
                    if wheel.upgrade().is_some() {
                        std::panic::resume_unwind(Box::new("the callback cannot be made"));
                    }
                    |_, _| {}
                },
            )
        });
        assert!(built.is_err());
        assert_eq!(threads_named("unfinished"), 0);
    });
}

#[test]
fn stop_before_the_driver_starts() {
    within_a_minute(|| {
        let wheel = TimingWheel::builder()
            .name("stillborn")
            .build_cyclic(|wheel: WeakTimingWheel<u32, u32>| {
                let wheel = wheel.upgrade().unwrap();
                wheel.set_timer(1, 1, MS).unwrap();
                assert_eq!(wheel.stop(), [(1, 1)]);
                |_, _| {}
            })
            .unwrap();
        assert!(wheel.set_timer(1, 1, MS).is_err());
        assert_eq!(wheel.stop(), []);
        await_threads("stillborn", 0);
    });
}

/// Stops the wheel, if there is one, when it is dropped.
struct StopsOnDrop {
    wheel: WeakTimingWheel<u32, u32>,
    stops: Arc<AtomicUsize>,
}

impl Drop for StopsOnDrop {
    fn drop(&mut self) {
        if let Some(wheel) = self.wheel.upgrade() {
            wheel.stop();
            self.stops.fetch_add(1, SeqCst);
        }
    }
}

#[test]
fn a_callback_whose_own_drop_stops_the_wheel() {
    for executor in [Executor::Inline, Executor::Threads(2)] {
        within_a_minute(move || {
            let stops = Arc::new(AtomicUsize::new(0));
            let wheel = TimingWheel::builder()
                .executor(executor)
                .build_cyclic(|wheel| {
                    let guard = StopsOnDrop {
                        wheel,
                        stops: stops.clone(),
                    };
                    move |_, _| {
                        let _ = &guard;
                    }
                })
                .unwrap();
            wheel.set_timer(1, 1, HOUR).unwrap();
            assert_eq!(wheel.stop(), [(1, 1)]);
            assert_eq!(stops.load(SeqCst), 1);
        });
    }
}

#[test]
fn a_handle_kept_in_a_thread_local_is_dropped_with_its_thread() {
    use std::cell::RefCell;
    thread_local! {
        static KEPT: RefCell<Option<TimingWheel<u64, Counted>>> = const { RefCell::new(None) };
    }
    let alive = Alive::default();
    let inner = alive.clone();
    thread::spawn(move || {
        // Touched first, so that it is destroyed after what the wheel keeps of this thread.
        KEPT.with(|kept| assert!(kept.borrow().is_none()));
        let clock = ManualClock::new();
        let wheel = TimingWheel::builder()
            .name("thread-local")
            .clock(clock.clone())
            .build(|_: u64, _: Counted| {})
            .unwrap();
        clock.advance(MS);
        wheel.set_timer(1, inner.value(1), HOUR).unwrap();
        wheel.flush().unwrap();
        KEPT.with(|kept| *kept.borrow_mut() = Some(wheel));
    })
    .join()
    .unwrap();
    assert_eq!(alive.count(), 0);
    await_threads("thread-local", 0);
}

/// Uses its wheel when it is dropped.
struct Meddler {
    wheel: WeakTimingWheel<u32, Option<Meddler>>,
    stops: bool,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        if let Some(wheel) = self.wheel.upgrade() {
            for key in 1000..1200 {
                // Fails once the wheel is stopped.
                let _ = wheel.set_timer(key, None, HOUR);
            }
            let _ = wheel.flush();
            let _ = wheel.reschedule_timer(&1001, MS);
            let _ = wheel.take_timer(&1002);
            let _ = wheel.drain(|_, _| {});
            if self.stops {
                wheel.stop();
            }
        }
    }
}

#[test]
fn values_whose_drop_uses_the_wheel() {
    within_a_minute(|| {
        for stops in [false, true] {
            for way in 0..5 {
                let wheel = TimingWheel::builder()
                    .channel(2)
                    .shards(2)
                    .build(|_: u32, _: Option<Meddler>| {})
                    .unwrap();
                let meddler = || {
                    Some(Meddler {
                        wheel: wheel.downgrade(),
                        stops,
                    })
                };
                wheel.set_timer(1, meddler(), HOUR).unwrap();
                wheel.set_timer(2, meddler(), HOUR).unwrap();
                match way {
                    0 => wheel.remove_timer(1).unwrap(),
                    1 => wheel.set_timer(1, None, HOUR).unwrap(),
                    2 => drop(wheel.take_timer(&1)),
                    3 => drop(wheel.drain(|_, _| {})),
                    _ => drop(wheel.stop()),
                }
                let _ = wheel.flush();
                drop(wheel.stop());
                let stats = wheel.stats();
                assert_eq!(
                    stats.set,
                    stats.fired
                        + stats.removed
                        + stats.replaced
                        + stats.drained
                        + stats.returned
                        + stats.dropped,
                    "way {way}, stops {stops}: {stats:?}"
                );
            }
        }
    });
}
