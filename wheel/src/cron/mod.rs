//! Cron expressions in time zones: the instants at which an expression runs.
//!
//! Unlike a cron daemon, nothing here waits for a time or starts a job: [`Cron::next_after`] is a
//! calculation, from one instant to the next. Unlike most cron crates it keeps a stated rule when
//! the clocks change.
//!
//! ```
//! use wheelhouse_wheel::cron::{Cron, Timestamp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nightly = Cron::new("30 1 * * *", "America/New_York")?;
//!
//! // On 2 November 2025 the hour from 1:00 to 2:00 comes twice; the job runs in the first.
//! let midnight: Timestamp = "2025-11-02T00:00:00-04:00".parse()?;
//! let runs: Vec<_> = nightly.after(midnight).take(2).collect();
//! assert_eq!(runs[0], "2025-11-02T01:30:00-04:00".parse()?);
//! assert_eq!(runs[1], "2025-11-03T01:30:00-05:00".parse()?);
//!
//! let error = Cron::new("30 25 * * *", "America/New_York").unwrap_err();
//! assert_eq!(error.to_string(), r#"hour "25": "25" is not in 0..=23"#);
//! # Ok(()) }
//! ```
//!
//! # Expressions
//!
//! Five fields, or six with the second first, separated by blanks; with five, the second is 0.
//!
//! | field | values |
//! |---|---|
//! | second | `0..=59` |
//! | minute | `0..=59` |
//! | hour | `0..=23` |
//! | day of month | `1..=31`; `L` the last day, `LW` the last from Monday to Friday, `15W` the one of those nearest to the 15th within the month |
//! | month | `1..=12` or `JAN`…`DEC` |
//! | day of week | `0..=7` or `SUN`…`SAT`, 0 and 7 are Sunday; `5L` the last Friday of the month, `MON#2` the second Monday |
//!
//! A field is `*` (in the fields for days also `?`, which says the same), or a list of values and
//! ranges: `1,15,20-25`. `*/n` and `first-last/n` take every n-th value of a range; a step is at
//! most the number of values. A range does not go past the end (`22-2`: write `22-23,0-2`), but may
//! end on Sunday. Names are in upper or lower case. `@hourly`, `@daily` or `@midnight`, `@weekly`,
//! `@monthly`, `@yearly` or `@annually` stand for whole expressions.
//!
//! # Guarantees
//!
//! - C1: [`next_after`](Cron::next_after) is later than its argument, so next times strictly
//!   increase.
//! - C2, either day: where both day of month and day of week are restricted, a day matches if
//!   either does. Restricted is every field but a bare `*` or `?`, also `*/2` and `1-31`.
//! - C3, fixed times: an expression without wildcard and without step in its minutes and hours runs
//!   once for each civil time that it names. If the clocks go forward over it, it runs at the first
//!   instant after the gap (once, when several fall into the gap); if the time comes twice, it
//!   runs the first time. Lists and ranges (`0-23`) are fixed times; the second has no part in this.
//! - C4, intervals: an expression with a wildcard or a step in its minutes or hours runs whenever
//!   the civil clock shows what it names: through both rounds of a repeated hour, and with nothing
//!   made up for a gap.
//! - C5: no day is lost to a gap at midnight; for a day that a zone left out (`Pacific/Apia`,
//!   30 December 2011) a fixed time runs once, at the first instant of the next.
//! - C6: there is an answer for every expression, zone and instant. `None` says that there is no
//!   run within 36 525 days (a hundred years), and comes in bounded time: `0 0 30 2 *`.
//!
//! C3 and C4 are the rule of Vixie's cron for clocks that change. In the words of its code a job is
//! an interval only if its minutes or hours *begin* with `*`; here `0-30/10` is one as well.
//!
//! # Zones
//!
//! The IANA database is built in, so no system files are needed and results do not depend on the
//! machine; what is built in is jiff's release of it. A program that wants its system's zones first
//! enables jiff's feature `tzdb-zoneinfo`. A [`TimeZone`] may also be handed in: [`TimeZone::system`] is
//! that of the machine, read when it is called. Where the machine does not say which that is, it is
//! refused rather than taken for UTC.
//!
//! # Compared with
//!
//! On 12 000 random questions over eight zones, half of them within two days of a change, croniter
//! 7.0 gives the same answer as this module in all but 72. It makes up for intervals that fall into
//! a gap, runs a fixed time in both rounds of a repeated hour, and comes later by the second of a
//! six-field expression after a gap; `tests/cron/agreement.rs` holds these reasons.
//!
//! # How it works
//!
//! croner reads the expression and knows which days match. The way from civil times to instants is
//! not left to it: it takes `0 1,2 * * *` for an interval, and gives up on gaps of more than two
//! hours. `instants.rs` walks from one change of the offset to the next instead. A call takes a
//! step for each month and each change of the offset that it passes, and where weekdays, `L` or
//! `W` decide, for each day of matching months.

