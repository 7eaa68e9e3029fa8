//! What a call costs: through each policy of a breaker and the throttle, on one thread and on two at
//! once.
//!
//! One iteration is one call in each thread; with two threads the slower one counts. In `…_err10` one
//! call in ten fails. `rejected` are calls on an open breaker, `acquire` is the two-step form.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use wheelhouse_resilience::{Breaker, CoarseClock, Consecutive, Cusum, ErrorRate};

const HOUR: Duration = Duration::from_secs(3600);

/// Measures `call`, which gets the number of the iteration, on one thread and on two.
fn bench(criterion: &mut Criterion, name: &str, call: impl Fn(u64) + Sync) {
    let mut group = criterion.benchmark_group(name);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| on_threads(threads, iterations, &call));
        });
    }
    group.finish();
}

/// How long the slowest of the threads takes; they begin together.
fn on_threads(threads: usize, iterations: u64, call: &(impl Fn(u64) + Sync)) -> Duration {
    let start = Barrier::new(threads);
    let run = || {
        start.wait();
        let began = Instant::now();
        for iteration in 0..iterations {
            call(iteration);
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

/// The breakers that are compared, each with its name.
fn breakers() -> [(&'static str, Breaker); 7] {
    let count = ErrorRate::above(0.5).last(100).minimum(100);
    let built = [
        ("rate", Breaker::error_rate().build()),
        // Nobody refreshes it: reading it costs the same.
        (
            "rate_coarse",
            Breaker::error_rate().clock(CoarseClock::new()).build(),
        ),
        ("count", Breaker::builder().trip_on(count).build()),
        (
            "consecutive",
            Breaker::consecutive()
                .trip_on(Consecutive::failures(6))
                .build(),
        ),
        ("cusum", Breaker::builder().trip_on(Cusum::new()).build()),
        ("default", Breaker::builder().build()),
        ("throttle", Breaker::throttle().build()),
    ];
    built.map(|(name, breaker)| (name, breaker.expect("the settings are in range")))
}

fn closed(criterion: &mut Criterion) {
    for (name, breaker) in breakers() {
        bench(criterion, name, |number| {
            let _ = black_box(breaker.call(|| Ok::<_, u64>(black_box(number))));
        });
        bench(criterion, &format!("{name}_err10"), |number| {
            let failed = number % 10 == 9;
            let _ = black_box(breaker.call(|| if failed { Err(number) } else { Ok(number) }));
        });
    }
    let breaker = Breaker::builder().build().expect("nothing is set");
    bench(criterion, "acquire", |_| {
        if let Ok(permit) = black_box(&breaker).try_acquire() {
            permit.success();
        }
    });
}

fn rejected(criterion: &mut Criterion) {
    let open = |builder: wheelhouse_resilience::BreakerBuilder| {
        let breaker = builder.cool_down(HOUR).build().expect("in range");
        while let Ok(permit) = breaker.try_acquire() {
            permit.failure();
        }
        breaker
    };
    let breaker = open(Breaker::builder());
    bench(criterion, "rejected", |_| {
        let _ = black_box(breaker.try_acquire().is_err());
    });
    let breaker = open(Breaker::builder().clock(CoarseClock::new()));
    bench(criterion, "rejected_coarse", |_| {
        let _ = black_box(breaker.try_acquire().is_err());
    });
    breaker.force_open();
    bench(criterion, "rejected_forced", |_| {
        let _ = black_box(breaker.try_acquire().is_err());
    });
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    closed(&mut criterion);
    rejected(&mut criterion);
    criterion.final_summary();
}
