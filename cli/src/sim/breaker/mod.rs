//! `wheelhouse sim breaker`: breakers in front of a modelled backend, on a virtual clock.

mod engine;
mod models;
mod output;
mod plot;
mod policies;
mod policy;
mod rate;
mod scenario;
mod series;
mod settings;
mod shipped;
mod tally;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use self::{
    output::Shown,
    policies::Chosen,
    rate::Rate,
    scenario::Scenario,
    series::{Series, View},
    settings::Settings,
};
use crate::{args::whole, failure::Failure, plot::PlotFile};

/// Drive a circuit breaker or throttle against a modelled backend on a virtual clock.
///
/// The calls, and which of them the backend would answer well, are drawn from the seed, the same
/// for every policy. Policies:
///
///   default             the default breaker: evidence in the order of the calls, or an error rate
///   error-rate          the three-state breaker of an error rate
///   consecutive         the breaker of consecutive failures
///   throttle-sre, throttle-go-zero-2022, throttle-go-zero, adaptive
///                       the throttle in its modes
///   model-go-zero, model-gobreaker, model-hystrix, model-resilience4j, model-polly,
///   model-failsafe-rs, model-recloser
///                       models of other libraries' breakers, with their own algorithms and defaults
///
/// Scenarios:
///
///   outage-1s, outage-30s  60 s healthy, 1 s or 30 s in which every call fails, 60 s healthy
///   outage-after-1h        1 h healthy, 30 s in which every call fails, 10 min healthy
///   constant-20, constant-40
///                          1 h in which 20 % or 40 % of the calls fail
///   brownout               60 s healthy, 60 s in which half fails and takes 200 ms, 60 s healthy
///   hang                   60 s healthy, 30 s in which calls never answer, 60 s healthy
///   flapping               30 times 2 s in which every call fails and 2 s healthy
///   cold-heal              30 s in which every call fails from the first on, 60 s healthy
///   capacity-3x            60 s in which a third of the calls can be served, one at a time
///   sparse                 outage-30s with a call every five seconds, whatever --rps
///   cancellations          60 s in which half of the calls are dropped by their callers
///
/// Any other name is a JSON file:
///
///   {"phases":[{"for":"1h"},{"for":"30s","error_rate":1.0}],"arrivals":"even"}
///
///   for          how long the phase lasts
///   error_rate   the share of calls that fail [default: 0]
///   latency      until the answer, or the failure [default: "5ms"]
///   capacity     calls worked on at once; what is over it waits, first come first served
///                [default: any number]
///   hang         whether calls are never answered [default: false]
///   timeout      so long after its start a call that waits for capacity or an answer is given up
///                as a failure, and its place is free [default: "1s"]
///   cancel_rate  the share of calls dropped by their callers when they would have been answered
///                [default: 0]
///   arrivals     even, poisson or bursty (10 at one instant, every 10/rps s) [default: even]
///
/// A phase is sick if its error_rate is 0.5 at least or if it hangs. Healing is the end of the last
/// sick phase that another phase follows. A call is good if it is drawn a success, does not hang
/// and is not cancelled. At one instant calls settle before others arrive, and the run ends when
/// all admitted calls have settled.
///
/// --json prints policy, scenario, rps and seed, and then, in this order:
///
///   offered        calls
///   good_possible  good calls
///   good_served    good calls that were admitted and answered
///   bad_sent       admitted calls that failed
///   bad_before_trip, time_to_trip_ms
///                  failures settled and milliseconds from the start of the first sick phase
///                  (without one: of the run) to the first rejection after it; null without one
///   time_to_95_ms  milliseconds from healing to the arrival that begins the first run of 20
///                  arrivals, or all within (less than) 100 ms if those are more, of which 95 %
///                  are admitted (the run may be cut by the end); 0 if it is the first arrival,
///                  null if there is none or no healing
///   good_dropped_after_heal
///                  good calls rejected between those two points, or to the end
///   false_rejects  good calls rejected outside that span and outside sick phases
///   peak_in_flight_at_heal
///                  most calls in flight in the 5 s after healing; null without healing
///   probes         calls admitted while not closed, or by a throttle's budget for probes
///   transitions    changes of state
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct BreakerArgs {
    /// The policy to drive.
    #[arg(long, value_name = "NAME", required_unless_present = "compare")]
    policy: Option<String>,
    /// Policies to drive through the same calls instead of one.
    #[arg(
        long,
        value_name = "A,B,C",
        value_delimiter = ',',
        conflicts_with = "policy"
    )]
    compare: Vec<String>,
    /// A setting of the policy, as in window=10s; with --compare of each policy that has it. A
    /// wrong key is answered with those there are and their defaults.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A name or a file.
    #[arg(long, value_name = "FILE|NAME")]
    scenario: String,
    /// Calls a second, 0.001..=10000000, up to three decimals.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = Rate::parse, allow_negative_numbers = true)]
    rps: Rate,
    /// Seed of everything that is left to chance, 0..=18446744073709551615.
    #[arg(long, value_name = "S", default_value = "1", value_parser = whole::<0, { u64::MAX }>, allow_negative_numbers = true)]
    seed: u64,
    /// Print one JSON object a line for each policy instead of a table.
    #[arg(long)]
    json: bool,
    /// Draw what each policy admits, and which failures it lets through, over time into this SVG
    /// file. An old file stays until the run is over.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Runs the policies through the scenario and prints their figures.
pub(crate) fn run(args: &BreakerArgs) -> Result<ExitCode, Failure> {
    let names: Vec<&str> = match &args.policy {
        Some(policy) => vec![policy],
        None => args.compare.iter().map(String::as_str).collect(),
    };
    let (scenario, policies) = prepare(args, &names).map_err(Failure::Usage)?;
    // Opened now, so that a bad path is known before the run and not after it.
    let plot = args.plot.as_deref().map(PlotFile::for_option).transpose()?;
    let view = plot.is_some().then(|| View::of(&scenario));

    let mut all = Vec::new();
    let mut lines = Vec::new();
    for (name, policy) in names.iter().zip(policies) {
        let mut series = view.map(Series::new);
        let figures = policy.run(&scenario, args.seed, series.as_mut());
        let policy = (*name).to_owned();
        lines.extend(series.map(|series| (policy.clone(), series)));
        all.push(Shown { policy, figures });
    }

    if let (Some(file), Some(view)) = (plot, view) {
        file.write(plot::svg(&scenario, args.seed, view, &lines).as_bytes())
            .map_err(|error| Failure::System(format!("--plot: {error}")))?;
    }
    let text = if args.json {
        output::json(&all, &scenario, args.seed)
    } else {
        output::table(&all, &scenario, args.seed)
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds everything, so that what is wrong is known before the run.
fn prepare(args: &BreakerArgs, names: &[&str]) -> Result<(Scenario, Vec<Chosen>), String> {
    let option = if args.policy.is_some() {
        "--policy"
    } else {
        "--compare"
    };
    if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return Err(format!("{option}: {} is given twice", names[twice]));
    }
    if let Some(unknown) = names.iter().find(|name| !policies::NAMES.contains(name)) {
        let known = policies::NAMES.join(", ");
        return Err(format!("{option}: {unknown:?} is not a policy ({known})"));
    }
    let mut settings = Settings::new(&args.set)?;
    let built = names
        .iter()
        .map(|name| Chosen::build(name, &mut settings, args.seed));
    let policies = built.collect::<Result<_, _>>()?;
    settings.finish()?;
    let scenario =
        Scenario::load(&args.scenario, args.rps).map_err(|error| format!("--scenario: {error}"))?;
    Ok((scenario, policies))
}
