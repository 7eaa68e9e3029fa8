//! `wheelhouse sim cache`: keys in, hit ratio out, on a virtual clock.

mod optimum;
mod run;
mod trace;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::{
    args::{duration, whole},
    failure::Failure,
};

/// Play a trace of keys on a cache and print its hit ratio.
///
/// Reads one key per line from standard input (any text; empty lines are skipped). Each request looks
/// its key up and stores it if it is not there. The virtual clock moves 1 ms per request. The output
/// is one line, or one object with --json:
///
///   requests=914145 hits=300122 hit_ratio=32.831% max_len=1000
///
/// max_len is the largest number of entries seen at any time. With --optimum it also has the hits
/// of Belady's policy, which knows the future, for a cache without expiry.
///
///   seq 1 1011 | wheelhouse sim cache --capacity 500 --policy lru
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CacheArgs {
    /// Entries that the cache holds, 1..=1000000000.
    #[arg(long, value_name = "N", value_parser = whole::<1, 1_000_000_000>, allow_negative_numbers = true)]
    capacity: u64,
    /// Who goes when there is no room.
    #[arg(long, value_name = "POLICY", default_value = "default")]
    policy: PolicyName,
    /// How long an entry lives, on the virtual clock, as in 10s or 500ms, 1ms..=1000years
    /// [default: without end]
    #[arg(long, value_name = "DURATION", value_parser = lifetime, allow_negative_numbers = true)]
    ttl: Option<Duration>,
    /// Threads, 1..=64; thread i of n plays the requests i, i + n, ...
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<1, 64>, allow_negative_numbers = true)]
    threads: u64,
    /// Also print what the best possible policy would hit.
    #[arg(long)]
    optimum: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Adapts to the traffic.
    Default,
    /// Exactly the least recently used.
    Lru,
    /// SIEVE.
    Sieve,
    /// First in, first out.
    Fifo,
}

/// What is printed.
#[derive(Debug, serde::Serialize)]
struct Report {
    requests: u64,
    hits: u64,
    /// In percent, with three decimals.
    hit_ratio: f64,
    max_len: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimum_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimum_hit_ratio: Option<f64>,
}

/// Plays the trace on standard input.
pub(crate) fn run(args: &CacheArgs) -> Result<ExitCode, Failure> {
    let input = trace::read(io::stdin().lock())?;
    let keys = trace::number(&input);
    let played = run::play(args, &keys)?;
    let requests = keys.len() as u64;
    let optimum_hits = args.optimum.then(|| optimum::hits(&keys, args.capacity));
    let report = Report {
        requests,
        hits: played.hits,
        hit_ratio: percent(played.hits, requests),
        max_len: played.max_len,
        optimum_hits,
        optimum_hit_ratio: optimum_hits.map(|hits| percent(hits, requests)),
    };
    let mut output = io::stdout().lock();
    let line = if args.json {
        serde_json::to_string(&report).map_err(|error| Failure::System(error.to_string()))?
    } else {
        text(&report)
    };
    writeln!(output, "{line}").map_err(Failure::output)?;
    output.flush().map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report) -> String {
    let Report {
        requests,
        hits,
        hit_ratio,
        max_len,
        ..
    } = report;
    let mut line =
        format!("requests={requests} hits={hits} hit_ratio={hit_ratio:.3}% max_len={max_len}");
    if let (Some(hits), Some(ratio)) = (report.optimum_hits, report.optimum_hit_ratio) {
        line.push_str(&format!(
            " optimum_hits={hits} optimum_hit_ratio={ratio:.3}%"
        ));
    }
    line
}

/// Rounded to three decimals; 0 of nothing.
fn percent(hits: u64, requests: u64) -> f64 {
    if requests == 0 {
        return 0.0;
    }
    (hits as f64 * 100_000.0 / requests as f64).round() / 1_000.0
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(1_000 * 31_557_600);
    duration(text, Duration::from_millis(1), most)
}
