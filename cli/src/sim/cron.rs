//! `wheelhouse sim cron`: the next runs of an expression, so that one can see what it means.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use jiff::tz::Offset;
use wheelhouse_wheel::cron::{Cron, IntoZone, TimeZone, Timestamp};

use crate::{args::whole, failure::Failure};

/// Print the next runs of a cron expression, one time per line.
///
/// The expression has five fields, or six with the second first:
///
///   second        0-59
///   minute        0-59
///   hour          0-23
///   day of month  1-31, L (the last), LW (the last weekday), 15W (the weekday nearest to the 15th)
///   month         1-12 or JAN-DEC
///   day of week   0-7 or SUN-SAT, 0 and 7 are Sunday; 5L (the last Friday), MON#2 (the second Monday)
///
/// A field is *, or a list of values and ranges (1,15,20-25); */n and first-last/n take every n-th
/// value. Where day of month and day of week are both restricted, either is enough. @hourly, @daily,
/// @weekly, @monthly and @yearly stand for whole expressions.
///
/// When the clocks change: an expression without * and / in its minutes and hours runs at the first
/// instant after a gap if its time falls into it, and the first time if its time comes twice; any
/// other runs through both rounds of a repeated hour, and nothing is made up for a gap.
///
/// The runs are strictly after --from, each an RFC 3339 time with the zone's offset. There are fewer
/// lines than --count, and the exit code is 0, when no more come within 100 years.
///
///   wheelhouse sim cron '30 2 * * MON-FRI' --tz Europe/Berlin --count 3
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CronArgs {
    /// The expression, in quotes.
    #[arg(value_name = "EXPRESSION")]
    expression: String,
    /// The time zone, an IANA name such as Europe/Berlin.
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone, allow_hyphen_values = true)]
    tz: TimeZone,
    /// The time to start after, in RFC 3339 as in 2024-03-10T01:30:00-05:00, up to
    /// 9999-12-30T22:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    from: Option<Timestamp>,
    /// How many runs, 1..=18446744073709551615.
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<1, { u64::MAX }>, allow_negative_numbers = true)]
    count: u64,
}

const FIRST: &str = "0001-01-01T00:00:00Z";
const FIRST_SECOND: i64 = -62_135_596_800;

/// The last whole second of jiff, which leaves room for every offset within the year 9999.
const LAST: &str = "9999-12-30T22:00:00Z";

const EXAMPLES: &str = "write 2024-03-10T01:30:00-05:00 or 2024-03-10T06:30:00Z";

/// Prints the runs, each as soon as it is known.
pub(crate) fn run(args: &CronArgs) -> Result<ExitCode, Failure> {
    let cron =
        Cron::new(&args.expression, &args.tz).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut runs = cron.after(args.from.unwrap_or_else(Timestamp::now));
    let mut output = io::stdout().lock();
    let mut left = args.count;
    while left > 0
        && let Some(run) = runs.next()
    {
        let offset = whole_minutes(args.tz.to_offset(run));
        // Standard output is flushed at the end of each line.
        writeln!(output, "{}", run.display_with_offset(offset)).map_err(Failure::output)?;
        left -= 1;
    }
    output.flush().map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn zone(name: &str) -> Result<TimeZone, String> {
    name.into_zone().map_err(|_| {
        format!(
            "{} is not an IANA time zone (write UTC, Europe/Berlin or America/New_York)",
            shown(name)
        )
    })
}

/// A time of RFC 3339. jiff reads more, such as a zone in brackets, which would go unheard here.
fn time(text: &str) -> Result<Timestamp, String> {
    let shape = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't' | b' '),
        13 | 16 => byte == b':',
        0..19 => byte.is_ascii_digit(),
        _ => matches!(byte, b'0'..=b'9' | b'.' | b':' | b'+' | b'-' | b'Z' | b'z'),
    };
    let is_shaped = text.len() >= 20 && text.bytes().enumerate().all(shape);
    let time = if is_shaped { text.parse().ok() } else { None };
    // Before that, a zone west of UTC could show a year that RFC 3339 cannot write.
    time.filter(|time: &Timestamp| time.as_second() >= FIRST_SECOND)
        .ok_or_else(|| {
            let shown = shown(text);
            format!("{shown} is not an RFC 3339 time from {FIRST} to {LAST} ({EXAMPLES})")
        })
}

/// RFC 3339 has no seconds in offsets, local mean times of long ago do. The time beside a rounded
/// offset is still the right instant.
fn whole_minutes(offset: Offset) -> Offset {
    let minutes = offset.seconds().div_euclid(60);
    Offset::from_seconds(minutes * 60).unwrap_or(offset)
}

/// The value in quotes, shortened where nobody would read it all.
fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
