//! `sim cache`: the ratios it prints, what it says to bad arguments, and how it ends.

mod program;

use program::{Outcome, wheelhouse};

/// Belady's example: of these twelve, four frames hit 4 times under LRU and 6 times at best.
const BELADY: &str = "1\n2\n3\n4\n1\n2\n5\n1\n2\n3\n4\n5\n";

fn cache(args: &[&str], input: &str) -> Outcome {
    wheelhouse(&[&["sim", "cache"], args].concat(), input.as_bytes())
}

#[track_caller]
fn prints(args: &[&str], input: &str, line: &str) {
    let run = cache(args, input);
    assert_eq!(run.stderr, "", "{args:?}");
    assert_eq!(run.stdout, format!("{line}\n"), "{args:?}");
    assert_eq!(run.code, Some(0), "{args:?}");
}

#[test]
fn lru_and_the_optimum_are_those_of_the_textbook() {
    prints(
        &["--capacity", "4", "--policy", "lru"],
        BELADY,
        "requests=12 hits=4 hit_ratio=33.333% max_len=4",
    );
    prints(
        &["--capacity=4", "--policy=lru", "--optimum", "--json"],
        BELADY,
        r#"{"requests":12,"hits":4,"hit_ratio":33.333,"max_len":4,"optimum_hits":6,"optimum_hit_ratio":50.0}"#,
    );
    // First in, first out: more room, fewer hits, which is what the example is known for.
    prints(
        &["--capacity=3", "--policy=fifo"],
        BELADY,
        "requests=12 hits=3 hit_ratio=25.000% max_len=3",
    );
    prints(
        &["--capacity=4", "--policy=fifo"],
        BELADY,
        "requests=12 hits=2 hit_ratio=16.667% max_len=4",
    );
}

#[test]
fn every_policy_keeps_what_fits_and_no_more_than_that() {
    let trace: String = (0..3)
        .flat_map(|_| 0..50)
        .map(|key| format!("{key}\n"))
        .collect();
    for policy in ["default", "lru", "sieve", "fifo"] {
        for threads in ["1", "4"] {
            let run = cache(
                &["--capacity=20", "--policy", policy, "--threads", threads],
                &trace,
            );
            assert_eq!(run.code, Some(0), "{run:?}");
            assert!(run.stdout.ends_with(" max_len=20\n"), "{policy}: {run:?}");
        }
        prints(
            &["--capacity=50", "--policy", policy],
            &trace,
            "requests=150 hits=100 hit_ratio=66.667% max_len=50",
        );
    }
}

/// A request takes 1 ms: with a lifetime of 2 ms a key is there one request later, and gone after
/// three.
#[test]
fn entries_expire_on_the_virtual_clock() {
    let run = cache(&["--capacity=9", "--ttl=2ms"], "a\na\nb\nc\nd\na\n");
    let known = "requests=6 hits=1 hit_ratio=16.667% ";
    assert!(run.stdout.starts_with(known), "{run:?}");
}

#[test]
fn empty_lines_are_skipped_and_nothing_has_a_ratio_of_zero() {
    prints(
        &["--capacity=9"],
        "\n\na key\n\na key",
        "requests=2 hits=1 hit_ratio=50.000% max_len=1",
    );
    prints(
        &["--capacity=9", "--optimum", "--json"],
        "",
        r#"{"requests":0,"hits":0,"hit_ratio":0.0,"max_len":0,"optimum_hits":0,"optimum_hit_ratio":0.0}"#,
    );
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    for (args, named) in [
        (&[][..], "--capacity"),
        (&["--capacity=0"], "--capacity: 0 is not in 1..="),
        (&["--capacity=-1"], "--capacity"),
        (&["--capacity=9", "--policy=arc"], "--policy"),
        (
            &["--capacity=9", "--threads=0"],
            "--threads: 0 is not in 1..=64",
        ),
        (
            &["--capacity=9", "--threads=65"],
            "--threads: 65 is not in 1..=64",
        ),
        (&["--capacity=9", "--ttl=0s"], "--ttl"),
        (&["--capacity=9", "--ttl=soon"], "--ttl"),
        (&["--capacity=9", "trace.txt"], "trace.txt"),
    ] {
        let run = cache(args, "1\n");
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{args:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
        assert!(run.stderr.contains(named), "{args:?}: {}", run.stderr);
    }
}
