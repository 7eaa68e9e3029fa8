//! The command line: its verbs, the parsers of option values, and errors of one line.

use std::{error::Error as _, time::Duration};

use clap::{
    Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;

use crate::{failure::Failure, load::LoadArgs, sim::Sim};

/// A timing wheel and its company on the command line: replay a program of timers
/// on a virtual clock, load a live wheel or scheduler with a million tasks and see
/// how late they fire, or try a circuit breaker against an outage.
///
/// Exit codes: 0 done, 1 the system refused something or `load` found early or
/// lost tasks, 2 bad usage or bad input (also a --plot that cannot be written).
#[derive(Debug, Parser)]
#[command(name = "wheelhouse", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// What the program is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a part of the library on a virtual clock, the same each time.
    #[command(subcommand)]
    Sim(Sim),
    Load(LoadArgs),
    /// Print the completion script of a shell.
    Completions {
        /// The shell to print it for.
        shell: Shell,
    },
}

/// Reads the command line; `None` when it only asked for help or the version,
/// which have then been printed.
pub(crate) fn parse() -> Result<Option<Verb>, Failure> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(Some(cli.verb)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_err(Failure::output)?;
            Ok(None)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Failure::Usage(
            "a verb is missing: sim wheel, sim cron, sim breaker, sim shed, sim cache, load or completions (see --help)"
                .to_owned(),
        )),
        _ => Err(Failure::Usage(one_line(&error))),
    }
}

/// A whole number in `MIN..=MAX`.
pub(crate) fn whole<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    // Digits only: `+5` is a number to Rust, but not to a reader of the error below.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text:?} is not a whole number in {MIN}..={MAX}"));
    }
    match text.parse() {
        Ok(number) if (MIN..=MAX).contains(&number) => Ok(number),
        _ => Err(format!("{text} is not in {MIN}..={MAX}")),
    }
}

/// A duration in `min..=max`, written as in `10s`, `500us` or `1h30m`.
pub(crate) fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let range = || {
        format!(
            "{}..={}",
            humantime::format_duration(min),
            humantime::format_duration(max)
        )
    };
    let duration = humantime::parse_duration(text).map_err(|_| {
        format!(
            "{text:?} is not a duration in {} (write 10s, 500us or 1h30m)",
            range()
        )
    })?;
    if (min..=max).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("{text} is not in {}", range()))
    }
}

/// The error of clap as one line: `--option: what is wrong` for a bad value,
/// its first paragraph and its tip otherwise.
fn one_line(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if let (ErrorKind::ValueValidation, Some(argument), Some(cause)) =
        (error.kind(), text(ContextKind::InvalidArg), error.source())
    {
        // clap names the argument with its placeholder: `--slots <N>`.
        let name = argument.split(' ').next().unwrap_or(argument);
        return format!("{name}: {cause}");
    }
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.split("\n\n");
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = words(paragraphs.next().unwrap_or_default());
    for tip in paragraphs.filter(|paragraph| paragraph.trim_start().starts_with("tip:")) {
        line.push_str("; ");
        line.push_str(&words(tip));
    }
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    format!("{line} (see --help)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn whole_numbers_keep_to_their_range() {
        assert_eq!(whole::<1, 9>("1"), Ok(1));
        assert_eq!(whole::<1, 9>("9"), Ok(9));
        assert_eq!(
            whole::<0, { u64::MAX }>("18446744073709551615"),
            Ok(u64::MAX)
        );
        assert_eq!(whole::<1, 9>("10"), Err("10 is not in 1..=9".to_owned()));
        assert_eq!(
            whole::<1, 9>("99999999999999999999"),
            Err("99999999999999999999 is not in 1..=9".to_owned())
        );
        for text in ["", "-1", "+1", "1.0", " 1", "0x1", "a"] {
            let message = whole::<1, 9>(text).unwrap_err();
            assert!(
                message.ends_with("is not a whole number in 1..=9"),
                "{message}"
            );
        }
    }

    #[test]
    fn durations_keep_to_their_range() {
        let parse = |text| duration(text, Duration::from_micros(1), Duration::from_secs(3600));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("2h"), Err("2h is not in 1us..=1h".to_owned()));
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1 parsec",
            "1s 2",
            "99999999999999999999s",
        ] {
            let message = parse(text).unwrap_err();
            assert!(
                message.contains("is not a duration in 1us..=1h"),
                "{message}"
            );
        }
    }
}
