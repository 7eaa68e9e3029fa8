//! `load` under limits of the system: one line and exit code 1, or a full run; never a hang.
#![cfg(target_os = "linux")]

use std::{
    os::unix::{fs::MetadataExt, process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Starts `load` with `args` after the shell has set a limit.
fn limited(limit: &str, args: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_wheelhouse");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("{limit} && exec '{program}' load --json {args}"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The exit code and both streams, which are short; a hang is a failure.
#[track_caller]
fn end(mut child: Child) -> (Option<i32>, String, String) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn refused_threads_are_one_line_and_exit_code_1() {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for executor in [
        "--executor inline",
        "--executor threads=2",
        "--executor tokio",
        "--executor tokio-blocking",
        "--scheduler",
    ] {
        for threads in 1..=6 {
            // Which of the two it is depends on the shell.
            let limit = format!("{{ ulimit -u {threads} 2>&- || ulimit -p {threads}; }}");
            let args = format!("--tasks 200 --over 20ms --after 20ms {executor}");
            let mut command = limited(&limit, &args);
            if root {
                // The limit does not hold for root.
                command.uid(65534);
            }
            let (code, stdout, stderr) = end(command.spawn().unwrap());
            let what = format!("{executor}, {threads}: {code:?}\n{stdout}{stderr}");
            if code == Some(0) {
                assert!(threads > 1, "{what}");
                assert!(
                    stdout.contains("\"fired\":200,\"early\":0,\"lost\":0"),
                    "{what}"
                );
                assert_eq!(stderr, "", "{what}");
            } else {
                assert_eq!((code, stdout.as_str()), (Some(1), ""), "{what}");
                assert_eq!(stderr.lines().count(), 1, "{what}");
                assert!(stderr.contains(" could not be started: "), "{what}");
            }
        }
    }
}

#[test]
fn refused_memory_is_one_line_and_exit_code_1() {
    for subject in ["--executor inline", "--scheduler"] {
        let args = format!("--tasks 10000000 --after 1h {subject}");
        let child = limited("ulimit -v 400000", &args).spawn();
        assert_eq!(
            end(child.unwrap()),
            (
                Some(1),
                String::new(),
                "error: not enough memory for 10000000 tasks\n".to_owned()
            )
        );
    }
}
