//! A cron that is too simple to be wrong: it watches a local clock, second by second or minute by
//! minute, and applies the rule for changes of the clock as it is written in the documentation.

use std::collections::{BTreeSet, HashSet};

use wheelhouse_wheel::cron::{TimeZone, Timestamp};

/// An expression, as the sets of values that its fields name. Reads numbers, names, lists, ranges
/// and steps of valid expressions only.
#[derive(Debug)]
pub(crate) struct Model {
    /// Second, minute, hour, day of month, month, day of week with Sunday as 0.
    fields: [BTreeSet<i64>; 6],
    any_day_of_month: bool,
    any_day_of_week: bool,
    /// Neither wildcard nor step in minutes and hours.
    pub(crate) fixed: bool,
}

/// What the clock on the wall shows, as seconds since 1970-01-01T00:00:00 on that wall.
type Wall = i64;

impl Model {
    pub(crate) fn read(expression: &str) -> Self {
        let mut texts: Vec<_> = expression.split(' ').collect();
        if texts.len() == 5 {
            texts.insert(0, "0");
        }
        let bounds = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
        let field = |place: usize| values(texts[place], bounds[place]);
        let mut fields = [0, 1, 2, 3, 4, 5].map(field);
        if fields[5].remove(&7) {
            fields[5].insert(0);
        }
        Self {
            fields,
            any_day_of_month: texts[3] == "*",
            any_day_of_week: texts[5] == "*",
            fixed: !texts[1..=2].iter().any(|text| text.contains(['*', '/'])),
        }
    }

    pub(crate) fn matches(&self, wall: Wall) -> bool {
        let shown = TimeZone::UTC.to_datetime(Timestamp::from_second(wall).unwrap());
        let has = |place: usize, value: i8| self.fields[place].contains(&i64::from(value));
        let day = has(3, shown.day());
        let weekday = has(5, shown.weekday().to_sunday_zero_offset());
        let either = match (self.any_day_of_month, self.any_day_of_week) {
            (false, false) => day || weekday,
            // A field that names every day decides nothing.
            _ => day && weekday,
        };
        either
            && has(4, shown.month())
            && has(2, shown.hour())
            && has(1, shown.minute())
            && has(0, shown.second())
    }

    /// The runs in `from..to`, in seconds since 1970, by looking at the clock every `tick` seconds
    /// from 30 hours before. Both `from` and the changes of the clock have to be multiples of
    /// `tick`.
    pub(crate) fn runs(&self, zone: &TimeZone, from: i64, to: i64, tick: i64) -> Vec<i64> {
        const MEMORY: i64 = 30 * 3_600;
        let mut runs = Vec::new();
        let mut shown = HashSet::new();
        let mut last = None;
        for now in (from - MEMORY..to).step_by(tick as usize) {
            let wall = wall(zone, now);
            // What the clock shows now, and what it has passed over since it was last looked at.
            let first = last.map_or(wall, |last| wall.min(last + tick));
            let runs_now = if self.fixed {
                let fresh = |wall: &i64| shown.insert(*wall);
                (first..=wall)
                    .step_by(tick as usize)
                    .filter(fresh)
                    .filter(|wall| self.matches(*wall))
                    .count()
                    > 0
            } else {
                self.matches(wall)
            };
            if runs_now && now >= from {
                runs.push(now);
            }
            last = Some(wall);
        }
        runs
    }
}

pub(crate) fn wall(zone: &TimeZone, second: i64) -> Wall {
    let offset = zone.to_offset(Timestamp::from_second(second).unwrap());
    second + i64::from(offset.seconds())
}

fn values(text: &str, (min, max): (i64, i64)) -> BTreeSet<i64> {
    const NAMES: [&str; 19] = [
        "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "JAN", "FEB", "MAR", "APR", "MAY", "JUN",
        "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ];
    let value = |text: &str| match NAMES.iter().position(|name| *name == text) {
        Some(place @ 0..7) => place as i64,
        Some(place) => place as i64 - 6,
        None => text.parse().unwrap(),
    };
    let item = |item: &str| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (value(first), value(last)),
            None if range == "*" => (min, max),
            None => (value(range), value(range)),
        };
        (first..=last).step_by(step.parse().unwrap())
    };
    text.split(',').flat_map(item).collect()
}
