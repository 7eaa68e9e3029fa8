//! From the text of an expression to its calendar.
//!
//! Each field is checked by a [`Rule`] first, so that an error names the field and says what it may
//! be; croner then reads what has been checked. On its own it is more lenient than is good for
//! schedules (an empty item in a list, `JAN` as a minute), and its errors do not say where.

use croner::parser::{CronParser, Seconds, Year};

use super::{
    calendar::Calendar,
    error::{CronError, CronField},
    rule::Rule,
};

/// What an expression says, apart from the zone.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) calendar: Calendar,
    /// Neither minutes nor hours have a wildcard or a step.
    pub(super) fixed: bool,
}

impl Expression {
    /// Reads five or six fields, or a nickname. Costs time in proportion to the length.
    pub(super) fn parse(text: &str) -> Result<Self, CronError> {
        let mut fields = Vec::with_capacity(RULES.len());
        for (rule, field) in RULES.iter().zip(split(text)?) {
            let checked = rule.check(field).map_err(|problem| CronError::Field {
                field: rule.field,
                text: field.to_owned(),
                problem,
            })?;
            fields.push(checked);
        }
        let fixed = !fields[1..=2].iter().any(|field| field.contains(['*', '/']));
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .build();
        // Nothing is known to pass the rules and to fail here; that it stays so is tested with
        // random text.
        let cron = parser
            .parse(&fields.join(" "))
            .map_err(|error| CronError::Syntax {
                expression: text.to_owned(),
                problem: error.to_string(),
            })?;
        Ok(Self {
            calendar: Calendar::new(cron.pattern),
            fixed,
        })
    }
}

const RULES: [Rule; 6] = [
    Rule::new(CronField::Second, 0..=59, &[]),
    Rule::new(CronField::Minute, 0..=59, &[]),
    Rule::new(CronField::Hour, 0..=23, &[]),
    Rule::new(CronField::DayOfMonth, 1..=31, &[]),
    Rule::new(
        CronField::Month,
        1..=12,
        &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
    ),
    Rule::new(
        CronField::DayOfWeek,
        0..=7,
        &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    ),
];

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The six fields; the first is `0` where it was left out.
fn split(text: &str) -> Result<[&str; 6], CronError> {
    let mut fields = text.trim_ascii();
    if fields.starts_with('@') {
        let known = NICKNAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(fields));
        fields = known
            .ok_or_else(|| CronError::Nickname {
                expression: text.to_owned(),
            })?
            .1;
    }
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    match *fields {
        [minute, hour, day, month, weekday] => Ok(["0", minute, hour, day, month, weekday]),
        [second, minute, hour, day, month, weekday] => {
            Ok([second, minute, hour, day, month, weekday])
        }
        _ => Err(CronError::FieldCount {
            expression: text.to_owned(),
            found: fields.len(),
        }),
    }
}