mod calendar;
mod error;
mod expression;
mod instants;
mod rule;
mod zone;

use std::{fmt, iter::FusedIterator, sync::Arc, time::SystemTime};

pub use jiff::{Timestamp, tz::TimeZone};

use expression::Expression;

pub use error::{CronError, CronField};
pub use zone::IntoZone;

/// A cron expression in a time zone.
///
/// A clone costs one count; it is the same schedule.
///
/// ```
/// use wheelhouse_wheel::cron::{Cron, Timestamp};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cron = Cron::new("0 9 * * MON-FRI", "Europe/Berlin")?;
/// let friday: Timestamp = "2024-03-29T09:00:00+01:00".parse()?;
/// // The clocks go forward in between.
/// assert_eq!(cron.next_after(friday), Some("2024-04-01T09:00:00+02:00".parse()?));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cron {
    schedule: Arc<Schedule>,
}

impl Cron {
    /// Reads `expression` (five fields, or six with the second first), to be run in `zone` (an IANA
    /// name, or a [`TimeZone`]).
    ///
    /// # Errors
    ///
    /// The first field that is not understood, or the zone, in one line. An expression that names
    /// no date there is (`0 0 30 2 *`) is none; it has no next time.
    pub fn new(expression: &str, zone: impl IntoZone) -> Result<Self, CronError> {
        let parsed = Expression::parse(expression)?;
        let zone = zone.into_zone()?;
        Ok(Self {
            schedule: Arc::new(Schedule {
                text: expression.to_owned(),
                parsed,
                zone,
            }),
        })
    }

    /// The first run that is later than `after`; `None` if there is none within 36 525 days or
    /// before the year 10 000.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let Schedule { parsed, zone, .. } = &*self.schedule;
        instants::next_after(&parsed.calendar, parsed.fixed, zone, after)
    }

    /// The same for the standard library's type; `None` also if `after` is not in the years
    /// −9999 to 9999.
    pub fn next_after_system(&self, after: SystemTime) -> Option<SystemTime> {
        let after = Timestamp::try_from(after).ok()?;
        self.next_after(after).map(SystemTime::from)
    }

    /// All runs that are later than `after`, in order.
    ///
    /// ```
    /// use wheelhouse_wheel::cron::{Cron, Timestamp};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let leap_days = Cron::new("0 0 29 2 *", "UTC")?;
    /// let years: Vec<_> = leap_days
    ///     .after("2000-01-01T00:00:00Z".parse()?)
    ///     .take(3)
    ///     .map(|run| run.to_string())
    ///     .collect();
    /// assert_eq!(years, ["2000-02-29T00:00:00Z", "2004-02-29T00:00:00Z", "2008-02-29T00:00:00Z"]);
    /// # Ok(()) }
    /// ```
    pub fn after(&self, after: Timestamp) -> Runs {
        Runs {
            cron: self.clone(),
            after: Some(after),
        }
    }

    /// The expression as it was given.
    pub fn expression(&self) -> &str {
        &self.schedule.text
    }

    /// The zone it runs in.
    pub fn zone(&self) -> &TimeZone {
        &self.schedule.zone
    }
}

/// The expression and the name of the zone, as in `0 9 * * * Europe/Berlin`.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone();
        write!(f, "{} ", self.expression())?;
        match (zone.iana_name(), zone.to_fixed_offset()) {
            (Some(name), _) => f.write_str(name),
            (None, Ok(offset)) => write!(f, "{offset}"),
            (None, Err(_)) => f.write_str("in a zone without a name"),
        }
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron")
            .field("expression", &self.expression())
            .field("zone", self.zone())
            .finish()
    }
}

/// The runs of a [`Cron`], from [`Cron::after`].
#[derive(Clone, Debug)]
#[must_use = "an iterator calculates nothing until it is asked"]
pub struct Runs {
    cron: Cron,
    /// `None` at the end.
    after: Option<Timestamp>,
}

impl Iterator for Runs {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        self.after = self.cron.next_after(self.after?);
        self.after
    }
}

impl FusedIterator for Runs {}

/// What the clones of a [`Cron`] share.
struct Schedule {
    text: String,
    parsed: Expression,
    zone: TimeZone,
}
