//! What the program says of itself: help, version, completions, and usage errors.

mod program;

use program::wheelhouse;

#[test]
fn help_names_every_option_with_its_unit_and_default() {
    let wheel = wheelhouse(&["sim", "wheel", "--help"], b"");
    assert_eq!((wheel.code, wheel.stderr.as_str()), (Some(0), ""));
    for text in [
        "--interval-ms <MS>",
        "[default: 1]",
        "--slots <N>",
        "[default: 512]",
        "--until-ms <MS>",
        "[default: run until nothing is]",
        "--stats",
        "is not read",
        "due_ms is the requested instant",
        r#""event":"fired","key":"a","value":"x"}"#,
        r#""event":"drained","key":"a","value":"x"}"#,
        r#""event":"missing","op":"move","key":"a"}"#,
        r#""event":"pending","key":"a","value":"x","due_ms":1500}"#,
        &format!("1..={};", wheelhouse_wheel::MAX_SLOTS),
        "milliseconds",
        r#"{"at_ms":0,"op":"set","key":"a","delay_ms":1500,"value":"x"}"#,
    ] {
        assert!(
            wheel.stdout.contains(text),
            "{text} is not in:\n{}",
            wheel.stdout
        );
    }
    let load = wheelhouse(&["load", "--help"], b"");
    assert_eq!((load.code, load.stderr.as_str()), (Some(0), ""));
    for text in [
        "--tasks <N>",
        "[default: 1000000]",
        "--over <DURATION>",
        "[default: 10s]",
        "--after <DURATION>",
        "[default: 5s]",
        "--interval <DURATION>",
        "[default: 1ms]",
        "--executor <EXECUTOR>",
        "[default: inline]",
        "--scheduler",
        "a tokio runtime with its default settings",
        "--json",
        "--plot <FILE.svg>",
        "p50_us, p90_us, p99_us, p999_us, max_us",
        "schedule_mops",
        "bytes_per_task",
        "100000 tasks",
        "cpu_s",
        "wakeups",
        "exit code 2",
    ] {
        assert!(
            load.stdout.contains(text),
            "{text} is not in:\n{}",
            load.stdout
        );
    }
    let breaker = wheelhouse(&["sim", "breaker", "--help"], b"");
    assert_eq!((breaker.code, breaker.stderr.as_str()), (Some(0), ""));
    for text in [
        "--policy <NAME>",
        "--compare <A,B,C>",
        "--set <KEY=VALUE>",
        "--scenario <FILE|NAME>",
        "--rps <N>",
        "[default: 1000]",
        "--seed <S>",
        "--plot <FILE.svg>",
        "model-failsafe-rs, model-recloser",
        "outage-after-1h",
        "[default: \"5ms\"]",
        "bad_before_trip, time_to_trip_ms",
        "peak_in_flight_at_heal",
    ] {
        assert!(
            breaker.stdout.contains(text),
            "{text} is not in:\n{}",
            breaker.stdout
        );
    }
    let all = wheelhouse(&["--help"], b"");
    assert_eq!(all.code, Some(0));
    for verb in [
        "sim",
        "load",
        "completions",
        "--plot that cannot be written",
    ] {
        assert!(
            all.stdout.contains(verb),
            "{verb} is not in:\n{}",
            all.stdout
        );
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = wheelhouse(&["--version"], b"");
    assert_eq!(
        run.stdout,
        format!("wheelhouse {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = wheelhouse(&["completions", shell], b"");
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(run.stdout.contains("interval-ms"), "{shell}");
    }
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    for (args, message) in [
        (
            &[][..],
            "a verb is missing: sim wheel, sim cron, sim breaker, sim shed, sim cache, load or completions (see --help)",
        ),
        (
            &["sim"],
            "a verb is missing: sim wheel, sim cron, sim breaker, sim shed, sim cache, load or completions (see --help)",
        ),
        (
            &["laod"],
            "unrecognized subcommand 'laod'; tip: a similar subcommand exists: 'load' (see --help)",
        ),
        (
            &["completions"],
            "the following required arguments were not provided: <SHELL> (see --help)",
        ),
        (
            &["load", "--tasks", "0"],
            "--tasks: 0 is not in 1..=1000000000",
        ),
        (
            &["load", "--tasks=1e6"],
            "--tasks: \"1e6\" is not a whole number in 1..=1000000000",
        ),
        (
            &["load", "--over", "10"],
            "--over: \"10\" is not a duration in 0s..=30days (write 10s, 500us or 1h30m)",
        ),
        (
            &["load", "--after=31days"],
            "--after: 31days is not in 0s..=30days",
        ),
        (
            &["load", "--after", "-1s"],
            "--after: \"-1s\" is not a duration in 0s..=30days (write 10s, 500us or 1h30m)",
        ),
        (
            &["load", "--interval", "0s"],
            "--interval: 0s is not in 1us..=1h",
        ),
        (
            &["load", "--interval", "2h"],
            "--interval: 2h is not in 1us..=1h",
        ),
        (
            &["load", "--executor", "threads=0"],
            "--executor: \"threads=0\" is not inline, threads=1..=1024, tokio or tokio-blocking",
        ),
        (
            &["load", "--scheduler", "--executor=inline"],
            "the argument '--scheduler' cannot be used with '--executor <EXECUTOR>' (see --help)",
        ),
        (
            &["load", "--executor", "rayon"],
            "--executor: \"rayon\" is not inline, threads=1..=1024, tokio or tokio-blocking",
        ),
    ] {
        let run = wheelhouse(args, b"");
        assert_eq!(run.stderr, format!("error: {message}\n"), "{args:?}");
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}

/// `wheelhouse … | head` ends without a word.
#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_error() {
    use std::{
        io::Write,
        process::{Command, Stdio},
        thread,
    };
    for args in [&["sim", "wheel"][..], &["completions", "bash"], &["--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().unwrap();
        let output = thread::scope(|scope| {
            scope.spawn(move || {
                let line = b"{\"at_ms\":0,\"op\":\"remove\",\"key\":\"nobody\"}\n";
                // More than any pipe and buffer holds; the program leaves before it has it all.
                while stdin.write_all(line).is_ok() && args[0] == "sim" {}
            });
            child.wait_with_output().unwrap()
        });
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}
