//! Panics in user code: contained, counted, and without effect on others.

mod support {
    pub(crate) mod within;
}

use std::panic::resume_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use wheelhouse_wheel::{Executor, ManualClock, TimingWheel};

use support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Panics when it is dropped, without the panic hook and its message.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume_unwind(Box::new("a bomb"));
        }
    }
}

fn others_run(executor: Executor) {
    within_a_minute(move || {
        let clock = ManualClock::new();
        let (fired, log) = mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .executor(executor)
            .build(move |key: u32, ()| {
                fired.send(key).unwrap();
                match key % 3 {
                    0 => resume_unwind(Box::new("a string")),
                    // Its own drop panics as well.
                    1 => resume_unwind(Box::new(Bomb(key))),
                    _ => {}
                }
            })
            .unwrap();
        for round in 1..=3 {
            for key in 0..300 {
                wheel.set_timer(key, (), (key % 7 + 1) * MS).unwrap();
            }
            clock.advance(10 * MS);
            let mut keys: Vec<u32> = (0..300).map(|_| log.recv().unwrap()).collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..300).collect::<Vec<_>>());
            // A worker counts after its callback.
            while wheel.stats().panicked < round * 200 {
                std::thread::yield_now();
            }
            let stats = wheel.stats();
            assert_eq!((stats.fired, stats.panicked), (round * 300, round * 200));
        }
        assert_eq!(wheel.stop(), []);
    });
}

#[test]
fn a_panic_in_a_callback_is_counted_and_the_others_run() {
    others_run(Executor::Inline);
    others_run(Executor::Threads(2));
}

#[cfg(feature = "tokio")]
#[test]
fn a_panic_in_a_task_is_counted_and_the_others_run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    others_run(Executor::Tokio(runtime.handle().clone()));
    others_run(Executor::TokioBlocking(runtime.handle().clone()));
}

#[test]
fn a_panic_with_a_message_is_counted_too() {
    let clock = ManualClock::new();
    let mut wheel = TimingWheel::builder()
        .clock(clock.clone())
        .manual(|key: u32, ()| panic!("key {key} is not wanted"))
        .unwrap();
    wheel.set_timer(1, (), MS).unwrap();
    wheel.set_timer(2, (), MS).unwrap();
    clock.advance(MS);
    assert_eq!(wheel.turn(wheelhouse_wheel::Clock::now(&clock)), 2);
    assert_eq!(wheel.stats().panicked, 2);
}

#[test]
fn values_that_panic_when_dropped_by_a_caller() {
    let wheel = TimingWheel::builder()
        .build(|_: u32, bomb: Bomb| std::mem::forget(bomb))
        .unwrap();
    for key in 0..100 {
        wheel.set_timer(key, Bomb(key), HOUR).unwrap();
    }
    wheel.flush().unwrap();
    for key in 0..10 {
        wheel.remove_timer(key).unwrap();
    }
    wheel.flush().unwrap();
    for key in 10..20 {
        wheel.set_timer(key, Bomb(key), HOUR).unwrap();
    }
    wheel.flush().unwrap();
    let stats = wheel.stats();
    assert_eq!((stats.removed, stats.replaced), (10, 10));
    assert_eq!(stats.panicked, 20);
    assert_eq!(wheel.len(), 90);
    // What is given back is the caller's.
    std::mem::forget(wheel.take_timer(&20));
    std::mem::forget(wheel.replace_timer(21, Bomb(0), HOUR));
    assert_eq!(wheel.stats().panicked, 20);
    let drained = wheel.drain(|_, bomb| std::mem::forget(bomb));
    assert_eq!(drained, Ok(89));
}

