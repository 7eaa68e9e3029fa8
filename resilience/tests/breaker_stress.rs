//! Many threads at one breaker: what adds up, what trips, and what does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use wheelhouse_resilience::{
    Breaker, BreakerBuilder, Closing, Consecutive, Cusum, ErrorRate, Permit, State,
};
use wheelhouse_wheel::ManualClock;

/// R32 in short: every outcome is counted once, whatever the policy.
#[test]
fn r32_all_calls_add_up() {
    let calls = 50_000_u64;
    for builder in [
        Breaker::consecutive(),
        Breaker::builder().trip_on(Cusum::new()),
        Breaker::builder().trip_on(ErrorRate::above(0.5).last(100)),
        Breaker::error_rate(),
        Breaker::builder(),
    ] {
        let breaker = builder.build().unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for call in 0..calls {
                        let permit = breaker.try_acquire().unwrap();
                        if call % 10 == 0 {
                            permit.failure();
                        } else {
                            permit.success();
                        }
                    }
                });
            }
        });
        let stats = breaker.stats();
        assert_eq!(
            (stats.successes, stats.failures),
            (8 * calls / 10 * 9, 8 * calls / 10)
        );
        assert_eq!((stats.transitions, stats.rejected), (0, 0));
    }
}

/// Two threads that take turns: each step is done by the one that is named.
fn in_turns(breaker: &Breaker, steps: &[(usize, &str)]) {
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (order, orders) = mpsc::channel::<String>();
                let done = done.clone();
                scope.spawn(move || {
                    for pattern in orders {
                        for outcome in pattern.chars() {
                            if let Ok(permit) = breaker.try_acquire() {
                                match outcome {
                                    'F' => permit.failure(),
                                    _ => permit.success(),
                                }
                            }
                        }
                        done.send(()).unwrap();
                    }
                });
                order
            })
            .collect();
        for (worker, pattern) in steps {
            workers[*worker].send((*pattern).to_owned()).unwrap();
            is_done.recv().unwrap();
        }
    });
}

fn state_after(builder: &BreakerBuilder, steps: &[(usize, &str)]) -> State {
    let breaker = builder.build().unwrap();
    in_turns(&breaker, steps);
    breaker.state()
}

/// A success of any thread breaks the failures of all.
#[test]
fn consecutive_failures_are_not_counted_across_a_success() {
    for failures in [1_usize, 2, 5, 6, 17] {
        let builder = Breaker::builder().trip_on(Consecutive::failures(failures as u32));
        let almost = "F".repeat(failures - 1);
        let most = almost.as_str();
        for steps in [
            vec![(0, most), (1, "S"), (0, most), (1, "S"), (0, most)],
            vec![
                (1, "S"),
                (0, most),
                (1, "S"),
                (2, most),
                (1, "S"),
                (0, most),
                (1, "S"),
            ],
            vec![
                (1, "SS"),
                (0, most),
                (1, "S"),
                (0, most),
                (2, "S"),
                (1, most),
            ],
        ] {
            assert_eq!(
                state_after(&builder, &steps),
                State::Closed,
                "{failures}: {steps:?}"
            );
        }
        // In turns, one failure and one success each.
        let turns: Vec<_> = (0..60)
            .map(|turn| (turn % 2, ["F", "S"][turn % 2]))
            .collect();
        let expected = if failures == 1 {
            State::Open
        } else {
            State::Closed
        };
        assert_eq!(state_after(&builder, &turns), expected, "{failures}");
    }
}

