//! Bad expressions and zones: one line each, that names the field, its text and what is allowed.

use wheelhouse_wheel::cron::{Cron, CronError, CronField, TimeZone};

fn message(expression: &str) -> String {
    Cron::new(expression, "UTC")
        .expect_err(expression)
        .to_string()
}

#[test]
fn bad_fields_are_pointed_at() {
    for (expression, expected) in [
        // Numbers out of range.
        ("60 * * * *", r#"minute "60": "60" is not in 0..=59"#),
        ("60 0 * * * *", r#"second "60": "60" is not in 0..=59"#),
        ("* 24 * * *", r#"hour "24": "24" is not in 0..=23"#),
        ("* * 0 * *", r#"day of month "0": "0" is not in 1..=31"#),
        ("* * 32 * *", r#"day of month "32": "32" is not in 1..=31"#),
        (
            "* * * 0 *",
            r#"month "0": "0" is not in 1..=12 or JAN..=DEC"#,
        ),
        (
            "* * * 13 *",
            r#"month "13": "13" is not in 1..=12 or JAN..=DEC"#,
        ),
        (
            "* * * * 8",
            r#"day of week "8": "8" is not in 0..=7 or SUN..=SAT"#,
        ),
        ("300 * * * *", r#"minute "300": "300" is not in 0..=59"#),
        (
            "99999999999999999999 * * * *",
            r#"minute "99999999999999999999": "99999999999999999999" is not in 0..=59"#,
        ),
        // No numbers at all.
        (
            "-1 * * * *",
            r#"minute "-1": a value is missing, allowed are 0..=59"#,
        ),
        ("+1 * * * *", r#"minute "+1": "+1" is not in 0..=59"#),
        ("1.5 * * * *", r#"minute "1.5": "1.5" is not in 0..=59"#),
        ("0x5 * * * *", r#"minute "0x5": "0x5" is not in 0..=59"#),
        ("１ * * * *", r#"minute "１": "１" is not in 0..=59"#),
        ("five * * * *", r#"minute "five": "five" is not in 0..=59"#),
        ("** * * * *", r#"minute "**": "**" is not in 0..=59"#),
        ("? * * * *", r#"minute "?": "?" is not in 0..=59"#),
        // Names where they do not belong, or not whole.
        ("JAN * * * *", r#"minute "JAN": "JAN" is not in 0..=59"#),
        (
            "* * * MON *",
            r#"month "MON": "MON" is not in 1..=12 or JAN..=DEC"#,
        ),
        (
            "* * * JANUARY *",
            r#"month "JANUARY": "JANUARY" is not in 1..=12 or JAN..=DEC"#,
        ),
        (
            "* * * * MOO",
            r#"day of week "MOO": "MOO" is not in 0..=7 or SUN..=SAT"#,
        ),
        (
            "* * * * MON5",
            r#"day of week "MON5": "MON5" is not in 0..=7 or SUN..=SAT"#,
        ),
        (
            "* * * * ſun",
            r#"day of week "ſun": "ſun" is not in 0..=7 or SUN..=SAT"#,
        ),
        // Lists.
        (
            "1,,2 * * * *",
            r#"minute "1,,2": a value is missing, allowed are 0..=59"#,
        ),
        (
            ", * * * *",
            r#"minute ",": a value is missing, allowed are 0..=59"#,
        ),
        (
            "* * * * MON,",
            r#"day of week "MON,": a value is missing, allowed are 0..=7 or SUN..=SAT"#,
        ),
        ("*,5 * * * *", r#"minute "*,5": * cannot be one of a list"#),
        (
            "1,61,2 * * * *",
            r#"minute "1,61,2": "61" is not in 0..=59"#,
        ),
        // Ranges.
        (
            "5- * * * *",
            r#"minute "5-": a value is missing, allowed are 0..=59"#,
        ),
        ("1-2-3 * * * *", r#"minute "1-2-3": "2-3" is not in 0..=59"#),
        (
            "* 22-2 * * *",
            r#"hour "22-2": "22-2" ends before it begins, write two ranges"#,
        ),
        (
            "* * * * FRI-MON",
            r#"day of week "FRI-MON": "FRI-MON" ends before it begins, write two ranges"#,
        ),
        ("* 1-24 * * *", r#"hour "1-24": "24" is not in 0..=23"#),
        ("*-5 * * * *", r#"minute "*-5": "*" is not in 0..=59"#),
        // Steps.
        ("*/0 * * * *", r#"minute "*/0": step "0" is not in 1..=60"#),
        (
            "*/61 * * * *",
            r#"minute "*/61": step "61" is not in 1..=60"#,
        ),
        ("* */25 * * *", r#"hour "*/25": step "25" is not in 1..=24"#),
        (
            "* * * */13 *",
            r#"month "*/13": step "13" is not in 1..=12"#,
        ),
        (
            "* * * * */8",
            r#"day of week "*/8": step "8" is not in 1..=7"#,
        ),
        ("*/ * * * *", r#"minute "*/": step "" is not in 1..=60"#),
        (
            "*/-1 * * * *",
            r#"minute "*/-1": step "-1" is not in 1..=60"#,
        ),
        (
            "*/2/3 * * * *",
            r#"minute "*/2/3": step "2/3" is not in 1..=60"#,
        ),
        (
            "5/15 * * * *",
            r#"minute "5/15": "5/15" has no range before its step, write */n or first-last/n"#,
        ),
        (
            "/15 * * * *",
            r#"minute "/15": "/15" has no range before its step, write */n or first-last/n"#,
        ),
        // Last, nearest and n-th.
        ("L * * * *", r#"minute "L": "L" is not in 0..=59"#),
        ("* * L-3 * *", r#"day of month "L-3": "L" is not in 1..=31"#),
        (
            "* * 32W * *",
            r#"day of month "32W": "32" is not in 1..=31"#,
        ),
        (
            "* * W * *",
            r#"day of month "W": a value is missing, allowed are 1..=31"#,
        ),
        (
            "* * 1-5W * *",
            r#"day of month "1-5W": "5W" is not in 1..=31"#,
        ),
        (
            "* * L,LW * *",
            r#"day of month "L,LW": L and LW cannot be in one list"#,
        ),
        (
            "* * * * L",
            r#"day of week "L": a value is missing, allowed are 0..=7 or SUN..=SAT"#,
        ),
        (
            "* * * * 15W",
            r#"day of week "15W": "15W" is not in 0..=7 or SUN..=SAT"#,
        ),
        (
            "* * * * MON#6",
            r#"day of week "MON#6": "6" after # is not in 1..=5 or L"#,
        ),
        (
            "* * * * MON#",
            r#"day of week "MON#": "" after # is not in 1..=5 or L"#,
        ),
        (
            "* * * * #2",
            r##"day of week "#2": a value is missing, allowed are 0..=7 or SUN..=SAT"##,
        ),
        (
            "* * * * +MON",
            r#"day of week "+MON": "+MON" is not in 0..=7 or SUN..=SAT"#,
        ),
        // What is not one line, or long, is shown as one short line.
        (
            "1\u{a0}2 * * * *",
            r#"minute "1\u{a0}2": "1\u{a0}2" is not in 0..=59"#,
        ),
        (
            "1\u{1b}[2J * * * *",
            r#"minute "1\u{1b}[2J": "1\u{1b}[2J" is not in 0..=59"#,
        ),
    ] {
        assert_eq!(message(expression), expected, "{expression}");
    }
}

#[test]
fn the_number_of_fields() {
    let expected = |shown: &str, found: usize| {
        format!(
            "cron expression {shown}: {found} fields, expected 5 (minute, hour, day of month, \
             month, day of week) or 6 with the second first"
        )
    };
    for (expression, shown, found) in [
        ("", r#""""#, 0),
        (" \n", r#"" \n""#, 0),
        ("*", r#""*""#, 1),
        ("* * * *", r#""* * * *""#, 4),
        ("0 0 0 1 1 * 2025", r#""0 0 0 1 1 * 2025""#, 7),
        ("0\u{a0}0 * * *", r#""0\u{a0}0 * * *""#, 4),
    ] {
        assert_eq!(message(expression), expected(shown, found), "{expression}");
    }
}

#[test]
fn nicknames_that_are_none() {
    for expression in [
        "@reboot",
        "@every 5m",
        "@",
        "@daily @daily",
        "@hourly * * * *",
    ] {
        assert_eq!(
            message(expression),
            format!(
                "cron expression {expression:?}: expected @hourly, @daily, @midnight, @weekly, \
                 @monthly, @yearly, @annually or fields"
            )
        );
    }
}

#[test]
fn zones_that_are_none() {
    for zone in [
        "",
        "Europe/Atlantis",
        "EST5EDT,M3.2.0,M11.1.0",
        "+02:00",
        "../etc/passwd",
        "Etc/Unknown",
    ] {
        let error = Cron::new("* * * * *", zone).expect_err(zone);
        assert_eq!(
            error.to_string(),
            format!(
                "time zone {zone:?}: expected an IANA name such as UTC, Europe/Berlin or America/New_York"
            )
        );
        assert!(matches!(error, CronError::Zone { name, .. } if name == zone));
    }
}

#[test]
fn the_expression_comes_before_the_zone_and_fields_in_their_order() {
    let error = Cron::new("61 25 0 13 8", "Nowhere").unwrap_err();
    assert!(
        matches!(&error, CronError::Field { field: CronField::Minute, text, .. } if text == "61"),
        "{error:?}"
    );
    let error = Cron::new("1 25 0 13 8", TimeZone::UTC).unwrap_err();
    assert!(
        matches!(&error, CronError::Field { field: CronField::Hour, text, .. } if text == "25"),
        "{error:?}"
    );
}

#[test]
fn a_million_characters_are_read_in_no_time_and_told_in_a_line() {
    let list = format!("{} * * * *", vec!["7"; 500_000].join(","));
    assert!(Cron::new(&list, "UTC").is_ok());
    for odd in [
        "1".repeat(1_000_000),
        "é".repeat(500_000),
        "*/".repeat(500_000),
        "1,".repeat(500_000),
    ] {
        for expression in [odd.clone(), format!("{odd} * * * *"), format!("@{odd}")] {
            let message = message(&expression);
            assert!(message.chars().count() < 400, "{message}");
        }
        let error = Cron::new("* * * * *", odd).unwrap_err();
        assert!(error.to_string().chars().count() < 400, "{error}");
    }
}
