//! What expressions mean, and inputs on which public cron crates went wrong, named after their id.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use crate::support::{cron_text::runs, within::within_a_minute};
use wheelhouse_wheel::cron::{Cron, TimeZone, Timestamp};

/// The days of `month` of 2024 on which `day month weekday` runs.
fn days(fields: &str, month: i8) -> Vec<i8> {
    let cron = Cron::new(&format!("0 0 {fields}"), "UTC").unwrap();
    let first = jiff::civil::date(2024, month, 1).at(0, 0, 0, 0);
    let before = TimeZone::UTC.to_timestamp(first).unwrap() - Duration::from_secs(1);
    cron.after(before)
        .map(|run| TimeZone::UTC.to_datetime(run))
        .take_while(|run| (run.year(), run.month()) == (2024, month))
        .map(|run| run.day())
        .collect()
}

#[test]
fn w70_a_daily_job_runs_once_when_the_clocks_go_back() {
    assert_eq!(
        runs(
            "30 1 * * *",
            "America/New_York",
            "2024-11-02T12:00:00-04:00",
            2
        ),
        ["2024-11-03 01:30:00-04:00", "2024-11-04 01:30:00-05:00"]
    );
    assert_eq!(
        runs(
            "30 2 * * *",
            "Europe/Berlin",
            "2024-10-26T12:00:00+02:00",
            2
        ),
        ["2024-10-27 02:30:00+02:00", "2024-10-28 02:30:00+01:00"]
    );
}

#[test]
fn w73_of_two_half_past_one_the_first_runs() {
    let next = |from| runs("30 1 * * *", "America/New_York", from, 1).remove(0);
    assert_eq!(
        next("2025-11-02T00:00:00-04:00"),
        "2025-11-02 01:30:00-04:00"
    );
    // From the first, from between the two, and from the second.
    for from in [
        "2025-11-02T01:30:00-04:00",
        "2025-11-02T01:00:00-05:00",
        "2025-11-02T01:29:59-05:00",
        "2025-11-02T01:30:00-05:00",
    ] {
        assert_eq!(next(from), "2025-11-03 01:30:00-05:00", "{from}");
    }
}

#[test]
fn w80_a_weekly_job_in_a_gap_runs_once_that_day() {
    assert_eq!(
        runs(
            "1 2 * * SUN",
            "America/Chicago",
            "2024-03-09T12:00:00-06:00",
            2
        ),
        ["2024-03-10 03:00:00-05:00", "2024-03-17 02:01:00-05:00"]
    );
}

/// Each run is asked for from the one before, so that a system clock set back by an hour repeats
/// nothing: neither an interval nor a fixed time.
#[test]
fn w82_a_clock_set_back_repeats_nothing() {
    for expression in ["*/20 * * * *", "0,20,40 1 * * *"] {
        let cron = Cron::new(expression, "America/New_York").unwrap();
        let mut now: Timestamp = "2024-11-03T00:00:00-04:00".parse().unwrap();
        let mut seen = BTreeSet::new();
        let mut last = now;
        for round in 0..20 {
            let run = cron.next_after(last.max(now)).unwrap();
            assert!(seen.insert(run), "{expression}: {run} twice");
            last = run;
            now = if round % 5 == 4 {
                run - Duration::from_secs(3600)
            } else {
                run
            };
        }
    }
}

