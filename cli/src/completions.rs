//! `wheelhouse completions`: the completion script of a shell on standard output.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{args::Cli, failure::Failure};

/// Prints the script for `shell`.
pub(crate) fn run(shell: Shell) -> Result<ExitCode, Failure> {
    // Generated in memory first, because the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wheelhouse", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)
        .and_then(|()| out.flush())
        .map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}
