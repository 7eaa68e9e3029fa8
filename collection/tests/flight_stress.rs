//! Threads and tasks use one `SingleFlight` in parallel, for as many seconds as
//! `WHEELHOUSE_STRESS_SECONDS` says (2 without it): they return, fail, panic and are dropped. No key
//! is computed twice at a time, every caller gets what a computation returned, and the ledger adds up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_collection::{FlightError, Probability, SingleFlight};

const KEYS: u64 = 3;

/// What a computation of the key has returned: the key and a number of its own.
type Value = (u64, u64);

struct Stress {
    group: SingleFlight<u64, Value, Value>,
    /// Who is computing each key, and the numbers of computations.
    computing: [AtomicU32; KEYS as usize],
    numbers: AtomicU64,
    random: Probability,
    panics: AtomicU64,
    ended: AtomicU64,
    answers: AtomicU64,
}

/// Counts itself as a computation of its key for as long as it lives.
struct Computing<'a>(&'a Stress, u64);

impl<'a> Computing<'a> {
    fn new(stress: &'a Stress, key: u64) -> Self {
        let others = stress.computing[key as usize].fetch_add(1, Relaxed);
        assert_eq!(others, 0, "key {key} is computed twice at a time");
        stress.numbers.fetch_add(1, Relaxed);
        Computing(stress, key)
    }

    fn end(self) -> Result<Value, Value> {
        let number = self.0.ended.fetch_add(1, Relaxed);
        let value = (self.1, number);
        if number.is_multiple_of(3) {
            Err(value)
        } else {
            Ok(value)
        }
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.computing[self.1 as usize].fetch_sub(1, Relaxed);
    }
}

impl Stress {
    fn check(&self, key: u64, answer: &Result<Value, FlightError<Value>>) {
        self.answers.fetch_add(1, Relaxed);
        match answer {
            Ok((of, number)) => assert!(*of == key && number % 3 != 0),
            Err(FlightError::Failed((of, number))) => assert!(*of == key && number % 3 == 0),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn call(&self) {
        let key = self.random.next_u64() % KEYS;
        let call = || {
            self.group.try_run(key, || {
                let computing = Computing::new(self, key);
                match self.random.next_u64() % 8 {
                    0 => std::panic::resume_unwind(Box::new("on purpose")),
                    1 => thread::yield_now(),
                    _ => {}
                }
                computing.end()
            })
        };
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => self.check(key, &answer),
            Err(payload) => {
                assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
                self.panics.fetch_add(1, Relaxed);
            }
        }
    }

    /// A call that is dropped after a few polls, if it has not ended by then.
    async fn call_async(&self) {
        let key = self.random.next_u64() % KEYS;
        let call = self.group.try_run_async(key, async {
            let computing = Computing::new(self, key);
            for _ in 0..self.random.next_u64() % 4 {
                tokio::task::yield_now().await;
            }
            computing.end()
        });
        let patience = async {
            for _ in 0..self.random.next_u64() % 8 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            answer = call => self.check(key, &answer),
            () = patience => {}
        }
    }
}

#[test]
fn stress_flights_add_up() {
    let seconds = std::env::var("WHEELHOUSE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(2, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let stress = Arc::new(Stress {
        group: SingleFlight::new(),
        computing: Default::default(),
        numbers: AtomicU64::new(0),
        random: Probability::new(),
        panics: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        answers: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let stress = stress.clone();
            runtime.spawn(async move {
                while Instant::now() < until {
                    stress.call_async().await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while Instant::now() < until {
                    stress.call();
                }
            });
        }
    });
    for task in tasks {
        runtime.block_on(task).unwrap();
    }

    let stats = stress.group.stats();
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    assert_eq!(stats.in_flight, 0);
    assert_eq!(stats.recursive, 0);
    // An async leader may be dropped between taking over and its first step.
    assert!(stats.led >= count(&stress.numbers));
    assert_eq!(stats.joined + count(&stress.ended), count(&stress.answers));
    assert!(stats.joined > 0 && stats.handed_over > 0 && count(&stress.panics) > 0);
}
