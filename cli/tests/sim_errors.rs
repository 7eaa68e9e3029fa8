//! `sim wheel` on bad input and bad options: one line that names the place, exit code 2, and
//! nothing printed beyond the last good line.

mod program;

use program::wheelhouse;

const INTEGER: &str = "to be an integer 0..=18446744073709551615";

/// The second of three lines is bad.
#[track_caller]
fn bad_line(line: &[u8], message: &str) {
    let mut input = br#"{"at_ms":0,"op":"set","key":"k","delay_ms":0}"#.to_vec();
    input.extend_from_slice(b"\n{\"at_ms\":1,\"op\":\"set\",\"key\":\"later\",\"delay_ms\":1}\n");
    input.extend_from_slice(line);
    input.extend_from_slice(b"\n{\"at_ms\":9,\"op\":\"drain\"}\n");
    let run = wheelhouse(&["sim", "wheel"], &input);
    let shown = String::from_utf8_lossy(line);
    assert_eq!(run.stderr, format!("error: line 3: {message}\n"), "{shown}");
    assert_eq!(run.code, Some(2), "{shown}");
    // `k` fires at 1, the time of the last good line; `later` would fire at 2.
    assert_eq!(
        run.stdout, "{\"at_ms\":1,\"event\":\"fired\",\"key\":\"k\",\"value\":null}\n",
        "{shown}"
    );
}

#[test]
fn malformed_lines() {
    for (line, message) in [
        ("x", "malformed JSON: expected value at column 1"),
        (
            "{",
            "malformed JSON: EOF while parsing an object at column 1",
        ),
        ("{}}", "field `at_ms` is missing"),
        (
            r#"{"at_ms":1"#,
            "malformed JSON: EOF while parsing an object at column 10",
        ),
        (
            r#"{"at_ms":1,}"#,
            "malformed JSON: trailing comma at column 12",
        ),
        (
            r#"{"at_ms":1 "op":"drain"}"#,
            "malformed JSON: expected `,` or `}` at column 12",
        ),
        (
            r#"{"at_ms":1,"op":"drain"} {}"#,
            "malformed JSON: trailing characters at column 26",
        ),
        (
            r#"{"at_ms":01,"op":"drain"}"#,
            "malformed JSON: invalid number at column 11",
        ),
        (
            r#"{"at_ms":+1,"op":"drain"}"#,
            "malformed JSON: expected value at column 10",
        ),
        (
            r#"{"at_ms":1e999,"op":"drain"}"#,
            "malformed JSON: number out of range at column 14",
        ),
        (
            r#"{'at_ms':1}"#,
            "malformed JSON: key must be a string at column 2",
        ),
        (
            r#"{"op":"drain}"#,
            "malformed JSON: EOF while parsing a string at column 13",
        ),
        (
            "{\"at_ms\":1,\"op\":\"remove\",\"key\":\"a\tb\"}",
            "malformed JSON: control character (\\u0000-\\u001F) found while parsing a string at column 34",
        ),
        (
            r#"{"at_ms":1,"op":"remove","key":"\ud800"}"#,
            "malformed JSON: unexpected end of hex escape at column 39",
        ),
        (
            r#"{"at_ms":1,"op":"remove","key":"\x"}"#,
            "malformed JSON: invalid escape at column 34",
        ),
    ] {
        bad_line(line.as_bytes(), message);
    }
}

#[test]
fn lines_that_are_not_utf8() {
    bad_line(
        b"{\"at_ms\":1,\"op\":\"remove\",\"key\":\"\xff\"}",
        "not UTF-8 at byte 33",
    );
    bad_line(
        b"\xef\xbb\xbf{\"at_ms\":1}",
        "malformed JSON: expected value at column 1",
    );
}

