//! `CountWindow` against a plain list, with one writer: exactly the last `n` outcomes, after every
//! operation. With several writers, one after the other: off by at most eight for each.

use std::sync::mpsc;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use wheelhouse_collection::{CountWindow, Outcome, Outcomes};

fn sums<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Outcomes {
    outcomes.fold(Outcomes::default(), |sums, outcome| Outcomes {
        requests: sums.requests + 1,
        errors: sums.errors + u64::from(outcome.is_error()),
        slow: sums.slow + u64::from(outcome.is_slow()),
    })
}

/// Runs of one kind, so that the window is at times full of successes.
fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let kind = prop_oneof![
        5 => Just(Outcome::Success),
        2 => Just(Outcome::Failure),
        1 => Just(Outcome::SlowSuccess),
        1 => Just(Outcome::SlowFailure),
    ];
    let run = prop_oneof![3 => 1..4_usize, 1 => 1..300_usize];
    vec((kind, run), 1..40).prop_map(|runs| {
        let each = runs.into_iter().map(|(kind, run)| vec![kind; run]);
        each.collect::<Vec<_>>().concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn is_exactly_the_last_n_of_one_writer(
        size in prop_oneof![1..20_usize, 20..300_usize],
        outcomes in outcomes(),
        clear_at in proptest::option::of(0..500_usize),
    ) {
        let window = CountWindow::new(size).unwrap();
        let mut list = Vec::new();
        for (at, &outcome) in outcomes.iter().enumerate() {
            if Some(at) == clear_at {
                window.clear();
                list.clear();
                prop_assert_eq!(window.snapshot(), Outcomes::default());
            }
            window.add(outcome);
            list.push(outcome);
            let expected = sums(list.iter().rev().take(size));
            prop_assert_eq!(window.snapshot(), expected, "{} of {}", at, size);
            let shared = window.shared();
            prop_assert!(shared.requests <= size as u64 && shared.errors <= shared.requests);
        }
    }
}

/// Threads that take turns by a channel each, so that the order of all outcomes is known.
fn in_turns(size: usize, writers: usize, check: impl Fn(&Outcomes, &[Outcome])) {
    let window = CountWindow::new(size).unwrap();
    let mut random = fastrand_like(size as u64);
    let mut list = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..writers)
            .map(|_| {
                let (send, receive) = mpsc::channel::<Outcome>();
                let (done, wait) = mpsc::channel();
                let window = &window;
                scope.spawn(move || {
                    for outcome in receive {
                        window.add(outcome);
                        done.send(()).unwrap();
                    }
                });
                (send, wait)
            })
            .collect();
        for _ in 0..3000 {
            let outcome = Outcome::new(random().is_multiple_of(3), random().is_multiple_of(5));
            let (send, wait) = &writers[random() as usize % writers.len()];
            send.send(outcome).unwrap();
            wait.recv().unwrap();
            list.push(outcome);
            let seen = window.snapshot();
            assert!(seen.errors <= seen.requests && seen.slow <= seen.requests);
            assert_eq!(seen.requests as usize, list.len().min(size));
            check(&seen, &list[list.len().saturating_sub(size)..]);
        }
    });
}

/// A small generator: the test must not depend on what it tests.
fn fastrand_like(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 33
    }
}

#[test]
fn is_off_by_at_most_eight_for_each_writer() {
    for writers in [1, 2, 4, 7] {
        in_turns(200, writers, |seen, last| {
            let expected = sums(last.iter());
            // Each of the four words holds up to seven, which may be older than they ought to be, and
            // those are as many as have left too early.
            let slack = if writers == 1 { 0 } else { 8 * writers as u64 };
            assert!(
                seen.errors.abs_diff(expected.errors) <= slack,
                "{seen:?}, {expected:?}"
            );
            assert!(
                seen.slow.abs_diff(expected.slow) <= slack,
                "{seen:?}, {expected:?}"
            );
        });
    }
}

#[test]
fn small_windows_are_exact_for_writers_that_take_turns() {
    for size in [1, 3, 10, 63] {
        in_turns(size, 5, |seen, last| assert_eq!(*seen, sums(last.iter())));
    }
}
