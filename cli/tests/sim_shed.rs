//! `sim shed`: what the shedder makes of a load, the form of the output, and bad arguments.

mod program;

use program::wheelhouse;
use serde_json::Value;

fn shed(args: &[&str]) -> Vec<Value> {
    let run = wheelhouse(&[&["sim", "shed", "--json"], args].concat(), b"");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    let lines = run.stdout.lines();
    let parse = |line| serde_json::from_str(line).expect("a line is an object");
    lines.map(parse).collect()
}

#[track_caller]
fn number(outcome: &Value, key: &str) -> f64 {
    outcome[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} of {outcome}"))
}

/// Half the capacity is served in full; of more, nearly as much as there is capacity for, without
/// long waits, and nothing is shed for long after it ends.
#[test]
fn an_overload_is_cut_to_the_capacity() {
    let outcomes = shed(&[]);
    let loads: Vec<f64> = outcomes.iter().map(|load| number(load, "load")).collect();
    assert_eq!(loads, [0.5, 1.0, 2.0, 4.0]);
    let half = &outcomes[0];
    assert_eq!(
        (&half["first_shed_ms"], &half["last_shed_ms"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(half["offered"], half["admitted"]);
    assert!((number(half, "goodput") - 0.5).abs() < 0.001);
    assert_eq!(
        (number(half, "p50_ms"), number(half, "p99_ms")),
        (10.0, 10.0)
    );
    for outcome in &outcomes[1..] {
        assert!(number(outcome, "goodput") > 0.9, "{outcome}");
        assert!(number(outcome, "p99_ms") < 50.0, "{outcome}");
        assert!(number(outcome, "first_shed_ms") < 1000.0, "{outcome}");
        assert!(number(outcome, "last_shed_ms") < 1600.0, "{outcome}");
        assert!(number(outcome, "admitted") < 0.96 * 6000.0, "{outcome}");
    }
}

/// By chance several come at once, which takes room in line; the shedder holds the usage at its
/// threshold.
#[test]
fn other_servers_and_arrivals() {
    for args in [
        &["--arrivals", "poisson"][..],
        &["--arrivals=poisson", "--cores=16", "--service=20ms"],
        &["--cores", "8", "--service", "2ms"],
    ] {
        for outcome in shed(&[args, &["--load", "2,4"]].concat()) {
            assert!(number(&outcome, "goodput") > 0.85, "{args:?} {outcome}");
            assert!(number(&outcome, "goodput") < 1.0, "{args:?} {outcome}");
            assert!(number(&outcome, "p99_ms") < 100.0, "{args:?} {outcome}");
            assert!(
                number(&outcome, "last_shed_ms") < 1600.0,
                "{args:?} {outcome}"
            );
        }
    }
}

/// The average usage is slow to rise from idle; the first to be shed is so some 11 s later.
#[test]
fn after_idle_time_the_overload_is_seen_late() {
    let outcome = &shed(&["--load", "1.5", "--idle", "30s"])[0];
    let first = number(outcome, "first_shed_ms");
    assert!((9_000.0..13_000.0).contains(&first), "{outcome}");
}

#[test]
fn the_same_run_is_the_same_each_time() {
    let args = ["--load=1.25", "--arrivals=poisson", "--cores=3"];
    assert_eq!(shed(&args), shed(&args));
}

#[test]
fn the_fields_keep_their_order_and_the_table_its_columns() {
    let run = wheelhouse(&["sim", "shed", "--json", "--load", "0.1"], b"");
    assert_eq!(
        run.stdout,
        "{\"load\":0.1,\"offered\":600,\"admitted\":600,\"goodput\":0.100,\"p50_ms\":10.000,\
         \"p99_ms\":10.000,\"first_shed_ms\":null,\"last_shed_ms\":null}\n"
    );
    let run = wheelhouse(&["sim", "shed", "--load", "0.1,0.2"], b"");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].trim_start().starts_with("load") && lines[0].ends_with("last_shed_ms"));
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    for (args, message) in [
        (&["--load", "0"][..], "--load: 0 is not in 0.01..=100"),
        (&["--load", "1,101"], "--load: 101 is not in 0.01..=100"),
        (
            &["--load", "1,,2"],
            "--load: \"\" is not a number in 0.01..=100 (write 0.5,1,2)",
        ),
        (
            &["--load", "-1"],
            "--load: \"-1\" is not a number in 0.01..=100 (write 0.5,1,2)",
        ),
        (
            &["--load", "inf"],
            "--load: \"inf\" is not a number in 0.01..=100 (write 0.5,1,2)",
        ),
        (&["--cores", "0"], "--cores: 0 is not in 1..=1024"),
        (
            &["--cores", "2.5"],
            "--cores: \"2.5\" is not a whole number in 1..=1024",
        ),
        (
            &["--service", "10"],
            "--service: \"10\" is not a duration in 100us..=10s (write 10s, 500us or 1h30m)",
        ),
        (
            &["--service", "1us"],
            "--service: 1us is not in 100us..=10s",
        ),
        (
            &["--arrivals", "bursty"],
            "--arrivals: \"bursty\" is not even or poisson",
        ),
        (&["--idle", "2h"], "--idle: 2h is not in 0s..=1h"),
        (
            &["--load", "1,100", "--cores", "1024", "--service", "100us"],
            "--load: 100 of this capacity is 30720000000 requests; at most 1000000000 are simulated",
        ),
    ] {
        let run = wheelhouse(&[&["sim", "shed"], args].concat(), b"");
        assert_eq!(run.stderr, format!("error: {message}\n"), "{args:?}");
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}
