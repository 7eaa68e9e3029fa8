//! Cases that need the system's clock and threads that race, each named after its id. Times are
//! bounded generously; how fast it is, is for the benches to show.

#![cfg(target_os = "linux")]

mod support {
    pub(crate) mod asleep;
    pub(crate) mod threads;
    pub(crate) mod within;
}

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_wheel::{Clock, Executor, TimingWheel};

use support::asleep::await_asleep;
use support::threads::await_threads;
use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Long beyond what a loaded machine needs, short of the hour that a lost wake-up would take.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn w29_an_earlier_deadline_wakes_the_sleeping_driver() {
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .name("earlier")
        .build(move |key: u32, ()| fired.send((key, Instant::now())).unwrap())
        .unwrap();
    wheel.set_timer(0, (), Duration::from_secs(60)).unwrap();
    for key in 1..=100 {
        // Every other time the driver has gone back to sleep.
        if key % 2 == 0 {
            await_asleep("earlier", 1);
        }
        let other = wheel.clone();
        let due = thread::spawn(move || {
            let due = Instant::now() + 5 * MS;
            other.set_timer(key, (), 5 * MS).unwrap();
            due
        });
        let (first, at) = log.recv_timeout(PATIENCE).expect("a lost wake-up");
        assert_eq!(first, key);
        assert!(at >= due.join().unwrap(), "early");
    }
}

#[test]
fn w29_each_way_to_an_earlier_deadline_wakes_the_driver() {
    let (fired, log) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .name("each-way")
        .build(move |key: u32, ()| fired.send(key).unwrap())
        .unwrap();
    type Way = fn(&TimingWheel<u32, ()>, u32);
    let ways: [Way; 6] = [
        |wheel, key| wheel.move_timer(key, MS).unwrap(),
        |wheel, key| wheel.try_move_timer(key, MS).unwrap(),
        |wheel, key| assert_eq!(wheel.reschedule_timer(&key, MS), Ok(true)),
        |wheel, key| wheel.set_timer(key, (), MS).unwrap(),
        |wheel, key| wheel.try_set_timer(key, (), MS).unwrap(),
        |wheel, key| assert_eq!(wheel.replace_timer(key, (), MS), Ok(Some(()))),
    ];
    for (key, way) in (0..).zip(ways) {
        wheel.set_timer(key, (), HOUR).unwrap();
        wheel.flush().unwrap();
        await_asleep("each-way", 1);
        way(&wheel, key);
        assert_eq!(log.recv_timeout(PATIENCE), Ok(key));
    }
}

#[test]
fn a_removed_value_is_dropped_without_another_call() {
    let (dropped, drops) = mpsc::channel();
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let wheel = TimingWheel::builder()
        .name("removed")
        .build(|_: u32, _: Tells| {})
        .unwrap();
    wheel.set_timer(1, Tells(dropped), HOUR).unwrap();
    wheel.flush().unwrap();
    await_asleep("removed", 1);
    wheel.remove_timer(1).unwrap();
    drops
        .recv_timeout(PATIENCE)
        .expect("by the next tick, though nothing is due for an hour");
}

/// The system's clock, which now and then steps back.
#[derive(Clone)]
struct Unsteady {
    back: Arc<Mutex<Duration>>,
}

impl Clock for Unsteady {
    fn now(&self) -> Instant {
        Instant::now() - *self.back.lock().unwrap()
    }
}

#[test]
fn w31_a_clock_that_steps_back_while_the_driver_runs() {
    within_a_minute(|| {
        let clock = Unsteady {
            back: Arc::default(),
        };
        let (fired, log) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .build({
                let clock = clock.clone();
                move |key: u32, due: Instant| fired.send((key, due, clock.now())).unwrap()
            })
            .unwrap();
        for key in 0..300 {
            let delay = (key % 30) * MS;
            wheel.set_timer(key, clock.now() + delay, delay).unwrap();
            if key % 60 == 59 {
                *clock.back.lock().unwrap() += 10 * MS;
            }
            thread::sleep(MS / 10);
        }
        let mut keys: Vec<u32> = (0..300)
            .map(|_| {
                let (key, due, at) = log.recv_timeout(PATIENCE).unwrap();
                // The clock may have stepped back between the driver's look at it and this one's.
                assert!(at + 10 * MS >= due, "{key} is early by {:?}", due - at);
                key
            })
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..300).collect::<Vec<_>>());
        assert!(log.try_recv().is_err(), "none twice");
        assert_eq!(wheel.stats().panicked, 0);
    });
}

