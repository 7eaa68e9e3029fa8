//! Where callbacks run, in which order, and what they may do there.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use wheelhouse_wheel::{Clock, Executor, ManualClock, TimingWheel, WeakTimingWheel};

use crate::support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn inline_callbacks_run_on_the_driver_in_the_order_of_ticks() {
    let clock = ManualClock::new();
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .name("inline-driver")
        .clock(clock.clone())
        .build(move |key: u32, tick: u32| fired.send((key, tick, thread_name())).unwrap())
        .unwrap();
    for key in 0..5000 {
        let tick = key * 7919 % 100 + 1;
        wheel.set_timer(key, tick, tick * MS).unwrap();
    }
    clock.advance(HOUR);
    let log: Vec<_> = log.try_iter().collect();
    assert_eq!(log.len(), 5000);
    assert!(log.is_sorted_by_key(|fired| fired.1));
    assert!(log.iter().all(|fired| fired.2 == "inline-driver"));
}

#[test]
fn a_pool_runs_callbacks_on_its_threads_at_the_same_time() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let (fired, log) = mpsc::channel();
        let meeting = Arc::new(Barrier::new(3));
        let wheel = TimingWheel::builder()
            .name("pool")
            .clock(clock.clone())
            .executor(Executor::Threads(3))
            .build(move |_: u32, ()| {
                // Each waits for two others that run.
                meeting.wait();
                fired.send(thread_name()).unwrap();
            })
            .unwrap();
        for key in 0..300 {
            wheel.set_timer(key, (), MS).unwrap();
        }
        clock.advance(MS);
        let mut names: Vec<_> = (0..300).map(|_| log.recv().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, ["pool-0", "pool-1", "pool-2"]);
    });
}

/// Sets every key again and again, so that many of its pairs wait at once, and checks that its
/// callbacks come in order and one after another.
fn keeps_the_order_of_keys(executor: Executor) {
    const KEYS: usize = 40;
    const ROUNDS: u32 = 300;
    within_a_minute(move || {
        let clock = ManualClock::new();
        let next: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
        let busy: Arc<Vec<AtomicBool>> =
            Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect());
        let (failed, failures) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(executor)
            .ordered_by_key(true)
            .build({
                let next = next.clone();
                move |key: usize, round: u32| {
                    if busy[key].swap(true, SeqCst) {
                        failed
                            .send(format!("two callbacks of {key} at once"))
                            .unwrap();
                    }
                    if (key + round as usize).is_multiple_of(7) {
                        thread::yield_now();
                    }
                    let expected = next[key].fetch_add(1, SeqCst);
                    if round != expected {
                        failed
                            .send(format!("{key}: {round} instead of {expected}"))
                            .unwrap();
                    }
                    busy[key].store(false, SeqCst);
                }
            })
            .unwrap();
        for round in 0..ROUNDS {
            for key in 0..KEYS {
                wheel.set_timer(key, round, MS).unwrap();
            }
            clock.advance(MS);
        }
        while next.iter().any(|next| next.load(SeqCst) < ROUNDS) {
            assert_eq!(failures.try_recv().ok(), None);
            thread::yield_now();
        }
        assert_eq!(failures.try_recv().ok(), None);
        assert_eq!(wheel.stats().fired, (KEYS as u64) * u64::from(ROUNDS));
    });
}

#[test]
fn the_order_of_a_key_is_kept_inline() {
    keeps_the_order_of_keys(Executor::Inline);
}

#[test]
fn the_order_of_a_key_is_kept_in_a_pool() {
    keeps_the_order_of_keys(Executor::Threads(4));
}

/// What a callback on any executor may do without waiting for its own wheel.
fn does_not_wait_for_itself(executor: Executor) {
    within_a_minute(move || {
        let clock = ManualClock::new();
        let (over, is_over) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(executor)
            .channel(1)
            .build_cyclic(|wheel: WeakTimingWheel<u32, ()>| {
                let clock = clock.clone();
                move |key, ()| {
                    if key == 0 {
                        let wheel = wheel.upgrade().unwrap();
                        for key in 1..100 {
                            wheel.set_timer(key, (), MS).unwrap();
                            wheel.flush().unwrap();
                        }
                        // Twice, and the driver has to notice without being asked again.
                        clock.advance(10 * MS);
                        wheel.set_timer(100, (), MS).unwrap();
                        clock.run_for(10 * MS);
                    }
                    over.send(key).unwrap();
                }
            })
            .unwrap();
        wheel.set_timer(0, (), MS).unwrap();
        clock.advance(MS);
        let mut keys: Vec<_> = (0..=100).map(|_| is_over.recv().unwrap()).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..=100).collect::<Vec<_>>());
    });
}