#[test]
fn fields_and_their_bounds() {
    let from = "2023-12-31T23:59:59Z";
    for (expression, first) in [
        ("* * * * *", "2024-01-01 00:00:00+00:00"),
        ("* * * * * *", "2024-01-01 00:00:00+00:00"),
        ("59 59 23 31 12 *", "2024-12-31 23:59:59+00:00"),
        ("0 0 0 1 1 *", "2024-01-01 00:00:00+00:00"),
        ("00 07 * * *", "2024-01-01 07:00:00+00:00"),
        ("*/60 * * * *", "2024-01-01 00:00:00+00:00"),
        ("5-59/15 * * * *", "2024-01-01 00:05:00+00:00"),
        ("  0\t12\t* * *  ", "2024-01-01 12:00:00+00:00"),
        ("0 0 1 feb *", "2024-02-01 00:00:00+00:00"),
        ("0 0 * JAN-mar Tue", "2024-01-02 00:00:00+00:00"),
        ("0 0 ? * 3", "2024-01-03 00:00:00+00:00"),
        ("0 0 4 * ?", "2024-01-04 00:00:00+00:00"),
        ("@hourly", "2024-01-01 00:00:00+00:00"),
        ("@Daily", "2024-01-01 00:00:00+00:00"),
        ("@midnight", "2024-01-01 00:00:00+00:00"),
        ("@weekly", "2024-01-07 00:00:00+00:00"),
        (" @monthly ", "2024-01-01 00:00:00+00:00"),
        ("@yearly", "2024-01-01 00:00:00+00:00"),
        ("@annually", "2024-01-01 00:00:00+00:00"),
    ] {
        assert_eq!(runs(expression, "UTC", from, 1), [first], "{expression}");
    }
}

#[test]
fn five_fields_run_at_second_zero() {
    assert_eq!(
        runs("*/30 9 * * *", "UTC", "2024-01-01T09:00:00.000000001Z", 2),
        ["2024-01-01 09:30:00+00:00", "2024-01-02 09:00:00+00:00"]
    );
    assert_eq!(
        runs("*/30 59 9 * * *", "UTC", "2024-01-01T09:00:00Z", 3),
        [
            "2024-01-01 09:59:00+00:00",
            "2024-01-01 09:59:30+00:00",
            "2024-01-02 09:59:00+00:00"
        ]
    );
}

#[test]
fn days_of_the_month_and_of_the_week() {
    // 2024-06-01 is a Saturday, February has 29 days.
    for (fields, month, expected) in [
        // Either, when both are restricted; a bare star is no restriction, one with a step is.
        ("13 * FRI", 9, vec![6, 13, 20, 27]),
        ("1,2 * FRI", 6, vec![1, 2, 7, 14, 21, 28]),
        ("* * FRI", 6, vec![7, 14, 21, 28]),
        ("13 * *", 6, vec![13]),
        ("13 * ?", 6, vec![13]),
        ("*/10 * SUN", 6, vec![1, 2, 9, 11, 16, 21, 23, 30]),
        ("10 * */6", 6, vec![1, 2, 8, 9, 10, 15, 16, 22, 23, 29, 30]),
        // Sunday is 0 and 7.
        ("* * 0", 6, vec![2, 9, 16, 23, 30]),
        ("* * 7", 6, vec![2, 9, 16, 23, 30]),
        ("* * SUN", 6, vec![2, 9, 16, 23, 30]),
        ("* * 0,7", 6, vec![2, 9, 16, 23, 30]),
        ("* * SUN-MON", 6, vec![2, 3, 9, 10, 16, 17, 23, 24, 30]),
        ("* * SAT-SUN", 6, vec![1, 2, 8, 9, 15, 16, 22, 23, 29, 30]),
        ("* * 6-7", 6, vec![1, 2, 8, 9, 15, 16, 22, 23, 29, 30]),
        ("* * sun-sun", 6, vec![2, 9, 16, 23, 30]),
        ("* * 0-7", 2, (1..=29).collect()),
        // The last, the nearest, the n-th.
        ("L * *", 2, vec![29]),
        ("LW * *", 6, vec![28]),
        ("15W * *", 6, vec![14]),
        ("1W * *", 6, vec![3]),
        ("30w * *", 6, vec![28]),
        ("15,l * *", 4, vec![15, 30]),
        ("* * 5L", 6, vec![28]),
        ("* * friL", 6, vec![28]),
        ("* * 5#L", 6, vec![28]),
        ("* * 7#1", 6, vec![2]),
        ("* * MON#5", 6, vec![]),
        ("* * MON#1,FRI#2", 6, vec![3, 14]),
        ("31W * *", 6, vec![]),
        // Days that a month does not have.
        ("30,31 * *", 2, vec![]),
        ("29 2 *", 2, vec![29]),
    ] {
        assert_eq!(days(fields, month), expected, "{fields}");
    }
}

