//! A clock that shows a wild time, far ahead or far back, and comes back: what is due afterwards still
//! comes in time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::within::within_a_minute;
use wheelhouse_wheel::{Clock, Driven, SystemClock, TimingWheel};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Shows a wild time to the driver, and to nobody else, at one of its readings.
#[derive(Clone)]
struct Wild {
    readings: Arc<AtomicU64>,
    which: u64,
    ahead: bool,
}

impl Clock for Wild {
    fn now(&self) -> Instant {
        let now = SystemClock.now();
        if thread::current().name() != Some("wild") {
            return now;
        }
        match self.readings.fetch_add(1, SeqCst) == self.which {
            true if self.ahead => now + DAY,
            true => now.checked_sub(DAY).unwrap_or(now),
            false => now,
        }
    }
}

#[test]
fn one_wild_reading_puts_nothing_off() {
    within_a_minute(|| {
        let (fired, fires) = mpsc::channel();
        let worlds: Vec<_> = (0..60)
            .map(|n| {
                let clock = Wild {
                    readings: Arc::default(),
                    which: n / 2,
                    ahead: n % 2 == 0,
                };
                let fired = fired.clone();
                let builder = TimingWheel::builder().name("wild").clock(clock.clone());
                let wheel = builder
                    .shards(1)
                    .build(move |key: u64, ()| fired.send((n, key)).unwrap())
                    .unwrap();
                (wheel, clock)
            })
            .collect();
        let has_been = |clock: &Wild| clock.readings.load(SeqCst) > clock.which;
        let mut round = 0;
        while round < 4 || !worlds.iter().all(|(_, clock)| has_been(clock)) {
            for (wheel, _) in &worlds {
                // A driver that is far ahead takes its wheel to these.
                wheel.set_timer(0, (), HOUR + DAY / 2).unwrap();
                wheel.set_timer(1, (), HOUR).unwrap();
                wheel.set_timer(2, (), 5 * MS).unwrap();
                wheel.set_timer(3, (), HOUR).unwrap();
                wheel.move_timer(3, 5 * MS).unwrap();
                wheel.replace_timer(4, (), 5 * MS).unwrap();
            }
            // What was set for now, and perhaps has fired far too early and was set anew.
            let mut left: Vec<_> = (0..60).flat_map(|n| [(n, 2), (n, 4)]).collect();
            while !left.is_empty() {
                let one = fires.recv().unwrap();
                left.retain(|waits| *waits != one);
            }
            // Where it had fired before it was moved there is nothing to wait for.
            for (wheel, _) in &worlds {
                while wheel.contains(&3) {
                    thread::sleep(MS);
                }
            }
            round += 1;
        }
    });
}

/// A clock that is moved by hand, in either direction.
#[derive(Clone)]
struct Steps {
    now: Arc<Mutex<Instant>>,
    driver: Arc<Mutex<Option<Weak<dyn Driven>>>>,
}

impl Steps {
    fn show(&self, now: Instant) {
        *self.now.lock().unwrap() = now;
        let driver = self.driver.lock().unwrap().clone();
        driver
            .and_then(|driver| driver.upgrade())
            .unwrap()
            .catch_up();
    }
}

impl Clock for Steps {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }

    fn register(&self, driver: Weak<dyn Driven>) -> bool {
        *self.driver.lock().unwrap() = Some(driver);
        true
    }
}

type Fires = mpsc::Receiver<(u64, char)>;

/// A wheel of one shard that has been to a time an hour ahead, and what it has fired since.
fn was_ahead() -> (Instant, Steps, TimingWheel<u64, char>, Fires) {
    let start = Instant::now();
    let clock = Steps {
        now: Arc::new(Mutex::new(start)),
        driver: Arc::default(),
    };
    let (fired, fires) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .interval(MS)
        .shards(1)
        .build(move |key, value| fired.send((key, value)).unwrap())
        .unwrap();
    wheel.set_timer(0, 'z', HOUR).unwrap();
    clock.show(start + 2 * HOUR);
    assert_eq!(fires.try_recv(), Ok((0, 'z')));
    clock.show(start);
    (start, clock, wheel, fires)
}

