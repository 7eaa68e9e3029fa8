//! `wheelhouse sim`: parts of the library on a virtual clock.

mod breaker;
mod cache;
mod cron;
mod shed;
mod wheel;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// The part to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    Wheel(wheel::WheelArgs),
    Cache(cache::CacheArgs),
    Cron(cron::CronArgs),
    Breaker(breaker::BreakerArgs),
    Shed(shed::ShedArgs),
}

/// Runs the part that was asked for.
pub(crate) fn run(sim: Sim) -> Result<ExitCode, Failure> {
    match sim {
        Sim::Wheel(args) => wheel::run(&args),
        Sim::Cache(args) => cache::run(&args),
        Sim::Cron(args) => cron::run(&args),
        Sim::Breaker(args) => breaker::run(&args),
        Sim::Shed(args) => shed::run(&args),
    }
}