#[test]
fn values_that_panic_when_dropped_by_the_driver() {
    let clock = ManualClock::new();
    let fired = Arc::new(AtomicUsize::new(0));
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build({
            let fired = fired.clone();
            move |_: u32, bomb: Bomb| {
                fired.fetch_add(1, SeqCst);
                drop(bomb);
            }
        })
        .unwrap();
    for key in 0..10 {
        wheel.set_timer(key, Bomb(key), HOUR).unwrap();
    }
    wheel.flush().unwrap();
    for key in 0..5 {
        // Stays in its channel until the next tick.
        wheel.remove_timer(key).unwrap();
    }
    clock.advance(MS);
    assert_eq!(wheel.stats().panicked, 5);
    clock.advance(HOUR);
    assert_eq!(fired.load(SeqCst), 5);
    assert_eq!(wheel.stats().panicked, 10);
}

#[test]
fn keys_that_panic_when_dropped() {
    let wheel = TimingWheel::builder()
        .build(|key: Bomb, ()| std::mem::forget(key))
        .unwrap();
    wheel.set_timer(Bomb(1), (), HOUR).unwrap();
    wheel.set_timer(Bomb(1), (), HOUR).unwrap();
    wheel.move_timer(Bomb(1), HOUR).unwrap();
    wheel.flush().unwrap();
    assert_eq!(wheel.stats().panicked, 2);
    let key = std::mem::ManuallyDrop::new(Bomb(1));
    assert_eq!(wheel.take_timer(&*key), Ok(Some(())));
    assert_eq!(wheel.stats().panicked, 3);
    wheel.set_timer(Bomb(2), (), HOUR).unwrap();
    wheel.remove_timer(Bomb(2)).unwrap();
    wheel.flush().unwrap();
    assert_eq!(
        wheel.stats().panicked,
        5,
        "the stored one and the one handed in"
    );
    assert!(wheel.is_empty());
}

#[test]
fn a_drain_whose_rest_panics_when_dropped() {
    let wheel = TimingWheel::builder()
        .build(|_: u32, bomb: Bomb| std::mem::forget(bomb))
        .unwrap();
    for key in 0..10 {
        wheel.set_timer(key, Bomb(key), HOUR).unwrap();
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wheel.drain(|_, bomb| {
            std::mem::forget(bomb);
            resume_unwind(Box::new("enough"));
        })
    }));
    assert!(outcome.is_err());
    let stats = wheel.stats();
    assert_eq!((stats.drained, stats.dropped), (1, 9));
}

#[test]
fn values_that_panic_when_dropped_with_the_last_handle() {
    let wheel = TimingWheel::builder()
        .build(|_: u32, bomb: Bomb| std::mem::forget(bomb))
        .unwrap();
    for key in 0..10 {
        wheel.set_timer(key, Bomb(key), HOUR).unwrap();
    }
    drop(wheel);
}

/// Two panics of one clean-up would end the process, so this runs in one of its own.
#[test]
fn values_that_panic_when_the_last_handle_goes_in_a_callback() {
    const CHILD: &str = "WHEELHOUSE_TEST_LAST_HANDLE";
    if std::env::var_os(CHILD).is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "values_that_panic_when_the_last_handle_goes_in_a_callback",
            ])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    /// Says that it is gone, and panics.
    #[derive(Debug)]
    struct Telling(mpsc::Sender<()>);
    impl Drop for Telling {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            resume_unwind(Box::new("a bomb"));
        }
    }
    for executor in [Executor::Inline, Executor::Threads(1)] {
        let (gone, all_gone) = mpsc::channel();
        let (give, given) = mpsc::channel::<TimingWheel<u32, Telling>>();
        let given = Mutex::new(given);
        let wheel = TimingWheel::builder()
            .executor(executor)
            .build(move |_, value: Telling| {
                std::mem::forget(value);
                drop(given.lock().unwrap().recv());
            })
            .unwrap();
        for key in 0..10 {
            wheel.set_timer(key, Telling(gone.clone()), HOUR).unwrap();
        }
        wheel.set_timer(10, Telling(gone), Duration::ZERO).unwrap();
        give.send(wheel).unwrap();
        for _ in 0..10 {
            all_gone.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }
}
