//! What ends the program early, and the exit code that says so.

use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Why a verb could not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or bad input: exit code 2.
    Usage(String),
    /// The system refused something: exit code 1.
    System(String),
    /// The reader of standard output went away (`| head`): not an error of ours,
    /// so nothing is said and the exit code is 0.
    Closed,
}

impl Failure {
    /// A failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::System(format!("standard output: {error}"))
        }
    }

    /// Prints the one line that the user gets and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Usage(message) => (message, ExitCode::from(2)),
            Self::System(message) => (message, ExitCode::from(1)),
            Self::Closed => return ExitCode::SUCCESS,
        };
        // The exit code still tells when standard error is closed.
        let _ = writeln!(io::stderr(), "error: {message}");
        code
    }
}
