//! Which civil dates and times an expression names: the calendar alone, no zone and no instants.

use croner::{CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time, Weekday as JiffWeekday};

/// The fields of an expression.
///
/// Seconds, minutes, hours and months are sets of bits, never empty: bit 7 of the hours stands
/// for seven o'clock. Days are asked of croner, which knows the weekday rules.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    pattern: CronPattern,
}

impl Calendar {
    pub(super) fn new(pattern: CronPattern) -> Self {
        let bits = |values: Vec<u16>| values.iter().fold(0, |bits, value| bits | 1 << value);
        Self {
            seconds: bits(pattern.seconds.values()),
            minutes: bits(pattern.minutes.values()),
            hours: bits(pattern.hours.values()),
            months: bits(pattern.months.values()),
            pattern,
        }
    }

    /// The first matching time in `from..until`, both taken to whole seconds.
    ///
    /// Costs a few steps for each month and each day of a matching month in between.
    pub(super) fn first(&self, from: DateTime, until: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut time = from.time();
        while date <= until.date() {
            let on_this_day = if !self.has_month(date) {
                // The rest of the month is passed over, all but the step from its last day.
                date = date.last_of_month();
                None
            } else if self.has_day(date) {
                self.time_from(time)
            } else {
                None
            };
            if let Some(time) = on_this_day {
                return Some(date.to_datetime(time)).filter(|found| *found < until);
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
        None
    }

    fn has_month(&self, date: Date) -> bool {
        self.months >> date.month() & 1 == 1
    }

    fn has_day(&self, date: Date) -> bool {
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
        // It refuses dates that do not exist only.
        self.pattern
            .day_match(i32::from(date.year()), month, day, weekday)
            .unwrap_or(false)
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
