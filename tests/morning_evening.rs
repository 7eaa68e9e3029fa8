//! The example of two services, as a process: this program, called again, is the example.

#[path = "../examples/morning_evening.rs"]
mod morning_evening;

use std::process::ExitCode;

/// Set in the process that is the example.
const AS_EXAMPLE: &str = "WHEELHOUSE_AS_EXAMPLE";

fn main() -> ExitCode {
    if std::env::var_os(AS_EXAMPLE).is_some() {
        return morning_evening::main();
    }
    #[cfg(unix)]
    return unix::main();
    #[cfg(not(unix))]
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod unix {
    use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, ChildStderr, Command, ExitCode, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Trial};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    pub(super) fn main() -> ExitCode {
        let trials = [
            ("evening_exits_before_morning", evening_first as fn()),
            ("who_is_stuck_is_named_and_does_not_hold_the_process", stuck),
            ("a_port_in_use_fails_the_start", port_in_use),
            ("wrong_options_are_refused", wrong_options),
        ]
        .map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        });
        libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
    }

    struct Example {
        child: Child,
        lines: Lines<BufReader<ChildStderr>>,
    }

    impl Example {
        fn start(arguments: &[&str]) -> Self {
            let mut child = Command::new(std::env::current_exe().expect("it runs"))
                .args(arguments)
                .env(super::AS_EXAMPLE, "1")
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it can be called again");
            let stderr = child.stderr.take().expect("a pipe");
            Example {
                child,
                lines: BufReader::new(stderr).lines(),
            }
        }

        fn await_line(&mut self, expected: &str) {
            let found = self
                .lines
                .by_ref()
                .any(|line| line.expect("text") == expected);
            assert!(found, "no line {expected}");
        }

        fn terminate(&self) {
            let id = i32::try_from(self.child.id()).expect("a process number");
            kill(Pid::from_raw(id), Signal::SIGTERM).expect("it lives");
        }

        fn end(&mut self) -> (Vec<String>, ExitStatus) {
            let lines = self.lines.by_ref().map(|line| line.expect("text"));
            let lines = lines.collect();
            (lines, self.child.wait().expect("a child"))
        }
    }

    impl Drop for Example {
        fn drop(&mut self) {
            // It has ended, or a test has failed.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn free_address() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").to_string()
    }

    fn greeting(address: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer.lines().last().unwrap_or_default().to_owned()
    }

    fn started(more: &[&str]) -> Example {
        let (morning, evening) = (free_address(), free_address());
        let mut arguments = vec!["--morning-addr", &morning, "--evening-addr", &evening];
        arguments.extend(more);
        let mut example = Example::start(&arguments);
        example.await_line("service=evening state=ready");
        assert_eq!(greeting(&morning), "good morning");
        assert_eq!(greeting(&evening), "good evening");
        example
    }

    fn evening_first() {
        let mut example = started(&[]);
        example.terminate();
        let (lines, status) = example.end();
        let expected = [
            "service=evening state=stopping",
            "service=evening state=exited",
            "service=morning state=stopping",
            "service=morning state=exited",
        ];
        assert_eq!(lines[..4], expected);
        let report = "report exit_code=0 outcome=stopped reason=sigterm failed=- abandoned=- ";
        assert!(lines[4].starts_with(report), "{}", lines[4]);
        assert_eq!(status.code(), Some(0));
    }

    fn stuck() {
        let mut example = started(&["--total", "800ms", "--stuck", "morning"]);
        let begun = Instant::now();
        example.terminate();
        let (lines, status) = example.end();
        let took = begun.elapsed();
        assert_eq!(status.code(), Some(75));
        assert!(took >= Duration::from_millis(790), "{took:?}");
        // Within 200 ms on a machine that has nothing else to do.
        assert!(took < Duration::from_millis(2800), "{took:?}");
        let last = lines.last().expect("a report");
        assert!(last.contains(" abandoned=morning "), "{last}");
    }

    fn port_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = listener.local_addr().expect("an address").to_string();
        let free = free_address();
        let mut example = Example::start(&["--morning-addr", &free, "--evening-addr", &taken]);
        let (lines, status) = example.end();
        assert_eq!(status.code(), Some(1));
        let last = lines.last().expect("a report");
        assert!(
            last.contains("reason=service:evening failed=evening"),
            "{last}"
        );
        assert!(lines.contains(&"service=morning state=exited".to_owned()));
    }

    fn wrong_options() {
        for arguments in [
            &["--total", "soon"][..],
            &["--stuck", "noon"],
            &["--total", "0s"],
            &["-x"],
        ] {
            let (lines, status) = Example::start(arguments).end();
            assert_eq!(status.code(), Some(2), "{arguments:?}");
            assert_eq!(lines.len(), 1, "{lines:?}");
        }
    }
}
