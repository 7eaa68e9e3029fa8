//! The comparison of wheelhouse with its peers.
//!
//! `versus` runs each workload against every subject that can do it and prints one line per
//! measurement. The process that the user starts only plans and checks: each workload runs in a
//! child process of its own, so that no workload inherits the heap, the threads or the paused
//! clock of another. The children are the same program again, or `versus-counted` where heap bytes
//! are counted.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the command line |
//! | [`harness`] | rounds, interleaving, medians, the output line, the child processes |
//! | [`proc`] | processor time and context switches of this process |
//! | [`peers`] | one adapter per subject, with its settings and why they are its best |
//! | [`wheel`] | the part `wheel`: the workloads of the timing wheel |
//! | [`scheduler`] | the part `scheduler`: those of the scheduler |
//! | [`resilience`] | the part `resilience`: calls through breakers |
//! | [`cache`] | the part `cache`: operations on caches, their bytes, reclaiming |
//! | [`lifecycle`] | the part `lifecycle`: starting and stopping services |
//!
//! A new part is a module with a `PART` of its own and a line in [`PARTS`].

#![warn(missing_docs)]

pub mod args;
pub mod cache;
pub mod harness;
pub mod lifecycle;
pub mod peers;
pub mod proc;
pub mod resilience;
pub mod scheduler;
pub mod wheel;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::Args;
use harness::{Heap, Part};

/// Every part, in the order in which they run when none is named.
pub const PARTS: &[Part] = &[
    wheel::PART,
    scheduler::PART,
    resilience::PART,
    cache::PART,
    lifecycle::PART,
];

/// Runs the comparison that the command line asks for; `counted` is the program that measures heap
/// bytes.
///
/// Exit code 1 when a subject's result was wrong, 2 when the command line was.
pub fn versus(counted: &Path) -> ExitCode {
    let args = Args::parse();
    match args.plan(PARTS) {
        Ok(plan) if args.child => harness::run_here(&plan, None),
        Ok(plan) => harness::run_in_children(&plan, counted),
        Err(error) => refuse(&error),
    }
}

/// Runs what a parent `versus` asks of its counting child; `heap` reads the counting allocator.
pub fn versus_counted(heap: Heap) -> ExitCode {
    let args = Args::parse();
    match args.plan(PARTS) {
        Ok(plan) => harness::run_here(&plan, Some(heap)),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &args::BadArgument) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}
