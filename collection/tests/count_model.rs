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
            if let Some(shared) = window.add(outcome) {
                prop_assert!(shared.requests <= size as u64 && shared.errors <= shared.requests);
            }
            list.push(outcome);
            let expected = sums(list.iter().rev().take(size));
            prop_assert_eq!(window.snapshot(), expected, "{} of {}", at, size);
        }
    }
}

/// Writers that take turns, so that the order of all outcomes is known. The program is who writes
/// next, and what; after each outcome `check` gets the sum and the last `n` of all.
fn in_turns(
    size: usize,
    writers: usize,
    program: impl Iterator<Item = (usize, Outcome)>,
    mut check: impl FnMut(&Outcomes, &[Outcome]),
) {
    let window = CountWindow::new(size).unwrap();
    let mut list = Vec::new();
    thread::scope(|scope| {
        let spawn = |_| {
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
        };
        let writers: Vec<_> = (0..writers).map(spawn).collect();
        for (writer, outcome) in program {
            let (send, wait) = &writers[writer];
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
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}

/// The worst case: the first writer fails and the others succeed, and one of those is slow, so that
/// each outcome in another's place shows. The first writes `pace` times as often as each of the others.
#[test]
fn is_off_by_at_most_eight_for_each_writer() {
    for (writers, pace) in [
        (1, 1),
        (2, 1),
        (2, 2),
        (2, 5),
        (2, 30),
        (4, 1),
        (4, 3),
        (7, 1),
        (7, 9),
        (4, 10),
        (4, 30),
        (4, 100),
        (2, 100),
    ] {
        for random_order in [false, true] {
            let mut random = random(writers + pace);
            let program = (0..4000).map(|turn| {
                let of = writers - 1 + pace;
                let turn = if random_order { random(of) } else { turn % of };
                let writer = turn.saturating_sub(pace - 1);
                let kind = Outcome::new(writer == 0, writer == 1);
                (writer as usize, kind)
            });
            let mut furthest = 0;
            in_turns(200, writers as usize, program, |seen, last| {
                let expected = sums(last.iter());
                let off = seen.errors.abs_diff(expected.errors);
                furthest = furthest.max(off).max(seen.slow.abs_diff(expected.slow));
            });
            let allowed = if writers == 1 { 0 } else { 8 * writers };
            assert!(
                furthest <= allowed,
                "{writers} writers at {pace}: off by {furthest}"
            );
        }
    }
}

/// Writers that stop for good leave no more than eight outcomes each behind.
#[test]
fn writers_that_stop_hide_no_outage() {
    for writers in [2, 4, 7] {
        let before = (0..1000).map(|turn| (turn % writers, Outcome::Success));
        let after = (0..1000).map(|_| (0, Outcome::Failure));
        let mut end = Outcomes::default();
        in_turns(100, writers, before.chain(after), |seen, _| end = *seen);
        assert_eq!(end.requests, 100);
        // There are four words, one of which is the last writer's.
        let allowed = 8 * (writers.min(4) as u64 - 1);
        assert!(end.errors >= 100 - allowed, "{end:?}");
    }
}

#[test]
fn small_windows_are_exact_for_writers_that_take_turns() {
    for size in [1, 3, 10, 63] {
        let mut random = random(size as u64);
        let program = (0..3000).map(|_| {
            let outcome = Outcome::new(random(3) == 0, random(5) == 0);
            (random(5) as usize, outcome)
        });
        in_turns(size, 5, program, |seen, last| {
            assert_eq!(*seen, sums(last.iter()))
        });
    }
}