#[test]
fn a_callback_does_not_wait_for_its_own_wheel() {
    does_not_wait_for_itself(Executor::Inline);
    does_not_wait_for_itself(Executor::Threads(1));
}

#[test]
fn the_ledger_is_right_inside_an_inline_callback() {
    let clock = ManualClock::new();
    let (ledger, ledgers) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .shards(1)
        .build_cyclic(|wheel: WeakTimingWheel<u32, ()>| {
            move |_, ()| {
                let stats = wheel.upgrade().unwrap().stats();
                ledger
                    .send((stats.set, stats.fired, stats.pending))
                    .unwrap();
            }
        })
        .unwrap();
    for key in 0..10 {
        wheel.set_timer(key, (), MS).unwrap();
    }
    for key in 10..15 {
        wheel.set_timer(key, (), HOUR).unwrap();
    }
    clock.advance(MS);
    let expected: Vec<_> = (1..=10).map(|fired| (15, fired, 15 - fired)).collect();
    assert_eq!(ledgers.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_jump_is_caught_up_in_order_with_commands_in_between() {
    // 20 000 timers come due in one jump; the first callback removes the last ones, which are
    // taken out in later batches.
    let clock = ManualClock::new();
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build_cyclic(|wheel: WeakTimingWheel<u32, u32>| {
            move |key, tick| {
                if key == 0 {
                    let wheel = wheel.upgrade().unwrap();
                    for key in 15_000..20_000 {
                        wheel.remove_timer(key).unwrap();
                    }
                }
                fired.send(tick).unwrap();
            }
        })
        .unwrap();
    for key in 0..20_000 {
        wheel.set_timer(key, key / 10, (key / 10 + 1) * MS).unwrap();
    }
    clock.advance(HOUR);
    let log: Vec<_> = log.try_iter().collect();
    assert_eq!(log.len(), 15_000);
    assert!(log.is_sorted());
    let stats = wheel.stats();
    assert_eq!((stats.fired, stats.removed), (15_000, 5000));
}

#[test]
fn a_jump_fires_what_another_thread_is_just_applying() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let fired = Arc::new(AtomicU32::new(0));
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .build({
                let fired = fired.clone();
                move |_: u32, ()| {
                    fired.fetch_add(1, SeqCst);
                }
            })
            .unwrap();
        // Far ones at different times, so that most shards have nothing to do first.
        for key in 0..100 {
            wheel.set_timer(key, (), (1000 + key) * HOUR).unwrap();
        }
        let over = AtomicBool::new(false);
        let late = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    wheel.flush().unwrap();
                }
            });
            let late = (1..=100_000).find(|n| {
                wheel.set_timer(1000 + n, (), MS).unwrap();
                clock.advance(MS);
                fired.load(SeqCst) != *n
            });
            over.store(true, SeqCst);
            late
        });
        assert_eq!(late, None, "a jump returned before what was due had fired");
    });
}

#[test]
fn several_wheels_share_a_clock() {
    let clock = ManualClock::new();
    let start = clock.now();
    let log = Arc::new(Mutex::new(Vec::new()));
    let wheels: Vec<_> = (0..3)
        .map(|n| {
            let (log, clock) = (log.clone(), clock.clone());
            TimingWheel::builder()
                .clock(clock.clone())
                .interval((n + 1) * MS)
                .build(move |key: u32, ()| {
                    let at = clock.now().duration_since(start);
                    log.lock().unwrap().push((at, key));
                })
                .unwrap()
        })
        .collect();
    for (n, wheel) in (0..).zip(&wheels) {
        wheel.set_timer(n, (), 7 * MS).unwrap();
    }
    clock.run_for(20 * MS);
    let log = log.lock().unwrap();
    assert_eq!(*log, [(7 * MS, 0), (8 * MS, 1), (9 * MS, 2)]);
}

#[cfg(feature = "tokio")]
mod tokio {
    use super::*;
    use ::tokio::runtime::{Builder, Handle, Runtime};

    fn runtime(workers: usize) -> Runtime {
        Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("runtime")
            .enable_time()
            .build()
            .unwrap()
    }