/// Of the thread with this name: returns from sleep, and time on a processor in nanoseconds.
fn effort(name: &str) -> (u64, u64) {
    let task = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
        .find(|task| fs::read_to_string(task.join("comm")).unwrap().trim_end() == name)
        .expect("the thread runs");
    let status = fs::read_to_string(task.join("status")).unwrap();
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let times = fs::read_to_string(task.join("schedstat")).unwrap();
    let on_cpu = times.split_whitespace().next().unwrap().parse().unwrap();
    (switches, on_cpu)
}

#[test]
fn w56_an_idle_driver_does_not_wake() {
    let empty = TimingWheel::builder()
        .name("idle-empty")
        .build(|_: u32, ()| {})
        .unwrap();
    let far = TimingWheel::builder()
        .name("idle-far")
        .build(|_: u32, ()| {})
        .unwrap();
    for key in 0..10_000 {
        far.set_timer(key, (), HOUR + key * MS).unwrap();
    }
    far.flush().unwrap();
    await_threads("idle-empty", 1);
    await_threads("idle-far", 1);
    // What the sets woke it for is over when it does not wake for a while.
    let mut before = effort("idle-far");
    loop {
        thread::sleep(100 * MS);
        let now = effort("idle-far");
        if now == before {
            break;
        }
        before = now;
    }
    let (woken_empty, woken_far) = (empty.stats().wakeups, far.stats().wakeups);
    let (effort_empty, effort_far) = (effort("idle-empty"), effort("idle-far"));
    thread::sleep(1500 * MS);
    assert_eq!(effort("idle-empty"), effort_empty, "wake-ups and CPU time");
    assert_eq!(effort("idle-far"), effort_far, "wake-ups and CPU time");
    assert_eq!(empty.stats().wakeups, woken_empty);
    assert_eq!(far.stats().wakeups, woken_far);
    // Later deadlines, and far ones, do not wake it either.
    for key in 10_000..20_000 {
        far.set_timer(key, (), 2 * HOUR).unwrap();
        far.move_timer(key - 10_000, 3 * HOUR).unwrap();
    }
    assert_eq!(far.stats().wakeups, woken_far);
}

#[test]
fn w59_a_lock_held_around_calls_and_taken_in_callbacks() {
    for executor in [Executor::Inline, Executor::Threads(2)] {
        within_a_minute(move || {
            let lock = Arc::new(Mutex::new(0u64));
            let wheel = TimingWheel::builder()
                .interval(MS / 10)
                .channel(2)
                .shards(2)
                .executor(executor)
                .build({
                    let lock = lock.clone();
                    move |_: u32, ()| *lock.lock().unwrap() += 1
                })
                .unwrap();
            thread::scope(|scope| {
                for setter in 0..2 {
                    let (lock, wheel) = (&lock, &wheel);
                    scope.spawn(move || {
                        for n in 0..3000u32 {
                            let held = lock.lock().unwrap();
                            let key = n << 1 | setter;
                            wheel.set_timer(key, (), Duration::ZERO).unwrap();
                            wheel.move_timer(key, MS / 5).unwrap();
                            if n % 10 == 0 {
                                wheel.flush().unwrap();
                                wheel.take_timer(&(key / 2)).unwrap();
                                assert_eq!(wheel.stats().panicked, 0);
                            }
                            if n % 500 == 0 {
                                wheel.drain(|_, ()| {}).unwrap();
                            }
                            drop(held);
                        }
                    });
                }
            });
            let left = wheel.stop().len() as u64;
            let stats = wheel.stats();
            assert_eq!(*lock.lock().unwrap(), stats.fired);
            assert_eq!(
                stats.set,
                stats.fired + stats.removed + stats.replaced + stats.drained + left
            );
        });
    }
}

/// What may happen to a timer of [`w60_each_timer_is_fired_or_removed_never_both`].
const FIRED: u8 = 1;
const TAKEN: u8 = 2;
const DROPPED: u8 = 16;

