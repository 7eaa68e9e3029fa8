//! Eight threads and the callbacks themselves use one wheel in real time, for as many seconds as
//! `WHEELHOUSE_STRESS_SECONDS` says (2 without it); a ledger shows that every value left once.

mod support {
    pub(crate) mod ledger;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wheelhouse_wheel::{Executor, SetError, TimingWheel, TrySetError, WeakTimingWheel};

use support::ledger::{Ledger, Token};

/// Few, so that threads meet on the same ones.
const KEYS: u32 = 3000;

/// Keys from here on are never moved: their values know when they are due.
const STEADY: u32 = 2000;

/// Values in a round; then a new wheel is built.
const ROUND: usize = 1 << 21;

struct Value {
    token: Token,
    due: Instant,
}

/// What the threads and the callbacks saw, to compare with the wheel's own count. Relaxed: read
/// when all of them are over.
#[derive(Default)]
struct Seen {
    set: AtomicU64,
    refused: AtomicU64,
    fired: AtomicU64,
    early: AtomicU64,
    taken: AtomicU64,
    replaced: AtomicU64,
    rescheduled: AtomicU64,
    drained: AtomicU64,
}

struct Stress {
    ledger: Ledger,
    seen: Seen,
    over: AtomicBool,
}

type Wheel = TimingWheel<u32, Value>;

impl Stress {
    /// One random operation.
    fn operate(&self, wheel: &Wheel, rng: &mut SmallRng) {
        let key = rng.random_range(0..KEYS);
        let delay = match rng.random_range(0..10) {
            0 => Duration::ZERO,
            1 => Duration::from_secs(3600),
            _ => Duration::from_micros(rng.random_range(0..20_000)),
        };
        let movable = key % STEADY;
        match rng.random_range(0..1000) {
            0..400 => self.set(wheel, key, delay, rng.random_range(0..4)),
            400..550 => drop(wheel.move_timer(movable, delay)),
            550..600 => drop(wheel.try_move_timer(movable, delay)),
            600..650 => {
                let moved = wheel.reschedule_timer(&movable, delay) == Ok(true);
                self.seen.rescheduled.fetch_add(moved.into(), Relaxed);
            }
            650..800 => drop(wheel.remove_timer(key)),
            800..850 => drop(wheel.try_remove_timer(key)),
            850..950 => {
                if let Ok(Some(value)) = wheel.take_timer(&key) {
                    self.seen.taken.fetch_add(1, Relaxed);
                    drop(value);
                }
            }
            950..970 => drop(wheel.flush()),
            970..980 => assert!(wheel.len() <= KEYS as usize),
            980..990 => drop((wheel.contains(&key), wheel.deadline(&key))),
            990..998 => drop((wheel.next_deadline(), wheel.stats())),
            _ => {
                let mut drained = 0;
                let count = wheel.drain(|_, value| {
                    drained += 1;
                    drop(value);
                });
                assert_eq!(count.unwrap_or(0), drained);
                self.seen.drained.fetch_add(drained as u64, Relaxed);
            }
        }
    }

    fn set(&self, wheel: &Wheel, key: u32, delay: Duration, form: u32) {
        let Some(token) = self.ledger.issue() else {
            self.over.store(true, Relaxed);
            return;
        };
        let due = Instant::now() + delay;
        let value = Value { token, due };
        let set = match form {
            0 => match wheel.replace_timer(key, value, delay) {
                Ok(old) => {
                    self.seen.replaced.fetch_add(old.is_some().into(), Relaxed);
                    true
                }
                Err(SetError::Full(..) | SetError::Closed(..)) => false,
                Err(error) => panic!("{error}"),
            },
            1 => match wheel.try_set_timer(key, value, delay) {
                Ok(()) => true,
                Err(TrySetError::Busy(..) | TrySetError::Closed(..)) => false,
                Err(error) => panic!("{error}"),
            },
            _ => wheel.set_timer(key, value, delay).is_ok(),
        };
        let count = if set {
            &self.seen.set
        } else {
            &self.seen.refused
        };
        count.fetch_add(1, Relaxed);
    }

