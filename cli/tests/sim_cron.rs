//! `sim cron`: the runs it prints, what it says to bad arguments, and how it ends.

mod program;

use program::{Outcome, wheelhouse};

fn cron(args: &[&str]) -> Outcome {
    wheelhouse(&[&["sim", "cron"], args].concat(), b"")
}

#[track_caller]
fn prints(args: &[&str], lines: &[&str]) {
    let run = cron(args);
    assert_eq!(run.stderr, "", "{args:?}");
    assert_eq!(run.stdout.lines().collect::<Vec<_>>(), lines, "{args:?}");
    assert_eq!(run.code, Some(0), "{args:?}");
}

#[test]
fn runs_have_the_offset_of_the_zone() {
    prints(
        &[
            "30 2 * * *",
            "--tz",
            "America/New_York",
            "--from",
            "2024-03-09T00:00:00-05:00",
            "--count",
            "3",
        ],
        &[
            "2024-03-09T02:30:00-05:00",
            "2024-03-10T03:00:00-04:00",
            "2024-03-11T02:30:00-04:00",
        ],
    );
    // Options may come first, the start in another offset, the zone in lower case.
    prints(
        &[
            "--count=4",
            "--tz=australia/lord_howe",
            "--from=2024-04-06T14:30:00Z",
            "*/15 1-2 * * *",
        ],
        &[
            "2024-04-07T01:45:00+11:00",
            "2024-04-07T01:30:00+10:30",
            "2024-04-07T01:45:00+10:30",
            "2024-04-07T02:00:00+10:30",
        ],
    );
    prints(
        &[
            "@daily",
            "--tz",
            "Africa/Cairo",
            "--from",
            "2024-04-25T12:00:00.5+02:00",
            "--count",
            "2",
        ],
        &["2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00"],
    );
    // Liberia was 44 minutes and a half behind; the line is the instant all the same.
    prints(
        &[
            "0 12 * * *",
            "--tz",
            "Africa/Monrovia",
            "--from",
            "1971-12-31T00:00:00Z",
            "--count",
            "1",
        ],
        &["1971-12-31T11:59:30-00:45"],
    );
}

#[test]
fn the_start_itself_is_no_run() {
    prints(
        &[
            "*/20 * * * * *",
            "--from",
            "2024-01-01T00:00:20Z",
            "--count",
            "2",
        ],
        &["2024-01-01T00:00:40+00:00", "2024-01-01T00:01:00+00:00"],
    );
    prints(
        &[
            "*/20 * * * * *",
            "--from",
            "2024-01-01t00:00:19.999999999z",
            "--count",
            "1",
        ],
        &["2024-01-01T00:00:20+00:00"],
    );
}

#[test]
fn ten_runs_in_utc_from_now_are_the_default() {
    let run = cron(&["* * * * * *"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let times: Vec<jiff::Timestamp> = run
        .stdout
        .lines()
        .inspect(|line| assert!(line.ends_with("+00:00"), "{line}"))
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(times.len(), 10);
    let second = std::time::Duration::from_secs(1);
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + second));
    let age = jiff::Timestamp::now().duration_since(times[0]);
    assert!(age.as_secs().abs() < 300, "{age}");
}

