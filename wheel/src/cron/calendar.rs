//! Which civil dates and times an expression names: the calendar alone, no zone and no instants.

use croner::{CronComponent, CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time, Weekday as JiffWeekday};

/// The fields of an expression, as sets of bits: bit 7 of the hours stands for seven o'clock. None
/// is empty.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
}

/// The days of a month.
#[derive(Clone, Debug)]
enum Days {
    /// They are the same in each month, as far as it has them.
    Numbers(u64),
    /// They depend on weekdays, or on the length of the month; croner knows the rules.
    Pattern(Box<CronPattern>),
}

impl Calendar {
    pub(super) fn new(mut pattern: CronPattern) -> Self {
        let bits = |values: Vec<u16>| values.iter().fold(0, |bits, value| bits | 1 << value);
        // Five thousand bytes that say `*`.
        pattern.years = CronComponent::new(0, 0, 0, 0);
        Self {
            seconds: bits(pattern.seconds.values()),
            minutes: bits(pattern.minutes.values()),
            hours: bits(pattern.hours.values()),
            months: bits(pattern.months.values()),
            days: if pattern.is_dow_wildcard() && !pattern.days.has_modifiers() {
                Days::Numbers(bits(pattern.days.values()))
            } else {
                Days::Pattern(Box::new(pattern))
            },
        }
    }

    /// The first matching time in `from..until`, at a whole second if `from` is at one.
    ///
    /// Costs a step for each month in between, and for each day of matching months where weekdays
    /// have to be asked for.
    pub(super) fn first(&self, from: DateTime, until: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut time = from.time();
        while date <= until.date() {
            let next = match self.day_from(date) {
                Some(day) => {
                    if day > date {
                        time = Time::midnight();
                    }
                    if let Some(time) = self.time_from(time) {
                        return Some(day.to_datetime(time)).filter(|found| *found < until);
                    }
                    day
                }
                None => date.last_of_month(),
            };
            date = next.tomorrow().ok()?;
            time = Time::midnight();
        }
        None
    }

    /// The first matching day from `date` to the end of its month.
    fn day_from(&self, date: Date) -> Option<Date> {
        if !holds(self.months, date.month()) {
            return None;
        }
        let (year, month) = (date.year(), date.month());
        match &self.days {
            Days::Numbers(days) => {
                let day = lowest(*days, date.day()).filter(|day| *day <= date.days_in_month())?;
                Date::new(year, month, day).ok()
            }
            Days::Pattern(pattern) => (date.day()..=date.days_in_month())
                .filter_map(|day| Date::new(year, month, day).ok())
                .find(|date| matches(pattern, *date)),
        }
    }

    /// The first matching time of day that is not before `time`.
    fn time_from(&self, time: Time) -> Option<Time> {
        let [hour, minute, second] = [time.hour(), time.minute(), time.second()];
        if holds(self.hours, hour) {
            if holds(self.minutes, minute)
                && let Some(second) = lowest(self.seconds, second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return Time::new(hour, minute, lowest(self.seconds, 0)?, 0).ok();
            }
        }
        let hour = lowest(self.hours, hour + 1)?;
        let [minute, second] = [lowest(self.minutes, 0)?, lowest(self.seconds, 0)?];
        Time::new(hour, minute, second, 0).ok()
    }
}

fn matches(pattern: &CronPattern, date: Date) -> bool {
    let weekday = match date.weekday() {
        JiffWeekday::Sunday => Weekday::Sunday,
        JiffWeekday::Monday => Weekday::Monday,
        JiffWeekday::Tuesday => Weekday::Tuesday,
        JiffWeekday::Wednesday => Weekday::Wednesday,
        JiffWeekday::Thursday => Weekday::Thursday,
        JiffWeekday::Friday => Weekday::Friday,
        JiffWeekday::Saturday => Weekday::Saturday,
    };
    let [month, day] = [date.month(), date.day()].map(|part| u32::from(part.unsigned_abs()));
    // It refuses only dates that do not exist.
    pattern
        .day_match(i32::from(date.year()), month, day, weekday)
        .unwrap_or(false)
}

fn holds(bits: u64, place: i8) -> bool {
    bits >> place & 1 == 1
}

/// The lowest bit at `from` or above; `from` is at most 60.
fn lowest(bits: u64, from: i8) -> Option<i8> {
    let rest = bits & (u64::MAX << from);
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bit_at_or_above() {
        assert_eq!(lowest(0, 0), None);
        assert_eq!(lowest(0b1010, 0), Some(1));
        assert_eq!(lowest(0b1010, 2), Some(3));
        assert_eq!(lowest(0b1010, 4), None);
        assert_eq!(lowest(1 << 59, 59), Some(59));
        assert_eq!(lowest(1 << 59, 60), None);
    }
}
