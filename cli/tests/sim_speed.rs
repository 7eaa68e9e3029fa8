//! How long `sim wheel` takes: the figure that is promised holds for a release build, elsewhere a
//! generous bound shows an accidental O(n) per line.

mod program;

use std::time::{Duration, Instant};

use program::wheelhouse;

/// Half sets and half moves of 30 000 keys, over ten seconds of a million operations.
fn input(operations: u64) -> String {
    let mut input = String::new();
    for at in 0..operations / 2 {
        let (at_ms, key) = (at / 50, at % 30_000);
        input.push_str(&format!(
            "{{\"at_ms\":{at_ms},\"op\":\"set\",\"key\":\"user:{key}\",\"delay_ms\":{},\"value\":\"v\"}}\n\
             {{\"at_ms\":{at_ms},\"op\":\"move\",\"key\":\"user:{key}\",\"delay_ms\":{}}}\n",
            at * 7919 % 60_000,
            at * 104_729 % 60_000,
        ));
    }
    input
}

fn assert_takes_at_most(operations: u64, bound: Duration) {
    let input = input(operations);
    let begin = Instant::now();
    let run = wheelhouse(&["sim", "wheel"], input.as_bytes());
    let took = begin.elapsed();
    println!("{operations} operations took {took:?}");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.lines().count() >= 30_000);
    assert!(took < bound, "{operations} operations took {took:?}");
}

#[cfg(debug_assertions)]
#[test]
fn two_hundred_thousand_operations_take_seconds_at_most() {
    assert_takes_at_most(200_000, Duration::from_secs(10));
}

#[cfg(not(debug_assertions))]
#[test]
fn a_million_operations_take_less_than_two_seconds() {
    assert_takes_at_most(1_000_000, Duration::from_secs(2));
}