    fn callback(&self, wheel: &WeakTimingWheel<u32, Value>, key: u32, value: &Value) {
        self.seen.fired.fetch_add(1, Relaxed);
        if key >= STEADY && Instant::now() < value.due {
            self.seen.early.fetch_add(1, Relaxed);
        }
        if let Some(wheel) = wheel.upgrade() {
            let mut rng = SmallRng::seed_from_u64(value.token.id as u64);
            for _ in 0..rng.random_range(0..3) {
                self.operate(&wheel, &mut rng);
            }
            if value.token.id.is_multiple_of(1000) {
                std::panic::resume_unwind(Box::new("one in a thousand"));
            }
        }
    }
}

/// One wheel from its start to its stop; returns how many values went through it.
fn round(executor: &Executor, seed: u64, until: Instant) -> usize {
    let stress = Arc::new(Stress {
        ledger: Ledger::new(ROUND),
        seen: Seen::default(),
        over: AtomicBool::new(false),
    });
    let wheel = TimingWheel::builder()
        .channel(if seed.is_multiple_of(2) { 64 } else { 4 })
        .executor(executor.clone())
        .build_cyclic(|wheel| {
            let stress = stress.clone();
            move |key, value: Value| stress.callback(&wheel, key, &value)
        })
        .unwrap();
    let left: Vec<(u32, Value)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (stress, wheel) = (&stress, &wheel);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
                    while !stress.over.load(Relaxed) && Instant::now() < until {
                        for _ in 0..100 {
                            stress.operate(wheel, &mut rng);
                        }
                    }
                    stress.over.store(true, Relaxed);
                    // The first to come here stops the wheel under the hands of the others.
                    wheel.stop()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let stats = wheel.stats();
    drop(wheel);
    assert_eq!(stats.returned, left.len() as u64, "one stop gets all");
    drop(left);

    let seen = |count: &AtomicU64| count.load(Relaxed);
    let Seen { set, fired, .. } = &stress.seen;
    assert_eq!(stats.set, seen(set), "{stats:?}");
    assert_eq!(stats.fired, seen(fired), "{stats:?}");
    assert_eq!(stats.drained, seen(&stress.seen.drained), "{stats:?}");
    assert!(stats.removed >= seen(&stress.seen.taken), "{stats:?}");
    assert!(stats.replaced >= seen(&stress.seen.replaced), "{stats:?}");
    assert!(stats.moved >= seen(&stress.seen.rescheduled), "{stats:?}");
    assert_eq!((stats.pending, stats.dropped), (0, 0), "{stats:?}");
    let left = stats.fired + stats.removed + stats.replaced + stats.drained + stats.returned;
    assert_eq!(stats.set, left, "{stats:?}");
    assert_eq!(seen(&stress.seen.early), 0);
    let issued = stress.ledger.close();
    assert_eq!(issued as u64, seen(set) + seen(&stress.seen.refused));
    issued
}

fn stress(executor: &Executor) {
    let seconds = match std::env::var("WHEELHOUSE_STRESS_SECONDS") {
        Ok(seconds) => seconds.parse().expect("a number of seconds"),
        Err(_) => 2.0,
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut values = 0;
    for seed in 0.. {
        let now = Instant::now();
        if now >= end {
            break;
        }
        // Short rounds, so that there are many stops.
        values += round(executor, seed, end.min(now + Duration::from_millis(250)));
    }
    println!("{values} values");
    assert!(values > 0);
}

#[test]
fn every_value_leaves_once_with_callbacks_on_the_driver() {
    stress(&Executor::Inline);
}

#[test]
fn every_value_leaves_once_with_callbacks_on_a_pool() {
    stress(&Executor::Threads(2));
}