    #[test]
    fn callbacks_run_as_tasks() {
        within_a_minute(|| {
            let runtime = runtime(2);
            for executor in [
                Executor::Tokio(runtime.handle().clone()),
                Executor::TokioBlocking(runtime.handle().clone()),
            ] {
                let clock = ManualClock::new();
                let (fired, log) = mpsc::channel();
                let wheel = TimingWheel::builder()
                    .clock(clock.clone())
                    .executor(executor)
                    .build(move |key: u32, ()| {
                        // Panics outside of a runtime.
                        Handle::current().spawn(async {});
                        fired.send((key, thread_name())).unwrap();
                    })
                    .unwrap();
                for key in 0..5000 {
                    wheel.set_timer(key, (), key * MS / 50).unwrap();
                }
                clock.advance(200 * MS);
                let log: Vec<_> = (0..5000).map(|_| log.recv().unwrap()).collect();
                assert!(log.iter().all(|fired| fired.1.starts_with("runtime")));
                let mut keys: Vec<_> = log.into_iter().map(|fired| fired.0).collect();
                keys.sort_unstable();
                assert_eq!(keys, (0..5000).collect::<Vec<_>>());
                assert_eq!(wheel.stop(), []);
                let stats = wheel.stats();
                assert_eq!((stats.fired, stats.panicked), (5000, 0));
            }
        });
    }

    #[test]
    fn blocking_callbacks_hold_up_no_other() {
        within_a_minute(|| {
            let runtime = runtime(1);
            let clock = ManualClock::new();
            let meeting = Arc::new(Barrier::new(8));
            let (fired, log) = mpsc::channel();
            let wheel = TimingWheel::builder()
                .clock(clock.clone())
                .executor(Executor::TokioBlocking(runtime.handle().clone()))
                .build(move |key: u32, ()| {
                    meeting.wait();
                    fired.send(key).unwrap();
                })
                .unwrap();
            for key in 0..8 {
                wheel.set_timer(key, (), MS).unwrap();
            }
            clock.advance(MS);
            assert_eq!((0..8).map(|_| log.recv().unwrap()).sum::<u32>(), 28);
        });
    }

    #[test]
    fn the_order_of_a_key_is_kept_on_tokio() {
        let runtime = runtime(4);
        keeps_the_order_of_keys(Executor::Tokio(runtime.handle().clone()));
        keeps_the_order_of_keys(Executor::TokioBlocking(runtime.handle().clone()));
    }

    #[test]
    fn a_task_does_not_wait_for_its_own_wheel() {
        let runtime = runtime(1);
        does_not_wait_for_itself(Executor::Tokio(runtime.handle().clone()));
        does_not_wait_for_itself(Executor::TokioBlocking(runtime.handle().clone()));
    }

    #[test]
    fn a_runtime_that_is_shut_down_before_the_wheel_loses_nothing() {
        for ordered in [false, true] {
            for blocking in [false, true] {
                within_a_minute(move || {
                    let runtime = runtime(1);
                    let handle = runtime.handle().clone();
                    let executor = if blocking {
                        Executor::TokioBlocking(handle)
                    } else {
                        Executor::Tokio(handle)
                    };
                    let clock = ManualClock::new();
                    let (fired, log) = mpsc::channel();
                    let wheel = TimingWheel::builder()
                        .clock(clock.clone())
                        .executor(executor)
                        .ordered_by_key(ordered)
                        .build(move |key: u32, ()| fired.send(key).unwrap())
                        .unwrap();
                    for key in 0..1000 {
                        wheel.set_timer(key, (), (key + 1) * MS).unwrap();
                    }
                    clock.advance(300 * MS);
                    runtime.shutdown_timeout(10 * MS);
                    clock.advance(300 * MS);
                    let mut keys: Vec<u32> = wheel.stop().into_iter().map(|p| p.0).collect();
                    assert!(keys.is_sorted(), "in firing order");
                    let stats = wheel.stats();
                    assert_eq!(stats.fired + stats.returned, 1000, "{stats:?}");
                    keys.extend(log.try_iter());
                    keys.sort_unstable();
                    assert_eq!(keys, (0..1000).collect::<Vec<_>>());
                });
            }
        }
    }

    #[test]
    fn a_runtime_of_one_thread_that_is_busy_keeps_pairs_waiting() {
        within_a_minute(|| {
            let runtime = Builder::new_current_thread().build().unwrap();
            let clock = ManualClock::new();
            let (fired, log) = mpsc::channel();
            let wheel = TimingWheel::builder()
                .clock(clock.clone())
                .executor(Executor::Tokio(runtime.handle().clone()))
                .build(move |key: u32, ()| fired.send(key).unwrap())
                .unwrap();
            for key in 0..200 {
                wheel.set_timer(key, (), MS).unwrap();
            }
            // The driver does not wait for the runtime, which does not run.
            clock.advance(MS);
            assert_eq!(wheel.len(), 0);
            assert_eq!((wheel.stats().pending, wheel.stats().fired), (200, 0));
            runtime.block_on(async {
                while wheel.stats().fired < 150 {
                    ::tokio::task::yield_now().await;
                }
            });
            let fired = wheel.stats().fired as usize;
            assert_eq!(wheel.stop().len(), 200 - fired);
            assert_eq!(log.try_iter().count(), fired);
        });
    }
}