#[test]
fn values_of_the_wrong_type() {
    for (line, message) in [
        (
            "7",
            "invalid type: integer `7`, expected an object".to_owned(),
        ),
        ("null", "invalid type: null, expected an object".to_owned()),
        (
            r#"[1,"drain"]"#,
            "invalid type: sequence, expected an object".to_owned(),
        ),
        (
            r#""drain""#,
            "invalid type: string \"drain\", expected an object".to_owned(),
        ),
        (
            r#"{"at_ms":-1}"#,
            format!("invalid type: integer `-1`, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":-0}"#,
            format!("invalid type: floating point `-0.0`, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":1.0}"#,
            format!("invalid type: floating point `1.0`, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":1e2}"#,
            format!("invalid type: floating point `100.0`, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":18446744073709551616}"#,
            format!(
                "invalid type: floating point `1.8446744073709552e+19`, expected `at_ms` {INTEGER}"
            ),
        ),
        (
            r#"{"at_ms":"1"}"#,
            format!("invalid type: string \"1\", expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":true}"#,
            format!("invalid type: boolean `true`, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"at_ms":null}"#,
            format!("invalid type: null, expected `at_ms` {INTEGER}"),
        ),
        (
            r#"{"delay_ms":[1]}"#,
            format!("invalid type: sequence, expected `delay_ms` {INTEGER}"),
        ),
        (
            r#"{"delay_ms":-5}"#,
            format!("invalid type: integer `-5`, expected `delay_ms` {INTEGER}"),
        ),
        (
            r#"{"delay_ms":2.5}"#,
            format!("invalid type: floating point `2.5`, expected `delay_ms` {INTEGER}"),
        ),
        (
            r#"{"op":5}"#,
            "invalid type: integer `5`, expected op to be set, move, remove or drain".to_owned(),
        ),
        (
            r#"{"key":5}"#,
            "invalid type: integer `5`, expected `key` to be a string".to_owned(),
        ),
        (
            r#"{"key":null}"#,
            "invalid type: null, expected `key` to be a string".to_owned(),
        ),
        (
            r#"{"value":null}"#,
            "invalid type: null, expected `value` to be a string".to_owned(),
        ),
        (
            r#"{"value":{}}"#,
            "invalid type: map, expected `value` to be a string".to_owned(),
        ),
    ] {
        bad_line(line.as_bytes(), &message);
    }
}

#[test]
fn fields_unknown_missing_doubled_or_foreign() {
    for (line, message) in [
        (
            r#"{"at_ms":1,"op":"fly"}"#,
            "unknown op \"fly\", expected set, move, remove or drain",
        ),
        (
            r#"{"at_ms":1,"op":"SET"}"#,
            "unknown op \"SET\", expected set, move, remove or drain",
        ),
        (
            r#"{"at_ms":1,"op":"drain","note":1}"#,
            "unknown field \"note\", expected at_ms, op, key, delay_ms or value",
        ),
        ("{}", "field `at_ms` is missing"),
        (r#"{"op":"drain"}"#, "field `at_ms` is missing"),
        (r#"{"at_ms":1}"#, "field `op` is missing"),
        (
            r#"{"at_ms":1,"op":"set","delay_ms":1}"#,
            "field `key` is missing",
        ),
        (
            r#"{"at_ms":1,"op":"set","key":"a"}"#,
            "field `delay_ms` is missing",
        ),
        (
            r#"{"at_ms":1,"op":"set","key":"a","value":"v"}"#,
            "field `delay_ms` is missing",
        ),
        (
            r#"{"at_ms":1,"op":"move","delay_ms":1}"#,
            "field `key` is missing",
        ),
        (
            r#"{"at_ms":1,"op":"move","key":"a"}"#,
            "field `delay_ms` is missing",
        ),
        (r#"{"at_ms":1,"op":"remove"}"#, "field `key` is missing"),
        (
            r#"{"at_ms":1,"at_ms":1,"op":"drain"}"#,
            "field `at_ms` is given twice",
        ),
        (
            r#"{"at_ms":1,"op":"drain","\u006fp":"drain"}"#,
            "field `op` is given twice",
        ),
        (
            r#"{"at_ms":1,"op":"remove","key":"a","key":"a"}"#,
            "field `key` is given twice",
        ),
        (
            r#"{"delay_ms":1,"at_ms":1,"op":"move","key":"a","delay_ms":2}"#,
            "field `delay_ms` is given twice",
        ),
        (
            r#"{"at_ms":1,"op":"set","key":"a","delay_ms":1,"value":"x","value":"x"}"#,
            "field `value` is given twice",
        ),
        (
            r#"{"at_ms":1,"op":"move","key":"a","delay_ms":1,"value":"x"}"#,
            "field `value` does not belong to op `move`",
        ),
        (
            r#"{"at_ms":1,"op":"remove","key":"a","delay_ms":1}"#,
            "field `delay_ms` does not belong to op `remove`",
        ),
        (
            r#"{"value":"x","at_ms":1,"op":"remove","key":"a"}"#,
            "field `value` does not belong to op `remove`",
        ),
        (
            r#"{"at_ms":1,"op":"drain","key":"a"}"#,
            "field `key` does not belong to op `drain`",
        ),
        (
            r#"{"at_ms":1,"op":"drain","delay_ms":0}"#,
            "field `delay_ms` does not belong to op `drain`",
        ),
    ] {
        bad_line(line.as_bytes(), message);
    }
}

#[test]
fn time_that_goes_back() {
    bad_line(
        br#"{"at_ms":0,"op":"drain"}"#,
        "time goes back, at_ms 0 after 1",
    );
}

#[test]
fn empty_lines_count_as_lines() {
    let run = wheelhouse(
        &["sim", "wheel"],
        b"\n\n{\"at_ms\":0,\"op\":\"drain\"}\n\n \nx",
    );
    assert_eq!(
        run.stderr,
        "error: line 6: malformed JSON: expected value at column 1\n"
    );
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
}

#[test]
fn a_bad_line_beyond_until_is_still_read() {
    let args = ["sim", "wheel", "--until-ms", "5"];
    let run = wheelhouse(&args, br#"{"at_ms":6,"op":"drain","key":"k"}"#);
    assert_eq!(
        run.stderr,
        "error: line 1: field `key` does not belong to op `drain`\n"
    );
    assert_eq!(run.code, Some(2));
}

#[test]
fn bad_options() {
    const U64: &str = "18446744073709551615";
    for (args, message) in [
        (&["--interval-ms", "0"][..], format!("--interval-ms: 0 is not in 1..={U64}")),
        (
            &["--interval-ms=18446744073709551616"],
            format!("--interval-ms: 18446744073709551616 is not in 1..={U64}"),
        ),
        (
            &["--interval-ms", "-1"],
            format!("--interval-ms: \"-1\" is not a whole number in 1..={U64}"),
        ),
        (
            &["--interval-ms", "1.5"],
            format!("--interval-ms: \"1.5\" is not a whole number in 1..={U64}"),
        ),
        (&["--interval-ms="], format!("--interval-ms: \"\" is not a whole number in 1..={U64}")),
        (&["--slots", "0"], "--slots: 0 is not in 1..=16777216".to_owned()),
        (&["--slots", "16777217"], "--slots: 16777217 is not in 1..=16777216".to_owned()),
        (
            &["--slots", "many"],
            "--slots: \"many\" is not a whole number in 1..=16777216".to_owned(),
        ),
        (
            &["--until-ms", "soon"],
            format!("--until-ms: \"soon\" is not a whole number in 0..={U64}"),
        ),
        (
            &["--sltos", "5"],
            "unexpected argument '--sltos' found; tip: a similar argument exists: '--slots' (see --help)"
                .to_owned(),
        ),
        (
            &["--slots"],
            "a value is required for '--slots <N>' but none was supplied (see --help)".to_owned(),
        ),
        (
            &["--slots=1", "--slots=2"],
            "the argument '--slots <N>' cannot be used multiple times (see --help)".to_owned(),
        ),
        (&["file.jsonl"], "unexpected argument 'file.jsonl' found (see --help)".to_owned()),
    ] {
        let args = [&["sim", "wheel"], args].concat();
        let run = wheelhouse(&args, b"");
        assert_eq!(run.stderr, format!("error: {message}\n"), "{args:?}");
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}
