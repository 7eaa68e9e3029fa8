//! What one field of an expression may hold.

use std::ops::RangeInclusive;

use super::error::{CronField, quoted};

/// The rule of one field. Errors are the part of the message after the field: what is wrong, and
/// what is allowed.
pub(super) struct Rule {
    pub(super) field: CronField,
    min: u8,
    max: u8,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

impl Rule {
    pub(super) const fn new(
        field: CronField,
        values: RangeInclusive<u8>,
        names: &'static [&'static str],
    ) -> Self {
        Self {
            field,
            min: *values.start(),
            max: *values.end(),
            names,
        }
    }

    /// The field with numbers for names and `*` for `?`.
    pub(super) fn check(&self, text: &str) -> Result<String, String> {
        if text == "*" || text == "?" && self.is_of_days() {
            return Ok("*".to_owned());
        }
        let items: Vec<_> = text
            .split(',')
            .map(|item| self.item(item))
            .collect::<Result<_, _>>()?;
        // Together they would silently mean the second alone.
        if ["L", "LW"]
            .iter()
            .all(|last| items.iter().any(|item| item == last))
        {
            return Err("L and LW cannot be in one list".to_owned());
        }
        Ok(items.join(","))
    }

    fn item(&self, item: &str) -> Result<String, String> {
        if item == "*" {
            return Err("* cannot be one of a list".to_owned());
        }
        if let Some((range, step)) = item.split_once('/') {
            let range = if range == "*" {
                "*".to_owned()
            } else if range.contains('-') {
                self.range(range)?
            } else {
                return Err(format!(
                    "{} has no range before its step, write */n or first-last/n",
                    quoted(item)
                ));
            };
            return Ok(format!("{range}/{}", self.step(step)?));
        }
        if item.contains('-') {
            return self.range(item);
        }
        match self.field {
            CronField::DayOfMonth => self.day(item),
            CronField::DayOfWeek => self.weekday(item),
            _ => self.value(item).map(|value| value.to_string()),
        }
    }

    /// `first-last`.
    fn range(&self, text: &str) -> Result<String, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, ""));
        let (first, mut last) = (self.value(first)?, self.value(last)?);
        if self.field == CronField::DayOfWeek && last == 0 && first > 0 {
            // Sunday ends a week as well as it begins one.
            last = 7;
        }
        if first > last {
            return Err(format!(
                "{} ends before it begins, write two ranges",
                quoted(text)
            ));
        }
        Ok(format!("{first}-{last}"))
    }

    fn step(&self, text: &str) -> Result<u8, String> {
        let most = self.count();
        number(text)
            .filter(|step| (1..=most).contains(step))
            .ok_or_else(|| format!("step {} is not in 1..={most}", quoted(text)))
    }

    /// A day of the month: a number, `L`, `LW`, or a number with `W`.
    fn day(&self, text: &str) -> Result<String, String> {
        let upper = text.to_ascii_uppercase();
        if upper == "L" || upper == "LW" {
            return Ok(upper);
        }
        match upper.strip_suffix('W') {
            Some(day) => Ok(format!("{}W", self.value(day)?)),
            None => Ok(self.value(text)?.to_string()),
        }
    }

    /// A day of the week: a number or a name, either with `L`, `#L` or `#` and a number.
    fn weekday(&self, text: &str) -> Result<String, String> {
        if let Some((day, nth)) = text.split_once('#') {
            let day = self.value(day)?;
            return if nth.eq_ignore_ascii_case("L") {
                Ok(format!("{day}#L"))
            } else if let Some(nth @ 1..=5) = number(nth) {
                Ok(format!("{day}#{nth}"))
            } else {
                Err(format!("{} after # is not in 1..=5 or L", quoted(nth)))
            };
        }
        match text.strip_suffix(['L', 'l']) {
            Some(day) => Ok(format!("{}#L", self.value(day)?)),
            None => Ok(self.value(text)?.to_string()),
        }
    }

    /// A number, or a name as its number.
    fn value(&self, text: &str) -> Result<u8, String> {
        let named = || {
            let place = self
                .names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(text))?;
            u8::try_from(place).ok()?.checked_add(self.min)
        };
        number(text)
            .filter(|number| (self.min..=self.max).contains(number))
            .or_else(named)
            .ok_or_else(|| {
                let allowed = self.allowed();
                if text.is_empty() {
                    format!("a value is missing, allowed are {allowed}")
                } else {
                    format!("{} is not in {allowed}", quoted(text))
                }
            })
    }

    fn allowed(&self) -> String {
        match self.names {
            [first, .., last] => format!("{}..={} or {first}..={last}", self.min, self.max),
            _ => format!("{}..={}", self.min, self.max),
        }
    }

    fn count(&self) -> u8 {
        // Sunday has two numbers.
        self.max - self.min + u8::from(self.field != CronField::DayOfWeek)
    }

    fn is_of_days(&self) -> bool {
        matches!(self.field, CronField::DayOfMonth | CronField::DayOfWeek)
    }
}

/// A number in digits alone: Rust would also take a sign.
fn number(text: &str) -> Option<u8> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
