//! From the calendar to instants: the rule for changes of the offset.
//!
//! A zone is a row of stretches, each an interval of instants with one offset from UTC. On a
//! stretch the civil clock runs evenly; from one to the next it goes forward (a gap in the civil
//! times) or back (some of them come again). Two kinds of expression walk the row:
//!
//! - An expression with a wildcard or a step in its minutes or hours runs at each instant whose
//!   civil time matches: on each stretch all matches of the civil times it covers.
//! - A fixed-time expression runs once for each civil time. Let `reached` be the latest civil time
//!   that an earlier stretch came to. A stretch answers for the civil times from `reached` to its
//!   own end: those before its start are the gap, and their instant is its first; those before
//!   `reached` have had their run. It follows that a gap of any size gives one run, also one that
//!   swallows midnight or whole days, and that instants never go back.
//!
//! Bounds: the walk ends 36 525 days on; it takes one step per change of the offset, and civil
//! times that have been searched without a match are not searched again.

use std::cmp::max;

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

use super::calendar::Calendar;

/// A hundred years: beyond that, there is no next run.
const HORIZON: SignedDuration = SignedDuration::from_hours(36_525 * 24);

/// How long ago a change of the offset can have been and still matter: offsets are less than
/// 26 hours, so civil times of different offsets are less than 52 hours apart.
const MEMORY: SignedDuration = SignedDuration::from_hours(52);

/// One second, the grain of expressions and of offsets.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The first run after `after`; `fixed` says which kind of expression it is.
pub(super) fn next_after(
    calendar: &Calendar,
    fixed: bool,
    zone: &TimeZone,
    after: Timestamp,
) -> Option<Timestamp> {
    let last = later(after, HORIZON);
    let mut begin = Timestamp::from_second(floor_second(after).checked_add(1)?).ok()?;
    let mut offset = zone.to_offset(begin);
    let mut reached = if fixed {
        reached_before(zone, begin)
    } else {
        DateTime::MIN
    };
    let mut search = Search::new(calendar, offset.to_datetime(later(last, MEMORY)));
    let mut changes = zone.following(begin);
    while begin <= last {
        let change = changes.next();
        let end = change
            .as_ref()
            .map_or(later(last, SECOND), |change| change.timestamp());
        let until = offset.to_datetime(end);
        let from = if fixed {
            reached
        } else {
            offset.to_datetime(begin)
        };
        if let Some(found) = search.first(from, until) {
            // Before `begin` means in the gap.
            let run = offset
                .to_timestamp(found)
                .map_or(begin, |run| max(run, begin));
            return Some(run).filter(|run| *run <= last);
        }
        reached = max(reached, until);
        offset = change?.offset();
        begin = end;
    }
    None
}

/// The civil time from which on runs of a fixed-time expression are at `begin` or later.
fn reached_before(zone: &TimeZone, begin: Timestamp) -> DateTime {
    let mut reached = zone.to_offset(begin).to_datetime(begin);
    for change in zone.preceding(later(begin, SECOND)) {
        let at = change.timestamp();
        if begin.duration_since(at) > MEMORY {
            break;
        }
        // Where the stretch before this change ended.
        let ended = zone.to_offset(later(at, -SECOND)).to_datetime(at);
        // What lies between that and the first civil time of a stretch is the gap, to be made up
        // for at its first instant.
        reached = if at == begin {
            ended
        } else {
            max(reached, ended)
        };
    }
    reached
}

/// A search through the calendar that remembers what it has seen.
struct Search<'a> {
    calendar: &'a Calendar,
    horizon: DateTime,
    /// There is no match from the first up to the second, which is one, or the horizon.
    seen: Option<(DateTime, Option<DateTime>)>,
}

impl<'a> Search<'a> {
    fn new(calendar: &'a Calendar, horizon: DateTime) -> Self {
        Self {
            calendar,
            horizon,
            seen: None,
        }
    }

    fn first(&mut self, from: DateTime, until: DateTime) -> Option<DateTime> {
        if from >= until {
            return None;
        }
        let found = match self.seen {
            Some((start, found)) if start <= from && found.is_none_or(|found| from <= found) => {
                found
            }
            _ => {
                let found = self.calendar.first(from, self.horizon);
                self.seen = Some((from, found));
                found
            }
        };
        found.filter(|found| *found < until)
    }
}

/// The whole second at or before `at`, counted from the epoch.
fn floor_second(at: Timestamp) -> i64 {
    // jiff counts both parts towards zero.
    at.as_second() - i64::from(at.subsec_nanosecond() < 0)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(if by.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
