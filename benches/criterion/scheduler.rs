//! Each operation of `Scheduler` with 10 000 and 1 000 000 one-shots pending, and what a run costs
//! when 10 000 are due at one instant.
//!
//! One iteration is one call, or one run. Calls come from one thread beside the runtime's two
//! workers, on tokio's clock, with delays uniform in 60–120 s, and keep the handles; what the calls
//! of a batch have added or taken out is restored after the clock has stopped. Runs are counted from
//! the move of a `ManualClock` until all have ended; they return at once.

use std::future::ready;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::{Builder, Runtime};
use wheelhouse_wheel::ManualClock;
use wheelhouse_wheel::scheduler::{Cancel, Scheduler, TaskHandle};

/// Does a batch of this many operations, at least one, and gives the time that they took.
type Batch = fn(&mut Filled, usize) -> Duration;

const CALLS: &[(&str, Batch)] = &[
    ("after", after),
    ("after_keyed", after_keyed),
    ("every", every),
    ("cancel", cancel),
    ("reschedule", reschedule),
];

const RUNS: &[(&str, Batch)] = &[("run_once", run_once), ("run_every", run_every)];

/// The period of `run_every`, and the delay of `run_once`.
const PERIOD: Duration = Duration::from_millis(10);

const TAKES: &str = "the scheduler takes tasks until it is shut down";

/// A scheduler that is kept at one size.
struct Filled {
    runtime: Runtime,
    scheduler: Scheduler,
    clock: ManualClock,
    handles: Vec<TaskHandle>,
    rng: StdRng,
}

impl Filled {
    /// On tokio's clock, with `size` one-shots pending.
    fn pending(size: usize) -> Self {
        let mut filled = Self::empty(false);
        filled.refill(size);
        filled
    }

    /// On a clock that is moved, with nothing pending.
    fn moved(_size: usize) -> Self {
        Self::empty(true)
    }

    /// On a clock that is moved, with `size` recurring tasks of one period.
    fn recurring(size: usize) -> Self {
        let mut filled = Self::empty(true);
        for _ in 0..size {
            let task = filled.scheduler.every(PERIOD, || ready(())).expect(TAKES);
            filled.handles.push(task);
        }
        filled
    }

    fn empty(moved: bool) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .expect("threads for the runtime's workers");
        let clock = ManualClock::new();
        let builder = Scheduler::builder().runtime(runtime.handle().clone());
        let built = if moved {
            builder.clock(clock.clone()).build()
        } else {
            builder.build()
        };
        Self {
            runtime,
            scheduler: built.expect("the default settings are accepted"),
            clock,
            handles: Vec::new(),
            rng: StdRng::seed_from_u64(1),
        }
    }

    fn refill(&mut self, count: usize) {
        for delay in self.delays(count) {
            let task = self.scheduler.after(delay, || ready(())).expect(TAKES);
            self.handles.push(task);
        }
    }

    fn delays(&mut self, count: usize) -> Vec<Duration> {
        (0..count)
            .map(|_| Duration::from_millis(self.rng.random_range(60_000..=120_000)))
            .collect()
    }

    /// Takes `count` handles out in random order.
    fn picked(&mut self, count: usize) -> Vec<TaskHandle> {
        let mut picked = Vec::with_capacity(count);
        for _ in 0..count {
            let place = self.rng.random_range(0..self.handles.len());
            picked.push(self.handles.swap_remove(place));
        }
        picked
    }

    /// Moves the clock on by a period and lets all that is due run.
    fn run(&self) -> Duration {
        let began = Instant::now();
        self.clock.advance(PERIOD);
        self.runtime.block_on(self.scheduler.settled());
        began.elapsed()
    }
}

/// Schedules a task for each delay, and cancels them after the clock has stopped.
fn scheduled(
    filled: &mut Filled,
    count: usize,
    schedule: impl Fn(&Scheduler, usize, Duration) -> TaskHandle,
) -> Duration {
    let delays = filled.delays(count);
    let mut added = Vec::with_capacity(count);

    let began = Instant::now();
    for (number, &delay) in delays.iter().enumerate() {
        added.push(schedule(&filled.scheduler, number, delay));
    }
    let spent = began.elapsed();

    for task in added {
        assert_eq!(task.cancel(), Cancel::Cancelled);
    }
    spent
}

fn after(filled: &mut Filled, count: usize) -> Duration {
    scheduled(filled, count, |scheduler, _, delay| {
        scheduler.after(delay, || ready(())).expect(TAKES)
    })
}

/// The key is made on the way, as most callers would.
fn after_keyed(filled: &mut Filled, count: usize) -> Duration {
    scheduled(filled, count, |scheduler, number, delay| {
        let task = scheduler.task().key(number.to_string());
        task.after(delay, || ready(())).expect(TAKES)
    })
}

fn every(filled: &mut Filled, count: usize) -> Duration {
    scheduled(filled, count, |scheduler, _, period| {
        scheduler.every(period, || ready(())).expect(TAKES)
    })
}

fn cancel(filled: &mut Filled, count: usize) -> Duration {
    let picked = filled.picked(count);
    let began = Instant::now();
    for task in &picked {
        let _ = black_box(task.cancel());
    }
    let spent = began.elapsed();

    filled.refill(count);
    spent
}

fn reschedule(filled: &mut Filled, count: usize) -> Duration {
    let delays = filled.delays(count);
    let picked = filled.picked(count);
    let began = Instant::now();
    for (task, &delay) in picked.iter().zip(&delays) {
        black_box(task.reschedule(delay));
    }
    let spent = began.elapsed();

    filled.handles.extend(picked);
    spent
}

fn run_once(filled: &mut Filled, count: usize) -> Duration {
    for _ in 0..count {
        let task = filled.scheduler.after(PERIOD, || ready(()));
        drop(task.expect(TAKES));
    }
    let spent = filled.run();
    assert!(filled.scheduler.is_empty());
    spent
}

/// All of them run, whose share above `count` is taken off.
fn run_every(filled: &mut Filled, count: usize) -> Duration {
    let before = filled.scheduler.stats().succeeded;
    let spent = filled.run();
    let ran = filled.scheduler.stats().succeeded - before;
    assert_eq!(ran, filled.handles.len() as u64);
    spent.mul_f64(count as f64 / ran as f64)
}

/// Measures one operation at one size; `largest` bounds its batches.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    size: usize,
    largest: usize,
    make: fn(usize) -> Filled,
    batch: Batch,
) {
    // Made when the first sample asks for it, so that what is filtered out costs nothing.
    let mut filled = None;
    group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
        bencher.iter_custom(|iterations| {
            let filled = filled.get_or_insert_with(|| make(size));
            let mut left = iterations;
            let mut spent = Duration::ZERO;
            while left > 0 {
                let count = left.min(largest as u64);
                spent += batch(filled, count as usize);
                left -= count;
            }
            spent
        });
    });
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--test");
    let (sizes, at_once): (&[usize], usize) = if smoke {
        (&[1_000], 100)
    } else {
        (&[10_000, 1_000_000], 10_000)
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    for &(name, batch) in CALLS {
        let mut group = criterion.benchmark_group(format!("scheduler_{name}"));
        for &size in sizes {
            measure(&mut group, size, size / 8, Filled::pending, batch);
        }
        group.finish();
    }
    for &(name, batch) in RUNS {
        let make = match name {
            "run_every" => Filled::recurring,
            _ => Filled::moved,
        };
        let mut group = criterion.benchmark_group(format!("scheduler_{name}"));
        measure(&mut group, at_once, at_once, make, batch);
        group.finish();
    }
    criterion.final_summary();
}
