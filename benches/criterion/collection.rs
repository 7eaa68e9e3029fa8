//! Each operation of the structures in time, on one thread and on two at once.
//!
//! One iteration is one operation in each thread; with two threads the slower one counts. Time is
//! passed in, so no clock is read but in `rolling_add_now`. In `…_err10` one call in ten fails, and
//! the sum is read after each failure, as a breaker does.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use wheelhouse_collection::{
    CountWindow, ErrorCount, Ewma, Jitter, Outcome, Outcomes, Probability, RollingWindow,
    SingleFlight, Sum,
};

/// Measures `operation`, which gets the number of the iteration, on one thread and on two.
fn bench(criterion: &mut Criterion, name: &str, operation: impl Fn(u64) + Sync) {
    let mut group = criterion.benchmark_group(name);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| on_threads(threads, iterations, &operation));
        });
    }
    group.finish();
}

/// How long the slowest of the threads takes; they begin together.
fn on_threads(threads: usize, iterations: u64, operation: &(impl Fn(u64) + Sync)) -> Duration {
    let start = Barrier::new(threads);
    let run = || {
        start.wait();
        let began = Instant::now();
        for iteration in 0..iterations {
            operation(iteration);
        }
        began.elapsed()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let spent = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        spent.max().expect("there is a thread")
    })
}

/// Ten seconds, as breakers use it.
fn rolling<B: wheelhouse_collection::Bucket>() -> RollingWindow<B> {
    RollingWindow::new(40, Duration::from_millis(250)).expect("in range")
}

fn rolling_windows(criterion: &mut Criterion) {
    let now = Instant::now();
    let nanos = 5000;

    let window = rolling::<ErrorCount>();
    bench(criterion, "rolling_add", |_| {
        window.add_at_nanos(black_box(nanos), Outcome::Success);
    });
    bench(criterion, "rolling_add_instant", |_| {
        window.add_at(black_box(now), Outcome::Success);
    });
    bench(criterion, "rolling_add_now", |_| {
        window.add(black_box(Outcome::Success));
    });
    bench(criterion, "rolling_snapshot", |_| {
        black_box(window.snapshot_at_nanos(black_box(nanos)));
    });

    let window = rolling::<Outcomes>();
    bench(criterion, "rolling_add_three_counters", |_| {
        window.add_at_nanos(black_box(nanos), Outcome::Success);
    });

    let window = rolling::<ErrorCount>();
    bench(criterion, "rolling_err10", |call| {
        let failed = call % 10 == 0;
        window.add_at_nanos(black_box(nanos), Outcome::new(failed, false));
        if failed {
            black_box(window.snapshot_at_nanos(black_box(nanos)));
        }
    });

    // Every thousandth call begins a bucket.
    let window = rolling::<Sum>();
    bench(criterion, "rolling_add_and_turn", |call| {
        window.add_at_nanos(call * 250_000, black_box(7));
    });
    bench(criterion, "rolling_reduce", |_| {
        let most = |most: u64, bucket: Sum| most.max(bucket.count);
        black_box(window.reduce_at_nanos(black_box(nanos), 0, most));
    });
}

fn count_windows(criterion: &mut Criterion) {
    let window = CountWindow::new(100).expect("in range");
    bench(criterion, "count_add", |_| {
        window.add(black_box(Outcome::Success));
    });
    bench(criterion, "count_snapshot", |_| {
        black_box(window.snapshot());
    });

    let window = CountWindow::new(100).expect("in range");
    bench(criterion, "count_err10", |call| {
        let failed = call % 10 == 0;
        window.add(Outcome::new(failed, false));
        if failed {
            black_box(window.snapshot());
        }
    });

    // Decides on what is shared, whenever this thread has shared something.
    let window = CountWindow::new(100).expect("in range");
    bench(criterion, "count_err10_shared", |call| {
        let shared = window.add(Outcome::new(call % 10 == 0, false));
        if let Some(shared) = shared {
            black_box(shared.error_rate() > 0.5);
        }
    });
}

fn others(criterion: &mut Criterion) {
    let flights = SingleFlight::<u64, u64>::new();
    bench(criterion, "flight_run", |call| {
        let _ = black_box(flights.run(black_box(call), || call));
    });

    let dice = Probability::new();
    bench(criterion, "probability_roll", |_| {
        black_box(dice.roll(black_box(0.5)));
    });
    let dice = Probability::seeded(1);
    bench(criterion, "probability_roll_seeded", |_| {
        black_box(dice.roll(black_box(0.5)));
    });

    let jitter = Jitter::new(0.05).expect("in range");
    bench(criterion, "jitter_apply", |_| {
        black_box(jitter.apply(black_box(Duration::from_secs(60))));
    });

    thread_local! {
        static AVERAGE: RefCell<Ewma> =
            RefCell::new(Ewma::new(0.95, Duration::from_millis(250)).expect("in range"));
    }
    let start = Instant::now();
    bench(criterion, "ewma_update", |call| {
        let now = start + Duration::from_micros(call);
        AVERAGE.with_borrow_mut(|average| black_box(average.update_at(now, 1.0)));
    });
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    rolling_windows(&mut criterion);
    count_windows(&mut criterion);
    others(&mut criterion);
    criterion.final_summary();
}
