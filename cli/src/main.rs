//! The `wheelhouse` program: each verb is a module of its own, this file only
//! picks one and turns its outcome into an exit code.

mod args;
mod completions;
mod failure;
mod figures;
mod load;
mod plot;
mod sim;

use std::{io::Write, process::ExitCode};

use args::Verb;
use failure::Failure;

fn main() -> ExitCode {
    quiet_panics();
    let outcome = args::parse().and_then(|verb| match verb {
        Some(Verb::Sim(sim)) => sim::run(sim),
        Some(Verb::Load(load)) => load::run(load),
        Some(Verb::Completions { shell }) => completions::run(shell),
        None => Ok(ExitCode::SUCCESS),
    });
    outcome.unwrap_or_else(Failure::report)
}

/// A user gets one line, never a backtrace, should the program itself be at fault.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let what = panic.payload_as_str().unwrap_or("unknown cause");
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "error: a fault in wheelhouse itself at {}: {what}",
            place.as_deref().unwrap_or("an unknown place"),
        );
    }));
}