#[test]
fn w60_each_timer_is_fired_or_removed_never_both() {
    struct Fate {
        id: usize,
        fates: Arc<Vec<AtomicU8>>,
    }
    impl Fate {
        fn is(&self, what: u8) {
            self.fates[self.id].fetch_add(what, SeqCst);
        }
    }
    impl Drop for Fate {
        fn drop(&mut self) {
            self.is(DROPPED);
        }
    }
    let rounds = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    within_a_minute(move || {
        let fates: Arc<Vec<AtomicU8>> = Arc::new((0..rounds).map(|_| AtomicU8::new(0)).collect());
        let wheel = TimingWheel::builder()
            .interval(MS / 50)
            .build(|_: usize, fate: Fate| fate.is(FIRED))
            .unwrap();
        let progress = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..rounds {
                    let fate = Fate {
                        id,
                        fates: fates.clone(),
                    };
                    let delay = Duration::from_micros(id as u64 * 7 % 1000);
                    wheel.set_timer(id, fate, delay).unwrap();
                    progress.store(id as u32 + 1, SeqCst);
                }
            });
            scope.spawn(|| {
                for id in 0..rounds {
                    while progress.load(SeqCst) as usize <= id {
                        std::hint::spin_loop();
                    }
                    if id % 2 == 0 {
                        if let Some(fate) = wheel.take_timer(&id).unwrap() {
                            fate.is(TAKEN);
                        }
                    } else {
                        wheel.remove_timer(id).unwrap();
                    }
                }
            });
        });
        wheel.flush().unwrap();
        assert_eq!(wheel.len(), 0, "each was removed or is past it");
        // A stop would give back what is past removal and has not begun.
        while wheel.stats().pending > 0 {
            thread::yield_now();
        }
        assert_eq!(wheel.stop().len(), 0);
        let stats = wheel.stats();
        assert_eq!(stats.fired + stats.removed, rounds as u64, "{stats:?}");
        let (mut fired, mut removed) = (0, 0);
        for (id, fate) in fates.iter().enumerate() {
            match fate.load(SeqCst) - DROPPED {
                FIRED => fired += 1,
                TAKEN if id % 2 == 0 => removed += 1,
                0 if id % 2 == 1 => removed += 1,
                other => panic!("the fate of {id} is {other}"),
            }
        }
        assert_eq!((stats.fired, stats.removed), (fired, removed));
        println!("{fired} fired, {removed} removed");
    });
}

/// Half a million operations by so many threads.
fn set_and_remove(threads: u64) -> Duration {
    const OPERATIONS: u64 = 400_000;
    let wheel = TimingWheel::builder().build(|_: u64, ()| {}).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let wheel = &wheel;
            scope.spawn(move || {
                for n in 0..OPERATIONS / 2 / threads {
                    let key = n << 8 | thread;
                    wheel.set_timer(key, (), HOUR).unwrap();
                    wheel.remove_timer(key).unwrap();
                }
            });
        }
    });
    wheel.flush().unwrap();
    assert_eq!(wheel.len(), 0);
    start.elapsed()
}

/// That it scales is for the benches to show; here, that eight threads do not bring it to a halt.
#[test]
fn w65_many_threads_do_not_collapse() {
    within_a_minute(|| {
        let one = set_and_remove(1);
        for threads in [2, 4, 8] {
            let many = set_and_remove(threads);
            assert!(
                many < 10 * one + Duration::from_secs(2),
                "{threads} threads take {many:?}, one takes {one:?}"
            );
        }
    });
}

#[test]
fn a_callback_runs_while_its_wheel_is_full_of_work() {
    within_a_minute(|| {
        // Every callback sets the next: the driver never sleeps, and stop ends it nevertheless.
        let stopping = Arc::new(AtomicBool::new(false));
        let wheel = TimingWheel::builder()
            .interval(Duration::from_nanos(1))
            .build_cyclic(|wheel: wheelhouse_wheel::WeakTimingWheel<u32, ()>| {
                let stopping = stopping.clone();
                move |key, ()| {
                    if let Some(wheel) = wheel.upgrade() {
                        let set = wheel.set_timer(key, (), Duration::ZERO);
                        assert!(set.is_ok() || stopping.load(SeqCst));
                    }
                }
            })
            .unwrap();
        for key in 0..10 {
            wheel.set_timer(key, (), Duration::ZERO).unwrap();
        }
        while wheel.stats().fired < 10_000 {
            thread::yield_now();
        }
        stopping.store(true, SeqCst);
        let left = wheel.stop().len();
        let stats = wheel.stats();
        assert_eq!(stats.panicked, 0);
        assert_eq!(stats.set, stats.fired + left as u64);
    });
}
