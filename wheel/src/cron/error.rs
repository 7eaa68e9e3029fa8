//! What is wrong with an expression or a zone, in one line that points at the place.

use std::fmt;

use thiserror::Error;

/// Why a [`Cron`](super::Cron) could not be built.
///
/// The message is one line, however long or odd the input was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CronError {
    /// The expression has too few or too many fields.
    #[error(
        "cron expression {}: {found} fields, expected 5 (minute, hour, day of month, month, day of week) or 6 with the second first",
        quoted(expression)
    )]
    #[non_exhaustive]
    FieldCount {
        /// The expression as it was given.
        expression: String,
        /// How many fields it has.
        found: usize,
    },
    /// The expression begins with `@` and is no name that is known.
    #[error(
        "cron expression {}: expected @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or fields",
        quoted(expression)
    )]
    #[non_exhaustive]
    Nickname {
        /// The expression as it was given.
        expression: String,
    },
    /// One field of the expression is not understood.
    #[error("{field} {}: {problem}", quoted(text))]
    #[non_exhaustive]
    Field {
        /// Which one.
        field: CronField,
        /// The whole field as it was given.
        text: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// The expression is refused as a whole.
    #[error("cron expression {}: {problem}", quoted(expression))]
    #[non_exhaustive]
    Syntax {
        /// The expression as it was given.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The time zone is not known.
    #[error(
        "time zone {}: expected an IANA name such as UTC, Europe/Berlin or America/New_York",
        quoted(name)
    )]
    #[non_exhaustive]
    Zone {
        /// The name as it was given.
        name: String,
    },
    /// The time zone is that of the system, which could not be found out.
    #[error(
        "time zone: the system's is not known; set TZ to an IANA name such as Europe/Berlin, or name one"
    )]
    UnknownZone,
}

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CronField {
    /// `0..=59`, the first of six fields.
    Second,
    /// `0..=59`.
    Minute,
    /// `0..=23`.
    Hour,
    /// `1..=31`.
    DayOfMonth,
    /// `1..=12` or `JAN..=DEC`.
    Month,
    /// `0..=7` or `SUN..=SAT`; 0 and 7 are both Sunday.
    DayOfWeek,
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// The text in quotes, on one line, and shortened where nobody would read it all.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
