//! `wheelhouse sim shed`: the load shedder before a modelled server, in virtual time.

mod model;
mod report;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use crate::{
    args::{duration, whole},
    failure::Failure,
};

use model::{Arrivals, LOAD_SECONDS, Server};

const MAX_CORES: u64 = 1024;
const MIN_LOAD: f64 = 0.01;
const MAX_LOAD: f64 = 100.0;

/// More take minutes, and show nothing else.
const MAX_REQUESTS: f64 = 1e9;

/// Run the load shedder before a modelled server and print what becomes of the load.
///
/// The server has --cores processors. Each request needs one of them for --service, and waits for it
/// first come first served, as long as it takes; capacity is cores / service. Requests come whether
/// or not the ones before have been answered. The shedder is the library's with its defaults, and
/// sees how busy the processors are.
///
/// Each load is a run of its own and a multiple of the capacity: it lasts 30 s, and then 0.1 is
/// offered for 10 s. Without --idle it is the first that the shedder sees; after a while of little
/// load it takes about 12 s until the average usage is at the threshold, and until then all is let in.
/// Per load, --json prints one object a line with these fields, in this
/// order:
///
///   load           the multiple
///   offered        requests in the 30 s
///   admitted       those of them that were let in
///   goodput        requests answered in the 30 s, as a share of the capacity
///   p50_ms, p99_ms
///                  time from arrival to answer, of the admitted that arrived in the last 15 s of
///                  the load; null without any
///   first_shed_ms  time from the start to the first that was shed; null without any
///   last_shed_ms   time from the end of the load to the last that was shed; 0 when none was
///                  shed after the end, null when none was shed at all
///
///   wheelhouse sim shed --load 0.9,3 --cores 8 --service 2ms
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShedArgs {
    /// Loads as multiples of the capacity, 0.01..=100, with commas between.
    #[arg(long, value_name = "LOADS", default_value = "0.5,1,2,4", value_parser = load, value_delimiter = ',', allow_hyphen_values = true)]
    load: Vec<f64>,
    /// Processors of the server, 1..=1024.
    #[arg(long, value_name = "N", default_value = "2", value_parser = whole::<1, MAX_CORES>, allow_negative_numbers = true)]
    cores: u64,
    /// Processor time that a request needs, 100us..=10s.
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = service, allow_hyphen_values = true)]
    service: Duration,
    /// How requests follow each other: even, or poisson (at random, the same each time).
    #[arg(long, value_name = "ARRIVALS", default_value = "even", value_parser = arrivals, allow_hyphen_values = true)]
    arrivals: Arrivals,
    /// How long 0.1 is offered before each load, 0s..=1h.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = idle, allow_hyphen_values = true)]
    idle: Duration,
    /// Print one JSON object per load instead of a table; its fields are listed above.
    #[arg(long)]
    json: bool,
}

/// Runs the loads one after the other, and prints each as soon as it is over.
pub(crate) fn run(args: &ShedArgs) -> Result<ExitCode, Failure> {
    let server = Server {
        cores: usize::try_from(args.cores).unwrap_or(usize::MAX),
        service: args.service,
        arrivals: args.arrivals,
        idle: args.idle,
    };
    for &load in &args.load {
        let spans = load * LOAD_SECONDS as f64 + 0.1 * args.idle.as_secs_f64();
        let requests = spans * server.capacity();
        if requests > MAX_REQUESTS {
            return Err(Failure::Usage(format!(
                "--load: {load} of this capacity is {requests:.0} requests; at most {MAX_REQUESTS:.0} are simulated"
            )));
        }
    }
    let mut output = io::stdout().lock();
    if !args.json {
        report::heading(&mut output).map_err(Failure::output)?;
    }
    for &load in &args.load {
        let outcome = server.run(load);
        if args.json {
            report::json(&mut output, load, &outcome)
        } else {
            report::row(&mut output, load, &outcome)
        }
        .and_then(|()| output.flush())
        .map_err(Failure::output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(text: &str) -> Result<f64, String> {
    // Digits and a point: `inf`, `1e1` and `+1` are numbers to Rust.
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<f64>() {
        Ok(load) if is_plain && (MIN_LOAD..=MAX_LOAD).contains(&load) => Ok(load),
        Ok(_) if is_plain => Err(format!("{text} is not in {MIN_LOAD}..={MAX_LOAD}")),
        _ => Err(format!(
            "{text:?} is not a number in {MIN_LOAD}..={MAX_LOAD} (write 0.5,1,2)"
        )),
    }
}

fn service(text: &str) -> Result<Duration, String> {
    duration(text, Duration::from_micros(100), Duration::from_secs(10))
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "even" => Ok(Arrivals::Even),
        "poisson" => Ok(Arrivals::Poisson),
        _ => Err(format!("{text:?} is not even or poisson")),
    }
}

fn idle(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_keep_to_their_range() {
        assert_eq!(
            (load("0.5"), load("4"), load("100")),
            (Ok(0.5), Ok(4.0), Ok(100.0))
        );
        for text in ["0", "0.001", "101"] {
            assert_eq!(load(text), Err(format!("{text} is not in 0.01..=100")));
        }
        for text in ["", "-1", "+1", "1e1", "inf", "nan", ".", "1 "] {
            assert!(
                load(text).unwrap_err().contains("is not a number"),
                "{text}"
            );
        }
    }
}
