//! `wheelhouse sim wheel`: timers in, events out, on a virtual clock.

mod input;
mod output;
mod run;

use std::{
    io::{self, BufReader, BufWriter, Write},
    process::ExitCode,
};

use clap::Args;

use crate::{args::whole, failure::Failure};

const MAX_SLOTS: u64 = wheelhouse_wheel::MAX_SLOTS as u64;

/// Run timers on a virtual clock: operations on standard input, events on standard output.
///
/// Input is JSON Lines in non-decreasing at_ms (milliseconds since the start):
///
///   {"at_ms":0,"op":"set","key":"a","delay_ms":1500,"value":"x"}
///   {"at_ms":10,"op":"move","key":"a","delay_ms":90}
///   {"at_ms":20,"op":"remove","key":"a"}
///   {"at_ms":30,"op":"drain"}
///
/// key and value are strings (value may be left out), at_ms and delay_ms integers
/// 0..=18446744073709551615; empty lines are skipped. Ticks are at the multiples of the
/// interval; at one instant the tick comes first, then the operations in input order. A
/// timer fires at the first tick that is after the operation and not before at_ms +
/// delay_ms; timers of one tick fire in the order of the set or move that touched them
/// last.
///
/// Events, their fields in this order:
///
///   {"at_ms":1500,"event":"fired","key":"a","value":"x"}        at_ms is the tick
///   {"at_ms":30,"event":"drained","key":"a","value":"x"}        at_ms is that of the drain
///   {"at_ms":10,"event":"missing","op":"move","key":"a"}        a move or remove (op) without
///                                                               its key
///   {"at_ms":90,"event":"pending","key":"a","value":"x","due_ms":1500}
///                                                               left at the end; at_ms is
///                                                               --until-ms, or else
///                                                               18446744073709551615
///
/// value is null where it was left out. due_ms is the requested instant, at_ms + delay_ms of
/// the set or move; it need not be a tick and may exceed 18446744073709551615. A set that
/// replaces, and a move or remove that found its key, print nothing. A bad line ends the run
/// with exit code 2.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct WheelArgs {
    /// Milliseconds between two ticks, 1..=18446744073709551615.
    #[arg(long, value_name = "MS", default_value = "1", value_parser = whole::<1, { u64::MAX }>, allow_negative_numbers = true)]
    interval_ms: u64,
    /// Slots of the wheel, 1..=16777216; the output does not depend on it, the cost may.
    #[arg(long, value_name = "N", default_value = "512", value_parser = whole::<1, MAX_SLOTS>, allow_negative_numbers = true)]
    slots: u64,
    /// Stop after what happens at this time in milliseconds, 0..=18446744073709551615, and
    /// print what is still pending; input after the first line beyond it is not read
    /// [default: run until nothing is]
    #[arg(long, value_name = "MS", value_parser = whole::<0, { u64::MAX }>, allow_negative_numbers = true)]
    until_ms: Option<u64>,
    /// Print relocations, cascades and stale references of the wheel (counts) on standard
    /// error at the end.
    #[arg(long)]
    stats: bool,
}

/// Runs the simulation on the standard streams.
pub(crate) fn run(args: &WheelArgs) -> Result<ExitCode, Failure> {
    let input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let stats = run::run(args, input, output)?;
    if args.stats {
        // The output is complete; nothing is lost when nobody reads the statistics.
        let _ = writeln!(io::stderr(), "{stats}");
    }
    Ok(ExitCode::SUCCESS)
}
