//! Calling the program under test.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
};

/// What a call left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `wheelhouse` with `args` and `input` on its standard input.
pub(crate) fn wheelhouse(args: &[&str], input: &[u8]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            // The program may stop reading before the end: at a bad line, or past --until-ms.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("the program ends")
    });
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}