#[test]
fn what_is_late_can_be_moved_replaced_taken_and_asked_for() {
    let (start, clock, wheel, fires) = was_ahead();
    let fired = || fires.try_iter().map(|(key, _)| key).collect::<Vec<_>>();
    for key in 1..=6 {
        wheel.set_timer(key, 'a', key as u32 * 10 * MS).unwrap();
    }
    assert_eq!(wheel.len(), 6);
    assert_eq!(wheel.next_deadline(), Some(start + 10 * MS));
    assert_eq!(wheel.deadline(&2), Some(start + 20 * MS));
    assert_eq!(wheel.take_timer(&2).unwrap(), Some('a'));
    assert!(!wheel.contains(&2));
    // Earlier, later, away from the late and back to them.
    assert!(wheel.reschedule_timer(&3, 5 * MS).unwrap());
    wheel.move_timer(1, 15 * MS).unwrap();
    assert_eq!(wheel.replace_timer(4, 'b', 3 * HOUR).unwrap(), Some('a'));
    assert_eq!(wheel.replace_timer(5, 'b', 3 * HOUR).unwrap(), Some('a'));
    assert!(wheel.reschedule_timer(&5, 25 * MS).unwrap());
    wheel.remove_timer(6).unwrap();
    assert_eq!(wheel.next_deadline(), Some(start + 5 * MS));
    clock.show(start + 4 * MS);
    assert_eq!(fired(), []);
    clock.show(start + 5 * MS);
    assert_eq!(fired(), [3]);
    clock.show(start + 25 * MS);
    assert_eq!(fired(), [1, 5]);
    assert_eq!(wheel.next_deadline(), Some(start + 3 * HOUR));
    wheel.set_timer(8, 'c', 2 * MS).unwrap();
    wheel.set_timer(7, 'c', MS).unwrap();
    assert_eq!(wheel.stop(), [(7, 'c'), (8, 'c'), (4, 'b')]);
}

#[test]
fn late_timers_of_one_tick_keep_their_order_and_leave_in_batches() {
    let (start, clock, wheel, fires) = was_ahead();
    for key in 1..=500 {
        wheel.set_timer(key, 'a', 10 * MS).unwrap();
    }
    wheel.set_timer(501, 'a', 3 * HOUR).unwrap();
    clock.show(start + 10 * MS);
    let order: Vec<_> = fires.try_iter().map(|(key, _)| key).collect();
    assert_eq!(order, (1..=500).collect::<Vec<_>>());
    for key in 1..=3 {
        wheel.set_timer(key, 'b', key as u32 * MS).unwrap();
    }
    let mut drained = Vec::new();
    let count = wheel.drain(|key, _| drained.push(key)).unwrap();
    assert_eq!((count, drained), (4, vec![1, 2, 3, 501]));
    assert!(wheel.is_empty());
}

#[test]
fn late_timers_are_found_after_nodes_have_moved() {
    let (start, clock, wheel, fires) = was_ahead();
    for key in 1000..4000 {
        wheel.set_timer(key, 'a', 3 * HOUR).unwrap();
    }
    for key in 1..=3 {
        wheel.set_timer(key, 'b', key as u32 * 10 * MS).unwrap();
    }
    for key in 1000..3999 {
        assert_eq!(wheel.take_timer(&key).unwrap(), Some('a'));
    }
    assert!(wheel.stats().compactions > 0);
    assert_eq!(wheel.deadline(&3), Some(start + 30 * MS));
    assert!(wheel.reschedule_timer(&2, 40 * MS).unwrap());
    assert_eq!(wheel.take_timer(&1).unwrap(), Some('b'));
    clock.show(start + 40 * MS);
    let order: Vec<_> = fires.try_iter().map(|(key, _)| key).collect();
    assert_eq!(order, [3, 2]);
    assert_eq!(wheel.stop(), [(3999, 'a')]);
}
