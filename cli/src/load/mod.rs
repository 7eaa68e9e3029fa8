//! `wheelhouse load`: a live wheel or scheduler under a million tasks, and how late they fire.

mod buckets;
mod chart;
mod plot;
mod process;
mod progress;
mod report;
mod run;
mod subject;
mod tally;

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use crate::{
    args::{duration, whole},
    failure::Failure,
    plot::PlotFile,
};

const MAX_TASKS: u64 = 1_000_000_000;
const MAX_THREADS: u64 = 1024;
const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// Schedule tasks on a live wheel or scheduler and print how late they fired.
///
/// The delays are spread evenly, in random order, over --after to --after + --over; each
/// counts from the call that schedules the task. Lateness is the time from the due instant
/// to the start of the task's callback.
///
/// The exit code is 1 if a task fired early, twice or not at all, or if the system refused
/// something: threads, or the memory that so many tasks need at least, of which it is asked
/// before the run. Memory that runs out in the middle of the run ends the process as the
/// system does that: by the signal ABRT (134 in a shell) or KILL (137). The exit code is 2
/// if the file of --plot cannot be written, which is known before the run.
///
/// --json prints these fields, in this order:
///
///   tasks           tasks scheduled
///   fired           callbacks that ran
///   early           callbacks that ran before their task was due
///   lost            tasks that never fired
///   p50_us, p90_us, p99_us, p999_us, max_us
///                   lateness: percentiles and maximum in microseconds, rounded up
///   schedule_mops   tasks scheduled a second, in millions
///   bytes_per_task  growth of the resident memory over the scheduling, in bytes; null below
///                   100000 tasks, for which resident memory is too coarse a measure, and
///                   where the system does not tell
///   cpu_s           user and system time of the run in seconds; null where the system does
///                   not tell
///   wakeups         returns of the driver from its sleep
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct LoadArgs {
    /// Tasks to schedule, 1..=1000000000.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = whole::<1, MAX_TASKS>, allow_negative_numbers = true)]
    tasks: u64,
    /// Span over which the tasks come due, 0s..=30days.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = span, allow_hyphen_values = true)]
    over: Duration,
    /// Delay of the earliest task, 0s..=30days.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = span, allow_hyphen_values = true)]
    after: Duration,
    /// Time between two ticks of the wheel or scheduler, 1us..=1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = interval, allow_hyphen_values = true)]
    interval: Duration,
    /// What runs the callbacks: inline (the wheel's own thread), threads=N (N of them,
    /// 1..=1024), tokio (tasks) or tokio-blocking (blocking tasks).
    #[arg(long, value_name = "EXECUTOR", default_value = "inline", value_parser = executor)]
    executor: Workers,
    /// Schedule on the async scheduler instead of a wheel: each task is a closure that runs as a
    /// task of a tokio runtime with its default settings, a worker per core. Not together with
    /// --executor.
    #[arg(long, conflicts_with = "executor")]
    scheduler: bool,
    /// Print one JSON object on one line instead of the report; its fields are listed above.
    #[arg(long)]
    json: bool,
    /// Draw the distribution of the lateness into this SVG file. An old file stays until the
    /// run is over; one that cannot be written is exit code 2, before the run.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// What runs the callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workers {
    Inline,
    Threads(usize),
    Tokio,
    TokioBlocking,
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline => f.write_str("inline"),
            Self::Threads(threads) => write!(f, "threads={threads}"),
            Self::Tokio => f.write_str("tokio"),
            Self::TokioBlocking => f.write_str("tokio-blocking"),
        }
    }
}

fn span(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, MONTH)
}

fn interval(text: &str) -> Result<Duration, String> {
    duration(text, Duration::from_micros(1), Duration::from_secs(3600))
}

fn executor(text: &str) -> Result<Workers, String> {
    let refusal =
        || format!("{text:?} is not inline, threads=1..={MAX_THREADS}, tokio or tokio-blocking");
    match text.split_once('=') {
        None if text == "inline" => Ok(Workers::Inline),
        None if text == "tokio" => Ok(Workers::Tokio),
        None if text == "tokio-blocking" => Ok(Workers::TokioBlocking),
        Some(("threads", threads)) => whole::<1, MAX_THREADS>(threads)
            .ok()
            .and_then(|threads| usize::try_from(threads).ok())
            .map(Workers::Threads)
            .ok_or_else(refusal),
        _ => Err(refusal()),
    }
}

/// Nanoseconds of a span of at most a few months.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs the load and reports it.
pub(crate) fn run(args: LoadArgs) -> Result<ExitCode, Failure> {
    // Opened now, so that a bad path is known before the run and not after it.
    let plot = args.plot.as_deref().map(PlotFile::for_option).transpose()?;
    let report = run::run(&args)?;
    if let (Some(file), Some(path)) = (plot, &args.plot) {
        file.write(plot::svg(&report).as_bytes())
            .map_err(|error| Failure::System(format!("{}: {error}", path.display())))?;
    }
    let text = if args.json {
        report.json()
    } else {
        let columns = console::Term::stdout()
            .size_checked()
            .map(|(_, columns)| columns.into());
        report.text(columns.unwrap_or(80), io::stdout().is_terminal())
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::output)?;
    Ok(ExitCode::from(u8::from(!report.is_exact())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_by_name() {
        assert_eq!(executor("inline"), Ok(Workers::Inline));
        assert_eq!(executor("threads=4"), Ok(Workers::Threads(4)));
        assert_eq!(executor("tokio"), Ok(Workers::Tokio));
        assert_eq!(executor("tokio-blocking"), Ok(Workers::TokioBlocking));
        for text in [
            "",
            "threads",
            "threads=",
            "threads=0",
            "threads=1025",
            "tokio=2",
            "inlin",
        ] {
            executor(text).unwrap_err();
        }
    }
}