#[test]
fn fewer_lines_when_no_more_come() {
    prints(&["0 0 30 2 *", "--tz", "Europe/Berlin"], &[]);
    prints(
        &["0 0 29 2 *", "--from", "9990-01-01T00:00:00Z"],
        &["9992-02-29T00:00:00+00:00", "9996-02-29T00:00:00+00:00"],
    );
    // The end of what can be said.
    prints(
        &["* * * * *", "--from", "9999-12-30T21:58:00Z"],
        &["9999-12-30T21:59:00+00:00", "9999-12-30T22:00:00+00:00"],
    );
    prints(&["* * * * *", "--from", "9999-12-30T22:00:00Z"], &[]);
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    const EVERY: &str = "* * * * *";
    let time = |shown: &str| {
        format!(
            "--from: {shown} is not an RFC 3339 time from 0001-01-01T00:00:00Z to 9999-12-30T22:00:00Z (write 2024-03-10T01:30:00-05:00 or 2024-03-10T06:30:00Z)"
        )
    };
    let zone = |shown: &str| {
        format!(
            "--tz: {shown} is not an IANA time zone (write UTC, Europe/Berlin or America/New_York)"
        )
    };
    let count = |wrong: &str| format!("--count: {wrong} in 1..=18446744073709551615");
    let fields = |shown: &str, found: usize| {
        format!(
            "cron expression {shown}: {found} fields, expected 5 (minute, hour, day of month, month, day of week) or 6 with the second first"
        )
    };
    let long = "9".repeat(1_000);
    let cut = format!("{:?}…", "9".repeat(60));
    for (args, message) in [
        (&["61 * * * *"][..], r#"minute "61": "61" is not in 0..=59"#.to_owned()),
        (&["* * * * MOO"], r#"day of week "MOO": "MOO" is not in 0..=7 or SUN..=SAT"#.to_owned()),
        (
            &["*/0 * * * *", "--tz", "Europe/Berlin"],
            r#"minute "*/0": step "0" is not in 1..=60"#.to_owned(),
        ),
        (&[""], fields(r#""""#, 0)),
        (&["\n"], fields(r#""\n""#, 0)),
        (&["0 9 * *"], fields(r#""0 9 * *""#, 4)),
        (&["0 0 0 1 1 * 2030"], fields(r#""0 0 0 1 1 * 2030""#, 7)),
        (&[&long], fields(&cut, 1)),
        (
            &["@reboot"],
            "cron expression \"@reboot\": expected @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or fields".to_owned(),
        ),
        (
            &["\u{1b}[31m * * * *"],
            r#"minute "\u{1b}[31m": "\u{1b}[31m" is not in 0..=59"#.to_owned(),
        ),
        (&[EVERY, "--tz", "Mars/Olympus"], zone(r#""Mars/Olympus""#)),
        (&[EVERY, "--tz", ""], zone(r#""""#)),
        (&[EVERY, "--tz", "../../etc/localtime"], zone(r#""../../etc/localtime""#)),
        (&[EVERY, "--tz", "-5"], zone(r#""-5""#)),
        (&[EVERY, "--tz", "Etc/Unknown"], zone(r#""Etc/Unknown""#)),
        (&[EVERY, "--tz", &long], zone(&cut)),
        (&[EVERY, "--from", "yesterday"], time(r#""yesterday""#)),
        (&[EVERY, "--from", ""], time(r#""""#)),
        (&[EVERY, "--from", "9999-12-30T22:00:01Z"], time(r#""9999-12-30T22:00:01Z""#)),
        (&[EVERY, "--from", "9999-12-31T00:00:00Z"], time(r#""9999-12-31T00:00:00Z""#)),
        (&[EVERY, "--from", "0000-12-31T23:59:59Z"], time(r#""0000-12-31T23:59:59Z""#)),
        (&[EVERY, "--from", "2024-03-10"], time(r#""2024-03-10""#)),
        (&[EVERY, "--from", "2024-03-10T00:00:00"], time(r#""2024-03-10T00:00:00""#)),
        (&[EVERY, "--from", "2024-02-30T00:00:00Z"], time(r#""2024-02-30T00:00:00Z""#)),
        (&[EVERY, "--from", "2024-03-10T24:00:00Z"], time(r#""2024-03-10T24:00:00Z""#)),
        (&[EVERY, "--from", "2024-03-10T00:00:00+99:00"], time(r#""2024-03-10T00:00:00+99:00""#)),
        (
            &[EVERY, "--from", "2024-03-10T00:00:00-05:00[Europe/Berlin]"],
            time(r#""2024-03-10T00:00:00-05:00[Europe/Berlin]""#),
        ),
        (&[EVERY, "--from", "20240310T000000Z"], time(r#""20240310T000000Z""#)),
        (&[EVERY, "--from", "1710000000"], time(r#""1710000000""#)),
        (&[EVERY, "--from", "0000-12-31T23:59:59Z"], time(r#""0000-12-31T23:59:59Z""#)),
        (&[EVERY, "--from", "10000-01-01T00:00:00Z"], time(r#""10000-01-01T00:00:00Z""#)),
        (&[EVERY, "--from", &long], time(&cut)),
        (&[EVERY, "--count", "0"], count("0 is not")),
        (&[EVERY, "--count", "-1"], count(r#""-1" is not a whole number"#)),
        (&[EVERY, "--count", "ten"], count(r#""ten" is not a whole number"#)),
        (&[EVERY, "--count", "1e3"], count(r#""1e3" is not a whole number"#)),
        (&[EVERY, "--count=18446744073709551616"], count("18446744073709551616 is not")),
        (
            &[],
            "the following required arguments were not provided: <EXPRESSION> (see --help)".to_owned(),
        ),
        (&["0", "9", "*", "*", "*"], "unexpected argument '9' found (see --help)".to_owned()),
        (
            &[EVERY, "--zone", "UTC"],
            "unexpected argument '--zone' found; tip: to pass '--zone' as a value, use '-- --zone' (see --help)".to_owned(),
        ),
    ] {
        let run = cron(args);
        assert_eq!(run.stderr, format!("error: {message}\n"), "{args:?}");
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::Command};

    let odd = OsStr::from_bytes(b"\xff * * * *");
    for args in [
        [odd, OsStr::new("--tz=UTC")],
        [OsStr::new("* * * * *"), OsStr::from_bytes(b"--tz=\xff")],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
            .args(["sim", "cron"])
            .args(args)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.starts_with("error: ") && stderr.lines().count() == 1,
            "{stderr}"
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}

/// Nobody would live to see the last line: each comes when it is known, and a reader that has seen
/// enough ends the program without a word.
#[cfg(unix)]
#[test]
fn lines_stream_and_a_reader_that_leaves_is_no_error() {
    use std::{
        io::{BufRead, BufReader, Read},
        process::{Command, Stdio},
    };

    let mut child = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
        .args([
            "sim",
            "cron",
            "* * * * * *",
            "--from",
            "2024-01-01T00:00:00Z",
        ])
        .args(["--count", "18446744073709551615"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    drop(output);
    assert_eq!(first, "2024-01-01T00:00:01+00:00\n");
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
}

#[test]
fn help_names_every_option_with_its_default() {
    let help = cron(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for text in [
        "<EXPRESSION>",
        "--tz <ZONE>",
        "[default: UTC]",
        "--from <TIME>",
        "[default: now]",
        "--count <N>",
        "[default: 10]",
        "1..=18446744073709551615",
        "RFC 3339",
        "strictly after --from",
        "within 100 years",
        "MON#2",
        "either is enough",
        "after a gap",
    ] {
        assert!(
            help.stdout.contains(text),
            "{text} is not in:\n{}",
            help.stdout
        );
    }
}
