//! The test binary called again, for what is asked of a whole process.

use std::env;
use std::process::Command;

/// What the answer begins with, in the output of the test harness.
const MARK: &str = "answer: ";
const ASKED: &str = "WHEELHOUSE_TEST_AGAIN";

/// Runs `test` of this binary in a process with these variables, and returns what it answers.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> String {
    let binary = env::current_exe().expect("the test binary has a path");
    let output = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ASKED, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("the test binary can be run");
    let text = String::from_utf8(output.stdout).expect("text");
    // The harness may have begun the line with the name of the test.
    let answer = text
        .lines()
        .find_map(|line| line.split_once(MARK))
        .unwrap_or_else(|| panic!("no answer in {text:?}"));
    answer.1.to_owned()
}

/// Whether this is such a process.
pub(crate) fn answers() -> bool {
    env::var_os(ASKED).is_some()
}

/// Answers.
pub(crate) fn answer(text: &str) {
    println!("{MARK}{text}");
}
