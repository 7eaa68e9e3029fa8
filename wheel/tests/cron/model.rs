//! Properties of cron schedules, on random expressions, zones and starts.
//!
//! - Runs are those of a clock that is watched (see the model), from whichever instant one asks,
//!   also in zones whose clocks did odd things: skipped a day, had it twice, or moved by seconds.
//! - They strictly increase, and `SystemTime` tells the same.
//! - No text panics, neither as an expression nor as a zone, errors are one line, and there is an
//!   answer at both ends of time.

use std::time::SystemTime;

use crate::support::cron_model::{Model, wall};
use proptest::{prelude::*, sample::Index};
use wheelhouse_wheel::cron::{Cron, TimeZone, Timestamp};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Clocks that did more than move by an hour at night, at these instants.
const ODD: [(&str, &str); 14] = [
    ("Pacific/Apia", "2011-12-30T10:00:00Z"), // no 30 December
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"), // no 21 August
    ("Pacific/Kiritimati", "1994-12-31T10:00:00Z"), // no 31 December
    ("Asia/Manila", "1844-12-31T15:56:08Z"),  // no 31 December
    ("America/Juneau", "1867-10-19T00:31:13Z"), // a day twice
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"), // by 44 minutes and a half
    ("Asia/Manila", "1899-09-06T04:00:00Z"),  // by eight seconds
    ("America/Caracas", "2016-05-01T07:00:00Z"), // by half an hour
    ("Australia/Lord_Howe", "2024-04-06T15:00:00Z"), // by half an hour
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"), // by half an hour, before midnight
    ("Antarctica/Troll", "2024-03-31T01:00:00Z"), // by two hours
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"), // no midnight
    ("Africa/Cairo", "2024-10-31T21:00:00Z"), // midnight comes twice
    ("Africa/Casablanca", "2024-03-10T02:00:00Z"), // back for Ramadan
];

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One field: a wildcard, with or without a step, or a list of up to three items.
fn field(min: u8, max: u8) -> impl Strategy<Value = String> {
    let range = (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let step = 1..=(max - min).min(9);
    let item = prop_oneof![
        6 => (min..=max).prop_map(|value| value.to_string()),
        2 => range.clone(),
        1 => (range, step.clone()).prop_map(|(range, step)| format!("{range}/{step}")),
    ];
    prop_oneof![
        3 => Just("*".to_owned()),
        1 => step.prop_map(|step| format!("*/{step}")),
        5 => prop::collection::vec(item, 1..=3).prop_map(|items| items.join(",")),
    ]
}

/// Five fields or six. Hours at which clocks change are frequent, and so are expressions that run
/// every day.
fn expression() -> impl Strategy<Value = String> {
    let often = |rare: BoxedStrategy<String>| prop_oneof![4 => Just("*".to_owned()), 1 => rare];
    let fields = (
        prop_oneof![2 => Just(String::new()), 1 => field(0, 59)],
        field(0, 59),
        prop_oneof![field(0, 4), field(0, 23)],
        often(field(1, 31).boxed()),
        often(field(1, 12).boxed()),
        often(field(0, 7).boxed()),
    );
    fields.prop_map(|(second, minute, hour, day, month, weekday)| {
        let text = format!("{second} {minute} {hour} {day} {month} {weekday}");
        text.trim_start().to_owned()
    })
}

/// A zone, and an instant at which its clock is moved.
fn change() -> impl Strategy<Value = (TimeZone, i64)> {
    let [first, end] = ["1840-01-01T00:00:00Z", "2040-01-01T00:00:00Z"]
        .map(|time| time.parse::<Timestamp>().unwrap());
    let mut changes = Vec::new();
    for name in jiff::tz::db().available() {
        let zone = TimeZone::get(name.as_str()).unwrap();
        let within = zone.following(first).map(|change| change.timestamp());
        let within = within.take_while(|at| *at < end);
        changes.extend(within.map(|at| (zone.clone(), at.as_second())));
    }
    assert!(changes.len() > 10_000, "{}", changes.len());
    let odd = ODD.map(|(name, at)| {
        let zone = TimeZone::get(name).unwrap();
        let at = at.parse::<Timestamp>().unwrap().as_second();
        assert_ne!(
            wall(&zone, at),
            wall(&zone, at - 1) + 1,
            "{name} has no change"
        );
        (zone, at)
    });
    prop_oneof![
        1 => prop::sample::select(changes),
        1 => prop::sample::select(odd.to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn runs_are_those_of_a_clock_that_is_watched(
        expression in expression(),
        (zone, at) in change(),
        asked in prop::collection::vec(any::<Index>(), 8),
    ) {
        // Minutes will do where neither expression nor clock knows seconds.
        let in_minutes = expression.split(' ').count() == 5
            && [-2 * DAY, -DAY, 0, DAY, 2 * DAY].iter().all(|days| wall(&zone, at + days) % 60 == 0)
            && at % 60 == 0;
        let (from, to, tick) = if in_minutes {
            (at - 26 * HOUR, at + 50 * HOUR, 60)
        } else {
            (at - HOUR, at + 2 * HOUR, 1)
        };
        let cron = Cron::new(&expression, &zone).unwrap();
        let watched = Model::read(&expression).runs(&zone, from, to, tick);
        let ours: Vec<_> = cron
            .after(second(from - 1))
            .map(Timestamp::as_second)
            .take_while(|run| *run < to)
            // Were they to go back, there would be no end.
            .take(watched.len() + 1)
            .collect();
        prop_assert_eq!(&ours, &watched, "{} around {}", cron, second(at));

        for index in asked {
            let start = from + index.index(usize::try_from(to - from).unwrap()) as i64;
            let next = cron.next_after(second(start)).map(Timestamp::as_second);
            let expected = watched.iter().copied().find(|run| *run > start);
            prop_assert_eq!(next.filter(|run| *run < to), expected, "{} from {}", cron, second(start));
        }
    }

    #[test]
    fn runs_strictly_increase_and_are_at_whole_seconds(
        expression in expression(),
        (zone, at) in change(),
        nanoseconds in 0..172_800_000_000_000_i128,
    ) {
        let cron = Cron::new(&expression, &zone).unwrap();
        let start = Timestamp::from_nanosecond(i128::from(at - DAY) * 1_000_000_000 + nanoseconds).unwrap();
        let mut last = start;
        for run in cron.after(start).take(50) {
            prop_assert!(run > last, "{} after {}", run, last);
            prop_assert_eq!(run.subsec_nanosecond(), 0);
            let system = cron.next_after_system(SystemTime::from(last)).unwrap();
            prop_assert_eq!(Timestamp::try_from(system).unwrap(), run);
            last = run;
        }
    }

    #[test]
    fn there_is_an_answer_anywhere_in_time(
        expression in expression(),
        (zone, _) in change(),
        from_end in 0..4 * DAY,
        nanosecond in 0..1_000_000_000,
    ) {
        let cron = Cron::new(&expression, zone).unwrap();
        let early = Timestamp::new(Timestamp::MIN.as_second() + from_end, nanosecond).unwrap();
        for after in [Timestamp::MIN, early] {
            // There may be none: 29 February is not the first of all days.
            prop_assert!(cron.next_after(after).is_none_or(|run| run > after));
        }
        let late = Timestamp::new(Timestamp::MAX.as_second() - from_end, nanosecond).unwrap();
        for after in [late, Timestamp::MAX] {
            prop_assert!(cron.next_after(after).is_none_or(|run| run > after));
        }
        prop_assert_eq!(cron.next_after(Timestamp::MAX), None);
    }
}

/// Text that is nearly an expression.
fn nearly() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "*", "?", "/", "-", ",", "#", "L", "W", "LW", "l", "w", "+", "@", "0", "1", "5", "7", "15",
        "31", "59", "60", "65536", "MON", "sun", "Fri", "JAN", "dec", " ", "\t", "\n", "\u{a0}",
        "é", "ſun", "１", "@daily", "0x1", "1e1",
    ]);
    prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_text_panics_and_errors_are_one_line(
        expression in prop_oneof![
            1 => any::<String>(),
            3 => prop::collection::vec(nearly(), 4..8).prop_map(|fields| fields.join(" ")),
            6 => (0..6_usize, nearly()).prop_map(|(place, odd)| {
                let mut fields = ["0", "0", "0", "*", "*", "*"].map(str::to_owned);
                fields[place] = odd;
                fields.join(" ")
            }),
        ],
        zone in prop_oneof![4 => Just("Europe/Berlin".to_owned()), 1 => any::<String>()],
    ) {
        match Cron::new(&expression, zone) {
            Ok(cron) => {
                let start = second(1_700_000_000);
                prop_assert!(cron.next_after(start).is_none_or(|run| run > start));
            }
            Err(error) => {
                let message = error.to_string();
                // What has passed our check is never refused by croner.
                prop_assert!(!matches!(error, wheelhouse_wheel::cron::CronError::Syntax { .. }), "{}", message);
                prop_assert!(!message.chars().any(char::is_control), "{:?}", message);
                prop_assert!(message.len() < 1_000, "{:?}", message);
            }
        }
    }
}