/// A trip may be late, by what each thread has below the look, and does come.
#[test]
fn consecutive_failures_of_several_threads_trip() {
    for failures in [1_usize, 2, 5, 6, 17, 100] {
        let builder = Breaker::builder().trip_on(Consecutive::failures(failures as u32));
        let late = 3 * (failures.div_ceil(4) - 1);
        for threads in 1..=3 {
            let mixed = if failures == 1 { "SS" } else { "SFS" };
            let before: Vec<_> = (0..threads).map(|thread| (thread, mixed)).collect();
            let fail = |number: usize| (0..number).map(|call| (call % threads, "F"));
            let steps: Vec<_> = before.iter().copied().chain(fail(failures - 1)).collect();
            assert_eq!(state_after(&builder, &steps), State::Closed);
            let late = if threads == 1 { 0 } else { late };
            let steps: Vec<_> = before
                .iter()
                .copied()
                .chain(fail(failures + late))
                .collect();
            assert_eq!(
                state_after(&builder, &steps),
                State::Open,
                "{failures} by {threads}"
            );
        }
    }
}

/// One thread whose calls fail, among others whose calls do not: a quarter of all fails, which is no
/// evidence.
#[test]
fn cusum_hears_the_successes_of_other_threads() {
    let builder = Breaker::builder().trip_on(Cusum::new());
    let mut steps = vec![(0, "S"), (1, "S"), (2, "S")];
    for _ in 0..200 {
        steps.extend([(0, "F"), (1, "SS"), (2, "S")]);
    }
    assert_eq!(state_after(&builder, &steps), State::Closed);
    let all = ["F"; 60].into_iter().enumerate();
    steps.extend(all.map(|(call, outcome)| (call % 3, outcome)));
    assert_eq!(state_after(&builder, &steps), State::Open);

    let steps = [
        (0, "FFFFFFFFFFFFFFFF"),
        (1, "SSSSSSSSSSSSSSSSSSSS"),
        (0, "FFFFFFFFFFFFFFFF"),
    ];
    assert_eq!(state_after(&builder, &steps), State::Closed);
}

/// While threads fail and succeed at random at a harmless rate, nothing trips; when all fail, it does
/// before each has failed as often as one alone would have to.
#[test]
fn cusum_under_threads() {
    for round in 0..5 {
        let breaker = Breaker::builder().trip_on(Cusum::new()).build().unwrap();
        let failed = AtomicU64::new(0);
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (breaker, failed, barrier) = (&breaker, &failed, &barrier);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(round * 4 + thread);
                    for _ in 0..20_000 {
                        let permit = breaker.try_acquire().unwrap();
                        match random.f64() < 0.1 {
                            true => permit.failure(),
                            false => permit.success(),
                        }
                    }
                    barrier.wait();
                    while let Ok(permit) = breaker.try_acquire() {
                        permit.failure();
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(breaker.state(), State::Open);
        assert!(failed.into_inner() <= 17 + 4 * 3 + 4);
    }
}

/// Threads that trip, probe, close and reset at once: transitions are told of in order, and each
/// follows from the one before.
#[test]
fn transitions_have_one_order() {
    let clock = ManualClock::new();
    let told = Arc::new(Mutex::new((0, State::Closed)));
    let last = told.clone();
    let breaker = Breaker::consecutive()
        .clock(clock.clone())
        .cool_down(Duration::from_millis(1))
        .max_probes(2)
        .closing(Closing::successes(2))
        .on_transition(move |event| {
            let mut last = last.lock().unwrap();
            assert_eq!((event.sequence, event.from), (last.0 + 1, last.1));
            *last = (event.sequence, event.to);
        })
        .build()
        .unwrap();
    thread::scope(|scope| {
        for seed in 0..3 {
            let (breaker, clock) = (&breaker, &clock);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut held: Vec<Permit<'_>> = Vec::new();
                for call in 0..3000 {
                    if call % 10 == 0 {
                        clock.advance(Duration::from_millis(1));
                    }
                    held.extend(breaker.try_acquire());
                    if held.len() > 3 || call % 7 == 0 {
                        for permit in held.drain(..) {
                            match random.f64() < if call % 200 < 100 { 0.9 } else { 0.1 } {
                                true => permit.failure(),
                                false => permit.success(),
                            }
                        }
                    }
                }
            });
        }
    });
    let stats = breaker.stats();
    assert_eq!(stats.hook_panics, 0);
    assert!(stats.transitions > 2);
    assert_eq!(told.lock().unwrap().0, stats.transitions);
}