#[test]
fn leap_days_skip_what_is_no_leap_year() {
    assert_eq!(
        runs("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", 2),
        ["2104-02-29 00:00:00+00:00", "2108-02-29 00:00:00+00:00"]
    );
    assert_eq!(
        runs("0 0 * 2 MON#5", "UTC", "2000-01-01T00:00:00Z", 2),
        ["2016-02-29 00:00:00+00:00", "2044-02-29 00:00:00+00:00"]
    );
}

#[test]
fn there_is_no_next_run_of_a_date_that_never_comes() {
    within_a_minute(|| {
        let now: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        for expression in [
            "0 0 30 2 *",
            "0 0 31 2,4,6,9,11 *",
            "* * * 31 11 *",
            "0 0 31W 2 *",
            "*/5 * 30-31/1 FEB ?",
        ] {
            for zone in ["UTC", "America/New_York", "Africa/Casablanca"] {
                let cron = Cron::new(expression, zone).unwrap();
                // Quick enough to be asked a thousand times.
                for hours in 0..1_000 {
                    let after = now + Duration::from_secs(hours * 3_600);
                    assert_eq!(cron.next_after(after), None, "{cron}");
                }
                assert_eq!(cron.after(now).next(), None);
            }
        }
    });
}

#[test]
fn nothing_is_told_beyond_a_hundred_years() {
    let day = |date: &str| -> Timestamp { format!("{date}T00:00:00Z").parse().unwrap() };
    let cron = Cron::new("0 0 29 2 *", "UTC").unwrap();
    assert_eq!(cron.next_after(day("9996-02-28")), Some(day("9996-02-29")));
    // The next would be in the year 10 000.
    assert_eq!(cron.next_after(day("9996-02-29")), None);
    assert_eq!(cron.next_after(Timestamp::MAX), None);
    let early = cron.next_after(Timestamp::MIN).unwrap();
    assert_eq!(early, day("-009996-02-29"));
}

#[test]
fn system_times_out_of_range_have_no_next_run() {
    let cron = Cron::new("* * * * *", "UTC").unwrap();
    let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
    let just_before = SystemTime::UNIX_EPOCH + Duration::from_millis(59_999);
    assert_eq!(cron.next_after_system(SystemTime::UNIX_EPOCH), Some(minute));
    assert_eq!(cron.next_after_system(just_before), Some(minute));
    let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
    assert_eq!(cron.next_after_system(before), Some(SystemTime::UNIX_EPOCH));
    let far = Duration::from_secs(400_000_000_000);
    for out in [SystemTime::UNIX_EPOCH + far, SystemTime::UNIX_EPOCH - far] {
        assert_eq!(cron.next_after_system(out), None);
    }
}

#[test]
fn a_schedule_tells_what_it_is() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let cron = Cron::new("30 1 * * *", String::from("america/new_york")).unwrap();
    shared(&cron);
    shared(&cron.after(Timestamp::UNIX_EPOCH));
    assert_eq!(cron.expression(), "30 1 * * *");
    assert_eq!(cron.zone(), &TimeZone::get("America/New_York").unwrap());
    assert_eq!(cron.to_string(), "30 1 * * * America/New_York");
    let debug = format!("{cron:?}");
    assert!(
        debug.contains("30 1 * * *") && debug.contains("America/New_York"),
        "{debug}"
    );

    let fixed = TimeZone::fixed(jiff::tz::offset(-3));
    assert_eq!(
        Cron::new("@daily", &fixed).unwrap().to_string(),
        "@daily -03"
    );
    let posix = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
    let cron = Cron::new("30 2 * * *", posix).unwrap();
    assert_eq!(cron.to_string(), "30 2 * * * in a zone without a name");
    let from = "2024-03-10T00:00:00-05:00".parse().unwrap();
    assert_eq!(
        cron.next_after(from),
        Some("2024-03-10T03:00:00-04:00".parse().unwrap())
    );
}
